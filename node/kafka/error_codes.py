"""Kafka's errors for the outcomes of the node's handlers.

Contract. Clients decide by the number whether they repeat a request, ask for metadata before, or
give up. Each table has the number whose effect in Kafka's clients is what the native protocol says
of the code. An outcome that is not known is REQUEST_TIMED_OUT: an idempotent producer repeats the
batch, and the partition recognises it.
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft.errors import MultiRaftError
from multiraft.kafka.error_codes import ErrorCode
from multiraft.wire.errors import Code, ErrorDetail
from node.request_errors import request_error

#: Of appends, and of everything else that has no table of its own.
_RECORDS: dict[int, ErrorCode] = {
    Code.OK: ErrorCode.NONE,
    Code.NOT_LEADER: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    Code.MOVED: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    Code.STALE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    Code.STALE_METADATA: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    Code.SHUTTING_DOWN: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    Code.LEADER_UNKNOWN: ErrorCode.LEADER_NOT_AVAILABLE,
    Code.OFFSET_OUT_OF_RANGE: ErrorCode.OFFSET_OUT_OF_RANGE,
    Code.OFFSET_NOT_AVAILABLE: ErrorCode.OFFSET_NOT_AVAILABLE,
    Code.UNKNOWN_TOPIC: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    Code.UNKNOWN_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    Code.TOPIC_EXISTS: ErrorCode.TOPIC_ALREADY_EXISTS,
    Code.INVALID_TOPIC_NAME: ErrorCode.INVALID_TOPIC_EXCEPTION,
    Code.INVALID_REQUEST: ErrorCode.INVALID_REQUEST,
    Code.UNSUPPORTED: ErrorCode.UNSUPPORTED_VERSION,
    Code.CORRUPT_BATCH: ErrorCode.CORRUPT_MESSAGE,
    Code.INVALID_BATCH: ErrorCode.INVALID_RECORD,
    Code.BATCH_TOO_LARGE: ErrorCode.MESSAGE_TOO_LARGE,
    Code.QUEUE_FULL: ErrorCode.REQUEST_TIMED_OUT,
    Code.AMBIGUOUS: ErrorCode.REQUEST_TIMED_OUT,
    Code.TIMED_OUT: ErrorCode.REQUEST_TIMED_OUT,
    Code.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    Code.OUT_OF_ORDER_SEQUENCE: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    Code.UNKNOWN_PRODUCER: ErrorCode.UNKNOWN_PRODUCER_ID,
    Code.STALE_TRANSACTION: ErrorCode.INVALID_TXN_STATE,
    Code.QUARANTINED: ErrorCode.KAFKA_STORAGE_ERROR,
    Code.STORAGE_FULL: ErrorCode.KAFKA_STORAGE_ERROR,
    Code.LIMIT_EXCEEDED: ErrorCode.POLICY_VIOLATION,
    Code.INVALID_SETTING: ErrorCode.INVALID_CONFIG,
    Code.NOT_AUTHORIZED: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Code.INVALID_PARTITIONS: ErrorCode.INVALID_PARTITIONS,
}
#: Consumers of all clients repeat a fetch after NOT_LEADER_OR_FOLLOWER; some end with an error
#: after REQUEST_TIMED_OUT or OFFSET_NOT_AVAILABLE, and Java's after LEADER_NOT_AVAILABLE.
_FETCH: dict[int, ErrorCode] = {**_RECORDS, **dict.fromkeys(
    (Code.OFFSET_NOT_AVAILABLE, Code.LEADER_UNKNOWN, Code.QUEUE_FULL, Code.TIMED_OUT,
     Code.AMBIGUOUS), ErrorCode.NOT_LEADER_OR_FOLLOWER)}
#: Clients of old versions do not know OFFSET_NOT_AVAILABLE.
_OLD_OFFSETS: dict[int, ErrorCode] = {
    **_RECORDS, Code.OFFSET_NOT_AVAILABLE: ErrorCode.LEADER_NOT_AVAILABLE}
#: The metadata leader is Kafka's controller.
_CONTROLLER: dict[int, ErrorCode] = {**_RECORDS, **dict.fromkeys(
    (Code.NOT_LEADER, Code.LEADER_UNKNOWN, Code.STALE_METADATA, Code.SHUTTING_DOWN),
    ErrorCode.NOT_CONTROLLER)}
#: Producers repeat a request for an identity after this one.  After COORDINATOR_NOT_AVAILABLE
#: Java's asks for a coordinator of transactions, and ends with an error.
_IDENTITY: dict[int, ErrorCode] = {**_RECORDS, **dict.fromkeys(
    (Code.NOT_LEADER, Code.LEADER_UNKNOWN, Code.STALE_METADATA, Code.SHUTTING_DOWN,
     Code.QUEUE_FULL, Code.TIMED_OUT, Code.AMBIGUOUS), ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)}


class Fault(NamedTuple):
    """An error that is found before a handler is called, and its text."""

    error: ErrorCode
    text: str


_NO_TOPIC_ID = Fault(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has that id: it was deleted, or this "
                     "node does not know it yet")
_NO_PARTITION = Fault(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic or partition")


def absent(by_id: bool) -> Fault:
    """Return the error of a partition that does not exist. ``by_id``: its topic was named by an id
    that no topic has."""
    return _NO_TOPIC_ID if by_id else _NO_PARTITION


def of_append(code: int) -> ErrorCode:
    """Return the error of an append."""
    return _RECORDS.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)


def of_fetch(code: int) -> ErrorCode:
    """Return the error of a partition in a fetch."""
    return _FETCH.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)


#: First version of ListOffsets whose clients know OFFSET_NOT_AVAILABLE (KIP-207).
NOT_AVAILABLE_SINCE = 5


def of_offsets(code: int, version: int) -> ErrorCode:
    """Return the error of a partition whose offsets are asked for in a version of the request."""
    known = _RECORDS if version >= NOT_AVAILABLE_SINCE else _OLD_OFFSETS
    return known.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)


def of_controller(code: int) -> ErrorCode:
    """Return the error of a change of topics, which the metadata leader decides."""
    return _CONTROLLER.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)


def fault_of(error: MultiRaftError) -> Fault:
    """Return the error of a change that the metadata leader refused, which is one of
    ``REFUSED``."""
    code, detail = request_error(error, _another_leads)
    return Fault(of_controller(code), detail.text)


def _another_leads(group: int) -> tuple[Code, ErrorDetail]:
    return Code.LEADER_UNKNOWN, ErrorDetail(f"group {group} is led by another node")


def of_identity(code: int) -> ErrorCode:
    """Return the error of a request for a producer's identity."""
    return _IDENTITY.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)
