"""Driver of one simulated node; it executes ``Ready`` in the order of the real one.

Contract.  One round takes the inbox, steps and proposes, asks for a ``Ready``, and executes it in
the order of its fields: stage, messages, disk write (which takes virtual time), written, apply,
answers to clients.  Each of these is an effect; ``arm_crash`` places a crash between any two of
them.  Every effect is reported to the state checker when it takes place.

Invariants.  One disk operation is in flight at a time.  Every event carries the boot in which it
was scheduled, and does not run in a later one.

Theory.  A paused node keeps its memory and its page cache and receives everything later, like a
stopped process.  A killed node keeps only its page cache.  A node that lost power keeps only what
was synced.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from chaos.simulator.clients.workload import AppendRequest
from chaos.simulator.disk.disk_worker import DiskWorker, Flight
from chaos.simulator.disk.filesystem import PowerLoss, SimulatedFilesystem
from chaos.simulator.env.clock import SkewedClock
from chaos.simulator.env.limits import raft_config, storage_config
from chaos.simulator.env.violations import Violation
from chaos.simulator.node.liveness import LivenessExchange
from chaos.simulator.node.membership import INCARNATION, create_wanted
from chaos.simulator.node.metadata_group import UnreadableCommand
from chaos.simulator.node.pending_reads import PendingReads
from chaos.simulator.node.repair import DIRECTORY, DamageRepair
from chaos.simulator.node.sessions import Sessions
from chaos.simulator.node.transport import with_entries
from chaos.simulator.oracle.command_oracle import CommandState
from chaos.simulator.oracle.metadata_oracle import Extent, MetadataState
from chaos.simulator.oracle.observer import StateChecker
from chaos.simulator.oracle.readback import ReadBack
from multiraft import core
from multiraft.errors import ProposalError
from multiraft.liveness.store_liveness import LeaseEvent, deliver
from multiraft.raft.messages import Append
from multiraft.raft.multi_raft import MultiRaft
from multiraft.raft.ready import Event, Ready
from multiraft.raft.status import GroupStatus, Role
from multiraft.storage.identity import Identity
from multiraft.storage.repair.coordinator import RepairCoordinator
from multiraft.storage.store import Store
from multiraft.types import METADATA_GROUP, Configuration

if TYPE_CHECKING:
    from chaos.simulator.ports import ClusterPort

CLUSTER_ID = b"simulated-------"
#: Time until a process notices that a peer's process has ended.
HANG_UP_US = 100
#: Time from a peer's start to an append connection with it.
CONNECT_US = 2_000
#: Duration of recovery, which reads the disk.
RECOVERY_US = 20_000
#: At every other start, the last messages from before it arrive again within this time.
REPEAT_US = 500_000
#: Events of consensus that are written to the trace.
TRACED_EVENTS = frozenset({"role_changed", "log_truncated", "replica_quarantined", "unquiesced",
                           "quiesced", "member_changed", "message_dropped", "snapshot_needed",
                           "head_recovery_started", "head_recovered", "replica_repaired",
                           "configuration_changed", "replica_removed", "replica_requested"})


class SimulatedNode(DamageRepair):
    """One node over all its boots."""

    def __init__(self, node: int, world: ClusterPort, voters: dict[int, tuple[int, ...]],
                 rng: random.Random):
        self.node = node
        self.alive = False
        self.paused = False
        self.clock = SkewedClock(world.queue)
        self.disk_hangs = False
        self._disk_factor = 1
        self.crashes = 0
        self.peer_frames = 0
        self.rotten = self._unread_damage = False  # bits of its disk have changed
        self._rotted: list[tuple[int, int]] = []
        self.is_lost = False  # its directory was wiped or put back
        self.identity_is_rotten = False
        self._reset_peers(world.parameters.seed)
        self._world = world
        self._queue = world.queue
        self._state_checker: StateChecker = world.state_checker
        self._trace = world.trace
        self._network = world.network
        self._rng = rng
        self._repeats = random.Random(f"{world.parameters.seed}/repeats {node}")
        self._voters = {group: members for group, members in voters.items() if node in members}
        first = range(1, world.parameters.nodes + 1)  # a later node is registered with ``add_peer``
        self._peers = tuple(peer for peer in first if peer != node and node in first)
        self._event_counts = world.event_counts
        self._relaxed = world.parameters.disk.flush_interval_ms > 0
        self._filesystem = SimulatedFilesystem()
        self._read_back = ReadBack()
        self._filesystem.faults.rng = random.Random(f"{world.parameters.seed}/disk {node}")
        self._filesystem.faults.counts = world.faults
        #: Delay from the first input to the round, which takes all input that arrives meanwhile.
        self._round_us = world.parameters.round_us
        self._boot = 0
        self._reset_fail_points()
        self._deferred: deque[tuple[Callable[..., None], tuple]] = deque()
        self._begin_boot()

    def _begin_boot(self) -> None:
        """Begin a new boot with empty memory: callbacks of earlier boots no longer run."""
        self._boot += 1
        self._raft: MultiRaft | None = None
        self._store: Store | None = None
        self._sessions: Sessions | None = None
        self._liveness: LivenessExchange | None = None
        self._inbox: list[tuple[Callable[[int, Any], None], int, Any]] = []
        self._answers: dict[int, list[tuple]] = {}  # by client
        self._round_due = False
        self._wake_ms: int | None = None
        self._disk: DiskWorker | None = None
        self._recovery_waits = False  # until a hung disk is released
        self._connected: dict[int, None] = {}  # peers
        self._deferred.clear()
        self._repairer: RepairCoordinator | None = None
        self._repairing = False
        self._unscrubbed = True
        self.state, self.metadata = CommandState(), MetadataState()
        self._snapshot = self._download = None
        self._open_reads = PendingReads()
        self._installing = False
        self._reset_moves()

    # ---- scheduling ------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """Milliseconds of this node's clock."""
        return self.clock.now_ms

    def later(self, delay_us: int, callback: Callable[..., None], *arguments: object) -> None:
        """Run ``callback`` after ``delay_us`` of virtual time, in this boot only; a paused node
        runs it after ``resume``."""
        self._queue.after(delay_us, self._run, self._boot, callback, arguments)

    def _run(self, boot: int, callback: Callable[..., None], arguments: tuple) -> None:
        if boot != self._boot or not self.alive:
            return
        if self.paused:
            self._deferred.append((callback, arguments))
            return
        try:
            callback(*arguments)
        except PowerLoss:
            self._crash_at_fail_point()
        except UnreadableCommand as error:
            self.command_unreadable(error)

    # ---- start, crash, pause ---------------------------------------------------------------

    def start(self) -> None:
        """Start the process, which recovers after ``RECOVERY_US`` and is up then, unless its disk,
        its identity or its peers refuse it. No-op when it runs already."""
        if self.alive:
            return
        self.alive = True
        self._begin_boot()
        self._trace.line(self.node, -1, "start")
        if self.faulty and self._repeats.random() < 0.5:
            self._network.repeat(self.node, self._repeats, REPEAT_US)
        if self._effects_left:
            self._filesystem.operations_to_crash, self._effects_left = self._effects_left, 0
        self.later(RECOVERY_US, self._recover)

    def _recover(self) -> None:
        if self.disk_hangs:
            self._recovery_waits = True
            return
        parameters = self._world.parameters
        if self._was_refused():
            return
        if "older-copy" in parameters.faults and not self.is_lost:
            self._world.restored_copies.keep(self)
        identity = Identity(CLUSTER_ID, self.node, self.incarnation, self.draw_process_number())
        store = self._open_store(lambda: Store.open(DIRECTORY, self._filesystem, identity,
                                                    storage_config(parameters)))
        if store is None:
            return
        self._store, self.incarnation = store, store.incarnation
        if not self._may_participate():
            return
        store.relaxed = parameters.disk.flush_interval_ms > 0
        if store.damage and not self.rotten:
            raise Violation("NothingIsDamaged", f"n{self.node} recovers with {store.damage[0]}")
        for group, members in self._voters.items():
            if not store.is_removed(group):
                store.create_group(group, INCARNATION, Configuration(members))
        tombstones = {group: log.hard_state for group, log in store.table.logs.items()
                      if log.removed}
        self._state_checker.absent(self.node, store.groups, tombstones, bool(store.damage))
        self._filesystem.operations_to_crash = -1
        self._space_guard = self._make_space_guard(store)
        if not self._make_probe():
            return
        self._disk = DiskWorker(self, self._filesystem, store, parameters.disk, self._rng,
                                self._space_guard)
        self._disk.factor = self._disk_factor
        config = raft_config(parameters)
        self._raft = raft = MultiRaft(self.node, config, store, self._rng, self.now_ms,
                                      store.boot_epoch)
        self._read_back.check(
            store, self._filesystem.image, self._state_checker, self.node, self.rotten
        )
        for group, restored in sorted(store.groups.items()):
            raft.add_group(group, INCARNATION, restored, store.partition_states[group])
        self._restore_state()
        self._repairer = RepairCoordinator(self.node, store, raft, self._write_record)
        self._sessions = Sessions(raft, store, self._answer, self._world.workload.was_read,
                                  self.node, self._damaged, self._space_guard, self._place_for,
                                  self._accepts)
        self._liveness = LivenessExchange(self, raft, config, store.boot_epoch, self._peers)
        self._liveness.wake(self.now_ms)
        for peer in self._peers:
            self._world.everyone[peer].peer_up(self.node)
            if self._world.everyone[peer].is_up:
                self._connect(peer)
        self._unscrubbed, self._unread_damage = self.rotten, False
        if self.rotten:
            self.scrub_soon()
        if "disk-full" in parameters.faults:
            self._watch_disk_space()
        self._start_moves()
        self.request_round()

    def crash(self, power: bool) -> None:
        """End this boot and tell the peers; no-op when the process is down. With ``power`` the page
        cache is lost, unless the node keeps it (``_keeps_page_cache``)."""
        if not self.alive:
            return
        power = power and not self._keeps_page_cache()
        if power and self._world.parameters.spares_power:
            self._state_checker.power_lost(self.node)
            self._event_counts["relaxed power loss"] += 1
        self.alive = False
        self.paused = False
        self.crashes += 1
        self._effects_left = 0
        self._trace.line(self.node, -1, "crash", "power" if power else "process")
        if power:
            self._filesystem.power_loss(self._rng)
        else:
            self._filesystem.process_death(self._rng)
        self._begin_boot()
        for peer in self._peers:
            self._world.everyone[peer].peer_down(self.node)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        """Continue a paused process; no-op otherwise. Reads that waited are started first, then
        everything that it missed is scheduled for now, in order."""
        if not self.paused:
            return
        self.paused = False
        self._trace.line(self.node, -1, "resume")
        deferred, self._deferred = self._deferred, deque()
        self.later(0, self._start_waiting_reads)
        for callback, arguments in deferred:
            self.later(0, callback, *arguments)

    # ---- connections -----------------------------------------------------------------------

    @property
    def is_up(self) -> bool:
        """True if the node has recovered and accepts connections."""
        return self.alive and self._raft is not None

    def reconnect(self, peer: int) -> None:
        """Break the append connection to a peer, and connect again if the peer is up."""
        self.later(0, self._disconnect, peer)
        if self._world.everyone[peer].is_up:
            self.later(0, self._connect, peer)

    def peer_down(self, peer: int) -> None:
        """Schedule the end of the connection to a peer whose process has ended."""
        self.later(HANG_UP_US, self._disconnect, peer)

    def peer_up(self, peer: int) -> None:
        """Schedule a connection to a peer that has started; none is made if the peer is down by
        then or refuses this node."""
        self.later(CONNECT_US, self._connect, peer)

    def _disconnect(self, peer: int) -> None:
        if self._raft is not None:
            self._connected.pop(peer, None)
            self._raft.disconnected(peer)
            self.request_round()

    def _connect(self, peer: int) -> None:
        if (self._raft is not None and self._world.everyone[peer].is_up
                and self._is_admitted(peer)):
            self._connected[peer] = None
            self._raft.connected(peer)
            self.request_round()

    def receive_peer(self, sender: int, frame: tuple) -> None:
        self._arrived(self._step_all, sender, frame)

    def receive_request(self, sender: int, frame: tuple) -> None:
        self._arrived(self._serve_all, sender, frame)

    def receive_liveness(self, sender: int, frame: tuple) -> None:
        """Receive a frame of the liveness thread, which answers at once, without the round loop. A
        paused node answers after ``resume``, one that is down never."""
        self._run(self._boot, self._liveness_arrived, (sender, frame))

    def send_liveness(self, peer: int, item: tuple) -> None:
        self._network.send(self.node, peer, "liveness", (item,),
                           self._world.everyone[peer].receive_liveness)

    def _liveness_arrived(self, sender: int, frame: tuple) -> None:
        if self._liveness is not None:
            for item in frame:
                self._liveness.receive(self.now_ms, sender, item)

    def deliver_leases(self, events: list[LeaseEvent]) -> None:
        """Queue the findings of the liveness thread for the next round, and request that round."""
        self._inbox.append((self._take_leases, self.node, events))
        self.request_round()

    def _take_leases(self, sender: int, events: list[LeaseEvent]) -> None:
        deliver(events, self._raft)

    def _arrived(self, handler: Callable[[int, tuple], None], sender: int, frame: tuple) -> None:
        if self.paused:
            self._run(self._boot, self._arrived, (handler, sender, frame))
        elif self.alive:
            self._inbox.append((handler, sender, frame))
            self.request_round()

    def _step_all(self, sender: int, frame: tuple) -> None:
        for message in frame:
            if type(message) is Append and message.entries:
                message = with_entries(message, tuple(core.parse_entries(message.entries)))
                if self._is_dropped_for_space(message.entries):
                    continue
            self._raft.step(sender, message)

    def _serve_all(self, sender: int, frame: tuple) -> None:
        for request in frame:
            if type(request) is AppendRequest:
                self._sessions.append(request)
            else:
                self._sessions.fetch(request)
                self._start_read_index(request.group)

    def _answer(self, client: int, reply: tuple) -> None:
        """Queue a reply for the client's next frame, which leaves before the round or the
        completion ends.
        """
        self._answers.setdefault(client, []).append(reply)

    def _send_answers(self) -> None:
        """Send one frame to each client with replies."""
        if not self._answers:
            return
        answers, self._answers = self._answers, {}
        for client, replies in answers.items():
            self._effect()
            self._network.send(self.node, client, "client", tuple(replies),
                               self._world.workload.receive)

    # ---- rounds ----------------------------------------------------------------------------

    def request_round(self) -> None:
        if not self._round_due:
            self._round_due = True
            self.later(self._round_us, self._round)

    def _round(self) -> None:
        self._round_due = False
        if self._raft is None:
            return  # recovery has not finished: the frames wait in the inbox
        inbox, self._inbox = self._inbox, []
        for handler, sender, frame in inbox:
            handler(sender, frame)
            if not self.is_up:
                return  # the disk failed during the handler
        self._raft.tick(self.clock.now_ms)
        changed = False
        while self._raft.has_work:
            ready = self._raft.ready(with_writes=self._disk.takes_writes)
            if not ready:
                break  # the rest of the work waits for the disk
            changed = changed or bool(ready.events)
            self._process_ready(ready)
        self._send_answers()
        self._schedule_wake_up()
        if changed:
            self._liveness.publish()

    def _schedule_wake_up(self) -> None:
        """Schedule the next round at the core's next deadline, unless there is none or a sooner one
        is scheduled."""
        deadline_ms = self._raft.next_deadline_ms()
        if deadline_ms is None or self._wake_ms is not None and self._wake_ms <= deadline_ms:
            return
        self._wake_ms = deadline_ms
        self.later(self.clock.until_us(deadline_ms), self._wake_up, deadline_ms)

    def _wake_up(self, deadline_ms: int) -> None:
        if self._wake_ms == deadline_ms:
            self._wake_ms = None
        self.request_round()

    def _process_ready(self, ready: Ready) -> None:
        """Execute a ``Ready``; the order of effects is the order of its fields."""
        if ready.events:
            self._handle_events(ready.events)
        if ready.writes is not None:
            self._effect()
            self._state_checker.staged(self.node, ready.writes)
            staged = self._store.stage(ready.writes)
            self._disk.submit(Flight(ready.writes, staged))
        if ready.messages:
            # A power loss can take nothing back that these say, so they leave before the write.
            self._send_all(ready.messages)
        if ready.writes is not None:
            self._effect()
            self._disk.start_next()
        for read in ready.reads:
            self._state_checker.confirmed(self.node, read.group, read.index, read.token)
            self._open_reads.answered(read.group)
        for group, first, last in ready.committed:
            self._effect()
            self._state_checker.committed(self.node, group, first, last)
            if group == METADATA_GROUP:
                self._apply_commands(first, last)
            self._sessions.applied(group, first, last)
            self._raft.applied(group, last)
            if self._applying:
                self._notify_applied(group, last)

    def _handle_events(self, events: Sequence[Event]) -> None:
        event_counts = self._world.event_counts
        for event in events:
            event_counts[event.kind] += 1
            if event.kind == "replica_repaired":
                self._state_checker.replica(self.node, event.group).repaired()
            elif event.kind == "replica_quarantined":
                self._state_checker.replica(self.node, event.group).damaged = True
                if not self.rotten or not self._is_known_damaged(event.group):
                    raise Violation("NothingIsDamaged", f"n{self.node} g{event.group} quarantined "
                                    f"itself: {event.fields[0]}")
                self._store.quarantine(event.group, event.fields[0])
            if event.kind == "configuration_changed":
                self._state_checker.replica(self.node, event.group).adopt(*event.fields)
            if event.kind == "replica_requested":
                create_wanted(self._store, self._raft, self._state_checker, self._repairer, event)
                self._repair_soon()
            if event.kind == "snapshot_offered":
                self.snapshot_offered(event.fields[0])
            if event.kind == "replica_removed":
                self._sessions.stepped_down(event.group)
                self._open_reads.ended(event.group)
                self._repairer.groups.discard(event.group)
            if event.kind == "role_changed":
                if event.fields[0] != Role.LEADER:
                    self._sessions.stepped_down(event.group)
                    self._open_reads.ended(event.group)
                self._drive_moves()
            if event.kind in TRACED_EVENTS:
                self._trace.line(self.node, event.group, event.kind,
                                 " ".join(map(str, event.fields)))

    # ---- disk ------------------------------------------------------------------------------

    def after_disk(self, delay_us: int, callback: Callable[..., None], *arguments: object) -> None:
        """Run ``callback`` after ``delay_us``, in this boot only, also while the process is paused,
        because the disk is not."""
        self._queue.after(delay_us, self._run_on_disk, self._boot, callback, arguments)

    def _run_on_disk(self, boot: int, callback: Callable[..., None], arguments: tuple) -> None:
        if boot == self._boot and self.alive:
            callback(*arguments)

    @property
    def faulty(self) -> bool:
        """True during the phase of faults."""
        return self._network.faulty

    def commits(self) -> dict[int, int]:
        """Return group -> commit index, of each group with a replica on this node."""
        status = self._raft.status
        return {group: status.commit_index(group) for group in status.groups()}

    def report_durable(self, flights: Sequence[Flight]) -> None:
        """Report to the state checker that the writes of ``flights`` are durable now, and with
        relaxed durability whether nothing is unsynced."""
        for flight in flights:
            if flight.writes is not None:
                self._state_checker.durable(self.node, flight.writes)
        if self._relaxed and self._disk.is_synced:
            self._state_checker.synced(self.node)

    def wrote(self, flights: Sequence[Flight]) -> None:
        """Handle the completion of writes, in the process: advance durable indexes, and send the
        answers that waited. The messages that waited leave in the next round."""
        self._effect()
        for flight in flights:
            self._store.finish(flight.staged)
        rounds = [flight.writes.sequence for flight in flights if flight.writes is not None]
        if rounds:
            self._raft.written(rounds[-1])
        self._effect()
        self._sessions.written()
        self._send_answers()
        if self._raft.has_work:
            self.request_round()

    # ---- leadership ------------------------------------------------------------------------

    def transfer_some(self, rng: random.Random) -> None:
        """Schedule a transfer of the leadership of one group to another node, or its resignation.
        No-op while the node is recovering or paused."""
        if self._raft is not None and not self.paused:
            self.later(0, self._transfer, rng)

    def _transfer(self, rng: random.Random) -> None:
        led = self.led_groups()
        if not led:
            return
        group = rng.choice(led)
        to = rng.choice([node for node in self._peers])
        self._trace.line(self.node, group, "fault", f"transfer to n{to}")
        try:
            if rng.random() < 0.8:
                self._raft.transfer(group, to)
            else:
                self._raft.resign(group, "asked to")
        except ProposalError as error:
            self._trace.line(self.node, group, "refused", str(error))
        self.request_round()

    # ---- queries of the simulation ---------------------------------------------------------

    def leads(self, group: int) -> bool:
        """True if this node is up and believes that it leads the group."""
        return (self.is_up and group in self._raft.status.groups()
                and self._raft.status.leader_hint(group)[0] == self.node)

    def describe_active(self) -> list[str]:
        """Describe the timer of this node and its groups that have not quiesced; empty = the node
        is up and idle."""
        if self._raft is None:
            return [f"n{self.node} is not up"]
        deadline_ms = self._raft.next_deadline_ms()
        timers = [] if deadline_ms is None else [f"n{self.node} has a timer at {deadline_ms} ms"]
        statuses = [self._raft.status.of(group) for group in self._raft.status.groups()]
        return timers + [f"n{self.node} {status}" for status in statuses if not status.quiesced]

    def unanswered(self) -> list[str]:
        """Describe the linearizable reads that wait on this node, one line per group."""
        return [f"n{self.node} {text}" for text in self._open_reads.unanswered()]

    def check(self) -> None:
        """Check all invariants of the core and of the logs by assertions; no-op while the node is
        down.  O(everything stored in memory)."""
        if self._raft is not None:
            self._raft._check()
            for tail in self._store.partition_states.values():
                tail._check()

    def status(self, group: int) -> GroupStatus:
        """Return the status of a replica of this node, which must be up and have one."""
        return self._raft.status.of(group)

    def led_groups(self) -> list[int]:
        """Return the groups that this node, which must be up, leads."""
        return [group for group in self._raft.status.groups() if self._raft.status.is_leader(group)]

    @property
    def groups(self) -> tuple[int, ...]:
        """Groups with a replica on this node; empty while the node is down."""
        return self._raft.status.groups() if self._raft is not None else ()

    def hint(self, group: int) -> int:
        """Return the leader of any group of the pool, as this node, which must be up, knows it; 0 =
        unknown."""
        return self._raft.status.leader_hint(group)[0]

    def read_everything(self, extents: Sequence[Extent]) -> list[tuple[Extent, int]]:
        """Fetch each extent whose group has a replica here, from its start, as far as it is
        applied; each fetch is checked like a client's.

        Return (extent, offset after its last record) pairs.
        """
        ends = []
        for extent in extents:
            if extent.group in self._raft.status.groups():
                end = extent.start
                while (reached := self._sessions.read(0, extent.group, extent.partition, end,
                                                      limit=extent.end)) > end:
                    end = reached
                ends.append((extent, end))
        return ends
