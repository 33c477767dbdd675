"""Coordination of repair: the next step for each quarantined replica of a node.

Contract.  Level-triggered and without I/O: the driver calls ``step`` for each group of ``groups``
from time to time, does what it returns, and passes the result to ``on_response`` or
``on_replay_read``.  A step that is not done, done twice or late does no harm.  ``submit`` takes a
staged write to the disk.

Theory.  Missing entries are requested by (index, term) from any member that has them, not only from
the leader: when every replica is damaged in another place there may be no leader.  The leader and
candidates are asked even if the remaining log does not name them, because its members may have
changed.  Per missing entry:

- The leader does not have it: it was never committed, and is given up.
- It may have been truncated, with the record of that in a damaged range
  (``recovery/lost_truncations.py``): the committed entry of its index is requested instead.
- Other members have compacted it: it is forgotten if it and an intact entry behind it are applied.
- The leader has compacted it: it is forgotten if it is applied; otherwise it is given up with all
  entries behind it, and the leader's snapshot replaces them.
- It is applied, and a batch at or above its partition's log start: none of these answers ends the
  search, because a peer that has compacted it has it as a record.  It stays missing as a record
  then, until this replica has applied a higher log start.

Missing records, below the Raft start, are requested in the same way, while the replica takes part
in consensus.

Then the repaired entries are applied to the partition states.  A replica that may have lost more
than the entries it knows follows its leader until that clears it
(``multiraft.raft.head_recovery``).  Last, the store writes that the damage is cleared, and
consensus readmits the replica (docs/decisions/0009).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from multiraft.raft.multi_raft import MultiRaft
from multiraft.storage.cold.cold_segment import is_cold
from multiraft.storage.errors import (
    CorruptFile,
    CorruptIndexedSegment,
    CorruptJournalRange,
    CorruptRange,
)
from multiraft.storage.io_jobs import ReadJob, RowCopyJob, StagedWrite
from multiraft.storage.store import Store
from multiraft.storage.stored_log import StoredLog
from multiraft.types import Entry

#: Entries per request, and bytes per response: small steps do not delay other work of the nodes,
#: and a lost response costs little.
ENTRIES_PER_REQUEST = 64
ANSWER_BYTES_MAX = 4 << 20


class RepairRequest(NamedTuple):
    """Request for copies of missing entries."""

    group: int
    incarnation: int
    wanted: tuple[tuple[int, int], ...]  # (index, term)
    term: int = 0  # of the asker: a leader of an earlier one may not know what is committed


class RepairResponse(NamedTuple):
    """Copies from one member, and the requested entries that it does not have."""

    group: int
    incarnation: int
    entries: tuple[Entry, ...]
    absent: tuple[tuple[int, int], ...]
    #: It leads the group in no earlier term than the asker's, and has committed in that: what it
    #: lacks is not committed.
    leads: bool
    compacted: tuple[tuple[int, int], ...] = ()  # what a state stands for there
    wanted: tuple[tuple[int, int], ...] = ()  # of the request: it may be an old one


class SendRequest(NamedTuple):
    """Step for the driver: send the request to the peer, and give its response to
    ``on_response``."""

    peer: int
    request: RepairRequest


class ReplayEntries(NamedTuple):
    """Step for the driver: execute the job on a thread, and give its entries to
    ``on_replay_read``."""

    group: int
    job: ReadJob


def _nothing() -> None:
    """Do nothing when a record is durable: no step waits for it."""


class RepairCoordinator:
    """Repair of all quarantined replicas of one node."""

    def __init__(self, node: int, store: Store, core: MultiRaft,
                 submit: Callable[[StagedWrite], None]):
        self.groups: set[int] = set()
        self.repaired = 0  # replicas that came back since the start
        self._node = node
        self._store = store
        self._core = core
        self._submit = submit
        self._turn: dict[int, int] = {}  # group -> number of requests sent
        self._records_asked: dict[int, int] = {}  # group -> last record that every peer was asked
        self._writing: set[int] = set()
        self._has_forgotten = False  # holes that no checkpoint names yet
        self.add_quarantined()

    def add_quarantined(self) -> None:
        """Add every quarantined replica of the store to ``groups``: those that recovery found
        damaged, and those without records in a damaged journal.  Add also those that lack records.
        O(groups)."""
        self.groups |= {*self._store.repair.damaged_groups()}

    def on_replica_created(self, group: int) -> None:
        """Register a new replica if it is quarantined, because damaged entries of the journal may
        be its own.

        If all damage was found with every log in memory, none of it was the new replica's.  Then
        submit a LIFT record before anything else, because the next start could not tell."""
        repair = self._store.repair
        if repair.quarantined(group) is not None:
            self.groups.add(group)
        elif repair.has_known_damage:
            self._submit(repair.stage_clear(group, _nothing))

    def on_records_copied(self, group: int) -> None:
        """Add a group to ``groups`` if the member from which its records were copied lacked some of
        them: the others may have them."""
        if self._store.repair.damaged(group) is not None:
            self.groups.add(group)

    # ---- damage --------------------------------------------------------------------------------

    def on_damage(self, error: CorruptRange | CorruptFile) -> None:
        """Exclude the replica of a damaged entry from consensus until it is repaired.  A record is
        only repaired, a compacted entry only recorded as unneeded; known damage changes nothing.

        A ``CorruptJournalRange`` may have been of any group: exclude all replicas that have not
        cleared it.  Records that only a damaged index file of a damaged segment has are asked from
        other members.  A damaged checkpoint (``CorruptFile``) is replaced by a new one."""
        if isinstance(error, CorruptFile):
            self._store.checkpoint_damaged()
            return
        if isinstance(error, CorruptIndexedSegment):
            # Without another member, what can be read of the index file is all that there is.
            asking = [group for group in self._core.status.groups() if self._peers_to_ask(group)]
            self.groups.update(self._store.repair.lose_file(error.begin, asking))
            if is_cold(error.begin):
                return  # nothing but records was there
        if isinstance(error, CorruptJournalRange):
            here = {*self._core.status.groups()}
            for group in self._store.repair.suspect_all(error.begin, error.end, error.why):
                self._quarantine(group, error.why, group in here)
            for group in self._store.repair.groups_without_clear_record():
                self._submit(self._store.repair.stage_clear(group, _nothing))
            return
        is_here = error.group in self._core.status.groups()
        if self._store.repair.is_record(error.group, error.index):
            self._record_damage(error)
            self.on_records_copied(error.group)  # the record may be missing before it is reported
            return
        if is_here and error.index < self._core.status.of(error.group).first_index:
            # Compacted: neither the group nor a peer reads it again.
            self._record_unneeded(error.group, error.index)
            return
        if self._record_damage(error):
            self._quarantine(error.group, str(error), is_here)

    def _record_damage(self, error: CorruptRange) -> bool:
        return self._store.repair.record_damage(error.group, error.index, error.why,
                                                error.position, error.size)

    def _quarantine(self, group: int, why: str, is_here: bool) -> None:
        """Exclude a replica from consensus, and add its group to ``groups``.

        ``is_here``: consensus has the replica.  Otherwise recovery found it and it is not added
        yet, or it was removed a moment ago; then its description is renewed."""
        if is_here:
            self._core.repair.quarantine(group, why)
        else:
            self._store.repair.refresh_restored(group)
        self.groups.add(group)

    def _record_unneeded(self, group: int, index: int) -> None:
        staged = self._store.repair.stage_unneeded(group, index)
        if staged is not None:
            self._submit(staged)

    # ---- repair --------------------------------------------------------------------------------

    def step(self, group: int) -> SendRequest | ReplayEntries | None:
        """Return what the driver has to do next for a group of ``groups``; None = nothing now.  The
        step also begins head recovery or submits the LIFT record when these are due; the record
        waits until all kept checkpoints have the log's Raft start.

        A group without a repairable quarantine or missing record leaves ``groups``."""
        repair, core = self._store.repair, self._core
        log = repair.damaged(group)
        if log is None or log.damage.is_permanent:
            self._leave(group)
            return None
        if group in self._writing or group not in core.status.groups():
            return None  # recovered, and not taken up yet: metadata say what it is
        if not log.quarantined:
            return self._request_copies(group, log, is_of_records=True)
        if log.missing:
            self._compact(group, core.status.of(group).first_index)
        if log.missing:
            return self._request_copies(group, log)
        job = repair.replay_job(group, core.status.of(group).last_index)
        if job is not None:
            return ReplayEntries(group, job)
        if log.damage.needs_head_recovery and not core.repair.is_head_recovered(group):
            if not core.repair.is_following(group):
                core.repair.begin_head_recovery(group)
            return self._request_copies(group, log, is_of_records=True)
        if not repair.is_raft_start_recorded(group):
            self._store.require_checkpoints()
            return self._request_copies(group, log, is_of_records=True)
        self._writing.add(group)
        self._submit(repair.stage_clear(group, lambda: self._on_cleared(group)))
        return None

    def _leave(self, group: int) -> None:
        """Take a group out of ``groups``.  Behind the last one, have a checkpoint name the holes
        that were forgotten: the next start would ask for them again."""
        self.groups.discard(group)
        if self._has_forgotten and not self.groups:
            self._has_forgotten = False
            self._store.require_checkpoints()

    def _compact(self, group: int, first_index: int, unneeded: Sequence[int] = ()) -> None:
        """Raise the Raft start in storage to that of consensus, and record the damaged entries that
        are not needed as such.  ``unneeded``: missing ones that a peer has compacted."""
        repair = self._store.repair
        for staged in repair.compact(group, first_index, unneeded):
            self._submit(staged)
        self._core.repair.set_guessed_through(group, repair.guessed_through(group))

    def _request_copies(self, group: int, log: StoredLog,
                        is_of_records: bool = False) -> SendRequest | None:
        """Return a request to the next peer for missing entries, or for missing records; None if
        there are none, or no peer."""
        repair = self._store.repair
        asked = self._records_asked.get(group, 0)
        wanted = (repair.wanted_records(group, ENTRIES_PER_REQUEST, asked) if is_of_records
                  else repair.wanted(group, ENTRIES_PER_REQUEST))
        others = self._peers_to_ask(group) if wanted else []
        if not others:
            return None
        turn = self._turn[group] = self._turn.get(group, 0) + 1
        if is_of_records and turn % len(others) == 0:
            # Every peer was asked for these: one that none of them has holds no other up.
            self._records_asked[group] = wanted[-1][0]
        request = RepairRequest(group, repair.incarnation(group), wanted, log.hard_state.term)
        return SendRequest(others[turn % len(others)], request)

    def _peers_to_ask(self, group: int) -> list[int]:
        """Return the nodes that may have copies: the other members of the log's configuration, the
        leader, and the candidate that asked for a vote.  The log may lack the entry of a later
        configuration: then the members that it names may all be removed, and those that remain may
        need this replica's vote to elect a leader."""
        status = self._core.status.of(group)
        others = [peer for peer in status.configuration.members() if peer != self._node]
        for peer in (status.leader, status.vote_requester):
            if peer and peer != self._node and peer not in others:
                others.append(peer)
        return others

    def on_response(self, response: RepairResponse) -> None:
        """Submit the write of the wanted copies in a peer's response; the caller has checked their
        checksums. Truncate the log instead where a committed entry among them contradicts it.

        Without a wanted copy, compact applied entries that the peer has compacted; else give up the
        entries that a response of the leader calls absent or compacted. A batch that is needed here
        stays missing, as a record, although it is compacted elsewhere. Entries that are not wanted
        with the same term now are ignored: a late response may be to a request for one exact entry,
        while now the committed entry of that index is wanted."""
        group, repair = response.group, self._store.repair
        log = repair.damaged(group)
        if (log is None or response.incarnation != repair.incarnation(group)
                or group in self._writing
                or group not in self._core.status.groups()):  # removed, its tombstone is on its way
            return
        wanted = repair.still_wanted(group, response.wanted)
        given = [entry for entry in response.entries if entry.index in wanted
                 and (entry.group, entry.incarnation) == (group, log.incarnation)]
        wrong = [entry.index for entry in given if log.damage.is_maybe_truncated(entry.index)
                 and not log.index.holds(entry.index, entry.term)]
        if wrong:  # something else is committed there; asked for again, it will fit
            self._give_up(group, wrong, ())
            return
        if self._truncate_conflict(group, given):
            return
        staged = repair.stage_copies(group, given, lambda: self._on_copies_durable(group))
        if staged is not None:
            self._writing.add(group)
            self._submit(staged)
            return
        holes = [index for index, _ in response.compacted if index in wanted]
        self._has_forgotten |= repair.forget_holes(group, holes)
        # A member with another entry there calls compacted what is no longer wanted.
        compacted = [index for index, _ in response.compacted
                     if index in log.missing and index in wanted]
        if not self._compact_applied(group, compacted) and response.leads:
            absent = [index for index, _ in response.absent if index in log.missing
                      and index in wanted and not log.damage.is_term_unknown(index)]
            self._give_up(group, absent, compacted)

    def _compact_applied(self, group: int, compacted: Sequence[int]) -> bool:
        """Compact the log up to the intact entry behind those that another member has compacted, if
        all of these are applied here; return False otherwise.

        No leader has to confirm it: applied entries are committed, and the log's end and the term
        before its beginning are known.  This replica's vote may be needed to elect that leader."""
        core = self._core
        applied = core.status.of(group).applied_index
        unneeded = max((index for index in compacted if index <= applied), default=0)
        intact = self._store.repair.next_intact(group, unneeded) if unneeded else 0
        if not 0 < intact <= applied:
            return False
        core.compacted(group, intact + 1)
        self._compact(group, intact + 1, compacted)
        return True

    def _truncate_conflict(self, group: int, given: Sequence[Entry]) -> bool:
        """Truncate the log where it conflicts with a committed entry that a peer sent, because the
        record of that truncation is lost.

        Return False if it does not, or must not be truncated there.  Requested again, the entry
        will fit."""
        first_removed = self._store.repair.first_conflict(group, given)
        if not first_removed or not self._core.repair.may_truncate(group, first_removed):
            return False
        self._truncate(group, first_removed)
        return True

    def _truncate(self, group: int, first_removed: int) -> None:
        """Truncate the log from ``first_removed`` on, and require head recovery.  First record
        which of its entries were damaged, so that their ranges are not taken for another
        group's."""
        repair = self._store.repair
        for index in repair.unreadable(group, first_removed):
            self._record_unneeded(group, index)
        repair.require_head_recovery(group)
        self._core.repair.truncate(group, first_removed)

    def _give_up(self, group: int, absent: Sequence[int], compacted: Sequence[int]) -> None:
        """Give up entries that are ``absent`` in the leader's log or ``compacted`` there.

        Truncate at the first of them if no entry from there on is known to be committed.  Otherwise
        compact up to the last of ``compacted`` that is applied, and discard those of ``absent``
        that are committed."""
        repair, core = self._store.repair, self._core
        given_up = [*absent, *compacted]
        if given_up and core.repair.may_truncate(group, min(given_up)):
            self._truncate(group, min(given_up))
            return
        applied = core.status.of(group).applied_index
        for index in absent:
            if index <= core.status.of(group).commit:
                repair.discard_superseded(group, index)
        unneeded = max((index for index in compacted if index <= applied), default=0)
        if unneeded:  # it is applied, and a member that lacks it gets a snapshot
            repair.require_head_recovery(
                group
            )  # its term may be unknown, and it may have been the last entry
            core.compacted(group, unneeded + 1)
            self._compact(group, unneeded + 1, compacted)

    def on_replay_read(self, group: int, entries: Sequence[Entry]) -> None:
        """Append the entries that a ``ReplayEntries`` step read to the partition states, and give
        consensus the configurations in them.  Do nothing if the replica was removed or repaired
        meanwhile."""
        log = self._store.repair.quarantined(group)
        if log is not None and group in self._core.status.groups():
            last_index = self._core.status.of(group).last_index
            self._store.repair.replay(group, entries, last_index)
            self._core.repair.set_configurations(group, log.configurations)

    def _on_copies_durable(self, group: int) -> None:
        self._writing.discard(group)
        log = self._store.repair.quarantined(group)
        if log is not None and group in self._core.status.groups():  # else it was removed meanwhile
            self._core.repair.set_term_runs(group, log.index.term_runs())

    def _on_cleared(self, group: int) -> None:
        """Readmit a replica whose LIFT record is durable, unless other damage was found
        meanwhile."""
        self._writing.discard(group)
        if group not in self._core.status.groups():
            return  # it was removed meanwhile
        if self._store.repair.quarantined(group) is None:
            if self._store.repair.damaged(group) is None:
                self._leave(group)
            self.repaired += 1
            self._core.repair.repaired(group)

    # ---- for others ----------------------------------------------------------------------------

    def copies_for(self, request: RepairRequest) -> tuple[list[ReadJob | RowCopyJob],
                                                          RepairResponse] | None:
        """Return the jobs that read the entries that a peer requested, and the response without
        those entries, for ``with_entries``.  None if the group is not on this node in that
        incarnation."""
        group = request.group
        known = self._store.repair.incarnation(group)
        if known != request.incarnation:
            return None
        wanted = request.wanted[:ENTRIES_PER_REQUEST]
        jobs = self._store.repair.copy_jobs(group, wanted, ANSWER_BYTES_MAX)
        repair = self._store.repair
        leads = self._core.status.has_applied_in_term(group) and repair.term(group) >= request.term
        return jobs, RepairResponse(group, known, (), tuple(repair.absent(group, wanted)), leads,
                             tuple(repair.compacted(group, wanted)), request.wanted)

    def with_entries(self, response: RepairResponse, entries: Sequence[Entry],
                     jobs: Sequence[ReadJob | RowCopyJob] = ()) -> RepairResponse:
        """Return the response with the entries that the ``jobs`` of ``copies_for`` read.  Those
        that are compacted here and no records are called so instead: only the read could tell."""
        repair = self._store.repair
        compacted = {entry.index for entry in entries if repair.is_no_record(entry)}
        compacted.update(index for job in jobs if isinstance(job, RowCopyJob)
                         for index in job.absent if repair.is_absent(response.group, index))
        return response._replace(
            entries=tuple([entry for entry in entries if entry.index not in compacted]),
            compacted=(*response.compacted,
                       *(each for each in response.wanted if each[0] in compacted)))
