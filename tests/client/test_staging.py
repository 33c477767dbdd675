"""Staged records: visible together when their transaction is committed, never when it is void."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiraft.client import Record, _retries, _transactions, staging
from multiraft.client._network import NetworkLimits
from multiraft.client.ranges import ConsumerSettings, Range, read_ranges
from multiraft.codec import layout
from multiraft.core import BatchHeader
from multiraft.errors import ConfigError
from multiraft.wire import errors
from multiraft.wire.connection import ResponseEvent
from multiraft.wire.errors import Code, ErrorDetail
from multiraft.wire.messages import OPS
from multiraft.wire.sinks import TransactionRef
from tests.client.scripts import values_of

NONCE = bytes(16)


def put(client, *values: bytes, identity=None, partition: int = 0) -> None:
    """Append records to partition ``partition`` of topic "a", one per batch; an identity stages
    them."""
    with client.producer(identity=identity) as producer:
        for value in values:
            producer.send_nowait(Record("a", value, partition=partition)).wait()


@pytest.fixture
def txn(client):
    """Open a transaction that stages in topic "a", of two partitions."""
    client.create_topic("a", partitions=2)
    opened = staging.begin_transaction(client, "sink", 0, NONCE)
    opened.stages_in(client, "a")
    return opened


def now(client, **settings) -> list[bytes]:
    """Return the values that a reader of committed records gets."""
    return sorted(values_of(client.consume("a", until_end=True, **settings)))


def ledger_only(client, txn, batch=0, **attempts):
    staging.commit_transaction(client, txn.sink, txn.number, batch, **attempts)


def test_a_transaction_is_seen_at_once_when_it_is_committed(client, txn):
    put(client, b"before")
    put(client, b"1", b"2", identity=txn.identity)
    other = staging.begin_transaction(client, "sink", 0, NONCE, task=1)
    assert (other.number, other.attempt) == (txn.number, 0)
    put(client, b"3", identity=other.identity, partition=1)
    put(client, b"behind")
    assert now(client) == [b"before"]
    assert now(client, isolation="read_uncommitted") == [b"1", b"2", b"3", b"before", b"behind"]
    ledger_only(client, txn)
    assert now(client) == [b"1", b"2", b"3", b"before", b"behind"]


def test_a_void_transaction_is_left_out(client, txn):
    put(client, b"void", identity=txn.identity)
    put(client, b"plain")
    assert not staging.abort_transaction(client, txn.sink, txn.number)
    put(client, b"late", identity=txn.identity, partition=1)
    assert now(client) == [b"plain"]
    consumer = client.consume("a", 0, wait_max_ms=50)
    assert values_of([next(iter(consumer))]) == [b"plain"]
    assert consumer.position(0) == 2
    consumer.close()


def test_what_only_void_records_fill_is_read_to_its_end(client, txn):
    put(client, b"void", identity=txn.identity)
    staging.abort_transaction(client, txn.sink, txn.number)
    assert now(client) == []


def test_only_the_attempt_that_counts_is_seen(client, txn):
    put(client, b"first", identity=txn.identity)
    second, other = (staging.begin_transaction(client, "sink", 0, NONCE, task) for task in (0, 1))
    assert (second.attempt, other.attempt) == (1, 0)
    put(client, b"second", identity=second.identity, partition=1)
    put(client, b"other", identity=other.identity)
    ledger_only(client, txn, attempts={0: 1, 1: 0})
    assert now(client) == [b"other", b"second"]


def test_a_reader_waits_at_an_open_transaction_and_goes_on(client, cluster, txn):
    put(client, b"1", identity=txn.identity)
    put(client, b"2")
    consumer = client.consume("a", 0, wait_max_ms=50)

    def commit(node, event, connection):
        if OPS[type(event.request)] == "transaction_states":
            seen.append(event)
            if len(seen) == 2:
                cluster.sinks.apply(staging.CommitTransaction(txn.sink, txn.number, 0))
        return None

    seen: list = []
    cluster.script = commit
    reader = iter(consumer)
    assert values_of([next(reader), next(reader)]) == [b"1", b"2"]
    consumer.close()
    assert len(seen) >= 2


def test_a_range_waits_for_a_transaction_and_then_says_which(cluster, txn, monkeypatch):
    """With a blocking client, the only one that ``read_ranges`` takes."""
    from multiraft.client import blocking
    with blocking.Client(cluster.servers()) as client:
        put(client, b"1", identity=txn.identity)
        [part] = [part for part in cluster.topics["a"] if part.number == 0]
        whole = [Range("a", 0, part.incarnation, 0, 1)]
        with pytest.raises(errors.TimedOut, match="offset 0 was staged by transaction 1 of sink 1"):
            list(read_ranges(client, whole, ConsumerSettings(unavailable_ms=300)))
        cluster.sinks.apply(staging.CommitTransaction(txn.sink, txn.number, 0))
        [(_, batch)] = read_ranges(client, whole)
        assert values_of([batch]) == [b"1"]


@pytest.mark.parametrize("first", ["cut-after", Code.AMBIGUOUS])
def test_who_lost_the_answer_to_a_commit_does_not_know_whatever_is_said_later(
        client, cluster, txn, monkeypatch, first):
    """The batch may be committed: a retriable refusal concerns the repetition alone."""
    monkeypatch.setattr(_retries, "OPERATION_TIMEOUT_MS", 200)
    asked: list = []

    def script(node, event, connection):
        if OPS[type(event.request)] != "commit_transaction":
            return None
        asked.append(event)
        if len(asked) == 1 and first == "cut-after":
            return first
        code = first if len(asked) == 1 else Code.LEADER_UNKNOWN
        return ResponseEvent(event.id, code=code, error=ErrorDetail("an election"))

    cluster.script = script
    said = "commit_transaction: it may have happened.*an election.*Ask again"
    with pytest.raises(errors.AmbiguousOutcome, match=said):
        ledger_only(client, txn)
    assert len(asked) > 1


def test_who_lost_the_answer_to_a_commit_does_not_know_though_nobody_answers_then(
        driver, cluster, txn):
    cluster.script = lambda node, event, connection: "cut-after" if (
        OPS[type(event.request)] == "commit_transaction") else None
    with driver.client(cluster.servers(), limits=NetworkLimits(unreachable_ms=0)) as client:
        with pytest.raises(
            errors.AmbiguousOutcome, match="commit_transaction: it may have happened"
        ):
            ledger_only(client, txn)


def test_a_commit_that_was_only_ever_refused_was_not_taken(client, cluster, txn, monkeypatch):
    monkeypatch.setattr(_retries, "OPERATION_TIMEOUT_MS", 200)
    cluster.script = lambda node, event, connection: ResponseEvent(
        event.id, code=Code.LEADER_UNKNOWN, error=ErrorDetail("an election")) if (
        OPS[type(event.request)] == "commit_transaction") else None
    with pytest.raises(errors.LeaderUnknown):
        ledger_only(client, txn)


def test_what_the_ledger_says_is_the_answer_also_after_a_lost_one(client, cluster, txn):
    staging.begin_transaction(client, "sink", 0, bytes([1]) * 16)
    verdicts = iter(["cut"])
    cluster.script = lambda node, event, connection: next(verdicts, None) if (
        OPS[type(event.request)] == "commit_transaction") else None
    with pytest.raises(errors.StaleTransaction):
        ledger_only(client, txn)


def test_a_node_that_gives_no_answer_is_asked_again(client, cluster, txn):
    put(client, b"1", identity=txn.identity)
    ledger_only(client, txn)
    verdicts = iter(["cut", "refuse"])

    def script(node, event, connection):
        if OPS[type(event.request)] != "transaction_states":
            return None
        verdict = next(verdicts, None)
        return verdict if verdict != "refuse" else ResponseEvent(
            event.id, code=Code.UNSUPPORTED, error=ErrorDetail("an older node"))

    cluster.script = script
    assert now(client) == [b"1"]


def test_plain_records_are_not_asked_about(client, cluster):
    client.create_topic("a", partitions=1)
    put(client, b"1", b"2")
    assert now(client) == [b"1", b"2"]
    assert not [request for _, request in cluster.requests
                if OPS[type(request)] == "transaction_states"]


def test_plans_end_before_what_open_transactions_have_staged(cluster, txn):
    from multiraft.client import blocking
    with blocking.Client(cluster.servers()) as client:
        assert staging.committed_ranges(client, ["a"]).decided == {("a", 0): 0, ("a", 1): 0}
        put(client, b"1", identity=txn.identity)
        ledger_only(client, txn)
        put(client, b"2")
        again = staging.begin_transaction(client, "sink", 1, NONCE)
        again.stages_in(client, "a")
        again.stages_in(client, "a")
        found = staging.committed_ranges(client, ["a", "missing"])
        assert found.decided == {("a", 0): 2, ("a", 1): 0}
        assert [row.open_batch for row in staging.sinks(client)] == [1]
        cluster.script = lambda node, event, connection: ResponseEvent(
            event.id, code=Code.UNSUPPORTED, error=ErrorDetail("an older node")) if (
            OPS[type(event.request)] == "staged_topics") else None
        assert staging.committed_ranges(client, ["a"]).decided == {}


def test_a_plan_that_a_transaction_overtakes_is_made_again(cluster, txn):
    """Opened, staged and committed while ends are requested: the ends would split the
    transaction."""
    from multiraft.client import blocking
    with blocking.Client(cluster.servers()) as client:
        ledger_only(client, txn)
        asked: list = []

        def script(node, event, connection):
            if OPS[type(event.request)] == "list_offsets":
                asked.append(event)
                if len(asked) == 1:
                    cluster.sinks.apply(staging.BeginTransaction("sink", 1, NONCE, ()))
                    cluster.sinks.apply(staging.CommitTransaction(1, 2, 1))
            return None

        cluster.script = script
        staging.committed_ranges(client, ["a"])
        assert len(asked) > len({event.request for event in asked}), "asked for again"


def test_earlier_names_mean_the_same():
    assert (staging.Run, staging.RunRef, staging.RunFact, staging.StaleRun) == (
        staging.Transaction, staging.TransactionRef, staging.TransactionDescription,
        errors.StaleTransaction)
    assert (staging.open_run, staging.commit_run, staging.abort_run, staging.run_facts) == (
        staging.begin_transaction, staging.commit_transaction, staging.abort_transaction,
        staging.describe_transactions)


def test_an_isolation_that_does_not_exist_is_named(client):
    with pytest.raises(ConfigError, match="isolation='dirty'"):
        client.consume("a", isolation="dirty")


@given(st.integers(0, layout.STAGED_SINKS_MAX), st.integers(0, layout.STAGED_TRANSACTIONS_MAX),
       st.integers(0, layout.STAGED_TASKS_MAX), st.integers(0, layout.STAGED_ATTEMPTS_MAX))
def test_an_identity_says_whose_it_is(sink, txn, task, attempt):
    identity = _transactions.identity_of(sink, txn, task, attempt)
    assert _transactions.is_staged(identity) and 0 <= identity[1] < 1 << 15
    header = BatchHeader(*[0] * 9, *identity, 0, 1)
    assert _transactions.transaction_of(header) == (TransactionRef(sink, txn), task, attempt)
    later, other = (_transactions.identity_of(sink, number, task, attempt) for number in (
        min(txn + 1, layout.STAGED_TRANSACTIONS_MAX), txn))
    assert later[0] > other[0] or later >= other, (
        "a newer transaction fences an older one, or is another"
    )
