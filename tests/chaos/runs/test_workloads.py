"""Parts of the workloads, without a cluster: their requests, and their reactions to the answers."""

from __future__ import annotations

import contextlib
import io
import random
from typing import NamedTuple

import pytest
import trio
import trio.testing

from chaos import values
from chaos.history import CORRUPT, FOREIGN, HistoryWriter
from chaos.run.topics import one_of_each
from chaos.workloads import appends, churn, consumers, idempotent, reads
from chaos.workloads.recorder import Recorder
from chaos.workloads.records import RecordSource, next_offset, runs_of
from chaos.workloads.session import NoAnswer, NotSent
from chaos.workloads.workload_context import PartitionRef, Topics, WorkloadContext
from multiraft import core
from multiraft.client import FetchedBatch
from multiraft.wire.errors import AmbiguousOutcome, InvalidBatch, NotLeader
from multiraft.wire.messages import ProduceReply
from multiraft.wire.rows import ProduceResult

RUN = 77


def place(partition: int = 0, group: int = 1) -> PartitionRef:
    return PartitionRef("t", 5, partition, 100 + partition, group)


def context(*places: PartitionRef) -> WorkloadContext:
    topics = Topics()
    topics.add(places or [place()])
    return WorkloadContext(RUN, Recorder(HistoryWriter(io.StringIO())), topics,
                   lambda: {1: "n1:1", 2: "n2:1"}, seed=3)


def batch(base_offset: int, records: list[bytes], position: int = 0) -> FetchedBatch:
    builder = core.BatchBuilder(1 << 16)
    for record in records:
        assert builder.append(0, None, record)
    data = builder.build()
    core.stamp_batch(data, base_offset, 1)
    return FetchedBatch("t", 0, memoryview(data), core.batch_header(data), position, 10)


# ---- records ----------------------------------------------------------------------------------


def test_values_are_unique_and_their_records_say_so():
    one, two = (RecordSource(RUN, producer, random.Random(1)) for producer in (1, 2))
    taken = [one.take(place()) for _ in range(50)] + [two.take(place()) for _ in range(50)]
    numbers = [value for found, _ in taken for value in found]
    assert len(set(numbers)) == len(numbers)
    assert all(values.decode(RUN, place().key, record) == value
               for found, records in taken for value, record in zip(found, records, strict=True))


def test_batches_without_a_gap_between_them_are_one_run():
    records = [values.encode(RUN, place().key, value) for value in (1, 2, 3, 4)]
    runs = runs_of(RUN, place().key, [batch(5, records[:2]), batch(7, records[2:3]),
                                      batch(9, records[3:])])
    assert runs == [[5, [1, 2, 3]], [9, [4]]]
    assert next_offset(runs, 0) == 10
    assert next_offset([], 4) == 4


def test_a_batch_that_is_entered_in_its_middle_begins_there():
    records = [values.encode(RUN, place().key, value) for value in (1, 2, 3)]
    assert runs_of(RUN, place().key, [batch(5, records, position=6)]) == [[6, [2, 3]]]


def test_records_that_do_not_belong_there_are_told_apart():
    strange = [b"", b"x" * 40, values.encode(RUN, "t@4/0", 1), values.encode(RUN + 1, "t@5/0", 1)]
    (run,) = runs_of(RUN, place().key, [batch(0, strange)])
    assert run == [0, [CORRUPT, CORRUPT, FOREIGN, FOREIGN]]


# ---- what is asked ----------------------------------------------------------------------------


def test_hot_partitions_get_their_share_and_the_others_are_not_forgotten():
    topics, rng = Topics(), random.Random(1)
    topics.add([place(0)], hot=True)
    topics.add([place(number) for number in range(1, 10)])
    picked = [topics.pick(rng).partition for _ in range(2_000)]
    assert picked.count(0) > 1_000
    assert set(picked) == set(range(10))


def test_reads_begin_anywhere_up_to_a_little_beyond_the_end():
    rng = random.Random(1)
    offsets = {reads.offset_near(rng, 100) for _ in range(5_000)}
    assert min(offsets) == 0
    assert max(offsets) == 102
    assert {reads.offset_near(rng, 0) for _ in range(100)} == {0, 1, 2}


def test_an_assignment_begins_where_the_consumer_stood_or_further_back():
    rng, world = random.Random(1), context(place(0), place(1))
    for _ in range(200):
        for where, at in consumers.assignment(rng, world, {place(0): 30}).items():
            assert 0 <= at <= 30
            assert at == 0 or where == place(0)


def test_one_partition_is_enough_for_a_group():
    places = [place(0, group=1), place(1, group=1), place(2, group=2), place(3, group=3)]
    assert sorted(each.group for each in one_of_each(places, {1, 3})) == [1, 3]


# ---- a producer by hand -----------------------------------------------------------------------


class Script:
    """Sessions whose answers were written before: an offset, or an exception."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked: list[str] = []

    async def ask(self, address, request, payload=(), timeout_s=5.0, metadata_index=0):
        await trio.lowlevel.checkpoint()
        self.asked.append(address)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return ProduceReply((ProduceResult(0, answer),))


def insist(script: Script) -> int:
    async def run() -> int:
        return await idempotent.insist(context(), script, random.Random(1), place(), bytearray(8))
    return trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_lost_answer_is_asked_for_again_at_whoever_leads():
    script = Script(NoAnswer("gone"), NotLeader(leader=2, leader_address="n2:1"), 41)
    assert insist(script) == 41
    assert script.asked[-1] == "n2:1"


def test_who_gives_up_after_a_lost_answer_does_not_know():
    with pytest.raises(AmbiguousOutcome, match="given up"):
        insist(Script(NoAnswer("gone"), NotSent("nobody there")))


def test_who_was_only_ever_refused_knows():
    with pytest.raises(NotSent):
        insist(Script(NotSent("nobody there")))


def test_a_refusal_that_will_not_change_ends_it():
    script = Script(InvalidBatch("never"), 41)
    with pytest.raises(InvalidBatch):
        insist(script)
    assert len(script.asked) == 1


def test_an_append_is_over_when_every_record_of_it_is():
    """The producer raises a failure that is never awaited when it closes, and that ends the
    workload."""
    waited: list[str] = []

    class Delivery(NamedTuple):
        name: str
        failure: Exception | None = None

        async def wait(self):
            waited.append(self.name)
            if self.failure is not None:
                raise self.failure
            return self.name

    refused = [Delivery("a"), Delivery("b", InvalidBatch("b")), Delivery("c", NotLeader("c"))]
    with pytest.raises(InvalidBatch):
        trio.run(appends.outcomes, refused)
    assert waited == ["a", "b", "c"]
    assert trio.run(appends.outcomes, refused[:1]) == ["a"]


def test_a_new_client_of_an_owner_is_another_process(monkeypatch):
    """Metadata that a client has seen is promised to it alone: a node with older metadata may
    answer a new client."""
    asked: list[tuple[int, int]] = []

    async def life(_context, process, client, *_):
        asked.append((process.number, id(client)))
        if len(asked) == 3:
            raise Ended

    class Ended(Exception):
        """Raised after enough incarnations."""

    made = [contextlib.nullcontext(object()) for _ in range(3)]
    monkeypatch.setattr(churn, "one_life", life)
    monkeypatch.setattr(WorkloadContext, "client", lambda _self: made[len(asked)])
    with pytest.raises(Ended):
        trio.run(churn.owning, context(), "churn-0")
    assert len({process for process, _ in asked}) == len({client for _, client in asked}) == 3
