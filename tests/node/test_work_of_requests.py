"""What a request asks for is counted before it is done, and done in turns.

Work is counted in rows between two turns of the loop: no test here measures a time.
"""

from __future__ import annotations

import contextlib

import trio

from multiraft.wire.errors import Code
from multiraft.wire.messages import ClusterStatus, GroupList, ListTopics, Metadata
from multiraft.wire.nodes import NodeDescribe, NodeList
from multiraft.wire.placements import PlacementExplain
from tests.node.harness import Client, in_trio, serving

WIDE = 2_000
#: Room that was given in the turn before is used beside that of the turn: twice ``turn_rows_max``,
#: each time with the rest of a step.
ROWS_IN_A_TURN_MAX = 2 * (512 + 256)


class Turn(trio.abc.Instrument):
    """Counts calls of a function between two turns of the loop."""

    def __init__(self, owner, name: str):
        self.most = self.total = self._now = 0
        inner = getattr(owner, name)

        def counted(*args):
            self._now += 1
            self.total += 1
            self.most = max(self.most, self._now)
            return inner(*args)

        setattr(owner, name, counted)

    def after_io_wait(self, _timeout: float) -> None:
        """A turn of the loop begins."""
        self._now = 0


@contextlib.contextmanager
def counting(owner, name: str):
    """How often ``owner.name`` is called in one turn."""
    turn = Turn(owner, name)
    trio.lowlevel.add_instrument(turn)
    try:
        yield turn
    finally:
        trio.lowlevel.remove_instrument(turn)


@in_trio
async def test_a_name_that_is_given_many_times_is_answered_once(tmp_path):
    async with serving(tmp_path) as node, await Client.open(node) as client:
        incarnation = await client.create("orders", 3)
        reply = (await client.ask(Metadata(("orders", "none") * 500))).reply
        assert [topic.incarnation for topic in reply.topics] == [incarnation]
        assert reply.missing == ("none",)


@in_trio
async def test_metadata_of_too_many_partitions_are_refused_before_any_row_is_made(tmp_path):
    async with (serving(tmp_path, metadata_rows_max=10_000) as node,
                await Client.open(node) as client):
        names = tuple(f"wide-{number}" for number in range(6))
        for name in names:
            await client.create(name, WIDE)
        with counting(node.core, "leader_hint") as turn:
            answer = await client.ask(Metadata(names))
        assert (answer.code, answer.error.limit, answer.error.value) == (
            Code.LIMIT_EXCEEDED, 10_000, 6 * WIDE)
        assert turn.total < 100
        assert len((await client.ask(Metadata(names[:5]))).reply.topics) == 5


@in_trio
async def test_wide_answers_are_made_in_turns_of_few_rows_whoever_asks(tmp_path):
    async with contextlib.AsyncExitStack() as stack:
        node = await stack.enter_async_context(serving(tmp_path))
        clients = [await stack.enter_async_context(await Client.open(node)) for _ in range(4)]
        await clients[0].create("wide", WIDE)
        for request in (Metadata(("wide",)), PlacementExplain("wide"), ListTopics(),
                        ClusterStatus(), GroupList(), NodeList(), NodeDescribe(1)):
            with counting(node.core, "leader_hint") as turn:
                for client in clients:
                    for _ in range(3):
                        await client.begin(request)
                for client in clients:
                    for _ in range(3):
                        assert (await client.event()).code == Code.OK
            assert turn.most <= ROWS_IN_A_TURN_MAX, request
