"""Effects on a replica in the round in which it is removed."""

from __future__ import annotations

import trio

from multiraft.raft.messages import Append, Removed
from tests.node.harness import in_trio, until
from tests.node.metadata.test_forced_recovery import first_of_three, running

GROUP, LEADER, TERM = 1, 2, 5


@in_trio
async def test_damage_that_is_found_when_a_replica_is_removed_is_none_of_the_next_ones(tmp_path):
    """Both happen in one round, which stages the tombstone first. The damage of the removed replica
    stayed with the next one, which was quarantined permanently."""
    async with running(first_of_three(tmp_path)) as node:
        node.core.repair.quarantine(GROUP, "bits have changed")
        node.core.step(LEADER, Removed(GROUP, 1, TERM, 1, 1))
        node.request_round()
        await until(lambda: GROUP not in node.core.status.groups())
        while GROUP not in node.core.status.groups():
            node.core.step(LEADER, Append(GROUP, 1, TERM, 0, 0, 0, 0, (), 2))
            node.request_round()
            await trio.sleep(0.01)
        assert not node.core.status.of(GROUP).quarantined
