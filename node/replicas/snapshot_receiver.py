"""Download of a snapshot of one group from the leader that offers it.

Contract. ``resume`` takes up what an earlier start has kept. ``process`` requests the rest from the
leader that offers it, chunk by chunk, and installs the whole; without a leader it drops a download
that became useless. Peers, disk and installation are the driver's.

Invariants. The download is of one snapshot, which index, term and CRC identify: no chunk of another
one is appended to it. Its file holds a prefix of it, or nothing. A download that breaks off resumes
at the next offer, if the leader still has the same snapshot. It is dropped if the leader has
another snapshot, if its bytes are no valid snapshot, after its installation, and when this
replica's log has reached its index.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

from multiraft import core as codec
from multiraft.errors import CodecError
from multiraft.storage.disk_space import is_full
from multiraft.storage.snapshot_download import PartialSnapshot
from multiraft.wire.schema import Malformed
from node.errors import DiskFailed
from node.event_log import EventLog
from node.peers.errors import NoAnswer
from node.replicas.snapshot_messages import Chunk, ChunkRequest

if TYPE_CHECKING:
    from multiraft.partitions.state import PartitionStates

#: A download is kept on disk if this many times its size is free: records have precedence.
FREE_FACTOR = 4


class ChunkPeers(Protocol):
    """Requests to other nodes."""

    async def ask(self, peer: int, request: ChunkRequest) -> Chunk | None:
        """Return the reply of ``peer``; None = it has no snapshot. Raises ``NoAnswer`` without a
        reply, ``Malformed`` for an invalid one."""


class FreeSpace(Protocol):
    """Free space of the disk."""

    @property
    def full(self) -> bool:
        """True while records are refused."""

    @property
    def free(self) -> int:
        """Free bytes."""


class DownloadFile(Protocol):
    """File of the received part of a snapshot (``SnapshotDownload``)."""

    def load(self) -> PartialSnapshot | None: ...

    def begin(self, arrived: PartialSnapshot) -> None: ...

    def append(self, chunk: bytes | bytearray | memoryview) -> None: ...

    def remove(self) -> None: ...


class NoFile:
    """Stand-in for the file of a download that is kept in memory only."""

    def load(self) -> None:
        """Return None: nothing was kept."""

    def begin(self, arrived: PartialSnapshot) -> None:
        """Keep nothing."""

    def append(self, chunk: bytes | bytearray | memoryview) -> None:
        """Keep nothing."""

    def remove(self) -> None:
        """Remove nothing."""


class SnapshotReceiver:
    """The snapshot of ``group`` that one node downloads."""

    def __init__(self, group: int, partition_states: dict[int, PartitionStates], peers: ChunkPeers,
                 on_thread: Callable[..., Awaitable[Any]], file: DownloadFile,
                 space: FreeSpace, install: Callable[[PartialSnapshot], Awaitable[None]],
                 bytes_max: int, log: EventLog):
        """``on_thread(call, *arguments)`` returns the result of a call that may block;
        ``bytes_max`` is the largest snapshot that is accepted."""
        self.group = group
        self.received: PartialSnapshot | None = None
        self._partition_states = partition_states
        self._peers = peers
        self._on_thread = on_thread
        self._file = file
        self._space = space
        self._install = install
        self._bytes_max = bytes_max
        self._log = log

    async def resume(self) -> None:
        """Take up the download that an earlier start has kept, if there is one. Does nothing while
        a download is under way. Raises ``DiskFailed`` if its file cannot be read."""
        if self.received is None:
            self.received = await self._on_disk(self._file.load)
        known = self.received
        if known is not None:
            self._log.info("snapshot_download_resumed", extra={
                "group": self.group, "index": known.index, "bytes": len(known.data),
                "total_bytes": known.total})

    async def process(self, leader: int) -> bool:
        """Process the offer of ``leader``, or with 0 only drop the download if this replica has
        applied everything that it contains. Return False if the download failed: that is logged,
        and the next offer resumes it. Raises ``DiskFailed`` if the download cannot be kept."""
        if self.received is not None and self._is_overtaken(self.received):
            await self._drop()
        if not leader:
            return True
        try:
            whole = await self.download(leader)
            if whole is not None:
                await self._install(whole)
                await self._drop()
        except (NoAnswer, Malformed, CodecError) as error:
            self._log.warning("snapshot_download_failed", extra={
                "group": self.group, "peer": leader, "reason": str(error)})
            return False
        return True

    def _is_overtaken(self, received: PartialSnapshot) -> bool:
        """Return True if this replica has applied everything that the download contains."""
        # None: the replica was not created again since the start.
        states = self._partition_states.get(self.group)
        return states is not None and states.applied_index >= received.index

    async def download(self, peer: int) -> PartialSnapshot | None:
        """Download the rest of the snapshot from ``peer`` and return all of it; None = the peer has
        none to serve. A wrong CRC drops the download. Raises ``NoAnswer`` without a reply,
        ``Malformed`` for an invalid one or a wrong CRC."""
        while True:
            known = self.received
            chunk = await self._peers.ask(peer, ChunkRequest(
                self.group, known.index if known else 0, len(known.data) if known else 0))
            if chunk is None:
                return None
            whole = await self._take(chunk)
            if len(whole.data) == whole.total:
                if codec.crc32c(whole.data) != whole.crc:
                    await self._drop()
                    raise Malformed("the CRC of the snapshot does not match")
                return whole

    async def _take(self, chunk: Chunk) -> PartialSnapshot:
        """Append a chunk to the download and return it; a chunk of another snapshot begins another
        download. Raises ``Malformed`` for a chunk that does not continue the download, which is
        dropped then."""
        total, offset, data = chunk.total, chunk.offset, chunk.data
        if total > self._bytes_max:
            raise Malformed(f"a snapshot of {total} bytes, the limit is {self._bytes_max}")
        known = self.received
        if (known is None
                or (known.index, known.term, known.crc) != (chunk.index, chunk.term, chunk.crc)):
            await self._drop()
            known = self.received = PartialSnapshot(chunk.index, chunk.term, total, chunk.crc,
                                                    bytearray())
        if (offset != len(known.data) or total != known.total
                or not 0 < len(data) <= total - offset):
            await self._drop()
            raise Malformed(f"{len(data)} bytes at {offset} of {total}, {len(known.data)} known")
        known.data += data
        await self._keep(known, data)
        return known

    async def _keep(self, known: PartialSnapshot, chunk: bytes | memoryview) -> None:
        """Write a chunk to disk for a restart; if the disk is full or has little space, keep the
        download in memory only. Raises ``DiskFailed`` for another error."""
        try:
            if len(known.data) == len(chunk):
                if not self._space.full and self._space.free >= FREE_FACTOR * known.total:
                    await self._on_disk(self._file.begin, known)
            else:
                await self._on_disk(self._file.append, chunk)
        except DiskFailed as error:
            if not isinstance(error.__cause__, OSError) or not is_full(error.__cause__):
                raise

    async def _drop(self) -> None:
        self.received = None
        await self._on_disk(self._file.remove)

    async def _on_disk(self, call: Callable, *arguments: Any) -> Any:
        """Return the result of ``call``, run on a thread. Raises ``DiskFailed`` for its
        ``OSError``."""
        try:
            return await self._on_thread(call, *arguments)
        except OSError as error:
            raise DiskFailed(f"what arrives of a snapshot cannot be kept: {error}") from error
