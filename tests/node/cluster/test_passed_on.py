"""Requests of clients to the metadata leader: limited in number, and not in the way of others."""

import functools

import pytest
import trio
import trio.testing

from multiraft.wire.errors import AmbiguousOutcome, Code, QueueFull
from multiraft.wire.messages import InitProducer, InitProducerReply
from node.cluster.metadata_client import MetadataRequests
from node.cluster.passed_on import PassedOnRequests
from node.cluster.peer_requests import PeerAsker
from node.peers.bulk_channel import Bulk
from node.peers.dial import dial
from node.peers.errors import NotSent
from node.peers.handshake import Introduction
from node.peers.security import Security
from node.security_config import SecurityConfig
from tests.node.cluster.test_peer_requests import LeaderTable
from tests.node.harness import in_trio
from tests.node.peers.test_append_links import FRAME_BYTES_MAX, Receiver, hello_of
from tests.node.peers.test_handshake import CLUSTER

REQUEST = InitProducer(-1, -1)


class Gate:
    """A handler that answers once it is opened."""

    def __init__(self) -> None:
        self.arrived = 0
        self.opened = trio.Event()

    async def handle(self, request: object) -> InitProducerReply:
        self.arrived += 1
        await self.opened.wait()
        return InitProducerReply(7, 0)

    async def serve(self, peer: int, header: dict, payload: memoryview) -> tuple[dict, tuple]:
        reply = await self.handle(header)
        return {"code": 0, "producer_id": reply.producer_id,
                "producer_epoch": reply.producer_epoch}, ()


@in_trio
async def test_more_than_the_limit_are_refused_and_later_ones_are_taken():
    gate = Gate()
    requests = PassedOnRequests(
        MetadataRequests(LeaderTable(1), {InitProducer: gate.handle}, None), 2)
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(requests.ask, REQUEST)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(QueueFull, match="passed_on_requests_max is 2") as refused:
            await requests.ask(REQUEST)
        assert (refused.value.detail.limit, refused.value.detail.value) == (2, 3)
        assert gate.arrived == 2
        gate.opened.set()
    assert requests.in_progress == 0
    assert (await requests.ask(REQUEST)).producer_id == 7


@in_trio
async def test_a_request_that_ends_or_fails_leaves_its_place():
    async def refuses(_request: object) -> None:
        raise AmbiguousOutcome("lost")

    requests = PassedOnRequests(
        MetadataRequests(LeaderTable(1), {InitProducer: refuses}, None), 1)
    for _ in range(3):
        with pytest.raises(AmbiguousOutcome):
            await requests.ask(REQUEST)


def asking(port: int, turn_timeout_s: float) -> Bulk:
    """Return node 1's end of bulk connections."""
    introduction = functools.partial(Introduction, Security(SecurityConfig(), CLUSTER),
                                     hello_of(1, connection="bulk"))

    async def reach(_peer: int):
        return await dial("127.0.0.1", port)

    return Bulk(reach, introduction, FRAME_BYTES_MAX, 1 << 40, turn_timeout_s)


@in_trio
async def test_requests_of_the_cluster_do_not_wait_behind_those_of_clients():
    receiver, gate = Receiver(SecurityConfig()), Gate()
    answers = receiver.port._bulk = Bulk(None, None, FRAME_BYTES_MAX, 1 << 40)
    answers.handlers["init_producer"] = gate.serve

    async def at_once(peer: int, header: dict, payload: memoryview):
        return {"n": header["n"]}, ()

    answers.handlers["of_the_cluster"] = at_once
    passed_on = asking(receiver.address.port, 0.05)
    control = asking(receiver.address.port, 0.05)
    async with trio.open_nursery() as nursery:
        await nursery.start(receiver.listener.serve)
        nursery.start_soon(passed_on.close_idle)
        nursery.start_soon(control.close_idle)
        asker = PeerAsker(passed_on)
        async with trio.open_nursery() as clients:
            clients.start_soon(asker.ask, 2, REQUEST)
            while not gate.arrived:
                await trio.sleep(0.002)
            answer = await control.ask(2, {"op": "of_the_cluster", "n": 3})
            assert answer.header == {"n": 3}
            with pytest.raises(NotSent, match="earlier requests"):
                await passed_on.ask(2, {"op": "init_producer"})
            with pytest.raises(QueueFull) as refused:
                await asker.ask(2, REQUEST)
            assert refused.value.code == Code.QUEUE_FULL and gate.arrived == 1
            gate.opened.set()
        assert (await asker.ask(2, REQUEST)).producer_id == 7, "the connection is still in use"
        nursery.cancel_scope.cancel()
