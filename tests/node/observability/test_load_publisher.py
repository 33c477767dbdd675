"""Loads that a node appends to `__metrics`: what is counted, what a record says, what is lost."""

import json

import pytest

from multiraft.compression import decompress
from multiraft.core import batch_header, decode_records
from multiraft.errors import MultiRaftError
from multiraft.wire.errors import Code
from multiraft.wire.messages import Fetch, FetchPart
from multiraft.wire.schema import Malformed
from node.clients.load_counts import LoadCounts
from node.config import BadConfig, MetricsConfig, parse
from node.histogram import Histogram
from node.metadata.state_machine import DeleteTopic
from node.observability import group_health as survey_module
from node.observability import load_records
from node.observability.load_publisher import OP, next_end
from node.peers.bulk_channel import NoAnswer
from tests.node.harness import Client, batch, in_trio, make_node, one_node_table, running, until


def publishing(directory, **settings):
    table = {**one_node_table(), "metrics": {"publish": True, "interval_ms": 1_000, **settings},
             "limits": {"retention_check_interval_ms": 200}}
    return running(make_node(parse(table, directory)))


async def published(node, client):
    """All records of the topic, once another window is in; with the offset of the first."""
    done = node.rebalance.load_publisher.published
    await until(lambda: node.rebalance.load_publisher.published >= done + 2, "two more windows")
    topic = node.metadata.log.state.topic(load_records.TOPIC)
    incarnation = topic.incarnation + 1 % topic.partitions
    group = node.metadata.directory.locate(incarnation).group
    start = node.store.partition_states[group].applied(incarnation).log_start
    answer = await client.ask(Fetch((FetchPart(incarnation, start, 1 << 20),)))
    data, rows = memoryview(answer.reply.payload), []
    while data:
        header = batch_header(data)
        block = decompress(header.attributes & 7, data[61:header.total_bytes])
        rows += [json.loads(each.value) for each in decode_records(header, block)]
        data = data[header.total_bytes:]
    return start, rows


def test_only_what_had_load_is_counted_and_taking_begins_anew():
    counts = LoadCounts(2)
    counts.appended(1, 11, 3, 100)
    counts.read(1, 11, 2, 50)
    counts.read(2, 12, 1, 10)
    counts.appended(2, 13, 1, 7)  # one more than the counts can tell apart
    counts.appended(3, 11, 1, 1)  # it was switched
    taken = counts.take()
    assert taken.partitions == {11: [3, 101, 4, 2, 50, 2, 1], 12: [2, 0, 0, 0, 10, 1, 1]}
    assert taken.groups == {1: [100, 50], 2: [7, 10], 3: [1, 0]} and taken.left_out == 1
    assert counts.take() == ({}, {}, 0)


def test_latencies_are_those_of_the_window():
    histogram = Histogram()
    histogram.observe(1_000_000)
    before = histogram.copy()
    assert load_records.latency_us(histogram, before) == -1
    for _ in range(99):
        histogram.observe(100)
    histogram.observe(5_000)
    assert load_records.latency_us(histogram, before) == 128


@pytest.mark.parametrize("now, last, end", [
    (500, 0, 1_000), (1_000, 0, 2_000), (1_999, 1_000, 2_000), (1_999, 2_000, 3_000),
    (500, 9_000, 1_000)])
def test_no_window_ends_twice(now, last, end):
    assert next_end(now, last, 1_000) == end


@pytest.mark.parametrize("settings, said", [
    ({"interval_ms": 999}, "metrics.interval_ms=999 must be from 1000"),
    ({"partitions_max": 0}, "metrics.partitions_max=0"),
    ({"retention_ms": 60_000}, "metrics.retention_ms=60000 must be from 120000"),
    ({"publish": 1}, "metrics.publish must be true or false")])
def test_settings_that_cannot_be_are_refused(tmp_path, settings, said):
    with pytest.raises(BadConfig, match=said):
        parse({**one_node_table(), "metrics": settings}, tmp_path)


def test_loads_are_published_unless_the_configuration_says_otherwise(tmp_path):
    assert MetricsConfig().publish
    assert not parse({**one_node_table(), "metrics": {"publish": False}}, tmp_path).metrics.publish


