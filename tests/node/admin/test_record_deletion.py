"""Deletion of records on request: ranges, repetitions, refusals, limits, switches."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import trio

from multiraft.partitions.retention_records import UNKNOWN_BYTES
from multiraft.types import METADATA_GROUP, EntryKind
from multiraft.wire.errors import Code
from multiraft.wire.messages import (
    EARLIEST,
    REFUSALS_PER_REPLY_MAX,
    DeleteRecords,
    DeleteTopic,
    OffsetQuery,
    RecordDeletion,
)
from node.admin import record_deletion
from node.clients.log_starts import LogStarts
from node.metadata import node_releases
from tests.node.clients.test_fetch import fetch, result
from tests.node.clients.test_log_start import Partition
from tests.node.clients.test_switched_partition import asked, group_of, put, read_all, switch
from tests.node.harness import Client, in_trio, make_node, running, serving, until
from tests.partitions.test_state import P, control, seal

ALL = -1
TIMEOUT_MS = 10_000


async def delete(client, *rows: tuple[int, int]):
    """Return the response to a request to delete records of each (partition, before offset)."""
    return await client.ask(DeleteRecords(tuple(RecordDeletion(*row) for row in rows), TIMEOUT_MS))


async def deleted(client, partition: int, before: int):
    """Delete records of one partition, and return (code, log start) of the result."""
    answer = await delete(client, (partition, before))
    assert answer.code == Code.OK, answer
    [row] = answer.reply.results
    assert row.incarnation == partition
    return row.code, row.log_start


def state_of(node, partition: int):
    return node.env.store.partition_states[group_of(node, partition)].applied(partition)


def last_index(node, partition: int) -> int:
    return node.env.store.partition_states[group_of(node, partition)].last_index


@in_trio
async def test_records_below_the_offset_are_gone_when_the_answer_arrives(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        for _ in range(5):
            await client.produce(topic, b"a", b"b")
        assert await deleted(client, topic, 4) == (Code.OK, 4)
        assert state_of(node, topic).log_start == 4
        [earliest] = await asked(client, OffsetQuery(topic, EARLIEST))
        assert earliest.offset == 4
        gone = result(await client.ask(fetch(topic, 3)))
        assert (gone.code, gone.error.start_offset, gone.error.end_offset) == (
            Code.OFFSET_OUT_OF_RANGE, 4, 10)
        assert len(await read_all(client, topic, 4)) == 3


@in_trio
async def test_the_log_start_survives_a_restart(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        for _ in range(5):
            await client.produce(topic, b"a", b"b")
        assert await deleted(client, topic, 7) == (Code.OK, 7)
    async with running(make_node(node.config)) as again, await Client.open(again) as client:
        [earliest] = await asked(client, OffsetQuery(topic, EARLIEST))
        assert earliest.offset == 7
        assert (await client.produce(topic, b"c")).base_offset == 10


@in_trio
async def test_minus_one_deletes_up_to_the_high_watermark(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        assert await deleted(client, topic, ALL) == (Code.OK, 0)  # it was never used
        await client.produce(topic, b"a", b"b", b"c")
        assert await deleted(client, topic, ALL) == (Code.OK, 3)
        assert (await client.produce(topic, b"d")).base_offset == 3
        state = state_of(node, topic)
        assert (state.log_start, state.next_offset) == (3, 4)


@in_trio
async def test_an_offset_beyond_the_end_is_refused_with_the_range_and_changes_nothing(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic, b"a", b"b", b"c")
        await deleted(client, topic, 1)
        before = last_index(node, topic)
        [row] = (await delete(client, (topic, 4))).reply.results
        assert (row.code, row.log_start) == (Code.OFFSET_OUT_OF_RANGE, -1)
        assert (row.error.start_offset, row.error.end_offset) == (1, 3)
        assert row.error.text == ("offset 4 is beyond the end of t/0, which begins at 1 and ends "
                                  "at 3: nothing was deleted")
        assert last_index(node, topic) == before


@in_trio
async def test_a_repetition_and_a_lower_offset_are_answered_with_the_present_log_start(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic, b"a", b"b", b"c")
        assert await deleted(client, topic, 2) == (Code.OK, 2)
        before = last_index(node, topic)
        assert await deleted(client, topic, 2) == await deleted(client, topic, 1) == (Code.OK, 2)
        assert last_index(node, topic) == before, "a repetition adds no entry"


@in_trio
async def test_a_second_request_for_a_deletion_under_way_adds_no_entry(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic, b"a", b"b", b"c")
        before, answers = last_index(node, topic), []

        async def ask() -> None:
            deletion = node.replicas.record_deletion
            answers.append(await deletion.delete(
                DeleteRecords((RecordDeletion(topic, 2),), TIMEOUT_MS)))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask)
        assert {row.log_start for answer in answers for row in answer.results} == {2}
        assert last_index(node, topic) == before + 1


@in_trio
async def test_each_row_of_a_request_is_judged_by_itself(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t", 4)
        for partition in range(3):
            await client.produce(topic + partition, b"a", b"b")
        answer = await delete(client, (topic, 1), (topic + 1, 3), (1 << 40, 0), (topic + 2, ALL),
                              (topic + 3, 0))
        assert [(row.incarnation - topic, row.code, row.log_start)
                for row in answer.reply.results] == [
            (0, Code.OK, 1), (1, Code.OFFSET_OUT_OF_RANGE, -1),
            ((1 << 40) - topic, Code.UNKNOWN_PARTITION, -1), (2, Code.OK, 2), (3, Code.OK, 0)]


@in_trio
async def test_a_partition_named_twice_and_internal_topics_are_refused(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        assert (await delete(client, (topic, 0), (topic, 1))).code == Code.INVALID_REQUEST
        internal = await client.create("__internal")
        await client.produce(internal, b"a")
        assert (await deleted(client, internal, 1)) == (Code.INVALID_REQUEST, -1)
        assert state_of(node, internal).log_start == 0


@in_trio
async def test_the_records_of_a_deleted_topic_cannot_be_deleted(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic, b"a")
        await client.ask(DeleteTopic("t"))
        assert await deleted(client, topic, 1) == (Code.UNKNOWN_PARTITION, -1)


@in_trio
async def test_nodes_of_earlier_releases_are_named_and_nothing_is_proposed(tmp_path, monkeypatch):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic, b"a")
        monkeypatch.setattr(node_releases, "RETENTION_ENTRIES_SINCE", (99, 0))
        refused = await delete(client, (topic, 1))
        assert refused.code == Code.UNSUPPORTED
        assert "need release 99.0 or later on all nodes; upgrade node 1" in refused.error.text
        assert state_of(node, topic).log_start == 0


@in_trio
async def test_many_partitions_of_a_group_share_few_entries(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t", 400)
        for partition in range(400):
            await client.produce(topic + partition, b"a")
        groups = {group_of(node, topic + partition) for partition in range(400)}
        states = node.env.store.partition_states
        before = {group: states[group].last_index for group in groups}
        answer = await delete(client, *((topic + partition, 1) for partition in range(400)))
        assert {(row.code, row.log_start) for row in answer.reply.results} == {(Code.OK, 1)}
        added = sum(states[group].last_index - before[group] for group in groups)
        assert added <= 2 * len(groups) + 400 // 128


@in_trio
async def test_a_request_of_the_most_partitions_fits_into_one_answer(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        rows = [(1 << 40 | at, 0) for at in range(REFUSALS_PER_REPLY_MAX)]
        answer = await delete(client, *rows)
        assert {row.code for row in answer.reply.results} == {Code.UNKNOWN_PARTITION}
        assert len(answer.reply.results) == len(rows)


# ---- bytes that remain ---------------------------------------------------------------------------


@in_trio
async def test_an_offset_inside_a_batch_keeps_the_bytes_of_the_batch(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        for _ in range(4):
            await client.produce(topic, b"a" * 100, b"b" * 100)
        whole = state_of(node, topic).live_bytes
        await deleted(client, topic, 3)  # one batch is gone, the second one is divided
        assert state_of(node, topic).live_bytes == pytest.approx(whole * 3 / 4, abs=4 * 8)
        assert len(await read_all(client, topic, 2 + 2)) == 2
        await deleted(client, topic, 4)
        assert state_of(node, topic).live_bytes == pytest.approx(whole / 2, abs=4 * 8)
        await deleted(client, topic, ALL)
        assert state_of(node, topic).live_bytes == 0


@in_trio
async def test_a_deletion_of_more_batches_than_are_counted_leaves_the_size_unknown(
        tmp_path, monkeypatch):
    monkeypatch.setattr(record_deletion, "BATCHES_COUNTED_MAX", 256)
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t", 2)
        for partition, batches in ((topic, 128), (topic + 1, 400)):
            for sequence in range(batches):
                await put(client, partition, sequence, b"a")
        answer = await delete(client, (topic, 100), (topic + 1, 399))
        assert [row.code for row in answer.reply.results] == [Code.OK, Code.OK]
        assert state_of(node, topic).live_bytes > 0
        assert state_of(node, topic + 1).live_bytes == UNKNOWN_BYTES


# ---- switches and leaders ------------------------------------------------------------------------


@in_trio
async def test_offsets_of_earlier_epochs_are_deleted_by_the_last_group(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        for sequence in range(3):
            await put(client, topic, sequence, b"x")
        await switch(node, client, topic)
        assert await deleted(client, topic, 2) == (Code.OK, 2)
        assert state_of(node, topic).log_start == 2
        [earliest] = await asked(client, OffsetQuery(topic, EARLIEST))
        assert earliest.offset == 2
        assert (await put(client, topic, 3, b"x")).base_offset == 3
        assert await deleted(client, topic, ALL) == (Code.OK, 4)


@in_trio
async def test_a_leader_that_has_not_committed_in_its_term_asks_to_wait(tmp_path, monkeypatch):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic, b"a")
        monkeypatch.setattr(type(node.core.status), "has_applied_in_term",
                            lambda _status, group: group == METADATA_GROUP)
        assert await deleted(client, topic, 1) == (Code.OFFSET_NOT_AVAILABLE, -1)


@in_trio
async def test_a_leader_that_copies_records_asks_to_wait_because_it_could_not_count_them(
        tmp_path, monkeypatch):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic, b"a")
        with monkeypatch.context() as lacking:
            lacking.setattr(type(node.core.status), "records_left", lambda _status, group: 1)
            assert await deleted(client, topic, 1) == (Code.OFFSET_NOT_AVAILABLE, -1)
        assert await deleted(client, topic, 1) == (Code.OK, 1)


@in_trio
async def test_a_deletion_that_is_not_committed_in_time_is_ambiguous(tmp_path, monkeypatch):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic, b"a")
        deletion = node.replicas.record_deletion
        monkeypatch.setattr(deletion, "_request_round", lambda: None)

        async def never(_group, _index, _timeout_s) -> bool:
            return False

        monkeypatch.setattr(deletion._applied, "wait", never)
        monkeypatch.setattr(deletion._log_starts, "highest", lambda _place, _partition: 0)
        assert await deleted(client, topic, 1) == (Code.AMBIGUOUS, -1)
        monkeypatch.undo()
        await until(lambda: state_of(node, topic).log_start == 1, "it is applied later")


class Undecided:
    """A handler whose partition is sealed, or whose proposals another leader drops."""

    def __init__(self, partition: Partition):
        self.partition = partition
        self.status = self
        place = SimpleNamespace(
            group=partition.history[-1].group, epoch=partition.history[-1].epoch, switch=None,
            epoch_history=tuple(partition.history), topic=SimpleNamespace(name="t"), partition=0)
        directory = SimpleNamespace(locate=lambda _: place, leader_detail=None)
        self.handler = record_deletion.RecordDeletion(
            self, self, partition.groups, directory, lambda: self, LogStarts(partition.groups),
            self, self, self, 1000, lambda: None, lambda: 0)

    def nodes(self):
        return ()

    def is_leader(self, _group):
        return True

    has_applied_in_term = is_leader

    def records_left(self, _group):
        return 0

    def batches(self, *_):
        return []

    async def take(self, _rows=1):
        pass

    async def look_up(self, look_up):
        return look_up()

    def propose(self, group, kind, payload, partition=0, base_offset=-1):
        control(self.partition.groups[group], kind, partition, payload=payload)

    async def wait(self, group, index, _timeout_s):
        states = self.partition.groups[group]
        states.truncate(index)  # and the next leader's first entry has that index
        control(states, EntryKind.NOOP, 0)
        self.partition.apply()
        return True

    def delete(self, before: int):
        coroutine = self.handler.delete(DeleteRecords((RecordDeletion(P, before),), 1))
        try:
            coroutine.send(None)
        except StopIteration as stop:
            return stop.value.results[0]
        raise AssertionError("it waits")


def partition_of(records: int) -> Partition:
    partition = Partition()
    partition.append(records)
    partition.apply()
    return partition


def test_a_sealed_partition_is_refused_until_it_continues_elsewhere():
    partition = partition_of(5)
    seal(partition.last)
    for before in (3, 6, ALL):  # the end may be in the next group
        refused = Undecided(partition).delete(before)
        assert (refused.code, refused.log_start) == (Code.STALE_METADATA, -1)
    assert "is being switched" in refused.error.text


def test_a_deletion_that_a_new_leader_dropped_had_no_effect():
    partition = partition_of(5)
    refused = Undecided(partition).delete(3)
    assert (refused.code, refused.log_start) == (Code.LEADER_UNKNOWN, -1)
    assert "nothing was deleted" in refused.error.text
    assert partition.last.applied(P).log_start == 0


def test_records_that_are_not_committed_are_beyond_the_end():
    partition = partition_of(5)
    partition.append(3)  # not applied
    refused = Undecided(partition).delete(6)
    assert (refused.code, refused.error.end_offset) == (Code.OFFSET_OUT_OF_RANGE, 5)
    assert partition.last.last_index == partition.last.applied_index + 1, "nothing was proposed"


def test_the_group_knows_a_later_epoch_than_the_metadata():
    partition = partition_of(5)
    partition.switch()
    partition.switch()
    partition.history = partition.history[:1]
    for before in (3, 6, ALL):  # the records may have grown elsewhere
        assert Undecided(partition).delete(before).code == Code.STALE_METADATA
