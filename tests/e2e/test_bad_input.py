"""Bad input on a real node: a typed answer or a clean close, no lost records, no effect on other
clients.

Contract.  A witness connection, opened before the first test, appends and reads after each test:
requests of other connections must never affect it.
"""

from __future__ import annotations

import os
import struct
import subprocess

import cbor2
import pytest

from multiraft.codec import layout
from multiraft.core import crc32c
from multiraft.wire import PROTOCOL_VERSION, Code, Hello, Refused, Welcome
from multiraft.wire.messages import (
    BatchPart,
    CreateTopic,
    DeleteTopic,
    Metadata,
    NodeStatus,
    Produce,
)
from tests import needs
from tests.e2e import raw
from tests.e2e.world import WAIT_S, Session, node_command, run_node, steady, wait_for

SHAPE = {"nodes": 3, "groups": 4, "factor": 3, "configure": steady}
TOPIC = "witness"


class Witness:
    """An independent client, on one connection all the time."""

    def __init__(self, session: Session):
        self.session = session
        self.partition = session.partition(TOPIC).incarnation
        self.next = 0

    def still_served(self) -> None:
        """Append one record and read it back over the old connection."""
        value = b"witness-%d" % self.next
        result = self.session.produce(self.partition, raw.batch(value))
        assert (result.code, result.base_offset) == (Code.OK, self.next)
        fetched, data = self.session.fetch(self.partition, self.next)
        assert fetched.code == Code.OK
        assert value in data
        self.next += 1


@pytest.fixture(scope="module")
def witness(world):
    world.create(TOPIC)
    with world.leader_session(TOPIC) as session:
        yield Witness(session)


@pytest.fixture(autouse=True)
def nobody_else_notices(witness):
    """Check after each test: the same node, the same connection, the next offset."""
    yield
    witness.still_served()


@pytest.fixture
def node(world, witness):
    """Return a fresh connection to the very node that serves the witness."""
    with Session(witness.session.address) as session:
        yield session


@pytest.fixture
def keeper(world):
    """Return a fresh connection to the leader of the metadata group, which accepts topic
    commands."""
    leader = wait_for(lambda: world.groups(1)[0].leader, "the metadata group has a leader")
    with world.session(leader) as session:
        yield session


# ---- frames --------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 3, 1 << 30, (1 << 31) - 1, (1 << 32) - 1])
def test_a_frame_of_absurd_length_ends_the_connection(node, length):
    node.send_bytes(struct.pack(">II", length, 0))
    assert node.closed_by_node()


def test_a_header_longer_than_its_frame_ends_the_connection(node):
    node.send_bytes(struct.pack(">II", 10, 100) + b"\xa0" * 6)
    assert node.closed_by_node()


@pytest.mark.parametrize("kept", [1, 4, 7, 12])
def test_a_truncated_frame_is_no_request(node, kept):
    node.send_bytes(raw.frame(cbor2.dumps({"id": 1, "op": "list_topics"}))[:kept])
    node.socket.shutdown(1)
    assert node.closed_by_node()


@pytest.mark.parametrize("opening", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01" * 20,
                                     b"\0" * 64, b"\xff" * 64])
def test_another_protocol_is_turned_away(witness, opening):
    with Session(witness.session.address, hello=None) as session:
        session.send_bytes(opening)
        assert session.closed_by_node()


def test_a_connection_that_says_nothing_and_leaves_is_forgotten(witness):
    for _ in range(50):
        Session(witness.session.address, hello=None).socket.close()


def test_a_request_before_the_hello_ends_the_connection(witness):
    with Session(witness.session.address, hello=None) as session:
        session.send_bytes(raw.frame(cbor2.dumps({"id": 1, "op": "list_topics"})))
        assert session.closed_by_node()


@pytest.mark.parametrize("header", [
    pytest.param(b"\x81" * 100_000, id="depth bomb"),
    pytest.param(b"\xbf\x62id\x01\xff", id="indefinite map"),
    pytest.param(b"\xa1\x62id", id="truncated"),
    pytest.param(b"\xa1\x62id\x01\x00", id="trailing byte"),
    pytest.param(b"\xa2\x62id\x01\x62id\x02", id="duplicate key"),
    pytest.param(b"\xa1\x01\x02", id="number as key"),
    pytest.param(cbor2.dumps({"id": cbor2.CBORTag(2, b"\xff" * 64)}), id="bignum tag"),
    pytest.param(b"\x9b" + b"\xff" * 8, id="array of 2^64"),
    pytest.param(b"\x7b\x7f" + b"\xff" * 7, id="text of 2^63"),
    pytest.param(b"\xf9\x7e\x00", id="not a number"),
    pytest.param(b"\x62\xff\xfe", id="broken text"),
    pytest.param(b"", id="nothing"),
])
def test_a_hostile_header_ends_the_connection(node, header):
    node.send_bytes(raw.frame(header))
    assert node.closed_by_node()


