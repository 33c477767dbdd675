"""Fetch and list-offsets at a real node: long polls, cold ranges, offsets out of range."""

import errno
import os
from types import SimpleNamespace

import pytest
import trio
import trio.testing

from multiraft.core import split_batches
from multiraft.storage.errors import RecordsNotCopied
from multiraft.storage.io_jobs import FetchJob
from multiraft.wire.errors import Code
from multiraft.wire.messages import (
    EARLIEST,
    LATEST,
    Fetch,
    FetchPart,
    ListOffsets,
    OffsetQuery,
)
from multiraft.wire.plans import GroupLoads
from node.errors import DiskFailed
from tests.node.harness import Client, in_trio, make_node, serving, until


def fetch(incarnation: int, offset: int, wait_max_ms: int = 0, bytes_min: int = 1) -> Fetch:
    return Fetch((FetchPart(incarnation, offset, 1 << 20),), bytes_min, 1 << 20, wait_max_ms)


def result(answer):
    return answer.reply.results[0]


@in_trio
async def test_what_is_committed_is_served_and_nothing_else(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        for number in range(3):
            assert (await client.produce(topic, b"value %d" % number)).base_offset == number
        answer = await client.ask(fetch(topic, 1))
        assert (result(answer).code, result(answer).high_watermark) == (Code.OK, 3)
        assert [bytes(one).count(b"value") for one in split_batches(answer.reply.payload)] == [1, 1]
        empty = await client.ask(fetch(topic, 3))
        assert (result(empty).code, result(empty).length) == (Code.OK, 0)


@in_trio
async def test_a_long_poll_is_woken_by_a_commit(tmp_path):
    async with (serving(tmp_path) as node, await Client.open(node) as reader,
                await Client.open(node) as writer):
        topic = await writer.create("t")
        await reader.begin(fetch(topic, 0, wait_max_ms=30_000))
        await until(lambda: node.reads.fetch_handler._deadlines, "the poll waits")
        await writer.produce(topic, b"news")
        assert b"news" in bytes((await reader.event()).reply.payload)
        assert not node.reads.fetch_handler._deadlines


@in_trio
async def test_a_long_poll_ends_in_time_on_an_idle_node(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await trio.testing.wait_all_tasks_blocked()
        answer = await client.ask(fetch(topic, 0, wait_max_ms=50))
        assert (result(answer).code, result(answer).length) == (Code.OK, 0)


@in_trio
async def test_a_poll_waits_for_as_many_bytes_as_it_asked_for(tmp_path):
    async with (serving(tmp_path) as node, await Client.open(node) as reader,
                await Client.open(node) as writer):
        topic = await writer.create("t")
        await reader.begin(fetch(topic, 0, wait_max_ms=30_000, bytes_min=1500))
        for _ in range(2):
            await until(lambda: node.reads.fetch_handler._deadlines)
            await writer.produce(topic, bytes(1000))
        assert result(await reader.event()).length > 2000


@in_trio
async def test_what_is_read_of_a_group_counts_when_it_is_served_and_is_told(tmp_path):
    async with (serving(tmp_path) as node, await Client.open(node) as reader,
                await Client.open(node) as writer):
        topic = await writer.create("t")
        await reader.begin(fetch(topic, 0, wait_max_ms=30_000, bytes_min=1500))
        for _ in range(2):  # the first try finds too few bytes, and reads none
            await until(lambda: node.reads.fetch_handler._deadlines)
            assert not node.reads.fetch_handler.led_bytes
            await writer.produce(topic, bytes(1000))
        length = result(await reader.event()).length
        loads = (await writer.ask(GroupLoads())).reply
        assert [row.read_bytes for row in loads.groups if row.read_bytes] == [length]


@in_trio
async def test_a_session_that_ends_takes_its_polls_along(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as writer:
        topic = await writer.create("t")
        async with await Client.open(node) as reader:
            await reader.begin(fetch(topic, 0, wait_max_ms=30_000))
            await until(lambda: node.reads.fetch_handler._deadlines)
        await until(lambda: not node.reads.fetch_handler._deadlines)
        assert not node.reads.fetch_handler._by_group and not node.reads.fetch_handler._by_session


@in_trio
async def test_a_fetch_that_is_given_up_between_its_steps_is_looked_at_no_more(tmp_path):
    """Otherwise every later commit of the node would be recorded for it."""
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        many = Fetch((FetchPart(topic, 0, 1 << 20),) * 300, 1, 1 << 20, 30_000)
        left = node.reads.fetch_handler.handle(
            many, SimpleNamespace(session=None, is_authorized=True))
        assert node.reads.fetch_handler._fetches_in_steps == 1
        del left
        assert node.reads.fetch_handler._fetches_in_steps == 0
        await client.produce(topic, b"news")
        assert not node.reads.fetch_handler._committed


@in_trio
async def test_offsets_outside_the_log_are_told_with_the_range(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic, b"one", b"two")
        for offset in (3, (1 << 63) - 1):
            refused = result(await client.ask(fetch(topic, offset, wait_max_ms=30_000)))
            assert refused.code == Code.OFFSET_OUT_OF_RANGE
            assert (refused.error.start_offset, refused.error.end_offset) == (0, 2)


@in_trio
async def test_a_leader_that_is_not_settled_calls_an_offset_not_available(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        node.core.status.has_applied_in_term = lambda group: False
        assert result(await client.ask(fetch(topic, 7))).code == Code.OFFSET_NOT_AVAILABLE
        latest = ListOffsets((OffsetQuery(topic, LATEST), OffsetQuery(topic, EARLIEST)))
        answer = await client.ask(latest)
        assert [row.code for row in answer.reply.results] == [Code.OFFSET_NOT_AVAILABLE, Code.OK]


@in_trio
async def test_a_record_that_is_not_copied_yet_is_refused_and_can_be_retried(tmp_path, monkeypatch):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic, b"value")

        def lacking(group, partition, offset, *_):
            raise RecordsNotCopied(group, partition, offset, 3)

        with monkeypatch.context() as copying:
            copying.setattr(node.store, "fetch", lacking)
            refused = result(await client.ask(fetch(topic, 0)))
            assert refused.code == Code.OFFSET_NOT_AVAILABLE
            assert "still to be copied" in refused.error.text
        assert result(await client.ask(fetch(topic, 0))).code == Code.OK


@in_trio
async def test_only_a_node_that_is_not_behind_says_that_a_partition_does_not_exist(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        version = node.metadata.log.state.version
        for seen, code in ((0, Code.UNKNOWN_PARTITION), (version, Code.UNKNOWN_PARTITION),
                           (version + 1, Code.STALE_METADATA)):
            answer = await client.ask(fetch(77, 0), seen_index=seen)
            assert result(answer).code == code
            query = ListOffsets((OffsetQuery(77, LATEST),))
            assert result(await client.ask(query, seen_index=seen)).code == code


async def restarted(tmp_path, node, test) -> None:
    """Run ``test`` on the same directory with nothing in memory."""
    again = make_node(node.config)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(again.run)
        await until(lambda: again.core.status.led_count == 3
                    and all(map(again.core.status.has_applied_in_term, range(3))),
                    "it leads, and has committed")
        async with await Client.open(again) as client:
            await test(again, client)
        again.driver.rounds.stop()
        nursery.cancel_scope.cancel()
    again.close()


@in_trio
async def test_a_cold_range_is_served_by_an_idle_node(tmp_path):
    async with (serving(tmp_path, page_cache_read_bytes_max=0) as node,
                await Client.open(node) as client):
        topic = await client.create("t")
        for number in range(4):
            await client.produce(topic, b"cold %d" % number)

    async def read(again, client):
        asked = []

        def request_round():
            asked.append(len(again.clients.sessions.to_flush))
            again.request_round()

        again.reads.fetch_handler._request_round = request_round
        answer = await client.ask(fetch(topic, 2))
        assert (result(answer).code, result(answer).high_watermark) == (Code.OK, 4)
        assert asked == [1], "the answer asks for the round that it leaves with"
        assert b"cold 2" in bytes(answer.reply.payload)
        assert again.reads.fetch_handler.cold_reads == 1

    await restarted(tmp_path, node, read)


@in_trio
async def test_what_the_page_cache_has_needs_no_thread(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic, b"one", b"two")

    async def read(again, client):
        answer = await client.ask(fetch(topic, 0))
        assert b"two" in bytes(answer.reply.payload)
        assert (again.reads.fetch_handler.resident_reads, again.reads.fetch_handler.cold_reads) == (
            1,
            0,
        )

    await restarted(tmp_path, node, read)


@in_trio
async def test_reads_from_disk_go_in_turn_and_all_are_answered(tmp_path):
    async with serving(tmp_path, page_cache_read_bytes_max=0, cold_readers_max=1,
                       cold_read_bytes_max=1) as node, await Client.open(node) as client:
        topic = await client.create("t")
        for number in range(4):
            await client.produce(topic, b"cold %d" % number)

    async def read(again, client):
        started = trio.Event()
        order: list[int] = []

        class Slow:
            """A plan that runs only once all others wait behind it."""

            bytes = 100

            def execute(self):
                trio.from_thread.run(started.wait)

        async def first():
            await again.reads.background.read(Slow())
            order.append(0)

        assert again.reads.background.start(first)
        for offset in range(4):
            await client.begin(fetch(topic, offset))
        await until(lambda: again.reads.background.tasks == 5)
        assert again.reads.background._bytes == 100, \
            "one at a time, though it is larger than the bound"
        started.set()
        payloads = {bytes((await client.event()).reply.payload)[-8:] for _ in range(4)}
        assert len(payloads) == 1 and order == [0], "each answer ends with the last batch"
        assert again.reads.background._bytes == 0 and again.reads.fetch_handler.cold_reads == 4

    await restarted(tmp_path, node, read)


@in_trio
async def test_a_damaged_range_quarantines_the_replica_and_nothing_else(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t", 8)
        for partition in range(8):
            await client.produce(topic + partition, b"tender %d" % partition)

    def damage(store, value: bytes) -> None:
        journal = tmp_path / "data" / "lane-0"
        [path] = [path for path in journal.iterdir() if value in path.read_bytes()]
        with open(path, "r+b") as file:
            os.pwrite(file.fileno(), b"TENDER", path.read_bytes().index(value))

    async def read(again, client):
        groups = {partition: again.metadata.directory.locate(topic + partition).group
                  for partition in range(8)}
        other = next(partition for partition in range(8) if groups[partition] != groups[0])
        damage(again.store, b"tender 0")
        assert result(await client.ask(fetch(topic, 0))).code == Code.QUARANTINED
        await until(lambda: again.core.status.quarantined_count == 1)
        assert again.core.status.of(groups[0]).quarantined
        assert result(await client.ask(fetch(topic + other, 0))).code == Code.OK
        assert result(await client.ask(fetch(topic, 0))).code == Code.LEADER_UNKNOWN

    await restarted(tmp_path, node, read)
    again = make_node(node.config)
    assert again.core.status.quarantined_count == 1, (
        "a damaged replica stays damaged across restarts")
    again.close()


@in_trio
@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
async def test_without_free_descriptors_a_thread_reads_or_the_fetch_is_refused(
        tmp_path, monkeypatch, number):
    def exhausted(job):
        raise OSError(number, os.strerror(number))

    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic, b"one")

    async def read(again, client):
        with monkeypatch.context() as patched:
            patched.setattr(FetchJob, "run_from_page_cache", exhausted)
            answer = await client.ask(fetch(topic, 0))
            assert (result(answer).code, b"one" in bytes(answer.reply.payload)) == (Code.OK, True)
            assert again.reads.fetch_handler.cold_reads == 1
            patched.setattr(FetchJob, "execute", exhausted)
            refused = result(await client.ask(fetch(topic, 0)))
            assert (refused.code, refused.error.text) == (
                Code.QUEUE_FULL, f"the node cannot open a file now: {os.strerror(number)}")
        assert result(await client.ask(fetch(topic, 0))).code == Code.OK

    await restarted(tmp_path, node, read)


@in_trio
async def test_a_range_in_the_page_cache_that_cannot_be_read_stops_the_node(tmp_path, monkeypatch):
    def broken(job):
        raise OSError(errno.EIO, "broken")

    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic, b"one")
    monkeypatch.setattr(FetchJob, "run_from_page_cache", broken)

    async def read(again, client):
        await client.begin(fetch(topic, 0))
        await trio.sleep_forever()

    with pytest.raises(ExceptionGroup) as raised:
        await restarted(tmp_path, node, read)
    assert raised.group_contains(DiskFailed)
