"""Snapshots of group 0 on a simulated node: the product's steps, in virtual time.

Contract.  What is served, downloaded and compacted, and the order of an installation, are the
product's own (``node/replicas/snapshot_source.py``, ``snapshot_receiver.py``,
``snapshot_installer.py``).  This module gives them time, threads, bulk connections and a disk.
Each effect is a place where an armed crash may strike, and is reported to the state checker.

Invariants.  Consensus learns of a snapshot only after the checkpoint that holds it is durable.
"""

from __future__ import annotations

from typing import Any

from chaos.simulator.disk.disk_worker import DiskWorker
from chaos.simulator.env.violations import Violation
from chaos.simulator.node.loop.checkpoints import Checkpoints
from chaos.simulator.node.machine.coroutines import Future, Lock, raise_error, start
from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.machine.event_log import TraceLog
from chaos.simulator.node.machine.fail_points import FailPoints
from chaos.simulator.node.machine.process import ProcessScheduler
from chaos.simulator.node.machine.round_queue import RoundQueue
from chaos.simulator.node.machine.simulated_disk import DIRECTORY
from chaos.simulator.node.machine.threads import SimulatedThreads
from chaos.simulator.node.metadata.metadata_replica import (
    AppliedMetadata,
    GroupState,
    MetadataReplica,
)
from chaos.simulator.node.peers.bulk_channel import BulkChannel
from multiraft.raft.log_reader import LogBounds
from multiraft.raft.multi_raft import MultiRaft
from multiraft.storage.chunked_cbor import Encoded
from multiraft.storage.disk_space import DiskSpaceGuard
from multiraft.storage.filesystem import Filesystem
from multiraft.storage.snapshot_download import PartialSnapshot, SnapshotDownload
from multiraft.storage.store import Store
from multiraft.types import METADATA_GROUP
from node.errors import DiskFailed
from node.replicas import group_snapshot, snapshot_messages
from node.replicas.snapshot_installer import SnapshotInstaller
from node.replicas.snapshot_messages import OPERATION, Chunk, ChunkRequest
from node.replicas.snapshot_receiver import SnapshotReceiver
from node.replicas.snapshot_source import ServingLimits, SnapshotSource
from node.replicas.snapshot_state import CapturedState, capture

#: A snapshot is served unchanged while its last request is at most so old.
SNAPSHOT_LIFE_S = 2.0
#: Commands that stay in the log for a replica that catches up: few, so that it sometimes needs a
#: snapshot all the same.
COMMANDS_HELD_MAX = 50
#: Groups of which a snapshot is served at a time.
SERVED_GROUPS_MAX = 2
#: Largest snapshot that is accepted.
SNAPSHOT_BYTES_MAX = 1 << 24
#: Retry interval of an installation while the disk is busy.
INSTALL_PAUSE_US = 1_000


class InstallationPorts:
    """Core, store and checkpoints as an installation sees them: each call is an effect of its own,
    and the state checker hears of it."""

    def __init__(self, env: NodeEnv, fail_points: FailPoints, threads: SimulatedThreads,
                 raft: MultiRaft, store: Store, worker: DiskWorker, checkpoints: Checkpoints,
                 metadata: MetadataReplica):
        self.alone = _IdleDisk(threads, worker, checkpoints.alone)
        self.is_tombstone_durable = store.is_tombstone_durable
        self._env = env
        self._fail_points = fail_points
        self._raft = raft
        self._store = store
        self._checkpoints = checkpoints.writer
        self._metadata = metadata
        self._installed: LogBounds | None = None
        self._durable: LogBounds | None = None

    def may_install(self, group: int, index: int, term: int) -> bool:
        """Ask the core."""
        return self._raft.may_install(group, index, term)

    def install(self, group: int, bounds: LogBounds, *replica: Any) -> None:
        """Replace the replica in the store."""
        self._fail_points.effect()
        self._env.state_checker.installing(self._env.node, group, bounds.last_index,
                                           bounds.prev_term)
        self._store.install(group, bounds, *replica)
        self._installed = bounds

    def write_now(self, metadata: Encoded) -> None:
        """Write a checkpoint before the round continues. An armed crash may strike between any two
        of its file operations. Raises ``DiskFailed``."""
        self._fail_points.strike_in_files()
        self._checkpoints.write_now(metadata)
        self._fail_points.files_done()
        self._durable = self._installed

    def install_snapshot(self, group: int, bounds: LogBounds, *replica: Any) -> None:
        """Tell the core. Raises ``Violation`` unless the snapshot is durable, and the metadata are
        those of its index."""
        self._metadata.check(bounds.last_index)
        if self._durable != bounds:
            raise Violation("SnapshotsAreDurable", f"n{self._env.node} tells consensus of a "
                            f"snapshot of {bounds.last_index} that no checkpoint holds")
        self._env.state_checker.installed(self._env.node, group)
        self._raft.install_snapshot(group, bounds, *replica)


