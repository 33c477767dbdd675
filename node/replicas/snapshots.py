"""Snapshots of groups, for nodes whose next entry is compacted away.

Contract. ``on_snapshot_offer`` records a leader's offer. ``run`` is the task that downloads the
state of the metadata group in chunks over a bulk connection and installs it, ``run_groups`` the one
for groups with partitions. ``answer`` serves chunks to other nodes. ``compact`` removes old entries
of the metadata group once a checkpoint holds their effect. A thread encodes and decodes a snapshot
in pieces; the loop only copies references.

This module has the tasks, threads and connections. What is served is decided in
``snapshot_source``, what is downloaded in ``snapshot_receiver`` and ``group_downloads``.
``snapshot_installer`` and ``group_snapshot_installer`` have the order of an installation.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from multiraft.storage.snapshot_download import PartialSnapshot, SnapshotDownload
from multiraft.types import METADATA_GROUP
from node.limits import Limits
from node.loop.disk_space import Space
from node.metadata.state_machine import MetadataState
from node.peers.bulk_channel import Bulk
from node.replicas import group_snapshot, snapshot_messages
from node.replicas.group_downloads import GroupDownloads
from node.replicas.group_snapshot import GroupSnapshot
from node.replicas.group_snapshot_installer import GroupSnapshotInstaller
from node.replicas.snapshot_installer import SnapshotInstaller
from node.replicas.snapshot_messages import OPERATION, Chunk, ChunkRequest
from node.replicas.snapshot_receiver import SnapshotReceiver
from node.replicas.snapshot_source import ServingLimits, SnapshotSource
from node.replicas.snapshot_state import CapturedState, capture

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.storage.store import Store
    from node.loop.checkpoints import Checkpoints
    from node.metadata.log import MetadataLog

#: Bytes of a snapshot per reply: small enough to be sent again, and large enough to make the round
#: trip negligible.
CHUNK_BYTES = 1 << 20
#: Largest snapshot that is accepted, in bytes: the limit of a checkpoint, which holds the same.
SNAPSHOT_BYTES_MAX = 1 << 30
#: Least time for which a snapshot is served unchanged after its last request, in seconds.
SNAPSHOT_LIFE_S = 60.0
#: Groups of which a snapshot is kept in memory: each is of one group, and most are small.
SERVED_GROUPS_MAX = 32


class Snapshots:
    """The snapshots of one node: the download tasks and the handler of other nodes' requests."""

    def __init__(self, core: MultiRaft, store: Store, metadata_log: MetadataLog,
                 checkpoints: Checkpoints, bulk: Bulk, limits: Limits,
                 request_round: Callable[[], None], log: logging.Logger, partial: SnapshotDownload,
                 space: Space, installed: Callable[[], None] = lambda: None,
                 group_installed: Callable[[int], None] = lambda _group: None):
        """Create the tasks and register the handler. ``installed()`` is called after each snapshot
        of the metadata group that took effect, ``group_installed(group)`` after those of groups
        with partitions."""
        self._core = core
        self._store = store
        self._metadata_log = metadata_log
        self._checkpoints = checkpoints
        self._bulk = bulk
        self._log = log
        self._leader = 0  # leader of the last offer; 0 = none since the last attempt
        self._offer = trio.Event()
        self.installed = 0  # since the start
        self._on_installed = installed
        self._on_group_installed = group_installed
        self._waits = False  # for the next offer
        self._source = SnapshotSource(
            core, self._capture,
            ServingLimits(CHUNK_BYTES, SNAPSHOT_LIFE_S, limits.metadata_entries_kept,
                          limits.metadata_catch_up_entries_max, SERVED_GROUPS_MAX),
            trio.to_thread.run_sync, trio.Lock(), trio.current_time)
        installer = SnapshotInstaller(
            core, store, checkpoints, MetadataState.restore, metadata_log.install,
            trio.to_thread.run_sync, request_round, self._count_installed)
        self._receiver = SnapshotReceiver(
            METADATA_GROUP, store.partition_states, self, trio.to_thread.run_sync, partial, space,
            installer.install, SNAPSHOT_BYTES_MAX, log)
        self._group_offer = trio.Event()
        self._downloads = GroupDownloads(
            store.partition_states, self, trio.to_thread.run_sync, space,
            GroupSnapshotInstaller(core, store, checkpoints, request_round,
                                   self._count_group_installed).install,
            SNAPSHOT_BYTES_MAX, log)
        bulk.handlers[OPERATION] = self.answer
        checkpoints.completed.subscribe(self.compact)

    def compact(self) -> None:
        """Remove the entries of the metadata group that the last checkpoint covers, except the
        newest ones and those that a node that is catching up needs.

        Wake ``run``, which drops a download that became useless."""
        self._source.compact(self._checkpoints.metadata_applied)
        self._source.forget_unused()
        self._offer.set()  # lets ``run`` drop a download that this replica's log has overtaken

    def held_from(self, group: int) -> int:
        """Return the index behind a snapshot of a group that is served now, at which the log has to
        continue; above all indexes if there is none."""
        return self._source.held_from(group)

    async def answer(self, _peer: int, header: dict, _payload: memoryview) -> tuple[dict, list]:
        """Return the requested chunk of the snapshot that is served, or the first chunk of another
        one; ``known`` False = there is none here. Takes a new snapshot on a thread if need be.
        Raises ``Malformed`` for an invalid request."""
        chunk = await self._source.answer(snapshot_messages.read_request(header))
        return snapshot_messages.chunk_header(chunk), [] if chunk is None else [chunk.data]

    async def ask(self, peer: int, request: ChunkRequest) -> Chunk | None:
        """Return the reply of ``peer`` to a request for a chunk; None = it has no snapshot. Raises
        ``NoAnswer`` without a reply, ``Malformed`` for an invalid one."""
        frame = await self._bulk.ask(peer, snapshot_messages.request_header(request))
        return snapshot_messages.read_chunk(frame.header, frame.payload)

    def on_snapshot_offer(self, group: int, leader: int) -> None:
        """Wake the task that downloads from ``leader``, which has compacted the entries that this
        replica of ``group`` needs next."""
        if group == METADATA_GROUP:
            self._leader = leader
            self._offer.set()
        else:
            self._downloads.offer(group, leader)
            self._group_offer.set()

    async def run(self) -> None:
        """Download and install offered snapshots, one at a time, until cancelled. A failed download
        is logged and resumed at the next offer. Raises ``DiskFailed`` if the file of the download
        cannot be read or written."""
        await self._receiver.resume()
        while True:
            self._waits = True
            await self._offer.wait()
            self._waits, self._offer = False, trio.Event()
            leader, self._leader = self._leader, 0
            await self._receiver.process(leader)

    async def run_groups(self) -> None:
        """Download and install offered snapshots of groups with partitions until cancelled, and
        drop those that are served and no longer requested. Raises ``DiskFailed`` if a checkpoint
        cannot be written."""
        while True:
            with trio.move_on_after(SNAPSHOT_LIFE_S):
                await self._group_offer.wait()
            self._group_offer = trio.Event()
            self._source.forget_unused()
            await self._downloads.process_all()

    def _capture(self, group: int) -> CapturedState:
        """Return the applied state of a group, which has a replica here."""
        if group != METADATA_GROUP:
            return group_snapshot.capture(self._core, self._store, group)
        return capture(self._core, self._store.partition_states[group], self._metadata_log.state)

    @property
    def idle(self) -> bool:
        """True if every offer has been processed."""
        return self._waits and not self._offer.is_set()

    def _count_group_installed(self, snapshot: GroupSnapshot) -> None:
        self.installed += 1
        self._log.info("snapshot_installed", extra={
            "group": snapshot.group, "term": snapshot.bounds.prev_term,
            "index": snapshot.bounds.last_index, "bytes": snapshot.size})
        self._on_group_installed(snapshot.group)

    def _count_installed(self, download: PartialSnapshot) -> None:
        self._on_installed()
        self._metadata_log.follow()  # at once: the next entry may be long in coming
        self.installed += 1
        self._log.info("snapshot_installed", extra={
            "group": METADATA_GROUP, "term": download.term, "index": download.index,
            "bytes": download.total})
