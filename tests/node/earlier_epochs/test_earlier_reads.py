"""Reads of earlier epochs at the leader of the last one: which node answers, and what is refused.

The other nodes are a table of answers in place of bulk connections.
"""

from __future__ import annotations

from types import SimpleNamespace

import cbor2
import pytest
import trio
from trio.testing import MockClock

from multiraft.core import BatchBuilder, stamp_batch
from multiraft.wire.errors import Code, ErrorDetail
from multiraft.wire.frames import Frame
from multiraft.wire.messages import (
    FetchPart,
    FetchReply,
    FetchResult,
    ListOffsets,
    ListOffsetsReply,
    OffsetQuery,
    OffsetResult,
)
from multiraft.wire.schema import Malformed
from node.clients.read_view import ReadableRange, Refused
from node.earlier_epochs import earlier_reads
from node.earlier_epochs.earlier_reads import ASKED_LAST_S, EarlierReads
from node.earlier_epochs.served_reads import (
    READ_BYTES_MAX,
    RESPONSES,
    ServedReads,
    read_reply,
    request_header,
)
from node.metadata.placement_table import EpochEntry
from node.peers.errors import NoAnswer

PARTITION, ME, LEADER_OF_EARLIER, FOLLOWER = 7, 1, 2, 3
#: Offsets 0 to 3 are in group 1, 4 and 5 in group 2, those from 6 on in group 3.
HISTORY = (EpochEntry(1, 1, 0), EpochEntry(2, 2, 4), EpochEntry(3, 3, 6))
LAST = ReadableRange(3, 3, 6, 1, 9, 9, True, True, True, False, 9)
RETRIED = FetchResult(PARTITION, Code.OFFSET_NOT_AVAILABLE, -1, -1, 0, ErrorDetail("not here"))


def batches(*firsts: int, count: int = 1) -> bytes:
    """Return batches of ``count`` records with these base offsets."""
    found = b""
    for first in firsts:
        builder = BatchBuilder(1 << 16)
        for at in range(count):
            builder.append(1_000 + first + at, None, b"v")
        data = builder.build(-1, -1, -1)
        stamp_batch(data, first, 5)
        found += bytes(data)
    return found


def fetched(payload: bytes) -> tuple[FetchReply, tuple[bytes, ...]]:
    return FetchReply((FetchResult(PARTITION, Code.OK, 4, 0, len(payload)),)), (payload,)


def offset(code: int, found: int, **detail) -> tuple[ListOffsetsReply, tuple]:
    error = ErrorDetail(**detail) if detail else None
    return ListOffsetsReply((OffsetResult(PARTITION, code, found, error),)), ()


def sent(header: dict) -> dict:
    """Return a header as it arrives."""
    return cbor2.loads(cbor2.dumps(header))


class World:
    """Three nodes, of which this one leads the last group. ``answers``: node -> its answer, or a
    function of the request; a node without one cannot be reached."""

    def __init__(self, answers: dict, up=(ME, LEADER_OF_EARLIER, FOLLOWER), members=None,
                 leads=True):
        self.answers = answers
        self.asked: list[tuple[int, object]] = []
        self.handlers: dict = {}
        place = SimpleNamespace(group=3, epoch=3, epoch_history=HISTORY)
        status = SimpleNamespace(
            is_leader=lambda group: leads and group == 3, is_up=lambda node: node in up,
            leader_hint=lambda group: (LEADER_OF_EARLIER, 1))
        directory = SimpleNamespace(
            locate=lambda partition: place if partition == PARTITION else None,
            replicas=lambda group: members or (FOLLOWER, LEADER_OF_EARLIER, ME),
            metadata_index=12)
        view = SimpleNamespace(location=lambda partition, seen: place, readable_part=self.part)
        self.leads = leads
        self.reads = EarlierReads(SimpleNamespace(node=ME, status=status), directory, view, self,
                                  "fetch", "list_offsets", SimpleNamespace(ask=self.ask_node))

    def part(self, place, partition, at, replica):
        assert (at, replica) == (2, "leader")
        if not self.leads:
            raise Refused(Code.NOT_LEADER, ErrorDetail("another node leads"))
        return LAST

    async def ask(self, handler, owner, request, seen_index=0):
        """The handlers of this node."""
        self.asked.append((ME, request))
        return self.answer(ME, request)

    async def ask_node(self, node, header, payload=()):
        """A bulk connection."""
        await trio.lowlevel.checkpoint()
        assert header["metadata_index"] == 12
        header = sent(header)
        self.asked.append((node, header))
        reply, payload = self.answer(node, header)
        fields = {"op": header["op"], **RESPONSES[header["op"]].header(reply)}
        return Frame(sent(fields), memoryview(bytearray(b"".join(payload))))

    def answer(self, node, request):
        found = self.answers.get(node)
        if found is None:
            raise NoAnswer(f"node {node}: it cannot be reached") if node != ME else AssertionError
        return found(request) if callable(found) else found

    def read(self, at: int, size: int = 1000):
        return trio.run(self.reads.read, "session", FetchPart(PARTITION, at, size))

    @property
    def nodes(self) -> list[int]:
        return [node for node, _ in self.asked]


