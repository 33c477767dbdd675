"""Transactions of sinks, with the blocking client: batches that become visible at once, for jobs
that are repeated when they fail.

    # in each attempt of a task
    transaction = begin_transaction(client, "delays", batch=7, nonce=nonce, task=3)
    if not transaction.committed:
        transaction.stages_in(client, "delays")
        with client.producer(identity=transaction.identity) as producer:
            ...
    # after all tasks succeeded
    commit_transaction(client, transaction.sink, transaction.number, 7, {3: transaction.attempt})

Contract.  Records that are sent under ``identity`` are visible to readers of committed records
after ``commit_transaction``, all of them at once, or never.  ``nonce`` is random and common to the
tasks of one transaction.  An attempt of a task stages its records once.  A task that failed opens
the transaction again and is another attempt; the sink ledger numbers attempts.
``abort_transaction`` returns True if the transaction was committed, and changes nothing then.
Errors and retries as in ``multiraft.client``.

Elsewhere.  The ledger is ``node/metadata/transaction_table.py``, its reasons ``decisions/0040``.
"""

from __future__ import annotations

import os
from typing import Iterable, Mapping, NamedTuple, Sequence

from multiraft.client._operations import OffsetRange
from multiraft.client._transactions import identity_of
from multiraft.client.blocking import Client
from multiraft.client.ranges import offset_ranges
from multiraft.wire.errors import AmbiguousOutcome, RequestError, StaleTransaction
from multiraft.wire.messages import TopicMetadata
from multiraft.wire.sinks import (
    COMMITTED,
    NONCE_BYTES,
    RESOLVED_PER_REQUEST_MAX,
    AbortTransaction,
    BeginTransaction,
    BeginTransactionReply,
    CommitTransaction,
    ResolveTransactions,
    SinkList,
    SinkRow,
    StagedTopics,
    StagedTopicsReply,
    TopicEnds,
    TransactionDescription,
    TransactionRef,
    Winner,
)

__all__ = ["NONCE_BYTES", "CommittedRanges", "SinkRow", "Transaction", "TransactionDescription",
           "TransactionRef", "abort_transaction", "begin_transaction", "commit_transaction",
           "committed_ranges", "describe_transactions", "identity_of", "sinks"]

#: Attempts to compute ranges while new transactions are opened.  After the last one, a range may
#: end inside of an open transaction, and its reader waits for the decision.
PLANS_MAX = 10


class Transaction:
    """Transaction of a sink's batch in one attempt of a task.

    ``sink`` and ``number``: of the sink and of the transaction; ``task``, ``attempt``: of this
    attempt; ``committed``: the batch was committed before, so there is nothing to stage."""

    def __init__(self, request: BeginTransaction, reply: BeginTransactionReply):
        self.sink = reply.sink
        self.number = reply.transaction
        self.committed = reply.state == COMMITTED  # before this call
        self.task = max(0, request.task)
        self.attempt = reply.attempt
        self._request = request
        self._topics = set(reply.topics)
        self._names: set[str] = set()  # of topics that ``stages_in`` has checked

    @property
    def identity(self) -> tuple[int, int]:
        """Producer id and epoch of this attempt, for the setting ``identity`` of a producer."""
        return identity_of(self.sink, self.number, self.task, self.attempt)

    def stages_in(self, client: Client, topic: str) -> None:
        """Announce that the transaction stages records in ``topic``; call it before the first one,
        so that ``committed_ranges`` end before them. Costs one entry of the metadata group per
        topic and transaction.

        Raises ``UnknownTopic``, ``StaleTransaction`` if the transaction is over, ``LimitExceeded``
        if it has too many topics or partitions."""
        if topic in self._names:
            return
        metadata = client.topic_metadata(topic)
        if metadata.incarnation not in self._topics:
            ends = client.list_offsets(topic)
            row = TopicEnds(metadata.incarnation,
                            tuple(ends[number].end_offset for number in sorted(ends)))
            reply = client.sink_request(self._request._replace(topics=(row,)))
            self._check_same(reply)
            self._topics = set(reply.topics)
        self._names.add(topic)

    def _check_same(self, reply: BeginTransactionReply) -> None:
        """Raise ``StaleTransaction`` if the batch was committed, or another transaction took over,
        meanwhile."""
        if reply.transaction != self.number or reply.state == COMMITTED:
            raise StaleTransaction(
                f"transaction {self.number} of sink {self._request.sink!r} is over"
            )


