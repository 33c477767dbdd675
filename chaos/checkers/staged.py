"""Checkers of transactions: readers of committed records get all records of a transaction, or none.

Theory.  A transaction (``Transaction``) commits with one entry of a log, so no order has to be
inferred and no cycle searched.  Adya's phenomena reduce to questions about one transaction each:
was it read before it was committed (G1b), was it read though it never was (G1a), was it read only
in part (G-single, a fractured read), or together with another transaction of the same batch.  The
offset of a
record is known from its append and from final reads, which show everything that is stored; a pass
of a reader says up to which offset it read.
"""

from __future__ import annotations

from chaos.checkers.checker import Checker
from chaos.checkers.ledger import PLACE_BITS, Key
from chaos.checkers.transactions import Given, Transaction


class PrecommittedRead(Checker):
    """A5 (G1b): a reader of committed records is given a record of a transaction before any client
    had asked to commit that transaction.  O(1) per append that is given."""

    id, name = "A5", "precommitted-read"

    def on_given(self, key: Key, given: Given) -> None:
        for txn in dict.fromkeys(staged.transaction for staged in given.staged):
            if txn.commit_asked < 0:
                self.found(f"a record of {txn} is given, and no client has asked to commit it", key,
                           (given.operation,), given.time_us)


class AbortedTransaction(Checker):
    """A4 (G1a, part): a reader of committed records is given, at any time, a record of a
    transaction that is certainly void (``chaos.checkers.transactions``), or of an attempt other
    than the one that
    the commit of its transaction names for the task; or a transaction is
    committed although every request to commit
    it had certainly failed.  O(1) per transaction and
    attempt, at the end."""

    id, name = "A4", "aborted-read"

    def on_end(self, time_us: int) -> None:
        for txn in self.ledger.transactions:
            if txn.is_committed and txn.commit_asked >= 0 and not txn.may_be_taken:
                self.found(f"{txn} is committed, and every request for that was refused for "
                           f"certain", None, (txn.commit_asked, txn.committed_by))
            for (task, attempt), operation in txn.given.items():
                if txn.void_by >= 0:
                    self.found(f"a record of {txn} is given, which is void", None,
                               (operation, txn.void_by))
                elif txn.is_beside(task, attempt):
                    self.found(f"a record of {txn} is given, of attempt {attempt} of task {task}; "
                               f"attempt {txn.winners[task]} is the one that counts", None,
                               (operation, txn.commit_asked))


class GivenTwice(Checker):
    """A2 (part): readers of committed records are given records of two transactions of one batch of
    a sink, or of two attempts of one task of a transaction; or one pass gives an offset that is not
    above the ones before it, or is below the position from which it continues.  O(1) per run of
    records; per transaction and attempt, at the end."""

    id, name = "A2", "duplicate"

    def on_given(self, key: Key, given: Given) -> None:
        at = given.asked
        for base, values in given.runs:
            if base < at:
                self.found(f"a reader of committed records at offset {at} is given offset {base}",
                           key, (given.operation,), given.time_us)
            at = base + len(values)

    def on_end(self, time_us: int) -> None:
        batches: dict[tuple[int, int], Transaction] = {}
        for txn in self.ledger.transactions:
            if not txn.given:
                continue
            operation = next(iter(txn.given.values()))
            first = batches.setdefault((txn.sink, txn.batch), txn)
            if first is not txn and txn.batch >= 0:
                self.found(f"records of {first} and of transaction {txn.number} are given, both of "
                           f"batch {txn.batch}", None,
                           (next(iter(first.given.values())), operation))
            tasks = [task for task, _ in txn.given]
            for task in sorted({task for task in tasks if tasks.count(task) > 1}):
                self.found(f"records of {tasks.count(task)} attempts of task {task} of {txn} are "
                           f"given", None, (operation,))


