"""What ``node_status`` answers and what its page says are the same."""

import re
from pathlib import Path

from tests.node.harness import Client, in_trio, serving

PAGE = Path(__file__).parents[2] / "docs" / "protocol.md"


@in_trio
async def test_every_key_is_documented_and_every_documented_key_is_there(tmp_path):
    async with serving(tmp_path) as node:
        keys = list(node.statistics.snapshot(await node.surveying.fresh()))
    section = PAGE.read_text().split("## Keys of node_status", 1)[1].split("\n## ", 1)[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == keys


@in_trio
async def test_counters_count(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        topic = await client.create("t")
        await client.produce(topic, b"one", b"two")
        snapshot = node.statistics.snapshot(await node.surveying.fresh())
        assert snapshot["records_appended"] == 2
        assert snapshot["batches_appended"] == 1
        assert snapshot["elections_won"] == 3
        assert snapshot["client_connections"] == 1
        assert snapshot["disk_writes"] > 0
