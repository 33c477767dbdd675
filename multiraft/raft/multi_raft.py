"""One node's Raft groups behind one interface: inputs in, one ``Ready`` per round out.

Contract.  Values in, values out; the package docstring lists the driver's duties.  Neither
re-entrant nor thread-safe: one task owns the object.

Invariants.  No call does work in proportion to the number of groups, except ``ready`` after a node
event, which takes ``liveness_checks_per_round_max`` of them at a time.  Groups are visited in the
order in which they were touched, so equal inputs give equal outputs.

Theory.  Every input touches at most one group; ``ready`` collects all touched groups into one write
and one list of messages.  Knowledge about another node (support, a connection, a new boot epoch)
goes to ``Support``, which all groups read.  Groups that share the node are queued only for the
consequences that need a timer or a message.

Elsewhere.  One group: group.py, election.py, replication.py.  Failure detection:
liveness/store_liveness.py.  The views ``status`` and ``repair``: status_view.py,
repair_commands.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from multiraft.core import stamp_append_time, stamp_batch
from multiraft.errors import GroupQuarantined, NotLeader, ProposalError, UnknownGroup
from multiraft.raft import (
    conf_change,
    election,
    head_recovery,
    joint_quorum,
    leader_transfer,
    peers,
    quiescence,
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
from multiraft.raft.recovery_throttle import ThrottleRates
from multiraft.raft.repair_commands import RepairCommands
from multiraft.raft.status import Role
from multiraft.raft.status_view import StatusView
from multiraft.types import BatchInfo, Configuration, Entry, EntryKind, Payload

Handler = Callable[[Group, int, Any], None]

_F, _P, _C, _L = Role.FOLLOWER, Role.PRE_CANDIDATE, Role.CANDIDATE, Role.LEADER

#: Handler of each message type in each role.  A pair that is not listed is a stale message and is
#: ignored: a test lists those too, so that a new message type or role cannot be forgotten.
HANDLERS: dict[tuple[type, Role], Handler] = {
    (VoteRequest, _F): election.on_vote_request,
    (VoteRequest, _P): election.on_vote_request,
    (VoteRequest, _C): election.on_vote_request,
    (VoteRequest, _L): conf_change.on_vote_request_as_leader,
    (VoteReply, _F): election.on_vote_reply,  # only a higher term matters
    (VoteReply, _P): election.on_vote_reply,
    (VoteReply, _C): election.on_vote_reply,
    (VoteReply, _L): election.on_vote_reply,  # only a higher term matters
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
    (HeadRecoveryRequest, _L): conf_change.on_head_recovery_request_as_leader,
    (HeadRecoveryGrant, _F): head_recovery.on_grant,
}

#: Pause of a stream without a rate, in milliseconds: then it is asked for again.
PAUSED_MS = 1_000

#: Kinds that a driver may propose.  MEMBERSHIP comes from ``change_members``, NOOP from the leader.
PROPOSABLE = frozenset({EntryKind.PARTITION_OPEN, EntryKind.PARTITION_SEAL, EntryKind.LOG_START,
                        EntryKind.METADATA, EntryKind.CLOCK, EntryKind.PARTITION_DELETE,
                        EntryKind.COMPACT, EntryKind.PRODUCERS_EXPIRE})


class Proposed(NamedTuple):
    """Position of an accepted proposal in the log.

    The proposal is committed when ``Ready.committed`` covers ``index`` while the entry there still
    has ``term``.  ``duplicate``: an idempotent producer sent the batch before, and this is the
    original (term 0 if that is compacted)."""

    index: int  # type: ignore[assignment]
    term: int
    base_offset: int
    duplicate: bool


class MultiRaft:
    """All Raft groups of ``node``.

    ``now_ms`` is any clock that does not go back.  ``boot_epoch`` is that of ``Liveness``; 0 suits
    a core without peers, or with a single start."""

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
        self.config = config.validate(entry_bytes_max=0)  # the driver limits the size of entries
        self._context = NodeContext(node, config, store, rng, now_ms, boot_epoch)
        self._groups: dict[int, Group] = {}
        self._peers = Peers(self._context, self._groups)
        #: Read-only view of the groups, and commands for repairs.
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
        """Add a replica that recovery restored or the driver created, and begin head recovery if
        ``restored`` needs it.  ``tail`` covers its log up to the last index."""
        assert group not in self._groups, f"group {group} exists"
        added = Group(self._context, group, incarnation, restored, tail)
        self._groups[group] = added
        self._peers.add_group(added)
        added.touch()
        if restored.needs_head_recovery:
            head_recovery.begin(added)

    def remove_group(self, group: int) -> None:
        """Remove a replica with all that it has in flight; the next write contains its tombstone.

        A damaged replica that was not notified of its removal may still be a member, and have
        forgotten acknowledged entries.  Its record truncates the whole log, so that the next
        replica of the group here begins with head recovery if this one needed it."""
        removed = self._group(group)
        gives_up = bool(removed.health.why) and group not in self._context.removing
        self._tombstones.append(GroupWrite(group, removed.log_incarnation, int(gives_up), (), None,
                                           conf_change.tombstone_of(removed)))
        removed.leave()
        self._peers.remove_group(removed)
        del self._groups[group]

    def _remove_replicas(self) -> None:
        """Remove the replicas of ``context.removing``, whose leaders no longer count them as
        members, and emit ``replica_removed`` for each.  Messages that such a replica has queued
        still leave if its hard state is durable."""
        for id_ in tuple(self._context.removing):
            group = self._groups[id_]
            if group.hard_state_is_durable():
                # A leader's last messages, TimeoutNow to its successor among them.
                self._peers.outbox += group.outbox
            self.remove_group(group.id)
            self._context.events.append(Event("replica_removed", group.id, ()))

    def _group(self, group: int) -> Group:
        return replica(self._groups, group, self.node)

    # ---- inputs -------------------------------------------------------------------------------

    def set_now(self, now_ms: int) -> None:
        """Set the time for everything that is sent from now on; timers wait for ``tick``."""
        assert now_ms >= self._context.now_ms, f"time {self._context.now_ms} goes back to {now_ms}"
        self._context.now_ms = now_ms

    def tick(self, now_ms: int) -> None:
        """Set the time and run the timers that are due.  O(due timers)."""
        self.set_now(now_ms)
        context = self._context
        if now_ms < context.timers.earliest_ms:
            return
        while (key := context.timers.pop_due(now_ms)) is not None:
            # Negative keys belong to timers of other nodes, see ``Peers``.
            if key < 0:
                self._peers.on_timer(key)
            elif self._groups[key].role is Role.LEADER:
                quiescence.on_leader_timer(self._groups[key])
            else:
                election.on_election_timer(self._groups[key])

    def next_deadline_ms(self) -> int | None:
        """Return the time of the next ``tick``; None = no timer is armed.

        It is due at once while groups wait for re-examination, or committed entries were left out
        of the last ``Ready``."""
        if self._peers.pending or self._context.unfinished:
            return self._context.now_ms
        return self._context.timers.next_ms()

    @property
    def earliest_ms(self) -> int:
        """Lower bound of ``next_deadline_ms`` in O(1), for a driver that asks in every round.  It
        may be too early until the ``tick`` of that time."""
        context = self._context
        if self._peers.pending or context.unfinished:
            return context.now_ms
        return context.timers.earliest_ms

    def step(self, sender: int, message: Message) -> None:
        """Process a message of ``sender``.  A request for a group or incarnation that is not here
        is answered so; stale messages are ignored, as are those to a replica that is installing a
        snapshot.  Raises ``ImpossibleMessage``; then the log is unchanged."""
        kind = type(message)
        if kind in peers.HANDLERS:
            peers.HANDLERS[kind](self._peers, sender, message)
            return
        # The messages without a group are in ``peers.HANDLERS``.
        group = self._groups.get(message.group)  # type: ignore[union-attr]
        # Another incarnation is another group under the same id: its terms and indexes mean nothing
        # here.
        if group is None or group.incarnation != message.incarnation:  # type: ignore[union-attr]
            self._peers.answer_unknown(sender, message)
            return
        if group.is_installing:
            return  # its log must not change; the sender repeats what matters
        handler = HANDLERS.get((kind, group.role))
        if handler is not None:
            handler(group, sender, message)

    def written(self, sequence: int) -> None:
        """Record that the write ``sequence`` and all before it are durable.  Leaders and candidates
        count what it contains, followers acknowledge it, and messages that waited for it leave with
        the next ``ready``."""
        context = self._context
        assert context.written_sequence < sequence <= self._sequence, (
            f"write {sequence} reported, {context.written_sequence} of {self._sequence} are known")
        context.written_sequence = sequence
        while self._writing and self._writing[0][0] <= sequence:
            done, groups = self._writing.popleft()
            for group in groups:
                # A group that was removed and added again meanwhile has another object under the
                # same id.
                if self._groups.get(group.id) is group:
                    self._group_written(group, done)
        while self._held and self._held[0][0] <= sequence:
            self._peers.outbox.extend(self._held.popleft()[1])

    def _group_written(self, group: Group, sequence: int) -> None:
        durable_before = group.log.durable_index
        if group.log.written(sequence):
            replication.on_written(group, durable_before)
        # A later write contains a newer hard state: only that one's completion makes it durable.
        if group.hard_state_sequence == sequence and not group.hard_state_unstaged:
            election.on_hard_state_durable(group)

    def applied(self, group: int, index: int) -> None:
        """Record that the driver's state machine has applied entries up to ``index``."""
        log = replica(self._groups, group, self.node).log
        assert log.applied_index <= index <= log.emitted_index, (
            f"applied {index}, asked for {log.applied_index}..{log.emitted_index}")
        log.applied_index = index

    def compacted(self, group: int, first_index: int) -> None:
        """Record that storage has removed the entries below ``first_index``."""
        self._group(group).log.compact(first_index)

    def needed_from(self, group: int) -> int:
        """Return the first index that a learner of a led group still needs from the log; last + 1
        if none.  Learners that are away or wait for a snapshot do not count.  O(learners)."""
        return snapshot.needed_from(self._group(group))

    def held_from(self, group: int) -> int:
        """Return the first index that a member of a led group whose node is up, voter or learner,
        still needs from the log; last + 1 if none.  Members that wait for a snapshot do not count.
        O(members)."""
        return snapshot.held_from(self._group(group))

    def snapshot_point(self, group: int) -> tuple[LogBounds, int, Configuration]:
        """Return the bounds and configuration with which a snapshot of the state applied here is
        installed; see ``snapshot.point``."""
        return snapshot.point(self._group(group))

    def may_install(self, group: int, index: int, term: int) -> bool:
        """True if ``install_snapshot`` of applied state up to (index, term) is possible now.

        If the log has that entry, the commit index is raised to it instead.  False also means that
        the snapshot is outdated, or possible later.  Call ``ready`` in either case."""
        found = self._groups.get(group)
        return found is not None and snapshot.may_install(found, index, term)

    def begin_install(self, group: int, index: int, term: int) -> bool:
        """Let a replica begin to install a snapshot of applied state up to (index, term), if that
        is possible now as by ``may_install``: it takes no message until ``install_snapshot``, or
        until it is removed.  Call ``ready`` if False."""
        found = self._groups.get(group)
        return found is not None and snapshot.begin_install(found, index, term)

    def common_index(self, group: int, runs: Sequence[tuple[int, int]], last: int) -> int:
        """Return the highest index, at least the commit index, up to which the replica's log agrees
        with committed entries up to ``last``, whose terms are ``runs`` of (first index, term).
        O(runs)."""
        return self._group(group).log.common_index(runs, last)

    def install_snapshot(self, group: int, bounds: LogBounds, configuration_index: int,
                         configuration: Configuration, tail: LogState) -> None:
        """Replace the replica's log by an empty one behind ``bounds``; what came before is applied
        state that is already durable.  The replica is installing, or the caller has just checked
        ``may_install``, without another call between."""
        self._group(group).install(bounds, configuration_index, configuration, tail)

    # ---- proposals ----------------------------------------------------------------------------

    def propose(self, group: int, kind: EntryKind, payload: Payload, partition: int = 0,
                base_offset: int = -1) -> Proposed:
        """Append a control entry of ``kind`` to the log of a led group and return its position at
        once, before it is committed.  Raises ``ProposalError``; then nothing was appended."""
        assert kind in PROPOSABLE, f"{kind!r} is not for drivers to propose"
        leading = self._leading(group)
        log = leading.log
        entry = Entry(kind, group, leading.log_incarnation, leading.term, log.last_index + 1,
                      partition, base_offset, payload)
        size = framed_bytes(entry)
        replication.check_limits(leading, size)
        why = leading.tail.check_entry(entry)
        if why:
            raise ProposalError(f"group {group} refuses {kind.name}: {why}")
        replication.propose(leading, entry, size)
        return Proposed(entry.index, entry.term, base_offset, False)

    def propose_batch(self, group: int, partition: int, payload: Payload, info: BatchInfo,
                      append_time_ms: int | None = None) -> Proposed:
        """Append a validated batch, with base offset and leader epoch stamped into ``payload`` in
        place (it must be writable).

        ``append_time_ms``: wall clock of the leader, for a partition with LogAppendTime; None = the
        records keep the timestamps of their producer.
        A batch that its producer sent before is not appended: the result names the original.
        Raises ``ProposalError``; then nothing was appended."""
        leading = self._leading(group)
        validated = leading.tail.validate_append(partition, info)
        log = leading.log
        # The original is in the log already: the caller waits for its commit like for a new
        # entry's.
        if validated.duplicate:
            index = validated.index
            term = log.term_at(index) if index >= log.first_index else 0
            return Proposed(index, term, validated.base_offset, True)
        base_offset, term = validated.base_offset, leading.term
        if append_time_ms is not None:
            info = info._replace(max_timestamp_ms=append_time_ms)
        entry = Entry(EntryKind.DATA, group, leading.log_incarnation, term, log.last_index + 1,
                      partition, base_offset, payload, info)
        size = framed_bytes(entry)
        replication.check_limits(leading, size)
        # Stamped after all checks: a refused batch must not carry an offset.
        if append_time_ms is not None:
            stamp_append_time(payload, append_time_ms)
        stamp_batch(payload, base_offset, validated.leader_epoch_base + term)
        replication.propose(leading, entry, size)
        return Proposed(entry.index, term, base_offset, False)

    def _leading(self, group: int) -> Group:
        found = self._groups.get(group)
        if found is None:
            leader, _ = self._context.leader_table.leader(group)
            if leader not in (0, self.node):
                raise NotLeader(group, leader)  # the replica was moved to another node
            raise UnknownGroup(f"group {group} is not on node {self.node}")
        if found.health.why:
            raise GroupQuarantined(f"group {group} on node {self.node}: {found.health.why}")
        if found.role is not Role.LEADER:
            raise NotLeader(group, self.status.leader_hint(group)[0])
        return found

    def change_members(self, group: int, voters: tuple[int, ...],
                       learners: tuple[int, ...]) -> Proposed:
        """Start a change to these members of a led group, ``voters`` in order of preference
        (conf_change.py).  Raises ``ProposalError``; ``status.of`` shows the outcome."""
        leading = self._leading(group)
        entry = conf_change.change_members(leading, tuple(voters), tuple(sorted(learners)))
        return Proposed(entry.index, entry.term, -1, False)

    def read_index(self, group: int, token: object) -> None:
        """Request a linearizable read of a led group (read_index.py).

        A ``ReadReady`` with ``token`` follows, unless leadership ends.  Raises
        ``ProposalError``."""
        read_index.read_index(self._leading(group), token)

    def transfer(self, group: int, to: int) -> None:
        """Start a leadership transfer to ``to``; 0 = to the most advanced voter, those with disk
        space and all records first.  Do nothing if ``to`` is this node.

        Raises ``ProposalError`` if the transfer cannot start; ``status.leader_hint`` shows the
        outcome."""
        leading = self._leading(group)
        if to == self.node:
            return
        support, explicit = self._context.support, bool(to)
        to = to or leader_transfer.best_transferee(leading)
        if not to:
            raise ProposalError(f"group {group} has no other voter that is reached")
        if to not in leading.configuration.voters:
            raise ProposalError(f"node {to} is not a voter of group {group}")
        if to not in support.support_from or to not in support.connections:
            raise ProposalError(f"node {to} cannot take group {group}: it is not reached")
        if leading.transferee:
            raise ProposalError(f"group {group} is being handed to node {leading.transferee}")
        if not leading.progress[to].is_intact:
            raise ProposalError(f"node {to} cannot take group {group}: its replica is damaged")
        if explicit and (left := leading.progress[to].records_left):
            raise ProposalError(f"node {to} cannot take group {group}: it is still copying records,"
                                f" {left} indexes of the log are left")
        leader_transfer.transfer(leading, to)

    def records_fit(self, group: int) -> bool:
        """True if a majority of a led group's voters may have disk space for records.

        Only nodes that reported a full disk count as full.  This node counts as having space,
        because it checks its own disk itself."""
        full = self._context.support.full
        return not full or joint_quorum.supported(self._leading(group).configuration,
                                                lambda node: node not in full)

    def shed_leadership(self, group: int) -> bool:
        """Shed leadership of a group because the disk here is full, if a majority of the voters has
        space.

        True if a transfer is under way; otherwise this node keeps leading.  Raises
        ``ProposalError`` if it does not lead.  O(members)."""
        leading = self._leading(group)
        if not leading.transferee and leader_transfer.can_shed_leadership(leading):
            leader_transfer.transfer(leading, leader_transfer.best_transferee(leading))
        return bool(leading.transferee)

    def set_records_left(self, group: int, left: int) -> None:
        """Record at how many indexes the replica may lack records.  The leader learns it: it makes
        no voter of such a learner, and transfers no leadership to it."""
        self._group(group).set_records_left(left)

    def hand_to_complete(self, group: int) -> bool:
        """Transfer leadership of a group, of which this node lacks records, to a voter that has
        them all.  Return False if there is none, or a transfer is under way.  Raises
        ``ProposalError`` if this node does not lead the group.  O(members)."""
        leading = self._leading(group)
        to = 0 if leading.transferee else leader_transfer.complete_transferee(leading)
        if to:
            leader_transfer.transfer(leading, to)
        return bool(to)

    def resign(self, group: int, why: str) -> None:
        """Step down as leader, because append or apply is stuck, and ask another voter to campaign.
        In any role, this replica does not campaign for ``lease_ms``."""
        leader_transfer.resign(self._group(group), why)

    def announce_commit(self, group: int) -> None:
        """Send the commit index of a led group to its members with the next ``ready``, instead of
        with the next append or after ``commit_notice_ms``.  Raises ``NotLeader``."""
        leading = self._leading(group)
        leading.commit_broadcast_due = True
        leading.touch()

    def set_throttle_rates(self, rates: ThrottleRates) -> None:
        """Set the rates of streams to replicas that are being moved.  O(streams)."""
        throttle = self._context.throttle
        concerned = throttle.groups
        throttle.set(rates, self._context.now_ms)
        for group in dict.fromkeys((*concerned, *throttle.groups)):
            if group in self._groups:
                self._groups[group].touch()

    def copy_pause_ms(self, group: int, node: int) -> int:
        """Return how long copies of a group's records to ``node`` have to wait, in milliseconds,
        because that stream is limited; ``PAUSED_MS`` while it is stopped.  0 = they may be sent
        now."""
        throttle, now_ms = self._context.throttle, self._context.now_ms
        if (not throttle.is_throttled(group, node)
                or throttle.available(group, node, now_ms) >= 1):
            return 0
        due_ms = throttle.due_ms(group, node)
        return PAUSED_MS if due_ms is None else max(1, due_ms - now_ms)

    def copies_sent(self, group: int, node: int, size: int) -> None:
        """Subtract ``size`` bytes of copied records from the rate of their stream, if it is
        limited."""
        if self._context.throttle.is_throttled(group, node):
            self._context.throttle.consume(group, node, size)

    # ---- node events --------------------------------------------------------------------------

    def lease_granted(self, node: int, boot_epoch: int) -> None:
        """Record that this node supports ``node`` in that boot epoch.  If that is new, the next
        calls of ``ready`` re-examine the groups shared with it."""
        self._peers.lease_granted(node, boot_epoch)

    def lease_withdrawn(self, node: int) -> None:
        """Record that this node's support for ``node`` ended, and queue the groups shared with it
        for re-examination."""
        self._peers.lease_withdrawn(node)

    def lease_held(self, node: int, boot_epoch: int) -> None:
        """Record that ``node``, in its boot epoch ``boot_epoch``, supports this node.  If that is
        new, the next calls of ``ready`` re-examine the groups shared with it."""
        self._peers.lease_held(node, boot_epoch)

    def lease_lost(self, node: int) -> None:
        """Record that the support from ``node`` ended, and queue the groups shared with it for
        re-examination."""
        self._peers.lease_lost(node)

    def peer_full(self, node: int, full: bool) -> None:
        """Record the report of ``node`` whether its disk is full; ignore it if ``node`` does not
        support this node."""
        self._peers.peer_full(node, full)

    def is_known_full(self, node: int) -> bool:
        """True if ``node`` last reported a full disk."""
        return node in self._context.support.full

    def digest_mismatch(self, node: int) -> None:
        """Query ``node`` for the groups that it leads, because two of its digests in a row differed
        from ``followed_digest(node)``.  Without a connection to it, revoke trust in it."""
        self._peers.digest_mismatch(node)

    def peer_leading_version(self, node: int, version: int) -> None:
        """Record the version that ``node`` announced of the list of groups it leads, and request
        the changes that this node's copy lacks."""
        self._peers.peer_leading_version(node, version)

    def connected(self, node: int) -> None:
        """Record a new append connection to ``node``, queue the groups shared with it for
        re-examination, and request changes of the list of groups that it leads."""
        self._peers.connected(node)

    def disconnected(self, node: int) -> None:
        """Record the end of the append connection to ``node``, with everything in flight on it."""
        self._peers.disconnected(node)

    # ---- effects ------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """True if ``ready`` has effects to return; timers that are not due do not count."""
        context = self._context
        return bool(context.dirty or context.events or self._peers.outbox
                    or self._peers.pending or context.removing or context.reads or self._tombstones)

    def ready(self, with_writes: bool = True) -> Ready:
        """Return all effects that are due.  O(touched groups).

        With ``with_writes=False``, while a write is in flight, changes that need a write are left
        for a later call and share its write (group commit).  A driver that queues several writes
        may always ask for them."""
        # Given here instead of by factories: runs once per round.
        ready = Ready([], None, [], [], [])
        context = self._context
        context.unfinished = False
        if self._peers.pending:
            self._peers.reexamine_some()
        if context.removing:
            self._remove_replicas()
        # Messages between nodes depend on no hard state, so they wait for no write.
        if self._peers.outbox:
            ready.messages = self._peers.outbox
            self._peers.outbox = []
        if context.dirty or (self._tombstones and with_writes):
            # Taken before the loop: a group that is touched during it belongs to the next Ready.
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
                        group.touch()  # group commit: it waits for the next call with writes
                # Before the write is durable: members replicate while this disk writes (thesis
                # 10.2.1).  The leader counts itself only by ``durable_index``.
                if group.role is Role.LEADER:
                    replication.send_appends(group, fresh, fresh_bytes)
                elif group.ack_leader:
                    group.acknowledge()
                if group.outbox:
                    self._release(group, ready)
                if group.log.commit > group.log.emitted_index:
                    group.emit_committed(ready)
            if group_writes:
                self._sequence = sequence
                self._writing.append((sequence, writing))
                ready.writes = Writes(sequence, tuple(group_writes))
        if context.reads:
            ready.reads, context.reads = context.reads, []
        if context.events:
            ready.events, context.events = context.events, []
        return ready

    def _release(self, group: Group, ready: Ready) -> None:
        """Move a group's queued messages to ``ready``, none ahead of the hard state under which it
        was sent.

        If that is not durable, ``written`` releases them: they say in which term this replica is,
        and for whom it votes (paper 5.1 and 5.2).  If no write has the hard state yet, they stay in
        the group."""
        if group.hard_state_unstaged:
            return  # they wait in the group for the write that takes it
        messages, group.outbox = group.outbox, []
        if group.hard_state_sequence <= self._context.written_sequence:
            ready.messages.extend(messages)
        else:
            self._hold(group.hard_state_sequence, messages)

    def _hold(self, sequence: int, messages: list[Envelope]) -> None:
        """Keep messages until the write ``sequence`` is durable."""
        self._held.append((sequence, messages))
        # Groups are released in the order of touching, not of their writes; ``written`` needs the
        # latter.
        if len(self._held) > 1 and self._held[-2][0] > sequence:
            self._held = deque(sorted(self._held, key=lambda held: held[0]))

    def _check(self) -> None:
        """Assert every invariant of every group.  O(all state).  For tests and the simulator."""
        self._context.timers._check()
        for queued in (*self._context.dirty, *self._context.removing):
            assert queued in self._groups, f"group {queued} is queued and not here"
        for group in self._groups.values():
            group._check()
            read_index.check(group)
        self._peers._check()
