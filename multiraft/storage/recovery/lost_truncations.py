"""Entries before a damaged range of the journal that may have held their truncation record.

Contract.  ``question`` marks entries of a recovered log as missing, or as replaced by ones that are
lost, before copies take the place of what is missing.  It reads nothing and writes nothing.

Theory.  An entry is in its log as long as no truncation of it is recorded behind it, and a damaged
range may have held that record.  Three things prove that an entry was not truncated there:

- The next entry of the log is of the same term: its leader's log has both (Log Matching, paper
  5.3).
- A copy of it was written behind the range: it was missing then, so it was in the log.
- A peer sends it as the committed entry of its index.  A member that merely has it proves nothing,
  because that member may not have heard of the truncation either.

A copy of another term proves that it was truncated, and so does another committed entry, or a
leader whose log ends before it (``repair/coordinator.py``); then the entry before it is in
question.  When the group's quarantine is lifted all of that is answered, and the next start has to
find it answered, although the log may continue in another term by then.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from multiraft.storage.index import NOWHERE, Copy
from multiraft.storage.journal.segment_index import SegmentIndex, SegmentRun
from multiraft.storage.journal.segment_scan import DamagedRange
from multiraft.storage.ranges import ByteRange
from multiraft.storage.stored_log import StoredLog
from multiraft.types import Entry


def question(log: StoredLog, holes: Sequence[tuple[int, list[ByteRange]]], applied: int,
             copies: Mapping[int, Copy], first_places: Mapping[int, int],
             given_up: Container[int]) -> None:
    """Question what may have been dropped in holes of the journal, each with where it begins and
    what of it no copy explains, in journal order.

    ``applied``: what is applied up to there was committed, though perhaps not what stands there;
    ``copies``: by index, those that are not in use yet; ``first_places``: of entries that are read
    from a copy, where they stood; ``given_up``: places of which a REPAIR record speaks: what is in
    use there all the same was compacted before a peer could say whether it was dropped.

    Once the group was lifted, what was wrong has a copy or was dropped, and what was appended later
    says nothing of the hole.  Not so when damage behind it is not settled: the copy may have stood
    there.  O(holes * entries behind them).
    """
    doubted = max((begin for begin, places in holes if not log.has_settled(places)), default=-1)
    for copy in copies.values():
        if doubted < copy.position < log.lifted:
            _disown_guess(log, copy)
    for begin, _ in holes:
        _question_before(log, begin, begin > doubted, applied, copies, first_places, given_up)


def _question_before(log: StoredLog, hole: int, settled: bool, applied: int,
                     copies: Mapping[int, Copy], first_places: Mapping[int, int],
                     given_up: Container[int]) -> None:
    """Question the last entry before the range, unless it is the log's last one, which the leader's
    next append confirms or replaces; and the last applied entry, which no append may replace."""
    at = _last_before(log, hole, first_places)
    if not at or _is_followed(log, at):
        return
    while at in copies and copies[at].position > hole:
        log.disown(at)
        at -= 1
    if at < log.index.first_index or log.index.position(at) > hole:
        return
    base = min(applied, at)
    has_base = base >= log.index.first_index and log.index.position(base) < hole
    if (settled and not any(contradicts(log, copy)
                            and 0 < log.index.position(copy.index) < hole < copy.position
                            for copy in copies.values())
            and log.index.position(at) not in given_up
            and not (has_base and log.index.position(base) in given_up)):
        return
    log.commit = min(log.commit, applied)  # it comes from the leader again
    if has_base:
        log.question(base)
    if at < log.index.last_index:
        log.question(at)


def _disown_guess(log: StoredLog, copy: Copy) -> None:
    """Discard lost entries whose guessed terms contradict a copy.

    A lost entry gets the term of the entry before it, and those behind it may be gone by now.  The
    log whose quarantine was lifted had no other entry than the copy."""
    if contradicts(log, copy):
        at = copy.index
        while at <= log.index.last_index and log.index.position(at) == NOWHERE:
            log.disown(at)
            at += 1


def newest(early: Iterable[tuple[Copy, Entry | None]]) -> list[tuple[Copy, Entry | None]]:
    """Return, by index, the copy that was written last: the entry of an earlier copy was truncated
    before."""
    by_place = sorted(early, key=lambda item: item[0].position)
    return [item for _, item in sorted({item[0].index: item for item in by_place}.items())]


def is_history(log: StoredLog, copy: DamagedRange, indexes: Sequence[SegmentIndex]) -> bool:
    """Return True if the entry of a damaged copy was replaced, truncated or compacted since, or was
    of a removed replica; ``indexes``: of all segments, in journal order.  O(segments)."""
    behind = [run for index in indexes if index.end > copy.position
              and (run := index.runs.get(copy.copied)) is not None]
    return (not copy.index or copy.position < max(log.buried_at, log.since)
            or log.replaced(copy.index, copy.position)
            or any(run.incarnation > behind[0].incarnation or _drops(run, copy.index)
                   for run in behind[1:]))


def _drops(run: SegmentRun, index: int) -> bool:
    """Return True if the run drops all entries of earlier segments from that index on."""
    begins = [run.cut_from, run.index.first_index if run.index is not None else 0]
    return any(0 < first <= index for first in begins)


def contradicts(log: StoredLog, copy: Copy) -> bool:
    """Return True if the log has another entry at the copy's index, written before the copy."""
    at = copy.index
    return (log.index.first_index <= at <= log.index.last_index and at not in log.unsure
            and log.index.position(at) < copy.position and log.index.term(at) != copy.term)


def _is_followed(log: StoredLog, at: int) -> bool:
    """Return True if the next entry is of the same term for sure."""
    return (at < log.index.last_index and at + 1 not in log.unsure
            and log.index.term(at + 1) == log.index.term(at))


def _last_before(log: StoredLog, hole: int, first_places: Mapping[int, int]) -> int:
    """Return the last entry of the log whose first position is before the damaged range; 0 =
    none."""
    for index in range(log.index.last_index, log.index.first_index - 1, -1):
        # Where it stood first is unknown when it was lost: then it was in the log at its copy.
        if 0 < (first_places.get(index) or log.index.position(index)) < hole:
            return index
    return 0
