"""The ledger of sinks: what becomes visible, once, and what never does."""

from __future__ import annotations

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multiraft.errors import CodecError
from multiraft.wire.errors import Code
from multiraft.wire.sinks import (
    COMMITTED,
    OPEN,
    VOID,
    AbortTransaction,
    BeginTransaction,
    CommitTransaction,
    TopicEnds,
    TransactionRef,
    VoidTransactions,
    Winner,
)
from node.metadata import transaction_table
from node.metadata.commands import InvalidCommand
from node.metadata.state_machine import MetadataState, decode_command, encode_command
from tests.node.metadata.test_state_machine import Replica


def nonce(number: int) -> bytes:
    return number.to_bytes(16, "big")


def begin(sink="s", batch=0, txn=1, topics=()):
    return BeginTransaction(sink, batch, nonce(txn), topics)


@pytest.fixture
def replica() -> Replica:
    return Replica()


def state_of(replica: Replica, txn: int, sink: int = 1) -> str:
    return replica.state.sinks.state_of(TransactionRef(sink, txn)).state


def test_a_batch_is_committed_once_and_answered_as_before(replica):
    opened = replica(begin()).value
    assert (opened.sink, opened.transaction, opened.state) == (1, 1, OPEN)
    assert state_of(replica, 1) == OPEN
    for _ in range(2):
        assert replica(CommitTransaction(1, 1, 0)).code == Code.OK
        assert state_of(replica, 1) == COMMITTED
    again = replica(begin(txn=2)).value  # Spark runs it again after a crash behind the commit
    assert (again.transaction, again.state) == (1, COMMITTED)
    assert replica.state.sinks.stagings == 1


def test_an_abort_of_what_is_committed_changes_nothing(replica):
    replica(begin())
    replica(CommitTransaction(1, 1, 0))
    assert replica(AbortTransaction(1, 1)).value is True
    assert state_of(replica, 1) == COMMITTED


def test_an_aborted_transaction_stays_void_whatever_comes_late(replica):
    replica(begin())
    assert replica(AbortTransaction(1, 1)).value is False
    assert replica(AbortTransaction(1, 1)).value is False
    assert replica(CommitTransaction(1, 1, 0)).code == Code.STALE_TRANSACTION
    assert replica(begin()).code == Code.STALE_TRANSACTION, "a late task of that transaction"
    assert state_of(replica, 1) == VOID


def test_a_new_transaction_ends_the_one_before_and_fences_its_commit(replica):
    replica(begin(txn=1))
    assert replica(begin(txn=2)).value.transaction == 2
    assert state_of(replica, 1) == VOID
    assert replica(begin(txn=1)).code == Code.STALE_TRANSACTION, (
        "a late task must not end the newer transaction"
    )
    assert replica(CommitTransaction(1, 1, 0)).code == Code.STALE_TRANSACTION
    assert replica(CommitTransaction(1, 2, 0)).code == Code.OK
    assert (state_of(replica, 1), state_of(replica, 2)) == (VOID, COMMITTED)


def test_tasks_of_a_transaction_join_it_and_add_topics(replica):
    replica(begin(topics=(TopicEnds(7, (1, 2)),)))
    before = replica.state.sinks.stagings
    joined = replica(begin(topics=(TopicEnds(9, (5,)), TopicEnds(7, (8, 8))))).value
    assert replica.state.sinks.stagings == before + 1, "a plan may not miss topic 9"
    assert joined.transaction == 1 and joined.topics == (7, 9)
    assert replica.state.sinks.staged() == (TopicEnds(7, (1, 2)), TopicEnds(9, (5,)))
    replica(BeginTransaction("other", 0, nonce(3), (TopicEnds(7, (0, 6)),)))
    assert replica.state.sinks.staged()[0] == TopicEnds(7, (0, 2)), "the lower of two transactions"
    replica(CommitTransaction(1, 1, 0))
    assert replica.state.sinks.staged() == (TopicEnds(7, (0, 6)),)
    replica(AbortTransaction(2, 1))
    assert replica.state.sinks.staged() == ()


