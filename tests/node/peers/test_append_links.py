"""Append connections: both ends over real sockets, with a core that only records."""

import contextlib
import functools
import socket
from types import SimpleNamespace

import pytest
import trio
import trio.testing

from multiraft.core import frame_entries
from multiraft.errors import Compacted, ImpossibleMessage
from multiraft.raft.messages import Append, AppendReply, TimeoutNow
from multiraft.raft.ready import Envelope
from multiraft.storage.errors import CorruptRange
from multiraft.types import Entry, EntryKind
from multiraft.wire import messages as wire
from multiraft.wire.errors import Code
from multiraft.wire.frames import FrameReader, encode_frame
from multiraft.wire.messages import Hello, hello_header
from node.address import Address
from node.clients.listener import Listener, listen
from node.errors import DiskFailed
from node.loop.poller import Poller
from node.loop.receive import receive_some
from node.metadata.state_machine import NodeRecord
from node.peers import append_links as peers_module
from node.peers import codec
from node.peers import listener as peer_listener
from node.peers.append_links import RESIDENT_BYTES_MAX, RESIDENT_ENTRIES_MAX, PeerLink, Peers
from node.peers.handshake import Introduction
from node.peers.listener import PeerListener
from node.peers.registry import PeerRegistry, of_joined
from node.peers.security import Security
from node.security_config import SecurityConfig
from tests.node.harness import attend, in_trio, silent_log, until
from tests.ports import free_port

CLUSTER = bytes(16)
FRAME_BYTES_MAX = 32 << 20
REPLY = AppendReply(1, 1, 1, 0, 5, 5, 5, 0)


def entry(index: int, size: int = 8) -> Entry:
    return Entry(EntryKind.METADATA, 1, 1, 1, index, payload=bytes(size))


class Core:
    """A core that records its calls, and supports the boots that the test names."""

    has_work = True

    def __init__(self):
        self.status = self  # as core.status
        self.stepped: list = []
        self.connections: list = []
        self.still_leads = True
        self.refuses = False
        self.supported: dict[int, int] = {}

    def supported_epoch(self, node):
        return self.supported.get(node, 0)

    def step(self, sender, message):
        if self.refuses:
            raise ImpossibleMessage("both lead")
        self.stepped.append((sender, message))

    def connected(self, node):
        self.connections.append(("up", node))

    def disconnected(self, node):
        self.connections.append(("down", node))

    def leads(self, group, term):
        return self.still_leads


class Store:
    """Entries 1..9 are cold, later ones hot."""

    def __init__(self):
        self.problem: Exception | None = None
        self.size = 8
        self.in_page_cache = False
        self.planned_bytes = 100
        self.read_by: list[str] = []

    def framed(self, group, first, last):
        if first < 10:
            return None
        return frame_entries([entry(i, self.size) for i in range(first, last + 1)], 0, 0)[0]

    def read_job(self, group, first, last):
        if isinstance(self.problem, Compacted):
            raise self.problem

        def execute(by="thread"):
            self.read_by.append(by)
            if self.problem is not None:
                raise self.problem
            return [entry(i) for i in range(first, last + 1)]

        def run_from_page_cache():
            return execute("loop") if self.in_page_cache else None

        return SimpleNamespace(execute=execute, run_from_page_cache=run_from_page_cache,
                               count=last - first + 1, bytes=self.planned_bytes)


def hello_of(node: int, epoch: int = 1, connection: str = "append", process: int = 5) -> Hello:
    """Return the hello of a node whose data directory has the incarnation 100 + node."""
    return Hello(connection, CLUSTER, node, epoch, incarnation=100 + node, process=process)


def known_nodes(*nodes: int) -> PeerRegistry:
    """Return node 2's registry of other nodes, which are registered."""
    records = [NodeRecord(node, 100 + node, 0, f"h:{node}", f"p:{node}") for node in nodes]
    return PeerRegistry(None, "", 2, of_joined(CLUSTER, 1, 1, records, (), 1))


