"""Writing batches that become visible at once, with the blocking client: what jobs do that are run
again when they fail.

    run = open_run(client, "delays", batch=7, nonce=nonce, task=3)    # each attempt of each task
    if not run.committed:
        run.stages_in(client, "delays")
        with client.producer(identity=run.identity) as producer:
            ...
    commit_run(client, run.sink, run.number, 7, {3: run.attempt})     # who has all tasks' answers

Contract.  Records that are sent under ``identity`` are seen by readers of committed records once
``commit_run`` has been taken, all of them at once, or never.  ``nonce`` is random and common to the
tasks of one run.  An attempt of a task stages its records once: what failed is opened again, and is
another attempt; the ledger numbers them.  ``abort_run`` says whether the run was committed, and
changes nothing then.

Elsewhere.  The ledger is ``node/metadata/transaction_table.py``, why it is so ``decisions/0040``.
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

#: A plan that new runs overtake is made again so often; then it may end inside of a run, and its
#: reader waits for that.
PLANS_MAX = 10


class Run:
    """One run of a batch, as a task knows it."""

    def __init__(self, request: OpenRun, reply: OpenRunReply):
        self.sink = reply.sink
        self.number = reply.run
        self.committed = reply.state == COMMITTED  # before: there is nothing to do
        self.task = max(0, request.task)
        self.attempt = reply.attempt
        self._request = request
        self._topics = set(reply.topics)
        self._names: set[str] = set()  # of topics that were looked at

    @property
    def identity(self) -> tuple[int, int]:
        """The producer identity of this attempt."""
        return identity_of(self.sink, self.number, self.task, self.attempt)

    def stages_in(self, client: Client, topic: str) -> None:
        """Say so before the first record: plans of reads end before it.  One entry of the metadata
        for each topic of a run, whichever task is the first.  Raises ``UnknownTopic``,
        ``StaleRun``, ``LimitExceeded``."""
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
        """Raises ``StaleRun`` when the batch was decided meanwhile."""
        if reply.run != self.number or reply.state == COMMITTED:
            raise StaleRun(f"run {self.number} of sink {self._request.sink!r} is over")


def open_run(client: Client, sink: str, batch: int, nonce: bytes, task: int = 0) -> Run:
    """Begin a run of a batch, or join it, as a new attempt of ``task``.  One entry of the metadata.
    Raises ``StaleRun`` when another run has taken over or a later batch is committed,
    ``LimitExceeded``."""
    attempt_id = int.from_bytes(os.urandom(8), "big")
    request = OpenRun(sink, batch, nonce, (), task, attempt_id)
    return Run(request, client.sink_request(request))


def commit_run(client: Client, sink: int, run: int, batch: int,
               attempts: Mapping[int, int] | None = None) -> None:
    """The run is the batch's.  ``attempts``: of tasks whose attempt is not the first, 0.  Raises
    ``StaleRun`` when it was given up, ``AmbiguousOutcome`` when nobody knows: ask again."""
    winners = tuple(Winner(task, attempt)
                    for task, attempt in sorted((attempts or {}).items()) if attempt)
    client.sink_request(CommitRun(sink, run, batch, winners))


def abort_run(client: Client, sink: int, run: int) -> bool:
    """Give a run up; True = it is committed, and stays so."""
    return client.sink_request(AbortRun(sink, run)).committed


def run_facts(client: Client, runs: Iterable[RunRef]) -> dict[RunRef, RunFact]:
    """What the metadata leader says of runs; changes nothing.  Raises ``Unsupported`` or
    ``InvalidRequest`` when the nodes are of an earlier release."""
    asked = list(dict.fromkeys(runs))
    facts: dict[RunRef, RunFact] = {}
    for at in range(0, len(asked), SETTLED_PER_REQUEST_MAX):
        some = tuple(asked[at:at + SETTLED_PER_REQUEST_MAX])
        reply = client.sink_request(SettleRuns(some, False))
        facts.update((RunRef(fact.sink, fact.run), fact) for fact in reply.runs)
    return facts


def sinks(client: Client) -> list[SinkRow]:
    """All sinks, in the order of their first runs."""
    found: list[SinkRow] = []
    while True:
        reply = client.sink_request(SinkList(found[-1].sink if found else 0))
        found += reply.sinks
        if not reply.more:
            return found


class CommittedRanges(NamedTuple):
    """What ``offset_ranges`` gives, and for partitions in which open runs stage the offset before
    which everything is decided, by topic and partition."""

    known: dict[str, tuple[TopicMetadata, dict[int, OffsetRange]]]
    decided: dict[tuple[str, int], int]


def committed_ranges(client: Client, names: Sequence[str]) -> CommittedRanges:
    """The readable ranges, and where open runs may have begun.  A run that is open now is behind
    ``decided`` with all of its records, one that was committed before with none.  While the
    metadata group cannot be asked nothing is known of open runs: who reads waits for what they
    have staged.  O(partitions)."""
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
    """What open runs stage in; None = nobody can tell, or the node knows no sinks."""
    try:
        return client.sink_request(StagedTopics())
    except (RequestError, AmbiguousOutcome):
        return None
