"""A cluster with node certificates, a shared secret and client certificates.

Contract.  Every connection without proof of its identity is refused, and an authenticated canary is
not affected; certificates and secrets are replaced under load without losing a connection.
"""

from __future__ import annotations

import os
import signal
import socket
import ssl
import struct
import uuid

import cbor2
import pytest
import trio
from click.testing import CliRunner

from admin_cli.main import cli
from admin_cli.servers import TlsOptions
from admin_cli.session import Session as CommandSession
from multiraft.client import Client, NoNodeAnswered, Record, TlsSettings
from multiraft.raft.messages import VoteRequest
from multiraft.wire import PROTOCOL_VERSION
from multiraft.wire.messages import Hello, NodeStatus
from tests.certificates import Authority
from tests.e2e import raw
from tests.e2e import world as worlds
from tests.e2e.canary import Canary
from tests.e2e.world import World, run_node, wait_for

TOPIC = "secrets"
FIRST, SECOND = "1" * 64, "2" * 64
VOTE_TERM = 1 << 19
EXIT_BAD_CONFIG = 2


class Keys:
    """All files of the cluster, and those of the clients."""

    def __init__(self, directory):
        self.directory = directory
        self.nodes = Authority(directory, "nodes")
        self.clients = Authority(directory, "clients")
        shown = self.clients.issue("an-operator.example.org")
        self.tls = TlsOptions(str(self.clients.path), shown.certificate, shown.key)

    def secret(self, node: int, *secrets: str) -> None:
        """Write a node's secrets."""
        (self.directory / f"secret-{node}").write_text("\n".join(secrets) + "\n")

    def secrets(self, node: int) -> list[str]:
        """Return a node's secrets as they are written."""
        return (self.directory / f"secret-{node}").read_text().split()

    def certify(self, node: int, cluster: str, role: str) -> None:
        """Create a new certificate of a node for its peer or client port, under the configured
        names."""
        authority, name = ((self.nodes, f"node-{node}.{cluster}") if role == "peer"
                           else (self.clients, "127.0.0.1"))
        made = authority.issue(name)
        os.replace(made.certificate, self.directory / f"{role}-{node}.crt")
        os.replace(made.key, self.directory / f"{role}-{node}.key")

    def configure(self, world: World) -> None:
        """Write the table [security] of every node; leaders are kept."""
        for node in world.ids():
            self.secret(node, FIRST)
            for role in ("peer", "client"):
                self.certify(node, world.dev.record.cluster_id, role)
            path = self.directory
            world.configure(node, f"""
[security]
peer_secret = "{path}/secret-{node}"
peer_ca = "{self.nodes.path}"
peer_certificate = "{path}/peer-{node}.crt"
peer_key = "{path}/peer-{node}.key"
client_ca = "{self.clients.path}"
client_certificate = "{path}/client-{node}.crt"
client_key = "{path}/client-{node}.key"
""")
        worlds.steady(world)


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def world(keys, tmp_path_factory):
    with worlds.start(tmp_path_factory.mktemp("secure") / "dev", nodes=3, groups=4, factor=3,
                      tls=keys.tls, configure=keys.configure) as started:
        with started.client() as client:
            client.create_topic(TOPIC)
        yield started


@pytest.fixture(autouse=True)
def canary(world):
    """Yield a canary that appends all the time."""
    topic = f"canary.{uuid.uuid4().hex}"
    with world.client() as client:
        client.create_topic(topic)
    with Canary(world.client(), topic) as singing:
        wait_for(lambda: singing.count or singing.failure, "the first record")
        yield singing


def settings(keys: Keys, **changes: str) -> TlsSettings:
    return TlsSettings(keys.tls.ca, keys.tls.certificate, keys.tls.key)._replace(**changes)


def context(files: TlsSettings) -> ssl.SSLContext:
    """Return the TLS context of a raw connection."""
    made = ssl.create_default_context(cafile=files.ca)
    if files.certificate:
        made.load_cert_chain(files.certificate, files.key)
    return made


def serial(world: World, keys: Keys, node: int) -> str:
    """Return the serial number of the certificate that a node's client port presents now."""
    with raw.Session(world.address(node), context=context(settings(keys))) as session:
        return session.socket.getpeercert()["serialNumber"]