class Sender:
    """Node 1, which dials node 2."""

    def __init__(self, port: int, cluster: bytes = CLUSTER, bytes_max: int = 64 << 20,
                 security: SecurityConfig = SecurityConfig()):
        self.core, self.store, self.damage = Core(), Store(), []
        introduction = functools.partial(Introduction, Security(security, cluster),
                                         hello_of(1)._replace(cluster=cluster))
        self.answers: list[tuple[int, int]] = []  # (peer, code), 0 = welcome
        self.link = PeerLink(2, "127.0.0.1", port, introduction, bytes_max, self, silent_log())
        self.poller = Poller()
        self.peers = Peers(self.store, self.core, FRAME_BYTES_MAX, lambda: None,
                           self.damage.append, self.poller)
        self.peers.add(self.link)

    def welcomed(self, peer):
        self.answers.append((peer, 0))

    def refused(self, peer, code, text, remembered):
        self.answers.append((peer, code))

    def on_unreachable(self, peer):
        pass

    async def linked(self, peer):
        return False

    def say(self, *messages) -> None:
        """Send the messages of one round."""
        self.peers.send([Envelope(2, message) for message in messages])
        self.peers.flush()


class Receiver:
    """The peer port of node 2, or of another."""

    def __init__(self, security: SecurityConfig = SecurityConfig(), node: int = 2,
                 hello_ms: int = 15_000):
        self.core, self.rounds, self.adopted = Core(), 0, []
        self.known = known_nodes(1, 3)
        self.poller = Poller()
        self.address = Address("127.0.0.1", free_port())
        self.port = PeerListener(
            self.core, self.round, SimpleNamespace(adopt=lambda *args: self.adopted.append(args)),
            Security(security, CLUSTER), node, 1, self.known, FRAME_BYTES_MAX, hello_ms,
            self.poller, silent_log())
        self.listener = Listener(listen(self.address), self.port.handle, 100)

    def round(self):
        self.rounds += 1

    async def dial(self, hello: Hello) -> socket.socket:
        """Return a connection that has sent hello, as a plain socket."""
        sock = trio.socket.socket()
        await sock.connect((self.address.host, self.address.port))
        plain = socket.socket(fileno=sock.detach())
        plain.setblocking(False)
        plain.send(b"".join(encode_frame(hello_header(hello))))
        return plain


def pair_test(test):
    """Run a test with a sender that is connected to a receiver."""

    @in_trio
    async def run():
        receiver = Receiver()
        sender = Sender(receiver.address.port)
        async with trio.open_nursery() as nursery:
            await nursery.start(receiver.listener.serve)
            nursery.start_soon(attend, receiver.poller, receiver.round)
            nursery.start_soon(sender.peers.run)
            await until(lambda: sender.core.connections == [("up", 2)])
            await test(sender, receiver)
            nursery.cancel_scope.cancel()

    run.__name__ = test.__name__
    return run


@pair_test
async def test_the_messages_of_a_round_are_one_frame(sender, receiver):
    sender.say(REPLY, TimeoutNow(1, 1, 1), Append(1, 1, 1, 9, 1, 11, 0))
    await until(lambda: len(receiver.core.stepped) == 3)
    assert sender.peers.frames_sent == 1
    assert receiver.port.frames == 1
    assert receiver.rounds == 1
    assert [message for _sender, message in receiver.core.stepped][:2] == [REPLY,
                                                                           TimeoutNow(1, 1, 1)]
    assert [one.index for one in receiver.core.stepped[2][1].entries] == [10, 11]


@in_trio
async def test_peers_that_hear_the_same_get_the_same_frame_and_others_their_own(monkeypatch):
    framed = []
    real = peers_module.codec.frame
    monkeypatch.setattr(peers_module.codec, "frame",
                        lambda items, payload=(): framed.append(items) or real(items, payload))
    receivers = Receiver(), Receiver(node=3)
    core, store = Core(), Store()
    introduction = functools.partial(Introduction, Security(SecurityConfig(), CLUSTER),
                                     hello_of(1))
    judge = SimpleNamespace(welcomed=lambda peer: None, refused=None)
    peers = Peers(store, core, FRAME_BYTES_MAX, lambda: None, None, Poller())
    for node, receiver in enumerate(receivers, 2):
        peers.add(PeerLink(node, "127.0.0.1", receiver.address.port, introduction, 64 << 20, judge,
                           silent_log()))
    same, other = Append(1, 1, 1, 9, 1, 11, 0), TimeoutNow(1, 1, 1)
    async with trio.open_nursery() as nursery:
        for receiver in receivers:
            await nursery.start(receiver.listener.serve)
            nursery.start_soon(attend, receiver.poller, receiver.round)
        nursery.start_soon(peers.run)
        await until(lambda: len(core.connections) == 2)
        peers.send([Envelope(2, same), Envelope(3, same)])
        peers.flush()
        peers.send([Envelope(2, REPLY), Envelope(3, REPLY), Envelope(3, other)])
        peers.flush()
        await until(lambda: [len(receiver.core.stepped) for receiver in receivers] == [2, 3])
        nursery.cancel_scope.cancel()
    assert len(framed) == 3
    assert [[message for _sender, message in receiver.core.stepped[1:]]
            for receiver in receivers] == [[REPLY], [REPLY, other]]
    for receiver in receivers:
        assert [one.index for one in receiver.core.stepped[0][1].entries] == [10, 11]


