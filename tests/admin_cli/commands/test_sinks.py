"""`multiraft sink`, against the ledger itself."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from multiraft.client.blocking import OffsetRange, Wait
from multiraft.wire.sinks import (
    VOID,
    AbortTransaction,
    AbortTransactionReply,
    BeginTransaction,
    CommitTransaction,
    ResolveTransactions,
    ResolveTransactionsReply,
    SinkListReply,
    StagedTopics,
    StagedTopicsReply,
    TopicEnds,
    TransactionDescription,
    TransactionRef,
    VoidTransactions,
)
from node.metadata.transaction_table import TransactionTable
from tests.admin_cli.fakes import FakeClient, FakeCluster


class Ledger(FakeCluster):
    """One sink has committed batch 0 and left batch 1 open."""

    def __init__(self):
        super().__init__()
        self.table = TransactionTable()
        for command in (BeginTransaction("delays", 0, bytes(16)), CommitTransaction(1, 1, 0),
                        BeginTransaction("delays", 1, bytes(16), (TopicEnds(7, (2, 3)),))):
            self.table.apply(command)

    def connect(self, addresses):
        super().connect(addresses)
        return Client(self)


class Client(FakeClient):
    """The part of the client that sinks need."""

    def sink_request(self, request):
        table = self._cluster.table
        if isinstance(request, AbortTransaction):
            table.apply(
                VoidTransactions((TransactionRef(*request),))
            )  # as the metadata leader does
            return AbortTransactionReply(bool(table.apply(request).value))
        if isinstance(request, StagedTopics):
            return StagedTopicsReply(1, table.staged())
        if isinstance(request, ResolveTransactions):
            return ResolveTransactionsReply(1, tuple(TransactionDescription(
                *txn, table.known_state(txn), (), *table.named(txn), 65_000)
                for txn in request.transactions))
        return SinkListReply(*self._cluster.table.rows(request.after, 1))


@pytest.fixture
def cluster():
    return Ledger()


def test_sinks_and_what_they_left_open_are_shown(run, cluster):
    done = run("sink", "list")
    assert done.exit_code == 0 and "delays" in done.output and "open batch" in done.output
    assert json.loads(run("sink", "list", "--json").stdout) == {"sinks": [
        {"sink": "delays", "number": 1, "transactions": 2, "committed_batch": 0, "open_batch": 1}]}


def test_an_open_transaction_is_given_up_once(run, cluster):
    assert "Batch 1 of delays is aborted" in run("sink", "abort", "delays").output
    assert "no batch of delays is open" in run("sink", "abort", "delays").output
    assert json.loads(run("sink", "abort", "delays", "--json").stdout) == {
        "sink": "delays", "batch": None, "aborted": False}
    assert cluster.table.rows(0, 1)[0][0].last_batch == 0


def test_a_sink_that_does_not_exist_is_named(run, cluster):
    done = run("sink", "abort", "other")
    assert done.exit_code == 4 and "no sink 'other'" in done.output


@pytest.fixture
def held_back(cluster, monkeypatch):
    """A reader of topic "t", whose incarnation is 7, stops at offset 3 of 5."""
    cluster.topics["t"] = [[(None, b"v")] * 5, []]
    cluster.unread = (
        Wait("t", 0, 3, 5, 0, "staged by transaction 2 of sink 1", TransactionRef(1, 2)),
    )
    monkeypatch.setattr(Client, "list_topics", lambda self: [SimpleNamespace(
        name="t", incarnation=7, partitions=2)])
    monkeypatch.setattr(Client, "list_offsets", lambda self, name: {
        0: OffsetRange(0, 5), 1: OffsetRange(0, 3)})
    return cluster


@pytest.mark.parametrize("topics", [[], ["t"]])
def test_where_readers_stop_is_shown(run, held_back, topics):
    done = run("sink", "blocked", *topics)
    assert done.exit_code == 0
    header, row = [line.split() for line in done.stdout.splitlines()]
    assert header == ["topic", "partition", "offset", "end_offset", "sink", "transaction",
                      "batch", "open"]
    assert row == ["t", "0", "3", "5", "delays", "1/2", "1", "1", "min", "5", "s"]
    assert json.loads(run("sink", "blocked", *topics, "--json").stdout) == {"blocked": [
        {"topic": "t", "partition": 0, "offset": 3, "end_offset": 5, "sink": "delays",
         "transaction": "1/2", "state": "open", "batch": 1, "open_ms": 65_000,
         "reason": "staged by transaction 2 of sink 1"}]}
    assert held_back.consumed["start"] == ("earliest" if topics else 2)


def test_nothing_that_holds_readers_back_is_said(run, cluster):
    cluster.table.apply(AbortTransaction(1, 2))
    assert "No open transaction blocks readers" in run("sink", "blocked").stderr
    assert json.loads(run("sink", "blocked", "--json").stdout) == {"blocked": []}


@pytest.mark.parametrize("numbers", ["1/2", "1/9", "5/7"])
def test_a_transaction_is_aborted_by_its_numbers_also_one_that_nobody_opened(run, cluster, numbers):
    assert f"Transaction {numbers} is void" in run(
        "sink", "abort", "--transaction", numbers).stderr
    assert cluster.table.known_state(TransactionRef(*map(int, numbers.split("/")))) == VOID
    assert json.loads(run("sink", "abort", "--transaction", numbers, "--json").stdout) == {
        "transaction": numbers, "aborted": True}
    assert "Transaction 1/1 is committed" in run("sink", "abort", "--run", "1/1").stderr


@pytest.mark.parametrize("arguments", [
    [], ["delays", "--transaction", "1/2"], ["delays", "--run", "1/2"],
    ["--transaction", "1/2", "--run", "1/2"], ["--transaction", "1"], ["--transaction", "0/1"],
    ["--transaction", "1/0"], ["--transaction", "1048576/1"], ["--transaction", "1/536870912"],
    ["--transaction", "-1/2"], ["--transaction", "\u0661/2"]])
def test_what_is_no_transaction_is_a_mistake_of_the_command_line(run, cluster, arguments):
    assert run("sink", "abort", *arguments).exit_code == 2
