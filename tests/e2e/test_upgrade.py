"""Data directories of an earlier commit: started by this tree, read, continued and restarted.

``tests/fixtures/data-c52de9c`` holds the directories, a manifest of what a client of that commit
read from the cluster, and the program that wrote both.  Later trees have to read these formats
(``docs/upgrade.md``), so the files are never written again.
"""

from __future__ import annotations

import copy
import hashlib
import json
import tarfile
from pathlib import Path

import pytest

import multiraft
from admin_cli.development import dev_state
from multiraft.client import Record, staging
from multiraft.core import crc32c
from multiraft.wire.errors import Code, UnknownTopic
from multiraft.wire.messages import NodeStatus
from tests.e2e import world as worlds
from tests.e2e.world import ROOT, steady, wait_for
from tests.ports import free_base_port

STORY = True
FIXTURE = ROOT / "tests" / "fixtures" / "data-c52de9c"
KNOWN_NODES = "known_nodes.json"
#: Columns of a node in ``known_nodes.json``.
ID, CLIENT_ADDRESS, PEER_ADDRESS = 0, 3, 4
#: More metadata commands than the test makes.
COMMANDS_MAX = 1_000
#: A batch begins with its base offset, which is 0 when a producer sends it.
BASE_OFFSET_BYTES = 8
#: Longer values are in the manifest as their digest.
SHOWN_BYTES = 100
#: Counters of a node that are 0 as long as it has read all of its replicas from its own disk.
GIVEN_BY_OTHERS = ("entries_damaged", "replicas_repaired", "replicas_created", "replicas_removed",
                   "snapshots_installed")
ISOLATIONS = ("committed", "uncommitted")
#: Column of the value in the manifest's rows.
VALUE = 3


@pytest.fixture(scope="module")
def manifest() -> dict:
    """Return the manifest: what a client of the earlier commit read from the cluster."""
    return json.loads((FIXTURE / "manifest.json").read_text())


@pytest.fixture(scope="module")
def expected(manifest) -> dict:
    """Return the present contents, topic -> partition -> rows; each step adds what it appends."""
    return copy.deepcopy(manifest["topics"])


