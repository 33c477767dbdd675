"""A node whose disk is full refuses records with a clear error, serves its records, restarts,
accepts metadata, and recovers by itself when there is free space again.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from admin_cli.development import dev_state
from chaos.backends import host
from multiraft.client import Record, blocking
from multiraft.wire.errors import Code, RequestError
from tests import needs
from tests.e2e.raw import batch
from tests.e2e.test_repair import log_events, read_all
from tests.e2e.world import UP_S, World, await_line, steady, wait_for

TAKES_THE_MACHINE = True

DISK_BYTES = 96 << 20
RESERVED_BYTES = 8 << 20
STORAGE = f"\n[storage]\nreserved_bytes = {RESERVED_BYTES}\n"


TOPICS = ("a", "b", "c", "d", "e", "f")


@contextlib.contextmanager
def small_disk(directory: Path) -> Iterator[Path]:
    """Yield a file system of its own, in memory."""
    directory.mkdir(parents=True, exist_ok=True)
    identity = [(path.name, path.read_bytes()) for path in directory.iterdir() if path.is_file()]
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs",
                              str(directory)], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"{needs.SKIPPED}a small filesystem cannot be mounted here: "
                    f"{mounted.stderr.strip()}" + ("" if host.is_root() else f" {needs.AS_ROOT}"))
    for name, data in identity:
        (directory / name).write_bytes(data)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


@pytest.fixture
def lonely(tmp_path) -> Iterator[World]:
    """Yield one node with its data on a small disk."""
    world = World.created(tmp_path / "dev", 1, 2, 1)
    with open(world.config(1), "a", encoding="utf-8") as config:
        config.write(STORAGE)
    with small_disk(data_of(world)):
        try:
            world.dev.up(UP_S)
            yield world
        finally:
            print(world.logs())  # shown when a test fails
            world.dev.down()


@pytest.fixture
def three(tmp_path) -> Iterator[World]:
    """Yield three nodes, with the data of the first two on small disks."""
    world = World.created(tmp_path / "dev", 3, 4, 3)
    steady(world)
    for node in (1, 2):
        with open(world.config(node), "a", encoding="utf-8") as config:
            config.write(STORAGE)
    with small_disk(data_of(world)), small_disk(data_of(world, 2)):
        try:
            world.dev.up(UP_S)
            yield world
        finally:
            print(world.logs())
            world.dev.down()


def data_of(world: World, node: int = 1) -> Path:
    """Return the data directory of a node."""
    return dev_state.node_directory(world.dev.directory, node) / "data"


def fill(path: Path) -> None:
    """Take all free space."""
    with open(path, "wb") as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 16))


def produce_once(world: World, topic: str, node: int = 1) -> int:
    """Return the code of the answer to one batch."""
    with world.session(node) as session:
        incarnation = session.partition(topic).incarnation
        return session.produce(incarnation, batch(b"one more")).code


def test_a_full_disk_refuses_records_and_nothing_else(lonely):
    world = lonely
    world.create("filling")
    with blocking.Client(list(world.addresses)) as client, client.producer() as producer:
        for number in range(100):
            producer.send(Record("filling", b"%d" % number, partition=0))
    ballast = data_of(world) / "ballast"
    fill(ballast)
    wait_for(lambda: produce_once(world, "filling") == Code.STORAGE_FULL, "records are refused",
             UP_S)
    before = read_all(world, "filling")
    assert len(before) >= 100
    world.create("while-full")  # metadata uses the reserve
    world.dev.kill(1)
    fill(ballast.with_name("more"))
    world.dev.start(1)  # a start writes its boot epoch, and votes
    assert read_all(world, "filling") == before
    wait_for(lambda: produce_once(world, "filling") == Code.STORAGE_FULL, "still refused",
             UP_S)
    await_line(world, 1, '"disk_full"')
    ballast.unlink()
    ballast.with_name("more").unlink()
    wait_for(lambda: produce_once(world, "filling") == Code.OK, "records are taken again",
             UP_S)
    await_line(world, 1, '"disk_space_freed"')


def test_filling_up_under_load_loses_nothing_that_was_acknowledged(lonely):
    world = lonely
    world.create("load")
    acknowledged: list[bytes] = []
    with world.session(1) as session:
        incarnation = session.partition("load").incarnation
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up:
            value = b"%08d" % len(acknowledged) + os.urandom(512 << 10)
            result = session.produce(incarnation, batch(value))
            if result.code == Code.STORAGE_FULL:
                assert "full" in result.error.text
                break
            assert result.code == Code.OK, result
            acknowledged.append(value)
        else:
            pytest.fail("the disk never became full")
    assert len(acknowledged) > 50
    assert read_all(world, "load") == sorted(acknowledged)
    world.dev.kill(1)
    world.dev.start(1)
    assert read_all(world, "load") == sorted(acknowledged)


def lead_all(world: World, node: int) -> None:
    """Make the node lead all groups of the topics."""
    def led() -> bool:
        """Request the transfers again where the node does not lead yet: a transfer may be given
        up."""
        others = [topic for topic in TOPICS if world.leader_of(topic) != node]
        with blocking.Client(list(world.addresses)) as client:
            for group in {client.describe_topic(topic).partitions[0].group for topic in others}:
                with contextlib.suppress(RequestError):
                    client.group_transfer(group, node)
        return not others
    wait_for(led, "one leads all", UP_S)


def test_a_node_whose_disk_is_full_leaves_the_leading_to_others(three):
    world = three
    for topic in TOPICS:
        world.create(topic)
    lead_all(world, 1)
    ballast = data_of(world) / "ballast"
    fill(ballast)
    wait_for(lambda: all(world.leader_of(topic) in (2, 3) for topic in TOPICS),
             "the others lead", UP_S)
    with blocking.Client(list(world.addresses)) as client, client.producer() as producer:
        for topic in TOPICS:
            producer.send(Record(topic, b"taken", partition=0))
    await_line(world, 1, "leadership_shed")
    ballast.unlink()
    await_line(world, 1, '"disk_space_freed"')
    for topic in TOPICS:
        assert read_all(world, topic) == [b"taken"]


def test_a_leader_with_room_refuses_what_no_majority_could_store(three):
    """Otherwise the records would wait, and their outcome would stay unknown."""
    world = three
    for topic in TOPICS:
        world.create(topic)
    lead_all(world, 3)
    ballasts = [data_of(world, node) / "ballast" for node in (1, 2)]
    for ballast in ballasts:
        fill(ballast)
    wait_for(lambda: {said["peer"] for said in log_events(world, 3, "peer_disk_full")}
             == {1, 2}, "node 3 has heard of it", UP_S)
    assert {produce_once(world, topic, 3) for topic in TOPICS for _ in range(20)} == {
        Code.STORAGE_FULL}
    assert {world.leader_of(topic) for topic in TOPICS} == {3}, "there is nobody to leave them to"
    ballasts[0].unlink()
    wait_for(lambda: produce_once(world, "a", 3) == Code.OK, "two of three have room", UP_S)
