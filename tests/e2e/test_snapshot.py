"""A node that was away for longer than the metadata log reaches back gets the state instead."""

from __future__ import annotations

import json

from admin_cli import dev_state
from multiraft.client import Record, blocking
from tests.e2e.world import start, wait_for

TOPICS = 30
AWAY = 3


def log_events(world, node: int) -> list[dict]:
    lines = dev_state.log_path(world.dev.directory, node).read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def test_a_node_behind_the_log_start_is_given_a_snapshot(tmp_path):
    with start(tmp_path / "cluster", nodes=3, groups=4, factor=3) as world:
        for node in world.ids():
            with world.config(node).open("a") as file:
                file.write("\n[limits]\nmetadata_entries_kept = 3\n")
        world.dev.kill(AWAY)
        others = [node for node in world.ids() if node != AWAY]
        with blocking.Client([world.address(node) for node in others]) as client:
            for number in range(TOPICS):
                client.create_topic(f"topic-{number}")
            with client.producer() as producer:
                for number in range(TOPICS):
                    producer.send_nowait(Record(f"topic-{number}", b"value"))
        for node in others:  # a clean stop writes a checkpoint, which is what compaction waits for
            world.dev.stop(node)
        for node in others:
            world.dev.start(node)
        world.dev.start(AWAY)
        wait_for(lambda: any(event["event"] == "snapshot installed"
                             for event in log_events(world, AWAY)), "a snapshot at the node")

        # It knows every topic by itself, before and after another start.
        for _ in range(2):
            with blocking.Client([world.address(AWAY)]) as client:
                names = {topic.name for topic in client.list_topics()}
            assert names == {f"topic-{number}" for number in range(TOPICS)}
            world.dev.stop(AWAY)
            world.dev.start(AWAY)
        with blocking.Client([world.address(AWAY)]) as client:
            client.create_topic("afterwards")
            batches = list(client.consume("topic-7", until_end=True))
            assert [record.value for batch in batches for record in batch] == [b"value"]
