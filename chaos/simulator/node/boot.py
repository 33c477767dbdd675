"""Parts of one boot of a simulated node, wired: built anew by each recovery.

Contract.  ``Recovery.run`` opens the disk as a real start does and returns the parts, which do
nothing yet; ``Boot.begin`` starts them.  What outlives a boot is in ``NodeParts``: process, disk,
damage, known peers and fail points.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.simulator.disk.disk_worker import DiskWorker
from chaos.simulator.env.limits import raft_config, storage_config
from chaos.simulator.env.violations import Violation
from chaos.simulator.node.clients.client_port import ClientPort, HandlerRounds
from chaos.simulator.node.clients.judged_ports import JudgedCore
from chaos.simulator.node.loop.applier import JudgedApplier
from chaos.simulator.node.loop.checkpoints import Checkpoints
from chaos.simulator.node.loop.core_events import CoreEvents
from chaos.simulator.node.loop.disk_space import DiskSpace, make_probe, make_space_guard
from chaos.simulator.node.loop.frames import FrameHandlers
from chaos.simulator.node.loop.observed_store import ObservedCore, ObservedGather, ObservedStore
from chaos.simulator.node.loop.orderly_stop import NodeStop
from chaos.simulator.node.loop.removal import Removal
from chaos.simulator.node.loop.rounds import Rounds
from chaos.simulator.node.machine.applied_waits import AppliedWaits
from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.machine.fail_points import FailPoints
from chaos.simulator.node.machine.process import ProcessScheduler
from chaos.simulator.node.machine.round_queue import RoundQueue
from chaos.simulator.node.machine.simulated_disk import DIRECTORY, SimulatedDisk
from chaos.simulator.node.machine.threads import SimulatedThreads
from chaos.simulator.node.metadata.membership import INCARNATION, MembershipChanges
from chaos.simulator.node.metadata.metadata_replica import AppliedMetadata, MetadataReplica
from chaos.simulator.node.metadata.metadata_view import MetadataView
from chaos.simulator.node.peers.admission import Admission, was_refused
from chaos.simulator.node.peers.bulk_channel import BulkChannel
from chaos.simulator.node.peers.connections import Connections
from chaos.simulator.node.peers.liveness import LivenessExchange
from chaos.simulator.node.peers.peers import PeerTable
from chaos.simulator.node.peers.transport import Transport
from chaos.simulator.node.rebalance.move_services import MoveServices
from chaos.simulator.node.rebalance.moves import Moves
from chaos.simulator.node.replicas.damage import DiskDamage
from chaos.simulator.node.replicas.group_snapshots import GroupSnapshotExchange
from chaos.simulator.node.replicas.leadership import Leadership
from chaos.simulator.node.replicas.log_compaction import compaction_of
from chaos.simulator.node.replicas.repair import DamageRepair
from chaos.simulator.node.replicas.replica_lifecycle import replicas_of
from chaos.simulator.node.replicas.snapshots import SnapshotExchange
from chaos.simulator.node.retention import SimulatedRetention
from multiraft.raft.multi_raft import MultiRaft
from multiraft.storage.disk_space import DiskSpaceGuard, is_full
from multiraft.storage.errors import CorruptFile, CorruptRange
from multiraft.storage.identity import Identity
from multiraft.storage.io_jobs import StagedWrite
from multiraft.storage.store import Store
from multiraft.types import METADATA_GROUP, Configuration
from node.clients.read_index import ReadIndexRequests
from node.loop.applier import Applier
from node.loop.block_reads import BlockReads
from node.loop.ready_driver import ReadyDriver
from node.replicas.lifecycle import Replicas

if TYPE_CHECKING:
    from chaos.simulator.ports import ClusterPort, NodeLife

CLUSTER_ID = b"simulated-------"


@dataclass(frozen=True, slots=True)
class NodeParts:
    """Parts of a node that outlive its boots."""

    process: ProcessScheduler
    disk: SimulatedDisk
    damage: DiskDamage
    peers: PeerTable
    fail_points: FailPoints


class Boot:
    """Parts of one boot."""

    def __init__(self, env: NodeEnv, cluster: ClusterPort, life: NodeLife, parts: NodeParts,
                 rounds: RoundQueue, store: Store, guard: DiskSpaceGuard, admission: Admission,
                 report_step: Callable[[str], None]):
        process, fail_points, peers = parts.process, parts.fail_points, parts.peers
        self.store = store
        self.rounds = rounds
        self._env = env
        self._cluster = cluster
        self._life = life
        self._parts = parts
        observed = ObservedStore(env, fail_points, store)
        self.worker = DiskWorker(env, process, parts.disk, observed, guard, fail_points, self)
        self.raft = raft = self._open_core()
        self.connections = Connections(env, cluster, process, rounds, raft, admission)
        threads = SimulatedThreads(env, process, fail_points)
        bulk = BulkChannel(env, process, fail_points, self.connections)
        self.repair = DamageRepair(env, process, rounds, parts.damage, raft, store, self.worker,
                                   bulk, threads)
        self.leadership = Leadership(env, process, rounds, raft, peers)
        self.space = DiskSpace(env, process, rounds, guard, self.leadership)
        self.metadata = MetadataReplica(env, cluster.oracle, process, rounds, raft, store)
        self.core = JudgedCore(env, raft, self.metadata)
        handler_rounds = HandlerRounds(rounds)
        self.confirmations = ReadIndexRequests(self.core, store.partition_states,
                                               handler_rounds.request, lambda: env.now_ms)
        replicas = replicas_of(env, rounds, raft, store, self.metadata, self.repair)
        replicas.load()
        self._checkpoints = Checkpoints(env, process, raft, store, self.worker, guard,
                                        AppliedMetadata(self.metadata), self._compact)
        self.snapshots = SnapshotExchange(env, process, rounds, fail_points, raft, store,
                                          self.worker, self._checkpoints, guard, bulk,
                                          threads, parts.disk.filesystem, self.metadata)
        self.group_snapshots = GroupSnapshotExchange(
            env, process, rounds, fail_points, raft, store, self.worker, self._checkpoints, guard,
            bulk, threads, self.repair, self.snapshots)
        compaction = compaction_of(env, raft, store, guard, self.snapshots.held_from)
        self._checkpoints.writer.completed.subscribe(compaction.checkpointed)
        self.removal = Removal(env, process, store, self.worker, guard, compaction,
                               self._checkpoints.ask_later, self.repair.found)
        self.membership = MembershipChanges(env, cluster, process, rounds, raft, peers,
                                            self.confirmations)
        waits = AppliedWaits(process, store)
        services = MoveServices(env, cluster, process, rounds, fail_points, raft, self.connections,
                                self.metadata, waits, self.membership, self.repair, guard,
                                report_step)
        self.moves = Moves(services, self.metadata, raft, store)
        self.liveness = LivenessExchange(env, process, rounds, raft, raft_config(env.parameters),
                                         store.boot_epoch, peers.peers, self.worker, guard,
                                         self.connections)
        view = MetadataView(self.metadata, cluster.workload.partitions)
        self.retention = SimulatedRetention(env, process, rounds, self.core, store, view,
                                            self.liveness.clock_skew, services, bulk,
                                            BlockReads(store, threads.run, self.repair.found))
        self.metadata.before_command = self.retention.before_command
        self.clients = ClientPort(env, cluster, process, handler_rounds, fail_points,
                                  self.core, store, services, self.confirmations,
                                  self.repair.found, guard, view, self.retention, waits,
                                  threads)
        core = ObservedCore(fail_points, raft, self.worker.gather, env.parameters.disk.gathers)
        applier = JudgedApplier(env, fail_points, self.core, self._make_applier(replicas, waits))
        self._driver = ReadyDriver(
            core, observed, ObservedGather(fail_points, self.worker.gather),
            Transport(env, cluster, process, fail_points, raft, store, self.connections, threads,
                      self.repair.found),
            applier, (core, self.clients), self.liveness.publish)
        frames = FrameHandlers(raft, self.space, self.clients, bulk, services)
        self._rounds = Rounds(env, process, rounds, frames, self._driver)
        self.stop = NodeStop(env, process, rounds, fail_points, raft, self.worker,
                             self._checkpoints, applier, life.stopped)

    def _make_applier(self, replicas: Replicas, waits: AppliedWaits) -> Applier:
        clients = self.clients
        return Applier(
            self.raft, self.store, self.metadata, clients.pending, clients.fetches,
            self.confirmations, clients.sessions, self.moves, replicas,
            CoreEvents(self._env, self.repair, self.core), waits,
            on_snapshot_offer=self._snapshot_offered,
            lead=self.retention.lead, note_applied=self.removal.note_applied)

    def _snapshot_offered(self, group: int, leader: int) -> None:
        if group == METADATA_GROUP:
            self.snapshots.offered(leader)
        else:
            self.group_snapshots.offered(group, leader)

    def _open_core(self) -> MultiRaft:
        """Return the core without replicas, after the logs were compared with those that the node
        had. Raises ``Violation``."""
        env, store = self._env, self.store
        raft = MultiRaft(env.node, raft_config(env.parameters), store, env.rng, env.now_ms,
                         store.boot_epoch)
        disk = self._parts.disk
        disk.read_back.check(store, disk.filesystem.image, env.state_checker, env.node,
                             self._parts.damage.rotten)
        return raft

    def begin(self) -> None:
        """Take part in the cluster: connect to the peers, and run rounds from now on."""
        env = self._env
        self.metadata.restore()
        self.rounds.begin(self._rounds.run)
        self.liveness.wake(env.now_ms)
        for peer in self._parts.peers.peers:
            other = self._cluster.everyone[peer]
            other.peer_up(env.node)
            if other.is_up and self._parts.process.is_alive:
                self.connections.connect(peer)
        if not self._parts.process.is_alive:
            return  # a peer has refused this node
        self.repair.begin()
        self.snapshots.begin()
        self.group_snapshots.begin()
        self.retention.begin()
        self.removal.begin()
        if "disk-full" in env.parameters.faults:
            self.space.watch()
        if self._cluster.workload.topics is not None:
            self.moves.start(self.retention.handlers)
        self.rounds.request()

    # ---- peers and time --------------------------------------------------------------------

    def remove_peer(self, peer: int) -> None:
        """End the connection to a peer that is removed permanently."""
        self.connections.disconnect(peer)
        self.liveness.remove(peer)

    def start_waiting_reads(self) -> None:
        """Start the linearizable reads that waited for a stopped process, before its clock
        advances.

        A read that relied on a lease would be answered wrongly here.
        """
        for group in self.leadership.led_groups():
            self.confirmations.ask(group, lambda _confirmed: None)
            self.clients.query_end(group)
        self.rounds.run()

    def clock_changed(self) -> None:
        """Compute all deadlines again, in the next round and in the liveness thread."""
        self._rounds.clock_changed()
        self._parts.process.later(0, self.liveness.reschedule)

    # ---- disk worker -----------------------------------------------------------------------

    def wrote(self, staged: list[StagedWrite]) -> bool:
        """Handle the completion of writes, in the process. Return True if a round is due."""
        self._checkpoints.ask_later()
        return self._driver.wrote(staged)

    def _compact(self, applied: int) -> None:
        """Compact the commands of group 0 that a checkpoint holds."""
        self.snapshots.compact(applied)

    def request_round(self) -> None:
        """Request a round."""
        self.rounds.request()

    def damage_found(self, error: CorruptRange) -> None:
        """Have a record repaired that cannot be read."""
        self.repair.found(error)

    def disk_failed(self, error: OSError) -> None:
        """End the process after a disk error, and schedule its start."""
        self._life.disk_failed(error)


class Recovery:
    """Recovery of one node, once per boot."""

    def __init__(self, env: NodeEnv, cluster: ClusterPort, life: NodeLife, parts: NodeParts,
                 voters: dict[int, tuple[int, ...]]):
        """``voters`` of the groups that the node begins with."""
        self._env = env
        self._cluster = cluster
        self._life = life
        self._parts = parts
        self._voters = voters

    def run(self, rounds: RoundQueue, report_step: Callable[[str], None]) -> Boot | None:
        """Return the parts of this boot, which ``Boot.begin`` starts. None = the process has ended:
        its disk, its identity or its peers refuse it. Raises ``Violation``."""
        env, parts = self._env, self._parts
        if was_refused(env, parts.disk):
            self._life.crash(False)
            return None
        if "older-copy" in env.parameters.faults and not parts.peers.is_lost:
            self._life.keep_copy()
        store = self._open_store()
        if store is None:
            return None
        parts.peers.incarnation = store.incarnation
        admission = Admission(env, self._cluster, self._life, parts.disk, parts.peers,
                              store.boot_ids)
        if not admission.may_participate():
            return None
        self._restore_replicas(store)
        parts.fail_points.files_done()
        guard = make_space_guard(env, parts.disk, store)
        try:
            make_probe(parts.disk, guard)
        except OSError as error:
            self._life.disk_failed(error)
            return None
        return Boot(env, self._cluster, self._life, parts, rounds, store, guard, admission,
                    report_step)

    def _open_store(self) -> Store | None:
        """Open the store like a real start, and return it. None = the node could not start. Its
        disk failed and it is started again later, or its identity file is damaged and it is
        replaced.

        Without any free disk space the reserve is released first.
        """
        reserve = self._parts.disk.reserve()
        identity = Identity(CLUSTER_ID, self._env.node, self._parts.peers.incarnation,
                            self._parts.peers.draw_process_number())
        try:
            try:
                return self._open(identity)
            except OSError as error:
                if not is_full(error) or not reserve.held_bytes:
                    raise
                reserve.release()
            return self._open(identity)
        except OSError as error:
            if error.errno not in (errno.EIO, errno.ENOSPC):
                raise
            self._life.disk_failed(error)
            return None
        except CorruptFile:
            if not self._parts.damage.identity_is_rotten:
                raise
            self._life.identity_lost()
            return None

    def _open(self, identity: Identity) -> Store:
        return Store.open(DIRECTORY, self._parts.disk.filesystem, identity,
                          storage_config(self._env.parameters))

    def _restore_replicas(self, store: Store) -> None:
        """Create the groups that the node begins with, and report what it has not to the state
        checker. Raises ``Violation`` if an intact disk has damage."""
        env = self._env
        store.relaxed = env.parameters.disk.flush_interval_ms > 0
        if store.damage and not self._parts.damage.rotten:
            raise Violation("NothingIsDamaged", f"n{env.node} recovers with {store.damage[0]}")
        for group, members in self._voters.items():
            if not store.is_removed(group):
                store.create_group(group, INCARNATION, Configuration(members))
        tombstones = {group: log.hard_state for group, log in store.table.logs.items()
                      if log.removed}
        env.state_checker.absent(env.node, store.groups, tombstones, bool(store.damage))
