"""Limits of a plan's throttle: high enough that copies complete, low enough to exclude a typing
error.

Contract.  Functions of rates.  The cluster calls them before it begins a plan, and so do the
commands that only show a plan.  All give the same sentences.

Theory.  A replica that catches up gets at least one batch at a time, of any size.  The executor of
a plan gives up a replica that got nothing within its patience.  So each stream needs a batch of the
largest size within that time, or it would be given up and begun again without end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

#: A throttle is refused below this many hundredths of what is appended meanwhile to the groups that
#: are copied at once: at 100 a replica would never catch up.
FLOOR_PERCENT = 120
#: A learner that got nothing for so long is given up, in milliseconds, and tried again later.
STILL_MS_MAX = 60_000
#: The largest piece that a learner gets: one batch of the largest size, which goes as a whole.
PIECE_BYTES_MAX = 8 << 20
#: A stream has to be able to carry so many of these within ``STILL_MS_MAX``: twice what is needed,
#: because streams share a sender unevenly and pay for a piece afterwards.
PIECES = 2
#: Bytes per second that each stream needs for that; a throttle is refused below as many times this
#: as a node receives or sends replicas at once.
STREAM_MIN = PIECES * PIECE_BYTES_MAX * 1000 // STILL_MS_MAX
#: Bytes per second above which a throttle is refused: no node sends that much, so it is a slip.
THROTTLE_MAX = 1 << 40


class TooLow(NamedTuple):
    """A throttle that is refused: the least that would do, and the sentence."""

    least: int
    text: str


def too_low(rate: int, copies: Iterable[tuple[int, int, Iterable[int]]], in_per_node_max: int,
            out_per_node_max: int) -> TooLow | None:
    """Return the least throttle and a sentence if ``rate`` bytes per second is too low for a plan;
    None = it is enough. ``copies`` as for ``least``."""
    needed = least(copies, in_per_node_max, out_per_node_max)
    enough = max(needed, smallest(in_per_node_max, out_per_node_max))
    if rate >= enough:
        return None
    why = (f"so much is appended to the groups that replicas would not catch up below {enough:,}"
           if enough == needed else f"below {enough:,} a replica may get nothing for "
           f"{STILL_MS_MAX // 1000} s, and is given up then")
    return TooLow(enough, f"a throttle of {rate:,} bytes per second is too low: {why}")


def smallest(in_per_node_max: int, out_per_node_max: int) -> int:
    """Return the bytes per second below which some replica might be given up, whatever is appended.
    """
    return STREAM_MIN * max(in_per_node_max, out_per_node_max)


def least(copies: Iterable[tuple[int, int, Iterable[int]]], in_per_node_max: int,
          out_per_node_max: int) -> int:
    """Return the bytes per second below which some replica might never catch up: 1.2 times what is
    appended to the busiest groups that may be copied at once, into one node or out of one.

    ``copies``: per change of replicas the bytes per second appended to its group, the node that
    sends, and those that receive. O(n log n)."""
    into: dict[int, list[int]] = {}
    out: dict[int, list[int]] = {}
    for rate, sender, receivers in copies:
        for node in receivers if rate else ():
            into.setdefault(node, []).append(rate)
            out.setdefault(sender, []).append(rate)
    worst = 0
    for streams, most in ((into, in_per_node_max), (out, out_per_node_max)):
        for rates_there in streams.values():
            worst = max(worst, sum(sorted(rates_there, reverse=True)[:most]))
    return worst * FLOOR_PERCENT // 100
