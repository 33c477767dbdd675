"""Everything that can go wrong on the wire, as types and as numbers.

    MultiRaftError
    +- ProtocolError             the connection is finished
    |  +- LocalProtocolError     we did wrong: an event that may not be sent now
    |  +- RemoteProtocolError    they did wrong: bytes that are not the protocol
    |     +- FrameTooLarge       a length over a limit, with limit and value
    +- ConnectionRefused         the peer answered the Hello with an error; it names its versions
    +- RequestError              one request was refused: *definite*, it had no effect
    |  +- NotLeader LeaderUnknown OffsetOutOfRange OffsetNotAvailable UnknownTopic
    |     UnknownPartition TopicExists InvalidTopicName InvalidRequest Unsupported CorruptBatch
    |     InvalidBatch BatchTooLarge QueueFull ProducerFenced OutOfOrderSequence Quarantined
    |     ShuttingDown StaleMetadata StorageFull LimitExceeded TimedOut UnknownNode WrongCluster
    |     WrongIncarnation NodeRemoved StaleLife NodeRuns UnlinkedLife Moved StaleEpoch
    |     StalePlan PlanActive StaleRun UnknownProducer
    +- AmbiguousOutcome          nobody knows whether the request had an effect

Contract.  ``RequestError`` promises that nothing happened, so a caller may do it again or give up;
``AmbiguousOutcome`` promises nothing and is therefore no ``RequestError``: code that handles
refusals can not swallow it.  A connection that broke while a write was unanswered, a leader that
stepped down with the entry pending and a time limit that ran out meanwhile are all ambiguous.
``TIMED_OUT`` is the definite one: the request was still waiting for its turn.

Codes are part of the protocol: a number is never reused and never changes its meaning.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from multiraft.errors import MultiRaftError


class ProtocolError(MultiRaftError):
    """The two sides do not (any more) speak the same protocol: the connection is finished."""


class LocalProtocolError(ProtocolError):
    """This side asked for something that the protocol does not allow now."""


class RemoteProtocolError(ProtocolError):
    """The other side sent bytes that are not the protocol."""


class FrameTooLarge(RemoteProtocolError):
    """A length field over its limit; noticed before anything of that size was allocated."""

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
    STALE_RUN = 28
    UNKNOWN_PRODUCER = 30
    UNKNOWN_NODE = 40
    WRONG_CLUSTER = 41
    WRONG_INCARNATION = 42
    NODE_REMOVED = 43
    STALE_LIFE = 44
    NODE_RUNS = 45
    UNLINKED_LIFE = 46


class ErrorDetail(NamedTuple):
    """What an error says beside its code.  Fields that do not apply keep their default."""

    text: str = ""
    leader: int = 0  # node id, 0 = unknown
    leader_address: str = ""  # client address of that node, "" = unknown
    start_offset: int = -1  # of the partition, for OFFSET_OUT_OF_RANGE; of the part, for MOVED
    end_offset: int = -1
    limit: int = -1  # for everything that is bounded
    value: int = -1
    group: int = -1  # that ``leader`` leads
    epoch: int = -1  # for MOVED: of the partition, since it is in that group


class _Answered(MultiRaftError):
    """An error that a node answered with; carries its ``ErrorDetail``."""

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
    """The group has no leader that the answering node knows of: an election is going on, or the
    group has lost its majority."""

    code = Code.LEADER_UNKNOWN
    retriable = True


class OffsetOutOfRange(RequestError):
    """Below the log start or beyond the end; ``detail`` has the range."""

    code = Code.OFFSET_OUT_OF_RANGE


class OffsetNotAvailable(RequestError):
    """The leader is too new to know how far the partition is committed; it will soon."""

    code = Code.OFFSET_NOT_AVAILABLE
    retriable = True


class UnknownTopic(RequestError):
    """No topic of that name."""

    code = Code.UNKNOWN_TOPIC


class UnknownPartition(RequestError):
    """No partition with that incarnation: it was deleted, or never was."""

    code = Code.UNKNOWN_PARTITION


class TopicExists(RequestError):
    """A topic of that name exists already."""

    code = Code.TOPIC_EXISTS


class InvalidTopicName(RequestError):
    """Not ``[A-Za-z0-9._-]{1,249}``, or ``.`` or ``..``."""

    code = Code.INVALID_TOPIC_NAME


class InvalidRequest(RequestError):
    """A field is missing, of the wrong type, out of range or unknown; the text names it."""

    code = Code.INVALID_REQUEST


class Unsupported(RequestError):
    """An operation or version that the other side does not know."""

    code = Code.UNSUPPORTED


class CorruptBatch(RequestError):
    """The batch's bytes are not what its CRC or lengths say.  Retriable: the copy here is fine."""

    code = Code.CORRUPT_BATCH
    retriable = True


