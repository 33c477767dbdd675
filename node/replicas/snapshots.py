"""Snapshots of the metadata group: for nodes whose next entry is compacted away.

Contract.  ``offered`` takes note of a leader's offer; ``run`` is the task that fetches the state in
chunks over a bulk connection and installs it.  ``answer`` serves the others.  A fetch that breaks
off goes on where it was when the next offer comes, as long as the leader still has that image; so
does one of a node that was started again, from what ``SnapshotDownload`` kept.  ``compact`` forgets
old commands once a checkpoint holds what they did.

An image is made and read by a thread, in pieces (``multiraft.storage.pieces``): what the loop does
of it is to copy references.

Invariants.  An image never changes: it is named by the (index, term) of its state, and none of an
earlier incarnation of the group is given.  Installing is
one step of the loop, the checkpoint that makes it durable included: nothing can happen to the group
between the question whether it may be installed and the end, and nobody is told before it is
durable.  That stalls the loop for one small file, once in the life of a replica.  What has arrived
is dropped when it is of another image than the leader has, when it does not become an image, when
it was installed, and when this replica came past it by its log.

Theory.  Raft paper 7.  Groups that carry partitions are never compacted without retention: their
log is the data.  The metadata group's log is history that every node has applied, so its newest
``metadata_entries_kept`` entries are enough for whoever was away a moment, and the state itself for
whoever was away longer or joins.  Where commands come faster than an image is fetched, the log must
not begin behind what was fetched, or the next image is due when this one is installed, for ever: so
the log start is held, for up to ``metadata_entries_held_max`` entries.
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
from multiraft.storage import pieces
from multiraft.storage.snapshot_download import Arrived, SnapshotDownload
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
#: Bytes of an image in one answer: small enough to be sent again, large enough that the round trip
#: does not count.
CHUNK_BYTES = 1 << 20
#: A larger image is not believed: as much as a checkpoint may have, which holds the same.
IMAGE_BYTES_MAX = 1 << 30
#: An image is served unchanged at least so long after it was last asked for, in seconds.
IMAGE_LIFE_S = 60.0
#: What arrives is kept for a restart when so many times its size is free: records come first.
FREE_FACTOR = 4
_U32, _U64 = (1 << 32) - 1, (1 << 64) - 1


@dataclass(slots=True)
class Image:
    """The state of the group at one index, encoded."""

    bounds: LogBounds
    data: bytes
    crc: int
    used_s: float
    incarnation: int  # of the group


class Snapshots:
    """Task on the loop, and the handler of the others' requests."""

    def __init__(self, core: MultiRaft, store: Store, metadata_log: MetadataLog,
                 checkpoints: Checkpoints, bulk: Bulk, limits: Limits,
                 request_round: Callable[[], None], log: logging.Logger, partial: SnapshotDownload,
                 space: Space, installed: Callable[[], None] = lambda: None):
        """``installed()`` is called behind each snapshot that took effect."""
        self._core = core
        self._store = store
        self._metadata_log = metadata_log
        self._checkpoints = checkpoints
        self._bulk = bulk
        self._limits = limits
        self._request_round = request_round
        self._log = log
        self._image: Image | None = None
        self._taking = trio.Lock()
        self._partial = partial
        self._space = space
        self._download: Arrived | None = None
        self._leader = 0  # who offered last; 0 = nobody since the last attempt
        self._offer = trio.Event()
        self.installed = 0  # since the start
        self._on_installed = installed
        self._waits = False  # for the next offer
        bulk.handlers[OPERATION] = self.answer
        checkpoints.completed.subscribe(self.compact)

    # ---- compaction ----------------------------------------------------------------------------

    def compact(self) -> None:
        """Forget the entries that the last checkpoint makes unnecessary, but for the newest and
        for those that somebody who is being brought up needs."""
        applied, limits = self._checkpoints.metadata_applied, self._limits
        # It may be another replica by now than the one that the checkpoint speaks of.
        if (METADATA_GROUP in self._core.status.groups()
                and applied <= self._core.status.applied_index(METADATA_GROUP)):
            first_index = snapshot.log_start(applied, limits.metadata_entries_kept,
                                             limits.metadata_entries_held_max, self._needed_from())
            if first_index > 1:
                self._core.compacted(METADATA_GROUP, first_index)
        self._offer.set()  # is what has arrived of a snapshot behind this replica by now?

    def _needed_from(self) -> int:
        """First index that a learner needs, or whoever is fetching an image will need behind it."""
        needed = self._core.needed_from(METADATA_GROUP)
        image = self._image
        if image is not None and trio.current_time() - image.used_s <= IMAGE_LIFE_S:
            needed = min(needed, image.bounds.last_index + 1)
        return needed

    # ---- serving -------------------------------------------------------------------------------

    async def answer(self, _peer: int, header: dict, _payload: memoryview) -> tuple[dict, list]:
        """A chunk of the image that is asked for, or the beginning of a new one.  Raises
        ``Malformed``."""
        group, index, offset = (_number(header, name) for name in ("group", "index", "offset"))
        # Whoever leads may give what it has applied, settled or not: it may need the asker's vote
        # for the commit that would settle it.
        if group != METADATA_GROUP or group not in self._core.status.groups():
            return {"op": OPERATION, "known": False}, []
        status = self._core.status.of(group)
        if status.quarantined:
            return {"op": OPERATION, "known": False}, []
        now_s = trio.current_time()
        async with self._taking:
            image = self._image
            if (image is None or image.incarnation != status.incarnation
                    or image.bounds.last_index != index and (now_s - image.used_s > IMAGE_LIFE_S
                                                             or self._is_outdated(image))):
                image = self._image = await self._take(status.incarnation)
        image.used_s = trio.current_time()
        if image.bounds.last_index != index or offset > len(image.data):
            offset = 0
        chunk = memoryview(image.data)[offset:offset + CHUNK_BYTES]
        return {"op": OPERATION, "known": True, "index": image.bounds.last_index,
                "term": image.bounds.prev_term, "total": len(image.data), "crc": image.crc,
                "offset": offset}, [chunk]

    def _is_outdated(self, image: Image) -> bool:
        """Whether the log does not go on from it any more: whoever installs it is offered the next
        at once, and may have installed it already."""
        first_index = self._core.status.of(METADATA_GROUP).first_index
        return image.bounds.last_index < first_index - 1

    async def _take(self, incarnation: int) -> Image:
        bounds, configuration_index, configuration = self._core.snapshot_point(METADATA_GROUP)
        tail = self._store.tails[METADATA_GROUP]
        assert tail.applied_index == bounds.last_index, f"{tail.applied_index}, {bounds}"
        values = [configuration_index, list(map(list, configuration)), tail.snapshot(),
                  self._metadata_log.state.snapshot()]
        data = await trio.to_thread.run_sync(pieces.dumps, values)
        return Image(bounds, data, codec.crc32c(data), trio.current_time(), incarnation)

    # ---- fetching ------------------------------------------------------------------------------

    def offered(self, group: int, leader: int) -> None:
        """``leader`` has nothing any more of what this replica needs next."""
        if group == METADATA_GROUP:
            self._leader = leader
            self._offer.set()

    async def run(self) -> None:
        """Until cancelled.  Raises ``DiskFailed``."""
        if self._download is None:
            self._download = await self._on_disk(self._partial.load)
        if self._download is not None:
            self._log.info("snapshot goes on", extra={
                "group": METADATA_GROUP, "index": self._download.index,
                "bytes": len(self._download.data), "total": self._download.total})
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
                image = await self._fetch(leader)
                if image is not None:
                    await self._install(image)
                    await self._drop()
            except (NoAnswer, Malformed, CodecError) as error:
                self._log.warning("snapshot not fetched", extra={
                    "group": METADATA_GROUP, "peer": leader, "reason": str(error)})

    @property
    def idle(self) -> bool:
        """Everything that was offered is worked off."""
        return self._waits and not self._offer.is_set()

    def _is_behind(self, download: Arrived) -> bool:
        """Whether this replica has what it would get."""
        tail = self._store.tails.get(METADATA_GROUP)  # None: not created again since the start
        return tail is not None and tail.applied_index >= download.index

    async def _fetch(self, peer: int) -> Arrived | None:
        """The whole image; None when the peer has none to give.  Raises ``NoAnswer``,
        ``Malformed``."""
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
        crc = _number(header, "crc", _U32)  # its file has so much room for it
        if total > IMAGE_BYTES_MAX:
            raise Malformed(f"a snapshot of {total} bytes, the limit is {IMAGE_BYTES_MAX}")
        known = self._download
        if known is None or (known.index, known.term, known.crc) != (index, term, crc):
            await self._drop()
            known = self._download = Arrived(index, term, total, crc, bytearray())
        if (offset != len(known.data) or total != known.total
                or not 0 < len(payload) <= total - offset):
            await self._drop()
            raise Malformed(f"{len(payload)} bytes at {offset} of {total}, {len(known.data)} known")
        known.data += payload
        await self._keep(known, payload)

    async def _keep(self, known: Arrived, chunk: memoryview) -> None:
        """For the next start, if the disk has room to spare; else the memory has it."""
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
        """What ``call`` returns, off the loop.  Raises ``DiskFailed``."""
        try:
            return await trio.to_thread.run_sync(call, *arguments)
        except OSError as error:
            raise DiskFailed(f"what arrives of a snapshot cannot be kept: {error}") from error

    async def _install(self, download: Arrived) -> None:
        configuration_index, configuration, tail, state, encoded = (
            await trio.to_thread.run_sync(_decode, download))
        bounds = LogBounds(download.index + 1, download.term, download.index)
        async with self._checkpoints.alone:
            if not self._core.may_install(METADATA_GROUP, download.index, download.term):
                self._request_round()
                return  # not needed any more, or the next offer finds it possible
            self._store.install(METADATA_GROUP, bounds, configuration_index, configuration, tail)
            self._metadata_log.install(state)
            self._checkpoints.write_now(encoded)
            self._core.install_snapshot(METADATA_GROUP, bounds, configuration_index, configuration,
                                        tail)
        self._on_installed()
        self._metadata_log.follow()  # an entry that would bring it about may not come for long
        self.installed += 1
        self._log.info("snapshot installed", extra={
            "group": METADATA_GROUP, "term": download.term, "index": download.index,
            "bytes": download.total})
        self._request_round()


#: Index and value of the configuration, tail, metadata.
_IMAGE = (shapes.WHOLE, ([shapes.WHOLE],) * 3, shapes.ANYTHING, shapes.ANYTHING)


def _decode(download: Arrived) -> tuple[int, Configuration, PartitionStates, MetadataState,
                                        pieces.Encoded]:
    """What an image says; the state once more as a checkpoint has it.  On a thread.  Raises
    ``Malformed`` or ``CodecError``."""
    try:
        image: Any = pieces.loads(bytes(download.data))
        shapes.check(image, _IMAGE, "the image")
        index, configuration, tail, state = image
        voters, learners, outgoing = map(tuple, configuration)
        restored = PartitionStates.restore(tail)
        read = MetadataState.restore(state)
        decoded = (index, Configuration(voters, learners, outgoing), restored, read,
                   pieces.Encoded(pieces.dumps(read.snapshot())))
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
