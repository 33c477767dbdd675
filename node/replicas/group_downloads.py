"""Snapshots of groups with partitions that this node downloads, in the order of their offers.

Contract. ``offer`` records a leader's offer. ``process_all`` downloads what is offered, one
snapshot at a time, and installs several with one checkpoint. Peers, threads and the installation
are the driver's.

Invariants. Each group is offered at most once at a time, by the leader that offered last. A group
whose snapshot waits for its checkpoint is not downloaded again: leaders repeat offers until then,
and a slow peer would keep the download from ever reaching its last offer. At most
``OFFERS_MAX`` offers wait; leaders repeat those that were left out, and those of downloads that
failed. Snapshots that wait for their checkpoint have at most ``BATCH_BYTES_MAX`` bytes, or are one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from multiraft.storage.snapshot_download import PartialSnapshot
from node.event_log import EventLog
from node.replicas import group_snapshot
from node.replicas.group_snapshot import GroupSnapshot
from node.replicas.snapshot_receiver import ChunkPeers, FreeSpace, NoFile, SnapshotReceiver

if TYPE_CHECKING:
    from multiraft.partitions.state import PartitionStates

#: Offers that wait, 16 bytes each: a node that was away has one for each of its groups.
OFFERS_MAX = 16_384
#: Snapshots that are installed with one checkpoint: some seconds of downloads. Their replicas
#: take no entries until the checkpoint is durable.
BATCH_MAX = 64
#: Bytes of downloaded snapshots that wait for their checkpoint.
BATCH_BYTES_MAX = 64 << 20


class GroupDownloads:
    """Offered snapshots of one node's groups."""

    def __init__(self, partition_states: dict[int, PartitionStates], peers: ChunkPeers,
                 on_thread: Callable[..., Awaitable[Any]], space: FreeSpace,
                 install: Callable[[Sequence[GroupSnapshot]], Awaitable[None]], bytes_max: int,
                 log: EventLog):
        """``on_thread(call, *arguments)`` returns the result of a call that takes long;
        ``bytes_max`` is the largest snapshot that is accepted."""
        self._partition_states = partition_states
        self._peers = peers
        self._on_thread = on_thread
        self._space = space
        self._install = install
        self._bytes_max = bytes_max
        self._log = log
        self._offers: dict[int, int] = {}  # group -> leader, oldest first
        self._batch: list[GroupSnapshot] = []  # until its checkpoint is durable
        self._batch_bytes = 0
        self._interrupted: SnapshotReceiver | None = None

    @property
    def waiting(self) -> int:
        """Number of offers that wait."""
        return len(self._offers)

    def offer(self, group: int, leader: int) -> None:
        """Record that ``leader`` offers a snapshot of ``group``. The offer is left out above
        ``OFFERS_MAX``, and while the group waits for a checkpoint: the leader repeats it."""
        if any(each.group == group for each in self._batch):
            return
        if group in self._offers or len(self._offers) < OFFERS_MAX:
            self._offers[group] = leader

    async def process_all(self) -> None:
        """Download and install what is offered, until no offer is left. A leader that does not
        answer validly costs one request: its other offers are left out until it repeats them.
        Raises ``DiskFailed`` if a checkpoint cannot be written."""
        while self._offers:
            group = next(iter(self._offers))
            leader = self._offers.pop(group)
            if not await self._download(group, leader):
                self._offers = {each: other for each, other in self._offers.items()
                                if other != leader}
            if (not self._offers or len(self._batch) >= BATCH_MAX
                    or self._batch_bytes >= BATCH_BYTES_MAX):
                await self._install_batch()

    async def _download(self, group: int, leader: int) -> bool:
        """Download the snapshot of a group into the batch. Return False if that failed."""
        receiver = self._interrupted
        if receiver is None or receiver.group != group:
            receiver = SnapshotReceiver(
                group, self._partition_states, self._peers, self._on_thread, NoFile(), self._space,
                lambda download: self._add(group, download), self._bytes_max, self._log)
        is_answered = await receiver.process(leader)
        # Of one download the received part is kept, in memory.
        self._interrupted = receiver if receiver.received is not None else None
        return is_answered

    async def _add(self, group: int, download: PartialSnapshot) -> None:
        """Decode a whole download and add it to the batch. Raises ``Malformed`` or ``CodecError``
        for bytes that are no snapshot of the group."""
        self._batch.append(await self._on_thread(group_snapshot.decode, group, download))
        self._batch_bytes += download.total
        self._offers.pop(group, None)  # repeated while it was downloaded

    async def _install_batch(self) -> None:
        if self._batch:
            await self._install(self._batch)
            self._batch, self._batch_bytes = [], 0
