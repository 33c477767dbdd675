"""Bugs to plant in sinks: in the ledger of transactions, and in readers of committed records.

Tests of the parts find these as well.  Here a history of real nodes has to show them to the
checkers, which know neither the ledger nor the reader.  No writer of the workloads stages under a
number that was not assigned, so only tests cover that.
"""

from __future__ import annotations

from chaos.planted.bug import Bug, Nodes, Tests

_RUN = Nodes(("tests/chaos/runs/test_transactions_run.py",))

BUGS = (
    Bug(
        "open-runs-are-given",
        "multiraft.client._consumer",
        "ConsumerState._counts",
        "return self._runs.verdict(header)",
        "return self._runs.verdict(header) is not False",
        "a reader of committed records does not wait until a run is decided (A5)",
        _RUN,
    ),
    Bug(
        "open-runs-are-left-out",
        "multiraft.client._consumer",
        "ConsumerState._counts",
        "return self._runs.verdict(header)",
        "return bool(self._runs.verdict(header))",
        "a reader of committed records goes past an open run, which is committed later (A26)",
        _RUN,
    ),
    Bug(
        "every-attempt-counts",
        "multiraft.client._runs",
        "Runs.verdict",
        "winners.get(task, 0) == attempt",
        "attempt >= 0",
        "a task that was run twice is seen twice (A2, A4)",
        _RUN,
    ),
    Bug(
        "replaced-run-is-committed",
        "node.metadata.transaction_table",
        "TransactionTable._commit_run",
        "if not sink.is_open or (command.run, command.batch) != (",
        "if False and (command.run, command.batch) != (",
        "a run is committed by a driver that another one has replaced (A23)",
        _RUN,
    ),
    Bug(
        "unopened-run-is-taken-for-open",
        "node.clients.staged_batches",
        "StagedBatches.waits",
        "if state == OPEN:",
        "if state in (OPEN, UNOPENED):",
        "a leader appends a batch of a run that nobody has opened, and readers stop there for ever",
        Tests(
            (
                "tests/node/clients/test_staged_batches.py::"
                "test_a_batch_of_a_run_that_nobody_opened_is_refused[777-1]",
            )
        ),
    ),
    Bug(
        "unopened-run-stays-open",
        "node.admin.transaction_requests",
        "SinkAdmin._settle",
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
        "number-of-a-void-run-is-handed-out",
        "node.metadata.transaction_table",
        "TransactionTable._next_run",
        "while RunRef(number, run) in self._never:",
        "while False and run in self._never:",
        "a made-up batch that readers have left out is seen when its number is opened later",
        Tests(
            (
                "tests/node/metadata/test_transaction_table.py::"
                "test_a_run_that_was_void_before_it_could_be_opened_never_is",
            )
        ),
    ),
)