@pytest.fixture(scope="module")
def directory(tmp_path_factory, manifest) -> Path:
    """Return a copy of the data directories, with configurations of this tree and free ports."""
    directory = tmp_path_factory.mktemp("upgrade") / "dev"
    directory.mkdir()
    with tarfile.open(FIXTURE / "data.tar.xz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.11.4
        archive.extractall(directory)
    nodes = len(manifest["nodes"])
    record = dev_state.plan(nodes, manifest["groups"], manifest["replication_factor"],
                            free_base_port(nodes))
    record.cluster_id = manifest["cluster_id"]
    assert [node.id for node in record.nodes] == manifest["nodes"]
    dev_state.write_configs(directory, record)
    dev_state.save(directory, record)
    for node in record.nodes:
        move_peers(data_of(directory, node.id) / KNOWN_NODES, record)
    return directory


@pytest.fixture(scope="module")
def world(directory):
    """Start the cluster, wait until it is healthy, stop it at the end."""
    world = worlds.World(directory)
    steady(world)
    with worlds.running(world):
        await_health(world)
        yield world


def data_of(directory: Path, node: int) -> Path:
    return dev_state.node_directory(directory, node) / dev_state.DATA


def version_of(path: Path) -> int:
    """Return the format version of a segment, an index file or a checkpoint."""
    with open(path, "rb") as file:
        return int.from_bytes(file.read(12)[8:], "little")


def move_peers(path: Path, record) -> None:
    """Write the ports of the copy into ``known_nodes.json``, and change nothing else.

    The metadata have the old ports until every node has registered its new ones.  A higher version
    in the file keeps a node from replacing the new ports by the old ones before that.
    """
    places = {node.id: node for node in record.nodes}
    fields = json.loads(path.read_text())
    signature = fields.pop("crc")
    assert signature == crc32c(json.dumps(fields, sort_keys=True).encode())
    for row in fields["nodes"]:
        row[CLIENT_ADDRESS] = places[row[ID]].client_address
        row[PEER_ADDRESS] = places[row[ID]].peer_address
    fields["version"] += COMMANDS_MAX
    fields["crc"] = crc32c(json.dumps(fields, sort_keys=True).encode())
    path.write_text(json.dumps(fields))


def await_health(world) -> None:
    """Wait until the metadata know every node at its present address, all replicas have caught up,
    and none is damaged."""
    def registered() -> bool:
        with world.client() as client:
            client.catch_up()
            rows = client.node_list().nodes
        return all((row.state, row.node.client_address) == ("up", world.address(row.node.id))
                   for row in rows)

    def healthy(node: int) -> bool:
        found = status_of(world, node)
        return found["ready"] and found["groups_quarantined"] == 0

    wait_for(registered, "all nodes are registered at their present addresses")
    for node in world.ids():
        wait_for(lambda node=node: healthy(node), f"node {node} is healthy")


def status_of(world, node: int) -> dict:
    with world.session(node) as session:
        return session.reply(NodeStatus()).status


def read(client, topic: str, isolation: str) -> dict[str, list]:
    """Return all rows of a topic in the manifest's form, by partition."""
    found: dict[str, list] = {str(number): [] for number in client.list_offsets(topic)}
    for batch in client.consume(topic, until_end=True, isolation=f"read_{isolation}"):
        found[str(batch.partition)] += [row_of(record) for record in batch]
    return found


def row_of(record) -> list:
    return [record.offset, record.timestamp_ms, text_of(record.key), text_of(record.value),
            [[name, text_of(value)] for name, value in record.headers]]


def text_of(value: bytes | None) -> str | None:
    if value is None or len(value) <= SHOWN_BYTES:
        return None if value is None else value.decode()
    return f"sha256 {hashlib.sha256(value).hexdigest()}"


def verify(world, expected: dict) -> None:
    """Compare every record and every offset of every partition."""
    with world.client() as client:
        client.catch_up()
        for topic, partitions in expected.items():
            assert {str(number): list(offsets)
                    for number, offsets in client.list_offsets(topic).items()} == {
                number: [found["start"], found["end"]] for number, found in partitions.items()}
            for isolation in ISOLATIONS:
                assert read(client, topic, isolation) == {
                    number: found[isolation] for number, found in partitions.items()}, topic


def test_the_copy_is_of_the_earlier_formats(directory, manifest):
    """Check the copy before a node starts: a copy of the present formats would prove nothing."""
    assert "tombstone" in manifest["kinds"]["3"] and "repair" in manifest["kinds"]["2"]
    versions = set()
    for node in manifest["nodes"]:
        data = data_of(directory, node)
        versions |= {(name, json.loads((data / name).read_text())["format_version"])
                     for name in ("node.json", KNOWN_NODES)}
        versions |= {(path.suffix or "checkpoint", version_of(path))
                     for path in (*data.glob("checkpoint-*"), *data.glob("lane-0/*"))}
    assert versions == {("node.json", 1), (KNOWN_NODES, 1), ("checkpoint", 2), (".segment", 1),
                        (".index", 4)}


def test_every_record_is_read_as_it_was_written(world, expected):
    verify(world, expected)


def test_nothing_of_it_was_taken_for_damage(world, manifest):
    """Check that no node got anything from another one: the cluster repairs what a node misreads
    at its start, and a client would read all records all the same."""
    for node in manifest["nodes"]:
        found = status_of(world, node)
        assert {name: found[name] for name in GIVEN_BY_OTHERS} == dict.fromkeys(
            GIVEN_BY_OTHERS, 0), f"node {node}"


def test_the_metadata_name_the_release_that_each_node_runs_now(world):
    with world.client() as client:
        client.catch_up()
        versions = {row.node.id: row.node.version for row in client.node_list().nodes}
    assert versions == dict.fromkeys(versions, multiraft.__version__)


def test_each_node_leads_and_serves_every_record(world, manifest, expected):
    for node in manifest["nodes"]:
        with world.client() as client:
            for group, (_incarnation, voters) in manifest["members"].items():
                if node in voters:
                    wait_for(lambda c=client, g=int(group), n=node:
                             c.group_transfer(g, n).leader == n, f"node {node} leads {group}")
        verify(world, expected)


def test_batches_are_stored_as_their_producers_sent_them(world, manifest):
    with world.client() as client:
        for topic, partitions in manifest["topics"].items():
            found: dict[str, list] = {number: [] for number in partitions}
            for batch in client.consume(topic, until_end=True, isolation="read_uncommitted"):
                header = batch.header
                found[str(batch.partition)].append(
                    [header.base_offset, header.count, header.attributes, header.producer_id,
                     header.producer_epoch, header.base_sequence, header.crc])
            assert found == {number: row["batches"] for number, row in partitions.items()}, topic


def test_topics_nodes_and_members_are_those_of_the_cluster(world, manifest):
    with world.client() as client:
        client.catch_up()
        assert {topic.name for topic in client.list_topics()
                if not topic.name.startswith("__")} == set(manifest["topics"])
        for topic in manifest["deleted"]:
            with pytest.raises(UnknownTopic):
                client.describe_topic(topic)
        listed = client.node_list()
        assert [row.node.id for row in listed.nodes] == manifest["nodes"]
        assert list(listed.removed) == manifest["removed"]
        assert {str(group): [found.incarnation, sorted(found.voters)]
                for group in range(manifest["groups"] + 1)
                for found in [client.group_members(group)]} == manifest["members"]
        for topic, links in manifest["switched"].items():
            row = client.explain_placement(topic)[0]
            assert (row.switch_epoch, [list(link) for link in row.epoch_history]) == (0, links)


def test_batches_that_are_sent_again_are_not_appended_again(world, manifest):
    """Send every batch once more: a leader remembers the last batches of each producer, also
    those that a switched partition got in an earlier group."""
    with world.client() as client:
        for topic in ("wide", "switched"):
            for batch in client.consume(topic, until_end=True):
                unstamped = bytes(BASE_OFFSET_BYTES) + bytes(batch.data)[BASE_OFFSET_BYTES:]
                result = produce(world, client, topic, batch.partition, unstamped)
                assert (result.code, result.base_offset) == (Code.OK, batch.base_offset)
            for number, found in client.list_offsets(topic).items():
                assert found.end_offset == manifest["topics"][topic][str(number)]["end"]


def produce(world, client, topic: str, number: int, batch: bytes):
    """Return the answer of the partition's leader to exactly this batch."""
    def answered():
        partition = client.topic_metadata(topic).partitions[number]
        if not partition.leader:
            return None
        with world.session(partition.leader) as session:
            result = session.produce(partition.incarnation, batch)
        return result if result.code not in (Code.NOT_LEADER, Code.LEADER_UNKNOWN) else None

    return wait_for(answered, f"the leader of {topic}/{number} answers")


def test_one_open_transaction_is_committed_and_the_other_is_given_up(world, manifest, expected):
    left_open = manifest["open_runs"]
    with world.client() as client:
        rows = {row.name: row for row in staging.sinks(client)}
        assert {name: (row.sink, row.newest_transaction, row.open_batch)
                for name, row in rows.items()} == {
            name: (txn["sink"], txn["run"], txn["batch"]) for name, txn in left_open.items()}
        committed, given_up = left_open["first"], left_open["second"]
        staging.commit_transaction(client, committed["sink"], committed["run"], committed["batch"])
        assert not staging.abort_transaction(client, given_up["sink"], given_up["run"])
        assert [row.open_batch for row in staging.sinks(client)] == [-1, -1]
    for txn, void in ((committed, ("void",)), (given_up, ("void", "open"))):
        for partition in expected[txn["topic"]].values():
            rows = [row for row in partition["uncommitted"] if not row[VALUE].startswith(void)]
            assert rows != partition["committed"], "the transaction held up readers"
            partition["committed"] = rows
    verify(world, expected)


def test_every_partition_takes_appends(world, expected):
    with world.client() as client:
        for topic, partitions in expected.items():
            for number, found in partitions.items():
                with client.producer(acks="commit", compression="gzip") as producer:
                    receipt = producer.send(Record(topic, b"appended", b"key", int(number),
                                                   1_700_000_000_000)).wait()
                assert receipt.base_offset == found["end"]
                for isolation in ISOLATIONS:
                    found[isolation].append(
                        [found["end"], 1_700_000_000_000, "key", "appended", []])
                found["end"] += 1
    verify(world, expected)


def test_all_of_it_is_there_after_another_start(world, expected, manifest):
    """Restart on directories that hold files of the earlier and of the present formats."""
    world.dev.down()
    for node in manifest["nodes"]:
        identity = json.loads((data_of(world.directory, node) / "node.json").read_text())
        assert identity["format_version"] != 1
    world.dev.up(worlds.UP_S)
    await_health(world)
    verify(world, expected)
