"""A node that was away for longer than the metadata log reaches back gets a snapshot."""

from __future__ import annotations

import json

from admin_cli.development import dev_state
from multiraft.client import Record, blocking
from multiraft.settings.effective import is_internal
from multiraft.storage.snapshot_download import PARTIAL_FILE
from multiraft.wire.errors import Code
from multiraft.wire.messages import CreateTopic
from node.replicas.snapshots import CHUNK_BYTES
from tests.e2e.world import STEADY, start, wait_for

TOPICS = 30
AWAY = 3
#: Topics with names of 200 characters: more than two chunks of metadata.
MANY = 6_000
AT_A_TIME = 200
#: The log keeps few entries, and two of three nodes keep their leader; ``STEADY`` ends in the table
#: to which this line belongs.
SHORT = f"{STEADY}metadata_entries_kept = 3\n"
#: The same settings, and a chunk takes two seconds.
SLOW = f"{SHORT}repair_bytes_per_second = {CHUNK_BYTES // 2}\n"


def log_events(world, node: int) -> list[dict]:
    return [json.loads(line) for line in world.log_lines(node) if line.startswith("{")]


def test_a_node_behind_the_log_start_is_given_a_snapshot(tmp_path):
    with start(tmp_path / "cluster", nodes=3, groups=4, factor=3,
               configure=lambda world: [world.configure(node, SHORT) for node in world.ids()],
               ) as world:
        world.dev.kill(AWAY)
        others = [node for node in world.ids() if node != AWAY]
        with blocking.Client([world.address(node) for node in others]) as client:
            for number in range(TOPICS):
                client.create_topic(f"topic-{number}")
            with client.producer() as producer:
                for number in range(TOPICS):
                    producer.send_nowait(Record(f"topic-{number}", b"value"))
        for node in others:  # a clean stop writes a checkpoint, for which compaction waits
            world.dev.stop(node)
        for node in others:
            world.dev.start(node)
        world.dev.start(AWAY)
        wait_for(lambda: any(event["event"] == "snapshot_installed"
                             for event in log_events(world, AWAY)), "a snapshot at the node")

        # It knows every topic by itself, before and after another restart.
        for _ in range(2):
            with blocking.Client([world.address(AWAY)]) as client:
                names = {topic.name for topic in client.list_topics()
                         if not is_internal(topic.name)}  # nodes may have published loads
            assert names == {f"topic-{number}" for number in range(TOPICS)}
            world.dev.stop(AWAY)
            world.dev.start(AWAY)
        with blocking.Client([world.address(AWAY)]) as client:
            client.create_topic("afterwards")
            batches = list(client.consume("topic-7", until_end=True))
            assert [record.value for batch in batches for record in batch] == [b"value"]


def create_many(world, nodes: list[int]) -> None:
    """Create all topics, many at a time, at the leader of the metadata group."""
    def leader() -> int:
        with world.client(*nodes) as client:
            found = client.cluster_status().metadata_leader
        return found if found in nodes else 0

    def create(names: list[str]) -> set[Code]:
        with world.session(wait_for(leader, "somebody leads the metadata group")) as session:
            for name in names:
                session.begin(CreateTopic(name))
            return {session.event().code for _ in names}

    names = [f"{'x' * 200}-{number}" for number in range(MANY)]
    for at in range(0, MANY, AT_A_TIME):
        # A leader that has just been elected may step down again on a busy machine.
        wait_for(lambda some=names[at:at + AT_A_TIME]: create(some) <= {Code.OK, Code.TOPIC_EXISTS},
                 "topics are created")


def test_a_snapshot_goes_on_after_a_restart_in_its_middle(tmp_path):
    with start(tmp_path / "cluster", nodes=3, groups=2, factor=3,
               configure=lambda world: [world.configure(node, SLOW) for node in world.ids()],
               ) as world:
        world.dev.kill(AWAY)
        others = [node for node in world.ids() if node != AWAY]
        create_many(world, others)
        for node in others:
            world.dev.stop(node)
        for node in others:
            world.dev.start(node)
        partial = dev_state.node_directory(world.dev.directory, AWAY) / "data" / PARTIAL_FILE
        world.launch(AWAY)
        wait_for(lambda: partial.exists() and partial.stat().st_size > CHUNK_BYTES,
                 "a chunk has arrived", 60)
        world.dev.kill(AWAY)
        world.launch(AWAY)
        wait_for(lambda: [event for event in log_events(world, AWAY)
                          if event["event"] == "snapshot_installed"], "a snapshot at the node", 60)
        [went_on] = [event for event in log_events(world, AWAY)
                     if event["event"] == "snapshot_download_resumed"]
        assert went_on["bytes"] >= CHUNK_BYTES
        # A thread removes the file after the line is logged.
        wait_for(lambda: not partial.exists(), "what had arrived is dropped")
        with world.client(AWAY) as client:
            assert sum(not topic.name.startswith("__") for topic in client.list_topics()) == MANY