@pair_test
async def test_a_round_that_does_not_fit_into_a_frame_is_several_in_order(sender, receiver):
    sender.store.size = 4 << 20
    sender.say(*[Append(1, 1, 1, index, 1, index + 1, 0) for index in range(9, 21)], REPLY)
    await until(lambda: len(receiver.core.stepped) == 13)
    assert receiver.port.frames == 2
    assert [message.last_index for _s, message in receiver.core.stepped[:12]] == list(
        range(10, 22))


@pair_test
async def test_cold_entries_are_read_by_a_thread_and_follow(sender, receiver):
    sender.say(Append(1, 1, 1, 2, 1, 5, 0), REPLY)
    await until(lambda: len(receiver.core.stepped) == 2)
    assert receiver.core.stepped[0][1] == REPLY
    assert [one.index for one in receiver.core.stepped[1][1].entries] == [3, 4, 5]
    assert sender.store.read_by == ["thread"]


@pair_test
async def test_only_what_a_task_has_to_read_ends_the_loops_waiting_for_more(sender, receiver):
    sender.say(Append(1, 1, 1, 9, 1, 11, 0), REPLY)
    assert not sender.poller.yield_due
    sender.say(Append(1, 1, 1, 2, 1, 5, 0))
    assert sender.poller.yield_due


@pair_test
async def test_a_few_entries_in_the_page_cache_need_no_thread(sender, receiver):
    sender.store.in_page_cache = True
    sender.say(Append(1, 1, 1, 2, 1, 5, 0))
    await until(lambda: receiver.core.stepped)
    assert [one.index for one in receiver.core.stepped[0][1].entries] == [3, 4, 5]
    sender.say(Append(1, 1, 1, 2, 1, 3 + RESIDENT_ENTRIES_MAX, 0))
    await until(lambda: len(receiver.core.stepped) == 2)
    sender.store.planned_bytes = RESIDENT_BYTES_MAX + 1
    sender.say(Append(1, 1, 1, 2, 1, 5, 0))
    await until(lambda: len(receiver.core.stepped) == 3)
    assert sender.store.read_by == ["loop", "thread", "thread"]


@pair_test
async def test_a_leader_that_was_deposed_sends_no_entries_any_more(sender, receiver):
    sender.core.still_leads = False
    sender.say(Append(1, 1, 1, 9, 1, 11, 0), Append(1, 1, 1, 2, 1, 5, 0), REPLY)
    await until(lambda: receiver.core.stepped)
    await trio.testing.wait_all_tasks_blocked(0.01)
    assert receiver.core.stepped == [(1, REPLY)]


@pair_test
async def test_a_damaged_cold_range_is_told_and_the_node_lives_on(sender, receiver):
    sender.store.problem = CorruptRange(1, 3, "crc")
    sender.say(Append(1, 1, 1, 2, 1, 5, 0))
    await until(lambda: sender.damage == [sender.store.problem])
    sender.store.problem = Compacted("gone")
    sender.say(Append(1, 1, 1, 2, 1, 5, 0))
    await until(lambda: not sender.peers._filler.cold)
    sender.store.problem = None
    sender.say(Append(1, 1, 1, 2, 1, 5, 0))
    await until(lambda: receiver.core.stepped)


@pair_test
async def test_without_free_descriptors_a_cold_range_is_read_later(sender, receiver):
    pause_s, peers_module.EXHAUSTED_PAUSE_S = peers_module.EXHAUSTED_PAUSE_S, 0.001
    try:
        sender.store.problem = OSError(24, "Too many open files")
        sender.say(Append(1, 1, 1, 2, 1, 5, 0))
        await until(lambda: len(sender.store.read_by) >= 2)
        assert not receiver.core.stepped
        sender.store.problem = None
        await until(lambda: len(receiver.core.stepped) == 1)
    finally:
        peers_module.EXHAUSTED_PAUSE_S = pause_s


