"""Search for the first record at or after a time, in each partition of a topic.

Contract.  ``offsets_at`` is an operation, as those of ``_operations.py``.  A node names a batch,
and this module finds the record in it.  A switched partition is searched group by group, as the
nodes' redirects name them.  A batch that cannot be opened counts from its first record on, if its
header says that it reaches the time; its error is raised when it is read.

Theory.  A node never decompresses a batch, so it names the batch by header.  The record may be in a
later batch when timestamps do not ascend at the log start, so the search continues from the named
batch.  Partitions are queried together, thousands in a request to each leader.  Partitions whose
leader did not answer at once or was another node, or whose record is in a later batch, are searched
one by one.
"""

from __future__ import annotations

from typing import Any, Iterator, Sequence

from multiraft.client._batch_reader import intact_batches
from multiraft.client._client import ClientCore
from multiraft.client._network import Lost, backoff_ms
from multiraft.client._records import FetchedBatch
from multiraft.client._steps import Exchange, Operation, Pause
from multiraft.client._unreadable import UnreadableBatch, unreadable
from multiraft.errors import MultiRaftError
from multiraft.wire.errors import (
    Code,
    ErrorDetail,
    InvalidRequest,
    OffsetNotAvailable,
    exception_for,
)
from multiraft.wire.messages import (
    LATEST,
    REFUSALS_PER_REPLY_MAX,
    TIMESTAMP,
    Fetch,
    FetchPart,
    ListOffsets,
    OffsetQuery,
    PartitionMetadata,
    TopicMetadata,
)

#: Time for one node to answer: shorter than the whole, so that another node can be asked.
EXCHANGE_TIMEOUT_MS = 5_000
#: MOVED answers that are followed without a pause: one for each group of a long epoch history.
MOVES_MAX = 64
#: Bytes of a partition that one step of the search reads: a few batches of the usual size.
SEARCH_BYTES = 1 << 20
#: Partitions in one request for their ends and a time: two queries each.
NAMED_PER_REQUEST_MAX = REFUSALS_PER_REPLY_MAX // 2
#: Partitions in one fetch of named batches: as many batches of the usual 256 KiB as fit into one
#: answer.
SEARCHED_PER_REQUEST_MAX = 32


def offsets_at(core: ClientCore, topic: TopicMetadata, timestamp_ms: int,
               timeout_ms: int) -> Operation[dict[int, int | None]]:
    """Return for each partition the offset of its first record at or after ``timestamp_ms``; None
    when it has none.

    Raises ``OffsetNotAvailable`` when a leader does not answer in ``timeout_ms``,
    ``UnreadableBatch`` for a damaged batch, and a refusal that another try does not change."""
    deadline_ms = core.now_ms + timeout_ms
    named = yield from _named_batches(core, topic, timestamp_ms)
    offsets = yield from _first_records(core, topic, timestamp_ms, named)
    for part in topic.partitions:
        if part.partition in offsets:
            continue
        if part.incarnation in named:
            at, end = named[part.incarnation]
        else:
            at, end = yield from _named_batch(core, topic, part, timestamp_ms, deadline_ms)
        offset, failures = None, 0
        while offset is None and at is not None and at < end:
            before = at
            offset, at = yield from _look_into(core, topic, part, timestamp_ms, at, deadline_ms)
            if at == before:  # a new leader does not know the commit index yet
                if core.now_ms >= deadline_ms:
                    raise OffsetNotAvailable(f"{topic.name}/{part.partition}: nothing at {at}")
                failures += 1
                yield Pause(backoff_ms(core.limits, failures, core.rng))
        offsets[part.partition] = offset
    return offsets


def _by_leader(core: ClientCore, parts: Sequence[PartitionMetadata],
               count_max: int) -> Iterator[tuple[str, list[PartitionMetadata]]]:
    """Yield (address of a leader, at most ``count_max`` of its partitions) for one request each.
    Partitions without a known leader are left out."""
    by_address: dict[str, list[PartitionMetadata]] = {}
    for part in parts:
        address = core.metadata.leader_address(part.incarnation)
        if address is not None:
            by_address.setdefault(address, []).append(part)
    for address, led in by_address.items():
        for at in range(0, len(led), count_max):
            yield address, led[at:at + count_max]


