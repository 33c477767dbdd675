"""One Raft group's replica on this node: its state, and the transitions that its two halves share.

Contract.  Functions of ``election`` and ``replication`` change a group; effects leave it through
``collect`` only.  Whatever a group says waits until the term and vote it speaks of are durable: one
rule for grants, requests, acknowledgements and refusals (Raft paper 5.1, figure 2; scenario S21).
Invariants.  The term never goes back; a vote is final within its term; both change in
``set_hard_state`` alone.  ``matched_index`` <= last index: the prefix known to match the leader of
this term.  A leader's progress holds every other member; nobody else has progress.
Transitions.
    FOLLOWER -> PRE_CANDIDATE       election timer, while a majority holds this node up
    PRE_CANDIDATE -> CANDIDATE      a majority would vote for it
    FOLLOWER -> CANDIDATE           TimeoutNow from its leader
    CANDIDATE -> LEADER             a majority voted for it, its own durable vote included
    any -> FOLLOWER                 a higher term, a leader of this term, a lost election, a lost
                                    majority of leases, resignation, quarantine
Theory.  A follower has no timer while it trusts its leader: the leader's node holds a lease here
and has not been discredited.  A leader has one only while a member that could be served lacks
something.  So a group at rest costs nothing, and the lease of its node keeps it from being
forgotten.
Elsewhere.  Elections: election.py.  Log and commit: replication.py.  Who runs when: multi_raft.py.
What the node's sums and lists say of a group: leadership_record.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from multiraft.errors import ImpossibleMessage, UnknownGroup
from multiraft.raft import joint_quorum
from multiraft.raft.context import NodeContext
from multiraft.raft.leadership_record import LeadershipRecord
from multiraft.raft.log_reader import GroupRestored, LogBounds
from multiraft.raft.log_state import LogState
from multiraft.raft.messages import AppendReply, GroupMessage, Status
from multiraft.raft.progress import Progress, ProgressState
from multiraft.raft.raft_log import RaftLog
from multiraft.raft.read_queue import ReadIndexQueue
from multiraft.raft.ready import Committed, Envelope, Event, GroupWrite, Ready
from multiraft.raft.status import GroupStatus, MemberStatus, Role
from multiraft.types import METADATA_GROUP, Configuration, Entry, HardState

#: Why a replica says nothing any more that is no member.
REMOVED = "removed"


class Group:
    """State of one replica."""

    __slots__ = (
        "context",
        "id",
        "incarnation",
        "log_incarnation",
        "tail",
        "log",
        "configuration",
        "configuration_index",
        "configurations",
        "vote_barrier_index",
        "vote_barrier_term",
        "term",
        "vote",
        "read_round",
        "hard_state_unstaged",
        "hard_state_sequence",
        "role",
        "leader",
        "leader_trust_epoch",
        "heard_ms",
        "matched_index",
        "ack_leader",
        "votes",
        "progress",
        "term_start",
        "uncommitted_bytes",
        "commit_broadcast_due",
        "transferee",
        "transfer_deadline_ms",
        "abstain_until_ms",
        "quarantined",
        "nonce",
        "cleared",
        "recovering_count",
        "outbox",
        "mark",
        "conf_change_open",
        "removed_members",
        "reads",
        "commit_said",
        "standing",
        "candidate",
    )

    def __init__(self, context: NodeContext, group: int, incarnation: int, restored: GroupRestored,
                 tail: LogState):
        self.context = context
        self.id = group
        #: In messages; entries have that of the log, which differs after a forced recovery.
        self.incarnation = restored.incarnation or incarnation
        self.log_incarnation = incarnation
        self.tail = tail
        self.log = RaftLog(restored.bounds, restored.term_runs, restored.commit, restored.applied)
        #: (index, configuration): the last one that is applied and those above, ascending.
        self.configurations = [(restored.configuration_index, restored.configuration),
                               *restored.changes]
        #: The one in force: the last, committed or not (thesis 4.1).
        self.configuration_index, self.configuration = self.configurations[-1]
        joint_quorum.validate(self.configuration)
        #: The place of the log to which this replica has to come before it votes
        #: (``is_below_vote_barrier``): an index, 0 = it may, and its term, 0 = not known.
        self.vote_barrier_index, self.vote_barrier_term = (
            restored.vote_barrier_index,
            restored.vote_barrier_term,
        )
        self.term, self.vote = restored.hard_state
        #: Leader: how many questions it has asked in its term.  Else: the highest heard in it.
        self.read_round = 0
        #: Term or vote changed and no write has it yet.
        self.hard_state_unstaged = False
        #: The write that has it; durable once ``context.written_sequence`` is there.
        self.hard_state_sequence = 0
        self.role, self.leader = Role.FOLLOWER, 0
        #: ``Support.credit`` of the leader when it was learned.
        self.leader_trust_epoch = 0
        #: When the leader was heard last, for followers that cannot lean on its lease.
        self.heard_ms = context.now_ms
        #: Highest index known to match the leader of this term.
        self.matched_index = self.log.commit
        #: Leader that is owed an acknowledgement; 0 = none.
        self.ack_leader = 0
        self.votes: dict[int, bool] = {}
        self.progress: dict[int, Progress] = {}
        #: Index of this leader's first entry; only from there on may it commit by counting.
        self.term_start = 0
        #: Bytes proposed by this leader and not committed.
        self.uncommitted_bytes = 0
        #: Members whose commit index is old get an empty append in the next collection.
        self.commit_broadcast_due = False
        self.transferee, self.transfer_deadline_ms = 0, 0
        #: No campaign before: it resigned.
        self.abstain_until_ms = 0
        self.quarantined = restored.quarantined
        #: Following in quarantine (``head_recovery.py``): a number drawn for this time; 0 = not so.
        self.nonce = 0
        self.cleared = (0, 0, False)  # (term, index, reached): said against the doubt
        #: Members that this leader does not count because they doubt themselves.
        self.recovering_count = 0
        self.outbox: list[Envelope] = []
        #: Who asked for its vote since it is quarantined: a member, whatever its own log says.
        self.candidate = 0
        self.commit_said = -1  # see GroupStatus; decides nothing, tells how far behind this is
        #: Lane record that comes before all else in the next write.
        self.mark: Entry | None = None
        #: Leader: the configuration in force is not the end of its change, or not committed.
        self.conf_change_open = False
        #: Leader: who was a member, to be told when the configuration without it is committed.
        self.removed_members: dict[int, None] = {}
        #: Leader: reads that wait for their confirmation; None = there was none in this office.
        self.reads: ReadIndexQueue | None = None
        self.standing = LeadershipRecord(context, group)
        assert self.term >= self.log.last_term, f"group {group}: {self.term}, its log is newer"

    # ---- small questions ----------------------------------------------------------------------

    def trusts_leader(self) -> bool:
        """Whether the leader need not be replaced: it is known, and its node is believed."""
        leader, context = self.leader, self.context
        return leader != 0 and (leader == context.node
                                or context.support.trusts(leader, self.leader_trust_epoch))

    def has_quorum_support(self) -> bool:
        """Whether a majority of voters, this node included, supports this node."""
        return joint_quorum.supported(self.configuration, self.context.support.is_supported_by)

    def may_campaign(self) -> bool:
        """Whether this replica may ask for votes at all."""
        return (not self.quarantined and self._is_needed() and not self.is_below_vote_barrier()
                and self.has_quorum_support())

    def _is_needed(self) -> bool:
        """Whether it is a voter, or was one before a configuration that is not known to be
        committed: its log may be the one that commits that (thesis 4.2.2)."""
        node = self.context.node
        if joint_quorum.is_voter(self.configuration, node):
            return True
        return (self.configuration_index > self.log.commit and len(self.configurations) > 1
                and joint_quorum.is_voter(self.configurations[-2][1], node))

    def is_below_vote_barrier(self) -> bool:
        """Whether what an earlier life of this replica acknowledged may be missing in its log: that
        life ended, and the log has not come to the bar yet (``replica_records.py``).  In a later
        incarnation of the group the bar is where a leader of that one began
        (``changes.reincarnate``)."""
        if not self.vote_barrier_index:
            return False
        if self.vote_barrier_term:
            return (self.log.last_term, self.log.last_index) < (
                self.vote_barrier_term,
                self.vote_barrier_index,
            )
        return self._is_barred_by_index()

    def _is_barred_by_index(self) -> bool:
        """By a bar whose term is not known: the log has to come to where this node was added again,
        or, in a later incarnation, to pass the configurations of the first.  One that was added
        again and is to be removed once more is not barred before that is applied: it may be needed
        to commit it."""
        added = next((index for index, known in reversed(self.configurations)
                      if self.context.node in known.members()), -1)
        if added < 0:
            return True
        later = self.incarnation > self.log_incarnation
        return (self.log.last_index + 1 if later else added) <= self.vote_barrier_index

    def unknown_leader(self) -> int:
        """A node that is known to lead this group and is no voter as far as this replica knows:
        what it knows is old.  0 = none."""
        leader, term = self.context.hints.leader(self.id)
        if leader == 0 or term < self.term or joint_quorum.is_voter(self.configuration, leader):
            return 0
        return leader

    def is_non_candidate(self) -> bool:
        """Whether this replica waits for a leader and cannot become one: it asks now and then what
        became of the group, because it may have been removed."""
        return self.quarantined is not REMOVED and (
            bool(self.quarantined) or self.unknown_leader() != 0 or self.is_below_vote_barrier()
            or not joint_quorum.is_voter(self.configuration, self.context.node))

    def hard_state_is_durable(self) -> bool:
        """Whether this term and vote survive a crash."""
        return (not self.hard_state_unstaged
                and self.hard_state_sequence <= self.context.written_sequence)

    def durable_of(self, node: int) -> int:
        """Highest index that is known durable on a member."""
        if node == self.context.node:
            return self.log.durable_index
        member = self.progress[node]
        return 0 if member.doubt else member.match

    def is_frozen(self) -> bool:
        """Whether it is quarantined and takes no entries either."""
        return bool(self.quarantined) and not self.nonce

    # ---- small effects ------------------------------------------------------------------------

    def touch(self) -> None:
        """Look at this group in the next ``ready``."""
        self.context.dirty[self.id] = None

    def emit(self, kind: str, *fields: object) -> None:
        """Leave a trace value."""
        self.context.events.append(Event(kind, self.id, fields))

    def send(self, to: int, message: GroupMessage) -> None:
        """Queue a message; ``collect`` decides when it may leave."""
        self.outbox.append(Envelope(to, message))
        self.touch()

    def reply_append(self, to: int, status: Status, hint: tuple[int, int] = (0, 0)) -> None:
        """Answer an append with anything but a plain acknowledgement."""
        self.send(to, AppendReply(self.id, self.incarnation, self.term, status, 0,
                                  self.log.commit, *hint, self.read_round))

    # ---- transitions --------------------------------------------------------------------------

    def set_hard_state(self, term: int, vote: int) -> None:
        """The only way term and vote change: one atomic record (Raft paper, figure 2)."""
        assert term >= self.term, f"group {self.id}: term {self.term} -> {term}"
        assert term > self.term or self.vote in (0, vote), (
            f"group {self.id}: vote {self.vote} -> {vote} in term {term}")
        if term > self.term:
            self.matched_index = self.log.commit
            self.ack_leader = 0
            self.read_round = 0
        self.term, self.vote = term, vote
        self.hard_state_unstaged = True
        self.emit("hard_state", term, vote)
        self.touch()

    def become_follower(self, term: int, leader: int, why: str = "", vote: int = 0) -> None:
        """Follow ``leader`` (0 = unknown) in ``term``, whatever this replica was before; with
        ``vote`` in a new term.  Raises ``ImpossibleMessage`` for a term that is absurd; nothing has
        changed then."""
        if term > self.term:
            if term - self.term > self.context.config.term_jump_max:
                raise ImpossibleMessage(
                    f"group {self.id}: the term would jump from {self.term} to {term}, the limit "
                    f"is term_jump_max={self.context.config.term_jump_max}")
            self.set_hard_state(term, vote)
        self.enter(Role.FOLLOWER, leader, why)
        self.context.timers.cancel(self.id)
        self.heard_ms = self.context.now_ms
        self.rearm()

    def enter(self, role: Role, leader: int, why: str = "") -> None:
        """Take a role in the present term; what other nodes are told follows from it."""
        if (role, leader) != (self.role, self.leader):
            self.emit("role", role, self.term, leader, why)
        if self.role is Role.LEADER and role is not Role.LEADER:
            self._leave_office()
        self.role = role
        self.leader = leader
        self.leader_trust_epoch = self.context.support.trust_epoch.get(leader, 0)
        self.votes = {}
        if self.standing.follow(leader if role is Role.FOLLOWER else 0, self.incarnation,
                                 self.term):
            self.share(self.configuration.members())
        if role is Role.LEADER:
            self.standing.publish_leader(self.incarnation, self.term, self.progress)

    def _leave_office(self) -> None:
        """Withdraw all that a leader has; the term may be a later one already."""
        self.standing.withdraw_leader(self.incarnation, self.progress)
        self.matched_index = max(
            self.matched_index, self.log.commit
        )  # a leader verifies nothing, it knows
        self.progress = {}
        self.recovering_count = 0
        self.uncommitted_bytes = 0
        self.commit_broadcast_due = False
        self.transferee = 0
        self.conf_change_open = False
        self.removed_members = {}
        self.reads = None

    def append(self, entry: Entry) -> None:
        """Add an entry to log and tail; it is written by the next ``Ready``."""
        self.log.append(entry)
        self.tail.append(entry)
        self.touch()

    def truncate(self, first_gone: int) -> None:
        """Drop the log's suffix from ``first_gone`` on, and what the tail learned from it."""
        self.emit("truncate", first_gone, self.log.last_index)
        assert self.matched_index < first_gone, f"{first_gone} is verified ({self.matched_index})"
        self.log.truncate(first_gone)
        self.tail.truncate(first_gone)
        if self.configuration_index >= first_gone:
            self.configurations = joint_quorum.before(self.configurations, first_gone)
            self._put_in_force()
        self.touch()

    def install(self, bounds: LogBounds, index: int, configuration: Configuration,
                tail: LogState) -> None:
        """Forget the log: applied state up to the entry before ``bounds`` stands in its place, with
        the configuration of the entry at ``index``."""
        before = bounds.first_index - 1
        assert bounds.last_index == before > self.log.commit, f"{bounds} over {self.log.commit}"
        self.emit("installed", before, bounds.prev_term)
        self.log = RaftLog(bounds, (), before, before)
        self.tail = tail
        self.configurations = [(index, configuration)]
        self.matched_index = before
        self.ack_leader = self.leader
        self._put_in_force()
        self.touch()

    # ---- members ------------------------------------------------------------------------------

    def adopt(self, index: int, configuration: Configuration) -> None:
        """``configuration`` is in the log at ``index``: it counts from now on (thesis 4.1)."""
        kept = self.configurations
        while len(kept) > 1 and kept[1][0] <= self.log.applied_index:
            del kept[0]
        kept.append((index, configuration))
        self._put_in_force()

    def replace_configurations(self, known: list[tuple[int, Configuration]]) -> None:
        """Forced recovery, or a repair: this counts, whatever was read of the log before."""
        self.configurations = known
        self._put_in_force()

    def _put_in_force(self) -> None:
        self.configuration_index, self.configuration = self.configurations[-1]
        self.share(self.configuration.members())
        self.emit("membership", self.configuration, self.configuration_index)
        if self.role is Role.LEADER:
            self._reseat()
        else:
            self.rearm()

    def share(self, members: tuple[int, ...]) -> None:
        """Events about these nodes concern this group, and those about its leader, which a replica
        that was just created does not know as a member."""
        self.standing.set_peers({*members, self.leader} - {0, self.context.node})

    def _reseat(self) -> None:
        """A leader's members changed: progress and digests follow."""
        members = self.configuration.members()
        gone = [node for node in self.progress if node not in members]
        come = [node for node in members
                if node != self.context.node and node not in self.progress]
        self.conf_change_open = True
        self.standing.update_members(gone, come)
        for node in gone:
            self.recovering_count -= self.progress.pop(node).doubt != 0
            self.removed_members[node] = None
        for node in come:
            self.read_round += 1
            self.add_progress(node, self.read_round)
            self.removed_members.pop(node, None)
        if self.transferee not in self.progress:
            self.transferee = 0

    def forget_word_of(self, member: Progress) -> None:
        """Count nothing of what a member said up to now and may still be on its way here: a later
        life of it need not have what that one had."""
        self.read_round += 1
        member.since = self.read_round

    def add_progress(self, node: int, since: int) -> None:
        """A leader begins to serve a member, of which it knows nothing."""
        support = self.context.support
        self.progress[node] = Progress(
            node,
            self.log.last_index + 1,
            support.support_from.get(node, 0),
            support.connections.get(node, 0),
            self.context.now_ms,
            since,
        )

    def mark_removed(self, why: str, index: int) -> None:
        """Leave for good: by the configuration at ``index`` this replica is no member, as the
        leader of the present term knows.  It says nothing from now on, and the next ``ready`` lets
        it go."""
        self.bar(self.term, index)
        self.quarantined = REMOVED
        self.nonce = self.ack_leader = 0
        self.become_follower(self.term, 0, why)
        self.context.timers.cancel(self.id)
        self.context.removing[self.id] = None

    def bar(self, term: int, index: int) -> None:
        """Raise the bar to that place of the log; it is in no earlier one."""
        self.vote_barrier_term, self.vote_barrier_index = max(
            (self.vote_barrier_term, self.vote_barrier_index), (term, index)
        )

    def quarantine(self, why: str) -> None:
        """Neither vote nor lead nor acknowledge from now on."""
        if self.is_frozen():
            return
        self.quarantined = why
        self.nonce, self.cleared = 0, (0, 0, False)  # what was said of an earlier doubt is over
        self.emit("quarantine", why)
        self.ack_leader = 0
        # What its leader has is heard again from whoever feeds it when it is repaired; meanwhile
        # all of that may be compacted, and has to be given up for a snapshot then.
        self.matched_index = self.log.commit
        self.become_follower(self.term, 0 if self.role is Role.LEADER else self.leader,
                             "quarantined")

    def repaired(self) -> None:
        """Nothing is missing any more, durably: be a member like any other again."""
        self.quarantined = ""
        self.nonce = self.candidate = 0
        self.emit("repaired")
        self.ack_leader = self.leader if self.leader != self.context.node else 0
        self.rearm()
        self.touch()

    def leave(self) -> None:
        """This replica is removed from the node: withdraw what it told others."""
        self.quarantined = REMOVED
        self.become_follower(self.term, 0, REMOVED)
        self.context.timers.cancel(self.id)
        self.context.dirty.pop(self.id, None)
        self.context.removing.pop(self.id, None)

    # ---- timers and re-examination ------------------------------------------------------------

    def rearm(self) -> None:
        """Give a replica that does not lead the timer it needs, or none."""
        timers = self.context.timers
        if self.role is not Role.FOLLOWER:
            return
        if self.nonce:  # it speaks up (head_recovery.py)
            timers.arm(self.id, self.context.now_ms + self.context.config.retransmit_ms)
        elif self.trusts_leader() or not (self.may_campaign() or self.is_non_candidate()):
            timers.cancel(self.id)
        elif timers.deadline(self.id) is None:
            self.arm_election(0)

    def arm_election(self, after_ms: int) -> None:
        """Campaign at random within this node's slice of the spread that begins ``after_ms`` from
        now.  The slices follow the order of the voters, of those that may be alive: the preferred
        one comes first, and two of them hardly ever campaign at once.  Who is in whose slice is
        each node's own view; when views differ, chance decides as it does in the paper (5.2)."""
        context = self.context
        begin = max(context.now_ms + after_ms, self.abstain_until_ms)
        candidates = [
            node
            for node in joint_quorum.voters(self.configuration)
            if node == context.node
            or (node != self.leader and context.support.is_supported_by(node))
        ]
        slice_ms = context.config.election_spread_ms // max(1, len(candidates))
        if context.node in candidates:
            begin += candidates.index(context.node) * slice_ms
        context.timers.arm(self.id, begin + (context.rng.randrange(slice_ms) if slice_ms else 0))

    def reexamine(self) -> None:
        """Leases or connections of a fellow member changed; find what follows.  O(members)."""
        if self.role is Role.LEADER:
            self._reexamine_leader()
            return
        if self.leader and self.leader_trust_epoch != self.context.support.trust_epoch.get(
            self.leader, 0
        ):
            self.become_follower(self.term, 0, "leader discredited")
            return
        self.rearm()

    def _reexamine_leader(self) -> None:
        context = self.context
        if not self.has_quorum_support():
            self.become_follower(self.term, 0, "lost its majority of leases")
            return
        for member in self.progress.values():
            epoch = context.support.support_from.get(member.node)
            if epoch is None:
                continue
            if epoch != member.boot_epoch:
                self.forget_word_of(member)
                member.restarted(epoch, context.config.members_may_forget)
            if not member.has_all(self.log.last_index, self.log.commit):
                self.wake()

    def wake(self) -> None:
        """A leader has somebody to serve: look at once, and again after ``retransmit_ms``."""
        timers = self.context.timers
        if timers.deadline(self.id) is None:
            self.emit("wake")
            timers.arm(self.id, self.context.now_ms + self.context.config.retransmit_ms)
        self.touch()

    # ---- towards the driver -------------------------------------------------------------------

    def has_write(self) -> bool:
        """Whether the next write contains something of this group."""
        return bool(self.log.unstaged or self.log.drop_from or self.hard_state_unstaged)

    def take_write(self, sequence: int) -> GroupWrite:
        """What goes into the write ``sequence``."""
        drop_from, entries = self.log.take(sequence)
        mark, self.mark = self.mark, None
        hard_state = None
        if self.hard_state_unstaged:
            hard_state = HardState(self.term, self.vote)
            self.hard_state_unstaged = False
            self.hard_state_sequence = sequence
        return GroupWrite(self.id, self.log_incarnation, drop_from, entries, hard_state, mark)

    def acknowledge(self) -> None:
        """Answer the leader: what is verified *and* durable, never more (scenario S3)."""
        log = self.log
        self.outbox.append(
            Envelope(
                self.ack_leader,
                AppendReply(
                    self.id,
                    self.incarnation,
                    self.term,
                    Status.RECOVERING_HEAD if self.quarantined else Status.OK,
                    min(self.matched_index, log.durable_index),
                    log.commit,
                    self.matched_index,
                    int(self.is_below_vote_barrier()),
                    self.read_round,
                ),
            )
        )
        self.ack_leader = 0

    def hand_out_committed(self, ready: Ready) -> None:
        """Entries that are committed and durable here may be applied; those of the metadata group
        ``commands_per_round_max`` at a time."""
        log = self.log
        last = min(log.commit, log.durable_index)
        if self.id == METADATA_GROUP and (
                last > log.emitted_index + self.context.config.commands_per_round_max):
            last = log.emitted_index + self.context.config.commands_per_round_max
            self.context.unfinished = True
            self.touch()
        if last > log.emitted_index:
            ready.committed.append(Committed(self.id, log.emitted_index + 1, last))
            log.emitted_index = last
            self.tail.apply(last)

    def status(self) -> GroupStatus:
        """A frozen picture.  O(members)."""
        log = self.log
        members = tuple(MemberStatus(member.node, ProgressState(member.state).name.lower(),
                                     member.match, member.next_index, member.commit_known,
                                     member.inflight_bytes) for member in self.progress.values())
        return GroupStatus(
            self.id, self.incarnation, self.role, self.term, self.vote, self.leader,
            log.first_index, log.last_index, log.durable_index, log.commit, log.applied_index,
            self.role is Role.LEADER and log.commit >= self.term_start, self.configuration,
            self.quarantined, self.context.timers.deadline(self.id) is None, self.transferee,
            self.uncommitted_bytes, members, self.configuration_index, log.last_term,
            self.commit_said, self.candidate)

    def _check(self) -> None:
        """Every invariant; O(members + elections)."""
        self.log._check()
        leading = self.role is Role.LEADER
        assert self.matched_index <= self.log.last_index, f"verified {self.matched_index}"
        assert leading or self.log.commit <= self.matched_index, (
            f"commit {self.log.commit}, verified {self.matched_index}")
        assert (self.leader == self.context.node) == leading, f"{self.role} under {self.leader}"
        published = self.standing.term
        assert published == (self.term if leading else 0), f"{self.role} publishes {published}"
        assert leading or not self.progress, "progress without leading"
        assert not (leading and self.quarantined), "a quarantined leader"
        index, configuration = self.configurations[-1]
        assert (index, configuration) == (self.configuration_index, self.configuration)
        assert index <= self.log.last_index, f"configuration at {index}"
        others = {*configuration.members()} - {self.context.node}
        assert not leading or others == {*self.progress}, f"progress of {[*self.progress]}"
        for member in self.progress.values():
            member._check()
            assert member.match <= self.log.last_index, f"match {member.match}"


def replica(groups: Mapping[int, Group], group: int, node: int) -> Group:
    """Return the replica of ``group`` among the ``groups`` of ``node``.  Raises
    ``UnknownGroup``."""
    found = groups.get(group)
    if found is None:
        raise UnknownGroup(f"group {group} is not on node {node}")
    return found
