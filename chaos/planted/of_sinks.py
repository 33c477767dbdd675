"""Bugs to plant in sinks: in the ledger that decides runs, and in readers of committed records.

Tests of the parts find these as well.  Here a history of real nodes has to show them to the
checkers, which know neither the ledger nor the reader.
"""

from __future__ import annotations

from chaos.planted.bug import Bug, Nodes

_RUN = Nodes(("tests/chaos/test_sinks_run.py",))

BUGS = (
    Bug("open-runs-are-given", "multiraft.client._consumer", "ConsumerState._counts",
        "return self._runs.verdict(header)",
        "return self._runs.verdict(header) is not False",
        "a reader of committed records does not wait until a run is decided (A5)",
        _RUN),
    Bug("open-runs-are-left-out", "multiraft.client._consumer", "ConsumerState._counts",
        "return self._runs.verdict(header)",
        "return bool(self._runs.verdict(header))",
        "a reader of committed records goes past an open run, which is committed later (A26)",
        _RUN),
    Bug("every-attempt-counts", "multiraft.client._runs", "Runs.verdict",
        "winners.get(task, 0) == attempt",
        "attempt >= 0",
        "a task that was run twice is seen twice (A2, A4)",
        _RUN),
    Bug("replaced-run-is-committed", "node.metadata_sinks", "SinkTable._commit_run",
        "if not sink.is_open or (command.run, command.batch) != (",
        "if False and (command.run, command.batch) != (",
        "a run is committed by a driver that another one has replaced (A23)",
        _RUN),
)
