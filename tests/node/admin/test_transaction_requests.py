"""The metadata leader aborts transactions without a writer."""

from __future__ import annotations

import pytest
import trio

from multiraft.wire.errors import AmbiguousOutcome, LimitExceeded
from multiraft.wire.sinks import (
    OPEN,
    VOID,
    CommitTransaction,
    TransactionRef,
    TransactionStates,
    Winner,
)
from node.admin.transaction_requests import SinkAdmin
from node.loop.turns import Turns
from tests.node.harness import silent_log
from tests.node.metadata.test_state_machine import Replica
from tests.node.metadata.test_transaction_table import begin, state_of


class Leader:
    """The metadata group's leader, or not."""

    def __init__(self):
        self.status = self  # as core.status
        self.replica = Replica()
        self.state = self.replica.state
        self.leads = True
        self.fails = False

    def has_applied_in_term(self, _group) -> bool:
        return self.leads

    async def propose(self, command):
        if self.fails:
            raise AmbiguousOutcome("leadership was lost")
        return self.replica(command)


def check(sinks: SinkAdmin, *times_ms: int) -> None:
    for now_ms in times_ms:
        trio.run(sinks.check, now_ms)


def test_a_transaction_that_nobody_decides_is_given_up_after_its_time():
    leader = Leader()
    sinks = SinkAdmin(leader, leader, None, 1000, silent_log(), Turns(512))
    leader.replica(begin())
    check(sinks, 0, 999)
    assert state_of(leader.replica, 1) == OPEN
    leader.fails = True
    check(sinks, 1000)
    assert state_of(leader.replica, 1) == OPEN
    leader.fails = False
    check(sinks, 1001)
    assert state_of(leader.replica, 1) == VOID
    assert leader.state.sinks.open_transactions() == ()


def test_time_counts_for_each_transaction_and_leader():
    leader = Leader()
    sinks = SinkAdmin(leader, leader, None, 1000, silent_log(), Turns(512))
    leader.replica(begin())
    check(sinks, 0)
    leader.replica(begin("other"))
    leader.replica(CommitTransaction(1, 1, 0))
    check(sinks, 900, 1000)
    assert leader.state.sinks.open_transactions() == (TransactionRef(2, 1),), "seen at 900"
    leader.leads = False
    check(sinks, 2000)
    leader.leads = True
    check(sinks, 2001, 3000)
    assert leader.state.sinks.open_transactions() == (TransactionRef(2, 1),), (
        "another leader was in between"
    )
    check(sinks, 3001)
    assert leader.state.sinks.open_transactions() == ()


def test_transactions_with_more_attempts_than_one_answer_names_are_refused():
    leader = Leader()
    sinks = SinkAdmin(leader, leader, None, 1000, silent_log(), Turns(1 << 30))
    leader.replica(begin())
    winners = tuple(Winner(task, 1) for task in range(1_000))
    leader.replica(CommitTransaction(1, 1, 0, winners))
    ask = sinks.handlers[TransactionStates]
    reply = trio.run(ask, TransactionStates((TransactionRef(1, 1),) * 50))
    assert sum(len(state.winners) for state in reply.transactions) == 50_000
    with pytest.raises(LimitExceeded) as caught:
        trio.run(ask, TransactionStates((TransactionRef(1, 1),) * 1000))
    assert caught.value.detail.limit == 50_000 < caught.value.detail.value < 200_000
