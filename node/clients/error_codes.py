"""The table from library errors to codes and details of the client protocol, used by all handlers.

Contract. Only *definite* errors are translated here (``ProposalError``, ``CodecError``): nothing
was appended. An outcome that the node does not know is ``AMBIGUOUS`` and comes from ``pending``.
"""

from __future__ import annotations

from collections.abc import Callable

from multiraft import errors as e
from multiraft.codec.layout import BATCH_BYTES_MAX
from multiraft.wire.errors import Code, ErrorDetail
from node.clients.record_keys import OverDecodedLimit


class StaleMetadata(e.ProposalError):
    """The client has seen newer metadata than this node has applied, so the partition or producer
    that it names may exist."""


class StaleTransaction(e.ProposalError):
    """The transaction of the batch is decided already."""


class NotAuthorized(e.ProposalError):
    """The client has no permission to write to the topic."""


class UnknownProducer(e.ProposalError):
    """The batch names a producer id, or an epoch of it, that was never granted."""


class Redirect(e.ProposalError):
    """The partition takes no appends on this node; ``code`` and ``detail`` name the node that takes
    them."""

    def __init__(self, code: Code, detail: ErrorDetail):
        super().__init__(detail.text)
        self.code = code
        self.detail = detail


class OverTopicLimit(e.BatchTooLarge):
    """A batch of ``value`` bytes exceeds ``limit``, which the topic's ``max.message.bytes`` is."""

    def __init__(self, limit: int, value: int):
        super().__init__(f"a batch of {value} bytes exceeds max.message.bytes={limit} of the topic")
        self.limit = limit
        self.value = value


class DiskFull(e.ProposalError):
    """The disk has no space for records."""


#: Errors that handlers catch: definite refusals.
REFUSALS = (e.ProposalError, e.CodecError)

_CODES: dict[type, Code] = {
    e.CorruptBatch: Code.CORRUPT_BATCH,
    e.InvalidBatch: Code.INVALID_BATCH,
    e.BatchTooLarge: Code.BATCH_TOO_LARGE,
    e.RecordTooLarge: Code.BATCH_TOO_LARGE,
    e.QueueFull: Code.QUEUE_FULL,
    e.GroupQuarantined: Code.QUARANTINED,
    e.ProducerFenced: Code.PRODUCER_FENCED,
    e.OutOfOrderSequence: Code.OUT_OF_ORDER_SEQUENCE,
    e.PartitionSealed: Code.STALE_METADATA,
    StaleMetadata: Code.STALE_METADATA,
    StaleTransaction: Code.STALE_TRANSACTION,
    NotAuthorized: Code.NOT_AUTHORIZED,
    DiskFull: Code.STORAGE_FULL,
    UnknownProducer: Code.UNKNOWN_PRODUCER,
    e.UnknownPartition: Code.UNKNOWN_PARTITION,
    e.UnknownGroup: Code.LEADER_UNKNOWN,
    e.SequenceError: Code.OUT_OF_ORDER_SEQUENCE,
    e.ProposalError: Code.INVALID_REQUEST,  # an impossible partition open or leader transfer
    e.CodecError: Code.INVALID_BATCH,
}


def refusal(error: Exception,
            leader_detail: Callable[[int], tuple[Code, ErrorDetail]]) -> tuple[Code, ErrorDetail]:
    """Return code and detail of one of ``REFUSALS``. ``leader_detail(group) -> (code, detail)``
    supplies the redirect to the leader of a group."""
    if isinstance(error, Redirect):
        return error.code, error.detail
    if isinstance(error, e.NotLeader):
        return leader_detail(error.group)
    code = next(_CODES[kind] for kind in type(error).__mro__ if kind in _CODES)
    if isinstance(error, e.QueueFull):
        return code, ErrorDetail(text=str(error), limit=error.limit, value=error.value)
    if isinstance(error, (OverTopicLimit, OverDecodedLimit)):
        return code, ErrorDetail(text=str(error), limit=error.limit, value=error.value)
    if code is Code.BATCH_TOO_LARGE:
        return code, ErrorDetail(text=str(error), limit=BATCH_BYTES_MAX)
    return code, ErrorDetail(text=str(error))