# ---- requests ------------------------------------------------------------------------------------


def answer_to(session: Session, header: dict):
    """Return the answer to a header that the client would never send."""
    session.machine._in_flight[header["id"]] = "node_status"
    session.send_bytes(raw.frame(cbor2.dumps(header)))
    return session.event()


@pytest.mark.parametrize(("header", "code"), [
    ({"id": 900, "op": "become_leader"}, Code.UNSUPPORTED),
    ({"id": 900, "op": 7}, Code.UNSUPPORTED),
    ({"id": 900}, Code.UNSUPPORTED),
    ({"id": 900, "op": "create_topic"}, Code.INVALID_REQUEST),
    ({"id": 900, "op": "create_topic", "name": 5, "partitions": 1, "replication_factor": 0},
     Code.INVALID_REQUEST),
    ({"id": 900, "op": "create_topic", "name": "a", "partitions": -1, "replication_factor": 0},
     Code.INVALID_REQUEST),
    ({"id": 900, "op": "create_topic", "name": "a", "partitions": 1 << 62,
      "replication_factor": 0}, Code.INVALID_REQUEST),
    ({"id": 900, "op": "list_topics", "after": "", "count_max": 1, "colour": "red"},
     Code.INVALID_REQUEST),
    ({"id": 900, "op": "fetch", "partitions": [[1, -5, 100]], "bytes_min": 1, "bytes_max": 100,
      "wait_max_ms": 0}, Code.INVALID_REQUEST),
])
def test_a_request_that_cannot_be_accepted_is_answered_and_the_connection_lives(
        node, header, code):
    answer = answer_to(node, header)
    assert answer.code == code
    assert answer.error.text
    assert node.reply(NodeStatus()).node


@pytest.mark.parametrize("version", [0, 1, PROTOCOL_VERSION + 1, 999])
def test_an_unknown_version_is_refused_with_the_versions_there_are(witness, version):
    with Session(witness.session.address, hello=Hello(version=version)) as session:
        assert isinstance(session.opened, Refused)
        assert session.opened.code == Code.UNSUPPORTED
        assert session.opened.versions == (PROTOCOL_VERSION,)


def test_another_cluster_s_client_is_refused(witness):
    with Session(witness.session.address, hello=Hello(cluster=b"\x55" * 16)) as session:
        assert isinstance(session.opened, Refused)


# ---- batches -------------------------------------------------------------------------------------


def with_crc(batch: bytearray) -> bytes:
    """Return the batch with a CRC that matches its bytes."""
    checked = bytes(batch[layout.BATCH_ATTRIBUTES_AT:])
    struct.pack_into(">I", batch, layout.BATCH_CRC_AT, crc32c(checked))
    return bytes(batch)


def changed(at: int, form: str, value: int) -> bytes:
    """Return a batch of three records with one field changed and the CRC corrected."""
    batch = raw.batch(b"one", b"two", b"three")
    struct.pack_into(form, batch, at, value)
    return with_crc(batch)


def second_record_out_of_order() -> bytes:
    """Return a batch with inner offset deltas 0, 2, 2: the record's third field is a zigzag
    varint."""
    batch = raw.batch(b"one", b"two", b"three")
    first = layout.BATCH_HEADER_BYTES
    second = first + 1 + batch[first] // 2  # one-byte length varint, then the record
    assert batch[second + 3] == 2, "delta 1 in zigzag"
    batch[second + 3] = 4
    return with_crc(batch)


def flipped() -> bytes:
    batch = raw.batch(b"one", b"two", b"three")
    batch[-1] ^= 0x40
    return bytes(batch)