def test_the_replica_here_is_read_first():
    world = World({ME: fetched(batches(2, 3))})
    found = world.read(2)
    assert found.result == FetchResult(PARTITION, Code.OK, 9, 1, len(batches(2, 3)))
    assert bytes(found.buffers[0]) == batches(2, 3)
    assert world.nodes == [ME] and world.reads.records_read == 0


def test_the_leader_of_the_earlier_group_is_asked_before_its_followers():
    world = World({LEADER_OF_EARLIER: fetched(batches(2, 3))},
                  members=(FOLLOWER, LEADER_OF_EARLIER))
    assert bytes(world.read(2).buffers[0]) == batches(2, 3)
    assert world.nodes == [LEADER_OF_EARLIER]
    assert (world.reads.records_read, world.reads.bytes_read) == (1, len(batches(2, 3)))


def test_other_members_are_asked_in_place_of_one_that_does_not_answer():
    refused = FetchReply((RETRIED,)), ()
    world = World({ME: refused, FOLLOWER: fetched(batches(1, 2))})
    assert bytes(world.read(1).buffers[0]) == batches(1, 2)
    assert world.nodes == [ME, LEADER_OF_EARLIER, FOLLOWER]


def test_a_node_that_is_down_is_not_asked():
    world = World({FOLLOWER: fetched(batches(1))}, up=(FOLLOWER,))
    assert world.read(1).result.code == Code.OK
    assert world.nodes == [FOLLOWER]


def test_an_answer_begins_inside_a_batch():
    world = World({FOLLOWER: fetched(batches(0, count=3))}, up=(FOLLOWER,))
    assert world.read(1).result.code == Code.OK


def test_records_that_no_node_has_now_are_refused_for_a_while():
    refused = FetchReply((RETRIED,)), ()
    world = World({ME: refused, FOLLOWER: fetched(b"")})
    result = world.read(1).result
    assert (result.code, result.length) == (Code.OFFSET_NOT_AVAILABLE, 0)
    assert result.error.text == (
        "no replica of group 1 that is up has these offsets now: node 1: not here; node 2: node 2: "
        "it cannot be reached; node 3: no records")
    assert world.reads.unanswered == 1


@pytest.mark.parametrize("payload", [
    batches(2)[:-1] + b"?", batches(2)[:-1], batches(1), batches(3), batches(2, 4), batches(2, 2),
    batches(2, count=3)], ids=[
        "crc", "cut", "before", "gap", "hole", "repeat", "beyond"])
def test_damaged_and_foreign_batches_are_not_passed_on(payload):
    """Offset 2 is read, and the epoch ends at 4."""
    world = World({LEADER_OF_EARLIER: fetched(payload), FOLLOWER: fetched(batches(2, 3))},
                  members=(LEADER_OF_EARLIER, FOLLOWER))
    assert bytes(world.read(2).buffers[0]) == batches(2, 3)
    assert world.nodes == [LEADER_OF_EARLIER, FOLLOWER]


