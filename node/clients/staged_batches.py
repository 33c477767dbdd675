"""The check of staged batches before they are appended: only those of open transactions are taken.

Contract. ``waits`` is called for each staged batch. It raises the refusal of a batch whose
transaction is decided, and returns False for one whose transaction is open. Otherwise it keeps the
batch and calls ``resume(error)`` once, later, with the refusal or None. Batches of one transaction
are resumed in order of arrival.

Invariants. A batch is refused as part of a transaction that was never opened only after the
metadata leader has answered a question that was sent after the batch arrived. A node that is behind
therefore never refuses the batch of a transaction that was just opened. One question is in flight
at a time, for all transactions together.

Theory. A transaction gets its number only when the command that opens it is committed, so an
earlier batch under that number is invented. A producer that learned the number from the metadata
leader's reply also sends the index of that metadata, and the node waits for that index, bounded in
time. The question to the metadata leader serves producers that learned the number in another way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any, NamedTuple, Protocol

from multiraft.errors import InvalidBatch, MultiRaftError, QueueFull
from multiraft.types import BatchInfo
from multiraft.wire.sinks import (
    OPEN,
    RESOLVED_PER_REQUEST_MAX,
    UNOPENED,
    ResolveTransactions,
    TransactionDescription,
    TransactionRef,
    transaction_ref,
)
from node.clients.error_codes import StaleMetadata, StaleTransaction
from node.clients.metadata_wait import METADATA_WAIT_S, AppliedMetadata, Background
from node.clients.router import MetadataCopy

#: Batches that wait for the metadata leader; their bytes count as those of appends in flight. A
#: transaction that was just opened waits for one round trip, so few batches wait.
WAITING_MAX = 1_024
#: Time for the metadata leader to reply, in seconds: an election and a confirmation, and less than
#: producers wait.
ASK_S = 5.0

Resume = Callable[[Exception | None], None]


class Metadata(AppliedMetadata, MetadataCopy, Protocol):
    """This node's copy of the metadata, and waits for newer ones."""


class MetadataLeader(Protocol):
    """Requests to the metadata leader."""

    async def ask_within(self, request: Any, timeout_s: float) -> Any:
        """Return the reply, None without one in time. Raises ``MultiRaftError`` for a refusal."""


class _Batch(NamedTuple):
    """A batch that waits."""

    seen_index: int  # the newest metadata that its producer knows of
    resume: Resume


class StagedBatches:
    """Staged batches of one node that wait until the state of their transaction is known."""

    def __init__(self, metadata_log: Metadata, requests: MetadataLeader,
                 background: Background, request_round: Callable[[], None]):
        self._metadata_log = metadata_log
        self._requests = requests
        self._background = background
        self._request_round = request_round
        self._waiting: dict[TransactionRef, deque[_Batch]] = {}
        self._asking = False
        self.count = 0  # batches that wait
        self.refused = 0  # batches of transactions that were never opened

    def waits(self, info: BatchInfo, seen_index: int, resume: Resume) -> bool:
        """Return True if a staged batch was kept, and False if its transaction is open. A kept
        batch has ``resume`` called later: with None to append it, or with the error that refuses
        it.

        Raises ``StaleTransaction`` for a decided transaction, ``StaleMetadata`` if no question can
        be sent, ``QueueFull`` with limit and value. O(log void ranges)."""
        txn = transaction_ref(info.producer_id, info.producer_epoch)
        if txn not in self._waiting:
            state = self._state(txn)
            if state == OPEN:
                return False
            if state != UNOPENED:
                raise _decided(txn, state)
        if self.count >= WAITING_MAX:
            raise QueueFull("batches of transactions that this node has not heard of", WAITING_MAX,
                            self.count + 1)
        if not self._asking and not self._background.start(self._ask):
            raise StaleMetadata(f"this node has not heard of {_name(txn)} and has no room to ask")
        self._asking = True
        self.count += 1
        self._waiting.setdefault(txn, deque()).append(_Batch(seen_index, resume))
        return True

    def _state(self, txn: TransactionRef) -> str:
        return self._metadata_log.state.sinks.known_state(txn)

    async def _ask(self) -> None:
        try:
            while self._waiting:
                await self._ask_once()
                self._request_round()  # a round sends the appends and refusals
        finally:
            self._asking = False

    async def _ask_once(self) -> None:
        """Decide about the batches that wait now, with one question to the metadata leader if this
        node still does not know their transactions. Later batches are decided by the next question.
        """
        txns = list(islice(self._waiting, RESOLVED_PER_REQUEST_MAX))
        counts = [len(self._waiting[txn]) for txn in txns]
        seen = max(batch.seen_index for txn in txns for batch in self._waiting[txn])
        await self._metadata_log.applied(seen, METADATA_WAIT_S)
        descriptions = await self._descriptions(
            tuple(txn for txn in txns if self._state(txn) == UNOPENED)
        )
        for txn, count in zip(txns, counts, strict=True):
            self._resume(txn, count, self._refusal(txn, descriptions.get(txn)))

    async def _descriptions(
        self, txns: tuple[TransactionRef, ...]
    ) -> dict[TransactionRef, TransactionDescription]:
        """Return the metadata leader's answer about transactions, after this node has applied the
        metadata that the answer is from; empty without an answer."""
        if not txns:
            return {}
        try:
            reply = await self._requests.ask_within(ResolveTransactions(txns, False), ASK_S)
        except MultiRaftError:
            return {}  # ``_refusal`` asks the producers to retry
        if reply is None:
            return {}
        await self._metadata_log.applied(reply.index, METADATA_WAIT_S)
        return {
            TransactionRef(description.sink, description.transaction): description
            for description in reply.transactions
        }

    def _refusal(
        self, txn: TransactionRef, description: TransactionDescription | None
    ) -> Exception | None:
        """Return the error that refuses the waiting batches of a transaction; None = it is open.
        ``description`` None: the metadata leader did not answer."""
        state = self._state(txn)
        if state == OPEN:
            return None
        if state != UNOPENED:
            return _decided(txn, state)
        if description is None or description.state != UNOPENED:
            return StaleMetadata(f"this node has not heard of {_name(txn)}, and the metadata "
                                 f"leader has not said whether it was opened")
        return InvalidBatch(f"a batch of {_name(txn)}, which was never opened")

    def _resume(self, txn: TransactionRef, count: int, refusal: Exception | None) -> None:
        """Remove the first ``count`` waiting batches of a transaction, or all of them if it is
        open, and call their ``resume`` with ``refusal``."""
        queue = self._waiting.pop(txn)
        decided = [queue.popleft() for _ in range(len(queue) if refusal is None else count)]
        if queue:
            self._waiting[txn] = queue
        self.count -= len(decided)
        self.refused += len(decided) * (type(refusal) is InvalidBatch)
        for batch in decided:
            batch.resume(refusal)


def _name(txn: TransactionRef) -> str:
    return f"transaction {txn.number} of sink {txn.sink}"


def _decided(txn: TransactionRef, state: str) -> StaleTransaction:
    return StaleTransaction(f"{_name(txn)} is {state}: it takes no more batches")