def test_attempts_of_a_task_are_numbered_in_the_order_they_came(replica):
    def joined(task, attempt_id, txn=1):
        return replica(BeginTransaction("s", 0, nonce(txn), (), task, attempt_id)).value.attempt

    assert [joined(5, 70), joined(5, 60), joined(5, 70), joined(6, 60)] == [0, 1, 0, 0]
    assert joined(5, 60, txn=2) == 0, "another transaction"
    replica(AbortTransaction(1, 2))
    assert replica.state.sinks._sinks[0].attempts == {}


def test_batches_only_ascend(replica):
    replica(begin(batch=5))
    replica(CommitTransaction(1, 1, 5))
    refusal = replica(begin(batch=4, txn=2))
    assert refusal.code == Code.STALE_TRANSACTION and "has committed batch 5" in refusal.error.text
    assert replica(begin(batch=6, txn=2)).value.transaction == 2
    assert replica(CommitTransaction(1, 2, 5)).code == Code.STALE_TRANSACTION, (
        "another batch than was opened"
    )
    assert replica(CommitTransaction(1, 1, 5)).code == Code.OK, "as before"


def test_winners_are_those_of_the_transaction(replica):
    replica(begin())
    assert (
        replica(CommitTransaction(1, 1, 0, (Winner(3, 1), Winner(3, 2)))).code
        == Code.INVALID_REQUEST
    )
    replica(CommitTransaction(1, 1, 0, (Winner(9, 2), Winner(3, 1))))
    found = replica.state.sinks.state_of(TransactionRef(1, 1))
    assert found.winners == (Winner(3, 1), Winner(9, 2))


@pytest.mark.parametrize(
    "command", [CommitTransaction(1, 1, 0), AbortTransaction(2, 1), AbortTransaction(1, 2)]
)
def test_transactions_that_never_were_are_refused(replica, command):
    if command != CommitTransaction(1, 1, 0):
        replica(begin())
    assert replica(command).code == Code.INVALID_REQUEST


def test_what_was_never_heard_of_may_be_open(replica):
    assert state_of(replica, 1) == OPEN
    replica(begin())
    assert state_of(replica, 2) == OPEN


def test_a_transaction_that_was_void_before_it_could_be_opened_never_is(replica):
    """Neither in the sink that is there nor in one that gets its number later."""
    replica(begin())
    unopened = (
        TransactionRef(1, 2),
        TransactionRef(1, 3),
        TransactionRef(1, 5),
        TransactionRef(2, 1),
    )
    assert replica(VoidTransactions((*unopened, TransactionRef(1, 1)))).code == Code.OK
    assert state_of(replica, 1) == OPEN, "it was opened meanwhile"
    assert [state_of(replica, txn.number, txn.sink) for txn in unopened] == [VOID] * 4
    assert replica(CommitTransaction(1, 1, 0)).code == Code.OK
    assert [replica(begin(batch=1, txn=txn)).value.transaction for txn in (2, 3)] == [4, 6]
    assert replica(begin("later")).value[:2] == (2, 2)
    for txn in unopened:
        assert replica(CommitTransaction(*txn, 1)).code in (
            Code.STALE_TRANSACTION,
            Code.INVALID_REQUEST,
        )
        assert state_of(replica, txn.number, txn.sink) == VOID
    again = MetadataState.restore(cbor2.loads(cbor2.dumps(replica.state.snapshot())))
    assert again.snapshot() == replica.state.snapshot()
    replica.state._check()


def test_void_transactions_that_nobody_opened_are_bounded(replica, monkeypatch):
    monkeypatch.setattr(transaction_table, "UNOPENED_VOID_MAX", 2)
    for _ in range(2):
        assert (
            replica(VoidTransactions((TransactionRef(1, 1), TransactionRef(1, 2)))).code == Code.OK
        )
    refused = replica(VoidTransactions((TransactionRef(1, 2), TransactionRef(1, 3))))
    assert (refused.code, refused.error.limit, refused.error.value) == (Code.LIMIT_EXCEEDED, 2, 3)
    assert state_of(replica, 3) == OPEN


@pytest.mark.parametrize("never", [[[1, 2, 3]], [["1", 2]], 7])
def test_a_snapshot_with_impossible_void_transactions_is_refused(replica, never):
    replica(begin())
    with pytest.raises(CodecError):
        MetadataState.restore({**replica.state.snapshot(), "never_opened": never})