def test_both_clients_and_the_command_line_work_inside_tls(world, keys):
    async def through_trio() -> list[bytes]:
        async with Client(world.addresses, tls=settings(keys)) as client:
            async with client.producer() as producer:
                for number in range(100):
                    await producer.send(Record(TOPIC, b"%d" % number * 1000))
            return [record.value async for fetched in client.consume(TOPIC, until_end=True)
                    for record in fetched]

    read = trio.run(through_trio)
    assert len(read) == 100
    with world.client() as client:
        assert [record.value for fetched in client.consume(TOPIC, until_end=True)
                for record in fetched] == read
    environ = {"MULTIRAFT_SERVERS": ",".join(world.addresses), "MULTIRAFT_TLS_CA": keys.tls.ca,
               "MULTIRAFT_TLS_CERT": keys.tls.certificate, "MULTIRAFT_TLS_KEY": keys.tls.key}
    result = CliRunner().invoke(cli, ["topic", "list"], obj=CommandSession(environ))
    assert result.exit_code == 0, result.output
    assert TOPIC in result.output


def test_large_answers_pass_inside_tls(world, keys):
    value = os.urandom(300_000)
    with world.client() as client:
        client.create_topic("large")
        with client.producer(batch_bytes=1 << 20) as producer:
            for _ in range(40):
                producer.send(Record("large", value))
        read = [record.value for fetched in client.consume("large", until_end=True)
                for record in fetched]
    assert read == [value] * 40


@pytest.mark.parametrize("case", ["plain", "no certificate", "another ca", "not believed",
                                  "another name", "expired"])
def test_a_client_that_cannot_prove_itself_gets_nothing(world, keys, tmp_path, case):
    stranger = Authority(tmp_path, "stranger")
    foreign = stranger.issue("a-client.example.org")
    expired = keys.clients.issue("a-client.example.org", expired=True)
    tls = {"plain": None,
           "no certificate": settings(keys, certificate="", key=""),
           "another ca": settings(keys, certificate=foreign.certificate, key=foreign.key),
           "not believed": settings(keys, ca=str(stranger.path)),
           "another name": settings(keys, server_name="node.example.org"),
           "expired": settings(keys, certificate=expired.certificate, key=expired.key)}[case]

    async def ask() -> None:
        async with Client(world.addresses, tls=tls) as client:
            await client.list_topics()

    with pytest.raises(NoNodeAnswered):
        trio.run(ask)


@pytest.mark.parametrize("opening", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\0" * 64, b"\x16\x03\x01",
                                     struct.pack(">II", (1 << 32) - 1, 0)])
def test_another_protocol_is_turned_away_by_both_ports(world, opening):
    for address in (world.address(1), world.peer_address(1)):
        with raw.Session(address, hello=None) as session:
            session.send_bytes(opening)
            session.socket.shutdown(socket.SHUT_WR)
            assert session.closed_by_node()


def test_a_client_with_a_node_s_name_in_it_is_no_node(world, keys):
    """A certificate of the clients' CA is not accepted on the peer port."""
    name = f"node-2.{world.dev.record.cluster_id}"
    files = keys.clients.issue(name)
    made = context(settings(keys, certificate=files.certificate, key=files.key))
    made.load_verify_locations(keys.nodes.path)
    made.check_hostname = False
    with pytest.raises((ssl.SSLError, ConnectionError)):
        with raw.Session(world.peer_address(1), hello=None, context=made) as session:
            session.socket.recv(1)


def forged_vote(group: int) -> bytes:
    """Return a frame that would make a receiver that processes it advance to another term."""
    item = [1, *VoteRequest(group, 1, VOTE_TERM, 1 << 40, VOTE_TERM, False, True)]
    return raw.frame(cbor2.dumps({"i": [item]}))


@pytest.mark.parametrize("proof", [None, bytes(32)])
def test_a_forged_vote_request_raises_no_term(world, keys, proof):
    """A stolen certificate, but no secret: frames behind the hello have no effect."""
    cluster = world.dev.record.cluster_id
    files = keys.nodes.issue(f"node-2.{cluster}")
    made = ssl.create_default_context(cafile=keys.nodes.path)
    made.check_hostname = False
    made.load_cert_chain(files.certificate, files.key)
    hello = {"op": "hello", "version": PROTOCOL_VERSION, "class": "append",
             "cluster": bytes.fromhex(cluster), "node": 2, "boot_epoch": 1 << 40, "client_id": "",
             "nonce": bytes(32)}
    with raw.Session(world.peer_address(1), hello=None, context=made) as session:
        session.send_bytes(raw.frame(cbor2.dumps(hello)))
        if proof is not None:
            session.send_bytes(raw.frame(cbor2.dumps({"op": "proof", "proof": proof})))
        session.send_bytes(*(forged_vote(group) for group in range(5)))
        assert session.closed_by_node()
    with world.client() as client:
        assert all(group.term < VOTE_TERM for group in client.group_list())


