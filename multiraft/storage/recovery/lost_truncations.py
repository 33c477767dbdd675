"""Entries before a damaged range of the journal that may have held their truncation record.

Contract.  ``mark_maybe_truncated`` marks entries of a recovered log as missing, or as replaced by
entries that are lost, before copies replace the missing ones.  It reads nothing and writes nothing.

Theory.  An entry is in its log as long as no truncation of it is recorded behind it, and a damaged
range may have held that record.  Three things prove that an entry was not truncated there:

- The next entry of the log is of the same term: its leader's log has both (Log Matching, paper
  5.3).
- A copy of it was written behind the range: it was missing then, so it was in the log.
- A peer sends it as the committed entry of its index.  A member that merely has it proves nothing,
  because that member may not have heard of the truncation either.

A copy of another term proves that it was truncated, and so does another committed entry, or a
leader whose log ends before it (``repair/coordinator.py``); then the entry before it
may have been truncated as well.  When the quarantine of the group is cleared, all of that is known,
and the next start must not ask again, although the log may continue in another term by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from multiraft.storage.damage.journal_damage import JournalDamage
from multiraft.storage.damage.place import PlaceRange
from multiraft.storage.index import UNKNOWN_POSITION, Copy
from multiraft.storage.journal.journal import Journal
from multiraft.storage.journal.segment_index import SegmentIndex, SegmentRun
from multiraft.storage.journal.segment_scan import DamagedRange
from multiraft.storage.stored_log import StoredLog
from multiraft.types import Entry


def mark_maybe_truncated(log: StoredLog, journal: Journal, journal_damage: JournalDamage,
                         damaged: Sequence[tuple[int, list[PlaceRange]]],
                         applied: int, copies: Mapping[int, Copy],
                         first_positions: Mapping[int, int]) -> None:
    """Mark the entries whose truncation a damaged range may have recorded.  ``damaged``: journal
    offset at which each damaged range begins, and its unexplained parts, in journal order.

    ``applied``: applied index: an entry up to there was committed, perhaps not the one at its
    position;
    ``copies``: by index, those that are not in use yet; ``first_positions``: of entries that are
    read from a copy, where they stood.  An entry that is in use in an explained range was
    compacted before a peer could tell if it was truncated.

    Once the quarantine of the group was cleared, each wrong entry has a copy or was truncated, and
    later entries tell nothing about the range.  That does not hold if damage behind the range is
    not cleared: the copy may have stood there.  O(damaged ranges * entries behind them).
    """
    not_cleared = max((begin for begin, ranges in damaged if not log.damage.has_cleared(ranges)),
                      default=-1)
    for copy in copies.values():
        if not_cleared < copy.position < log.damage.cleared_position:
            _discard_guesses(log, copy)
    for begin, _ in damaged:
        _mark_before(log, journal, journal_damage, begin, begin > not_cleared, applied, copies,
                     first_positions)


def _mark_before(log: StoredLog, journal: Journal, journal_damage: JournalDamage, begin: int,
                 is_cleared: bool, applied: int, copies: Mapping[int, Copy],
                 first_positions: Mapping[int, int]) -> None:
    """Mark the last entry before the damaged range that starts at ``begin``, and the last applied
    entry, which no append may replace.

    The log's own last entry is left out: the leader's next append confirms or replaces it.  Mark
    nothing if a later entry or a cleared quarantine proves that none was truncated."""
    at = _last_before(log, begin, first_positions)
    if not at or _is_followed(log, at):
        return
    while at in copies and copies[at].position > begin:
        log.discard_superseded(at)
        at -= 1
    if at < log.index.first_index or log.index.position(at) > begin:
        return
    base = min(applied, at)
    has_base = base >= log.index.first_index and log.index.position(base) < begin
    named = [each for each in (at, base)[:1 + has_base]
             if journal_damage.is_explained(journal.place_at(log.index.position(each)))]
    if (is_cleared and not any(conflicts_with(log, copy)
                               and 0 < log.index.position(copy.index) < begin < copy.position
                               for copy in copies.values())
            and not named):
        return
    log.commit = min(log.commit, applied)  # it comes from the leader again
    if has_base:
        log.damage.suspect(base, log.place_of(base, journal))
    if at < log.index.last_index:
        log.damage.suspect(at, log.place_of(at, journal))


def _discard_guesses(log: StoredLog, copy: Copy) -> None:
    """Discard lost entries whose guessed terms conflict with a copy; do nothing if the copy fits
    the log.

    A lost entry gets the term of the entry before it, and those behind it may be gone by now.  The
    log whose quarantine was cleared had no other entry than the copy."""
    if conflicts_with(log, copy):
        at = copy.index
        while at <= log.index.last_index and log.index.position(at) == UNKNOWN_POSITION:
            log.discard_superseded(at)
            at += 1


def newest_copies(pending: Iterable[tuple[Copy, Entry | None]]) -> list[tuple[Copy, Entry | None]]:
    """Return one (copy, entry) for each index, ascending: the copy that was written last.  The
    entry of an earlier copy was truncated before."""
    by_place = sorted(pending, key=lambda item: item[0].position)
    return [item for _, item in sorted({item[0].index: item for item in by_place}.items())]


def is_obsolete_copy(log: StoredLog, copy: DamagedRange, indexes: Sequence[SegmentIndex]) -> bool:
    """Return True if the entry of a damaged copy was replaced, truncated or compacted since, or was
    of a removed replica; ``indexes``: of all segments, in journal order.  O(segments)."""
    behind = [run for index in indexes if index.end > copy.position
              and (run := index.runs.get(copy.copy_group)) is not None]
    begin = log.tombstone_position if log.installed else max(log.tombstone_position,
                                                             log.snapshot_position)
    return (not copy.index or copy.position < begin
            or log.is_obsolete(copy.index, copy.position)
            or any(run.incarnation > behind[0].incarnation or _truncates(run, copy.index)
                   for run in behind[1:]))


def _truncates(run: SegmentRun, index: int) -> bool:
    """Return True if the group's run in a segment truncates the entry ``index`` of earlier
    segments, by a record or by its own first entry."""
    begins = [run.truncated_from, run.first_index]
    return any(0 < first <= index for first in begins)


def conflicts_with(log: StoredLog, copy: Copy) -> bool:
    """Return True if the log has an entry of another term at the copy's index, whose term is no
    guess and which was written before the copy."""
    at = copy.index
    return (log.index.first_index <= at <= log.index.last_index
            and not log.damage.is_term_unknown(at)
            and log.index.position(at) < copy.position and log.index.term(at) != copy.term)


def _is_followed(log: StoredLog, at: int) -> bool:
    """Return True if the log's entry behind ``at`` is of the same term for sure, so that ``at`` was
    not truncated."""
    return (at < log.index.last_index and not log.damage.is_term_unknown(at + 1)
            and log.index.term(at + 1) == log.index.term(at))


def _last_before(log: StoredLog, begin: int, first_positions: Mapping[int, int]) -> int:
    """Return the index of the log's last entry whose first position is before the damaged range
    that starts at ``begin``; 0 = none."""
    for index in range(log.index.last_index, log.index.first_index - 1, -1):
        # Where it stood first is unknown when it was lost: then it was in the log at its copy.
        if 0 < (first_positions.get(index) or log.index.position(index)) < begin:
            return index
    return 0