def test_failures_in_a_row_take_one_place(replica):
    for txn in range(1, 50):
        replica(begin(txn=txn))
    assert replica.state.sinks._sinks[0].voids == [(1, 48)]


def test_limits_are_refusals_with_limit_and_value(replica, monkeypatch):
    monkeypatch.setattr(transaction_table, "SINKS_MAX", 2)
    monkeypatch.setattr(transaction_table, "VOID_RANGES_MAX", 2)
    monkeypatch.setattr(transaction_table, "WINNERS_MAX", 1)
    monkeypatch.setattr(transaction_table, "TASKS_PER_TRANSACTION_MAX", 1)
    monkeypatch.setattr(transaction_table, "TOPICS_PER_TRANSACTION_MAX", 1)
    monkeypatch.setattr(transaction_table, "ENDS_MAX", 3)
    monkeypatch.setattr(transaction_table, "STAGED_ENDS_MAX", 4)
    txn = 0
    for batch in range(2):  # a void transaction and a committed one, twice
        for _ in range(2):
            txn += 1
            assert replica(begin(batch=batch, txn=txn)).code == Code.OK
        assert replica(CommitTransaction(1, txn, batch)).code == Code.OK
    before = replica.state.sinks.snapshot()
    for command, limit in (
            (begin(batch=3, txn=9), 2),
            (begin("b", topics=(TopicEnds(1, ()), TopicEnds(2, ()))), 1),
            (begin("b", topics=(TopicEnds(1, (0,) * 4),)), 3)):
        refusal = replica(command)
        assert refusal.code == Code.LIMIT_EXCEEDED
        assert (refusal.error.limit, refusal.error.value) == (limit, limit + 1)
    assert replica.state.sinks.snapshot() == before
    replica(begin("b", topics=(TopicEnds(1, (0,) * 3),)))
    monkeypatch.setattr(transaction_table, "VOID_RANGES_MAX", 9)
    wide = replica(begin(batch=2, txn=9, topics=(TopicEnds(1, (0,) * 2),)))
    assert wide.code == Code.LIMIT_EXCEEDED and wide.error[5:7] == (4, 5)
    for attempt_id in range(128):
        assert (
            replica(BeginTransaction("b", 0, nonce(1), (), 0, attempt_id)).value.attempt
            == attempt_id
        )
    for task, limit in ((0, 128), (1, 1)):
        refusal = replica(BeginTransaction("b", 0, nonce(1), (), task, 128))
        assert refusal.code == Code.LIMIT_EXCEEDED and refusal.error.limit == limit
    assert (
        replica(CommitTransaction(2, 1, 0, (Winner(1, 1), Winner(2, 1)))).code
        == Code.LIMIT_EXCEEDED
    )
    assert replica(begin("c")).code == Code.LIMIT_EXCEEDED


class Model:
    """The ledger as lists of everything that ever happened."""

    def __init__(self):
        #: sink -> [batch, nonce, state] of each transaction
        self.transactions: dict[str, list[list]] = {}

    def __call__(self, command):
        if type(command) is BeginTransaction:
            return self.open(self.transactions.setdefault(command.sink, []), command)
        names = list(self.transactions)
        if command.sink > len(names) or (
                command.transaction > len(self.transactions[names[command.sink - 1]])):
            return Code.INVALID_REQUEST
        txn = self.transactions[names[command.sink - 1]][command.transaction - 1]
        if type(command) is AbortTransaction:
            if txn[2] == OPEN:
                txn[2] = VOID
            return txn[2] == COMMITTED
        txns = self.transactions[names[command.sink - 1]]
        last = max((at for at, each in enumerate(txns, 1) if each[2] == COMMITTED), default=0)
        if txn[0] != command.batch or txn[2] == VOID or (
                txn[2] == COMMITTED and command.transaction != last):
            return Code.STALE_TRANSACTION
        txn[2] = COMMITTED
        return Code.OK

    @staticmethod
    def open(txns, command):
        done = [(at, txn[0]) for at, txn in enumerate(txns, 1) if txn[2] == COMMITTED]
        last_txn, last = done[-1] if done else (0, -1)
        if command.batch == last:
            return last_txn, COMMITTED
        given_up = [txn[1] for txn in txns[last_txn:] if txn[2] == VOID]
        if command.batch < last or command.nonce in given_up[-transaction_table.STALE_NONCES_MAX:]:
            return Code.STALE_TRANSACTION
        if not (txns and txns[-1][2] == OPEN
                and txns[-1][:2] == [command.batch, command.nonce]):
            if txns and txns[-1][2] == OPEN:
                txns[-1][2] = VOID
            txns.append([command.batch, command.nonce, OPEN])
        return len(txns), OPEN


