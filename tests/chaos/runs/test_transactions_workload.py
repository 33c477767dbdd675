"""Writers of the workload `sinks`, without a cluster: their requests to the ledger, and their
reactions to its answers.
"""

from __future__ import annotations

import io

import pytest
import trio
import trio.testing

from chaos.history import FAIL, INFO, OK, HistoryWriter
from chaos.workloads import sinks
from chaos.workloads.recorder import Recorder
from chaos.workloads.workload_context import PartitionRef, Topics, WorkloadContext
from multiraft.wire.errors import AmbiguousOutcome, StaleTransaction
from multiraft.wire.sinks import (
    COMMITTED,
    OPEN,
    AbortTransaction,
    AbortTransactionReply,
    BeginTransaction,
    BeginTransactionReply,
    CommitTransaction,
    CommitTransactionReply,
    Winner,
)

PLACE = PartitionRef("staged-0", 5, 0, 100, 1)


class Ledger:
    """A ledger that knows sink 1, whose open transaction is 7; ``commits`` are raised or
    returned."""

    def __init__(self, state: str = OPEN, commits: tuple = ()):
        self.state = state
        self.commits = list(commits)
        self.asked: list = []
        self.attempts = 0

    async def sink_request(self, request):
        await trio.lowlevel.checkpoint()
        self.asked.append(request)
        if isinstance(request, BeginTransaction):
            self.attempts += 1
            return BeginTransactionReply(
                1, 7, self.state, (PLACE.topic_incarnation,), self.attempts - 1
            )
        if isinstance(request, AbortTransaction):
            return AbortTransactionReply(False)
        answer = self.commits.pop(0) if self.commits else CommitTransactionReply()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def of(self, kind: type) -> list:
        return [request for request in self.asked if isinstance(request, kind)]


def writer_of(monkeypatch, ledger: Ledger, stages=lambda attempt: True, **chances: float):
    """Return a writer of one task, whose appends are not sent."""
    context = WorkloadContext(
        77, Recorder(HistoryWriter(io.StringIO())), Topics(), lambda: {1: "n1:1"}, seed=3
    )
    writer = sinks.Writer(context, "s", [PLACE])
    writer.client = ledger

    async def stage(attempt: sinks.TaskAttempt) -> bool:
        await trio.lowlevel.checkpoint()
        return stages(attempt)

    monkeypatch.setattr(writer, "stage", stage)
    for name, value in {"TASKS_MAX": 1, "TWICE": 0, "SLOW": 0, "COMES_BACK": 0, "AGAIN": 0,
                        "COMMITTED_SHARE": 1, **chances}.items():
        monkeypatch.setattr(sinks, name, value)
    return writer


def run(writer: sinks.Writer, times: int = 1) -> None:
    async def runs() -> None:
        for _ in range(times):
            await writer.one_transaction()
    trio.run(runs, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_batch_is_followed_by_the_next_once_its_commit_was_taken(monkeypatch):
    ledger = Ledger()
    writer = writer_of(monkeypatch, ledger)
    run(writer, 2)
    assert [(each.sink, each.transaction, each.batch) for each in ledger.of(CommitTransaction)] == [
        (1, 7, 0), (1, 7, 1)]
    first, second = ledger.of(BeginTransaction)
    assert first.nonce != second.nonce


@pytest.mark.parametrize(("answer", "kind"), [(AmbiguousOutcome("who knows"), INFO),
                                              (StaleTransaction("replaced"), FAIL)])
def test_a_batch_that_may_not_be_committed_is_run_again_with_another_nonce(monkeypatch, answer,
                                                                           kind):
    ledger = Ledger(commits=(answer,))
    writer = writer_of(monkeypatch, ledger)
    run(writer, 2)
    assert [each.batch for each in ledger.of(CommitTransaction)] == [0, 0]
    assert len({each.nonce for each in ledger.of(BeginTransaction)}) == 2
    counts = writer.context.recorder.counts
    assert (counts["commit_transaction", kind], counts["commit_transaction", OK]) == (1, 1)


def test_an_unknown_commit_may_be_asked_for_again(monkeypatch):
    ledger = Ledger(commits=(AmbiguousOutcome("who knows"),))
    writer = writer_of(monkeypatch, ledger, AGAIN=1)
    run(writer)
    first, second = ledger.of(CommitTransaction)
    assert first == second
    assert writer.number == 1


def test_a_batch_that_is_committed_is_not_staged_again(monkeypatch):
    ledger, staged = Ledger(state=COMMITTED), []
    writer = writer_of(monkeypatch, ledger, staged.append)
    run(writer)
    assert (writer.number, staged, ledger.of(CommitTransaction)) == (1, [], [])


def test_an_attempt_that_was_not_acknowledged_is_not_the_one_that_counts(monkeypatch):
    ledger = Ledger()
    run(writer_of(monkeypatch, ledger, lambda attempt: attempt.number == 2))
    assert [each.winners for each in ledger.of(CommitTransaction)] == [(Winner(0, 2),)]
    assert len({each.attempt_id for each in ledger.of(BeginTransaction)}) == 3


def test_a_transaction_with_a_task_that_never_ends_well_is_not_committed(monkeypatch):
    ledger = Ledger()
    writer = writer_of(monkeypatch, ledger, lambda attempt: False)
    run(writer)
    assert ledger.of(CommitTransaction) == []
    assert ledger.attempts == sinks.ATTEMPTS_MAX


def test_what_was_left_comes_back_behind_the_next_transaction(monkeypatch):
    ledger = Ledger()
    writer = writer_of(monkeypatch, ledger, COMMITTED_SHARE=0, ABORTED_SHARE=0)
    run(writer)
    assert not ledger.of(CommitTransaction) and not ledger.of(AbortTransaction)
    monkeypatch.setattr(sinks, "COMES_BACK", 1)
    run(writer)
    assert [type(each) for each in ledger.asked] == [
        BeginTransaction,
        BeginTransaction,
        AbortTransaction,
    ]


def test_another_checkpoint_is_another_sink_that_counts_from_the_start(monkeypatch):
    ledger = Ledger()
    writer = writer_of(monkeypatch, ledger, NEW_CHECKPOINT=1, DIES=1)
    run(writer)

    class Opened:
        async def __aenter__(self):
            return ledger

        async def __aexit__(self, *_why):
            return None

    monkeypatch.setattr(WorkloadContext, "client", lambda _self: Opened())
    trio.run(writer.life, clock=trio.testing.MockClock(autojump_threshold=0))
    assert [(each.sink, each.batch) for each in ledger.of(BeginTransaction)] == [
        ("s", 0),
        ("s.2", 0),
    ]