def test_only_this_leader_decides_what_is_below_the_log_start():
    above = FetchReply((FetchResult(PARTITION, Code.OFFSET_OUT_OF_RANGE, -1, -1, 0,
                                    ErrorDetail("the log start is 3")),)), ()
    world = World({LEADER_OF_EARLIER: above}, members=(LEADER_OF_EARLIER,))
    assert world.read(1).result.code == Code.OFFSET_NOT_AVAILABLE
    refused = world.read(0).result
    assert refused.code == Code.OFFSET_OUT_OF_RANGE
    assert (refused.error.start_offset, refused.error.end_offset) == (1, 9)
    assert world.nodes == [LEADER_OF_EARLIER]


def test_nothing_is_read_for_a_partition_that_another_node_leads():
    world = World({}, leads=False)
    assert world.read(2).result.code == Code.NOT_LEADER
    assert not world.reads.holds(PARTITION, 2) and world.reads.place(PARTITION) is None


def test_the_offsets_of_the_last_epoch_are_not_held():
    world = World({})
    assert [world.reads.holds(PARTITION, at) for at in (0, 5, 6, 20)] == [True, True, False, False]
    assert not world.reads.holds(PARTITION + 1, 0)
    assert world.read(6).result.code == Code.STALE_METADATA and not world.asked


def test_a_node_that_did_not_answer_is_asked_last_for_a_while():
    """The caller's time is over while a node is silent; its next read begins with another one."""
    world = World({LEADER_OF_EARLIER: fetched(batches(1)), FOLLOWER: fetched(batches(1))},
                  members=(LEADER_OF_EARLIER, FOLLOWER))
    answering, silent = world.ask_node, {LEADER_OF_EARLIER}

    async def ask_node(node, header, payload=()):
        if node in silent:
            world.asked.append((node, header))
            await trio.sleep_forever()
        return await answering(node, header, payload)

    world.reads._bulk.ask = ask_node

    async def read() -> None:
        with trio.move_on_after(3):
            found = await world.reads.read("session", FetchPart(PARTITION, 1, 1000))
            assert found.result.code == Code.OK
        world.asked.append((0, "the next read"))

    async def run() -> None:
        await read()
        await read()
        silent.clear()
        await read()
        await trio.sleep(ASKED_LAST_S)
        await read()

    trio.run(run, clock=MockClock(autojump_threshold=0))
    assert world.nodes == [LEADER_OF_EARLIER, 0, FOLLOWER, 0, FOLLOWER, 0, LEADER_OF_EARLIER, 0]


def test_a_node_that_cannot_be_reached_is_asked_last():
    world = World({FOLLOWER: fetched(batches(1))}, members=(LEADER_OF_EARLIER, FOLLOWER))

    async def run() -> None:
        for _ in range(2):
            await world.reads.read("session", FetchPart(PARTITION, 1, 1000))

    trio.run(run, clock=MockClock(autojump_threshold=0))
    assert world.nodes == [LEADER_OF_EARLIER, FOLLOWER, FOLLOWER]


def test_reads_of_other_nodes_are_limited_in_number(monkeypatch):
    monkeypatch.setattr(earlier_reads, "READS_MAX", 2)
    world = World({LEADER_OF_EARLIER: fetched(batches(1))}, members=(LEADER_OF_EARLIER,))
    codes = []

    async def one() -> None:
        found = await world.reads.read("session", FetchPart(PARTITION, 1, 1000))
        codes.append(found.result.code)

    async def run() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(one)

    trio.run(run)
    assert sorted(codes) == [Code.OK, Code.OK, Code.OFFSET_NOT_AVAILABLE]
    assert world.read(1).result.code == Code.OK


def test_a_read_is_limited_to_the_bytes_that_another_node_serves():
    world = World({LEADER_OF_EARLIER: fetched(batches(1))}, members=(LEADER_OF_EARLIER,))
    world.read(1, 1 << 30)
    header = world.asked[0][1]
    assert header["bytes_max"] == READ_BYTES_MAX == header["partitions"][0][2]


# ---- times -------------------------------------------------------------------------------------


def first_at(world: World, time_ms: int = 50) -> int:
    return trio.run(world.reads.first_at, "session", PARTITION, time_ms)


