"""Names in a data directory: which are ours, and what is said of the others.

Contract.  Pure functions over names, and ``stray_segments`` over what a recovery has seen of
each segment file.  A *stray* file is one that this node did not write there: it is neither counted
nor changed nor removed, and it is named to the operator.

Theory.  A segment without an intact header may be one of ours whose header is damaged, or one that
a crash left unfinished, so it counts as damage or goes.  It is none of ours when it cannot be: when
it begins where the segment before has bytes, in a removed part of the journal, farther behind the
last known place of the journal than a segment is long, or between two segments of which the later
one continues the earlier.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from multiraft.storage.config import SEGMENT_BYTES_LIMIT
from multiraft.storage.removed_ranges import RemovedRanges

SEGMENT_SUFFIX = ".segment"
INDEX_SUFFIX = ".index"
COLD_SUFFIX = ".cold"
COLD_INDEX_SUFFIX = ".cold-index"
CHECKPOINT_PREFIX = "checkpoint-"
#: Ending of a file that is being written; one found at start is left from a crash and removed.
UNFINISHED = ".new"
#: Ending of what was found damaged and set aside.
SET_ASIDE = ".corrupt"
#: Ending of the second copy of a checkpoint: what the one of the same name held when it was made.
COPY = ".copy"

#: No journal is so long: at 1 GB per second it would take a hundred years.  What is added to
#: a position stays a number of 64 bits.
JOURNAL_POSITION_MAX = 1 << 62
#: Stray files of one directory that are named one by one; who has more has copied a directory.
STRAYS_NAMED_MAX = 20

_DIGITS = "([0-9]{20})"
_SEGMENT = re.compile(_DIGITS + re.escape(SEGMENT_SUFFIX))
_INDEX = re.compile(_DIGITS + re.escape(INDEX_SUFFIX))
_COLD = re.compile(_DIGITS + re.escape(COLD_SUFFIX))
_COLD_INDEX = re.compile(_DIGITS + re.escape(COLD_INDEX_SUFFIX))
_CHECKPOINT = re.compile(re.escape(CHECKPOINT_PREFIX) + _DIGITS + f"({re.escape(COPY)})?")
_RECORD = re.compile("[a-z_]+[.]json")


class Stray(NamedTuple):
    """A file or name in a data directory that the node did not write, with the reason for which it
    is none of its own."""

    path: str
    why: str


class SeenSegment(NamedTuple):
    """A segment file in journal order, as a recovery has read it."""

    start: int
    size: int
    is_ours: bool  # its header is intact, and says that it begins there
    first_watermark: int  # durable watermark of its first entry; -1 = it has none
    end: int  # journal position after its last entry


def segment_start(name: str) -> int | None:
    """Return the start position of a segment with that name; None = not a segment's name."""
    return _position(_SEGMENT, name)


def index_start(name: str) -> int | None:
    """Return the start position of the segment of an index file; None = not such a name."""
    return _position(_INDEX, name)


def checkpoint_position(name: str) -> int | None:
    """Return the journal position of a checkpoint, or of its second copy, by its file name; None =
    it is no such name."""
    return _position(_CHECKPOINT, name)


def cold_number(name: str) -> int | None:
    """Return the number of a cold segment by its file name; None = not such a name."""
    return _position(_COLD, name)


def cold_index_number(name: str) -> int | None:
    """Return the number of a cold segment by the name of its index file; None = not such a name."""
    return _position(_COLD_INDEX, name)


def _position(pattern: re.Pattern[str], name: str) -> int | None:
    found = pattern.fullmatch(name)
    position = int(found[1]) if found else JOURNAL_POSITION_MAX
    return position if position < JOURNAL_POSITION_MAX else None


def is_unfinished(name: str) -> bool:
    """Return True if a crash may have left the file of that name half written."""
    done = name.removesuffix(UNFINISHED)
    return done != name and any(pattern.fullmatch(done)
                                for pattern in (_INDEX, _COLD, _COLD_INDEX, _CHECKPOINT,
                                                    _RECORD))


def strays_in_journal(directory: str, names: Iterable[str]) -> list[Stray]:
    """Return the files in a journal's directory whose names are not a journal's."""
    return [Stray(f"{directory}/{name}", "no segment has that name") for name in names
            if segment_start(name) is None and index_start(name) is None
            and not is_unfinished(name)]


def strays_among_checkpoints(directory: str, names: Iterable[str]) -> list[Stray]:
    """Return the files in a data directory whose names only resemble those of checkpoints."""
    return [Stray(f"{directory}/{name}", "no checkpoint has that name") for name in names
            if name.startswith(CHECKPOINT_PREFIX) and checkpoint_position(name) is None
            and not name.endswith((SET_ASIDE, UNFINISHED))]


def stray_segments(files: Sequence[SeenSegment], removed: RemovedRanges,
                   known_to: int) -> dict[int, str]:
    """Return slot in ``files`` -> reason, of the segment files that cannot be the journal's.  Files
    with an intact header never count.  O(files log ranges).

    ``removed``: the removed part of the journal by the checkpoint; ``known_to``: the last position
    of the journal that the checkpoint knows."""
    found: dict[int, str] = {}
    journal_start = removed.journal_start
    reach = max(journal_start, known_to) + SEGMENT_BYTES_LIMIT
    before: SeenSegment | None = None
    for at, each in enumerate(files):
        why = "" if each.is_ours else _why_not(each, before, removed, reach)
        if why:
            found[at] = why
            continue
        before = each
        reach = max(reach, each.start + SEGMENT_BYTES_LIMIT)
    _between(files, removed, found)
    return found


def _why_not(each: SeenSegment, before: SeenSegment | None, removed: RemovedRanges,
             reach: int) -> str:
    if each.start < removed.journal_start:
        return f"it would stand before the start of the journal at {removed.journal_start}"
    if removed.covers(each.start):
        return "it would stand in a removed part of the journal"
    if each.start > reach:
        return f"no segment begins behind {reach}"
    if before is not None and each.start < max(before.start + before.size, before.end):
        return f"it would stand within the segment that begins at {before.start}"
    return ""


def _continues(each: SeenSegment, last: SeenSegment, removed: RemovedRanges) -> bool:
    """Return True if the first entry of a segment was written right behind the last one of an
    earlier segment, or of the removed range behind that."""
    gone = removed.behind(last.start, each.start)
    if gone is None:
        return each.first_watermark == last.end
    # A range that begins elsewhere is behind a segment between: its header is not intact.
    return gone == (last.end, each.first_watermark)


def _between(files: Sequence[SeenSegment], removed: RemovedRanges, found: dict[int, str]) -> None:
    """Add to ``found`` the files between two segments of which the later one continues the
    earlier."""
    last, between = None, []
    for at, each in enumerate(files):
        if at in found:
            continue
        if not each.is_ours:
            between.append(at)
            continue
        if last is not None and _continues(each, last, removed):
            found.update(dict.fromkeys(
                between, f"the segment that begins at {each.start} continues the one that begins "
                         f"at {last.start}"))
        last, between = each, []
