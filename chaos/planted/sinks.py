"""Bugs to plant in sinks: in the ledger of transactions, and in readers of committed records.

Tests of the parts find these as well.  Here a history of real nodes has to show them to the
checkers, which know neither the ledger nor the reader.  No writer of the workloads stages under a
number that was not assigned, so only tests cover that.
"""

from __future__ import annotations

from chaos.planted.bug import Bug, Nodes, Tests

_CLUSTER = Nodes(("tests/chaos/runs/test_transactions_run.py",))

BUGS = (
    Bug(
        "open-transactions-are-given",
        "multiraft.client._consumer",
        "ConsumerState._counts",
        "return self._transactions.verdict(header)",
        "return self._transactions.verdict(header) is not False",
        "a reader of committed records does not wait until a transaction is decided (A5)",
        _CLUSTER,
    ),
    Bug(
        "open-transactions-are-left-out",
        "multiraft.client._consumer",
        "ConsumerState._counts",
        "return self._transactions.verdict(header)",
        "return bool(self._transactions.verdict(header))",
        "a reader of committed records goes past an open transaction that is committed later (A26)",
        _CLUSTER,
    ),
    Bug(
        "every-attempt-counts",
        "multiraft.client._transactions",
        "Transactions.verdict",
        "winners.get(task, 0) == attempt",
        "attempt >= 0",
        "a task that was run twice is seen twice (A2, A4)",
        _CLUSTER,
    ),
    Bug(
        "replaced-transaction-is-committed",
        "node.metadata.transaction_table",
        "TransactionTable._commit_transaction",
        "if not sink.is_open or (command.transaction, command.batch) != (",
        "if False and (command.transaction, command.batch) != (",
        "a transaction is committed by a driver that another one has replaced (A23)",
        _CLUSTER,
    ),
    Bug(
        "unopened-transaction-is-taken-for-open",
        "node.clients.staged_batches",
        "StagedBatches.waits",
        "if state == OPEN:",
        "if state in (OPEN, UNOPENED):",
        "a leader appends a batch of an unopened transaction, and readers stop there for ever",
        Tests(
            (
                "tests/node/clients/test_staged_batches.py::"
                "test_a_batch_of_a_transaction_that_nobody_opened_is_refused[777-1]",
            )
        ),
    ),
    Bug(
        "unopened-transaction-stays-open",
        "node.admin.transaction_requests",
        "SinkAdmin._resolve",
        "if unopened and request.void:",
        "if False and request.void:",
        "the metadata leader leaves open what it knows that nobody has opened",
        Tests(
            (
                "tests/node/clients/test_staged_batches.py::"
                "test_the_metadata_leader_makes_void_what_nobody_opened",
            )
        ),
    ),
    Bug(
        "number-of-a-void-transaction-is-assigned",
        "node.metadata.transaction_table",
        "TransactionTable._next_number",
        "while TransactionRef(number, txn) in self._never:",
        "while False and txn in self._never:",
        "a made-up batch that readers have left out is seen when its number is opened later",
        Tests(
            (
                "tests/node/metadata/test_transaction_table.py::"
                "test_a_transaction_that_was_void_before_it_could_be_opened_never_is",
            )
        ),
    ),
)
