"""The keys of ``node_status`` and of its page agree."""

import re
from pathlib import Path
from types import SimpleNamespace

from multiraft.raft.status_view import StatusView
from multiraft.wire.errors import Code
from multiraft.wire.messages import Fetch, FetchPart
from node.peers.registry import PeerRegistry
from tests.node.harness import Client, in_trio, serving, until

PAGE = Path(__file__).parents[3] / "docs" / "protocol.md"


@in_trio
async def test_every_key_is_documented_and_every_documented_key_is_there(tmp_path):
    async with serving(tmp_path) as node:
        keys = list(node.status.statistics.snapshot(await node.admin.group_health.fresh()))
    section = PAGE.read_text().split("## Keys of node_status", 1)[1].split("\n## ", 1)[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == keys


@in_trio
async def test_counters_count(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic, b"one", b"two")
        snapshot = node.status.statistics.snapshot(await node.admin.group_health.fresh())
        assert snapshot["records_appended"] == 2
        assert (snapshot["topics"], snapshot["partitions"]) == (1, 1)
        assert snapshot["metadata_leader"] == 1
        assert snapshot["client_requests_in_flight"] == 0
        assert snapshot["client_requests_in_flight_max"] > 0
        assert snapshot["batches_appended"] == 1
        assert snapshot["elections_won"] == 3
        assert snapshot["client_connections"] == 1
        assert snapshot["disk_writes"] > 0


@in_trio
async def test_peers_are_up_or_down_and_a_leader_that_is_gone_is_none(tmp_path, monkeypatch):
    async with serving(tmp_path) as node:
        up = {1, 2}
        survey = await node.admin.group_health.fresh()
        statistics = node.status.statistics
        assert statistics.sample(survey).peers_up == {}
        monkeypatch.setattr(PeerRegistry, "peers",
                            lambda _known: [SimpleNamespace(id=2), SimpleNamespace(id=3)])
        monkeypatch.setattr(StatusView, "is_up", lambda _status, node: node in up)
        sample = statistics.sample(survey)
        assert sample.peers_up == {2: True, 3: False}
        assert sample.counters["metadata_leader"] == 1
        up.clear()
        sample = statistics.sample(survey)
        assert sample.peers_up == {2: False, 3: False}
        assert sample.counters["metadata_leader"] == 0


@in_trio
async def test_what_is_fetched_appended_and_refused_is_counted_where_it_happens(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic, b"one", b"two", b"three")
        await client.produce(topic, b"four", acks="leader")
        await client.produce(topic + 99, b"nowhere")
        for incarnation, offset in ((topic, 0), (topic, 1), (topic, 4), (topic + 99, 0)):
            await client.ask(Fetch((FetchPart(incarnation, offset, 1 << 20),)))
        sample = node.status.statistics.sample(await node.admin.group_health.fresh())
    counted = {name: sum(histogram.counts) for name, histogram in sample.histograms.items()}
    assert (counted["append_commit"], counted["append_leader"]) == (1, 1), "refusals are no appends"
    assert sample.counters["records_fetched"] == 4 + 3
    assert counted["fetch"] == 4, "none of them waited for records"
    assert sample.refusals == {"produce": {Code.UNKNOWN_PARTITION: 1},
                               "fetch": {Code.UNKNOWN_PARTITION: 1}, "whole": {}}
    assert counted["disk_write"] == sample.counters["disk_writes"]
    assert counted["round"] == sample.counters["rounds"]


@in_trio
async def test_a_fetch_that_waited_for_records_is_no_slow_fetch(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await client.ask(Fetch((FetchPart(topic, 0, 1 << 20),), wait_max_ms=50, bytes_min=1))
        assert sum(node.reads.fetch_handler.latency.counts) == 0
        await client.produce(topic, b"one")
        await client.ask(Fetch((FetchPart(topic, 0, 1 << 20),), wait_max_ms=50, bytes_min=1))
        assert sum(node.reads.fetch_handler.latency.counts) == 1


@in_trio
async def test_the_delay_of_the_loop_is_measured_at_each_nudge(tmp_path):
    async with serving(tmp_path) as node:
        delays = node.peers.lease_events.loop_delay
        await until(lambda: sum(delays.counts) >= 3, "three nudges")
        assert delays.total_us > 0
