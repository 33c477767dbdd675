"""Bringing quarantined replicas of a node back: what is to be done next, for whoever can do it.

Contract.  Level-triggered and without I/O: the driver calls ``step`` for each group of ``groups``
every now and then, does what it returns, and hands the result to ``answered`` or ``tail_read``.
Doing nothing, twice or too late is safe.  ``submit`` takes a staged write to the disk.

Theory.  Missing entries are asked for by (index, term) from any member that has them, not only from
the leader: with the damage of every replica in another place (helix) there may be none.  The leader
and whoever asks for a vote are asked even where the log that is left does not name them: its
members may be history.  An entry
that a leader does not have was never committed, and is given up.  One that may have been dropped in
a hole of the lane (``lost_drops.py``) is not asked for itself, but what is committed there is.  One
that others have compacted is forgotten where it and an intact entry behind it are applied; one that
the leader has, where it is applied, else it is given up with all that comes after it: the leader's
snapshot brings it.  Then the tail is moved over what was repaired.  A
replica that may have lost more than it can name then follows its leader until it is cleared
(``multiraft.doubt``).  Last, the store writes that the damage is settled, and consensus takes the
replica back (docs/decisions/0009).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from multiraft.multiraft import MultiRaft
from multiraft.storage.errors import CorruptFile, CorruptPlace, CorruptRange
from multiraft.storage.plans import ReadPlan, StagedWrite
from multiraft.storage.store import Store
from multiraft.types import Entry

#: Entries asked for at a time, and bytes answered at a time: a repair moves on in steps that delay
#: nobody, and a lost answer costs little.
ENTRIES_PER_REQUEST = 64
ANSWER_BYTES_MAX = 4 << 20


class Request(NamedTuple):
    """Who has one of these entries?"""

    group: int
    incarnation: int
    wanted: tuple[tuple[int, int], ...]  # (index, term)
    term: int = 0  # that the asker is in: whoever led an earlier one may not know what is committed


class Answer(NamedTuple):
    """What one member has, and what it does not hold."""

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
    plan: ReadPlan


def _nothing() -> None:
    """What follows from a record that nobody waits for."""


class Repairer:
    """One node's."""

    def __init__(self, node: int, store: Store, core: MultiRaft,
                 submit: Callable[[StagedWrite], None]):
        self.groups: set[int] = set()
        self.repaired = 0  # replicas that came back since the start
        self._node = node
        self._store = store
        self._core = core
        self._submit = submit
        self._turn: dict[int, int] = {}  # group -> how often somebody was asked
        self._writing: set[int] = set()
        self.look()

    def look(self) -> None:
        """The replicas of a start are known: those that recovery found, and those of which nothing
        stands in the lane, which are in doubt all the same when the lane has damage.  O(groups)."""
        self.groups |= {*self._store.repair.quarantined_groups()}

    def created(self, group: int) -> None:
        """There is a new replica: in a lane with damage it begins in doubt, as what stood there may
        have been its.  Of damage that was found with every log in memory it is known that nothing
        there was its: that is written before anything else, as the next start could not tell."""
        repair = self._store.repair
        if repair.quarantined(group) is not None:
            self.groups.add(group)
        elif repair.knows_damage:
            self._submit(repair.stage_lift(group, _nothing))

    # ---- damage --------------------------------------------------------------------------------

    def damaged(self, error: CorruptRange | CorruptFile) -> None:
        """An entry that was durable cannot be read: its replica is out until it is repaired.  Of a
        ``CorruptPlace`` nobody knows whose it was: all replicas here are in doubt.  A checkpoint
        (``CorruptFile``) is written anew."""
        if isinstance(error, CorruptFile):
            self._store.repair.checkpoint_damaged()
            return
        if isinstance(error, CorruptPlace):
            here = {*self._core.status.groups()}
            for group in self._store.repair.doubt_all(error.begin, error.end, error.why):
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
        """The replica may be one that recovery found and that is not taken up yet, or one that was
        let go a moment ago."""
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
        """What is to be done for a group of ``groups`` now; None = wait."""
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
        if log.doubtful and not core.repair.is_cleared(group):
            if not core.repair.is_following(group):
                core.repair.follow(group)
            return None
        self._writing.add(group)
        self._submit(repair.stage_lift(group, lambda: self._lifted(group)))
        return None

    def _ask(self, group: int) -> Ask | None:
        log = self._store.repair.quarantined(group)
        others = self._others(group)
        if not others:
            return None
        turn = self._turn[group] = self._turn.get(group, 0) + 1
        repair = self._store.repair
        wanted = repair.wanted(group, ENTRIES_PER_REQUEST)
        request = Request(group, repair.incarnation(group), wanted, log.hard_state.term)
        return Ask(others[turn % len(others)], request)

    def _others(self, group: int) -> list[int]:
        """Who may have its entries: the other members as far as the log says, the leader, and who
        asked for its vote.  The log may not have come to where it says who its members are, or end
        before a hole behind which they changed: then those it names may all be gone for good, and
        those that are left perhaps need its vote to elect a leader."""
        status = self._core.status.of(group)
        others = [peer for peer in status.configuration.members() if peer != self._node]
        for peer in (status.leader, status.candidate):
            if peer and peer != self._node and peer not in others:
                others.append(peer)
        return others

    def answered(self, answer: Answer) -> None:
        """A peer answered; its entries are intact as far as their checksums say.  What is not
        wanted just so any more is left out: an answer that comes late was not asked whether the
        entry is committed, and now that may be the question."""
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
        """Whether the log can do without what another member has compacted, whoever leads: it is
        applied here, and so is an intact entry behind it.  All that is applied is committed, the
        log's end and the term before its beginning are known: this vote may be needed to elect who
        would have to say so."""
        core = self._core
        applied = core.status.of(group).applied_index
        needless = max((index for index in compacted if index <= applied), default=0)
        intact = self._store.repair.intact_behind(group, needless) if needless else 0
        if not 0 < intact <= applied:
            return False
        core.compacted(group, intact + 1)
        return True

    def _forget_contradicted(self, group: int, given: Sequence[Entry]) -> bool:
        """Whether the log goes on with what no log holds that has one of the entries: then that was
        dropped, and the record of the drop is lost.  Asked for again, the entry will fit."""
        first_gone = self._store.repair.contradicted(group, given)
        if not first_gone or not self._core.repair.may_forget(group, first_gone):
            return False
        self._forget(group, first_gone)
        return True

    def _forget(self, group: int, first_gone: int) -> None:
        """Give up the log from there on.  What was damaged of it is told first: no replica has to
        doubt itself for those places."""
        repair = self._store.repair
        for index in repair.unreadable(group, first_gone):
            self._write_needless(group, index)
        repair.expect_clearance(group)
        self._core.repair.forget(group, first_gone)

    def _give_up(self, group: int, absent: Sequence[int], compacted: Sequence[int]) -> None:
        """What the leader does not hold, or not any more."""
        repair, core = self._store.repair, self._core
        gone = [*absent, *compacted]
        if gone and core.repair.may_forget(group, min(gone)):
            self._forget(group, min(gone))
            return
        applied = core.status.of(group).applied_index
        needless = max((index for index in compacted if index <= applied), default=0)
        if needless:  # it is applied, and whoever lacks it gets a state
            repair.expect_clearance(group)  # its term is perhaps not known, and was it the last?
            core.compacted(group, needless + 1)
        for index in absent:
            if index <= core.status.of(group).commit:
                repair.disown(group, index)

    def tail_read(self, group: int, entries: Sequence[Entry]) -> None:
        """What ``Extend`` asked for was read."""
        log = self._store.repair.quarantined(group)
        if log is not None and group in self._core.status.groups():
            last_index = self._core.status.of(group).last_index
            self._store.repair.extend_tail(group, entries, last_index)
            self._core.repair.members_known(group, log.configurations)

    def _wrote(self, group: int) -> None:
        self._writing.discard(group)
        log = self._store.repair.quarantined(group)
        if log is not None and group in self._core.status.groups():  # else it was removed meanwhile
            self._core.repair.terms_known(group, log.index.term_runs())

    def _lifted(self, group: int) -> None:
        """On disk it is a good replica again, unless other damage was found meanwhile."""
        self._writing.discard(group)
        if group not in self._core.status.groups():
            return  # it was removed meanwhile
        if self._store.repair.quarantined(group) is None:
            self.groups.discard(group)
            self.repaired += 1
            self._core.repair.repaired(group)

    # ---- for others ----------------------------------------------------------------------------

    def answer_plans(self, request: Request) -> tuple[list[ReadPlan], Answer] | None:
        """The plans that read what a peer asked for, and the answer but for their entries.  None =
        no such group here."""
        group = request.group
        known = self._store.repair.incarnation(group)
        if known != request.incarnation:
            return None
        wanted = request.wanted[:ENTRIES_PER_REQUEST]
        plans = self._store.repair.copies_plan(group, wanted, ANSWER_BYTES_MAX)
        repair = self._store.repair
        leads = self._core.status.is_settled(group) and repair.term(group) >= request.term
        return plans, Answer(group, known, (), tuple(repair.absent(group, wanted)), leads,
                             tuple(repair.compacted(group, wanted)), request.wanted)