@in_trio
async def test_a_node_appends_what_it_carried_and_an_idle_one_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(survey_module, "SPACE_WAIT_S", 60.0)
    async with publishing(tmp_path) as node, await Client.open(node) as client:
        await until(lambda: node.rebalance.load_publisher.published, "the first window")
        topic = await client.create("busy", 2)
        size, base, lost = len(batch(b"one", b"two")), -2, -1
        loads = node.rebalance.load_publisher
        while lost != loads.lost:  # a window that a slow disk lost took its loads along
            base, lost = base + 2, loads.lost
            assert (await client.produce(topic, b"one", b"two")).base_offset == base
            await client.ask(Fetch((FetchPart(topic, base + 1, 1 << 20),)))
            _, rows = await published(node, client)
        assert all(row["v"] == 1 and row["node"] == 1 and row["interval_ms"] == 1_000
                   and row["parts"] == 1 and row["cluster"] == node.config.cluster_id.hex()
                   and row["disk_used"] > 0 for row in rows)
        begins = [row["window_ms"] for row in rows]
        assert begins == sorted(set(begins)) and not any(begin % 1_000 for begin in begins)
        found = [dict(zip(row["partitions"], values, strict=True)) for row in rows
                 for values in zip(*row["partitions"].values(), strict=True)]
        # One window, or the append was in one and the read in the next.
        busy = [each for each in found
                if (each["topic"], each["next_offset"]) == ("busy", base + 2)]
        assert {(each["partition"], each["epoch"]) for each in busy} == {(0, 1)}
        assert [sum(each[name] for each in busy) for name in (
            "bytes_in", "records_in", "appends", "bytes_out", "records_out", "reads")] == [
            size, 2, 1, size, 1, 1]
        idle = next(row for row in rows if not row["partitions"]["topic"])
        assert idle["groups"]["group"] == [] and len(json.dumps(idle)) < 900
        survey = await node.admin.group_health.fresh()
        assert node.status.statistics.snapshot(survey)["load_windows_lost"] == lost


@in_trio
async def test_what_is_older_than_the_retention_cannot_be_read_any_more(tmp_path):
    async with publishing(tmp_path, retention_ms=2_000) as node, await Client.open(node) as client:
        await until(lambda: node.rebalance.load_publisher.published >= 4, "four windows")
        start, rows = await published(node, client)
        assert start > 0 and len(rows) <= 4
        topic = node.metadata.log.state.topic(load_records.TOPIC)
        below = await client.ask(Fetch((FetchPart(topic.incarnation + 1, 0, 1 << 20),)))
        assert below.reply.results[0].code == Code.OFFSET_OUT_OF_RANGE


@in_trio
async def test_a_topic_that_is_deleted_behind_an_append_is_made_anew(tmp_path):
    async with publishing(tmp_path) as node:
        publish, deleted = node.rebalance.load_publisher._publish, []

        async def then_gone(*args):
            await publish(*args)
            if not deleted:
                topic = node.metadata.log.state.topic(load_records.TOPIC)
                await node.metadata.log.propose(DeleteTopic(topic.name, topic.id))
                deleted.append(topic.incarnation)

        node.rebalance.load_publisher._publish = then_gone
        await until(lambda: node.rebalance.load_publisher.published >= 2, "the window after it")
        assert node.metadata.log.state.topic(load_records.TOPIC).incarnation not in deleted


@in_trio
async def test_windows_that_cannot_be_appended_are_counted_and_the_node_serves(tmp_path):
    async with publishing(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        append_here = node.rebalance.load_publisher._append_here

        async def refused(*_):
            raise MultiRaftError("no room")

        node.rebalance.load_publisher._append_here = refused
        await until(lambda: node.rebalance.load_publisher.lost, "a lost window")
        node.rebalance.load_publisher._append_here = append_here
        done = node.rebalance.load_publisher.published
        assert (await client.produce(topic, b"served")).base_offset == 0
        await until(lambda: node.rebalance.load_publisher.published > done, "it goes on")


@in_trio
async def test_peers_may_append_to_the_topic_and_to_nothing_else(tmp_path):
    async with publishing(tmp_path) as node, await Client.open(node) as client:
        other = await client.create("other")
        await until(lambda: node.rebalance.load_publisher.published, "the topic")
        asked = node.rebalance.load_publisher.handlers[OP]
        header, _ = await asked(2, {"op": OP, "incarnation": other}, batch(b"no"))
        assert header["code"] and "no partition of __metrics" in header["text"]
        topic = node.metadata.log.state.topic(load_records.TOPIC)
        header, _ = await asked(2, {"op": OP, "incarnation": topic.incarnation}, b"no batch")
        assert header["code"]
        header, _ = await asked(2, {"op": OP, "incarnation": topic.incarnation}, batch(b"yes"))
        assert header["code"] == 0
        for wrong in ({"op": OP}, {"op": OP, "incarnation": "1"}):
            with pytest.raises(Malformed):
                await asked(2, wrong, b"")
        for error in (NoAnswer("away"), MultiRaftError("refused")):
            async def fail(*_, error=error):
                raise error
            node.rebalance.load_publisher._append_here = fail
            assert not await node.rebalance.load_publisher._appended(b"")
