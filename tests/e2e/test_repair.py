"""Disks of real nodes are damaged while the nodes are down: the damage is found, never served, and
repaired from the peers; the nodes lead again.
"""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import pytest

from admin_cli.development import dev_state
from multiraft import core
from multiraft.client import Record, blocking
from multiraft.types import EntryKind
from multiraft.wire.messages import NodeStatus
from tests.e2e.world import await_line, wait_for

SHAPE = {"nodes": 3, "groups": 8, "factor": 3}
TOPIC = "damaged"
PARTITIONS = 4
RECORDS = 400


@pytest.fixture(autouse=True)
def whole_again(world):
    """Restart dead nodes after a test that fails half way."""
    yield
    world.dev.up()


def fill(world, topic: str) -> list[bytes]:
    """Append acknowledged records, in several batches per partition."""
    world.create(topic, PARTITIONS)
    values = [b"%06d" % number * 20 for number in range(RECORDS)]
    with blocking.Client(list(world.addresses)) as client, client.producer() as producer:
        for number, value in enumerate(values):
            producer.send(Record(topic, value, partition=number % PARTITIONS))
            if number % 10 == 9:
                producer.flush()
    return values


def read_all(world, topic: str) -> list[bytes]:
    with blocking.Client(list(world.addresses)) as client:
        return sorted(record.value for batch in client.consume(topic, until_end=True)
                      for record in batch)


def journal_file(world, node: int) -> Path:
    """Return the node's first segment."""
    journal = dev_state.node_directory(world.dev.directory, node) / "data" / "lane-0"
    return min(journal.glob("*.segment"))


def entries_of(path: Path) -> list:
    data = path.read_bytes()
    seed, = struct.unpack_from("<I", data, 44)
    return core.scan_entries(data, 64, seed).entries


def flip(path: Path, places: list[int]) -> None:
    data = bytearray(path.read_bytes())
    for place in places:
        data[place] ^= 16
    path.write_bytes(bytes(data))


def quarantined(world, node: int) -> int:
    with world.session(node) as session:
        return session.reply(NodeStatus()).status["groups_quarantined"]


def log_events(world, node: int, event: str) -> list[dict]:
    found = [json.loads(line) for line in world.log_lines(node) if line.startswith("{")]
    return [line for line in found if line["event"] == event]


def test_a_damaged_follower_is_repaired_and_leads_again(world):
    values = fill(world, TOPIC)
    world.dev.kill(2)
    path = journal_file(world, 2)
    batches = [entry for entry in entries_of(path) if entry.kind == EntryKind.DATA]
    rng = random.Random(1)
    flip(path, [entry.at + 64 + 70 for entry in rng.sample(batches, 5)]
         + [batches[len(batches) // 2].at + 30])  # five batches, and a header: its group is unknown
    world.dev.start(2)
    wait_for(lambda: quarantined(world, 2) == 0, "node 2 is repaired")
    await_line(world, 2, "damage_found")
    wait_for(lambda: len(log_events(world, 2, "replica_repaired")) >= SHAPE["groups"],
             "all of them")
    # now node 2 and 3 are the majority: the repaired node has to vote and may lead
    world.dev.kill(1)
    assert read_all(world, TOPIC) == sorted(values)
    world.dev.start(1)
    world.dev.kill(2)
    world.dev.start(2)
    assert quarantined(world, 2) == 0  # quarantine does not return with a restart


def test_every_replica_damaged_in_another_place_loses_nothing(world):
    topic = "helix"
    values = fill(world, topic)
    for node in world.ids():
        world.dev.kill(node)
    places: dict[tuple, list] = {}
    for node in world.ids():
        for entry in entries_of(journal_file(world, node)):
            if entry.kind == EntryKind.DATA and entry.durable:
                places.setdefault((entry.group, entry.index, entry.term), []).append((node, entry))
    rng = random.Random(2)
    everywhere = sorted(place for place, held in places.items() if len(held) == len(world.ids()))
    last = {node: entries_of(journal_file(world, node))[-1].durable for node in world.ids()}
    chosen = rng.sample(everywhere, 12)
    damage: dict[int, list[int]] = {node: [] for node in world.ids()}
    for turn, place in enumerate(chosen):
        node, entry = places[place][turn % len(world.ids())]
        # below the durable watermark: otherwise a torn tail
        if entry.at + entry.length <= last[node]:
            damage[node].append(entry.at + 64 + 70)
    assert all(damage.values()), "every node has to be damaged"
    for node, at in damage.items():
        flip(journal_file(world, node), at)
    world.dev.up()
    for node in world.ids():
        wait_for(lambda node=node: quarantined(world, node) == 0, f"node {node} is repaired")
        await_line(world, node, "damage_found")
    assert read_all(world, topic) == sorted(values)
