"""Snapshots of group 0 on a simulated node: served, fetched in chunks and installed; compaction.

Contract.  As in ``node/replicas/snapshots.py``.  The state goes into each checkpoint.  Consensus
compacts all but the newest commands that a checkpoint holds.  A replica that lacks compacted
commands is offered a snapshot, pulls it in chunks that may be lost, and installs it as one
checkpoint before the core learns of it.
"""

from __future__ import annotations

import marshal
from typing import NamedTuple

from chaos.simulator.disk.disk_worker import DiskWorker
from chaos.simulator.node.checkpoints import Checkpoints
from chaos.simulator.node.connections import Connections
from chaos.simulator.node.env import NodeEnv
from chaos.simulator.node.fail_points import FailPoints
from chaos.simulator.node.metadata_replica import MetadataReplica
from chaos.simulator.node.process import ProcessScheduler
from chaos.simulator.node.round_queue import RoundQueue
from multiraft import core
from multiraft.partitions.state import PartitionStates
from multiraft.raft import snapshot
from multiraft.raft.log_reader import LogBounds
from multiraft.raft.multi_raft import MultiRaft
from multiraft.storage.disk_space import DiskSpaceGuard
from multiraft.storage.store import Store
from multiraft.types import METADATA_GROUP, Configuration
from node.errors import DiskFailed

#: An image is served unchanged while its last request is at most so old.
SNAPSHOT_KEPT_MS = 2_000
#: Commands that stay in the log for a replica that catches up: few, so that it sometimes needs a
#: snapshot all the same.
COMMANDS_HELD_MAX = 50
#: Maximum number of chunks of an image; chunks grow beyond the drawn size for large metadata.
CHUNKS_MAX = 64
#: Retry interval of an installation while the disk is busy.
INSTALL_PAUSE_US = 1_000


class MetadataSnapshot(NamedTuple):
    """Encoded state at one index; it never changes."""

    bounds: LogBounds
    data: bytes


class ChunkRequest(NamedTuple):
    """Request of a follower: the image of ``index`` from ``offset``; 0, 0 = any image from its
    start.
    """

    index: int
    offset: int


class Chunk(NamedTuple):
    """Reply of the leader; ``total`` 0 = it has no image to give."""

    index: int
    term: int
    total: int
    crc: int
    offset: int
    data: bytes


class Download(NamedTuple):
    """Part of an image that has arrived."""

    index: int
    term: int
    total: int
    crc: int
    data: bytes