class _IdleDisk:
    """Lock of the checkpoints: the simulated disk takes one call at a time."""

    def __init__(self, threads: SimulatedThreads, worker: DiskWorker, lock: Lock):
        self._threads = threads
        self._worker = worker
        self._lock = lock

    async def __aenter__(self) -> None:
        await self._lock.__aenter__()
        while not self._worker.is_idle:
            await self._threads.pause_us(INSTALL_PAUSE_US)

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        await self._lock.__aexit__(kind, *error)


class SnapshotExchange:
    """Snapshots of one boot."""

    def __init__(self, env: NodeEnv, process: ProcessScheduler, rounds: RoundQueue,
                 fail_points: FailPoints, raft: MultiRaft, store: Store, worker: DiskWorker,
                 checkpoints: Checkpoints, guard: DiskSpaceGuard, bulk: BulkChannel,
                 threads: SimulatedThreads, filesystem: Filesystem, metadata: MetadataReplica):
        self._env = env
        self._process = process
        self._worker = worker
        self._bulk = bulk
        self._metadata = metadata
        self._raft = raft
        self._store = store
        self._partition_states = store.partition_states
        self._leader = 0  # of the last offer; 0 = none since the last attempt
        self._offer = Future()
        self._source = SnapshotSource(
            raft, self._capture,
            ServingLimits(env.parameters.snapshot_chunk_bytes, SNAPSHOT_LIFE_S,
                          env.parameters.commands_kept, COMMANDS_HELD_MAX, SERVED_GROUPS_MAX),
            threads.run, Lock(), lambda: env.now_ms / 1000)
        ports = InstallationPorts(env, fail_points, threads, raft, store, worker, checkpoints,
                                  metadata)
        installer = SnapshotInstaller(ports, ports, ports, GroupState.restore, metadata.adopt,
                                      threads.run, rounds.request, self._installed)
        self._receiver = SnapshotReceiver(
            METADATA_GROUP, store.partition_states, self, threads.run,
            SnapshotDownload(filesystem, DIRECTORY, SNAPSHOT_BYTES_MAX), guard, installer.install,
            SNAPSHOT_BYTES_MAX, TraceLog(env))
        bulk.handlers[OPERATION] = self._answer

    def begin(self) -> None:
        """Compact what the recovered checkpoint covers, and process offers from now on."""
        replica = self._partition_states.get(METADATA_GROUP)
        self.compact(replica.applied_index if replica is not None else 0)
        start(self._run(), self._process.later, raise_error)

    async def _run(self) -> None:
        """Process offers one after the other, as ``node.replicas.snapshots.Snapshots.run``; a
        failed disk ends the node."""
        try:
            await self._receiver.resume()
            while True:
                await self._offer
                self._offer = Future()
                leader, self._leader = self._leader, 0
                await self._receiver.process(leader)
        except DiskFailed as error:
            assert isinstance(error.__cause__, OSError)
            self._worker.end(error.__cause__)

    def compact(self, applied: int) -> None:
        """Compact the commands up to ``applied``, which a checkpoint holds, except those that stay.
        """
        self._source.compact(applied)
        self._offer.set_result()

    def held_from(self, group: int) -> int:
        """Return the first index of a group's log that follows a snapshot which is served."""
        return self._source.held_from(group)

    def offered(self, leader: int) -> None:
        """Download a snapshot from ``leader``, which has compacted the entries that this replica
        needs."""
        self._env.faults["snapshot-offered"] += 1
        self._leader = leader
        self._offer.set_result()

    def _capture(self, group: int) -> CapturedState:
        if group != METADATA_GROUP:
            return group_snapshot.capture(self._raft, self._store, group)
        return capture(self._raft, self._partition_states[group],
                       AppliedMetadata(self._metadata).state)

    async def ask(self, peer: int, request: ChunkRequest) -> Chunk | None:
        """Return the reply of ``peer`` to a request for a chunk."""
        reply = await self._bulk.ask(peer, snapshot_messages.request_header(request))
        return snapshot_messages.read_chunk(reply.header, memoryview(reply.payload))

    async def _answer(self, _peer: int, header: dict, _payload: memoryview) -> tuple[dict, list]:
        chunk = await self._source.answer(snapshot_messages.read_request(header))
        return snapshot_messages.chunk_header(chunk), [] if chunk is None else [chunk.data]

    def _installed(self, download: PartialSnapshot) -> None:
        self._metadata.changed()
        self._env.faults["snapshot-installed"] += 1
        self._env.trace_line("snapshot_installed", str(download.index), METADATA_GROUP)