def _named_batches(core: ClientCore, topic: TopicMetadata, timestamp_ms: int,
                   ) -> Operation[dict[int, tuple[int | None, int]]]:
    """Return partition incarnation -> (offset at which to begin the search, None = no record at or
    after ``timestamp_ms``; the partition's end). Left out are partitions whose leaders did not
    answer at once."""
    named: dict[int, tuple[int | None, int]] = {}
    for address, parts in _by_leader(core, topic.partitions, NAMED_PER_REQUEST_MAX):
        outcome = yield Exchange(address, ListOffsets(tuple(
            query for part in parts for query in (
                OffsetQuery(part.incarnation, LATEST),
                OffsetQuery(part.incarnation, TIMESTAMP, timestamp_ms)))), EXCHANGE_TIMEOUT_MS)
        if isinstance(outcome, Lost) or outcome.code != Code.OK:
            continue
        results = outcome.reply.results
        for end, found in zip(results[::2], results[1::2], strict=False):
            if end.code == found.code == Code.OK:
                named[end.incarnation] = found.offset if found.offset >= 0 else None, end.offset
    return named


def _first_records(core: ClientCore, topic: TopicMetadata, timestamp_ms: int,
                   named: dict[int, tuple[int | None, int]],
                   ) -> Operation[dict[int, int | None]]:
    """Return partition -> offset of its first record at or after ``timestamp_ms``, or None if it
    has none. ``named``: result of ``_named_batches``.

    Left out are partitions whose leaders did not answer at once, or whose record is not in the
    first batch that was fetched."""
    offsets: dict[int, int | None] = {}
    wanted = []
    begins: dict[int, int] = {}
    for part in topic.partitions:
        at, end = named.get(part.incarnation, (None, -1))
        if at is not None and at < end:
            wanted.append(part)
            begins[part.incarnation] = at
        elif end >= 0:
            offsets[part.partition] = None
    for address, parts in _by_leader(core, wanted, SEARCHED_PER_REQUEST_MAX):
        request = Fetch(tuple(FetchPart(part.incarnation, begins[part.incarnation], 1)
                              for part in parts), 1, SEARCH_BYTES * SEARCHED_PER_REQUEST_MAX)
        outcome = yield Exchange(address, request, EXCHANGE_TIMEOUT_MS)
        if isinstance(outcome, Lost) or outcome.code != Code.OK:
            continue
        at = 0
        for part, result in zip(parts, outcome.reply.results, strict=False):
            data = outcome.reply.payload[at:at + result.length]
            at += result.length
            record = _record_in(topic, part, data, timestamp_ms, begins[part.incarnation])[0]
            if result.code == Code.OK and record is not None:
                offsets[part.partition] = record
    return offsets


def _named_batch(core: ClientCore, topic: TopicMetadata, part: PartitionMetadata,
                 timestamp_ms: int, deadline_ms: int) -> Operation[tuple[int | None, int]]:
    """Return (offset at which to begin the search, None = no record at or after ``timestamp_ms``;
    the partition's end), as its leader names them. Raises as ``_at_leader``."""
    latest = ListOffsets((OffsetQuery(part.incarnation, LATEST),))
    reply = yield from _at_leader(core, topic, part, latest, deadline_ms)
    end = reply.results[0].offset
    search = ListOffsets((OffsetQuery(part.incarnation, TIMESTAMP, timestamp_ms),))
    reply = yield from _at_leader(core, topic, part, search, deadline_ms)
    found = reply.results[0].offset
    return (found if found >= 0 else None), end