def bad_batches():
    at = layout
    yield pytest.param(flipped(), id="flipped bit")
    yield pytest.param(bytes(raw.batch(b"one")[:-1]), id="cut")
    yield pytest.param(bytes(raw.batch(b"one")) + b"\0", id="a byte too many")
    yield pytest.param(bytes(raw.batch(b"one")) * 2, id="two batches as one")
    yield pytest.param(b"\0" * 100, id="zeros")
    yield pytest.param(b"", id="nothing")
    yield pytest.param(changed(at.BATCH_RECORDS_COUNT_AT, ">i", 2), id="count too small")
    yield pytest.param(changed(at.BATCH_RECORDS_COUNT_AT, ">i", 2**31 - 1), id="count too large")
    yield pytest.param(changed(at.BATCH_RECORDS_COUNT_AT, ">i", -1), id="count negative")
    yield pytest.param(changed(at.BATCH_LAST_OFFSET_DELTA_AT, ">i", 7), id="last delta wrong")
    yield pytest.param(second_record_out_of_order(), id="inner offsets")
    yield pytest.param(changed(at.BATCH_MAGIC_AT, ">b", 1), id="older format")
    yield pytest.param(changed(at.BATCH_ATTRIBUTES_AT, ">h", at.ATTRIBUTE_CONTROL), id="control")
    yield pytest.param(changed(at.BATCH_ATTRIBUTES_AT, ">h", at.ATTRIBUTE_TRANSACTIONAL),
                       id="transactional")
    yield pytest.param(changed(at.BATCH_BASE_OFFSET_AT, ">q", 5), id="base offset not 0")


@pytest.mark.parametrize("batch", list(bad_batches()))
def test_a_batch_that_lies_is_refused_and_nothing_is_appended(node, witness, batch):
    before = node.offsets(witness.partition)
    result = node.produce(witness.partition, batch)
    assert result.code in (Code.CORRUPT_BATCH, Code.INVALID_BATCH, Code.BATCH_TOO_LARGE)
    assert result.base_offset == -1
    assert node.offsets(witness.partition) == before


def test_a_batch_over_the_limit_is_refused_with_limit_and_value(node, witness):
    big = bytearray(raw.batch(b"x")) + bytes(layout.BATCH_BYTES_MAX)
    result = node.produce(witness.partition, bytes(big))
    assert result.code == Code.BATCH_TOO_LARGE
    assert result.error.limit == layout.BATCH_BYTES_MAX
    assert str(len(big)) in result.error.text


def test_a_good_batch_beside_a_bad_one_is_appended(node, witness):
    bad, good = flipped(), bytes(raw.batch(b"fine"))
    parts = (BatchPart(witness.partition, len(bad)), BatchPart(witness.partition, len(good)))
    results = node.reply(Produce("commit", raw.PRODUCE_MS, parts), bad, good).results
    assert results[0].code == Code.CORRUPT_BATCH
    assert (results[1].code, results[1].base_offset) == (Code.OK, witness.next)
    witness.next += 1


# ---- names, offsets, topics ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../../etc", "a b", "a\0b", "a\r\nb",
                                  "x" * 250, "t\u00f6pic", "\u0430dmin", "a*"])
def test_a_topic_name_outside_the_alphabet_is_refused(keeper, name):
    assert keeper.ask(CreateTopic(name)).code == Code.INVALID_TOPIC_NAME
    answer = keeper.reply(Metadata((name,)))
    assert answer.missing == (name,)


def test_a_topic_cannot_be_created_twice(keeper):
    assert keeper.ask(CreateTopic(TOPIC)).code == Code.TOPIC_EXISTS


def test_the_replication_factor_belongs_to_the_pool(keeper):
    answer = keeper.ask(CreateTopic("factor", 1, 2))
    assert answer.code == Code.LIMIT_EXCEEDED
    assert "3" in answer.error.text


def test_a_missing_topic_is_named_as_missing(keeper):
    assert keeper.reply(Metadata(("absent",))).missing == ("absent",)
    assert keeper.ask(DeleteTopic("absent")).code == Code.UNKNOWN_TOPIC


def test_an_unknown_partition_is_a_typed_error(node):
    assert node.produce(1 << 60, raw.batch(b"x")).code == Code.UNKNOWN_PARTITION
    assert node.fetch(1 << 60, 0)[0].code == Code.UNKNOWN_PARTITION


@pytest.mark.parametrize("beyond", [1, 1000, (1 << 63) - 1])
def test_an_offset_beyond_the_end_is_out_of_range_and_the_range_is_named(
        node, witness, beyond):
    start, end = node.offsets(witness.partition)
    result, data = node.fetch(witness.partition, min(end + beyond, (1 << 63) - 1))
    assert result.code == Code.OFFSET_OUT_OF_RANGE
    assert (result.error.start_offset, result.error.end_offset) == (start, end)
    assert not data


