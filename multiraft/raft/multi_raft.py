"""One node's instance of all its Raft groups.

Contract.  Value in, value out; the duties of the driver stand in the package docstring.  Not
re-entrant and not thread-safe: one task owns it.
Invariants.  No call but ``ready`` after a node event does work in proportion to the number of
groups, and that one takes ``reexamine_groups_max`` of them at a time.  Groups are visited in the
order in which they were touched, so equal inputs give equal outputs.
Theory.  Every input touches at most one group; ``ready`` collects the touched ones, in one write
and one list of messages for all.  What a node learns about another node (a lease, a connection, a
new life) is noted in ``Support``, where groups see it at once; groups that share the node are
queued to draw the consequences that need a timer or a message.
Elsewhere.  One group: group.py, election.py, replication.py.  Leases themselves:
liveness/store_liveness.py.  The views ``status`` and ``repair``: status_view.py,
repair_commands.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from multiraft.core import stamp_batch
from multiraft.errors import GroupQuarantined, NotLeader, ProposalError, UnknownGroup
from multiraft.raft import (
    conf_change,
    election,
    head_recovery,
    joint_quorum,
    leader_transfer,
    peers,
    read_index,
    replication,
    snapshot,
)
from multiraft.raft.config import RaftConfig
from multiraft.raft.context import NodeContext, RandomSource
from multiraft.raft.group import Group, replica
from multiraft.raft.log_reader import GroupRestored, LogBounds, LogReader
from multiraft.raft.log_state import LogState
from multiraft.raft.messages import (
    Append,
    AppendReply,
    HeadRecoveryGrant,
    HeadRecoveryRequest,
    Message,
    Removed,
    SnapshotOffer,
    TimeoutNow,
    VoteReply,
    VoteRequest,
)
from multiraft.raft.peers import Peers
from multiraft.raft.raft_log import framed_bytes
from multiraft.raft.ready import Envelope, Event, GroupWrite, Ready, Writes
from multiraft.raft.recovery_throttle import Limits
from multiraft.raft.repair_commands import RepairCommands
from multiraft.raft.status import Role
from multiraft.raft.status_view import StatusView
from multiraft.types import BatchInfo, Configuration, Entry, EntryKind, Payload

Handler = Callable[[Group, int, Any], None]

_F, _P, _C, _L = Role.FOLLOWER, Role.PRE_CANDIDATE, Role.CANDIDATE, Role.LEADER

#: What is handled in which role.  A pair that is not here is a stale message, and ignored: a test
#: lists those too, so that a new message type or role cannot be forgotten.
HANDLERS: dict[tuple[type, Role], Handler] = {
    (VoteRequest, _F): election.on_vote_request,
    (VoteRequest, _P): election.on_vote_request,
    (VoteRequest, _C): election.on_vote_request,
    (VoteRequest, _L): conf_change.on_vote_request_as_leader,
    (VoteReply, _F): election.on_vote_reply,  # for its term only
    (VoteReply, _P): election.on_vote_reply,
    (VoteReply, _C): election.on_vote_reply,
    (VoteReply, _L): election.on_vote_reply,  # for its term only
    (Append, _F): replication.on_append,
    (Append, _P): replication.on_append,
    (Append, _C): replication.on_append,
    (Append, _L): replication.on_append_as_leader,
    (AppendReply, _L): replication.on_append_reply,
    (TimeoutNow, _F): election.on_timeout_now,
    (SnapshotOffer, _F): snapshot.on_offer,
    (SnapshotOffer, _P): snapshot.on_offer,
    (SnapshotOffer, _C): snapshot.on_offer,
    (SnapshotOffer, _L): snapshot.on_offer_as_leader,
    (Removed, _F): conf_change.on_removed,
    (Removed, _P): conf_change.on_removed,
    (Removed, _C): conf_change.on_removed,
    (HeadRecoveryRequest, _L): conf_change.on_doubt_as_leader,
    (HeadRecoveryGrant, _F): head_recovery.on_grant,
}

#: Kinds a driver may propose.  MEMBERSHIP comes with ``change_members``, NOOP is the leader's own.
PROPOSABLE = frozenset({EntryKind.PARTITION_OPEN, EntryKind.PARTITION_SEAL, EntryKind.LOG_START,
                        EntryKind.METADATA})


class Proposed(NamedTuple):
    """Where a proposal stands in the log.  It is accepted, not committed: it is, when ``committed``
    covers ``index`` while the entry there still has ``term``.  ``duplicate``: an idempotent
    producer sent it before, and this is the original (term 0 when that is compacted)."""

    index: int  # type: ignore[assignment]
    term: int
    base_offset: int
    duplicate: bool


class MultiRaft:
    """All groups of ``node``.  Time is ``now_ms``, any clock that does not go back.  ``boot_epoch``
    is that of ``Liveness``; 0 is for a core that speaks to nobody, or lives once."""

    def __init__(
        self,
        node: int,
        config: RaftConfig,
        store: LogReader,
        rng: RandomSource,
        now_ms: int,
        boot_epoch: int = 0,
    ):
        assert node > 0, f"node id {node}"
        self.node = node
        self.config = config.validate(entry_bytes_max=0)  # the driver knows how large they are
        self._context = NodeContext(node, config, store, rng, now_ms, boot_epoch)
        self._groups: dict[int, Group] = {}
        self._peers = Peers(self._context, self._groups)
        #: Read-only view of the groups, and commands of a repair.
        self.status = StatusView(self._context, self._groups)
        self.repair = RepairCommands(self._context, self._groups)
        self._sequence = 0
        self._tombstones: list[GroupWrite] = []  # of removed replicas, for the next write
        #: (sequence, groups) of writes in flight.
        self._writing: deque[tuple[int, list[Group]]] = deque()
        #: (sequence, messages) that wait for a write of an earlier Ready.
        self._held: deque[tuple[int, list[Envelope]]] = deque()

    # ---- groups -------------------------------------------------------------------------------

    def add_group(
        self, group: int, incarnation: int, restored: GroupRestored, tail: LogState
    ) -> None:
        """Take up a replica; ``tail`` covers its log up to the last index."""
        assert group not in self._groups, f"group {group} exists"
        added = Group(self._context, group, incarnation, restored, tail)
        self._groups[group] = added
        self._peers.share(added)
        added.touch()
        if restored.doubtful:
            head_recovery.begin(added)

    def remove_group(self, group: int) -> None:
        """Forget a replica and what of it is in flight; the next write has its tombstone.  A
        damaged one that nobody told that it is removed may be a member, and count with what it
        forgot: it gives up all of its log, so that its next life is in doubt if it was."""
        removed = self._group(group)
        gives_up = bool(removed.quarantined) and group not in self._context.removing
        self._tombstones.append(GroupWrite(group, removed.log_incarnation, int(gives_up), (), None,
                                           conf_change.tombstone_of(removed)))
        removed.leave()
        self._peers.unshare(removed)
        del self._groups[group]

    def _let_go(self) -> None:
        """Remove those that know that they are no members."""
        for id_ in tuple(self._context.removing):
            group = self._groups[id_]
            if group.hard_state_is_durable():
                self._peers.outbox += group.outbox  # a leader's last: who shall come after it
            self.remove_group(group.id)
            self._context.events.append(Event("removed", group.id, ()))

    def _group(self, group: int) -> Group:
        return replica(self._groups, group, self.node)

    # ---- inputs -------------------------------------------------------------------------------

    def it_is(self, now_ms: int) -> None:
        """What is said from now on is said at ``now_ms``; timers wait for ``tick``."""
        assert now_ms >= self._context.now_ms, f"time {self._context.now_ms} goes back to {now_ms}"
        self._context.now_ms = now_ms

    def tick(self, now_ms: int) -> None:
        """It is ``now_ms``: run the timers that are due.  O(due timers)."""
        self.it_is(now_ms)
        context = self._context
        if now_ms < context.timers.earliest_ms:
            return
        while (key := context.timers.pop_due(now_ms)) is not None:
            if key < 0:
                self._peers.on_timer(key)
            elif self._groups[key].role is Role.LEADER:
                replication.on_leader_timer(self._groups[key])
            else:
                election.on_election_timer(self._groups[key])

    def next_deadline_ms(self) -> int | None:
        """When ``tick`` is due; at once while node events are still being worked off, or entries
        that were committed are not handed out."""
        if self._peers.pending or self._context.unfinished:
            return self._context.now_ms
        return self._context.timers.next_ms()

    @property
    def earliest_ms(self) -> int:
        """``tick`` is not due before: a bound for whoever asks every round.  It may be early, until
        the ``tick`` of that time."""
        context = self._context
        if self._peers.pending or context.unfinished:
            return context.now_ms
        return context.timers.earliest_ms

    def step(self, sender: int, message: Message) -> None:
        """``sender`` said something.  Raises ``ImpossibleMessage``; then the log is unchanged."""
        kind = type(message)
        if kind in peers.HANDLERS:
            peers.HANDLERS[kind](self._peers, sender, message)
            return
        # The messages without a group are in ``peers.HANDLERS``.
        group = self._groups.get(message.group)  # type: ignore[union-attr]
        if group is None or (
                group.incarnation != message.incarnation):  # type: ignore[union-attr]
            self._peers.answer_unknown(sender, message)
            return
        handler = HANDLERS.get((kind, group.role))
        if handler is not None:
            handler(group, sender, message)

    def written(self, sequence: int) -> None:
        """The write ``sequence`` and all before it are durable."""
        context = self._context
        assert context.written_sequence < sequence <= self._sequence, (
            f"write {sequence} reported, {context.written_sequence} of {self._sequence} are known")
        context.written_sequence = sequence
        while self._writing and self._writing[0][0] <= sequence:
            done, groups = self._writing.popleft()
            for group in groups:
                if self._groups.get(group.id) is group:
                    self._group_written(group, done)
        while self._held and self._held[0][0] <= sequence:
            self._peers.outbox.extend(self._held.popleft()[1])

    def _group_written(self, group: Group, sequence: int) -> None:
        durable_before = group.log.durable_index
        if group.log.written(sequence):
            replication.on_written(group, durable_before)
        if group.hard_state_sequence == sequence and not group.hard_state_unstaged:
            election.on_hard_state_durable(group)

    def applied(self, group: int, index: int) -> None:
        """The driver's state machine has applied up to ``index``."""
        log = replica(self._groups, group, self.node).log
        assert log.applied_index <= index <= log.emitted_index, (
            f"applied {index}, asked for {log.applied_index}..{log.emitted_index}")
        log.applied_index = index

    def compacted(self, group: int, first_index: int) -> None:
        """Storage has forgotten the entries below ``first_index``."""
        self._group(group).log.compact(first_index)

    def needed_from(self, group: int) -> int:
        """First index that a learner of a group that is led here still needs, behind the last when
        none does; see ``snapshot.needed_from``.  O(learners)."""
        return snapshot.needed_from(self._group(group))

    def snapshot_point(self, group: int) -> tuple[LogBounds, int, Configuration]:
        """What a snapshot of the applied state here is installed with; see ``snapshot.point``."""
        return snapshot.point(self._group(group))

    def may_install(self, group: int, index: int, term: int) -> bool:
        """Whether ``install_snapshot`` of applied state up to (index, term) is possible now; if
        not, perhaps later, or it is not needed any more.  A round is due after either."""
        found = self._groups.get(group)
        return found is not None and snapshot.may_install(found, index, term)

    def install_snapshot(self, group: int, bounds: LogBounds, configuration_index: int,
                         configuration: Configuration, tail: LogState) -> None:
        """The replica's log is empty and begins behind ``bounds``; what came before is applied
        state, durable already.  Only after ``may_install`` said yes, without a call between."""
        self._group(group).install(bounds, configuration_index, configuration, tail)

    # ---- proposals ----------------------------------------------------------------------------

    def propose(self, group: int, kind: EntryKind, payload: Payload, partition: int = 0,
                base_offset: int = -1) -> Proposed:
        """Append a control entry.  Raises a ``ProposalError``: then nothing was appended."""
        assert kind in PROPOSABLE, f"{kind!r} is not for drivers to propose"
        leading = self._leading(group)
        log = leading.log
        entry = Entry(kind, group, leading.log_incarnation, leading.term, log.last_index + 1,
                      partition, base_offset, payload)
        size = framed_bytes(entry)
        replication.check_room(leading, size)
        why = leading.tail.verify(entry)
        if why:
            raise ProposalError(f"group {group} refuses {kind.name}: {why}")
        replication.propose(leading, entry, size)
        return Proposed(entry.index, entry.term, base_offset, False)

    def propose_batch(self, group: int, partition: int, payload: Payload,
                      info: BatchInfo) -> Proposed:
        """Append a checked batch: ``payload`` (writable) gets base offset and leader epoch stamped
        in place.  Raises a ``ProposalError``: then nothing was appended."""
        leading = self._leading(group)
        admitted = leading.tail.admit(partition, info)
        log = leading.log
        if admitted.duplicate:
            index = admitted.index
            term = log.term_at(index) if index >= log.first_index else 0
            return Proposed(index, term, admitted.base_offset, True)
        base_offset, term = admitted.base_offset, leading.term
        entry = Entry(EntryKind.DATA, group, leading.log_incarnation, term, log.last_index + 1,
                      partition, base_offset, payload, info)
        size = framed_bytes(entry)
        replication.check_room(leading, size)
        stamp_batch(payload, base_offset, admitted.leader_epoch_base + term)
        replication.propose(leading, entry, size)
        return Proposed(entry.index, term, base_offset, False)

    def _leading(self, group: int) -> Group:
        found = self._groups.get(group)
        if found is None:
            leader, _ = self._context.hints.leader(group)
            if leader not in (0, self.node):
                raise NotLeader(group, leader)  # it was moved away from here
            raise UnknownGroup(f"group {group} is not on node {self.node}")
        if found.quarantined:
            raise GroupQuarantined(f"group {group} on node {self.node}: {found.quarantined}")
        if found.role is not Role.LEADER:
            raise NotLeader(group, self.status.leader_hint(group)[0])
        return found

    def change_members(self, group: int, voters: tuple[int, ...],
                       learners: tuple[int, ...]) -> Proposed:
        """Make these the members of a group led here, ``voters`` in the order of preference
        (conf_change.py).  Raises a ``ProposalError``; the outcome is in ``status.of``."""
        leading = self._leading(group)
        entry = conf_change.change_members(leading, tuple(voters), tuple(sorted(learners)))
        return Proposed(entry.index, entry.term, -1, False)

    def read_index(self, group: int, token: object) -> None:
        """Ask for a linearizable read of a group led here (reads.py): a ``ReadReady`` with this
        token comes, or leadership ends.  Raises a ``ProposalError``."""
        read_index.read_index(self._leading(group), token)

    def transfer(self, group: int, to: int) -> None:
        """Hand the group to ``to``, 0 = to the voter that is furthest, one with room for records
        before one without.  Raises ``ProposalError`` when this cannot even begin; whether it
        happened shows in ``status.leader_hint``."""
        leading = self._leading(group)
        if to == self.node:
            return
        support = self._context.support
        to = to or leader_transfer.best_transferee(leading)
        if not to:
            raise ProposalError(f"group {group} has no other voter that is reached")
        if to not in leading.configuration.voters:
            raise ProposalError(f"node {to} is not a voter of group {group}")
        if to not in support.support_from or to not in support.connections:
            raise ProposalError(f"node {to} cannot take group {group}: it is not reached")
        if leading.transferee:
            raise ProposalError(f"group {group} is being handed to node {leading.transferee}")
        if not leading.progress[to].is_whole:
            raise ProposalError(f"node {to} cannot take group {group}: its replica is damaged")
        leader_transfer.transfer(leading, to)

    def records_fit(self, group: int) -> bool:
        """Whether a majority of the voters of a group led here may have room for records: all but
        those that said that they have none.  This node counts as one that has; it knows better
        itself."""
        full = self._context.support.full
        return not full or joint_quorum.supported(self._leading(group).configuration,
                                                lambda node: node not in full)

    def make_way(self, group: int) -> bool:
        """The disk here has no room for records: hand the group to a voter whose disk has, if with
        it a majority has.  Whether it is under way; if not, this node goes on leading.  Raises
        ``ProposalError`` when it does not lead.  O(members)."""
        leading = self._leading(group)
        if not leading.transferee and leader_transfer.can_shed_leadership(leading):
            leader_transfer.transfer(leading, leader_transfer.best_transferee(leading))
        return bool(leading.transferee)

    def resign(self, group: int, why: str) -> None:
        """Give up leadership (append or apply is stuck) and keep out of the next election."""
        leader_transfer.resign(self._group(group), why)

    def announce_commit(self, group: int) -> None:
        """Tell the members of a group led here its commit index with the next ``ready``, not only
        with the next append or after ``commit_notice_ms``.  Raises ``NotLeader``."""
        leading = self._leading(group)
        leading.commit_broadcast_due = True
        leading.touch()

    def pace_catch_up(self, limits: Limits) -> None:
        """Set the rates of streams to replicas that are being moved.  O(streams)."""
        pace = self._context.pace
        concerned = pace.groups
        pace.set(limits, self._context.now_ms)
        for group in dict.fromkeys((*concerned, *pace.groups)):
            if group in self._groups:
                self._groups[group].touch()

    # ---- node events --------------------------------------------------------------------------

    def lease_granted(self, node: int, boot_epoch: int) -> None:
        """This node supports ``node`` (it answered a question of that life of it)."""
        self._peers.lease_granted(node, boot_epoch)

    def lease_withdrawn(self, node: int) -> None:
        """This node's support for ``node`` ended."""
        self._peers.lease_withdrawn(node)

    def lease_held(self, node: int, boot_epoch: int) -> None:
        """``node`` supports this node (that life of it answered)."""
        self._peers.lease_held(node, boot_epoch)

    def lease_lost(self, node: int) -> None:
        """The support of ``node`` ended."""
        self._peers.lease_lost(node)

    def peer_full(self, node: int, full: bool) -> None:
        """``node``, which supports this node, says whether its disk has no room for records."""
        self._peers.peer_full(node, full)

    def is_known_full(self, node: int) -> bool:
        """Whether ``node`` said last that its disk has no room for records."""
        return node in self._context.support.full

    def digest_mismatch(self, node: int) -> None:
        """Two digests of ``node`` in a row differed from ``followed_digest(node)``."""
        self._peers.digest_mismatch(node)

    def peer_led_version(self, node: int, version: int) -> None:
        """``node`` announced that version of the list of groups it leads."""
        self._peers.peer_led_version(node, version)

    def connected(self, node: int) -> None:
        """A new append connection to ``node`` is up."""
        self._peers.connected(node)

    def disconnected(self, node: int) -> None:
        """The append connection to ``node`` is gone, with everything in flight on it."""
        self._peers.disconnected(node)

    # ---- the effects --------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether ``ready`` has anything to hand out; what timers will bring is not counted."""
        context = self._context
        return bool(context.dirty or context.events or self._peers.outbox
                    or self._peers.pending or context.removing or context.reads or self._tombstones)

    def ready(self, with_writes: bool = True) -> Ready:
        """Everything that must now happen.  ``with_writes=False`` while a write is in flight leaves
        what needs writing for later, so that it piles up into one (group commit); a driver that
        queues several writes may always ask for them.  O(touched groups)."""
        ready = Ready([], None, [], [], [], [])  # given, not made by factories: once a round
        context = self._context
        context.unfinished = False
        if self._peers.pending:
            self._peers.reexamine_some()
        if context.removing:
            self._let_go()
        if self._peers.outbox:
            ready.messages = self._peers.outbox
            self._peers.outbox = []
        if context.dirty or (self._tombstones and with_writes):
            dirty, context.dirty = context.dirty, {}
            sequence = self._sequence + 1
            writing: list[Group] = []
            group_writes: list[GroupWrite] = []
            if with_writes and self._tombstones:
                group_writes, self._tombstones = self._tombstones, []
            for id_ in dirty:
                group = self._groups[id_]
                fresh: tuple[Entry, ...] = ()
                fresh_bytes = 0
                if group.has_write():
                    if with_writes:
                        fresh_bytes = group.log.unstaged_bytes
                        group_write = group.take_write(sequence)
                        fresh = group_write.entries
                        group_writes.append(group_write)
                        writing.append(group)
                    else:
                        group.touch()
                if group.role is Role.LEADER:
                    replication.send_appends(group, fresh, fresh_bytes)
                elif group.ack_leader:
                    group.acknowledge()
                if group.outbox:
                    self._release(group, ready, sequence)
                if group.log.commit > group.log.emitted_index:
                    group.hand_out_committed(ready)
            if group_writes:
                self._sequence = sequence
                self._writing.append((sequence, writing))
                ready.writes = Writes(sequence, tuple(group_writes))
        if context.reads:
            ready.reads, context.reads = context.reads, []
        if context.events:
            ready.events, context.events = context.events, []
        return ready

    def _release(self, group: Group, ready: Ready, sequence: int) -> None:
        """Let a group's messages go as soon as the hard state they speak of is durable."""
        if group.hard_state_unstaged:
            return  # they wait in the group for the write that takes it
        messages, group.outbox = group.outbox, []
        if group.hard_state_sequence <= self._context.written_sequence:
            ready.messages.extend(messages)
        elif group.hard_state_sequence == sequence:
            ready.messages_after_write.extend(messages)
        else:
            self._hold(group.hard_state_sequence, messages)

    def _hold(self, sequence: int, messages: list[Envelope]) -> None:
        """Keep messages for a write that an earlier Ready gave out."""
        self._held.append((sequence, messages))
        if len(self._held) > 1 and self._held[-2][0] > sequence:
            self._held = deque(sorted(self._held, key=lambda held: held[0]))

    def _check(self) -> None:
        """Every invariant of every group; O(everything).  For tests and the simulator."""
        self._context.timers._check()
        for queued in (*self._context.dirty, *self._context.removing):
            assert queued in self._groups, f"group {queued} is queued and not here"
        for group in self._groups.values():
            group._check()
            read_index.check(group)
        self._peers._check()