_small = st.integers(1, 6)
_commands = st.one_of(
    st.builds(lambda sink, batch, txn, task, attempt_id: BeginTransaction(
        sink, batch, nonce(8 * batch + txn), (TopicEnds(task + 2, (batch,)),), task, attempt_id),
        st.sampled_from("ab"), st.integers(0, 3), _small, st.integers(-1, 1), _small),
    st.builds(CommitTransaction, st.integers(1, 2), _small, st.integers(0, 3), st.just(())),
    st.builds(AbortTransaction, st.integers(1, 2), _small))


@settings(max_examples=60, deadline=None)
@given(st.lists(_commands, max_size=40), st.integers(0, 40))
def test_the_ledger_is_what_happened_and_a_snapshot_of_it(script, cut):
    """Against a model that keeps everything; and a replica that starts from a snapshot agrees."""
    model, replica, other = Model(), Replica(), None
    for at, command in enumerate(script):
        if at == cut:
            other = MetadataState.restore(
                cbor2.loads(cbor2.dumps(replica.state.snapshot())))
        decided = {key: said for key, said in _states(replica.state).items() if said != OPEN}
        expected, result = model(command), replica(command)
        if type(expected) is tuple:
            assert (result.value.transaction, result.value.state) == expected
        elif type(expected) is bool:
            assert result.value is expected
        else:
            assert result.code == expected
        if other is not None:
            assert other.apply(replica.state.version,
                               decode_command(encode_command(command))) == result
            other._check()
        now = _states(replica.state)
        assert decided.items() <= now.items(), "what was decided of a transaction never changes"
        assert now == {(number, txn): each[2]
                       for number, txns in enumerate(model.transactions.values(), 1)
                       for txn, each in enumerate(txns, 1)}
    if other is not None:
        assert other.snapshot() == replica.state.snapshot()


def _states(state: MetadataState) -> dict[tuple[int, int], str]:
    sinks, _ = state.sinks.rows(0, 100)
    return {(row.sink, txn): state.sinks.state_of(TransactionRef(row.sink, txn)).state
            for row in sinks for txn in range(1, row.newest_transaction + 1)}


@pytest.mark.parametrize("command, fields", [
    (begin("s", 3), {"op": "open_run", "sink": "s", "batch": 3, "nonce": nonce(1), "topics": [],
                     "task": -1, "attempt_id": 0}),
    (CommitTransaction(1, 2, 3), {"op": "commit_run", "sink": 1, "run": 2, "batch": 3,
                                  "winners": []}),
    (AbortTransaction(1, 2), {"op": "abort_run", "sink": 1, "run": 2}),
    (VoidTransactions((TransactionRef(1, 2),)), {"op": "void_runs", "runs": [[1, 2]]})])
def test_on_disk_a_transaction_is_called_a_run(command, fields):
    assert cbor2.loads(encode_command(command)) == {"v": 1, **fields}
    assert decode_command(cbor2.dumps({"v": 1, **fields})) == command


@pytest.mark.parametrize("changed", [{"transaction": 2}, {"run": 2, "transaction": 2}, {}])
def test_a_command_has_its_keys_and_no_others(changed):
    with pytest.raises(InvalidCommand):
        decode_command(cbor2.dumps({"v": 1, "op": "abort_run", "sink": 1, **changed}))


def test_a_snapshot_of_the_version_before_has_no_sinks(replica):
    snapshot = {**replica.state.snapshot(), "version": 6}
    del snapshot["sinks"], snapshot["stagings"]
    assert MetadataState.restore(snapshot).sinks.rows(0, 1) == ((), False)
    with pytest.raises(CodecError):
        MetadataState.restore({**snapshot, "version": 7})
