"""The sink ledger: which transactions of each sink are committed, open or void.

Contract.  A part of the metadata state machine: functions of state and command.  A wrong request is
a ``Result`` with a code and changes nothing.  Every command may arrive twice, late, or after
others: opening with the same nonce joins the open transaction, committing a committed transaction
is answered as before, and the decision about a transaction never changes.

Invariants.  A sink's transactions are numbered from 1, in the order in which they were opened; only
the newest can be open.  Its committed batches ascend, and a batch has one committed transaction.  A
transaction that is neither open nor void is committed: so a sink costs one row, however many
batches it has, and only failures cost more.  A transaction that was made void before it was opened
is never opened: its number is skipped, in this sink or in the one that gets that sink number later.

Theory.  The transaction's number is a fencing token: every batch that a transaction stages carries
it, however late the batch arrives.  A commit is one entry of one log, and makes all of the
transaction's records visible at once, in all groups.  A nonce identifies the tasks of one
transaction.  The nonces of transactions that were aborted since the last commit are kept, so that a
late task of such a transaction does not end a newer transaction. Attempts of a task are numbered in
the order of their arrival.  The first attempt nearly always wins, and is not stored for a committed
transaction.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice

from multiraft.codec import layout, shapes
from multiraft.wire.errors import Code
from multiraft.wire.sinks import (
    COMMITTED,
    ENDS_MAX,
    OPEN,
    STAGED_ENDS_MAX,
    TOPICS_PER_TRANSACTION_MAX,
    UNOPENED,
    VOID,
    AbortTransaction,
    BeginTransaction,
    BeginTransactionReply,
    CommitTransaction,
    SinkRow,
    TopicEnds,
    TransactionRef,
    TransactionState,
    VoidTransactions,
    Winner,
)
from node.metadata.result import Result, over, refused

#: Sinks are never removed, because the batches that they staged may exist for years: every replica
#: keeps a row of about 300 bytes for each.
SINKS_MAX = 1 << 12
#: Void transactions of one sink; consecutive transactions count as one range.  A reader may ask for
#: any of them for as long as their records exist.
VOID_RANGES_MAX = 1 << 10
#: Tasks of committed transactions of one sink whose winning attempt was not the first one.
WINNERS_MAX = 1 << 12
#: Tasks of one transaction; their attempts are kept until the transaction is decided.
TASKS_PER_TRANSACTION_MAX = 1 << 16
#: Transactions of all sinks together that are void without having been opened: logs hold batches
#: with invented transaction numbers.  Leaders refuse such batches, so few are ever needed; 16,384
#: take about 3 MB on each node.
UNOPENED_VOID_MAX = 1 << 14
#: Nonces of void transactions that are kept until the next commit.
STALE_NONCES_MAX = 16

_PAIR = (shapes.UINT, shapes.UINT)
_TOPICS = [(shapes.UINT, [shapes.UINT])]
#: Shape of the ledger in a snapshot; ``never_opened`` exists since version 8.
_SHAPE = {
    "stagings": shapes.UINT,
    "sinks": [
        (
            shapes.TEXT,
            shapes.INT_OR_NONE,
            shapes.UINT,
            shapes.UINT,
            shapes.INT_OR_NONE,
            shapes.BYTES,
            _TOPICS,
            [_PAIR],
            [(shapes.UINT, shapes.UINT, shapes.UINT)],
            [shapes.BYTES],
            [(shapes.UINT, [shapes.UINT])],
        )
    ],
}


class _Sink:
    """A sink: its last committed batch, its open transaction, its void transactions and exceptional
    winners."""

    __slots__ = ("name", "last_batch", "last_txn", "newest_txn", "open_batch", "nonce", "topics",
                 "voids", "winners", "stale", "attempts")

    def __init__(self, name: str):
        self.name = name
        self.last_batch = -1  # the last committed one, -1 = none
        self.last_txn = 0  # the transaction that committed it
        self.newest_txn = 0
        self.open_batch = -1  # of the newest transaction while it is open; else -1
        self.nonce = b""  # of the newest transaction
        #: topics in which the open transaction may stage
        self.topics: dict[int, tuple[int, ...]] = {}
        #: first and last transaction of each range, ascending
        self.voids: list[tuple[int, int]] = []
        #: transaction -> winners other than attempt 0
        self.winners: dict[int, tuple[Winner, ...]] = {}
        self.stale: tuple[bytes, ...] = ()  # nonces of transactions aborted since the last commit
        #: task of the open transaction -> its attempts' ids
        self.attempts: dict[int, tuple[int, ...]] = {}

    @property
    def is_open(self) -> bool:
        return self.open_batch >= 0

    def is_void(self, txn: int) -> bool:
        """Return True if the transaction is void.  O(log void ranges)."""
        at = bisect_right(self.voids, txn, key=_first) - 1
        return at >= 0 and txn <= self.voids[at][1]

    def state_of(self, txn: int) -> str:
        """Return the state of a transaction that was opened."""
        if self.is_open and txn == self.newest_txn:
            return OPEN
        return VOID if self.is_void(txn) else COMMITTED

    def void_open(self) -> None:
        """Make the open transaction void, and keep its nonce, so that its late tasks are refused.
        """
        txn = self.newest_txn
        if self.voids and self.voids[-1][1] == txn - 1:
            self.voids[-1] = (self.voids[-1][0], txn)
        else:
            self.voids.append((txn, txn))
        self.stale = (*self.stale, self.nonce)[-STALE_NONCES_MAX:]
        self.close()

    def close(self) -> None:
        """Clear the fields of the open transaction; it is decided."""
        self.open_batch = -1
        self.topics = {}
        self.attempts = {}

    def is_open_for(self, command: BeginTransaction) -> bool:
        """Return True if the open transaction is the one that the command names."""
        return self.is_open and (command.batch, command.nonce) == (self.open_batch, self.nonce)

    def opened(self, number: int, command: BeginTransaction) -> BeginTransactionReply:
        """Return the reply to a client that has joined the open transaction of sink ``number``: its
        number, topics and the number of the client's attempt."""
        attempt = 0 if command.task < 0 else self.attempts[command.task].index(command.attempt_id)
        return BeginTransactionReply(number, self.newest_txn, OPEN, tuple(self.topics), attempt)