def _look_into(core: ClientCore, topic: TopicMetadata, part: PartitionMetadata, timestamp_ms: int,
               offset: int, deadline_ms: int) -> Operation[tuple[int | None, int]]:
    """Fetch batches from ``offset`` on. Return the offset of their first record at or after
    ``timestamp_ms``, or None, and the offset at which to search next. Raises ``UnreadableBatch`` at
    a damaged batch."""
    request = Fetch((FetchPart(part.incarnation, offset, SEARCH_BYTES),), 1, SEARCH_BYTES)
    reply = yield from _at_leader(core, topic, part, request, deadline_ms)
    record, offset, damage = _record_in(topic, part, reply.payload, timestamp_ms, offset)
    if damage is not None and record is None:
        raise unreadable(topic.name, part.partition, offset, -1, damage) from damage
    return record, offset


def _record_in(topic: TopicMetadata, part: PartitionMetadata, payload: memoryview,
               timestamp_ms: int, offset: int,
               ) -> tuple[int | None, int, MultiRaftError | None]:
    """Return, of fetched bytes, (offset of the first record at or after ``timestamp_ms`` or None,
    offset to search next, error of a damaged batch there or None)."""
    batches, damage = intact_batches(payload)
    for data, header in batches:
        batch = FetchedBatch(topic.name, part.partition, data, header, offset, 0)
        try:
            record = batch.first_at(timestamp_ms)
        except UnreadableBatch:
            record = batch.base_offset
        offset = batch.next_offset
        if record is not None:
            return record, offset, None
    return None, offset, damage


def _at_leader(core: ClientCore, topic: TopicMetadata, part: PartitionMetadata, request: Any,
               deadline_ms: int) -> Operation[Any]:
    """Return a reply without failed results, of the partition's leader or of the node that the
    leader names; repeat the request until then.

    Raises a refusal that another try does not change, and ``OffsetNotAvailable`` when the time
    limit is reached."""
    failures, moves, why, there = 0, 0, "its leader is not known", ""
    while True:
        address = there or core.metadata.leader_address(part.incarnation)
        there = ""
        if address is not None:
            outcome = yield Exchange(address, request, EXCHANGE_TIMEOUT_MS)
            if isinstance(outcome, Lost) and outcome.impossible:
                raise InvalidRequest(outcome.why)
            code, detail = _trouble(outcome)
            if code == Code.OK:
                return outcome.reply
            why = detail.text
            location = core.metadata.locations.get(part.incarnation)
            if code == Code.MOVED:
                moves += 1
                is_end = core.metadata.moved(part.incarnation, detail)
                request = _begun_at(request, detail.epoch)
                there = "" if is_end else detail.leader_address
                if moves <= MOVES_MAX and (is_end or there):
                    continue
            elif code == Code.NOT_LEADER and location is not None:
                core.metadata.leader_refused(part.incarnation, location.leader, detail)
            elif code is not None:
                error = exception_for(code, detail)
                if error.definite and not error.retriable:
                    raise error
        if core.now_ms >= deadline_ms:
            raise OffsetNotAvailable(f"{topic.name}/{part.partition}: {why}")
        failures += 1
        core.metadata.want(topic.name)
        yield Pause(backoff_ms(core.limits, failures, core.rng))


def _begun_at(request: Any, epoch: int) -> Any:
    """Return ``request``; if it searches for a time, one that begins with the group of partition
    epoch ``epoch``."""
    if type(request) is not ListOffsets or request.partitions[0].position != TIMESTAMP:
        return request
    return ListOffsets((request.partitions[0]._replace(epoch=epoch),))


def _trouble(outcome: Any) -> tuple[int | None, ErrorDetail]:
    """Return the first error of an answer; code None = there is no answer, OK = no error."""
    if isinstance(outcome, Lost):
        return None, ErrorDetail(outcome.why)
    if outcome.code != Code.OK:
        return outcome.code, outcome.error or ErrorDetail()
    for result in outcome.reply.results:
        if result.code != Code.OK:
            return result.code, result.error or ErrorDetail()
    return Code.OK, ErrorDetail()