def test_the_end_itself_is_not_out_of_range(node, witness):
    _start, end = node.offsets(witness.partition)
    result, data = node.fetch(witness.partition, end)
    assert result.code == Code.OK
    assert not data


# ---- the peer port -------------------------------------------------------------------------------


@pytest.mark.parametrize("opening", [
    b"GET / HTTP/1.1\r\n\r\n", struct.pack(">II", (1 << 32) - 1, 4), b"\0" * 64,
    raw.frame(cbor2.dumps({"op": "hello", "class": "append", "node": 1 << 40,
                           "version": PROTOCOL_VERSION})),
], ids=["another protocol", "absurd length", "zeros", "half a hello"])
def test_a_stranger_on_the_peer_port_is_turned_away(world, opening):
    for node in world.ids():
        with Session(world.peer_address(node), hello=None) as session:
            session.send_bytes(opening)
            assert session.closed_by_node()


def test_a_peer_of_another_cluster_is_refused(world):
    hello = Hello(connection="append", cluster=b"\x55" * 16, node=2, boot_epoch=1)
    with Session(world.peer_address(1), hello=hello) as session:
        assert not isinstance(session.opened, Welcome)


# ---- data directories ----------------------------------------------------------------------------

EXIT_WRONG_DIRECTORY = 3


def rewritten(world, tmp_path, node: int, old: str, new: str):
    """Return a node's configuration with one text replaced."""
    text = world.config(node).read_text()
    assert old in text
    path = tmp_path / "node.toml"
    path.write_text(text.replace(old, new))
    return path


def test_a_second_process_on_a_data_directory_ends_and_says_why(world):
    done = run_node(world.config(1))
    assert done.returncode == EXIT_WRONG_DIRECTORY, done.stdout + done.stderr
    assert "held by process" in done.stderr


@pytest.fixture
def stopped(world, witness):
    """Yield a node that does not run and does not serve the witness; it is started again
    afterwards."""
    node = next(node for node in world.ids() if world.address(node) != witness.session.address)
    world.dev.stop(node)
    yield node
    world.dev.start(node)


def test_a_data_directory_of_another_node_is_refused(world, stopped, tmp_path):
    other = next(node for node in world.ids() if node != stopped)
    config = rewritten(world, tmp_path, other, '"data"',
                       f'"{world.dev.directory}/node-{stopped}/data"')
    done = run_node(config)
    assert done.returncode == EXIT_WRONG_DIRECTORY, done.stdout + done.stderr
    assert f"node {stopped}" in done.stderr


def test_a_data_directory_of_another_cluster_is_refused(world, stopped, tmp_path):
    own = world.dev.record.cluster_id
    done = run_node(rewritten(world, tmp_path, stopped, own, "5" * len(own)))
    assert done.returncode == EXIT_WRONG_DIRECTORY, done.stdout + done.stderr
    assert "cluster" in done.stderr


def test_a_link_to_a_data_directory_in_use_is_refused_like_the_directory(world, tmp_path):
    link = tmp_path / "data"
    link.symlink_to(world.dev.directory / "node-1" / "data")
    done = run_node(rewritten(world, tmp_path, 1, '"data"', f'"{link}"'))
    assert done.returncode == EXIT_WRONG_DIRECTORY, done.stdout + done.stderr
    assert "held by process" in done.stderr


def as_somebody_whom_permissions_bind() -> list[str]:
    """Drop root's capability to ignore permissions; a user without root needs no change."""
    if os.geteuid() != 0:
        return []
    needs.commands("setpriv")
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


@pytest.mark.parametrize(("mode", "action"), [(0o000, "start"), (0o000, "init"), (0o500, "start")])
def test_a_data_directory_that_may_not_be_used_is_not_taken_for_a_lost_one(
        world, stopped, mode, action):
    data = world.dev.directory / f"node-{stopped}" / "data"
    before = data.stat().st_mode
    data.chmod(mode)
    try:
        done = subprocess.run(
            [*as_somebody_whom_permissions_bind(), *node_command(world.config(stopped), action)],
            capture_output=True, text=True, timeout=WAIT_S)
    finally:
        data.chmod(before)
    assert done.returncode == EXIT_WRONG_DIRECTORY, done.stdout + done.stderr
    assert "Permission denied" in done.stderr
    assert "lost" not in done.stderr
    assert "Traceback" not in done.stderr
