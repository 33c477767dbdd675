"""The controller's task: what others do to it while it looks."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import trio
import trio.testing

from multiraft.wire.errors import AmbiguousOutcome
from node.rebalance.actions import Change, Transfer
from node.rebalance.controller import Controller
from node.rebalance.runtime import RUNTIME
from tests.node.harness import silent_log


async def _a_node_hangs() -> None:
    connection, began = trio.Lock(), trio.current_time()

    async def ask(_node, _request):
        """One request at a time, and the node hangs."""
        async with connection:
            await trio.sleep(10)
            raise AmbiguousOutcome("too slow")

    controller = Controller(
        SimpleNamespace(), SimpleNamespace(), ask, SimpleNamespace(), silent_log()
    )
    actions = [Change(seq, seq, 2, (1, 2), (), 0) for seq in range(5)]
    actions += [Transfer(seq, seq, 2, 1) for seq in range(5, 10)]
    await RUNTIME.run_all([partial(controller._execute, None, action) for action in actions])
    assert trio.current_time() - began < 5
    assert sorted(controller._refused) == list(range(10))


def test_a_node_that_hangs_stops_no_look():
    """The safety check runs once per iteration."""
    trio.run(_a_node_hangs, clock=trio.testing.MockClock(autojump_threshold=0))