def test_a_hello_of_a_client_is_refused_by_the_peer_port(world, keys):
    files = keys.nodes.issue(f"node-2.{world.dev.record.cluster_id}")
    made = ssl.create_default_context(cafile=keys.nodes.path)
    made.check_hostname = False
    made.load_cert_chain(files.certificate, files.key)
    with raw.Session(world.peer_address(1), hello=Hello(), context=made) as session:
        assert "client port" in session.opened.text


def reloaded(world: World, *nodes: int) -> None:
    """Send SIGHUP and wait for the log line of the reload."""
    for node in nodes:
        before = sum('"security_reloaded"' in line for line in world.log_lines(node))
        os.kill(world.pid(node), signal.SIGHUP)
        wait_for(lambda node=node, before=before: sum(
            '"security_reloaded"' in line for line in world.log_lines(node)) > before,
            f"node {node} has read its files again")


def test_certificates_are_replaced_under_load(world, keys, canary):
    """New connections get the new certificate; the canary's existing one is not interrupted."""
    with raw.Session(world.address(1), context=context(settings(keys))) as old:
        before, sung = serial(world, keys, 1), canary.count
        for node in world.ids():
            for role in ("peer", "client"):
                keys.certify(node, world.dev.record.cluster_id, role)
        reloaded(world, *world.ids())
        assert serial(world, keys, 1) != before
        assert old.reply(NodeStatus()).node == 1, "the old connection lives"
        wait_for(lambda: canary.count > sung + 20, "the canary goes on")


def test_files_that_cannot_be_used_change_nothing_until_they_are_right(world, keys):
    before = serial(world, keys, 2)
    path = keys.directory / "client-2.crt"
    right = path.read_bytes()
    path.write_text("no certificate")
    os.kill(world.pid(2), signal.SIGHUP)
    wait_for(lambda: any('"security_reload_failed"' in line for line in world.log_lines(2)),
             "node 2 says what is wrong")
    assert serial(world, keys, 2) == before
    path.write_bytes(right)
    reloaded(world, 2)


def test_the_secret_is_replaced_one_node_at_a_time(world, keys):
    """Each step leaves the cluster whole: a node that restarts meets both old and new files."""
    for step in ((FIRST, SECOND), (SECOND, FIRST), (SECOND,)):
        for node in world.ids():
            keys.secret(node, *step)
            reloaded(world, node)
        # A node that was away meets the others with the secrets that they have now.
        world.dev.stop(3)
        world.dev.start(3)
        with world.client() as client:
            wait_for(lambda client=client: all(
                node.state == "up" for node in client.cluster_status().nodes), "all are up")


def test_a_node_without_the_secret_is_left_alone_and_says_why(world, keys):
    known = keys.secrets(3)
    world.dev.stop(3)
    keys.secret(3, "f" * 64)
    # not awaited: the node never receives metadata of the time in which it was down
    world.launch(3)
    wait_for(lambda: any("proof of the cluster" in line for line in world.log_lines(3)),
             "node 3 is told why nobody listens")
    with world.client(1) as client:  # the lease from before its stop ends first
        wait_for(lambda: {node.id: node.state for node in client.cluster_status().nodes}[3] != "up",
                 "node 3 is left alone")
    assert not any(secret in line for node in world.ids() for line in world.log_lines(node)
                   for secret in (FIRST, SECOND, "f" * 64)), "a secret in the log"
    keys.secret(3, *known)
    reloaded(world, 3)
    with world.client(1) as client:
        wait_for(lambda: all(node.state == "up" for node in client.cluster_status().nodes),
                 "node 3 is back")


def test_an_address_that_others_reach_is_refused_with_the_way_out(world, tmp_path):
    text = world.config(1).read_text().split("[security]")[0]
    for old, says in ((world.peer_address(1), "security.peer_secret"),
                      (world.address(1), "client_certificate")):
        path = tmp_path / "node.toml"
        path.write_text(text.replace(old, old.replace("127.0.0.1", "0.0.0.0")))
        done = run_node(path)
        assert done.returncode == EXIT_BAD_CONFIG, done.stderr
        assert says in done.stderr and "insecure = true" in done.stderr
