"""Snapshots of groups with partitions on a simulated node, and the copies of their records.

Contract.  What is downloaded, installed and copied, and in which order, is the product's own
(``node/replicas/group_downloads.py``, ``group_snapshot_installer.py``, ``record_copies.py``).  This
module gives them time, threads, bulk connections and a disk.  Each effect is a place where an armed
crash may strike, and is reported to the state checker.  How the groups are compacted:
``log_compaction.py``.

Invariants.  Consensus learns of a snapshot only after a checkpoint that holds it is durable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chaos.simulator.disk.disk_worker import DiskWorker
from chaos.simulator.env.violations import Violation
from chaos.simulator.node.loop.checkpoints import Checkpoints
from chaos.simulator.node.machine.coroutines import Future, raise_error, start
from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.machine.event_log import TraceLog
from chaos.simulator.node.machine.fail_points import FailPoints
from chaos.simulator.node.machine.process import ProcessScheduler
from chaos.simulator.node.machine.round_queue import RoundQueue
from chaos.simulator.node.machine.threads import SimulatedThreads
from chaos.simulator.node.peers.bulk_channel import BulkChannel
from chaos.simulator.node.replicas.repair import DamageRepair
from multiraft.errors import MultiRaftError
from multiraft.raft.log_reader import LogBounds
from multiraft.raft.multi_raft import MultiRaft
from multiraft.storage.disk_space import DiskSpaceGuard
from multiraft.storage.store import Store
from node.errors import DiskFailed
from node.replicas import record_copies_messages
from node.replicas.group_downloads import GroupDownloads
from node.replicas.group_snapshot import GroupSnapshot
from node.replicas.group_snapshot_installer import GroupSnapshotInstaller
from node.replicas.record_copies import RecordCopies, Stage
from node.replicas.record_copies_messages import OPERATION, RecordsReply, RecordsRequest
from node.replicas.snapshot_receiver import ChunkPeers

#: Largest snapshot that is accepted.
SNAPSHOT_BYTES_MAX = 1 << 24


class InstallationPorts:
    """Core, store and checkpoints as an installation sees them: each call is an effect of its own,
    and the state checker hears of it."""

    def __init__(self, env: NodeEnv, fail_points: FailPoints, threads: SimulatedThreads,
                 raft: MultiRaft, store: Store, checkpoints: Checkpoints):
        self.alone = checkpoints.alone
        self.status = raft.status
        self.begin_install = raft.begin_install
        self.common_index = raft.common_index
        self.set_records_left = raft.set_records_left
        self.copied = store.copied
        self.is_tombstone_durable = store.is_tombstone_durable
        self._env = env
        self._fail_points = fail_points
        self._threads = threads
        self._raft = raft
        self._store = store
        self._writer = checkpoints.writer
        self._installed: dict[int, LogBounds] = {}
        self._durable: dict[int, LogBounds] = {}

    def install(self, group: int, bounds: LogBounds, *replica: Any, **records: Any) -> None:
        """Replace the replica in the store."""
        self._fail_points.effect()
        self._env.state_checker.installing(self._env.node, group, bounds.last_index,
                                           bounds.prev_term)
        self._store.install(group, bounds, *replica, **records)
        self._installed[group] = bounds

    async def write_installed(self) -> None:
        """Write a checkpoint, while rounds run. Raises ``DiskFailed``."""
        self._fail_points.effect()
        captured = dict(self._installed)
        await self._writer.write_installed(self._threads.pause)
        self._durable |= captured

    def install_snapshot(self, group: int, bounds: LogBounds, *replica: Any) -> None:
        """Tell the core. Raises ``Violation`` unless the snapshot is durable."""
        if self._durable.get(group) != bounds:
            raise Violation("SnapshotsAreDurable", f"n{self._env.node} tells consensus of a "
                            f"snapshot of g{group} at {bounds.last_index} that no checkpoint holds")
        self._env.state_checker.installed(self._env.node, group)
        self._raft.install_snapshot(group, bounds, *replica)


class GroupSnapshotExchange:
    """Downloads of snapshots, and copies of records, of one boot."""

    def __init__(self, env: NodeEnv, process: ProcessScheduler, rounds: RoundQueue,
                 fail_points: FailPoints, raft: MultiRaft, store: Store, worker: DiskWorker,
                 checkpoints: Checkpoints, guard: DiskSpaceGuard, bulk: BulkChannel,
                 threads: SimulatedThreads, repair: DamageRepair, peers: ChunkPeers):
        self._env = env
        self._process = process
        self._raft = raft
        self._store = store
        self._worker = worker
        self._bulk = bulk
        self._repair = repair
        ports = InstallationPorts(env, fail_points, threads, raft, store, checkpoints)
        installer = GroupSnapshotInstaller(ports, ports, ports, rounds.request, self._installed)
        self._downloads = GroupDownloads(
            store.partition_states, peers, threads.run, guard, installer.install,
            SNAPSHOT_BYTES_MAX, TraceLog(env))
        self._copies = RecordCopies(
            raft, store, self, self._write, threads.run, threads.pause, lambda: env.now_ms, guard,
            repair.found, repair.records_copied, rounds.request, TraceLog(env))
        bulk.handlers[OPERATION] = self._answer
        self._is_downloading = self._is_copying = False

    def begin(self) -> None:
        """Copy what the recovered replicas lack."""
        self._copies.add_incomplete()
        self._copy()

    # ---- snapshots -------------------------------------------------------------------------

    def offered(self, group: int, leader: int) -> None:
        """Download a snapshot of a group from ``leader``."""
        self._env.faults["group-snapshot-offered"] += 1
        self._downloads.offer(group, leader)
        if not self._is_downloading:
            self._is_downloading = True
            self._process.later(0, self._download)

    def _download(self) -> None:
        start(self._process_all(), self._process.later, raise_error)

    async def _process_all(self) -> None:
        try:
            await self._downloads.process_all()
        except DiskFailed as error:
            assert isinstance(error.__cause__, OSError)
            self._worker.end(error.__cause__)
        self._is_downloading = False

    def _installed(self, snapshot: GroupSnapshot) -> None:
        self._env.faults["group-snapshot-installed"] += 1
        self._env.trace_line("snapshot_installed", str(snapshot.bounds.last_index), snapshot.group)
        self._copies.add(snapshot.group)
        self._copy()

    # ---- records ---------------------------------------------------------------------------

    @property
    def incomplete(self) -> list[str]:
        """Describe the replicas that lack records."""
        return [f"g{group} lacks {self._raft.status.records_left(group)}"
                for group in self._copies.groups]

    def _copy(self) -> None:
        if not self._is_copying and self._copies.groups:
            self._is_copying = True
            self._process.later(0, self._start_copying)

    def _start_copying(self) -> None:
        start(self._copies.copy_all(), self._process.later, self._ended)

    def _ended(self, value: None, error: MultiRaftError | None) -> None:
        raise_error(value, error)
        self._is_copying = False
        self._copy()

    async def _write(self, stage: Stage) -> None:
        durable = Future()
        staged = stage(durable.set_result)
        if staged is not None:
            self._env.event_counts["records copied"] += 1
            self._worker.gather.write(staged)
            await durable

    async def ask(self, peer: int, request: RecordsRequest) -> RecordsReply | None:
        """Return the reply of ``peer`` to a request for records."""
        reply = await self._bulk.ask(peer, record_copies_messages.request_header(request))
        return record_copies_messages.read_reply(request, reply.header, memoryview(reply.payload))

    async def _answer(self, peer: int, header: dict,
                      _payload: memoryview) -> tuple[dict, Sequence]:
        reply = await self._copies.copies_for(peer, record_copies_messages.read_request(header))
        return record_copies_messages.reply_frame(reply)