def test_a_time_is_searched_in_the_earlier_epochs_in_order():
    def answer(request):
        epoch = request["partitions"][0][3]
        return offset(Code.OK, 5) if epoch == 2 else offset(Code.MOVED, -1, epoch=2)

    world = World({LEADER_OF_EARLIER: answer}, members=(LEADER_OF_EARLIER,))
    assert first_at(world) == 5
    assert [header["partitions"][0][3] for _, header in world.asked] == [1, 2]


def test_a_time_that_only_the_last_epoch_has_is_not_found_in_earlier_ones():
    for answer in (offset(Code.OK, -1), offset(Code.OK, 7), offset(Code.MOVED, -1, epoch=3)):
        world = World({ME: answer}, up=(ME,))
        assert first_at(world) == -1
        assert len(world.asked) == 1


def test_no_time_is_found_below_the_log_start():
    world = World({ME: offset(Code.OK, 0)}, up=(ME,))
    assert first_at(world) == LAST.log_start


def test_a_time_is_refused_while_no_node_can_search():
    moved = offset(Code.MOVED, -1, epoch=1)  # it has no replica of the group of that epoch
    world = World({ME: moved, FOLLOWER: offset(Code.OFFSET_NOT_AVAILABLE, -1, text="late")})
    with pytest.raises(Refused) as refused:
        first_at(world)
    assert refused.value.code == Code.OFFSET_NOT_AVAILABLE
    assert world.nodes == [ME, LEADER_OF_EARLIER, FOLLOWER]


def test_the_largest_time_is_that_of_any_earlier_epoch():
    def answer(request):
        query = request.partitions[0]
        assert not request.linearizable
        return offset(Code.OK, {1: 80, 2: -1}[query.epoch])

    world = World({ME: answer})
    assert trio.run(world.reads.largest_time, "session", PARTITION) == 80


def test_epochs_below_the_log_start_are_not_asked_for(monkeypatch):
    monkeypatch.setitem(globals(), "LAST", LAST._replace(log_start=5))
    world = World({ME: offset(Code.OK, 33)})
    assert trio.run(world.reads.largest_time, "session", PARTITION) == 33
    assert [request.partitions[0].epoch for _, request in world.asked] == [2]


# ---- requests of other nodes -------------------------------------------------------------------


class Calls:
    """The handlers of a node, which find nothing."""

    def __init__(self):
        self.requests = []

    async def ask(self, handler, owner, request, seen_index=0):
        self.requests.append((owner, request, seen_index))
        return offset(Code.OK, 3)


def handled(header: dict):
    calls, bulk = Calls(), SimpleNamespace(handlers={})
    ServedReads(bulk, calls, None, None, None)
    return trio.run(bulk.handlers[header["op"]], 4, header, memoryview(b"")), calls


def query(**fields) -> dict:
    return {**request_header(ListOffsets((), False), 8), "partitions": [[7, "timestamp", 5, 1]],
            **fields}


def test_a_query_of_another_node_is_answered():
    (header, payload), calls = handled(query())
    request = ListOffsets((OffsetQuery(7, "timestamp", 5, 1),), False)
    assert read_reply(request, Frame(sent(header), memoryview(b""))).results[0].offset == 3
    ((owner, request, seen_index),) = calls.requests
    assert (owner.node, request.partitions[0].incarnation, seen_index) == (4, 7, 8)


FETCH = {"op": "fetch", "metadata_index": 0, "partitions": [[7, 0, 100]], "bytes_min": 0,
         "bytes_max": 100, "wait_max_ms": 0, "replica": "any"}


@pytest.mark.parametrize("header", [
    query(metadata_index=-1), query(metadata_index="1"), query(partitions=[]),
    query(partitions=[[7, "timestamp", 5, 1]] * 2), query(linearizable=True),
    query(partitions=[[7, "somewhere", 5, 1]]), {**FETCH, "replica": "leader"},
    {**FETCH, "wait_max_ms": 1}, {**FETCH, "bytes_max": READ_BYTES_MAX + 1},
    {**FETCH, "partitions": [[7, 0, READ_BYTES_MAX + 1]]}, {"op": "fetch"}])
def test_other_requests_are_malformed(header):
    with pytest.raises(Malformed):
        handled(header)
