"""Transactions of sinks, as a history shows them: committed, void or open, and their staged
records.

Contract.  ``Transaction`` is one transaction, as the operations ``begin_transaction``,
``commit_transaction`` and ``abort_transaction`` name it.  ``chaos.checkers.stream`` passes
``Transactions`` every request about a transaction and its answer; checkers read the result.
``Transactions`` judges nothing: a transaction may be known as committed and as void, and a
contradiction in the answers is passed to the checkers (``on_transaction_conflict``).

Theory.  The decision about a transaction never changes, so one piece of evidence holds for the
whole history, whenever it was found.  A transaction *is committed* when ``commit_transaction`` was
acknowledged, or ``begin_transaction`` or ``abort_transaction`` said so.  It *is void* when

- ``abort_transaction`` said that it is not committed; or
- a newer transaction of its sink was open before a client had asked to commit this one; or
- ``commit_transaction`` was refused as stale, and no client had asked to commit a newer
  transaction: a ledger that has taken a later batch also refuses earlier ones that it has
  committed.

Any other refusal says that its own request had no effect, and nothing about the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from chaos.history import FAIL, INVOKE, OK, Event

STALE = "StaleTransaction"
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
        return f"transaction {self.number} of sink {self.sink}"

    @property
    def is_committed(self) -> bool:
        """True if the transaction is certainly committed: an answer said so. Records that were
        given to a reader of committed records prove that too, unless it is known as void."""
        return self.committed_by >= 0 or (bool(self.given) and self.void_by < 0)

    def counts(self, task: int, attempt: int) -> bool:
        """True if the commit names this attempt as that of the task; False also while no commit was
        asked for, and when two commits differ."""
        return self.winners is not None and self.winners.get(task, -1) == attempt

    def is_beside(self, task: int, attempt: int) -> bool:
        """True if the commit names another attempt of the task, so that this one's records do not
        count. False for a task that no commit names."""
        return self.winners is not None and self.winners.get(task, attempt) != attempt

    def numbered(self, task: int, attempt: int, attempt_id: int) -> bool:
        """Record the attempt id that belongs to a number of an attempt, and return True; False when
        the number has another id already."""
        return self._attempts.setdefault((task, attempt), attempt_id) == attempt_id


class StagedAppend(NamedTuple):
    """Sink, transaction, task and attempt of a staged append."""

    transaction: Transaction
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
    """All transactions of a history, and the appends that they staged."""

    def __init__(self, ask: Callable[..., None]):
        self._ask = ask
        self._transactions: dict[tuple[int, int], Transaction] = {}
        #: sink -> transactions that no client asked to commit yet
        self._open: dict[int, list[Transaction]] = {}
        self._newest: dict[int, int] = {}  # sink -> the newest transaction that was opened
        self._asked_to_commit: dict[int, int] = {}  # sink -> the newest transaction
        self._staged: dict[int, StagedAppend] = {}  # append -> its transaction and attempt

    def __iter__(self):
        return iter(self._transactions.values())

    def staged(self, append: int) -> StagedAppend | None:
        """Return the transaction and attempt of an append; None = it was not staged."""
        return self._staged.get(append)

    def stage(self, append: int, data: dict[str, Any]) -> None:
        """Record that an append is staged in the transaction, task and attempt that ``data``, of
        its invocation, names."""
        txn = self._transaction(data["sink"], data["transaction"])
        self._staged[append] = StagedAppend(txn, data["task"], data["attempt"])

    def give(self, appends: Iterable[int], operation: int) -> tuple[StagedAppend, ...]:
        """Record that a reader of committed records was given, by ``operation``, records of these
        appends; return those that were staged."""
        found = tuple(self._staged[append] for append in appends if append in self._staged)
        for txn, task, attempt in found:
            txn.given.setdefault((task, attempt), operation)
        return found

    # ---- the ledger's answers ------------------------------------------------------------------

    def take(self, event: Event, asked: Event) -> None:
        """Record a request about a transaction (``event`` is ``asked`` then), or the answer
        ``event`` to the request ``asked``. Of requests, only those to commit say something."""
        if event.name == "begin_transaction" and event.kind == OK:
            self._opened(event, asked.data)
        elif event.name == "commit_transaction":
            self._commit(event, asked.data)
        elif event.name == "abort_transaction" and event.kind == OK:
            txn = self._transaction(asked.data["sink"], asked.data["transaction"])
            if event.data["committed"]:
                self._committed(txn, event)
            else:
                self._void(txn, event.operation)

    def _opened(self, event: Event, asked: dict[str, Any]) -> None:
        data = event.data
        txn = self._transaction(data["sink"], data["transaction"])
        if data["state"] == COMMITTED:
            self._committed(txn, event)
            return
        if txn.batch < 0:
            txn.batch, txn.nonce = asked["batch"], asked["nonce"]
            if txn.commit_asked < 0:
                self._open.setdefault(txn.sink, []).append(txn)
        elif (txn.batch, txn.nonce) != (asked["batch"], asked["nonce"]):
            self._ask("on_transaction_conflict", f"{txn} is of batch {txn.batch} and nonce "
                      f"{txn.nonce}, and of batch {asked['batch']} and nonce {asked['nonce']}",
                      event.operation, event.time_us)
        if asked["task"] >= 0 and not txn.numbered(asked["task"], data["attempt"],
                                                   asked["attempt_id"]):
            self._ask("on_transaction_conflict", f"{txn}: two attempts of task {asked['task']} "
                      f"have the number {data['attempt']}", event.operation, event.time_us)
        newest = self._newest[txn.sink] = max(self._newest.get(txn.sink, 0), txn.number)
        waiting = self._open.get(txn.sink, [])
        for older in [each for each in waiting if each.number < newest]:
            waiting.remove(older)
            self._void(older, event.operation)

    def _commit(self, event: Event, asked: dict[str, Any]) -> None:
        txn = self._transaction(asked["sink"], asked["transaction"])
        refused = event.kind == FAIL and event.data.get("error") != STALE
        txn.may_be_taken += (event.kind == INVOKE) - refused
        if event.kind == INVOKE:
            winners = dict(map(tuple, asked["winners"]))
            if txn.commit_asked < 0:
                txn.commit_asked, txn.winners = event.operation, winners
                if txn in self._open.get(txn.sink, ()):
                    self._open[txn.sink].remove(txn)
            elif txn.winners != winners:
                txn.winners = None
            self._asked_to_commit[txn.sink] = max(self._asked_to_commit.get(txn.sink, 0),
                                                  txn.number)
        elif event.kind == OK:
            self._committed(txn, event)
        elif (event.kind == FAIL and not refused
              and self._asked_to_commit[txn.sink] <= txn.number):
            self._void(txn, event.operation)

    def _committed(self, txn: Transaction, event: Event) -> None:
        if txn.commit_asked < 0:
            self._ask("on_transaction_conflict", f"{txn} is reported committed, and no client had "
                      f"asked for that", event.operation, event.time_us)
        if txn.committed_by < 0:
            txn.committed_by = event.operation

    @staticmethod
    def _void(txn: Transaction, operation: int) -> None:
        if txn.void_by < 0:
            txn.void_by = operation

    def _transaction(self, sink: int, number: int) -> Transaction:
        found = self._transactions.get((sink, number))
        if found is None:
            found = self._transactions[sink, number] = Transaction(sink, number)
        return found
