"""States of transactions, which decide whether staged batches are delivered.

Contract.  ``verdict`` returns True for a batch of a committed transaction, False for one that is
void, and None while that is undecided; a reader that gets None calls ``want``, and tries again
after the next answer.  The driver sends ``wanted`` to any node and gives the answer to ``learn``.
Transactions that a node calls open are also sent to the metadata leader (``to_resolve``).  It
distinguishes an open transaction from a number that was never opened, makes the latter void, and
names the sink.

Invariants.  The decision of a transaction never changes, so it is cached.  That it is open may
change, so it is requested again while a reader wants it.

Theory.  A transaction is committed by one entry of the metadata group.  Each answer carries the
metadata index that it is from, and a node parks requests until it has applied that index.  So a
reader that has seen one record of a transaction sees all of them, on each node.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from multiraft.client._waits import about_transaction
from multiraft.codec import layout
from multiraft.core import BatchHeader
from multiraft.wire import sinks
from multiraft.wire.sinks import (
    COMMITTED,
    OPEN,
    RESOLVED_PER_REQUEST_MAX,
    TRANSACTIONS_PER_REQUEST_MAX,
    VOID,
    ResolveTransactionsReply,
    TransactionDescription,
    TransactionRef,
    TransactionStatesReply,
)

#: Decided transactions that are cached; each has at least one batch.
DECIDED_MAX = 1 << 14
#: First and longest pause before an open transaction is requested again; pauses double.
ASK_AGAIN_MS_MIN, ASK_AGAIN_MS_MAX = 20, 500
#: Time after which the metadata leader is asked about an open transaction, and interval of further
#: requests.  Most are decided sooner, and a majority has to confirm each request.
RESOLVE_AFTER_MS, RESOLVE_AGAIN_MS = 500, 5_000
#: Pause and number of attempts of a request to the metadata leader.  After the last one, a reader
#: that would end before an open transaction relies on the answer of any node.
RESOLVE_RETRY_MS, RESOLVE_TRIES = 500, 5

#: (sink, transaction, task, attempt) -> (producer id, epoch) of staged batches.
identity_of = sinks.producer_identity


def is_staged(identity: tuple[int, int] | None) -> bool:
    """Return True if batches under this identity are staged for a transaction."""
    return identity is not None and (
        layout.STAGED_PRODUCER_MIN <= identity[0] <= layout.STAGED_PRODUCER_MAX)


def transaction_of(header: BatchHeader) -> tuple[TransactionRef, int, int]:
    """Return (transaction, task, attempt) of a staged batch."""
    return (sinks.transaction_ref(header.producer_id, header.producer_epoch),
            *sinks.task_attempt(header.producer_id))


class _Open(NamedTuple):
    """A transaction that nodes have called open."""

    due_ms: int  # time of the next request to the metadata leader
    description: TransactionDescription | None = None  # its last answer
    why: str = ""  # error of the last request to it
    resolution: int = 0  # number of the last request that was answered or given up


class Transactions:
    """Transactions that the readers of one client wait for, and decided ones."""

    def __init__(self) -> None:
        #: Winning attempts by task, where it is not attempt 0; None = void.
        self._decided: dict[TransactionRef, dict[int, int] | None] = {}
        self._wanted: dict[TransactionRef, None] = {}
        self._open: dict[TransactionRef, _Open] = {}  # wanted ones that nodes have called open
        self.asking = False
        self._failures = 0
        self.ask_at_ms = 0
        self.resolutions = 0  # number of requests to the metadata leader
        self.resolving = False
        self._resolve_failures = 0

    # ---- for readers ----

    def verdict(self, header: BatchHeader) -> bool | None:
        """Return True if a staged batch is delivered, False if its transaction is void or another
        attempt counts.  None = its transaction is not known to be decided.  O(1)."""
        txn, task, attempt = transaction_of(header)
        if not txn.sink or not txn.number:
            return False  # numbers begin with 1: no such transaction can exist
        if txn not in self._decided:
            return None
        winners = self._decided[txn]
        return winners is not None and winners.get(task, 0) == attempt

    def decided(self, txn: TransactionRef) -> bool:
        """Return True if the transaction is known to be committed or void."""
        return txn in self._decided

    def want(self, txn: TransactionRef, until_ms: int | None = None) -> None:
        """Request the state of a transaction, unless it is decided.  ``until_ms``: ask the metadata
        leader at that time at the latest, for a reader that ends before an open transaction."""
        if txn in self._decided:
            return
        self._wanted[txn] = None
        known = self._open.get(txn)
        if until_ms is not None and known is not None and until_ms < known.due_ms and (
                not known.resolution and not known.why):
            self._open[txn] = known._replace(due_ms=until_ms)

    def was_open(self, txn: TransactionRef, after: int) -> bool:
        """Return True if the transaction is open: the metadata leader said so in answer to a
        request after number ``after``, or did not answer in time while a node said so."""
        known = self._open.get(txn)
        return known is not None and known.resolution > after

    def reason(self, txn: TransactionRef) -> str:
        """Return the known state of an undecided transaction as text."""
        known = self._open.get(txn)
        return about_transaction(txn, known.description, known.why) if known is not None else (
            about_transaction(txn, None, ""))

    # ---- for the driver ----

    @property
    def wants(self) -> bool:
        """True if there is a request to send to any node."""
        return bool(self._wanted) and not self.asking

    def wanted(self, now_ms: int) -> tuple[TransactionRef, ...]:
        """Return the transactions to request from any node now, and mark that as under way;
        ``learn`` or ``lost`` ends the request.  Readers that still wait call ``want`` again, so
        none is requested without need."""
        self.asking = True
        self._failures += 1
        self.ask_at_ms = now_ms + min(ASK_AGAIN_MS_MAX, ASK_AGAIN_MS_MIN << min(
            self._failures, 10))
        asked = tuple(list(self._wanted)[:TRANSACTIONS_PER_REQUEST_MAX])
        for txn in asked:
            del self._wanted[txn]
        return asked

    def learn(self, reply: TransactionStatesReply, now_ms: int) -> None:
        """Apply the states in a node's answer: cache decisions, and note open transactions for the
        metadata leader."""
        self.asking = False
        for row in reply.transactions:
            txn = TransactionRef(row.sink, row.transaction)
            if row.state == OPEN:
                self._open.setdefault(txn, _Open(now_ms + RESOLVE_AFTER_MS))
            else:
                self._decide(txn, row)

    def lost(self) -> None:
        """Record that the request for the states that readers wait for got no answer, so that they
        may be requested again."""
        self.asking = False

    # ---- for the driver: the metadata leader ----

    def resolve_due_ms(self) -> int | None:
        """Return the time of the next request to the metadata leader; None = there is none.
        O(open transactions that are or were recently wanted)."""
        if self.resolving or not self._open:
            return None
        return min((known.due_ms for txn, known in self._open.items() if txn in self._wanted),
                   default=None)

    def to_resolve(self, now_ms: int) -> tuple[TransactionRef, ...]:
        """Return the transactions to ask the metadata leader about now: those that nodes call open
        and that are wanted; others are forgotten.  ``resolved`` or ``not_resolved`` ends the
        request."""
        self.resolving = True
        self.resolutions += 1
        self._open = {txn: known for txn, known in self._open.items()
                      if txn in self._wanted or known.due_ms > now_ms}
        due = [txn for txn, known in self._open.items() if known.due_ms <= now_ms]
        asked = tuple(due[:RESOLVED_PER_REQUEST_MAX])
        for txn in asked:
            self._open[txn] = self._open[txn]._replace(due_ms=now_ms + RESOLVE_AGAIN_MS)
        return asked

    def resolved(self, reply: ResolveTransactionsReply) -> None:
        """Apply the answer of the metadata leader: cache decisions, and keep the description of
        transactions that are still open."""
        self.resolving, self._resolve_failures = False, 0
        for row in reply.transactions:
            txn = TransactionRef(row.sink, row.transaction)
            if row.state in (COMMITTED, VOID):
                self._decide(txn, row)
            elif txn in self._open:
                self._open[txn] = _Open(self._open[txn].due_ms, row, "", self.resolutions)

    def not_resolved(
        self, asked: tuple[TransactionRef, ...], why: str, final: bool, now_ms: int
    ) -> None:
        """End a request that the metadata leader did not answer; the transactions ``asked`` are due
        again after a pause.  ``final``: a repetition would fail as well."""
        self.resolving = False
        self._resolve_failures += 1
        given_up = final or self._resolve_failures >= RESOLVE_TRIES
        for txn in asked:
            known = self._open.get(txn)
            if known is not None:
                self._open[txn] = known._replace(
                    due_ms=now_ms + (RESOLVE_AGAIN_MS if given_up else RESOLVE_RETRY_MS), why=why,
                    resolution=self.resolutions if given_up else known.resolution)

    def _decide(self, txn: TransactionRef, row: Any) -> None:
        self._failures = 0
        self._open.pop(txn, None)
        self._wanted.pop(txn, None)
        if len(self._decided) >= DECIDED_MAX:
            del self._decided[next(iter(self._decided))]
        self._decided[txn] = None if row.state == VOID else dict(row.winners)