class SnapshotExchange:
    """Snapshots of one boot."""

    def __init__(self, env: NodeEnv, process: ProcessScheduler, rounds: RoundQueue,
                 fail_points: FailPoints, raft: MultiRaft, store: Store, worker: DiskWorker,
                 guard: DiskSpaceGuard, connections: Connections, metadata: MetadataReplica):
        checkpoints = Checkpoints(env, process, raft, store, worker, guard, metadata, self.compact)
        self._env = env
        self._process = process
        self._rounds = rounds
        self._fail_points = fail_points
        self._raft = raft
        self._store = store
        self._worker = worker
        self.ask_for_checkpoint = checkpoints.ask_later
        self._checkpoints = checkpoints.writer
        self._connections = connections
        self._metadata = metadata
        self._snapshot: tuple[MetadataSnapshot, int] | None = None  # and when it was asked for last
        self._download: Download | None = None
        self._installing = False

    # ---- checkpoints and compaction --------------------------------------------------------

    def compact(self, applied: int) -> None:
        """Compact the commands up to ``applied``, which a checkpoint holds; no-op when this replica
        has not applied so many, or is gone.

        The newest commands stay, and those that a replica needs which catches up.
        """
        if (METADATA_GROUP not in self._raft.status.groups()
                or applied > self._raft.status.applied_index(METADATA_GROUP)):
            return  # the checkpoint may be of a replica that was removed meanwhile
        first_index = snapshot.log_start(applied, self._env.parameters.commands_kept,
                                         COMMANDS_HELD_MAX, self._needed_from())
        if first_index > 1:
            self._raft.compacted(METADATA_GROUP, first_index)

    def _needed_from(self) -> int:
        needed = self._raft.needed_from(METADATA_GROUP)
        if self._snapshot is not None and self._env.now_ms - self._snapshot[1] <= SNAPSHOT_KEPT_MS:
            needed = min(needed, self._snapshot[0].bounds.last_index + 1)
        return needed

    # ---- serving ---------------------------------------------------------------------------

    def serve(self, sender: int, request: ChunkRequest) -> None:
        if (METADATA_GROUP not in self._raft.status.groups()
                or self._raft.status.of(METADATA_GROUP).quarantined):
            self._connections.send_bulk(sender, Chunk(0, 0, 0, 0, 0, b""))
            return
        image = self._snapshot
        first_index = self._raft.status.of(METADATA_GROUP).first_index
        if image is None or (image[0].bounds.last_index != request.index
                             and (self._env.now_ms - image[1] > SNAPSHOT_KEPT_MS
                                  or image[0].bounds.last_index < first_index - 1)):
            image = (self._take_snapshot(), 0)
        self._snapshot = (image[0], self._env.now_ms)
        bounds, data = image[0]
        offset = request.offset
        if bounds.last_index != request.index or offset > len(data):
            offset = 0
        size = max(self._env.parameters.snapshot_chunk_bytes, len(data) // CHUNKS_MAX)
        self._connections.send_bulk(
            sender, Chunk(bounds.last_index, bounds.prev_term, len(data), core.crc32c(data), offset,
                          data[offset:offset + size]))

    def _take_snapshot(self) -> MetadataSnapshot:
        bounds, index, configuration = self._raft.snapshot_point(METADATA_GROUP)
        tail = self._store.partition_states[METADATA_GROUP]
        return MetadataSnapshot(
            bounds,
            marshal.dumps([index, [*map(list, configuration)], tail.snapshot(),
                           self._metadata.extra()]),
        )

    # ---- fetching --------------------------------------------------------------------------

    def offered(self, leader: int) -> None:
        """Request the next chunk of an image from ``leader``, which has compacted the entries that
        this replica needs."""
        self._env.faults["snapshot-offered"] += 1
        known = self._download
        self._connections.send_bulk(leader, ChunkRequest(known.index, len(known.data)) if known
                                    else ChunkRequest(0, 0))

    def take_chunk(self, sender: int, chunk: Chunk) -> None:
        if not chunk.total or self._installing:
            return
        known = self._download
        if known is None or known[:4] != chunk[:4]:
            # The chunk is of another image, perhaps of the same index but from another leader, so
            # the download starts again.
            known = self._download = Download(*chunk[:4], b"")
        if chunk.offset != len(known.data):
            return  # a duplicate or late chunk; the next offer leads to a new request
        known = self._download = known._replace(data=known.data + chunk.data)
        if len(known.data) < known.total:
            self._connections.send_bulk(sender, ChunkRequest(known.index, len(known.data)))
        else:
            self._installing = True
            self._install(known)

    def _install(self, whole: Download) -> None:
        """Install an image in one step of the loop, as soon as the disk is idle; drop it when the
        core needs it no longer."""
        if not self._worker.operations.is_idle:
            self._process.later(INSTALL_PAUSE_US, self._install, whole)
            return
        self._installing, self._download = False, None
        if not self._raft.may_install(METADATA_GROUP, whole.index, whole.term):
            self._rounds.request()  # no longer needed, or possible only after the next offer
            return
        index, configuration, tail, state = marshal.loads(whole.data)
        members = Configuration(*map(tuple, configuration))
        restored = PartitionStates.restore(tail)
        bounds = LogBounds(whole.index + 1, whole.term, whole.index)
        self._fail_points.effect()
        self._env.state_checker.installing(self._env.node, METADATA_GROUP, whole.index, whole.term)
        self._store.install(METADATA_GROUP, bounds, index, members, restored)
        self._metadata.take_state(state)
        self._metadata.check(whole.index)
        if not self._checkpoint_now():
            return
        self._metadata.changed()
        self._env.state_checker.installed(self._env.node, METADATA_GROUP)
        self._raft.install_snapshot(METADATA_GROUP, bounds, index, members, restored)
        self._env.faults["snapshot-installed"] += 1
        self._env.trace_line("snapshot_installed", str(whole.index), METADATA_GROUP)
        self._rounds.request()

    def _checkpoint_now(self) -> bool:
        """Write a checkpoint before the round continues, and return True. False = the disk failed
        and the node has ended.

        An armed crash may strike between any two of its file operations.
        """
        self._fail_points.strike_in_files()
        try:
            self._checkpoints.write_now()
        except DiskFailed as error:
            assert isinstance(error.__cause__, OSError), "a disk fails with an error"
            self._worker.fail(error.__cause__)
            return False
        self._fail_points.files_done()
        return True
