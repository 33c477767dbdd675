"""Errors of the protocol, as exception types and as numeric codes.

    MultiRaftError
    +- ProtocolError             the connection is finished
    |  +- LocalProtocolError     fault of this side: an event that may not be sent now
    |  +- RemoteProtocolError    fault of the other side: bytes that violate the protocol
    |     +- FrameTooLarge       a length over a limit, with limit and value
    |     +- ForeignProtocol     bytes of another protocol (foreign_protocols.py)
    +- ConnectionRefused         the peer answered the Hello with an error; it names its versions
    +- RequestError              one request was refused: *definite*, it had no effect
    |  +- NotLeader LeaderUnknown OffsetOutOfRange OffsetNotAvailable UnknownTopic
    |     UnknownPartition TopicExists InvalidTopicName InvalidRequest Unsupported CorruptBatch
    |     InvalidBatch BatchTooLarge QueueFull ProducerFenced OutOfOrderSequence Quarantined
    |     ShuttingDown StaleMetadata StorageFull LimitExceeded TimedOut UnknownNode WrongCluster
    |     WrongIncarnation NodeRemoved StaleBootId DuplicateNode UnlinkedBootId Moved StaleEpoch
    |     StalePlan PlanActive StaleTransaction UnknownProducer InvalidSetting NotAuthorized
    |     InvalidPartitions PartitionCompacted
    |  +- RecordsWithoutKey     an InvalidBatch of a topic with compaction
    +- AmbiguousOutcome          the request may or may not have had an effect

Contract.  A ``RequestError`` guarantees that the request had no effect, so a caller may repeat it
or give up.  An ``AmbiguousOutcome`` guarantees nothing, and is no ``RequestError``, so that code
for refusals cannot swallow it.  Ambiguous are: a connection that broke while a write was
unanswered, a leader that stepped down with the entry pending, and a time limit that passed
meanwhile.  ``TIMED_OUT`` is definite: the request was still queued.

Codes are part of the protocol: a number is never reused and never changes its meaning.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from multiraft.errors import MultiRaftError


class ProtocolError(MultiRaftError):
    """The two sides do not speak the same protocol, or lost synchronisation; the connection is
    finished."""


class LocalProtocolError(ProtocolError):
    """This side tried to send an event that the protocol does not allow now."""


class RemoteProtocolError(ProtocolError):
    """The other side sent bytes that violate the protocol."""


class FrameTooLarge(RemoteProtocolError):
    """A length field above its limit, detected before memory of that size was allocated."""

    def __init__(self, name: str, limit: int, value: int):
        super().__init__(f"{name}: {value} bytes announced, the limit is {limit}")
        self.name = name
        self.limit = limit
        self.value = value


class Code(enum.IntEnum):
    """Outcome of a request, or of one part of it.  0 is success."""

    OK = 0
    NOT_LEADER = 1
    LEADER_UNKNOWN = 2
    OFFSET_OUT_OF_RANGE = 3
    OFFSET_NOT_AVAILABLE = 4
    UNKNOWN_TOPIC = 5
    UNKNOWN_PARTITION = 6
    TOPIC_EXISTS = 7
    INVALID_TOPIC_NAME = 8
    INVALID_REQUEST = 9
    UNSUPPORTED = 10
    CORRUPT_BATCH = 11
    INVALID_BATCH = 12
    BATCH_TOO_LARGE = 13
    QUEUE_FULL = 14
    PRODUCER_FENCED = 15
    OUT_OF_ORDER_SEQUENCE = 16
    AMBIGUOUS = 17
    QUARANTINED = 18
    SHUTTING_DOWN = 19
    STALE_METADATA = 20
    STORAGE_FULL = 21
    LIMIT_EXCEEDED = 22
    TIMED_OUT = 23
    MOVED = 24
    STALE_EPOCH = 25
    STALE_PLAN = 26
    PLAN_ACTIVE = 27
    STALE_TRANSACTION = 28
    UNKNOWN_PRODUCER = 30
    INVALID_SETTING = 31
    NOT_AUTHORIZED = 32
    INVALID_PARTITIONS = 33
    PARTITION_COMPACTED = 34
    UNKNOWN_NODE = 40
    WRONG_CLUSTER = 41
    WRONG_INCARNATION = 42
    NODE_REMOVED = 43
    STALE_BOOT_ID = 44
    DUPLICATE_NODE = 45
    UNLINKED_BOOT_ID = 46


class ErrorDetail(NamedTuple):
    """Details of an error beside its code.  Fields that do not apply keep their default."""

    text: str = ""
    leader: int = 0  # node id, 0 = unknown
    leader_address: str = ""  # client address of that node, "" = unknown
    start_offset: int = -1  # of the partition, for OFFSET_OUT_OF_RANGE; of the part, for MOVED
    end_offset: int = -1
    limit: int = -1  # that was exceeded
    value: int = -1  # that exceeds it
    group: int = -1  # that ``leader`` leads
    epoch: int = -1  # for MOVED: partition epoch since which it is in that group


class _Answered(MultiRaftError):
    """An error that a node answered with, and its ``ErrorDetail``."""

    code: Code
    retriable = False
    definite = True

    def __init__(self, text: str = "", *, detail: ErrorDetail | None = None, **fields: Any):
        detail = ErrorDetail(text=text, **fields) if detail is None else detail
        super().__init__(detail.text or self.code.name)
        self.detail = detail


class AmbiguousOutcome(_Answered):
    """The request may or may not have had an effect, now or later."""

    code = Code.AMBIGUOUS
    definite = False


class RequestError(_Answered):
    """A definite refusal: the request had no effect and will have none."""


class NotLeader(RequestError):
    """Another node leads the group; ``detail.leader`` and ``detail.leader_address`` name it."""

    code = Code.NOT_LEADER
    retriable = True


class LeaderUnknown(RequestError):
    """The answering node knows no leader of the group: an election is in progress, or the group has
    lost its majority."""

    code = Code.LEADER_UNKNOWN
    retriable = True


class OffsetOutOfRange(RequestError):
    """The offset is below the log start or beyond the end; ``detail`` has the range."""

    code = Code.OFFSET_OUT_OF_RANGE


class OffsetNotAvailable(RequestError):
    """The leader was elected a moment ago and does not know its commit index yet."""

    code = Code.OFFSET_NOT_AVAILABLE
    retriable = True


class UnknownTopic(RequestError):
    """The topic does not exist."""

    code = Code.UNKNOWN_TOPIC


class UnknownPartition(RequestError):
    """No partition has that number or incarnation: it was deleted, or never existed."""

    code = Code.UNKNOWN_PARTITION


class TopicExists(RequestError):
    """A topic of that name exists already."""

    code = Code.TOPIC_EXISTS


class InvalidTopicName(RequestError):
    """The name is not ``[A-Za-z0-9._-]{1,249}``, or it is ``.`` or ``..``."""

    code = Code.INVALID_TOPIC_NAME


class InvalidRequest(RequestError):
    """A field is missing, of the wrong type, out of range or unknown; the text names it."""

    code = Code.INVALID_REQUEST


class Unsupported(RequestError):
    """An operation or version that the other side does not know."""

    code = Code.UNSUPPORTED


class CorruptBatch(RequestError):
    """The bytes of a batch do not match its CRC or lengths.  Retriable: the sender's copy is
    intact."""

    code = Code.CORRUPT_BATCH
    retriable = True


class InvalidBatch(RequestError):
    """An intact batch that may not be appended."""

    code = Code.INVALID_BATCH


class RecordsWithoutKey(InvalidBatch):
    """A batch with records without a key, for a topic whose ``cleanup.policy`` contains
    ``compact``.  ``records``: positions of the first of them in the batch, at most 16."""

    def __init__(self, text: str = "", *, detail: ErrorDetail | None = None,
                 records: tuple[int, ...] = (), **fields: Any):
        super().__init__(text, detail=detail, **fields)
        self.records = records


class BatchTooLarge(RequestError):
    """A batch of ``detail.value`` bytes exceeds the limit ``detail.limit``."""

    code = Code.BATCH_TOO_LARGE


class QueueFull(RequestError):
    """A bound on requests in progress is reached; a later repetition may succeed."""

    code = Code.QUEUE_FULL
    retriable = True


class ProducerFenced(RequestError):
    """A newer epoch of this producer id has written to the partition."""

    code = Code.PRODUCER_FENCED


class OutOfOrderSequence(RequestError):
    """The partition lacks the producer's batch before this one."""

    code = Code.OUT_OF_ORDER_SEQUENCE