@pair_test
async def test_what_arrives_is_stepped_without_waking_a_task(sender, receiver):
    await until(lambda: receiver.poller._handlers)
    sender.say(REPLY)
    while not receiver.core.stepped:
        due = receiver.poller.poll()  # no task of the receiver runs meanwhile
    assert due
    assert receiver.core.stepped == [(1, REPLY)]
    assert receiver.poller.poll() is None


@pair_test
async def test_what_has_no_consequence_asks_for_no_round(sender, receiver):
    receiver.core.has_work = False
    sender.say(REPLY)
    await until(lambda: receiver.core.stepped)
    assert receiver.rounds == 0


@in_trio
async def test_a_disk_that_cannot_be_read_stops_the_node():
    receiver = Receiver()
    sender = Sender(receiver.address.port)
    sender.store.problem = OSError(5, "Input/output error")
    with pytest.raises(ExceptionGroup) as raised:
        async with trio.open_nursery() as nursery:
            await nursery.start(receiver.listener.serve)
            nursery.start_soon(attend, receiver.poller, receiver.round)
            nursery.start_soon(sender.peers.run)
            await until(lambda: sender.core.connections)
            sender.say(Append(1, 1, 1, 2, 1, 5, 0))
            await trio.sleep_forever()
    assert raised.group_contains(DiskFailed)


@pair_test
async def test_a_message_that_cannot_be_ends_the_connection_and_nothing_else(sender, receiver):
    receiver.core.refuses = True
    sender.say(REPLY)
    await until(lambda: ("down", 2) in sender.core.connections)
    receiver.core.refuses = False
    await until(lambda: sender.core.connections[-1] == ("up", 2), "it dials again")
    sender.say(REPLY)
    await until(lambda: receiver.core.stepped == [(1, REPLY)])


@in_trio
async def test_a_link_that_breaks_while_its_connection_is_reported_is_dialled_again():
    receiver = Receiver()
    sender = Sender(receiver.address.port, bytes_max=1)  # the first frame overflows the outbox
    report = sender.core.connected

    def connected(node):
        report(node)
        sender.say(REPLY)

    sender.core.connected = connected
    async with trio.open_nursery() as nursery:
        await nursery.start(receiver.listener.serve)
        nursery.start_soon(attend, receiver.poller, receiver.round)
        nursery.start_soon(sender.peers.run)
        await until(lambda: len(sender.core.connections) >= 4)
        nursery.cancel_scope.cancel()
    assert sender.core.connections[:4] == [("up", 2), ("down", 2), ("up", 2), ("down", 2)]


@pair_test
async def test_a_newer_connection_of_the_same_node_replaces_the_older(sender, receiver):
    with await receiver.dial(hello_of(1)):
        await until(lambda: ("down", 2) in sender.core.connections)
        with await receiver.dial(hello_of(3)):
            await until(lambda: len(receiver.port._receiving) == 2)


@in_trio
@pytest.mark.parametrize(("hello", "why", "code"), [
    (hello_of(1)._replace(cluster=bytes(15) + b"x"), "another cluster", Code.WRONG_CLUSTER),
    (hello_of(9), "no member", Code.UNKNOWN_NODE),
    (hello_of(2), "no member", Code.UNKNOWN_NODE),
    (hello_of(1)._replace(incarnation=7), "another data directory", Code.WRONG_INCARNATION),
    (hello_of(1)._replace(incarnation=0), "another data directory", Code.WRONG_INCARNATION),
    (Hello("client", CLUSTER), "peer port", Code.INVALID_REQUEST),
    (Hello(version=7), "version 7", Code.UNSUPPORTED),
])
async def test_a_stranger_is_refused_with_the_reason(hello, why, code):
    receiver = Receiver()
    async with trio.open_nursery() as nursery:
        await nursery.start(receiver.listener.serve)
        nursery.start_soon(attend, receiver.poller, receiver.round)
        with await receiver.dial(hello) as sock:
            reader = FrameReader()
            while (frame := reader.next_frame()) is None:
                assert await receive_some(sock, reader)
            refused = wire.read_welcome(frame.header)
            assert (refused.code, why in refused.text) == (code, True)
            assert not await receive_some(sock, reader)
        nursery.cancel_scope.cancel()