def begin_transaction(client: Client, sink: str, batch: int, nonce: bytes,
                      task: int = 0) -> Transaction:
    """Begin the transaction of a sink's ``batch``, or join it (same ``nonce`` of ``NONCE_BYTES``),
    as a new attempt of ``task``. Fences the sink's earlier open transaction. Costs one entry of the
    metadata group. Raises ``StaleTransaction`` when another transaction has taken over or a later
    batch is committed, ``LimitExceeded`` when a limit of the sink ledger is reached."""
    attempt_id = int.from_bytes(os.urandom(8), "big")
    request = BeginTransaction(sink, batch, nonce, (), task, attempt_id)
    return Transaction(request, client.sink_request(request))


def commit_transaction(client: Client, sink: int, transaction: int, batch: int,
                       attempts: Mapping[int, int] | None = None) -> None:
    """Commit a transaction: its records become visible.  ``attempts``: task -> attempt that counts,
    for tasks whose attempt is not 0.  Idempotent.  Raises ``StaleTransaction`` when the transaction
    is void, ``AmbiguousOutcome`` when no answer came in 10 s: call it again."""
    winners = tuple(Winner(task, attempt)
                    for task, attempt in sorted((attempts or {}).items()) if attempt)
    client.sink_request(CommitTransaction(sink, transaction, batch, winners))


def abort_transaction(client: Client, sink: int, transaction: int) -> bool:
    """Abort a transaction: its records never become visible.  Returns True if it was committed
    before, and stays so.  Idempotent."""
    return client.sink_request(AbortTransaction(sink, transaction)).committed


def describe_transactions(
        client: Client, transactions: Iterable[TransactionRef],
) -> dict[TransactionRef, TransactionDescription]:
    """Return the states of transactions, as the metadata leader knows them; changes nothing.
    Raises ``Unsupported`` or ``InvalidRequest`` when the nodes are of an earlier release."""
    asked = list(dict.fromkeys(transactions))
    descriptions: dict[TransactionRef, TransactionDescription] = {}
    for at in range(0, len(asked), RESOLVED_PER_REQUEST_MAX):
        some = tuple(asked[at:at + RESOLVED_PER_REQUEST_MAX])
        reply = client.sink_request(ResolveTransactions(some, False))
        descriptions.update((TransactionRef(found.sink, found.transaction), found)
                            for found in reply.transactions)
    return descriptions


def sinks(client: Client) -> list[SinkRow]:
    """Return all sinks, in the order of their first transactions.  O(sinks), in pages of 1,000."""
    found: list[SinkRow] = []
    while True:
        reply = client.sink_request(SinkList(found[-1].sink if found else 0))
        found += reply.sinks
        if not reply.more:
            return found


class CommittedRanges(NamedTuple):
    """Result of ``offset_ranges``, and ``decided``: for partitions in which open transactions stage
    records, the offset below which all batches are decided, by (topic, partition)."""

    known: dict[str, tuple[TopicMetadata, dict[int, OffsetRange]]]
    decided: dict[tuple[str, int], int]


def committed_ranges(client: Client, names: Sequence[str]) -> CommittedRanges:
    """Return the readable ranges of topics, and the offsets from which open transactions may have
    staged records.  All records of a transaction that is open now are at or after ``decided``; none
    of one that was committed before is.  While the metadata group does not answer, ``decided`` is
    empty, and readers wait for staged records.  O(partitions)."""
    before = _staged(client)
    for _ in range(PLANS_MAX):
        known = offset_ranges(client, names)
        after = _staged(client) if before is not None else None
        if after is None or before is None or after.version == before.version:
            break
        before = after
    decided: dict[tuple[str, int], int] = {}
    by_incarnation = {topic.incarnation: name for name, (topic, _) in known.items()}
    for row in before.topics if before is not None else ():
        name = by_incarnation.get(row.incarnation)
        if name is not None:
            decided.update(((name, number), offset) for number, offset in enumerate(row.offsets))
            # Partitions that were added since the transaction began may have its records from 0 on.
            count = len(known[name][0].partitions)
            decided.update(((name, number), 0) for number in range(len(row.offsets), count))
    return CommittedRanges(known, decided)


def _staged(client: Client) -> StagedTopicsReply | None:
    """Return the topics in which open transactions stage records; None = no node can answer, or
    the node is of a release without sinks."""
    try:
        return client.sink_request(StagedTopics())
    except (RequestError, AmbiguousOutcome):
        return None


#: Names of earlier versions.
Run, RunRef, RunFact, StaleRun = (
    Transaction, TransactionRef, TransactionDescription, StaleTransaction)
open_run, commit_run, abort_run, run_facts = (
    begin_transaction, commit_transaction, abort_transaction, describe_transactions)