class Quarantined(RequestError):
    """The replica has damage below its durable watermark, and serves nothing until it is
    repaired."""

    code = Code.QUARANTINED
    retriable = True


class ShuttingDown(RequestError):
    """The node is stopping and transfers its leaderships."""

    code = Code.SHUTTING_DOWN
    retriable = True


class StaleMetadata(RequestError):
    """The partition is served by another group now: request its metadata again."""

    code = Code.STALE_METADATA
    retriable = True


class StorageFull(RequestError):
    """The node's disk is full.  It serves reads, and accepts records again when space is freed."""

    code = Code.STORAGE_FULL
    retriable = True


class LimitExceeded(RequestError):
    """A limit of the cluster or of the request is exceeded; ``detail`` has limit and value."""

    code = Code.LIMIT_EXCEEDED


class TimedOut(RequestError):
    """The request was not begun within its time limit, and had no effect."""

    code = Code.TIMED_OUT
    retriable = True


class Moved(RequestError):
    """The requested offsets are in another group, because the partition was switched.  ``detail``
    has that group, its partition epoch, its leader, and for reads the offsets in it."""

    code = Code.MOVED
    retriable = True


class StaleEpoch(RequestError):
    """The partition is at another epoch than the request expects: read its placement again."""

    code = Code.STALE_EPOCH


