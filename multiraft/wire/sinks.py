"""Requests and responses about sinks: writers whose batches become visible at once.

Contract.  As ``messages.py``, whose tables include ``REQUESTS`` and ``RESPONSES``.

Theory.  A *sink* is a named writer that outlives its process; it numbers its *batches*.  A
*transaction* is one attempt at a batch.  The sink ledger assigns its number, which fences the
transactions before it.  Records that it stages in topics carry the number, and are visible to
readers of committed records once the ledger has committed the transaction for the batch
(``decisions/0040``).
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft.codec import layout
from multiraft.wire import schema
from multiraft.wire.schema import Shape, list_of, row

#: Characters of a sink's name; Spark's query ids have 36.
SINK_NAME_MAX = 249
#: Bytes of the random nonce that the tasks of one transaction share.
NONCE_BYTES = 16
#: Tasks whose attempt was not the first one, in one commit.
WINNERS_PER_TRANSACTION_MAX = 1_024
#: Transactions in one request.
TRANSACTIONS_PER_REQUEST_MAX = 1_000
#: Topics in which one transaction stages records, and partitions of all these.
TOPICS_PER_TRANSACTION_MAX = 256
ENDS_MAX = 10_000
#: Partitions in which all open transactions stage records: one answer names them.
STAGED_ENDS_MAX = 50_000
#: Sinks in one answer.
SINKS_PER_REPLY_MAX = 1_000

#: States of a transaction.  One that a node does not know is OPEN, because the node may lag behind.
OPEN, COMMITTED, VOID = "open", "committed", "void"
#: State that only the metadata leader can answer: the transaction was never opened.
UNOPENED = "unopened"
#: Transactions in one request to the metadata leader.
RESOLVED_PER_REQUEST_MAX = 100
#: Characters of the reason for a state.
WHY_MAX = 300


class TopicEnds(NamedTuple):
    """A topic incarnation, and for each partition an offset below which no record is staged."""

    incarnation: int
    offsets: tuple[int, ...]


class Winner(NamedTuple):
    """The attempt of a task whose records are committed."""

    task: int
    attempt: int


class BeginTransaction(NamedTuple):
    """Request to begin a transaction of a batch, or to join it (same ``nonce``); ``topics`` are
    added to those in which it stages records.  An open transaction of the sink with another nonce
    becomes void.  ``task``: the requester is an attempt of that task, with ``attempt_id`` as a
    random number of its own; -1 = of no task."""

    sink: str
    batch: int
    nonce: bytes
    topics: tuple[TopicEnds, ...] = ()
    task: int = -1
    attempt_id: int = 0


class CommitTransaction(NamedTuple):
    """Request to commit a transaction: its records become visible, of attempt 0 of each task or of
    the attempt in ``winners``.  Idempotent."""

    sink: int
    transaction: int
    batch: int
    winners: tuple[Winner, ...] = ()


class AbortTransaction(NamedTuple):
    """Request to make a transaction void, unless it is committed."""

    sink: int
    transaction: int


class TransactionRef(NamedTuple):
    """Number of a sink and of one of its transactions."""

    sink: int
    number: int


_TASK_AT = layout.STAGED_ATTEMPT_BITS
_TRANSACTION_AT = _TASK_AT + layout.STAGED_TASK_BITS
_SINK_AT = _TRANSACTION_AT + layout.STAGED_TRANSACTION_HIGH_BITS


def producer_identity(sink: int, transaction: int, task: int, attempt: int) -> tuple[int, int]:
    """Return (producer id, epoch) of batches that an attempt of a task stages in a transaction."""
    high, low = divmod(transaction, 1 << layout.STAGED_TRANSACTION_LOW_BITS)
    return (layout.STAGED_PRODUCER_MIN | sink << _SINK_AT | high << _TRANSACTION_AT
            | task << _TASK_AT | attempt), low


def transaction_ref(producer_id: int, producer_epoch: int) -> TransactionRef:
    """Return the transaction of a staged batch, from its producer identity."""
    high = producer_id >> _TRANSACTION_AT & (1 << layout.STAGED_TRANSACTION_HIGH_BITS) - 1
    return TransactionRef(producer_id >> _SINK_AT & layout.STAGED_SINKS_MAX,
                          high << layout.STAGED_TRANSACTION_LOW_BITS | producer_epoch)


def task_attempt(producer_id: int) -> tuple[int, int]:
    """Return (task, attempt) of a staged batch, from its producer id."""
    return (producer_id >> _TASK_AT & layout.STAGED_TASKS_MAX,
            producer_id & layout.STAGED_ATTEMPTS_MAX)


class TransactionStates(NamedTuple):
    """Request to any node for the states of transactions."""

    transactions: tuple[TransactionRef, ...]


class ResolveTransactions(NamedTuple):
    """Request to the metadata leader, confirmed by a majority, for the states of transactions.
    ``void``: a transaction that was never opened becomes void permanently, and its number is never
    assigned."""

    transactions: tuple[TransactionRef, ...]
    void: bool = True


class VoidTransactions(NamedTuple):
    """Command of the metadata leader: transactions that were never opened become void and are never
    opened.  Those that were opened meanwhile keep their state.  Clients cannot send it."""

    transactions: tuple[TransactionRef, ...]


class StagedTopics(NamedTuple):
    """Request for the offsets from which on topics may have records of open transactions."""


class SinkList(NamedTuple):
    """Request for sinks with numbers above ``after``, at most ``count_max``."""

    after: int = 0
    count_max: int = SINKS_PER_REPLY_MAX


class BeginTransactionReply(NamedTuple):
    """Transaction of a batch.  ``state`` COMMITTED: the batch was committed before, by this
    transaction.  Else it is OPEN, ``topics`` are the topic incarnations in which it may stage
    records, and ``attempt`` is the number of earlier attempts of the task."""

    sink: int
    transaction: int
    state: str
    topics: tuple[int, ...] = ()
    attempt: int = 0


class CommitTransactionReply(NamedTuple):
    """Reply: the transaction is committed, by this request or an earlier one."""


class AbortTransactionReply(NamedTuple):
    """``committed``: the transaction was committed before, and stays so; else it is void."""

    committed: bool


class TransactionState(NamedTuple):
    """State of one transaction; ``winners`` as in ``CommitTransaction``."""

    sink: int
    transaction: int
    state: str
    winners: tuple[Winner, ...]


class TransactionStatesReply(NamedTuple):
    """States in the order of the request."""

    transactions: tuple[TransactionState, ...]


class TransactionDescription(NamedTuple):
    """State of one transaction, as the metadata leader knows it.  ``state`` UNOPENED: it was never
    opened, and ``void`` was not requested or failed, for the reason ``why``.  ``name``: of the sink
    ("" = no sink has that number); ``batch``, and ``open_ms``, the time for which the answering
    leader has seen it open: of an open transaction, else -1."""

    sink: int
    transaction: int
    state: str
    winners: tuple[Winner, ...] = ()
    name: str = ""
    batch: int = -1
    open_ms: int = -1
    why: str = ""


class ResolveTransactionsReply(NamedTuple):
    """States in the order of the request, as of metadata index ``index``."""

    index: int  # type: ignore[assignment]
    transactions: tuple[TransactionDescription, ...]


class StagedTopicsReply(NamedTuple):
    """Topics in which open transactions stage records.  ``version`` grows when a transaction is
    opened and when it names a topic."""

    version: int
    topics: tuple[TopicEnds, ...] = ()


class SinkRow(NamedTuple):
    """A sink: its last committed batch (-1 = none) and the transaction of it, its newest
    transaction, and the batch of that one while it is open (-1 = it is not)."""

    sink: int
    name: str
    last_batch: int
    last_transaction: int
    newest_transaction: int
    open_batch: int


class SinkListReply(NamedTuple):
    sinks: tuple[SinkRow, ...]
    more: bool = False


_u64 = schema.integer(0, schema.U64_MAX)
_batch = schema.integer(0, schema.I64_MAX)
_mark = schema.integer(-1, schema.I64_MAX)
_sink = schema.integer(0, layout.STAGED_SINKS_MAX)
_transaction = schema.integer(0, layout.STAGED_TRANSACTIONS_MAX)
_state = schema.one_of(OPEN, COMMITTED, VOID)
_resolved = schema.one_of(OPEN, COMMITTED, VOID, UNOPENED)
_offset = schema.integer(0, schema.I64_MAX)
_incarnations = list_of(_u64, TOPICS_PER_TRANSACTION_MAX)
read_winners = list_of(
    row(Winner, schema.integer(0, layout.STAGED_TASKS_MAX),
        schema.integer(0, layout.STAGED_ATTEMPTS_MAX)), WINNERS_PER_TRANSACTION_MAX)
read_topics = list_of(row(TopicEnds, _u64, list_of(_offset, ENDS_MAX)), TOPICS_PER_TRANSACTION_MAX)

_some_transactions = list_of(row(TransactionRef, _sink, _transaction), RESOLVED_PER_REQUEST_MAX)

_BEGIN_TRANSACTION = {"sink": schema.text(SINK_NAME_MAX), "batch": _batch,
                      "nonce": schema.fixed_bytes(NONCE_BYTES), "topics": read_topics,
                      "task": schema.integer(-1, layout.STAGED_TASKS_MAX), "attempt_id": _u64}
_COMMIT_TRANSACTION = {"sink": _sink, "transaction": _transaction, "batch": _batch,
                       "winners": read_winners}
_ABORT_TRANSACTION = {"sink": _sink, "transaction": _transaction}

#: Fields of commands of the metadata group, which are requests of clients as well except for the
#: last; ``node/metadata/commands.py`` has their names on disk.
COMMAND_FIELDS: dict[type, dict[str, schema.Check]] = {
    BeginTransaction: _BEGIN_TRANSACTION,
    CommitTransaction: _COMMIT_TRANSACTION,
    AbortTransaction: _ABORT_TRANSACTION,
    VoidTransactions: {"transactions": _some_transactions},
}

#: Requests that nodes send to each other as well.
PEER_REQUESTS: dict[str, Shape] = {
    "resolve_transactions": Shape(ResolveTransactions, {
        "transactions": _some_transactions, "void": schema.boolean}),
}
PEER_RESPONSES: dict[str, Shape] = {
    "resolve_transactions": Shape(ResolveTransactionsReply, {
        "index": _u64, "transactions": list_of(
            row(TransactionDescription, _sink, _transaction, _resolved, read_winners,
                schema.text(SINK_NAME_MAX), _mark, _mark, schema.text(WHY_MAX)),
            RESOLVED_PER_REQUEST_MAX)}),
}

#: op -> fields of its request.
REQUESTS: dict[str, Shape] = {
    "begin_transaction": Shape(BeginTransaction, _BEGIN_TRANSACTION),
    "commit_transaction": Shape(CommitTransaction, _COMMIT_TRANSACTION),
    "abort_transaction": Shape(AbortTransaction, _ABORT_TRANSACTION),
    **PEER_REQUESTS,
    "transaction_states": Shape(TransactionStates, {
        "transactions": list_of(row(TransactionRef, _sink, _transaction),
                                TRANSACTIONS_PER_REQUEST_MAX)}),
    "staged_topics": Shape(StagedTopics, {}),
    "sink_list": Shape(SinkList, {
        "after": _sink, "count_max": schema.integer(1, SINKS_PER_REPLY_MAX)}),
}

#: op -> fields of its response.
RESPONSES: dict[str, Shape] = {
    **PEER_RESPONSES,
    "begin_transaction": Shape(BeginTransactionReply, {
        "sink": _sink, "transaction": _transaction, "state": _state, "topics": _incarnations,
        "attempt": schema.integer(0, layout.STAGED_ATTEMPTS_MAX)}),
    "commit_transaction": Shape(CommitTransactionReply, {}),
    "abort_transaction": Shape(AbortTransactionReply, {"committed": schema.boolean}),
    "transaction_states": Shape(TransactionStatesReply, {
        "transactions": list_of(row(TransactionState, _sink, _transaction, _state, read_winners),
                                TRANSACTIONS_PER_REQUEST_MAX)}),
    "staged_topics": Shape(StagedTopicsReply, {
        "version": _u64, "topics": list_of(row(TopicEnds, _u64, list_of(_offset, ENDS_MAX)),
                                          STAGED_ENDS_MAX)}),
    "sink_list": Shape(SinkListReply, {
        "sinks": list_of(row(SinkRow, _sink, schema.text(SINK_NAME_MAX), _mark, _transaction,
                             _transaction, _mark), SINKS_PER_REPLY_MAX), "more": schema.boolean}),
}

Request = (BeginTransaction | CommitTransaction | AbortTransaction | TransactionStates
           | ResolveTransactions | StagedTopics | SinkList)
Reply = (BeginTransactionReply | CommitTransactionReply | AbortTransactionReply
         | TransactionStatesReply | ResolveTransactionsReply | StagedTopicsReply | SinkListReply)
