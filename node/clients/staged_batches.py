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
from typing import NamedTuple

import trio

from multiraft.errors import InvalidBatch, MultiRaftError, QueueFull
from multiraft.types import BatchInfo
from multiraft.wire.sinks import (
    OPEN,
    SETTLED_PER_REQUEST_MAX,
    UNOPENED,
    RunFact,
    RunRef,
    SettleRuns,
    run_ref,
)
from node.clients.error_codes import StaleMetadata, StaleRun
from node.clients.metadata_wait import METADATA_WAIT_S
from node.cluster.metadata_client import MetadataRequests
from node.loop.background import Background
from node.metadata.log import MetadataLog

#: Batches that wait for the metadata leader; their bytes count as those of appends in flight. A
#: transaction that was just opened waits for one round trip, so few batches wait.
WAITING_MAX = 1_024
#: Time for the metadata leader to reply, in seconds: an election and a confirmation, and less than
#: producers wait.
ASK_S = 5.0

Resume = Callable[[Exception | None], None]


class _Batch(NamedTuple):
    """A batch that waits."""

    seen_index: int  # the newest metadata that its producer knows of
    resume: Resume


class StagedBatches:
    """The waiting staged batches of one node."""

    def __init__(self, metadata_log: MetadataLog, requests: MetadataRequests,
                 background: Background, request_round: Callable[[], None]):
        self._metadata_log = metadata_log
        self._requests = requests
        self._background = background
        self._request_round = request_round
        self._waiting: dict[RunRef, deque[_Batch]] = {}
        self._asking = False
        self.count = 0  # batches that wait
        self.refused = 0  # batches of transactions that were never opened

    def waits(self, info: BatchInfo, seen_index: int, resume: Resume) -> bool:
        """Return True if a staged batch was kept and ``resume`` will be called; False if its
        transaction is open. Raises ``StaleRun`` for a decided transaction, ``StaleMetadata`` if no
        question can be sent, ``QueueFull`` with limit and value. O(log void ranges)."""
        run = run_ref(info.producer_id, info.producer_epoch)
        if run not in self._waiting:
            state = self._state(run)
            if state == OPEN:
                return False
            if state != UNOPENED:
                raise _decided(run, state)
        if self.count >= WAITING_MAX:
            raise QueueFull("batches of runs that this node has not heard of", WAITING_MAX,
                            self.count + 1)
        if not self._asking and not self._background.start(self._ask):
            raise StaleMetadata(f"this node has not heard of {_name(run)} and has no room to ask")
        self._asking = True
        self.count += 1
        self._waiting.setdefault(run, deque()).append(_Batch(seen_index, resume))
        return True

    def _state(self, run: RunRef) -> str:
        return self._metadata_log.state.sinks.known_state(run)

    async def _ask(self) -> None:
        try:
            while self._waiting:
                await self._ask_once()
                self._request_round()  # a round sends the appends and refusals
        finally:
            self._asking = False

    async def _ask_once(self) -> None:
        """Decide about the batches that wait now; later ones are decided by the next question."""
        runs = list(islice(self._waiting, SETTLED_PER_REQUEST_MAX))
        counts = [len(self._waiting[run]) for run in runs]
        seen = max(batch.seen_index for run in runs for batch in self._waiting[run])
        await self._metadata_log.applied(seen, METADATA_WAIT_S)
        facts = await self._facts(tuple(run for run in runs if self._state(run) == UNOPENED))
        for run, count in zip(runs, counts, strict=True):
            self._resume(run, count, self._refusal(run, facts.get(run)))

    async def _facts(self, runs: tuple[RunRef, ...]) -> dict[RunRef, RunFact]:
        """Return the metadata leader's answer about transactions, after this node has applied the
        metadata that the answer is from; empty without an answer."""
        reply = None
        with trio.move_on_after(ASK_S):
            try:
                reply = await self._requests.ask(SettleRuns(runs, False)) if runs else None
            except MultiRaftError:
                return {}  # ``_refusal`` asks the producers to retry
        if reply is None:
            return {}
        await self._metadata_log.applied(reply.index, METADATA_WAIT_S)
        return {RunRef(fact.sink, fact.run): fact for fact in reply.runs}

    def _refusal(self, run: RunRef, fact: RunFact | None) -> Exception | None:
        """Return the reason for which batches of a transaction are not appended; None = it is
        open."""
        state = self._state(run)
        if state == OPEN:
            return None
        if state != UNOPENED:
            return _decided(run, state)
        if fact is None or fact.state != UNOPENED:
            return StaleMetadata(f"this node has not heard of {_name(run)}, and the metadata "
                                 f"leader has not said whether it was opened")
        return InvalidBatch(f"a batch of {_name(run)}, which nobody has opened")

    def _resume(self, run: RunRef, count: int, refusal: Exception | None) -> None:
        """Resume the first ``count`` batches of a transaction, or all of them if it is open."""
        queue = self._waiting.pop(run)
        decided = [queue.popleft() for _ in range(len(queue) if refusal is None else count)]
        if queue:
            self._waiting[run] = queue
        self.count -= len(decided)
        self.refused += len(decided) * (type(refusal) is InvalidBatch)
        for batch in decided:
            batch.resume(refusal)


def _name(run: RunRef) -> str:
    return f"run {run.run} of sink {run.sink}"


def _decided(run: RunRef, state: str) -> StaleRun:
    return StaleRun(f"{_name(run)} is {state}: it takes no more batches")