class StalePlan(RequestError):
    """The plan was made for another state of the cluster, for another cluster, or has ended."""

    code = Code.STALE_PLAN


class PlanActive(RequestError):
    """Another plan is being carried out."""

    code = Code.PLAN_ACTIVE


class StaleTransaction(RequestError):
    """Another transaction of the sink has taken over, or a later batch is committed."""

    code = Code.STALE_TRANSACTION


class UnknownProducer(RequestError):
    """The batch has a producer id, or an epoch of it, that the cluster has never assigned; a
    producer requests another id."""

    code = Code.UNKNOWN_PRODUCER


class InvalidSetting(RequestError):
    """A setting that is unknown, has a value that is not accepted, or contradicts another one; the
    text has the reason."""

    code = Code.INVALID_SETTING


class NotAuthorized(RequestError):
    """The access rules of the cluster do not allow the client what it requests."""

    code = Code.NOT_AUTHORIZED


class InvalidPartitions(RequestError):
    """A topic would not get more partitions than it has; ``detail.value`` is the number of them,
    and none can be taken away."""

    code = Code.INVALID_PARTITIONS


class PartitionCompacted(RequestError):
    """The topic of the partition is compacted by key, and such partitions are not switched."""

    code = Code.PARTITION_COMPACTED


class UnknownNode(RequestError):
    """The answering node knows no node with that id."""

    code = Code.UNKNOWN_NODE


class WrongCluster(RequestError):
    """The answering node belongs to another cluster than the request names."""

    code = Code.WRONG_CLUSTER


class WrongIncarnation(RequestError):
    """The node id belongs to another data directory: this one was wiped, or is another node's."""

    code = Code.WRONG_INCARNATION


class NodeRemoved(RequestError):
    """The node was removed from the cluster permanently."""

    code = Code.NODE_REMOVED


class StaleBootId(RequestError):
    """The node has started again since, perhaps from a copy of its data directory."""

    code = Code.STALE_BOOT_ID


class DuplicateNode(RequestError):
    """An earlier boot epoch of the node is still running."""

    code = Code.DUPLICATE_NODE
    retriable = True


class UnlinkedBootId(RequestError):
    """The node has not proved yet that its directory has had the boot id that the peer
    remembers."""

    code = Code.UNLINKED_BOOT_ID
    retriable = True


class ConnectionRefused(MultiRaftError):
    """The other side answered the Hello with an error instead of a Welcome."""

    def __init__(self, code: Code, text: str, versions: tuple[int, ...]):
        super().__init__(f"{code.name}: {text} (versions supported there: "
                         f"{', '.join(map(str, versions)) or 'none named'})")
        self.code = code
        self.text = text
        self.versions = versions


_KINDS: tuple[type[_Answered], ...] = (AmbiguousOutcome, *RequestError.__subclasses__())
#: code -> exception type; the one table.  ``retriable`` and ``definite`` are class attributes.
EXCEPTIONS: dict[int, type[_Answered]] = {kind.code: kind for kind in _KINDS}

assert len(EXCEPTIONS) == len(Code) - 1, "every code but OK has one exception"


def exception_for(code: int, detail: ErrorDetail | None = None) -> _Answered:
    """Return the exception of ``code``.  An unknown code, of a newer node, is
    ``AmbiguousOutcome``, because it may not be definite."""
    assert code != Code.OK
    kind = EXCEPTIONS.get(code)
    if kind is None:
        text = detail.text if detail is not None else ""
        return AmbiguousOutcome(f"unknown error code {code}: {text}")
    return kind(detail=detail if detail is not None else ErrorDetail())
