"""Requests and responses about sinks: writers whose batches become visible at once.

Contract.  As ``messages.py``, whose tables take in ``REQUESTS`` and ``RESPONSES``.

Theory.  A *sink* is a writer that outlives its process; it numbers its *batches*.  A *run* is one
attempt at a batch, with a number that the ledger hands out; it fences the runs before it.  What a
run stages in the topics carries that number and is seen by readers of committed rows once the
ledger says that the run is the batch's (``decisions/0040``).
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft.codec import layout
from multiraft.wire import schema
from multiraft.wire.schema import Shape, list_of, row

#: Name of a sink; Spark's ids of queries have 36 characters.
SINK_NAME_MAX = 249
#: A run is begun by several tasks; what they have in common is random and so long.
NONCE_BYTES = 16
#: Tasks whose attempt was not the first one, in one commit.
WINNERS_PER_RUN_MAX = 1_024
#: Runs in one question.
RUNS_PER_REQUEST_MAX = 1_000
#: Topics that one run stages in, and partitions of these together.
TOPICS_PER_RUN_MAX = 256
ENDS_MAX = 10_000
#: Partitions that all open runs stage in: one answer names them.
STAGED_ENDS_MAX = 50_000
#: Sinks in one answer.
SINKS_PER_REPLY_MAX = 1_000

#: What is known of a run.  Nothing known is OPEN: the node may be behind.
OPEN, COMMITTED, VOID = "open", "committed", "void"
#: What only the metadata leader can say: nobody has opened the run.
UNOPENED = "unopened"
#: Runs in one question to the metadata leader.
SETTLED_PER_REQUEST_MAX = 100
#: Why a run stands as it does, in words.
WHY_MAX = 300


class TopicEnds(NamedTuple):
    """A topic's life, and an offset of each of its partitions below which nothing is staged."""

    incarnation: int
    offsets: tuple[int, ...]


class Winner(NamedTuple):
    """Which attempt of a task is the one whose records count."""

    task: int
    attempt: int


class OpenRun(NamedTuple):
    """Begin a run of a batch, or join it (same ``nonce``); ``topics`` are added to what it stages
    in.  An open run of the sink with another nonce becomes void.  ``task``: who joins is an attempt
    of that task, ``attempt_id`` a random number of its own; -1 = nobody's."""

    sink: str
    batch: int
    nonce: bytes
    topics: tuple[TopicEnds, ...] = ()
    task: int = -1
    attempt_id: int = 0


class CommitRun(NamedTuple):
    """The run is the batch's: its records are visible, of task attempts 0, or as ``winners`` say.
    Repeating it changes nothing."""

    sink: int
    run: int
    batch: int
    winners: tuple[Winner, ...] = ()


class AbortRun(NamedTuple):
    """The run is void, unless it was committed."""

    sink: int
    run: int


class RunRef(NamedTuple):
    """A run of a sink, both by number."""

    sink: int
    run: int


_TASK_AT = layout.STAGED_ATTEMPT_BITS
_RUN_AT = _TASK_AT + layout.STAGED_TASK_BITS
_SINK_AT = _RUN_AT + layout.STAGED_RUN_HIGH_BITS


def producer_identity(sink: int, run: int, task: int, attempt: int) -> tuple[int, int]:
    """(producer id, epoch) of what an attempt of a task stages in a run."""
    high, low = divmod(run, 1 << layout.STAGED_RUN_LOW_BITS)
    return (layout.STAGED_PRODUCER_MIN | sink << _SINK_AT | high << _RUN_AT | task << _TASK_AT
            | attempt), low


def run_ref(producer_id: int, producer_epoch: int) -> RunRef:
    """The run of a staged batch, by its producer identity."""
    high = producer_id >> _RUN_AT & (1 << layout.STAGED_RUN_HIGH_BITS) - 1
    return RunRef(producer_id >> _SINK_AT & layout.STAGED_SINKS_MAX,
                  high << layout.STAGED_RUN_LOW_BITS | producer_epoch)


