"""Transactions of sinks, with the blocking client: batches that become visible at once, for jobs
that are repeated when they fail.

    run = open_run(client, "delays", batch=7, nonce=nonce, task=3)    # in each attempt of a task
    if not run.committed:
        run.stages_in(client, "delays")
        with client.producer(identity=run.identity) as producer:
            ...
    commit_run(client, run.sink, run.number, 7, {3: run.attempt})     # after all tasks succeeded

Contract.  A transaction is a ``Run`` in names of this module.  Records that are sent under
``identity`` are visible to readers of committed records after ``commit_run``, all of them at once,
or never.  ``nonce`` is random and common to the tasks of one transaction.  An attempt of a task
stages its records once.  A task that failed opens the transaction again and is another attempt; the
sink ledger numbers attempts.  ``abort_run`` returns True if the transaction was committed, and
changes nothing then.  Errors and retries as in ``multiraft.client``.

Elsewhere.  The ledger is ``node/metadata/transaction_table.py``, its reasons ``decisions/0040``.
"""

from __future__ import annotations

import os
from typing import Iterable, Mapping, NamedTuple, Sequence

from multiraft.client._operations import OffsetRange
from multiraft.client._runs import identity_of
from multiraft.client.blocking import Client
from multiraft.client.ranges import offset_ranges
from multiraft.wire.errors import AmbiguousOutcome, RequestError, StaleRun
from multiraft.wire.messages import TopicMetadata
from multiraft.wire.sinks import (
    COMMITTED,
    NONCE_BYTES,
    SETTLED_PER_REQUEST_MAX,
    AbortRun,
    CommitRun,
    OpenRun,
    OpenRunReply,
    RunFact,
    RunRef,
    SettleRuns,
    SinkList,
    SinkRow,
    StagedTopics,
    StagedTopicsReply,
    TopicEnds,
    Winner,
)

__all__ = ["NONCE_BYTES", "CommittedRanges", "Run", "RunFact", "RunRef", "SinkRow", "abort_run",
           "commit_run", "committed_ranges", "identity_of", "open_run", "run_facts", "sinks"]

#: Attempts to compute ranges while new transactions are opened.  After the last one, a range may
#: end inside of an open transaction, and its reader waits for the decision.
PLANS_MAX = 10


class Run:
    """Transaction (run) of a sink's batch in one attempt of a task.

    ``sink`` and ``number``: of the sink and of the transaction; ``task``, ``attempt``: of this
    attempt; ``committed``: the batch was committed before, so there is nothing to stage."""

    def __init__(self, request: OpenRun, reply: OpenRunReply):
        self.sink = reply.sink
        self.number = reply.run
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
        so that ``committed_ranges`` end before them.  Costs one entry of the metadata group per
        topic and transaction.  Raises ``UnknownTopic``, ``StaleRun``, ``LimitExceeded``."""
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

    def _check_same(self, reply: OpenRunReply) -> None:
        """Raise ``StaleRun`` if the batch was decided meanwhile."""
        if reply.run != self.number or reply.state == COMMITTED:
            raise StaleRun(f"run {self.number} of sink {self._request.sink!r} is over")


def open_run(client: Client, sink: str, batch: int, nonce: bytes, task: int = 0) -> Run:
    """Open the transaction of a sink's ``batch``, or join it (same ``nonce`` of ``NONCE_BYTES``),
    as a new attempt of ``task``.  Fences the sink's earlier open transaction.  Costs one entry of
    the metadata group.  Raises ``StaleRun`` when another transaction has taken over or a later
    batch is committed, ``LimitExceeded``."""
    attempt_id = int.from_bytes(os.urandom(8), "big")
    request = OpenRun(sink, batch, nonce, (), task, attempt_id)
    return Run(request, client.sink_request(request))


def commit_run(client: Client, sink: int, run: int, batch: int,
               attempts: Mapping[int, int] | None = None) -> None:
    """Commit a transaction: its records become visible.  ``attempts``: task -> attempt that counts,
    for tasks whose attempt is not 0.  Idempotent.  Raises ``StaleRun`` when the transaction is
    void, ``AmbiguousOutcome`` when no answer came in 10 s: call it again."""
    winners = tuple(Winner(task, attempt)
                    for task, attempt in sorted((attempts or {}).items()) if attempt)
    client.sink_request(CommitRun(sink, run, batch, winners))


def abort_run(client: Client, sink: int, run: int) -> bool:
    """Abort a transaction: its records never become visible.  Returns True if it was committed
    before, and stays so.  Idempotent."""
    return client.sink_request(AbortRun(sink, run)).committed


def run_facts(client: Client, runs: Iterable[RunRef]) -> dict[RunRef, RunFact]:
    """Return the states of transactions, as the metadata leader knows them; changes nothing.
    Raises ``Unsupported`` or ``InvalidRequest`` when the nodes are of an earlier release."""
    asked = list(dict.fromkeys(runs))
    facts: dict[RunRef, RunFact] = {}
    for at in range(0, len(asked), SETTLED_PER_REQUEST_MAX):
        some = tuple(asked[at:at + SETTLED_PER_REQUEST_MAX])
        reply = client.sink_request(SettleRuns(some, False))
        facts.update((RunRef(fact.sink, fact.run), fact) for fact in reply.runs)
    return facts


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
    return CommittedRanges(known, decided)


def _staged(client: Client) -> StagedTopicsReply | None:
    """Return the topics in which open transactions stage records; None = no node can answer, or
    the node is of a release without sinks."""
    try:
        return client.sink_request(StagedTopics())
    except (RequestError, AmbiguousOutcome):
        return None