class _PassedOver(Checker):
    """Records that passes of readers left out although they count."""

    final = False

    def __init__(self, *shared):
        super().__init__(*shared)
        self._left_out: dict[int, dict[tuple[int, int], int]] = {}  # key -> range -> operation

    def on_given(self, key: Key, given: Given) -> None:
        if given.final is not self.final:
            return
        left_out, at = self._left_out.setdefault(key.number, {}), given.asked
        for base, values in given.runs:
            if base > at:
                left_out.setdefault((at, base), given.operation)
            at = max(at, base + len(values))
        if given.reached > at:
            left_out.setdefault((at, given.reached), given.operation)

    def on_end(self, time_us: int) -> None:
        for number, ranges in self._left_out.items():
            key, told = self.ledger.by_number[number], set()
            for (begin, end), operation in sorted(ranges.items()):
                for offset in range(begin, min(end, len(key.slots))):
                    append = self._counts(key, offset)
                    if append >= 0 and append not in told:
                        told.add(append)
                        self._say(key, offset, append, operation)

    def _counts(self, key: Key, offset: int) -> int:
        """Return the append of the record at an offset if readers of committed records have to be
        given it, else -1. They have to unless it was staged in a transaction that is not committed,
        or by an attempt that does not count."""
        value = key.slots[offset]
        home = self.ledger.values.home(value) if value >= 0 else -1
        if home < 0:
            return -1
        append = home >> PLACE_BITS
        staged = self.ledger.transactions.staged(append)
        if staged is None or (staged.transaction.is_committed
                              and staged.transaction.counts(staged.task, staged.attempt)):
            return append
        return -1

    def _say(self, key: Key, offset: int, append: int, operation: int) -> None:
        staged = self.ledger.transactions.staged(append)
        whose = f"{staged.transaction}, which is committed" if staged else "no transaction"
        given = staged is not None and staged.transaction.given
        others = ", other records of it are given" if given else ""
        self.found(f"a reader of committed records goes past offset {offset} without its record, "
                   f"of {whose}{others}", key,
                   (self.ledger.appends.operation[append], operation))


class FracturedRead(_PassedOver):
    """A26 (G-single): a reader of committed records passes a record of a committed transaction, of
    the attempt that counts, without being given it: a reader that gets a part of a transaction and
    continues gets the rest.  Nor may a reader leave out a record that was not staged.  A pass that
    stops before a record says nothing about it.  O(offsets that were left out, once for each
    range), at the end."""

    id, name = "A26", "cycles"


class NotGivenInTheEnd(_PassedOver):
    """A6 (part): as A26, in a final read of committed records, after all transactions were decided,
    which reads from the start of a key to its certain end.  O(offsets that were left out, once for
    each range), at the end."""

    id, name = "A6", "unseen"
    final = True


class DecidedTwice(Checker):
    """A23 (part): a transaction is known as committed and as void; two transactions of one batch of
    a sink are known as committed; a transaction is reported committed before any client asked for
    it; one number belongs to two transactions, or to two attempts.  O(1) per transaction."""

    id, name = "A23", "idempotence"

    def on_transaction_conflict(self, text: str, operation: int, time_us: int) -> None:
        self.found(text, None, (operation,), time_us)

    def on_end(self, time_us: int) -> None:
        batches: dict[tuple[int, int], Transaction] = {}
        for txn in self.ledger.transactions:
            if txn.committed_by < 0:
                continue
            if txn.void_by >= 0:
                self.found(f"{txn} is said to be committed, and it is void", None,
                           (txn.committed_by, txn.void_by))
            first = batches.setdefault((txn.sink, txn.batch), txn)
            if first is not txn and txn.batch >= 0:
                self.found(f"{first} and transaction {txn.number} are both said to be committed, "
                           f"for batch {txn.batch}", None, (first.committed_by, txn.committed_by))

    def figures(self) -> dict[str, int]:
        txns = list(self.ledger.transactions)
        if not txns:
            return {}
        return {"transactions": len(txns),
                "transactions_committed": sum(txn.committed_by >= 0 for txn in txns),
                "transactions_void": sum(txn.void_by >= 0 for txn in txns),
                "transactions_given": sum(bool(txn.given) for txn in txns)}


CHECKERS = (PrecommittedRead, AbortedTransaction, GivenTwice, FracturedRead, NotGivenInTheEnd,
            DecidedTwice)
