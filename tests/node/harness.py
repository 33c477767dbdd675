"""Shared tools of the node's tests: trio with a time limit, loopback sockets, a whole node in this
process.

Contract. Every wait is for a condition and ends after ``LIMIT_S``.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import secrets
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import trio

from multiraft.core import BatchBuilder
from multiraft.storage.config import StorageConfig
from multiraft.storage.filesystem import RealFilesystem
from multiraft.storage.identity import Identity
from multiraft.storage.store import Store
from multiraft.types import METADATA_GROUP
from multiraft.wire.connection import NEED_DATA, Connection, RequestEvent, ResponseEvent, Role
from multiraft.wire.messages import BatchPart, CreateTopic, Hello, Produce
from node.config import NodeConfig, parse
from node.data_directory import draw_process_number
from node.main import Node
from node.observability.http import HttpThread
from node.observability.phase import Life
from node.peers.security import Security
from tests.ports import free_port

LIMIT_S = 180.0
POLL_S = 0.002
CLUSTER = "0123456789abcdef0123456789abcdef"
HELLO = Hello()


def in_trio(test):
    """Run an async test function in trio, with a time limit."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        async def bounded():
            with trio.fail_after(LIMIT_S):
                await test(*args, **kwargs)

        trio.run(bounded)

    return run


async def until(condition, what: str = ""):
    """Return the first true value of ``condition()``."""
    with trio.move_on_after(LIMIT_S / 2):
        while not (value := condition()):
            await trio.sleep(POLL_S)
        return value
    raise AssertionError(f"never: {what or condition}")


async def attend(poller, on_due=lambda: None) -> None:
    """Handle arrivals like the round loop of a node; ``on_due()`` is called when a round is due."""
    while True:
        await trio.lowlevel.wait_readable(poller.file_number)
        due = poller.poll()
        while due or poller.left:
            if due:
                on_due()
            await trio.lowlevel.checkpoint()
            due = poller.poll()


def connected_pair(buffer_bytes: int = 0) -> tuple[socket.socket, socket.socket]:
    """Return both ends of a TCP connection, non-blocking."""
    with socket.socket() as listening:
        if buffer_bytes:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        near = socket.create_connection(listening.getsockname())
        far, _ = listening.accept()
    if buffer_bytes:
        near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
    near.setblocking(False)
    far.setblocking(False)
    return near, far


def silent_log() -> logging.Logger:
    """Return a logger whose records pytest shows when a test fails."""
    log = logging.getLogger("tests.node")
    log.setLevel(logging.INFO)
    return log


# ---- a whole node --------------------------------------------------------------------------------


def one_node_table(**limits: int) -> dict:
    """Return the configuration of a cluster of one, whose disk may be slow for a while.  The node
    publishes no loads: a window may end in any test, and then the node creates a topic."""
    row = {"id": 1, "client_address": f"127.0.0.1:{free_port()}",
           "peer_address": f"127.0.0.1:{free_port()}"}
    return {"node": {**row, "data_dir": "data"}, "limits": {"group_stall_ms_max": 60_000, **limits},
            "metrics": {"publish": False},
            "cluster": {"id": CLUSTER, "groups": 2, "replication_factor": 1, "nodes": [row]}}


def make_node(config: NodeConfig, life: Life | None = None,
              http: HttpThread | None = None, storage: StorageConfig = StorageConfig()) -> Node:
    """Return all parts of a node on its real directory."""
    store = Store.open(str(config.data_dir), RealFilesystem(),
                       Identity(config.cluster_id, config.node.id, secrets.randbits(63),
                                process=draw_process_number()), storage)
    return Node(config, store, Security(config.security, config.cluster_id), silent_log(), life,
                http)


@contextlib.asynccontextmanager
async def serving(directory: Path, **limits: int) -> AsyncIterator[Node]:
    """Run a node that leads all groups, and stop it in order at the end."""
    async with running(make_node(parse(one_node_table(**limits), directory))) as node:
        yield node


@contextlib.asynccontextmanager
async def running(node: Node) -> AsyncIterator[Node]:
    """Yield the node once it leads all groups; stop it in order at the end."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.run)
        await until(lambda: node.core.status.led_count == 3 and node.metadata.log.state.cluster_id
                    and node.metadata.log.state.node(1).incarnation, "the node leads")
        yield node
        node.driver.rounds.stop()
        nursery.cancel_scope.cancel()
    node.close()


class Client:
    """One connection to a node, without retries; a context manager that closes it."""

    def __init__(self, stream: trio.SocketStream):
        self.stream = stream
        self.machine = Connection(Role.CLIENT)
        self._next_id = 1

    @classmethod
    async def open(cls, node: Node, hello: Hello = HELLO) -> Client:
        """Connect and send hello."""
        address = node.config.node.client_address
        client = cls(await trio.open_tcp_stream(address.host, address.port))
        await client.say(*client.machine.send(hello))
        client.opened = await client.event()
        return client

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stream.socket.close()

    async def say(self, *buffers: bytes) -> None:
        """Send exactly these bytes."""
        await self.stream.send_all(b"".join(buffers))

    async def event(self):
        """Return the next event that the node sends."""
        while (event := self.machine.next_event()) is NEED_DATA:
            self.machine.receive_data(await self.stream.receive_some())
        return event

    async def begin(self, request, *payload: bytes, seen_index: int = 0) -> int:
        """Send a request and return its id."""
        number, self._next_id = self._next_id, self._next_id + 1
        await self.say(*self.machine.send(RequestEvent(number, request, seen_index), payload))
        return number

    async def ask(self, request, *payload: bytes, seen_index: int = 0) -> ResponseEvent:
        """Send a request and return its response."""
        number = await self.begin(request, *payload, seen_index=seen_index)
        answer = await self.event()
        assert answer.id == number, answer
        return answer

    async def create(self, name: str, partitions: int = 1) -> int:
        """Create a topic and return the incarnation of its first partition."""
        answer = await self.ask(CreateTopic(name, partitions))
        assert answer.reply is not None, answer
        return answer.reply.topic.incarnation

    async def produce(self, incarnation: int, *values: bytes, acks: str = "commit"):
        """Append one batch and return its result."""
        data = batch(*values)
        answer = await self.ask(Produce(acks, 15_000, (BatchPart(incarnation, len(data)),)), data)
        return answer.reply.results[0]


def batch(*values: bytes) -> bytearray:
    """Return a batch of these records, without a producer id."""
    builder = BatchBuilder(8 << 20)
    for value in values:
        assert builder.append(1_700_000_000_000, None, value)
    return builder.build()


def leads(node: Node) -> bool:
    """True if the node leads the metadata group."""
    return node.core.status.is_leader(METADATA_GROUP)