def task_attempt(producer_id: int) -> tuple[int, int]:
    """The task and the attempt of a staged batch."""
    return (producer_id >> _TASK_AT & layout.STAGED_TASKS_MAX,
            producer_id & layout.STAGED_ATTEMPTS_MAX)


class RunStates(NamedTuple):
    """What became of runs; any node answers."""

    runs: tuple[RunRef, ...]


class SettleRuns(NamedTuple):
    """What became of runs, from the metadata leader, which a majority confirms first.  ``void``: a
    run that nobody has opened becomes void for good, and its number is never handed out."""

    runs: tuple[RunRef, ...]
    void: bool = True


class VoidRuns(NamedTuple):
    """Runs that were not opened are void from now on, and are never opened.  Those that were opened
    meanwhile stay what they are.  No request of clients: the metadata leader proposes it."""

    runs: tuple[RunRef, ...]


class StagedTopics(NamedTuple):
    """From which offsets on topics may hold what open runs have staged."""


class SinkList(NamedTuple):
    """Sinks with numbers above ``after``, at most ``count_max``."""

    after: int = 0
    count_max: int = SINKS_PER_REPLY_MAX


class OpenRunReply(NamedTuple):
    """``state`` COMMITTED: the batch was committed before, by that run; there is nothing to do.
    Else it is OPEN, ``topics`` are the incarnations that it may stage in, and ``attempt`` says how
    many attempts of the task were there before this one."""

    sink: int
    run: int
    state: str
    topics: tuple[int, ...] = ()
    attempt: int = 0


class CommitRunReply(NamedTuple):
    """Committed, now or before."""


class AbortRunReply(NamedTuple):
    """``committed``: it was, and stays so."""

    committed: bool


class RunState(NamedTuple):
    """One run; ``winners`` as in ``CommitRun``."""

    sink: int
    run: int
    state: str
    winners: tuple[Winner, ...]


class RunStatesReply(NamedTuple):
    """In the order of the question."""

    runs: tuple[RunState, ...]


class RunFact(NamedTuple):
    """One run: ``state`` is UNOPENED where nobody has opened it and ``void`` was not asked for, or
    could not be done, as ``why`` says.  ``name`` of the sink ("" = there is none of that number),
    ``batch`` and ``open_ms`` of an open run (-1 = not open; how long the answering leader has seen
    it open)."""

    sink: int
    run: int
    state: str
    winners: tuple[Winner, ...] = ()
    name: str = ""
    batch: int = -1
    open_ms: int = -1
    why: str = ""


class SettleRunsReply(NamedTuple):
    """In the order of the question, as of the metadata at ``index``."""

    index: int  # type: ignore[assignment]
    runs: tuple[RunFact, ...]


class StagedTopicsReply(NamedTuple):
    """``version`` grows when a run is opened and when it names a topic.  Topics in which no open
    run stages are not named."""

    version: int
    topics: tuple[TopicEnds, ...] = ()


class SinkRow(NamedTuple):
    """A sink: its last committed batch (-1 = none) and the run of it, the newest run, and the batch
    of that while it is open (-1 = it is not)."""

    sink: int
    name: str
    last_batch: int
    last_run: int
    newest_run: int
    open_batch: int


class SinkListReply(NamedTuple):
    sinks: tuple[SinkRow, ...]
    more: bool = False


_u64 = schema.integer(0, schema.U64_MAX)
_batch = schema.integer(0, schema.I64_MAX)
_mark = schema.integer(-1, schema.I64_MAX)
_sink = schema.integer(0, layout.STAGED_SINKS_MAX)
_run = schema.integer(0, layout.STAGED_RUNS_MAX)
_state = schema.one_of(OPEN, COMMITTED, VOID)
_settled = schema.one_of(OPEN, COMMITTED, VOID, UNOPENED)
_offset = schema.integer(0, schema.I64_MAX)
_incarnations = list_of(_u64, TOPICS_PER_RUN_MAX)
read_winners = list_of(
    row(Winner, schema.integer(0, layout.STAGED_TASKS_MAX),
        schema.integer(0, layout.STAGED_ATTEMPTS_MAX)), WINNERS_PER_RUN_MAX)