class InvalidBatch(RequestError):
    """An intact batch that may not be appended."""

    code = Code.INVALID_BATCH


class BatchTooLarge(RequestError):
    """``detail.value`` bytes, and ``detail.limit`` is the limit."""

    code = Code.BATCH_TOO_LARGE


class QueueFull(RequestError):
    """A bound on work in progress is reached; later there will be room again."""

    code = Code.QUEUE_FULL
    retriable = True


class ProducerFenced(RequestError):
    """A newer epoch of this producer id has written to the partition."""

    code = Code.PRODUCER_FENCED


class OutOfOrderSequence(RequestError):
    """A batch of this producer before this one is missing."""

    code = Code.OUT_OF_ORDER_SEQUENCE


class Quarantined(RequestError):
    """The replica found damage below its durable mark and serves nothing until it is repaired."""

    code = Code.QUARANTINED
    retriable = True


class ShuttingDown(RequestError):
    """The node is stopping and hands its leaderships over."""

    code = Code.SHUTTING_DOWN
    retriable = True


class StaleMetadata(RequestError):
    """The partition is served by another group now: ask for its metadata again."""

    code = Code.STALE_METADATA
    retriable = True


class StorageFull(RequestError):
    """The node's disk is full; it serves reads and recovers when space is freed."""

    code = Code.STORAGE_FULL
    retriable = True


class LimitExceeded(RequestError):
    """A named limit of the cluster or of the request; ``detail`` has limit and value."""

    code = Code.LIMIT_EXCEEDED


class TimedOut(RequestError):
    """The request was not begun in time; nothing happened."""

    code = Code.TIMED_OUT
    retriable = True


class Moved(RequestError):
    """What was asked for is in another group since the partition was switched; ``detail`` has that
    group, the epoch since when, its leader, and for reads the offsets that are there."""

    code = Code.MOVED
    retriable = True


class StaleEpoch(RequestError):
    """The partition is at another epoch than the request expects: look before you ask again."""

    code = Code.STALE_EPOCH


class StalePlan(RequestError):
    """The plan was made for another state of the cluster, for another cluster, or is over."""

    code = Code.STALE_PLAN


class PlanActive(RequestError):
    """Another plan is being carried out."""

    code = Code.PLAN_ACTIVE


class StaleRun(RequestError):
    """Another run of the sink has taken over, or a later batch of it is committed."""

    code = Code.STALE_RUN


class UnknownProducer(RequestError):
    """The batch names a producer id, or an epoch of it, that the cluster has not given to anybody;
    a producer asks for another id."""

    code = Code.UNKNOWN_PRODUCER


class UnknownNode(RequestError):
    """No node has that id, as far as the answering one knows."""

    code = Code.UNKNOWN_NODE


class WrongCluster(RequestError):
    """The answering node belongs to another cluster than the one expected."""

    code = Code.WRONG_CLUSTER


class WrongIncarnation(RequestError):
    """The node of that id is another data directory: this one was wiped, or is somebody else's."""

    code = Code.WRONG_INCARNATION


class NodeRemoved(RequestError):
    """The node was removed from the cluster for ever."""

    code = Code.NODE_REMOVED


class StaleLife(RequestError):
    """The node has started again since, perhaps from a copy of its data directory."""

    code = Code.STALE_LIFE


class NodeRuns(RequestError):
    """An earlier life of the node is still running."""

    code = Code.NODE_RUNS
    retriable = True


class UnlinkedLife(RequestError):
    """The node has not said yet that its directory has had the life that is remembered of it."""

    code = Code.UNLINKED_LIFE
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
    """The exception that stands for ``code``.  A code of a newer node is ``AmbiguousOutcome``:
    what is not known to be definite is not treated as definite."""
    assert code != Code.OK
    kind = EXCEPTIONS.get(code)
    if kind is None:
        text = detail.text if detail is not None else ""
        return AmbiguousOutcome(f"unknown error code {code}: {text}")
    return kind(detail=detail if detail is not None else ErrorDetail())