@in_trio
async def test_a_liveness_connection_goes_to_its_thread_with_what_came_behind_the_hello():
    receiver = Receiver()
    async with trio.open_nursery() as nursery:
        await nursery.start(receiver.listener.serve)
        nursery.start_soon(attend, receiver.poller, receiver.round)
        with await receiver.dial(hello_of(1, connection="liveness")) as sock:
            await until(lambda: receiver.adopted)
            assert isinstance(sock, socket.socket)
        peer, adopted, reader = receiver.adopted[0]
        adopted.close()
        assert (peer, isinstance(reader, FrameReader)) == (1, True)
        nursery.cancel_scope.cancel()


@in_trio
async def test_a_peer_that_refuses_is_not_dialled_without_end(monkeypatch):
    monkeypatch.setattr(peers_module, "REDIAL_S", 1000)
    receiver = Receiver()
    sender = Sender(receiver.address.port, cluster=b"\1" * 16)
    async with trio.open_nursery() as nursery:
        await nursery.start(receiver.listener.serve)
        nursery.start_soon(attend, receiver.poller, receiver.round)
        nursery.start_soon(sender.peers.run)
        await until(lambda: receiver.port.refused)
        await trio.testing.wait_all_tasks_blocked(0.02)
        assert receiver.listener.counts.accepted == 1
        assert not sender.core.connections, "who refuses is not connected"
        nursery.cancel_scope.cancel()


@in_trio
async def test_a_connection_that_breaks_at_the_first_send_is_dialled_anew(monkeypatch):
    monkeypatch.setattr(peers_module, "REDIAL_S", 0.01)
    receiver = Receiver()
    sender = Sender(receiver.address.port)
    real, failures = peers_module.Outbox.flush, [ConnectionResetError(), BrokenPipeError()]

    def flush(outbox):
        if failures:
            raise failures.pop()
        real(outbox)

    monkeypatch.setattr(peers_module.Outbox, "flush", flush)
    async with trio.open_nursery() as nursery:
        await nursery.start(receiver.listener.serve)
        nursery.start_soon(attend, receiver.poller, receiver.round)
        nursery.start_soon(sender.peers.run)
        for boot_id in (1, 2):
            await until(lambda up=2 * boot_id - 1: len(sender.core.connections) == up)
            sender.say(REPLY)
        await until(lambda: len(sender.core.connections) == 5)
        sender.say(REPLY)
        await until(lambda: receiver.core.stepped)
        nursery.cancel_scope.cancel()


@pair_test
async def test_a_peer_that_is_removed_while_its_connection_breaks_is_not_taken_for_connected(
        sender, receiver):
    sender.link._break()  # as a failed send does; its task has not run yet
    sender.peers.remove(2)
    await until(lambda: sender.core.connections[-1] == ("down", 2))


@in_trio
async def test_a_peer_that_does_not_read_is_dropped_at_the_limit(monkeypatch):
    monkeypatch.setattr(peers_module, "REDIAL_S", 1000)
    port = free_port()
    with socket.create_server(("127.0.0.1", port)) as listening:
        sender = Sender(port, bytes_max=8 << 20)
        sender.store.size = 4 << 20
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sender.peers.run)
            await trio.lowlevel.wait_readable(listening)
            deaf, _ = listening.accept()
            deaf.send(b"".join(encode_frame(wire.welcome_header(wire.Welcome(CLUSTER, 2, 1)))))
            await until(lambda: sender.core.connections)
            for _ in range(20):
                sender.say(Append(1, 1, 1, 9, 1, 10, 0))
            await until(lambda: sender.core.connections[-1] == ("down", 2))
            deaf.close()
            nursery.cancel_scope.cancel()


def test_of_what_a_peer_sends_at_once_some_is_stepped_in_a_turn():
    stepped: list[int] = []
    poller = Poller()
    near, far = socket.socketpair()
    with near, far, contextlib.closing(poller):
        near.setblocking(False)
        listener = SimpleNamespace(space=None, frames=0, poller=poller)
        core = SimpleNamespace(step=lambda peer, message: stepped.append(peer), has_work=True)
        reader = FrameReader()
        incoming = peer_listener._Incoming(listener, core, near, reader, 3)
        poller.add(near.fileno(), incoming.receive)
        items = [codec.encode(TimeoutNow(1, 1, 1), 0)] * 1000
        for _ in range(3):
            far.sendall(b"".join(codec.frame(items)))
        for turn in range(1, 9):
            before = len(stepped)
            assert poller.poll() is True
            assert 0 < len(stepped) - before <= peer_listener.MESSAGES_PER_TURN, turn
            if not poller.left:
                break
        assert len(stepped) == 3000 and listener.frames == 3
