"""Operation that deletes the records below an offset of partitions.

Contract.  As ``_operations.py``.

Theory.  The log start of a partition only rises, so the request of a named offset may be repeated.
That of all records may not: a repetition would delete what was appended since.  So the end of each
such partition is asked for first, and the offset is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from multiraft.client import _retries
from multiraft.client._client import ClientCore
from multiraft.client._network import Lost, backoff_ms
from multiraft.client._operations import OffsetRange, list_many_offsets, topic_metadata
from multiraft.client._retries import EXCHANGE_TIMEOUT_MS
from multiraft.client._steps import Exchange, Operation, Pause
from multiraft.client.texts import duration
from multiraft.errors import MultiRaftError
from multiraft.wire.connection import ResponseEvent
from multiraft.wire.errors import (
    AmbiguousOutcome,
    Code,
    ErrorDetail,
    InvalidRequest,
    LeaderUnknown,
    UnknownPartition,
    exception_for,
)
from multiraft.wire.messages import (
    REFUSALS_PER_REPLY_MAX,
    DeleteRecords,
    RecordDeletion,
    TopicMetadata,
)
from multiraft.wire.schema import I64_MAX

#: Offset that stands for the end of its partition.
ALL_RECORDS = -1
#: Time for a node to commit a deletion: below that of an exchange, so that its answer arrives.
COMMIT_TIMEOUT_MS = EXCHANGE_TIMEOUT_MS - 1_000


class DeletedRecords(NamedTuple):
    """Outcome of a deletion in one partition: its log start, or the error that prevented it."""

    start_offset: int | None
    error: MultiRaftError | None = None


class _Pending:
    """The partitions of one call without an outcome, and the last error of each."""

    def __init__(self, topic: str, before: dict[int, int]):
        self.topic = topic
        self.before = before  # incarnation -> offset
        self.errors: dict[int, MultiRaftError] = {}
        self.perhaps: set[int] = set()  # incarnations whose records may be deleted
        self.done: dict[int, DeletedRecords] = {}  # incarnation -> outcome

    def end(self, incarnation: int, outcome: DeletedRecords) -> None:
        del self.before[incarnation]
        self.done[incarnation] = outcome


def delete_records(core: ClientCore, topic: str, before: Mapping[int, int],
                   ) -> Operation[dict[int, DeletedRecords]]:
    """Delete the records of ``topic`` below an offset of each partition, permanently, in all
    replicas.

    ``before``: partition -> offset, -1 = the end of the partition when this call begins.  The space
    on disk is freed later.  Returns partition -> ``DeletedRecords``, which has the new first offset
    or an error: ``OffsetOutOfRange`` for an offset beyond the end, ``AmbiguousOutcome`` when no
    answer came in 10 s.  An offset that is deleted already is no error.

    Raises ``UnknownTopic``, ``UnknownPartition`` for a number that the topic does not have, and
    ``OffsetNotAvailable`` when the leader of a partition whose end is needed does not answer in
    10 s.  Nothing is deleted then."""
    for partition, offset in before.items():
        if type(offset) is not int or not ALL_RECORDS <= offset <= I64_MAX:
            raise InvalidRequest(f"partition {partition!r:.20}: an offset is a whole number from "
                                 f"-1 to 2^63 - 1, not {offset!r:.30}: nothing was deleted")
    found, ends = yield from _topic(core, topic, ALL_RECORDS in before.values())
    incarnations = _incarnations(found, before)
    offsets = {
        incarnation: ends[partition].end_offset
        if before[partition] == ALL_RECORDS and partition in ends else before[partition]
        for partition, incarnation in incarnations.items()}
    pending = _Pending(topic, dict(offsets))
    yield from _delete(core, pending)
    outcomes = {}
    for partition, incarnation in incarnations.items():
        outcomes[partition] = outcome = pending.done[incarnation]
        if outcome.error is not None:
            outcome.error.about(topic, partition, offsets[incarnation])
    return outcomes


def _topic(core: ClientCore, name: str, with_ends: bool,
           ) -> Operation[tuple[TopicMetadata, dict[int, OffsetRange]]]:
    """Return metadata of a topic, and the ranges of its partitions if ``with_ends``.  Raises
    ``UnknownTopic``."""
    if with_ends:
        known = yield from list_many_offsets(core, (name,))
        if name in known:
            return known[name]
    return (yield from topic_metadata(core, name)), {}


def _incarnations(topic: TopicMetadata, partitions: Mapping[int, int]) -> dict[int, int]:
    """Return partition -> incarnation.  Raises ``UnknownPartition`` for one that does not exist."""
    known = {part.partition: part.incarnation for part in topic.partitions}
    for partition in partitions:
        if partition not in known:
            raise UnknownPartition(f"topic {topic.name} has the partitions 0 to {len(known) - 1}, "
                                   f"not {partition}: nothing was deleted")
    return {partition: known[partition] for partition in partitions}


def _delete(core: ClientCore, pending: _Pending) -> Operation[None]:
    """Ask leaders until each partition has an outcome, or the time of an operation is over."""
    failures = 0
    deadline_ms = core.now_ms + _retries.OPERATION_TIMEOUT_MS
    while True:
        by_address: dict[str, list[int]] = {}
        for incarnation in pending.before:
            address = core.metadata.leader_address(incarnation)
            if address is not None:
                by_address.setdefault(address, []).append(incarnation)
        for address, asked in by_address.items():
            for at in range(0, len(asked), REFUSALS_PER_REPLY_MAX):
                yield from _delete_at(core, pending, address, asked[at:at + REFUSALS_PER_REPLY_MAX])
        if not pending.before:
            return
        if core.now_ms >= deadline_ms or core.ended is not None:
            for incarnation in list(pending.before):
                pending.end(incarnation, DeletedRecords(None, _late(core, pending, incarnation)))
            return
        failures += 1
        core.metadata.want(pending.topic)
        yield Pause(backoff_ms(core.limits, failures, core.rng))


def _late(core: ClientCore, pending: _Pending, incarnation: int) -> MultiRaftError:
    """Return the error of a partition without an outcome at the time limit."""
    last = pending.errors.get(incarnation)
    if incarnation in pending.perhaps:
        return AmbiguousOutcome("delete_records: it may have happened, an answer was lost"
                                + (f"; last: {last}" if last else "") + ". Ask again")
    if last is not None:
        return last
    return LeaderUnknown(f"its leader did not answer in "
                         f"{duration(_retries.OPERATION_TIMEOUT_MS)}"
                         f"{core.metadata.why_unavailable(incarnation)}")


def _delete_at(core: ClientCore, pending: _Pending, address: str,
               asked: list[int]) -> Operation[None]:
    """Ask the node at ``address`` to delete records of the partitions ``asked``."""
    request = DeleteRecords(tuple(RecordDeletion(incarnation, pending.before[incarnation])
                                  for incarnation in asked), COMMIT_TIMEOUT_MS)
    outcome = yield Exchange(address, request, EXCHANGE_TIMEOUT_MS)
    if isinstance(outcome, ResponseEvent) and outcome.code == Code.OK:
        for row in outcome.reply.results:
            if row.code == Code.OK:
                pending.end(row.incarnation, DeletedRecords(row.log_start))
            else:
                _refused(core, pending, row.incarnation, row.code, row.error)
        return
    for incarnation in asked:
        if isinstance(outcome, Lost):
            if outcome.impossible:
                raise InvalidRequest(outcome.why)
            if outcome.sent:
                pending.perhaps.add(incarnation)
            pending.errors[incarnation] = LeaderUnknown(f"{address}: {outcome.why}")
        else:
            _refused(core, pending, incarnation, outcome.code, outcome.error)


def _refused(core: ClientCore, pending: _Pending, incarnation: int, code: int,
             detail: ErrorDetail | None) -> None:
    """Record a refusal: another try may succeed, or the partition has its outcome."""
    error = exception_for(code, detail)
    if not error.definite:
        pending.perhaps.add(incarnation)
    elif not error.retriable:
        pending.end(incarnation, DeletedRecords(None, error))
        return
    pending.errors[incarnation] = error
    location = core.metadata.locations.get(incarnation)
    if code == Code.NOT_LEADER and location is not None:
        core.metadata.leader_refused(incarnation, location.leader, detail)
    elif code == Code.MOVED and detail is not None:
        core.metadata.moved(incarnation, detail)
