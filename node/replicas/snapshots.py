"""Snapshots of the metadata group, for nodes whose next entry is compacted away.

Contract. ``on_snapshot_offer`` records a leader's offer. ``run`` is the task that downloads the
state in chunks over a bulk connection and installs it. ``answer`` serves chunks to other nodes. A
download that breaks off resumes at the next offer, if the leader still has the same snapshot; so
does the download of a node that restarted, from what ``SnapshotDownload`` kept. ``compact`` removes
old entries once a checkpoint holds their effect. A thread encodes and decodes a snapshot in pieces
(``multiraft.storage.chunked_cbor``); the loop only copies references.

Invariants. A snapshot never changes. It is named by the (index, term) of its state, and no snapshot
of an earlier incarnation of the group is served. The installation is one synchronous step of the
loop, its durable checkpoint included: nothing can happen to the group between the check that it may
be installed and the end, and no other part observes it before it is durable. This stalls the loop
for one small file, once per snapshot. A download is dropped if the leader has another snapshot, if
its bytes are no valid snapshot, after its installation, and when this replica's log has reached its
index.

Theory. Raft paper, section 7. Groups with partitions are never compacted without retention, because
their log is the data. The log of the metadata group is a history that every node has applied. Its
newest ``metadata_entries_kept`` entries are enough for a node that was absent briefly; a node that
was absent longer, or joins, receives the state. If commands arrive faster than a snapshot is
downloaded, the log must not begin behind that snapshot: otherwise the next snapshot would be due as
soon as this one is installed, without end. The log start is therefore held back, by up to
``metadata_catch_up_entries_max`` entries.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import trio
from cbor2 import CBORDecodeError

from multiraft import core as codec
from multiraft.codec import shapes
from multiraft.errors import CodecError
from multiraft.partitions.state import PartitionStates
from multiraft.raft import snapshot
from multiraft.raft.log_reader import LogBounds
from multiraft.storage import chunked_cbor
from multiraft.storage.snapshot_download import PartialSnapshot, SnapshotDownload
from multiraft.types import METADATA_GROUP, Configuration
from multiraft.wire.schema import Malformed
from node.errors import DiskFailed
from node.limits import Limits
from node.loop.disk_space import Space, is_full
from node.metadata.state_machine import MetadataState
from node.peers.bulk_channel import Bulk, NoAnswer

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.storage.store import Store
    from node.loop.checkpoints import Checkpoints
    from node.metadata.log import MetadataLog

OPERATION = "snapshot"
#: Bytes of a snapshot per reply: small enough to be sent again, and large enough to make the round
#: trip negligible.
CHUNK_BYTES = 1 << 20
#: Largest snapshot that is accepted, in bytes: the limit of a checkpoint, which holds the same.
SNAPSHOT_BYTES_MAX = 1 << 30
#: Least time for which a snapshot is served unchanged after its last request, in seconds.
SNAPSHOT_LIFE_S = 60.0
#: A download is kept on disk if this many times its size is free: records have precedence.
FREE_FACTOR = 4
_U32, _U64 = (1 << 32) - 1, (1 << 64) - 1


@dataclass(slots=True)
class Snapshot:
    """The encoded state of the group at one index."""

    bounds: LogBounds
    data: bytes
    crc: int
    used_s: float
    incarnation: int  # of the group


class Snapshots:
    """The snapshots of one node: the download task and the handler of other nodes' requests."""

    def __init__(self, core: MultiRaft, store: Store, metadata_log: MetadataLog,
                 checkpoints: Checkpoints, bulk: Bulk, limits: Limits,
                 request_round: Callable[[], None], log: logging.Logger, partial: SnapshotDownload,
                 space: Space, installed: Callable[[], None] = lambda: None):
        """Create the task and register its handler. ``installed()`` is called after each snapshot
        that took effect."""
        self._core = core
        self._store = store
        self._metadata_log = metadata_log
        self._checkpoints = checkpoints
        self._bulk = bulk
        self._limits = limits
        self._request_round = request_round
        self._log = log
        self._snapshot: Snapshot | None = None
        self._taking = trio.Lock()
        self._partial = partial
        self._space = space
        self._download: PartialSnapshot | None = None
        self._leader = 0  # leader of the last offer; 0 = none since the last attempt
        self._offer = trio.Event()
        self.installed = 0  # since the start
        self._on_installed = installed
        self._waits = False  # for the next offer
        bulk.handlers[OPERATION] = self.answer
        checkpoints.completed.subscribe(self.compact)

    # ---- compaction ----------------------------------------------------------------------------

    def compact(self) -> None:
        """Remove the entries of the metadata group that the last checkpoint covers, except the
        newest ones and those that a node that is catching up needs.

        Wake ``run``, which drops a download that became useless."""
        applied, limits = self._checkpoints.metadata_applied, self._limits
        # The replica may have been removed and created again since the checkpoint was captured.
        if (METADATA_GROUP in self._core.status.groups()
                and applied <= self._core.status.applied_index(METADATA_GROUP)):
            first_index = snapshot.log_start(
                applied, limits.metadata_entries_kept, limits.metadata_catch_up_entries_max,
                self._needed_from())
            if first_index > 1:
                self._core.compacted(METADATA_GROUP, first_index)
        self._offer.set()  # lets ``run`` drop a download that this replica's log has overtaken

    def _needed_from(self) -> int:
        """Return the lowest index of a learner's next entry, or of the entry after a snapshot that
        was requested within ``SNAPSHOT_LIFE_S``."""
        needed = self._core.needed_from(METADATA_GROUP)
        served = self._snapshot
        if served is not None and trio.current_time() - served.used_s <= SNAPSHOT_LIFE_S:
            needed = min(needed, served.bounds.last_index + 1)
        return needed

    # ---- serving -------------------------------------------------------------------------------

    async def answer(self, _peer: int, header: dict, _payload: memoryview) -> tuple[dict, list]:
        """Return the requested chunk of the snapshot that is served, or the first chunk of another
        one; ``known`` False = there is none here. Takes a new snapshot on a thread if need be.
        Raises ``Malformed`` for an invalid request."""
        group, index, offset = (_number(header, name) for name in ("group", "index", "offset"))
        # A leader may serve what it has applied even before it has committed in its term: it may
        # need the requester's vote for that commit.
        if group != METADATA_GROUP or group not in self._core.status.groups():
            return {"op": OPERATION, "known": False}, []
        status = self._core.status.of(group)
        if status.quarantined:
            return {"op": OPERATION, "known": False}, []
        now_s = trio.current_time()
        async with self._taking:
            served = self._snapshot
            if (
                served is None
                or served.incarnation != status.incarnation
                or served.bounds.last_index != index
                and (now_s - served.used_s > SNAPSHOT_LIFE_S or self._is_outdated(served))
            ):
                served = self._snapshot = await self._take(status.incarnation)
        served.used_s = trio.current_time()
        if served.bounds.last_index != index or offset > len(served.data):
            offset = 0
        chunk = memoryview(served.data)[offset:offset + CHUNK_BYTES]
        return {"op": OPERATION, "known": True, "index": served.bounds.last_index,
                "term": served.bounds.prev_term, "total": len(served.data), "crc": served.crc,
                "offset": offset}, [chunk]

    def _is_outdated(self, served: Snapshot) -> bool:
        """Return True if the log begins behind the snapshot: a node that installs it would be
        offered the next one at once, and may have installed it already."""
        first_index = self._core.status.of(METADATA_GROUP).first_index
        return served.bounds.last_index < first_index - 1

    async def _take(self, incarnation: int) -> Snapshot:
        bounds, configuration_index, configuration = self._core.snapshot_point(METADATA_GROUP)
        tail = self._store.partition_states[METADATA_GROUP]
        assert tail.applied_index == bounds.last_index, f"{tail.applied_index}, {bounds}"
        values = [configuration_index, list(map(list, configuration)), tail.snapshot(),
                  self._metadata_log.state.snapshot()]
        data = await trio.to_thread.run_sync(chunked_cbor.dumps, values)
        return Snapshot(bounds, data, codec.crc32c(data), trio.current_time(), incarnation)

    # ---- fetching ------------------------------------------------------------------------------

    def on_snapshot_offer(self, group: int, leader: int) -> None:
        """Wake ``run`` to download from ``leader``, which has compacted the entries that this
        replica needs next. Offers of other groups than the metadata group have no effect."""
        if group == METADATA_GROUP:
            self._leader = leader
            self._offer.set()

    async def run(self) -> None:
        """Download and install offered snapshots, one at a time, until cancelled. A failed download
        is logged and resumed at the next offer. Raises ``DiskFailed`` if the file of the download
        cannot be read or written."""
        if self._download is None:
            self._download = await self._on_disk(self._partial.load)
        if self._download is not None:
            self._log.info("snapshot_download_resumed", extra={
                "group": METADATA_GROUP, "index": self._download.index,
                "bytes": len(self._download.data), "total_bytes": self._download.total})
        while True:
            self._waits = True
            await self._offer.wait()
            self._waits, self._offer = False, trio.Event()
            if self._download is not None and self._is_behind(self._download):
                await self._drop()
            leader, self._leader = self._leader, 0
            if not leader:
                continue
            try:
                whole = await self._fetch(leader)
                if whole is not None:
                    await self._install(whole)
                    await self._drop()
            except (NoAnswer, Malformed, CodecError) as error:
                self._log.warning("snapshot_download_failed", extra={
                    "group": METADATA_GROUP, "peer": leader, "reason": str(error)})

    @property
    def idle(self) -> bool:
        """True if every offer has been processed."""
        return self._waits and not self._offer.is_set()

    def _is_behind(self, download: PartialSnapshot) -> bool:
        """Return True if this replica has applied everything that the download contains."""
        tail = self._store.partition_states.get(
            METADATA_GROUP
        )  # None: not created again since the start
        return tail is not None and tail.applied_index >= download.index

    async def _fetch(self, peer: int) -> PartialSnapshot | None:
        """Download the rest of the snapshot from ``peer`` and return all of it; None = the peer has
        none to serve. A wrong CRC drops the download. Raises ``NoAnswer`` without a reply,
        ``Malformed`` for an invalid one or a wrong CRC."""
        while True:
            known = self._download
            frame = await self._bulk.ask(peer, {
                "op": OPERATION, "group": METADATA_GROUP, "index": known.index if known else 0,
                "offset": len(known.data) if known else 0})
            if frame.header.get("known") is not True:
                return None
            await self._take_chunk(frame.header, frame.payload)
            whole = self._download
            assert whole is not None
            if len(whole.data) == whole.total:
                if codec.crc32c(whole.data) != whole.crc:
                    await self._drop()
                    raise Malformed("the CRC of the snapshot does not match")
                return whole

    async def _take_chunk(self, header: dict, payload: memoryview) -> None:
        index, term, total, offset = (
            _number(header, name) for name in ("index", "term", "total", "offset"))
        crc = _number(header, "crc", _U32)  # the file of a download stores 32 bits
        if total > SNAPSHOT_BYTES_MAX:
            raise Malformed(f"a snapshot of {total} bytes, the limit is {SNAPSHOT_BYTES_MAX}")
        known = self._download
        if known is None or (known.index, known.term, known.crc) != (index, term, crc):
            await self._drop()
            known = self._download = PartialSnapshot(index, term, total, crc, bytearray())
        if (offset != len(known.data) or total != known.total
                or not 0 < len(payload) <= total - offset):
            await self._drop()
            raise Malformed(f"{len(payload)} bytes at {offset} of {total}, {len(known.data)} known")
        known.data += payload
        await self._keep(known, payload)

    async def _keep(self, known: PartialSnapshot, chunk: memoryview) -> None:
        """Write a chunk to disk for a restart; if the disk is full or has little space, keep the
        download in memory only. Raises ``DiskFailed`` for another error."""
        try:
            if len(known.data) == len(chunk):
                if not self._space.full and self._space.free >= FREE_FACTOR * known.total:
                    await self._on_disk(self._partial.begin, known)
            else:
                await self._on_disk(self._partial.append, chunk)
        except DiskFailed as error:
            if not isinstance(error.__cause__, OSError) or not is_full(error.__cause__):
                raise

    async def _drop(self) -> None:
        self._download = None
        await self._on_disk(self._partial.remove)

    async def _on_disk(self, call: Callable, *arguments: Any) -> Any:
        """Return the result of ``call``, run on a thread. Raises ``DiskFailed`` for its
        ``OSError``."""
        try:
            return await trio.to_thread.run_sync(call, *arguments)
        except OSError as error:
            raise DiskFailed(f"what arrives of a snapshot cannot be kept: {error}") from error

    async def _install(self, download: PartialSnapshot) -> None:
        configuration_index, configuration, tail, state, encoded = (
            await trio.to_thread.run_sync(_decode, download))
        bounds = LogBounds(download.index + 1, download.term, download.index)
        async with self._checkpoints.alone:
            if not self._core.may_install(METADATA_GROUP, download.index, download.term):
                self._request_round()
                return  # no longer needed, or possible at the next offer
            # No await in this block: the group must not change until the checkpoint is durable.
            self._store.install(METADATA_GROUP, bounds, configuration_index, configuration, tail)
            self._metadata_log.install(state)
            self._checkpoints.write_now(encoded)
            self._core.install_snapshot(METADATA_GROUP, bounds, configuration_index, configuration,
                                        tail)
        self._on_installed()
        self._metadata_log.follow()  # at once: the next entry may be long in coming
        self.installed += 1
        self._log.info("snapshot_installed", extra={
            "group": METADATA_GROUP, "term": download.term, "index": download.index,
            "bytes": download.total})
        self._request_round()


