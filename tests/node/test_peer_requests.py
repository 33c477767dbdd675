"""What nodes ask each other: one question, one answer, and only about themselves."""

import functools
from types import SimpleNamespace

import pytest
import trio

from multiraft.errors import NotLeader
from multiraft.wire import nodes as wire
from multiraft.wire.errors import AmbiguousOutcome, Code, ErrorDetail, LeaderUnknown
from multiraft.wire.errors import NotLeader as NotLeaderThere
from multiraft.wire.messages import Hello
from node import peer_requests
from node.config import Address
from node.handshake import Introduction, NotAccepted
from node.listener import Listener, listen
from node.metadata_requests import MetadataRequests
from node.peer_listener import PeerListener
from node.peer_requests import PeerRequests
from node.security import Security, SecurityConfig
from tests.node.harness import free_port, in_trio, silent_log
from tests.node.test_peers import CLUSTER, Core, hello_of, known_nodes
from tests.wire.test_connection import NODE

SECURITY = Security(SecurityConfig(), CLUSTER)
RECORD = wire.RecordMembers(3, 1, 17, (1, 2), (3,))


class Answering:
    """Node 2's peer port, with handlers that write down what they were asked."""

    def __init__(self):
        self.asked: list = []
        self.problem: Exception | None = None
        self.address = Address("127.0.0.1", free_port())
        self.port = PeerListener(Core(), None, None, SECURITY, 2, 1, known_nodes(1, 3),
                                 self.answer, 1 << 20, 500, None, silent_log())
        self.listener = Listener(listen(self.address), self.port.handle, 10)

    async def answer(self, hello, sock, reader):
        handlers = {wire.RecordMembers: self.handle, wire.RegisterNode: self.handle}
        await peer_requests.serve(hello, sock, reader, handlers, self.refusal)

    async def handle(self, request):
        self.asked.append(request)
        if self.problem is not None:
            raise self.problem
        if type(request) is wire.RegisterNode:
            return wire.JoinClusterReply(1, CLUSTER, 8, 3, (NODE,), (), 5)
        return wire.RecordMembersReply()

    @staticmethod
    def refusal(error):
        if isinstance(error, NotLeader):
            return Code.NOT_LEADER, ErrorDetail(str(error), leader=3)
        return error.code, error.detail


def asking(hello: Hello) -> PeerRequests:
    """The asking side of the node that says ``hello``."""
    return PeerRequests(functools.partial(Introduction, SECURITY, hello))


def served(test):
    """A test with a node that answers."""

    @in_trio
    async def run():
        node = Answering()
        async with trio.open_nursery() as nursery:
            await nursery.start(node.listener.serve)
            await test(node)
            nursery.cancel_scope.cancel()

    run.__name__ = test.__name__
    return run


@served
async def test_a_question_is_answered(node):
    requests = asking(hello_of(1, connection="command"))
    assert await requests.ask(node.address, 2, RECORD) == wire.RecordMembersReply()
    assert node.asked == [RECORD]
    mine = wire.RegisterNode(NODE._replace(id=1, incarnation=101))
    assert (await requests.ask(node.address, 2, mine)).nodes == (NODE,)


@served
async def test_nobody_registers_another_node(node):
    requests = asking(hello_of(1, connection="command"))
    for other in (NODE._replace(id=3, incarnation=103), NODE._replace(id=1, incarnation=7)):
        with pytest.raises(Exception, match="nobody but itself"):
            await requests.ask(node.address, 2, wire.RegisterNode(other))
    assert not node.asked


@served
async def test_a_refusal_comes_as_its_type_with_the_leader(node):
    node.problem = NotLeader(0, 3)
    with pytest.raises(NotLeaderThere) as raised:
        await asking(hello_of(1, connection="command")).ask(node.address, 2, RECORD)
    assert raised.value.detail.leader == 3


@served
async def test_a_stranger_asks_nothing(node):
    with pytest.raises(NotAccepted, match="another data directory"):
        await asking(hello_of(1, connection="command")._replace(incarnation=8)).ask(
            node.address, 2, RECORD)
    assert not node.asked


@served
async def test_a_node_that_does_not_answer_leaves_it_open(node):
    async def silent(_hello, _sock, _reader):
        await trio.sleep_forever()

    node.port._answer = silent
    with pytest.MonkeyPatch.context() as patch, pytest.raises(AmbiguousOutcome, match="no answer"):
        patch.setattr(peer_requests, "ASK_TIMEOUT_S", 0.1)
        await asking(hello_of(1, connection="command")).ask(node.address, 2, RECORD)


@in_trio
async def test_a_node_that_is_away_was_asked_nothing():
    with pytest.raises(LeaderUnknown, match="cannot be reached"):
        await asking(hello_of(1)).ask(Address("127.0.0.1", free_port()), 2, RECORD)


# ---- the metadata leader -------------------------------------------------------------------------


class Hints:
    """A core that knows a leader."""

    node = 1

    def __init__(self, leader: int):
        self.leader = leader

    def is_leader(self, _group):
        return self.leader == self.node

    def leader_hint(self, _group):
        return self.leader, 5


@in_trio
@pytest.mark.parametrize(("leader", "answered"), [(1, "here"), (3, "there")])
async def test_the_metadata_leader_is_asked_wherever_it_is(leader, answered):
    async def here(_request):
        return "here"

    async def there(address, peer, _request):
        assert (str(address), peer) == ("h:3", 3)
        return "there"

    known = known_nodes(1, 3)
    known.facts.nodes[3] = known.facts.nodes[3]._replace(peer_address="h:3")
    requests = MetadataRequests(Hints(leader), known, {wire.RecordMembers: here},
                                SimpleNamespace(ask=there))
    assert await requests.ask(RECORD) == answered


@in_trio
@pytest.mark.parametrize("leader", [0, 9])
async def test_without_a_leader_that_is_known_nobody_is_asked(leader):
    with pytest.raises(LeaderUnknown):
        await MetadataRequests(Hints(leader), known_nodes(1, 3), {}, None).ask(RECORD)