class TransactionTable:
    """The ledger of one replica's metadata.  Sinks are numbered from 1."""

    __slots__ = ("stagings", "_sinks", "_numbers", "_open", "_never")

    def __init__(self) -> None:
        self.stagings = 0  # transactions opened and topics named so far: a version of ``staged()``
        self._sinks: list[_Sink] = []  # by number - 1
        self._numbers: dict[str, int] = {}
        self._open: set[int] = set()  # numbers of sinks with an open transaction
        #: void without having been opened, and never to be opened
        self._never: set[TransactionRef] = set()

    # ---- commands -------------------------------------------------------------------------------

    def apply(
        self, command: BeginTransaction | CommitTransaction | AbortTransaction | VoidTransactions
    ) -> Result:
        """Apply a command. The value is a ``BeginTransactionReply`` for a begin; for an abort, True
        if the transaction is committed; None otherwise. Refusals change nothing. O(log void ranges
        + transactions, topics and winners that the command names)."""
        if type(command) is BeginTransaction:
            return self._begin_transaction(command)
        if type(command) is VoidTransactions:
            return self._void_transactions(command)
        assert isinstance(command, (CommitTransaction, AbortTransaction))
        number, txn = command.sink, command.transaction
        if not (0 < number <= len(self._sinks)
                and 0 < txn <= self._sinks[number - 1].newest_txn):
            return refused(Code.INVALID_REQUEST, f"sink {number} has no transaction {txn}")
        if isinstance(command, CommitTransaction):
            return self._commit_transaction(command, self._sinks[number - 1])
        return self._abort_transaction(command, self._sinks[number - 1])

    def _begin_transaction(self, command: BeginTransaction) -> Result:
        joined = self.joined(command)
        if joined is not None:
            return Result(Code.OK, joined)
        if not command.sink:
            return refused(Code.INVALID_REQUEST, "a sink has a name")
        number = self._numbers.get(command.sink)
        sink = _Sink(command.sink) if number is None else self._sinks[number - 1]
        joins = sink.is_open_for(command)
        refusal = (self._stale(sink, command) or self._full(sink, number, joins)
                   or self._too_wide(sink, joins, command.topics)
                   or _too_many(sink.attempts if joins else {}, command))
        if refusal is not None:
            return refusal
        if number is None:
            self._sinks.append(sink)
            number = self._numbers[command.sink] = len(self._sinks)
        if not joins:
            if sink.is_open:
                sink.void_open()
            self._begin(number, sink, command)
        for topic in command.topics:
            if topic.incarnation not in sink.topics:
                sink.topics[topic.incarnation] = topic.offsets
                self.stagings += 1
        attempts = sink.attempts.get(command.task, ())
        if command.task >= 0 and command.attempt_id not in attempts:
            sink.attempts[command.task] = (*attempts, command.attempt_id)
        return Result(Code.OK, sink.opened(number, command))

    def _next_number(self, number: int, sink: _Sink) -> int:
        """Return the number of a sink's next transaction.  O(1) amortised: a skipped number is
        skipped once."""
        txn = sink.newest_txn + 1
        while TransactionRef(number, txn) in self._never:
            txn += 1
        return txn

    def _begin(self, number: int, sink: _Sink, command: BeginTransaction) -> None:
        sink.newest_txn = self._next_number(number, sink)
        sink.open_batch, sink.nonce = command.batch, command.nonce
        self.stagings += 1
        self._open.add(number)

    def joined(self, command: BeginTransaction) -> BeginTransactionReply | None:
        """Return the reply to a begin that would change nothing, None = it has to be applied.

        Nothing changes when the batch is committed, or when its transaction is open and has the
        topics and the attempt."""
        number = self._numbers.get(command.sink)
        if number is None:
            return None
        sink = self._sinks[number - 1]
        if command.batch == sink.last_batch:
            return BeginTransactionReply(number, sink.last_txn, COMMITTED)
        if (sink.is_open_for(command)
                and all(topic.incarnation in sink.topics for topic in command.topics)
                and (command.task < 0
                     or command.attempt_id in sink.attempts.get(command.task, ()))):
            return sink.opened(number, command)
        return None

    def _stale(self, sink: _Sink, command: BeginTransaction) -> Result | None:
        if command.batch < sink.last_batch:
            return refused(Code.STALE_TRANSACTION, f"sink {sink.name!r} has committed batch "
                           f"{sink.last_batch}: batch {command.batch} is over, or belongs to "
                           f"another writer of that name", value=sink.last_batch)
        if command.nonce in sink.stale:
            return refused(Code.STALE_TRANSACTION, f"another transaction of batch "
                           f"{command.batch} of sink {sink.name!r} has taken over from this one")
        return None

    def _full(self, sink: _Sink, number: int | None, joins: bool) -> Result | None:
        if number is None and len(self._sinks) >= SINKS_MAX:
            return over("sinks", SINKS_MAX, len(self._sinks) + 1)
        if joins:
            return None
        txn = self._next_number(number or len(self._sinks) + 1, sink)
        if txn > layout.STAGED_TRANSACTIONS_MAX:
            return over("transactions of the sink", layout.STAGED_TRANSACTIONS_MAX, txn)
        # The transaction that starts may become void; a transaction that it ends is in the same
        # range then.
        if len(sink.voids) + 1 > VOID_RANGES_MAX:
            return over(f"void transactions of sink {sink.name!r}, which needs another name",
                        VOID_RANGES_MAX, len(sink.voids) + 1)
        return None

    def _too_wide(self, sink: _Sink, joins: bool, added: Iterable[TopicEnds]) -> Result | None:
        """Return the refusal of topics or partitions above the limit of a transaction or of all
        open transactions; None = within them. ``joins``: the topics are added to the open
        transaction."""
        known = sink.topics if joins else {}
        topics = {**{topic.incarnation: topic.offsets for topic in added}, **known}
        if len(topics) > TOPICS_PER_TRANSACTION_MAX:
            return over("topics of a transaction", TOPICS_PER_TRANSACTION_MAX, len(topics))
        partitions = sum(map(len, topics.values()))
        if partitions > ENDS_MAX:
            return over("partitions of a transaction", ENDS_MAX, partitions)
        others = (self._sinks[number - 1] for number in self._open)
        total = partitions + sum(map(len, (offsets for other in others if other is not sink
                                           for offsets in other.topics.values())))
        return over("partitions of open transactions", STAGED_ENDS_MAX, total) if (
            total > STAGED_ENDS_MAX) else None

    def _commit_transaction(self, command: CommitTransaction, sink: _Sink) -> Result:
        if (command.transaction, command.batch) == (sink.last_txn, sink.last_batch):
            return Result(Code.OK)  # proposed twice, or by another execution of the batch
        if not sink.is_open or (command.transaction, command.batch) != (
                sink.newest_txn, sink.open_batch):
            return refused(
                Code.STALE_TRANSACTION,
                f"transaction {command.transaction} of sink {sink.name!r} is not open for batch "
                f"{command.batch}: another one has taken over, or it was aborted",
                value=sink.newest_txn)
        winners = tuple(sorted(set(command.winners)))
        if len({winner.task for winner in winners}) != len(winners):
            return refused(Code.INVALID_REQUEST, "a task has one attempt that counts")
        known = sum(map(len, sink.winners.values()))
        if known + len(winners) > WINNERS_MAX:
            return over(f"repeated tasks of sink {sink.name!r}, which needs another name",
                        WINNERS_MAX, known + len(winners))
        if winners:
            sink.winners[command.transaction] = winners
        sink.last_batch, sink.last_txn, sink.stale = command.batch, command.transaction, ()
        sink.close()
        self._open.discard(command.sink)
        return Result(Code.OK)

    def _abort_transaction(self, command: AbortTransaction, sink: _Sink) -> Result:
        if sink.is_open and command.transaction == sink.newest_txn:
            sink.void_open()
            self._open.discard(command.sink)
        txn = TransactionRef(command.sink, command.transaction)
        return Result(Code.OK, self.known_state(txn) == COMMITTED)

    def _void_transactions(self, command: VoidTransactions) -> Result:
        """Make the transactions that were not opened void: all of them, or none when the limit
        would be exceeded. Opened ones are left alone."""
        new = {txn for txn in command.transactions if self.known_state(txn) == UNOPENED}
        if len(self._never) + len(new) > UNOPENED_VOID_MAX:
            return over("transactions that are void without having been opened", UNOPENED_VOID_MAX,
                        len(self._never) + len(new))
        self._never |= new
        return Result(Code.OK)

    # ---- questions ------------------------------------------------------------------------------

    def known_state(self, txn: TransactionRef) -> str:
        """Return the state of a transaction by the commands applied here.

        UNOPENED means that no applied command has opened it; commands that are not applied here yet
        may have.  O(log void ranges).
        """
        if not txn.sink or not txn.number or txn in self._never:
            return VOID  # numbers start at 1
        if txn.sink > len(self._sinks) or txn.number > self._sinks[txn.sink - 1].newest_txn:
            return UNOPENED
        return self._sinks[txn.sink - 1].state_of(txn.number)

    def state_of(self, txn: TransactionRef) -> TransactionState:
        """Return the state of a transaction for readers.

        A transaction that was not opened here is reported as OPEN, because another node may have
        applied its opening.  O(log void ranges).
        """
        state = self.known_state(txn)
        winners = (
            self._sinks[txn.sink - 1].winners.get(txn.number, ()) if state == COMMITTED else ()
        )
        return TransactionState(*txn, OPEN if state == UNOPENED else state, winners)

    def named(self, txn: TransactionRef) -> tuple[str, int]:
        """Return the name of a transaction's sink ("" = no sink has that number) and, while the
        transaction is open, its batch, else -1."""
        if not 0 < txn.sink <= len(self._sinks):
            return "", -1
        sink = self._sinks[txn.sink - 1]
        return sink.name, sink.open_batch if txn.number == sink.newest_txn else -1

    def staged(self) -> tuple[TopicEnds, ...]:
        """Return the topics that may hold records of open transactions, and from which offsets on.
        O(partitions of open transactions)."""
        found: dict[int, tuple[int, ...]] = {}
        for number in sorted(self._open):
            for incarnation, offsets in self._sinks[number - 1].topics.items():
                known = found.get(incarnation, offsets)
                found[incarnation] = tuple(map(min, known, offsets))
        return tuple(map(TopicEnds._make, found.items()))

    def open_transactions(self) -> tuple[TransactionRef, ...]:
        """Return the open transactions.  O(open transactions)."""
        return tuple(TransactionRef(number, self._sinks[number - 1].newest_txn)
                     for number in sorted(self._open))

    def rows(self, after: int, count_max: int) -> tuple[tuple[SinkRow, ...], bool]:
        """Return at most ``count_max`` sinks with numbers above ``after``, in order, and True if
        there are more. O(count)."""
        found = tuple(SinkRow(number, sink.name, sink.last_batch, sink.last_txn, sink.newest_txn,
                              sink.open_batch)
                      for number, sink in islice(self._numbered(after), count_max))
        return found, after + len(found) < len(self._sinks)

    def _numbered(self, after: int) -> Iterator[tuple[int, _Sink]]:
        for at in range(after, len(self._sinks)):
            yield at + 1, self._sinks[at]

    # ---- checkpoints ----------------------------------------------------------------------------

    def snapshot(self) -> dict:
        """Return the ledger as values that CBOR can encode.  O(sinks, their void ranges and
        winners)."""
        never = sorted(map(list, self._never))
        return {"stagings": self.stagings, "never_opened": never, "sinks": [
            [sink.name, sink.last_batch, sink.last_txn, sink.newest_txn, sink.open_batch,
             sink.nonce, [[topic, list(ends)] for topic, ends in sink.topics.items()],
             list(map(list, sink.voids)),
             [[txn, *winner] for txn, each in sink.winners.items() for winner in each],
             list(sink.stale), [[task, list(ids)] for task, ids in sink.attempts.items()]]
            for sink in self._sinks]}

    def fill(self, snapshot: dict) -> None:
        """Restore the ledger from a snapshot.  Raises ``ValueError`` when the snapshot is
        malformed."""
        shapes.check(snapshot, _SHAPE, "sinks")
        self.stagings = snapshot["stagings"]
        never = snapshot.get("never_opened", [])
        shapes.check(never, [_PAIR], "never_opened")
        self._never = {TransactionRef(sink, txn) for sink, txn in never}
        for (name, last_batch, last_txn, newest_txn, open_batch, nonce, topics, voids, winners,
             stale, attempts) in snapshot["sinks"]:
            sink = _Sink(name)
            sink.last_batch, sink.last_txn, sink.newest_txn = last_batch, last_txn, newest_txn
            sink.open_batch, sink.nonce, sink.stale = open_batch, nonce, tuple(stale)
            sink.topics = {topic: tuple(ends) for topic, ends in topics}
            sink.attempts = {task: tuple(ids) for task, ids in attempts}
            sink.voids = [(first, last) for first, last in voids]
            for txn, task, attempt in winners:
                sink.winners[txn] = (*sink.winners.get(txn, ()), Winner(task, attempt))
            self._sinks.append(sink)
            self._numbers[name] = len(self._sinks)
            if sink.is_open:
                self._open.add(len(self._sinks))

    def _check(self) -> None:
        """Assert every invariant.  O(sinks, their void ranges and winners); for tests."""
        assert len(self._numbers) == len(self._sinks) <= SINKS_MAX
        assert len(self._never) <= UNOPENED_VOID_MAX
        assert not any(TransactionRef(number, sink.newest_txn) in self._never
                       for number, sink in self._numbered(0)), "it was opened all the same"
        assert self.stagings >= sum(sink.newest_txn - self._passed_over(number, sink)
                                    + len(sink.topics) for number, sink in self._numbered(0))
        for number, sink in self._numbered(0):
            assert self._numbers[sink.name] == number
            assert sink.is_open == (number in self._open)
            assert sink.is_open or not (sink.topics or sink.attempts), f"{sink.name} is not open"
            assert len(sink.attempts) <= TASKS_PER_TRANSACTION_MAX
            assert all(0 < len(set(ids)) == len(ids) <= layout.STAGED_ATTEMPTS_MAX + 1
                       for ids in sink.attempts.values())
            assert (sink.last_batch < 0) == (sink.last_txn == 0)
            assert sink.last_txn <= sink.newest_txn - sink.is_open
            assert not sink.is_open or sink.open_batch > sink.last_batch
            assert len(sink.voids) <= VOID_RANGES_MAX and len(sink.stale) <= STALE_NONCES_MAX
            ends = [txn for each in sink.voids for txn in each]
            assert ends == sorted(ends) and all(0 < txn <= sink.newest_txn for txn in ends)
            assert all(later[0] > before[1] + 1
                       for before, later in zip(sink.voids, sink.voids[1:], strict=False))
            assert sum(map(len, sink.winners.values())) <= WINNERS_MAX
            assert all(sink.state_of(txn) == COMMITTED
                       and TransactionRef(number, txn) not in self._never for txn in sink.winners)

    def _passed_over(self, number: int, sink: _Sink) -> int:
        return sum(txn.sink == number and txn.number <= sink.newest_txn for txn in self._never)


def _first(span: tuple[int, int]) -> int:
    return span[0]


def _too_many(known: dict[int, tuple[int, ...]], command: BeginTransaction) -> Result | None:
    """Return the refusal of a task or attempt above the limits of ids and memory; None = within
    them."""
    attempts = known.get(command.task, ())
    if command.task < 0 or command.attempt_id in attempts:
        return None
    if len(attempts) > layout.STAGED_ATTEMPTS_MAX:
        return over("attempts of a task", layout.STAGED_ATTEMPTS_MAX + 1, len(attempts) + 1)
    if not attempts and len(known) >= TASKS_PER_TRANSACTION_MAX:
        return over("tasks of a transaction", TASKS_PER_TRANSACTION_MAX, len(known) + 1)
    return None
