"""Requests between nodes for the metadata: one request, one reply, about the sender itself."""

import functools

import pytest
import trio

from multiraft.errors import NotLeader
from multiraft.wire import nodes as wire
from multiraft.wire.errors import AmbiguousOutcome, Code, ErrorDetail, LeaderUnknown
from multiraft.wire.errors import NotLeader as NotLeaderThere
from multiraft.wire.messages import Hello
from node.address import Address
from node.clients.listener import Listener, listen
from node.cluster.metadata_client import MetadataRequests
from node.cluster.peer_requests import PeerRequests
from node.peers import bulk_channel as bulk_module
from node.peers.bulk_channel import Bulk
from node.peers.dial import dial
from node.peers.handshake import Introduction
from node.peers.listener import PeerListener
from node.peers.security import Security
from node.security_config import SecurityConfig
from tests.node.harness import in_trio, silent_log, until
from tests.node.peers.test_append_links import CLUSTER, Core, hello_of, known_nodes
from tests.ports import free_port
from tests.wire.test_connection import NODE

SECURITY = Security(SecurityConfig(), CLUSTER)
RECORD = wire.ReportMembers(3, 1, 17, (1, 2), (3,))


def refusal(error):
    """Return code and detail of an error, as ``Admin.refusal`` does."""
    if isinstance(error, NotLeader):
        return Code.NOT_LEADER, ErrorDetail(str(error), leader=3)
    return error.code, error.detail


class Answering:
    """Node 2's peer port, with handlers that record their requests."""

    def __init__(self):
        self.asked: list = []
        self.problem: Exception | None = None
        self.silent = False
        self.address = Address("127.0.0.1", free_port())
        self.bulk = Bulk(None, None, 1 << 20, 1 << 30)
        handlers = {wire.ReportMembers: self.handle, wire.RegisterNode: self.handle}
        PeerRequests(self.bulk, handlers, refusal)
        self.port = PeerListener(Core(), None, None, SECURITY, 2, 1, known_nodes(1, 3), 1 << 20,
                                 15_000, None, silent_log(), self.bulk)
        self.listener = Listener(listen(self.address), self.port.handle, 10)

    async def handle(self, request):
        self.asked.append(request)
        if self.silent:
            await trio.sleep_forever()
        if self.problem is not None:
            raise self.problem
        if type(request) is wire.RegisterNode:
            return wire.JoinClusterReply(1, CLUSTER, 8, 3, (NODE,), (), 5)
        return wire.ReportMembersReply()

    def asking(self, hello: Hello) -> PeerRequests:
        """Return the requesting side: the node that sends ``hello``."""
        async def reach(_peer):
            return await dial(self.address.host, self.address.port)

        bulk = Bulk(reach, functools.partial(Introduction, SECURITY, hello), 1 << 20, 1 << 30)
        self.nursery.start_soon(bulk.close_idle)
        return PeerRequests(bulk, {}, refusal)


def served(test):
    """Run a test with a node that answers, and the requesting side of node 1."""

    @in_trio
    async def run():
        node = Answering()
        async with trio.open_nursery() as nursery:
            await nursery.start(node.listener.serve)
            node.nursery = nursery
            await test(node, node.asking(hello_of(1, connection="bulk")))
            nursery.cancel_scope.cancel()

    run.__name__ = test.__name__
    return run


@served
async def test_a_question_is_answered(node, requests):
    assert await requests.ask(2, RECORD) == wire.ReportMembersReply()
    assert node.asked == [RECORD]
    mine = wire.RegisterNode(NODE._replace(id=1, incarnation=101))
    assert (await requests.ask(2, mine)).nodes == (NODE,)


@served
async def test_nobody_registers_another_node(node, requests):
    with pytest.raises(AmbiguousOutcome):
        await requests.ask(2, wire.RegisterNode(NODE._replace(id=3, incarnation=103)))
    assert not node.asked


@served
async def test_a_refusal_comes_as_its_type_with_the_leader(node, requests):
    node.problem = NotLeader(0, 3)
    with pytest.raises(NotLeaderThere) as raised:
        await requests.ask(2, RECORD)
    assert raised.value.detail.leader == 3


@served
async def test_a_stranger_asks_nothing(node, _requests):
    stranger = node.asking(hello_of(1, connection="bulk")._replace(incarnation=8))
    with pytest.raises(AmbiguousOutcome, match="another data directory"):
        await stranger.ask(2, RECORD)
    assert not node.asked


@served
async def test_a_node_that_does_not_answer_leaves_it_open(node, requests):
    await requests.ask(2, RECORD)  # there is a connection
    node.silent = True
    with pytest.MonkeyPatch.context() as patch, pytest.raises(AmbiguousOutcome, match="too slow"):
        patch.setattr(bulk_module, "ANSWER_TIMEOUT_S", 0.1)
        await requests.ask(2, RECORD)
    await until(lambda: node.asked == [RECORD, RECORD])


# ---- the metadata leader -------------------------------------------------------------------------


class LeaderTable:
    """A core that knows a leader."""

    node = 1

    def __init__(self, leader: int):
        self.status = self  # as core.status
        self.leader = leader

    def is_leader(self, _group):
        return self.leader == self.node

    def leader_hint(self, _group):
        return self.leader, 5

    async def ask(self, peer, _request):
        return f"node {peer}"


async def here(_request):
    return "this node"


@in_trio
@pytest.mark.parametrize(("leader", "answered"), [(1, "this node"), (3, "node 3")])
async def test_the_metadata_leader_is_asked_wherever_it_is(leader, answered):
    core = LeaderTable(leader)
    requests = MetadataRequests(core, {wire.ReportMembers: here}, core)
    assert await requests.ask(RECORD) == answered


@in_trio
async def test_without_a_leader_nobody_is_asked():
    with pytest.raises(LeaderUnknown):
        await MetadataRequests(LeaderTable(0), {}, None).ask(RECORD)