#: Shape of a snapshot: index and value of the configuration, partition states, metadata.
_SNAPSHOT = (shapes.UINT, ([shapes.UINT],) * 3, shapes.ANYTHING, shapes.ANYTHING)


def _decode(download: PartialSnapshot) -> tuple[int, Configuration, PartitionStates, MetadataState,
                                        chunked_cbor.Encoded]:
    """Decode a snapshot, on a thread. Return its index, configuration, partition states and
    metadata, and the metadata once more as encoded for a checkpoint. Raises ``Malformed`` for bytes
    that are no snapshot of the download's index, ``CodecError`` for damaged records in it."""
    try:
        values: Any = chunked_cbor.loads(bytes(download.data))
        shapes.check(values, _SNAPSHOT, "the snapshot")
        index, configuration, tail, state = values
        voters, learners, outgoing = map(tuple, configuration)
        restored = PartitionStates.restore(tail)
        read = MetadataState.restore(state)
        decoded = (index, Configuration(voters, learners, outgoing), restored, read,
                   chunked_cbor.Encoded(chunked_cbor.dumps(read.snapshot())))
    except (CBORDecodeError, ValueError, TypeError) as error:
        raise Malformed(f"not a snapshot: {error}") from error
    if restored.applied_index != download.index:
        raise Malformed(f"a snapshot of {restored.applied_index}, called {download.index}")
    return decoded


def _number(header: dict, name: str, most: int = _U64) -> int:
    value = header.get(name)
    if type(value) is not int or not 0 <= value <= most:
        raise Malformed(f"{name} must be a whole number up to {most}, not {value!r:.40}")
    return value
