"""Transactions of sinks, as a history shows them: committed, void or open, and their staged
records.

Contract.  ``Transaction`` is one transaction, as the operations ``open_run``, ``commit_run`` and
``abort_run`` name it.  ``chaos.checkers.stream`` passes ``Transactions`` every request about a
transaction and its answer; checkers read the result.  ``Transactions`` judges nothing: a run may be
known as committed and as void, and a contradiction in the answers is passed to the checkers
(``on_run_conflict``).

Theory.  The decision about a run never changes, so one piece of evidence holds for the whole
history, whenever it was found.  A run *is committed* when ``commit_run`` was acknowledged, or
``open_run`` or ``abort_run`` said so.  It *is void* when

- ``abort_run`` said that it is not committed; or
- a newer run of its sink was open before a client had asked to commit this one; or
- ``commit_run`` was refused as stale, and no client had asked to commit a newer run: a ledger that
  has taken a later batch also refuses earlier ones that it has committed.

Any other refusal says that its own request had no effect, and nothing about the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from chaos.history import FAIL, INVOKE, OK, Event

STALE = "StaleRun"
COMMITTED = "committed"


class Transaction:
    """One transaction: one attempt of a sink at a batch."""

    __slots__ = ("sink", "number", "batch", "nonce", "commit_asked", "may_be_taken",
                 "committed_by", "void_by", "winners", "given", "_attempts")

    def __init__(self, sink: int, number: int):
        self.sink = sink
        self.number = number
        self.batch = -1  # -1 = not said yet
        self.nonce = ""
        self.commit_asked = -1  # the first operation that asked for its commit
        self.may_be_taken = 0  # requests to commit it that were not refused for certain
        self.committed_by = -1  # the operation that says so
        self.void_by = -1
        #: task -> attempt; None = unknown, or two commits differ
        self.winners: dict[int, int] | None = None
        #: (task, attempt) -> the first operation that was given records of it
        self.given: dict[tuple[int, int], int] = {}
        # (task, attempt) -> the attempt id that has this number
        self._attempts: dict[tuple[int, int], int] = {}

    def __str__(self) -> str:
        return f"run {self.number} of sink {self.sink}"

    @property
    def is_committed(self) -> bool:
        """True if the run is certainly committed; a reader of committed records that was given
        records of it proves that too."""
        return self.committed_by >= 0 or (bool(self.given) and self.void_by < 0)

    def counts(self, task: int, attempt: int) -> bool:
        """True if the records of an attempt are certainly those of its task."""
        return self.winners is not None and self.winners.get(task, -1) == attempt

    def is_beside(self, task: int, attempt: int) -> bool:
        """True if the records of an attempt certainly do not count."""
        return self.winners is not None and self.winners.get(task, attempt) != attempt

    def numbered(self, task: int, attempt: int, attempt_id: int) -> bool:
        """Record the attempt id of a number; False when the number has another one."""
        return self._attempts.setdefault((task, attempt), attempt_id) == attempt_id


class StagedAppend(NamedTuple):
    """Sink, run, task and attempt of a staged append."""

    run: Transaction
    task: int
    attempt: int


class Given(NamedTuple):
    """Records of one key that a reader of committed records got, continuing from ``asked``."""

    operation: int
    runs: Iterable
    asked: int
    reached: int  # every record below was given, or left out
    staged: tuple[StagedAppend, ...]  # whose records are among it, once for each append
    final: bool
    time_us: int


class Transactions:
    """All runs of a history, and the appends that they staged."""

    def __init__(self, ask: Callable[..., None]):
        self._ask = ask
        self._runs: dict[tuple[int, int], Transaction] = {}
        self._open: dict[
            int, list[Transaction]
        ] = {}  # sink -> runs that no client asked to commit yet
        self._newest: dict[int, int] = {}  # sink -> the newest run that was opened
        self._asked_to_commit: dict[int, int] = {}  # sink -> the newest run
        self._staged: dict[int, StagedAppend] = {}  # append -> its run and attempt

    def __iter__(self):
        return iter(self._runs.values())

    def staged(self, append: int) -> StagedAppend | None:
        """Return the run and attempt of an append; None = it was not staged."""
        return self._staged.get(append)

    def stage(self, append: int, data: dict[str, Any]) -> None:
        """Record that an append is staged in a run."""
        run = self._run(data["sink"], data["run"])
        self._staged[append] = StagedAppend(run, data["task"], data["attempt"])

    def give(self, appends: Iterable[int], operation: int) -> tuple[StagedAppend, ...]:
        """Record that a reader was given records of these appends; return those that were
        staged."""
        found = tuple(self._staged[append] for append in appends if append in self._staged)
        for run, task, attempt in found:
            run.given.setdefault((task, attempt), operation)
        return found

    # ---- the ledger's answers ------------------------------------------------------------------

    def take(self, event: Event, asked: Event) -> None:
        """Record a request about a run (``event`` is ``asked`` then), or its answer."""
        if event.name == "open_run" and event.kind == OK:
            self._opened(event, asked.data)
        elif event.name == "commit_run":
            self._commit(event, asked.data)
        elif event.name == "abort_run" and event.kind == OK:
            run = self._run(asked.data["sink"], asked.data["run"])
            if event.data["committed"]:
                self._committed(run, event)
            else:
                self._void(run, event.operation)

    def _opened(self, event: Event, asked: dict[str, Any]) -> None:
        data = event.data
        run = self._run(data["sink"], data["run"])
        if data["state"] == COMMITTED:
            self._committed(run, event)
            return
        if run.batch < 0:
            run.batch, run.nonce = asked["batch"], asked["nonce"]
            if run.commit_asked < 0:
                self._open.setdefault(run.sink, []).append(run)
        elif (run.batch, run.nonce) != (asked["batch"], asked["nonce"]):
            self._ask("on_run_conflict", f"{run} is of batch {run.batch} and nonce {run.nonce}, "
                      f"and of batch {asked['batch']} and nonce {asked['nonce']}",
                      event.operation, event.time_us)
        if asked["task"] >= 0 and not run.numbered(asked["task"], data["attempt"],
                                                   asked["attempt_id"]):
            self._ask("on_run_conflict", f"{run}: two attempts of task {asked['task']} have the "
                      f"number {data['attempt']}", event.operation, event.time_us)
        newest = self._newest[run.sink] = max(self._newest.get(run.sink, 0), run.number)
        waiting = self._open.get(run.sink, [])
        for older in [each for each in waiting if each.number < newest]:
            waiting.remove(older)
            self._void(older, event.operation)

    def _commit(self, event: Event, asked: dict[str, Any]) -> None:
        run = self._run(asked["sink"], asked["run"])
        refused = event.kind == FAIL and event.data.get("error") != STALE
        run.may_be_taken += (event.kind == INVOKE) - refused
        if event.kind == INVOKE:
            winners = dict(map(tuple, asked["winners"]))
            if run.commit_asked < 0:
                run.commit_asked, run.winners = event.operation, winners
                if run in self._open.get(run.sink, ()):
                    self._open[run.sink].remove(run)
            elif run.winners != winners:
                run.winners = None
            self._asked_to_commit[run.sink] = max(self._asked_to_commit.get(run.sink, 0),
                                                  run.number)
        elif event.kind == OK:
            self._committed(run, event)
        elif (event.kind == FAIL and not refused
              and self._asked_to_commit[run.sink] <= run.number):
            self._void(run, event.operation)

    def _committed(self, run: Transaction, event: Event) -> None:
        if run.commit_asked < 0:
            self._ask("on_run_conflict", f"{run} is reported committed, and no client had asked "
                      f"for that", event.operation, event.time_us)
        if run.committed_by < 0:
            run.committed_by = event.operation

    @staticmethod
    def _void(run: Transaction, operation: int) -> None:
        if run.void_by < 0:
            run.void_by = operation

    def _run(self, sink: int, number: int) -> Transaction:
        found = self._runs.get((sink, number))
        if found is None:
            found = self._runs[sink, number] = Transaction(sink, number)
        return found