read_topics = list_of(row(TopicEnds, _u64, list_of(_offset, ENDS_MAX)), TOPICS_PER_RUN_MAX)

_some_runs = list_of(row(RunRef, _sink, _run), SETTLED_PER_REQUEST_MAX)

_OPEN_RUN = {"sink": schema.text(SINK_NAME_MAX), "batch": _batch,
             "nonce": schema.fixed_bytes(NONCE_BYTES), "topics": read_topics,
             "task": schema.integer(-1, layout.STAGED_TASKS_MAX), "attempt_id": _u64}
_COMMIT_RUN = {"sink": _sink, "run": _run, "batch": _batch, "winners": read_winners}
_ABORT_RUN = {"sink": _sink, "run": _run}

#: What changes the ledger: a request of clients is the command of the metadata group as well.
_CHANGES: dict[str, Shape] = {
    "open_run": Shape(OpenRun, _OPEN_RUN),
    "commit_run": Shape(CommitRun, _COMMIT_RUN),
    "abort_run": Shape(AbortRun, _ABORT_RUN),
}
COMMANDS: dict[str, Shape] = {**_CHANGES, "void_runs": Shape(VoidRuns, {"runs": _some_runs})}

#: What nodes ask each other as well.
PEER_REQUESTS: dict[str, Shape] = {
    "settle_runs": Shape(SettleRuns, {"runs": _some_runs, "void": schema.boolean}),
}
PEER_RESPONSES: dict[str, Shape] = {
    "settle_runs": Shape(SettleRunsReply, {
        "index": _u64, "runs": list_of(
            row(RunFact, _sink, _run, _settled, read_winners, schema.text(SINK_NAME_MAX), _mark,
                _mark, schema.text(WHY_MAX)), SETTLED_PER_REQUEST_MAX)}),
}

#: op -> fields of its request.
REQUESTS: dict[str, Shape] = {
    **_CHANGES,
    **PEER_REQUESTS,
    "run_states": Shape(RunStates, {
        "runs": list_of(row(RunRef, _sink, _run), RUNS_PER_REQUEST_MAX)}),
    "staged_topics": Shape(StagedTopics, {}),
    "sink_list": Shape(SinkList, {
        "after": _sink, "count_max": schema.integer(1, SINKS_PER_REPLY_MAX)}),
}

#: op -> fields of its response.
RESPONSES: dict[str, Shape] = {
    **PEER_RESPONSES,
    "open_run": Shape(OpenRunReply, {
        "sink": _sink, "run": _run, "state": _state, "topics": _incarnations,
        "attempt": schema.integer(0, layout.STAGED_ATTEMPTS_MAX)}),
    "commit_run": Shape(CommitRunReply, {}),
    "abort_run": Shape(AbortRunReply, {"committed": schema.boolean}),
    "run_states": Shape(RunStatesReply, {
        "runs": list_of(row(RunState, _sink, _run, _state, read_winners), RUNS_PER_REQUEST_MAX)}),
    "staged_topics": Shape(StagedTopicsReply, {
        "version": _u64, "topics": list_of(row(TopicEnds, _u64, list_of(_offset, ENDS_MAX)),
                                          STAGED_ENDS_MAX)}),
    "sink_list": Shape(SinkListReply, {
        "sinks": list_of(row(SinkRow, _sink, schema.text(SINK_NAME_MAX), _mark, _run, _run, _mark),
                         SINKS_PER_REPLY_MAX), "more": schema.boolean}),
}

Request = OpenRun | CommitRun | AbortRun | RunStates | SettleRuns | StagedTopics | SinkList
Reply = (OpenRunReply | CommitRunReply | AbortRunReply | RunStatesReply | SettleRunsReply
         | StagedTopicsReply | SinkListReply)
