"""One Raft group's replica on this node: its state, and the transitions that elections and
replication share.

Contract.  ``election``, ``replication``, ``conf_change`` and ``head_recovery`` change a ``Group``
through the methods here.  Effects leave a group only when ``MultiRaft.ready`` collects them.  No
message leaves before the term and vote that it was sent under are durable.  This one rule covers
vote requests, votes, acknowledgements and refusals (Raft paper 5.1, figure 2; scenario S21).

Invariants.  The term never decreases; a vote is final within its term; only ``set_hard_state``
changes them.  ``matched_index``, the end of the prefix known to match the log of this term's
leader, is at most the last index.  A leader has a ``Progress`` for every other member; a replica
that does not lead has none.

Transitions.
    FOLLOWER -> PRE_CANDIDATE       election timer, while this node has quorum support
    PRE_CANDIDATE -> CANDIDATE      a majority granted the pre-vote
    FOLLOWER -> CANDIDATE           TimeoutNow from its leader
    CANDIDATE -> LEADER             a majority voted for it, its own durable vote included
    any -> FOLLOWER                 a higher term, a leader of this term, a lost election, loss of
                                    quorum support, resignation, quarantine

Theory.  A follower has no election timer while it trusts its leader: it supports the leader's node
and has not revoked trust in it (``liveness/support.py``).  A leader has a timer only while a
reachable member lacks entries or the commit index.  So a quiesced group costs nothing, and store
liveness detects the loss of its leader.

Elsewhere.  Elections: election.py.  Log and commit: replication.py.  Dispatch of messages and
timers: multi_raft.py.  The group's part of the node-wide digests: leadership_record.py.
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
from multiraft.raft.replica_health import HealthState, ReplicaHealth
from multiraft.raft.status import GroupStatus, MemberStatus, Role
from multiraft.types import METADATA_GROUP, Configuration, Entry, HardState


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
        "health",
        "recovering_count",
        "outbox",
        "lifecycle_record",
        "conf_change_open",
        "removed_members",
        "reads",
        "leader_commit_seen",
        "leadership_record",
        "is_installing",
        "records_left",
    )

    def __init__(self, context: NodeContext, group: int, incarnation: int, restored: GroupRestored,
                 tail: LogState):
        self.context = context
        self.id = group
        #: Incarnation in messages.  Entries carry that of the log, which differs after a forced
        #: recovery.
        self.incarnation = restored.incarnation or incarnation
        self.log_incarnation = incarnation
        self.tail = tail
        self.log = RaftLog.restore(restored)
        #: (index, configuration) in ascending order: the last applied one and all above it.
        self.configurations = [(restored.configuration_index, restored.configuration),
                               *restored.changes]
        #: Configuration in force: the last in the log, committed or not (thesis 4.1).
        self.configuration_index, self.configuration = self.configurations[-1]
        joint_quorum.validate(self.configuration)
        #: Vote barrier (``is_below_vote_barrier``): the place of the log that this replica must
        #: reach before it votes.  Index 0 = no barrier; term 0 = the term is not known.
        self.vote_barrier_index, self.vote_barrier_term = (
            restored.vote_barrier_index,
            restored.vote_barrier_term,
        )
        self.term, self.vote = restored.hard_state
        #: Leader: read rounds started in its term.  Other roles: the highest round received in it.
        self.read_round = 0
        #: Term or vote changed, and no write contains the change yet.
        self.hard_state_unstaged = False
        #: Sequence of the write that contains term and vote.  They are durable once
        #: ``context.written_sequence`` has reached it.
        self.hard_state_sequence = 0
        self.role, self.leader = Role.FOLLOWER, 0
        #: ``Support.trust_epoch`` of the leader when this replica began to follow it.
        self.leader_trust_epoch = 0
        #: Time of the last message from the leader, for followers that do not support its node.
        self.heard_ms = context.now_ms
        #: Highest index known to match the log of this term's leader.
        self.matched_index = self.log.commit
        #: Leader to acknowledge to in the next ``ready``; 0 = none.
        self.ack_leader = 0
        self.votes: dict[int, bool] = {}
        self.progress: dict[int, Progress] = {}
        #: Index of this leader's first entry; it counts replicas only for indexes from there on.
        self.term_start = 0
        #: Bytes of this leader's proposals that are not committed.
        self.uncommitted_bytes = 0
        #: The next ``ready`` sends empty appends to members that lack the commit index.
        self.commit_broadcast_due = False
        self.transferee, self.transfer_deadline_ms = 0, 0
        #: No campaign before this time, because this replica resigned.
        self.abstain_until_ms = 0
        #: Whether this replica may vote, lead and acknowledge.
        self.health = ReplicaHealth(restored.quarantined)
        #: Members in head recovery, whose acknowledgements this leader does not count.
        self.recovering_count = 0
        self.outbox: list[Envelope] = []
        self.leader_commit_seen = -1  # highest commit index of a leader, for ``GroupStatus`` only
        #: Lifecycle record that precedes everything else in the next write.
        self.lifecycle_record: Entry | None = None
        #: Leader: the configuration in force is joint or not committed.
        self.conf_change_open = False
        #: Leader: former members to notify once the configuration without them is committed.
        self.removed_members: dict[int, None] = {}
        #: Leader: linearizable reads that wait for confirmation; None = no read in this term yet.
        self.reads: ReadIndexQueue | None = None
        self.leadership_record = LeadershipRecord(context, group)
        #: The driver makes a snapshot durable that replaces the log.
        self.is_installing = False
        #: Indexes below the log whose records this replica may lack, as its driver knows.
        self.records_left = 0
        assert self.term >= self.log.last_term, f"group {group}: {self.term}, its log is newer"

    # ---- predicates ---------------------------------------------------------------------------

    def trusts_leader(self) -> bool:
        """True if the leader is known and its node is trusted, so that no election is needed."""
        leader, context = self.leader, self.context
        return leader != 0 and (leader == context.node
                                or context.support.trusts(leader, self.leader_trust_epoch))

    def has_quorum_support(self) -> bool:
        """True if a majority of voters, this node included, supports this node."""
        return joint_quorum.supported(self.configuration, self.context.support.is_supported_by)

    def may_campaign(self) -> bool:
        """True if this replica may ask for votes: it is not quarantined and installs no snapshot,
        may have to lead, has reached its vote barrier, and has quorum support."""
        return (not self.health.why and self._is_needed() and not self.is_below_vote_barrier()
                and self.has_quorum_support() and not self.is_installing)

    def _is_needed(self) -> bool:
        """True if this replica may have to lead: it is a voter, or was one before the last
        configuration, which is not known to be committed.  Its log may be the one that commits that
        configuration (thesis 4.2.2)."""
        node = self.context.node
        if joint_quorum.is_voter(self.configuration, node):
            return True
        return (self.configuration_index > self.log.commit and len(self.configurations) > 1
                and joint_quorum.is_voter(self.configurations[-2][1], node))

    def is_below_vote_barrier(self) -> bool:
        """True if the log may lack entries that a removed replica of this group on this node
        acknowledged.

        Such a replica votes for no candidate until its log has reached the barrier of the tombstone
        (``replica_records.py``).  In a later incarnation of the group the barrier is the place
        where a leader of that incarnation began (``conf_change.reincarnate``)."""
        if not self.vote_barrier_index:
            return False
        if self.vote_barrier_term:
            # Compared as in elections (paper 5.4.1): the shorter log of a later term has got
            # farther.
            return (self.log.last_term, self.log.last_index) < (
                self.vote_barrier_term,
                self.vote_barrier_index,
            )
        return self._is_below_barrier_index()

    def _is_below_barrier_index(self) -> bool:
        """True if the log is below a barrier whose term is not known.

        The log must reach the configuration that added this node again or, in a later incarnation,
        pass the barrier.  A replica whose second removal is in the log, but not applied, is above
        it: its vote may be needed to commit that removal."""
        added = next((index for index, known in reversed(self.configurations)
                      if self.context.node in known.members()), -1)
        if added < 0:
            return True
        later = self.incarnation > self.log_incarnation
        return (self.log.last_index + 1 if later else added) <= self.vote_barrier_index

    def unknown_leader(self) -> int:
        """Return a node that is known to lead this group but is no voter in this replica's
        configuration, which must be outdated; 0 = none."""
        leader, term = self.context.leader_table.leader(self.id)
        if leader == 0 or term < self.term or joint_quorum.is_voter(self.configuration, leader):
            return 0
        return leader

    def is_non_candidate(self) -> bool:
        """True if this replica waits for a leader and cannot become one.

        Such a replica asks at intervals what became of its group, because it may have been
        removed."""
        return self.health.state is not HealthState.REMOVED and (
            bool(self.health.why) or self.unknown_leader() != 0 or self.is_below_vote_barrier()
            or not joint_quorum.is_voter(self.configuration, self.context.node))

    def hard_state_is_durable(self) -> bool:
        """True if the present term and vote survive a crash."""
        return (not self.hard_state_unstaged
                and self.hard_state_sequence <= self.context.written_sequence)

    def durable_of(self, node: int) -> int:
        """Return the highest index known to be durable on a member, for the commit rule; 0 for a
        member in head recovery."""
        if node == self.context.node:
            return self.log.durable_index
        member = self.progress[node]
        return 0 if member.recovery_nonce else member.match

    # ---- small effects ------------------------------------------------------------------------

    def touch(self) -> None:
        """Include this group in the next ``ready``."""
        self.context.dirty[self.id] = None

    def emit(self, kind: str, *fields: object) -> None:
        """Add a trace event to the next ``ready``."""
        self.context.events.append(Event(kind, self.id, fields))

    def send(self, to: int, message: GroupMessage) -> None:
        """Queue a message; ``MultiRaft.ready`` releases it when the hard state is durable."""
        self.outbox.append(Envelope(to, message))
        self.touch()

    def reply_append(self, to: int, status: Status, hint: tuple[int, int] = (0, 0)) -> None:
        """Answer an append with a status that carries no acknowledgement.  ``hint``: (index, term)
        of the last entry that may match, with ``MISMATCH``."""
        self.send(to, AppendReply(self.id, self.incarnation, self.term, status, 0,
                                  self.log.commit, *hint, self.read_round))

    # ---- transitions --------------------------------------------------------------------------

    def set_hard_state(self, term: int, vote: int) -> None:
        """Set term and vote, which one write makes durable together (Raft paper, figure 2).  All
        changes of either go through here; the group's messages wait for that write."""
        assert term >= self.term, f"group {self.id}: term {self.term} -> {term}"
        assert term > self.term or self.vote in (0, vote), (
            f"group {self.id}: vote {self.vote} -> {vote} in term {term}")
        if term > self.term:
            # All that was verified was verified against an earlier leader's log.  What is committed
            # is in the log of every later leader.
            self.matched_index = self.log.commit
            self.ack_leader = 0
            self.read_round = 0
        self.term, self.vote = term, vote
        self.context.view_version += 1
        # Holds back every message of this group until a write has taken term and vote: a vote that
        # a crash could undo would allow a second one in the same term.
        self.hard_state_unstaged = True
        self.emit("hard_state_changed", term, vote)
        self.touch()

    def become_follower(self, term: int, leader: int, why: str = "", vote: int = 0) -> None:
        """Follow ``leader`` (0 = unknown) in ``term`` and arm the election timer anew; a leader
        withdraws its leadership.  A later term starts with ``vote``; in the present one the vote
        stays.

        Raises ``ImpossibleMessage``, with nothing changed, if the term would grow by more than
        ``term_jump_max``."""
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
        """Take a role in the present term under ``leader`` (0 = unknown), discard collected votes,
        and publish or withdraw this replica's leader accordingly."""
        if (role, leader) != (self.role, self.leader):
            self.emit("role_changed", role, self.term, leader, why)
            self.context.view_version += 1
        if self.role is Role.LEADER and role is not Role.LEADER:
            self._withdraw_leader()
        self.role = role
        self.leader = leader
        self.leader_trust_epoch = self.context.support.trust_epoch.get(leader, 0)
        self.votes = {}
        if self.leadership_record.follow(leader if role is Role.FOLLOWER else 0, self.incarnation,
                                         self.term):
            self.subscribe_to(self.configuration.members())
        if role is Role.LEADER:
            self.leadership_record.publish_leader(self.incarnation, self.term, self.progress)

    def _withdraw_leader(self) -> None:
        """Withdraw published leadership and discard the leader's state.  The term may be a later
        one already."""
        self.leadership_record.withdraw_leader(self.incarnation, self.progress)
        # A leader verifies nothing, but what is committed matches the log of every later leader.
        self.matched_index = max(
            self.matched_index, self.log.commit
        )
        self.progress = {}
        self.recovering_count = 0
        self.uncommitted_bytes = 0
        self.commit_broadcast_due = False
        self.transferee = 0
        self.conf_change_open = False
        self.removed_members = {}
        self.reads = None

    def append(self, entry: Entry) -> None:
        """Add an entry to the log and the tail state; the next write contains it."""
        self.log.append(entry)
        self.tail.append(entry)
        self.touch()

    def truncate(self, first_gone: int) -> None:
        """Remove the log's suffix from ``first_gone`` on, and its effects on tail state and
        configuration."""
        self.emit("log_truncated", first_gone, self.log.last_index)
        # A verified entry matches the leader's log: the leader never asks to remove it.
        assert self.matched_index < first_gone, f"{first_gone} is verified ({self.matched_index})"
        self.log.truncate(first_gone)
        self.tail.truncate(first_gone)
        # A configuration counts only while its entry is in the log (thesis 4.1).
        if self.configuration_index >= first_gone:
            self.configurations = joint_quorum.configurations_before(
                self.configurations, first_gone)
            self._put_in_force()
        self.touch()

    def install(self, bounds: LogBounds, index: int, configuration: Configuration,
                tail: LogState) -> None:
        """Replace the log by a snapshot of applied state up to the entry before ``bounds``, and
        acknowledge it to the leader.  ``configuration`` is that of the entry at ``index``."""
        before = bounds.first_index - 1
        assert bounds.last_index == before > self.log.commit, f"{bounds} over {self.log.commit}"
        self.emit("snapshot_installed", before, bounds.prev_term)
        self.log = RaftLog(bounds, (), before, before)
        self.tail = tail
        self.configurations = [(index, configuration)]
        self.matched_index = before
        self.is_installing = False
        # It may have been quarantined since the installation began.
        self.ack_leader = 0 if self.health.is_frozen else self.leader
        self._put_in_force()
        self.touch()

    # ---- members ------------------------------------------------------------------------------

    def adopt(self, index: int, configuration: Configuration) -> None:
        """Put in force the ``configuration`` that the entry at ``index`` of the log contains
        (thesis 4.1: it counts from then on, committed or not)."""
        kept = self.configurations
        while len(kept) > 1 and kept[1][0] <= self.log.applied_index:
            del kept[0]
        kept.append((index, configuration))
        self._put_in_force()

    def replace_configurations(self, known: list[tuple[int, Configuration]]) -> None:
        """Replace all known (index, configuration) pairs, ascending, and put the last one in force,
        after a forced recovery or a repair."""
        self.configurations = known
        self._put_in_force()

    def _put_in_force(self) -> None:
        self.configuration_index, self.configuration = self.configurations[-1]
        self.subscribe_to(self.configuration.members())
        self.emit("configuration_changed", self.configuration, self.configuration_index)
        if self.role is Role.LEADER:
            self._update_members()
        else:
            self.rearm()

    def subscribe_to(self, members: tuple[int, ...]) -> None:
        """Subscribe this group to events of the nodes ``members`` and of its leader's node.  A
        replica that was just created does not know its leader as a member."""
        self.context.view_version += 1
        self.leadership_record.set_peers({*members, self.leader} - {0, self.context.node})

    def _update_members(self) -> None:
        """Make this leader's ``progress`` and digests match its new members.  Former members are
        kept in ``removed_members``, to be notified later; a transfer to one of them ends."""
        members = self.configuration.members()
        gone = [node for node in self.progress if node not in members]
        come = [node for node in members
                if node != self.context.node and node not in self.progress]
        self.conf_change_open = True
        self.leadership_record.update_members(gone, come)
        for node in gone:
            # A former member is notified when the configuration without it is committed; until then
            # its log may still be needed.
            self.recovering_count -= self.progress.pop(node).recovery_nonce != 0
            self.removed_members[node] = None
        for node in come:
            # A new round for the new member, so that late replies of a removed replica on that node
            # carry a lower one and are ignored.
            self.read_round += 1
            self.add_progress(node, self.read_round)
            self.removed_members.pop(node, None)
        if self.transferee not in self.progress:
            self.transferee = 0

    def forget_replies_of(self, member: Progress) -> None:
        """Ignore all replies of a member to appends sent up to now, by starting a new read round.
        The replica that answers from now on may lack what the earlier replies acknowledged."""
        self.read_round += 1
        member.added_at_round = self.read_round

    def add_progress(self, node: int, added_at_round: int) -> None:
        """Start replication to a member about which this leader knows nothing."""
        support = self.context.support
        self.progress[node] = Progress(
            node,
            self.log.last_index + 1,
            support.support_from.get(node, 0),
            support.connections.get(node, 0),
            self.context.now_ms,
            added_at_round,
        )

    def mark_removed(self, why: str, index: int) -> None:
        """Record that this replica is no longer a member, by the configuration at ``index``, as the
        leader of the present term knows.  The replica sends nothing from now on; the next ``ready``
        removes it."""
        self.raise_vote_barrier(self.term, index)
        self.health.remove()
        self.ack_leader = 0
        self.become_follower(self.term, 0, why)
        self.context.timers.cancel(self.id)
        self.context.removing[self.id] = None

    def raise_vote_barrier(self, term: int, index: int) -> None:
        """Raise the vote barrier to (term, index); the barrier never goes back."""
        self.vote_barrier_term, self.vote_barrier_index = max(
            (self.vote_barrier_term, self.vote_barrier_index), (term, index)
        )

    def quarantine(self, why: str) -> None:
        """Exclude this replica from voting, leading and acknowledging until it is repaired: a
        leader steps down, and a head recovery under way is void.  Do nothing if the replica is
        frozen."""
        if not self.health.quarantine(why):
            return
        self.emit("replica_quarantined", why)
        self.ack_leader = 0
        # The member that feeds this replica after its repair verifies the log anew.  Until then
        # entries above ``commit`` may be compacted there, and a snapshot must be able to replace
        # them.
        self.matched_index = self.log.commit
        self.become_follower(self.term, 0 if self.role is Role.LEADER else self.leader,
                             "quarantined")

    def repaired(self) -> None:
        """End the quarantine and acknowledge to the leader: nothing is missing, durably, and the
        replica counts as before.  Do nothing if it is not quarantined, or no longer a member."""
        if not self.health.repair():
            return
        self.emit("replica_repaired")
        self.ack_leader = self.leader if self.leader != self.context.node else 0
        self.rearm()
        self.touch()

    def set_records_left(self, left: int) -> None:
        """Set the number of indexes whose records this replica may lack, and tell the leader."""
        if left == self.records_left:
            return
        self.records_left = left
        if self.role is Role.FOLLOWER and self.leader and not (
                self.health.is_frozen or self.is_installing):
            self.ack_leader = self.leader
            self.touch()

    def leave(self) -> None:
        """Withdraw everything published for this replica, which is being removed from the node."""
        self.health.remove()
        self.become_follower(self.term, 0, self.health.why)
        self.context.timers.cancel(self.id)
        self.context.dirty.pop(self.id, None)
        self.context.removing.pop(self.id, None)

    # ---- timers and re-examination ------------------------------------------------------------

    def rearm(self) -> None:
        """Arm, keep or cancel the timer of a follower; do nothing in other roles.

        It is armed during head recovery, and while a replica without a trusted leader may campaign
        or is a non-candidate."""
        timers = self.context.timers
        if self.role is not Role.FOLLOWER:
            return
        if self.health.nonce:  # head recovery repeats its request
            timers.arm(self.id, self.context.now_ms + self.context.config.retransmit_ms)
        elif self.trusts_leader() or not (self.may_campaign() or self.is_non_candidate()):
            timers.cancel(self.id)
        elif timers.deadline(self.id) is None:
            self.arm_election(0)

    def arm_election(self, after_ms: int) -> None:
        """Arm the election timer at random within this node's slice of the election spread.

        The spread begins ``after_ms`` from now.  Slices follow the order of the voters that may be
        alive: the preferred voter campaigns first, and two voters seldom campaign at once.  Each
        node computes the slices from its own view; where views differ, chance decides as in the
        paper (5.2)."""
        context = self.context
        begin = max(context.now_ms + after_ms, self.abstain_until_ms)
        candidates = [
            node
            for node in joint_quorum.voters(self.configuration)
            if node == context.node
            or (node != self.leader and context.support.is_supported_by(node))
        ]
        slice_ms = context.config.election_jitter_ms // max(1, len(candidates))
        if context.node in candidates:
            begin += candidates.index(context.node) * slice_ms
        context.timers.arm(self.id, begin + (context.rng.randrange(slice_ms) if slice_ms else 0))

    def reexamine(self) -> None:
        """React to changed support or connections of a fellow member.  O(members).

        A leader steps down without quorum support, or serves members that came back.  Another
        replica leaves a leader whose trust was revoked, or arms its timer."""
        if self.role is Role.LEADER:
            self._reexamine_leader()
            return
        if self.leader and self.leader_trust_epoch != self.context.support.trust_epoch.get(
            self.leader, 0
        ):
            self.become_follower(self.term, 0, "trust in the leader revoked")
            return
        self.rearm()

    def _reexamine_leader(self) -> None:
        context = self.context
        # The leader steps down before a majority stops supporting it elsewhere: without quorum
        # support another node may be elected.
        if not self.has_quorum_support():
            self.become_follower(self.term, 0, "lost quorum support")
            return
        for member in self.progress.values():
            epoch = context.support.support_from.get(member.node)
            if epoch is None:
                continue
            # Its node restarted: replies from before may acknowledge entries that the restart lost.
            if epoch != member.boot_epoch:
                self.forget_replies_of(member)
                member.restarted(epoch, context.config.accept_lost_entries)
            if not member.has_all(self.log.last_index, self.log.commit) or member.records_left:
                self.unquiesce()

    def unquiesce(self) -> None:
        """Reactivate a quiesced leader: serve members in the next ``ready``, and again after
        ``retransmit_ms``."""
        timers = self.context.timers
        if timers.deadline(self.id) is None:
            self.emit("unquiesced")
            timers.arm(self.id, self.context.now_ms + self.context.config.retransmit_ms)
        self.touch()

    # ---- effects for the driver ---------------------------------------------------------------

    def has_write(self) -> bool:
        """True if the next write contains something of this group."""
        return bool(self.log.unstaged or self.log.drop_from or self.hard_state_unstaged)

    def take_write(self, sequence: int) -> GroupWrite:
        """Return what this group adds to the write ``sequence``: it counts as staged from now
        on."""
        drop_from, entries = self.log.take(sequence)
        record, self.lifecycle_record = self.lifecycle_record, None
        hard_state = None
        if self.hard_state_unstaged:
            hard_state = HardState(self.term, self.vote)
            self.hard_state_unstaged = False
            self.hard_state_sequence = sequence
        return GroupWrite(self.id, self.log_incarnation, drop_from, entries, hard_state, record)

    def acknowledge(self) -> None:
        """Queue the answer to ``ack_leader`` with the index that is verified *and* durable here,
        never more (scenario S3)."""
        log = self.log
        self.outbox.append(
            Envelope(
                self.ack_leader,
                AppendReply(
                    self.id,
                    self.incarnation,
                    self.term,
                    Status.RECOVERING_HEAD if self.health.why else Status.OK,
                    # Verified entries may still be in a write, and durable ones may contradict the
                    # leader's: an acknowledgement counts for commit, so only what is both goes into
                    # it.
                    min(self.matched_index, log.durable_index),
                    log.commit,
                    self.matched_index,
                    self.records_left << 1 | self.is_below_vote_barrier(),
                    self.read_round,
                ),
            )
        )
        self.ack_leader = 0

    def emit_committed(self, ready: Ready) -> None:
        """Add the entries that are committed and durable here to ``ready.committed``, and raise the
        tail state's applied index to them.

        Of the metadata group add at most ``metadata_commands_per_round_max``; the rest follows in
        the next round."""
        log = self.log
        # Applied entries are served to readers: what a node serves must survive its own crash, also
        # if a majority has committed it without this node's disk.
        last = min(log.commit, log.durable_index)
        if self.id == METADATA_GROUP and (
                last > log.emitted_index + self.context.config.metadata_commands_per_round_max):
            last = log.emitted_index + self.context.config.metadata_commands_per_round_max
            self.context.unfinished = True
            self.touch()
        if last > log.emitted_index:
            ready.committed.append(Committed(self.id, log.emitted_index + 1, last))
            log.emitted_index = last
            self.tail.apply(last)

    def status(self) -> GroupStatus:
        """Return a frozen picture of this replica.  O(members)."""
        log = self.log
        members = tuple(MemberStatus(
            member.node, _state_of(member), member.match, member.next_index, member.commit_known,
            member.inflight_bytes, member.records_left)
                        for member in self.progress.values())
        return GroupStatus(
            self.id, self.incarnation, self.role, self.term, self.vote, self.leader,
            log.first_index, log.last_index, log.durable_index, log.commit, log.applied_index,
            self.role is Role.LEADER and log.commit >= self.term_start, self.configuration,
            self.health.why, self.context.timers.deadline(self.id) is None, self.transferee,
            self.uncommitted_bytes, members, self.configuration_index, log.last_term,
            self.leader_commit_seen, self.health.vote_requester, self.records_left)

    def _check(self) -> None:
        """Assert every invariant.  O(members + elections)."""
        self.log._check()
        leading = self.role is Role.LEADER
        assert self.matched_index <= self.log.last_index, f"verified {self.matched_index}"
        assert leading or self.log.commit <= self.matched_index, (
            f"commit {self.log.commit}, verified {self.matched_index}")
        assert (self.leader == self.context.node) == leading, f"{self.role} under {self.leader}"
        published = self.leadership_record.term
        assert published == (self.term if leading else 0), f"{self.role} publishes {published}"
        assert leading or not self.progress, "progress without leading"
        assert not (leading and self.health.why), "a quarantined leader"
        assert not self.is_installing or self.role is Role.FOLLOWER, f"{self.role} installs"
        index, configuration = self.configurations[-1]
        assert (index, configuration) == (self.configuration_index, self.configuration)
        assert index <= self.log.last_index, f"configuration at {index}"
        others = {*configuration.members()} - {self.context.node}
        assert not leading or others == {*self.progress}, f"progress of {[*self.progress]}"
        for member in self.progress.values():
            member._check()
            assert member.match <= self.log.last_index, f"match {member.match}"


def _state_of(member: Progress) -> str:
    """Return the state of a member as ``MemberStatus`` has it."""
    if member.state is ProgressState.REPLICATE and member.records_left:
        return "copying"
    return ProgressState(member.state).name.lower()


def replica(groups: Mapping[int, Group], group: int, node: int) -> Group:
    """Return the replica of ``group`` among the ``groups`` of ``node``.  Raises
    ``UnknownGroup``."""
    found = groups.get(group)
    if found is None:
        raise UnknownGroup(f"group {group} is not on node {node}")
    return found
