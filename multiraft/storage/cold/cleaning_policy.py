"""Policy of the cleaner: which segments are copied next, and from what space of the disk.

Contract.  Pure functions of what is known of the segments.  ``next_sources`` chooses those whose
records share the next cold segment; ``space_for`` says if the disk has the space for that one.

Theory.  Copying a segment of live ratio u writes u to free 1 - u.  Nothing is copied while all of
the segments take at most ``SPACE_FACTOR`` times their live bytes, because a segment that dies by
itself is not worth a copy.  Above that, some segment is below ``LIVE_RATIO_MAX``, the inverse.  So
the segments take at most 1.4 times their live bytes.  Their index files are a twentieth of batches
of 1 KiB, which makes 1.5.  Beside that stands what may not be copied yet: the journal above the
Raft starts, and the sources of the last cold segments until the checkpoints name these.

Which of them is first: the one with most freed per byte read and written, times its age (Rosenblum
and Ousterhout, The Design and Implementation of a Log-Structured File System, section 3.5).  The
live ratio of a young segment still falls while short retention times take their part; that of an
old one has become steady.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from multiraft.storage.cold.copy_job import COLD_SEGMENT_BYTES_MAX, COLD_SEGMENT_RECORDS_MAX

#: Segments are copied while they take more than so many times their live bytes.
SPACE_FACTOR = 1.4
#: Segments are copied below this live ratio.
LIVE_RATIO_MAX = 0.72
assert LIVE_RATIO_MAX >= 1 / SPACE_FACTOR, "above the factor there is a segment to copy"

#: Cold segments of a node.  Each checkpoint names all of them, in 2 MiB at most; with 64 MiB each
#: they hold 4 TiB.  Above it only joins of cold segments are done.
COLD_SEGMENTS_MAX = 1 << 16

#: Cold segments with less than a quarter of the largest size that are left alone.  With more, the
#: oldest are joined, so that their number follows the bytes.
SMALL_SEGMENTS_MAX = 16
_SMALL_SHARE = 4

#: Segments whose records share one cold segment: what is known of each is copied for it.
SOURCES_MAX = 256


class SegmentFacts(NamedTuple):
    """A segment that may be copied: sealed, and below the Raft starts of its groups, or cold."""

    start: int  # journal offset, or place of a cold segment
    bytes: int  # of the file
    live_bytes: int  # framed, of the records in it
    records: int
    age: int  # bytes by which the journal grew behind it
    is_cold: bool = False

    @property
    def live_ratio(self) -> float:
        return self.live_bytes / self.bytes if self.bytes else 0.0


@dataclass(frozen=True, slots=True)
class CleaningLimits:
    """Sizes that the choice of sources depends on."""

    #: Framed bytes of a cold segment.
    bytes_max: int = COLD_SEGMENT_BYTES_MAX
    records_max: int = COLD_SEGMENT_RECORDS_MAX
    #: Bytes that the sources of one cold segment free at least: less is not worth a file.
    freed_bytes_min: int = 16 << 20


class Sources(NamedTuple):
    """Choice of the segments whose records share one cold segment."""

    segments: tuple[SegmentFacts, ...]
    #: False: the only one has more records than a cold segment holds, and is copied in parts.
    is_whole: bool = True

    @property
    def taken_bytes(self) -> int:
        """Bytes that the cold segment takes at most."""
        return sum(each.live_bytes for each in self.segments)

    @property
    def freed_bytes(self) -> int:
        """Bytes of the files that can be removed afterwards."""
        return sum(each.bytes for each in self.segments) if self.is_whole else 0


def next_sources(segments: Sequence[SegmentFacts], cold_count: int,
                 limits: CleaningLimits = CleaningLimits(), is_short: bool = False) -> Sources:
    """Return the segments to copy next; no segment = nothing is worth it.  O(n log n).

    ``segments``: all that may be copied, those with many live bytes among them.  Those without a
    live record are not chosen: they go by themselves.  ``cold_count``: cold segments of the node;
    ``is_short``: the disk is short of space, so that any freed space is worth a file."""
    needs_space = is_short or sum(each.bytes for each in segments) > SPACE_FACTOR * sum(
        each.live_bytes for each in segments)
    candidates = sorted((each for each in segments if needs_space and each.records
                         and each.live_ratio < LIVE_RATIO_MAX), key=_benefit, reverse=True)
    if cold_count >= COLD_SEGMENTS_MAX:
        candidates = [each for each in candidates if each.is_cold]
    chosen = _fitting(candidates, limits)
    freed = sum(each.bytes - each.live_bytes for each in chosen.segments)
    if chosen.segments and (freed >= limits.freed_bytes_min or is_short):
        return chosen
    small = sorted((each for each in segments if each.is_cold and each.records
                    and each.live_bytes < limits.bytes_max // _SMALL_SHARE),
                   key=lambda each: each.age, reverse=True)
    if len(small) > SMALL_SEGMENTS_MAX and not is_short:
        return _fitting(small, limits)
    return Sources(())


def _benefit(segment: SegmentFacts) -> float:
    ratio = segment.live_ratio
    return (1 - ratio) * segment.age / (1 + ratio)


def _fitting(candidates: Sequence[SegmentFacts], limits: CleaningLimits) -> Sources:
    """Return the first candidates that fit into one cold segment together."""
    chosen: list[SegmentFacts] = []
    taken = records = 0
    for each in candidates[:SOURCES_MAX]:
        if taken + each.live_bytes > limits.bytes_max or records + each.records > (
                limits.records_max):
            continue
        chosen.append(each)
        taken += each.live_bytes
        records += each.records
    if not chosen and candidates:
        return Sources((candidates[0],), is_whole=False)
    return Sources(tuple(chosen))


class Space(enum.Enum):
    """Space of the disk that a cold segment may be written into."""

    FREE = "free"
    RESERVE = "reserve"
    NONE = "none"


def space_for(sources: Sources, free_bytes: int, low_bytes: int, reserve_bytes: int,
              kept_bytes: int, waiting: int) -> Space:
    """Return where the cold segment of ``sources`` finds its space.

    ``free_bytes``: that files may take, the reserve not counted; ``low_bytes``: records are refused
    below so many; ``reserve_bytes``: held by the reserve; ``kept_bytes``: of these, the bytes for
    the checkpoints that free the sources; ``waiting``: cold segments whose sources are not gone.

    The reserve is used only if the node has more free bytes in the end than before, and for one
    cold segment at a time: the sources return after checkpoints alone."""
    taken = sources.taken_bytes
    if free_bytes - taken >= low_bytes:
        return Space.FREE
    if waiting or sources.freed_bytes <= taken:
        return Space.NONE
    return Space.RESERVE if free_bytes + reserve_bytes - kept_bytes >= taken else Space.NONE
