"""Bulk connections between nodes in this process: requests, answers and their decoders.

Contract.  ``serve`` gives a stream to the handlers of a node, ``asked`` an answer to the requester,
``fetched`` the pieces of an image to the node that lacks it.  They raise what the product raises.
The code after the handshake is that of the product; the effects of handlers are replaced by values.
Nothing is sent: an answer only has to be encodable.
"""

from __future__ import annotations

import functools
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import trio

from chaos.simulator.disk.filesystem import SimulatedFilesystem
from multiraft import core as codec
from multiraft.storage.errors import CorruptRange
from multiraft.storage.repair.coordinator import RepairCoordinator
from multiraft.storage.snapshot_download import SnapshotDownload
from multiraft.storage.store import Store
from multiraft.wire.errors import Code, ErrorDetail
from multiraft.wire.frames import Frame, FrameReader, encode_frame
from multiraft.wire.messages import ProduceReply, ProduceResult
from multiraft.wire.schema import Malformed
from node.clients.error_codes import refusal
from node.clients.log_starts import LogStarts
from node.cluster import peer_requests
from node.cluster.peer_requests import PeerRequests
from node.compaction.generation_reports import GenerationReports
from node.config import MetricsConfig
from node.loop.block_reads import BlockReads
from node.metadata.commands import CreateTopic, plan_bootstrap
from node.metadata.placement_table import EpochEntry
from node.metadata.state_machine import MetadataState
from node.observability.load_publisher import LoadPublisher
from node.observability.load_records import PARTITIONS, TOPIC
from node.peers.bulk_channel import Bulk, NoAnswer
from node.replicas.log_start_propagation import LogStartPropagation
from node.replicas.repair import Repairs
from node.replicas.snapshots import SNAPSHOT_BYTES_MAX
from node.retention.retention_task import RetentionTask
from tests.fuzz import seeds
from tests.node.harness import silent_log
from tests.node.replicas.test_snapshots import DIRECTORY, LEADER, Core, Side
from tests.storage.world import IDENTITY, SMALL

FRAME_BYTES_MAX = 1 << 16


def plain(value: object) -> object:
    """Return rows as lists, as the wire has them."""
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    return {name: plain(each) for name, each in value.items()} if isinstance(value, dict) else value


def refused(error: Exception) -> tuple:
    """Return the refusal of a request, as ``Admin.refusal`` does."""
    return refusal(error, lambda _group: (Code.NOT_LEADER, ErrorDetail()))


class Unheard(Bulk):
    """Connection that discards its answers."""

    async def _send(self, _sock, buffers) -> None:
        b"".join(buffers)


# ---- requests ------------------------------------------------------------------------------------


def serve(stream: bytes) -> None:
    """Serve a connection of ``seeds.ASKING``, which is closed at the end of the stream."""
    trio.run(_serve, stream)


async def _serve(stream: bytes) -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        far.sendall(stream)
        far.shutdown(socket.SHUT_WR)
        await _answering().serve(near, FrameReader(), seeds.ASKING)


@functools.cache
def _answering() -> Bulk:
    """Return a server with the handlers of a node."""
    bulk = Unheard(None, None, FRAME_BYTES_MAX, 1 << 40)
    PeerRequests(bulk, {shape.kind: functools.partial(_answer, op)
                        for op, shape in peer_requests.REQUESTS.items()}, refused)
    Repairs(RepairCoordinator(1, _store(), SimpleNamespace(
        status=SimpleNamespace(has_applied_in_term=lambda _group: True)), lambda _: None),
            bulk, lambda: None, silent_log())
    Side(Core(), bulk)  # of a leader, which has an image to send
    bulk.handlers.update(_publishing().handlers)
    bulk.handlers.update(_retaining().handlers)
    bulk.handlers.update(_propagating().handlers)
    GenerationReports(SimpleNamespace(node=1, status=SimpleNamespace(
        has_group=lambda group: group == 1)), _store(), bulk)
    return bulk


async def _answer(op: str, request) -> object:
    """Check that a decoded request is equal after another round trip, and answer it."""
    assert peer_requests.REQUESTS[op].read(plain(request._asdict())) == request
    return seeds.peer_questions()[op][1]


