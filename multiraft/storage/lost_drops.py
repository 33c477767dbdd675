"""What stands before a hole of the lane: it may have been dropped in it.

Contract.  ``question_before`` marks entries of a recovered log as missing, or as replaced by ones
that are lost; it is called for each hole, in lane order, before copies take the place of what is
missing.  It reads nothing and writes nothing.

Theory.  A log's entries are its own as long as no drop is recorded behind them, and a hole may have
held that record.  Three things tell that an entry was not dropped there.  The next entry of the log
is of the same term: its leader's log holds both (Log Matching, paper 5.3).  A copy of it was
written behind the hole: it was missing then, so it was in the log.  Or a peer is found to have it:
that is asked for like any missing entry.  A copy of another term tells that it was dropped; so does
a leader that does not hold it (``repairer.py``), and then the entry before it is in question.  Once
the group is lifted, all that is answered: the next start has to find it answered, though the log
may have gone on in another term by then.
"""

from __future__ import annotations

from collections.abc import Mapping

from multiraft.storage.group_log import GroupLog
from multiraft.storage.index import Copy


def question_before(log: GroupLog, hole: int, settled: bool, applied: int,
                    copies: Mapping[int, Copy], first_places: Mapping[int, int]) -> None:
    """Question what may have been dropped in the hole that begins at that place of the lane.

    ``settled``: the group was lifted since, so what was wrong then has a copy or was dropped, and
    what was appended later says nothing of the hole; ``applied``: what is applied up to there was
    committed, though perhaps not what stands there; ``copies``: by index, those that are not in use
    yet; ``first_places``: of entries that are read from a copy, where they stood.

    In question is the last entry before the hole, unless it is the log's last, of which the
    leader's next append tells; and the last one that is applied, which no append may replace.
    O(entries behind the hole).
    """
    at = _last_before(log, hole, first_places)
    if not at or _is_followed(log, at):
        return
    while at in copies and copies[at].position > hole:
        log.disown(at)
        at -= 1
    if at < log.index.first_index or log.index.position(at) > hole:
        return
    if settled and not any(_contradicts(log, copy, hole) for copy in copies.values()):
        return
    log.commit = min(log.commit, applied)  # it comes from the leader again
    base = min(applied, at)
    if base >= log.index.first_index and log.index.position(base) < hole:
        log.question(base)
    if at < log.index.last_index:
        log.question(at)


def _contradicts(log: GroupLog, copy: Copy, hole: int) -> bool:
    """Whether the copy was written behind the hole in place of what stands before it."""
    at = copy.index
    return (log.index.first_index <= at <= log.index.last_index and at not in log.unsure
            and 0 < log.index.position(at) < hole < copy.position
            and log.index.term(at) != copy.term)


def _is_followed(log: GroupLog, at: int) -> bool:
    """Whether the next entry is of the same term for sure."""
    return (at < log.index.last_index and at + 1 not in log.unsure
            and log.index.term(at + 1) == log.index.term(at))


def _last_before(log: GroupLog, hole: int, first_places: Mapping[int, int]) -> int:
    """The last entry of the log that first stood before the hole; 0 = none."""
    for index in range(log.index.last_index, log.index.first_index - 1, -1):
        if 0 < first_places.get(index, log.index.position(index)) < hole:
            return index
    return 0
