"""What a history says of the runs of sinks: which were committed, which are void, what they staged.

Contract.  ``chaos.checkers.stream`` tells ``Runs`` of every question about a run and its answer;
checkers read it.  It judges nothing: a run may be known as committed and as void, and what no
ledger may say is asked about (``on_run_conflict``).

Theory.  What is decided of a run never changes, so one piece of evidence holds for the whole
history, whenever it was found.  A run *is committed* when ``commit_run`` was acknowledged, or
``open_run`` or ``abort_run`` said so.  It *is void* when

- ``abort_run`` said that it is not committed; or
- a newer run of its sink was open before anybody had asked to commit this one; or
- ``commit_run`` was refused as stale, and nobody had asked to commit a newer run: a ledger that has
  gone on to a later batch refuses what it has taken before, too.

Any other refusal says of its own question that it had no effect, and nothing of the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from chaos.history import FAIL, INVOKE, OK, Event

STALE = "StaleRun"
COMMITTED = "committed"


class Run:
    """One attempt of a sink at a batch."""

    __slots__ = ("sink", "number", "batch", "nonce", "commit_asked", "may_be_taken",
                 "committed_by", "void_by", "winners", "given", "_attempts")

    def __init__(self, sink: int, number: int):
        self.sink = sink
        self.number = number
        self.batch = -1  # -1 = nobody said
        self.nonce = ""
        self.commit_asked = -1  # the first operation that asked for its commit
        self.may_be_taken = 0  # questions for it that were not refused for certain
        self.committed_by = -1  # the operation that says so
        self.void_by = -1
        #: task -> attempt; None = nobody said, or in two ways
        self.winners: dict[int, int] | None = None
        #: (task, attempt) -> the first operation that was given records of it
        self.given: dict[tuple[int, int], int] = {}
        self._attempts: dict[tuple[int, int], int] = {}  # (task, attempt) -> who has that number

    def __str__(self) -> str:
        return f"run {self.number} of sink {self.sink}"

    @property
    def is_committed(self) -> bool:
        """For certain; who was given some of it knows as well."""
        return self.committed_by >= 0 or (bool(self.given) and self.void_by < 0)

    def counts(self, task: int, attempt: int) -> bool:
        """Whether the records of an attempt are certainly those of its task."""
        return self.winners is not None and self.winners.get(task, -1) == attempt

    def is_beside(self, task: int, attempt: int) -> bool:
        """Whether they certainly are not."""
        return self.winners is not None and self.winners.get(task, attempt) != attempt

    def numbered(self, task: int, attempt: int, attempt_id: int) -> bool:
        """Whether the number of an attempt is its own."""
        return self._attempts.setdefault((task, attempt), attempt_id) == attempt_id


class Staged(NamedTuple):
    """Whose an append is."""

    run: Run
    task: int
    attempt: int


class Given(NamedTuple):
    """What a reader of committed records got of one key, going on from ``asked``."""

    operation: int
    runs: Iterable
    asked: int
    reached: int  # everything below was given, or left out
    staged: tuple[Staged, ...]  # whose records are among it, once for each append
    final: bool
    time_us: int


class Runs:
    """See the module docstring."""

    def __init__(self, ask: Callable[..., None]):
        self._ask = ask
        self._runs: dict[tuple[int, int], Run] = {}
        self._open: dict[int, list[Run]] = {}  # sink -> runs that nobody asked to commit yet
        self._newest: dict[int, int] = {}  # sink -> the newest run that was opened
        self._asked_to_commit: dict[int, int] = {}  # sink -> the newest run
        self._staged: dict[int, Staged] = {}  # append -> whose it is

    def __iter__(self):
        return iter(self._runs.values())

    def staged(self, append: int) -> Staged | None:
        """Whose an append is; None = it counts by itself."""
        return self._staged.get(append)

    def stage(self, append: int, data: dict[str, Any]) -> None:
        """An append is made in a run."""
        run = self._run(data["sink"], data["run"])
        self._staged[append] = Staged(run, data["task"], data["attempt"])

    def give(self, appends: Iterable[int], operation: int) -> tuple[Staged, ...]:
        """A reader was given records of these appends; those that were staged."""
        found = tuple(self._staged[append] for append in appends if append in self._staged)
        for run, task, attempt in found:
            run.given.setdefault((task, attempt), operation)
        return found

    # ---- the ledger's answers ------------------------------------------------------------------

    def take(self, event: Event, asked: Event) -> None:
        """A question about a run (``event`` is ``asked`` then), or its answer."""
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

    def _committed(self, run: Run, event: Event) -> None:
        if run.commit_asked < 0:
            self._ask("on_run_conflict", f"{run} is said to be committed, and nobody had asked for "
                      f"that", event.operation, event.time_us)
        if run.committed_by < 0:
            run.committed_by = event.operation

    @staticmethod
    def _void(run: Run, operation: int) -> None:
        if run.void_by < 0:
            run.void_by = operation

    def _run(self, sink: int, number: int) -> Run:
        found = self._runs.get((sink, number))
        if found is None:
            found = self._runs[sink, number] = Run(sink, number)
        return found