def _store() -> Store:
    """Return a store of the small data directory."""
    filesystem = SimulatedFilesystem()
    filesystem.make_directory(f"{seeds.DIRECTORY}/lane-0")
    for path, data in seeds.directory().items():
        filesystem.create(path).write([data], 0, True)
    return Store.open(seeds.DIRECTORY, filesystem, IDENTITY, SMALL)


class _Placed:
    """Metadata that place each partition in group 1, after an epoch in group 2."""

    def locate(self, _partition: int) -> SimpleNamespace:
        """Return the place."""
        return SimpleNamespace(group=1, epoch_history=(EpochEntry(1, 2, 0), EpochEntry(2, 1, 1)))


def _retaining() -> RetentionTask:
    """Return the task of retention of a node with the small data directory."""
    store = _store()
    return RetentionTask(1, None, store, SimpleNamespace(state=_Placed()), None, None,
                         BlockReads(store, _here, _damaged), 1_000, lambda: 0, None, lambda: None,
                         silent_log())


async def _here(call: Callable[[], object]) -> object:
    """Return the result of a call that a node makes on a thread."""
    return call()


def _damaged(error: CorruptRange) -> None:
    """Raise: the small data directory has no damage."""
    raise error


def _propagating() -> LogStartPropagation:
    """Return the propagation of log starts of that node."""
    states = _store().partition_states
    return LogStartPropagation(None, states, SimpleNamespace(state=_Placed()), LogStarts(states),
                               None, None, lambda: None, None, silent_log())


def _publishing() -> LoadPublisher:
    """Return the publisher of a node that leads all partitions of ``__metrics`` and takes each
    batch."""
    state = MetadataState()
    state.apply(1, plan_bootstrap(bytes(16), seeds.NODES, 2, 3, 1))
    state.apply(2, CreateTopic(TOPIC, bytes(16), PARTITIONS))
    taken = ProduceReply((ProduceResult(Code.OK, 0),))
    config = SimpleNamespace(metrics=MetricsConfig(), node=SimpleNamespace(id=1),
                             cluster_id=bytes(16))
    return LoadPublisher(
        config, None, core=None, store=None, metadata_log=SimpleNamespace(state=state),
        directory=None, produce_handler=SimpleNamespace(
            handle=lambda _request, answer: answer(taken)),
        fetch_handler=None, disk=None, group_health=None, bulk=None, request_round=lambda: None,
        log=silent_log())


# ---- answers -------------------------------------------------------------------------------------


class Answers:
    """Bulk connection with these answers, and then none."""

    def __init__(self, *frames: Frame):
        self.handlers: dict[str, Callable] = {}
        self._frames: Iterator[Frame] = iter(frames)

    async def ask(self, _peer: int, header: dict) -> Frame:
        """Return the next answer."""
        encode_frame(header)
        for frame in self._frames:
            return frame
        raise NoAnswer("it has said everything")


def asked(op: str, answer: dict) -> None:
    """Decode the answer to a request, and check that it is equal after another round trip."""
    requests = PeerRequests(Answers(Frame(answer, memoryview(b""))), {}, refused)
    reply = trio.run(requests.ask, LEADER, seeds.peer_questions()[op][0])
    assert peer_requests.RESPONSES[op].read(plain(reply._asdict())) == reply


def fetched(frames: list[Frame]) -> None:
    """Receive pieces of an image on a disk that keeps them, and check that a restart finds them."""
    trio.run(_fetched, frames)


async def _fetched(frames: list[Frame]) -> None:
    side = Side(Core(applied=1), Answers(*frames))
    try:
        image = await side.snapshots._receiver.download(LEADER)
    except (NoAnswer, Malformed):
        _check_kept(side)
        raise
    assert image is None or codec.crc32c(image.data) == image.crc
    _check_kept(side)


def _check_kept(side: Side) -> None:
    """Check that a restart would find exactly the pieces that have arrived."""
    arrived = side.snapshots._receiver.received
    assert arrived is None or 0 < len(arrived.data) <= arrived.total
    kept = SnapshotDownload(side.filesystem, DIRECTORY, SNAPSHOT_BYTES_MAX).load()
    assert kept == arrived, f"{arrived} arrived, {kept} was kept"
