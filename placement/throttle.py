"""The least throttle at which what is copied comes to an end.

Contract.  A function of rates; whoever knows some asks: the cluster before it begins, and the
command that only shows what would be.
"""

from __future__ import annotations

from collections.abc import Iterable

#: A throttle is refused below this many hundredths of what is appended meanwhile to the groups that
#: are copied at once: at 100 a replica would never catch up.
FLOOR_PERCENT = 120


def least(copies: Iterable[tuple[int, int, Iterable[int]]], in_per_node_max: int,
          out_per_node_max: int) -> int:
    """Bytes per second below which some replica might never catch up: what is appended to the
    busiest groups that may be copied at once, into one node or out of one.  ``copies``: per change
    of replicas the bytes per second appended to its group, the node that sends, and those that
    receive.  O(n log n)."""
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
