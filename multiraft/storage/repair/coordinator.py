"""Coordination of repair: the next step for each quarantined replica of a node.

Contract.  Level-triggered and without I/O: the driver calls ``step`` for each group of ``groups``
from time to time, does what it returns, and passes the result to ``answered`` or ``tail_read``.  A
step that is not done, done twice or late does no harm.  ``submit`` takes a staged write to the
disk.

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

Then the repaired entries are applied to the partition states.  A replica that may have lost more
than the entries it knows follows its leader until that clears it
(``multiraft.raft.head_recovery``).  Last, the store writes that the damage is settled, and
consensus readmits the replica (docs/decisions/0009).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from multiraft.raft.multi_raft import MultiRaft
from multiraft.storage.errors import CorruptFile, CorruptPlace, CorruptRange
from multiraft.storage.io_jobs import ReadJob, StagedWrite
from multiraft.storage.store import Store
from multiraft.types import Entry

#: Entries per request, and bytes per answer: small steps do not delay other work of the nodes, and
#: a lost answer costs little.
ENTRIES_PER_REQUEST = 64
ANSWER_BYTES_MAX = 4 << 20


class Request(NamedTuple):
    """Request for copies of missing entries."""

    group: int
    incarnation: int
    wanted: tuple[tuple[int, int], ...]  # (index, term)
    term: int = 0  # of the asker: a leader of an earlier one may not know what is committed


class Answer(NamedTuple):
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


class Ask(NamedTuple):
    """To be done: send the request to the peer, give its answer to ``answered``."""

    peer: int
    request: Request


class Extend(NamedTuple):
    """To be done: execute the plan on a thread, give its entries to ``tail_read``."""

    group: int
    plan: ReadJob


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
        self._writing: set[int] = set()
        self.look()

    def look(self) -> None:
        """Add the quarantined replicas of the start: those that recovery found, and those without
        records in a journal with damage.  O(groups)."""
        self.groups |= {*self._store.repair.quarantined_groups()}

    def created(self, group: int) -> None:
        """Register a new replica, which needs head recovery in a journal with damage, because the
        damaged entries may be its own.

        If all damage was found with every log in memory, none of it was the new replica's.  That is
        written before anything else, because the next start could not tell."""
        repair = self._store.repair
        if repair.quarantined(group) is not None:
            self.groups.add(group)
        elif repair.knows_damage:
            self._submit(repair.stage_lift(group, _nothing))

    # ---- damage --------------------------------------------------------------------------------

    def damaged(self, error: CorruptRange | CorruptFile) -> None:
        """Exclude the replica of a damaged entry until it is repaired.  A ``CorruptPlace`` may have
        been of any group: exclude all replicas that have not settled it.  A damaged checkpoint
        (``CorruptFile``) is replaced by a new one."""
        if isinstance(error, CorruptFile):
            self._store.checkpoint_damaged()
            return
        if isinstance(error, CorruptPlace):
            here = {*self._core.status.groups()}
            for group in self._store.repair.suspect_all(error.begin, error.end, error.why):
                self._put_out(group, error.why, group in here)
            for group in self._store.repair.settled_unwritten():
                self._submit(self._store.repair.stage_lift(group, _nothing))
            return
        is_here = error.group in self._core.status.groups()
        if is_here and error.index < self._core.status.of(error.group).first_index:
            # Compacted: neither the group nor a peer reads it again.
            self._write_needless(error.group, error.index)
            return
        if self._store.repair.damaged(error.group, error.index, error.why):
            self._put_out(error.group, str(error), is_here)

    def _put_out(self, group: int, why: str, is_here: bool) -> None:
        """Exclude a replica.  Consensus may not have it: recovery found it and it is not added yet,
        or it was removed a moment ago."""
        if is_here:
            self._core.repair.quarantine(group, why)
        else:
            self._store.repair.restate(group)
        self.groups.add(group)

    def _write_needless(self, group: int, index: int) -> None:
        staged = self._store.repair.stage_needless(group, index)
        if staged is not None:
            self._submit(staged)

    # ---- repair --------------------------------------------------------------------------------

    def step(self, group: int) -> Ask | Extend | None:
        """Return the next step for a group of ``groups``; None = wait."""
        repair, core = self._store.repair, self._core
        log = repair.quarantined(group)
        if log is None or log.lasting:
            self.groups.discard(group)
            return None
        if group in self._writing or group not in core.status.groups():
            return None  # recovered, and not taken up yet: metadata say what it is
        if log.missing:
            for index in repair.forget_below(group, core.status.of(group).first_index):
                self._write_needless(group, index)
        if log.missing:
            return self._ask(group)
        plan = repair.tail_plan(group, core.status.of(group).last_index)
        if plan is not None:
            return Extend(group, plan)
        if log.doubtful and not core.repair.is_head_recovered(group):
            if not core.repair.is_following(group):
                core.repair.begin_head_recovery(group)
            return None
        self._writing.add(group)
        self._submit(repair.stage_lift(group, lambda: self._lifted(group)))
        return None

    def _ask(self, group: int) -> Ask | None:
        log = self._store.repair.quarantined(group)
        assert log is not None
        others = self._others(group)
        if not others:
            return None
        turn = self._turn[group] = self._turn.get(group, 0) + 1
        repair = self._store.repair
        wanted = repair.wanted(group, ENTRIES_PER_REQUEST)
        request = Request(group, repair.incarnation(group), wanted, log.hard_state.term)
        return Ask(others[turn % len(others)], request)

    def _others(self, group: int) -> list[int]:
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

    def answered(self, answer: Answer) -> None:
        """Take a peer's answer, with entries whose checksums match.  Ignore entries that are not
        wanted with the same term now: a late answer may be to a request for one exact entry, while
        now the committed entry of that index is wanted."""
        group, repair = answer.group, self._store.repair
        log = repair.quarantined(group)
        if (log is None or answer.incarnation != repair.incarnation(group)
                or group in self._writing
                or group not in self._core.status.groups()):  # let go, its tombstone is on its way
            return
        wanted = repair.still_wanted(group, answer.wanted)
        given = [entry for entry in answer.entries if entry.index in wanted
                 and (entry.group, entry.incarnation) == (group, log.incarnation)]
        wrong = [entry.index for entry in given if entry.index in log.questioned
                 and not log.index.holds(entry.index, entry.term)]
        if wrong:  # something else is committed there; asked for again, it will fit
            self._give_up(group, wrong, ())
            return
        if self._forget_contradicted(group, given):
            return
        staged = repair.stage_copies(group, given, lambda: self._wrote(group))
        if staged is not None:
            self._writing.add(group)
            self._submit(staged)
            return
        compacted = [index for index, _ in answer.compacted if index in log.missing]
        if not self._begin_behind(group, compacted) and answer.leads:
            absent = [index for index, _ in answer.absent
                      if index in wanted and index not in log.unsure]
            self._give_up(group, absent, compacted)

    def _begin_behind(self, group: int, compacted: Sequence[int]) -> bool:
        """Let the log begin behind entries that another member has compacted, if they and an intact
        entry behind them are applied here; return False otherwise.  No leader has to confirm it:
        applied entries are committed, and the log's end and the term before its beginning are
        known.  This replica's vote may be needed to elect that leader."""
        core = self._core
        applied = core.status.of(group).applied_index
        needless = max((index for index in compacted if index <= applied), default=0)
        intact = self._store.repair.intact_behind(group, needless) if needless else 0
        if not 0 < intact <= applied:
            return False
        core.compacted(group, intact + 1)
        return True

    def _forget_contradicted(self, group: int, given: Sequence[Entry]) -> bool:
        """Truncate the log where it contradicts a committed entry that a peer sent, because the
        record of that truncation is lost; return False if it does not.  Requested again, the entry
        will fit."""
        first_gone = self._store.repair.contradicted(group, given)
        if not first_gone or not self._core.repair.may_truncate(group, first_gone):
            return False
        self._forget(group, first_gone)
        return True

    def _forget(self, group: int, first_gone: int) -> None:
        """Truncate the log from an index on.  First record which of its entries were damaged, so
        that their ranges are not taken for another group's."""
        repair = self._store.repair
        for index in repair.unreadable(group, first_gone):
            self._write_needless(group, index)
        repair.require_head_recovery(group)
        self._core.repair.truncate(group, first_gone)

    def _give_up(self, group: int, absent: Sequence[int], compacted: Sequence[int]) -> None:
        """Give up entries that the leader does not have, or has compacted."""
        repair, core = self._store.repair, self._core
        gone = [*absent, *compacted]
        if gone and core.repair.may_truncate(group, min(gone)):
            self._forget(group, min(gone))
            return
        applied = core.status.of(group).applied_index
        needless = max((index for index in compacted if index <= applied), default=0)
        if needless:  # it is applied, and a member that lacks it gets a snapshot
            repair.require_head_recovery(
                group
            )  # its term may be unknown, and it may have been the last entry
            core.compacted(group, needless + 1)
        for index in absent:
            if index <= core.status.of(group).commit:
                repair.disown(group, index)

    def tail_read(self, group: int, entries: Sequence[Entry]) -> None:
        """Apply the entries that an ``Extend`` read to the partition states."""
        log = self._store.repair.quarantined(group)
        if log is not None and group in self._core.status.groups():
            last_index = self._core.status.of(group).last_index
            self._store.repair.extend_tail(group, entries, last_index)
            self._core.repair.set_configurations(group, log.configurations)

    def _wrote(self, group: int) -> None:
        self._writing.discard(group)
        log = self._store.repair.quarantined(group)
        if log is not None and group in self._core.status.groups():  # else it was removed meanwhile
            self._core.repair.set_term_runs(group, log.index.term_runs())

    def _lifted(self, group: int) -> None:
        """Readmit a replica whose LIFT is durable, unless other damage was found meanwhile."""
        self._writing.discard(group)
        if group not in self._core.status.groups():
            return  # it was removed meanwhile
        if self._store.repair.quarantined(group) is None:
            self.groups.discard(group)
            self.repaired += 1
            self._core.repair.repaired(group)

    # ---- for others ----------------------------------------------------------------------------

    def answer_plans(self, request: Request) -> tuple[list[ReadJob], Answer] | None:
        """Return the plans that read the entries that a peer requested, and the answer without
        those entries; None = no such group on this node."""
        group = request.group
        known = self._store.repair.incarnation(group)
        if known != request.incarnation:
            return None
        wanted = request.wanted[:ENTRIES_PER_REQUEST]
        plans = self._store.repair.copies_plan(group, wanted, ANSWER_BYTES_MAX)
        repair = self._store.repair
        leads = self._core.status.has_applied_in_term(group) and repair.term(group) >= request.term
        return plans, Answer(group, known, (), tuple(repair.absent(group, wanted)), leads,
                             tuple(repair.compacted(group, wanted)), request.wanted)
