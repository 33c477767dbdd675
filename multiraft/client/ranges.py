"""Reader of fixed offset ranges of many partitions, for batch jobs, on the blocking client.

    with Client(servers) as client:
        known = offset_ranges(client, ["flights", "delays"])
        ranges = [Range("flights", 0, 0, 100, 200)]
        for part, batch in read_ranges(client, ranges):
            ...

Contract.  A range is read from its start to its end, and each reading yields the same records:
only committed records are served, and these never change.  Batches of one range come in offset
order; the first and the last may reach beyond it.  When retention has deleted the start of a range,
or its topic was deleted, ``DataLost`` names the range.

Theory.  Up to ``AT_ONCE`` ranges are read at the same time, so that several small ones share a
round trip; a large one keeps the connection busy alone.
"""

from __future__ import annotations

from typing import Any, Callable, Iterator, NamedTuple, Sequence

from multiraft.client._batch_reader import intact_batches
from multiraft.client._client import ClientCore
from multiraft.client._consumer import ConsumerState
from multiraft.client._consumer_settings import ISOLATIONS, READ_COMMITTED, ConsumerSettings
from multiraft.client._network import Lost
from multiraft.client._operations import OffsetRange, list_many_offsets
from multiraft.client._records import FetchedBatch
from multiraft.client._steps import Exchange, Operation
from multiraft.client.blocking import Client
from multiraft.errors import MultiRaftError
from multiraft.wire.errors import Code, OffsetOutOfRange, UnknownPartition, UnknownTopic
from multiraft.wire.messages import Fetch, FetchPart, TopicMetadata

__all__ = ["ISOLATIONS", "READ_COMMITTED", "ConsumerSettings", "DataLost", "Range",
           "bytes_per_record", "offset_ranges", "read_ranges"]

#: Ranges that are read at the same time: hides round trips, and bounds buffered bytes.
AT_ONCE = 16
#: Time for one node to answer with a sample; without it the estimate is worse.
SAMPLE_TIMEOUT_MS = 5_000
#: Samples in one answer; a batch of the usual size is a quarter of a megabyte.
SAMPLES_PER_REQUEST_MAX = 16


class Range(NamedTuple):
    """Records start_offset <= offset < end_offset of one incarnation of a partition
    (``incarnation`` 0 = the present one)."""

    topic: str
    partition: int
    incarnation: int
    start_offset: int
    end_offset: int

    @property
    def count(self) -> int:  # type: ignore[override]  # of the offsets, not tuple's
        """Number of offsets; as many records, except those removed by compaction."""
        return self.end_offset - self.start_offset


class DataLost(MultiRaftError):
    """Records of ``range`` are lost: those before offset ``resumes_at``, or all (None)."""

    def __init__(self, lost: Range, resumes_at: int | None, why: str):
        super().__init__(why)
        self.range = lost
        self.resumes_at = resumes_at


def offset_ranges(client: Client, names: Sequence[str],
                  ) -> dict[str, tuple[TopicMetadata, dict[int, OffsetRange]]]:
    """Return metadata, and the first and next offset of each partition, of those topics that exist,
    by name.  Raises ``OffsetNotAvailable`` when the leader of a partition does not answer in 10 s.
    O(partitions), with up to 1,000 topics per request."""
    return client._run(list_many_offsets(client._core, names))


def bytes_per_record(client: Client, ranges: Sequence[Range]) -> dict[Range, float]:
    """Return bytes per record on the wire, measured at the first batch of each range.  Ranges whose
    leader does not answer in 5 s are absent.  Transfers one batch per range: sample few."""
    return client._run(_samples(client._core, ranges))


def read_ranges(client: Client, ranges: Sequence[Range],
                settings: ConsumerSettings | None = None, at_once: int = AT_ONCE,
                on_loss: Callable[[DataLost], None] | None = None,
                ) -> Iterator[tuple[Range, FetchedBatch]]:
    """Yield (range, batch) of all ranges, ``at_once`` of them at the same time, and wait for
    batches.  ``settings``: of a consumer.

    Raises ``DataLost`` for a range with deleted records; with ``on_loss`` that function gets the
    error, and reading continues with the rest.  Raises otherwise as a consumer."""
    settings = settings or ConsumerSettings()
    waiting = iter(ranges)
    opened: dict[ConsumerState, Range] = {}
    try:
        while True:
            while len(opened) < at_once and (part := next(waiting, None)) is not None:
                if part.count > 0:
                    opened[_open(client, settings, part)] = part
            if not opened:
                return
            client._until(lambda: any(state.ready_to_take for state in opened))
            for state, part in list(opened.items()):
                while (batch := state.take()) is not None:
                    yield part, batch
                    client._turn_sometimes()
                if state.error is None and not state.finished:
                    continue
                client._core.remove(state)
                del opened[state]
                rest = _rest(state, part, on_loss) if state.error is not None else None
                if rest is not None:
                    opened[_open(client, settings, rest)] = rest
    finally:
        for state in opened:
            client._core.remove(state)


def _open(client: Client, settings: ConsumerSettings, part: Range) -> ConsumerState:
    return client._core.consumer(settings, part.topic, part.partition, part.start_offset, False,
                                part.end_offset, part.incarnation)


def _rest(state: ConsumerState, part: Range,
          on_loss: Callable[[DataLost], None] | None) -> Range | None:
    """Return the rest of a range whose reader ended with an error; None = there is none.  Raises
    the error, unless it is a loss and ``on_loss`` is given."""
    position = state.position(part.partition)
    assert state.error is not None
    lost = _as_loss(part._replace(start_offset=position if position is not None
                                  else part.start_offset), state.error)
    if lost is None:
        raise state.error
    if on_loss is None:
        raise lost from state.error
    on_loss(lost)
    if lost.resumes_at is None or lost.resumes_at >= part.end_offset:
        return None
    return part._replace(start_offset=lost.resumes_at)


def _as_loss(part: Range, error: MultiRaftError) -> DataLost | None:
    """Return ``error`` as a loss, if the topic was deleted or the log start passed the range's
    start; else None."""
    name = f"{part.topic}/{part.partition}"
    if isinstance(error, (UnknownTopic, UnknownPartition)):
        return DataLost(part, None, f"{name}: {error}")
    if isinstance(error, OffsetOutOfRange):
        first = error.detail.start_offset
        if first > part.start_offset:
            return DataLost(part, first, f"{name}: offsets {part.start_offset}.."
                            f"{min(first, part.end_offset) - 1} are gone, the log begins at "
                            f"{first}")
    return None


def _samples(core: ClientCore, ranges: Sequence[Range]) -> Operation[dict[Range, float]]:
    """Return bytes per record of those ranges whose leader answered."""
    by_address: dict[str, list[Range]] = {}
    for part in ranges:
        address = core.metadata.leader_address(part.incarnation)
        if address is not None and part.count > 0:
            by_address.setdefault(address, []).append(part)
    found: dict[Range, float] = {}
    for address, parts in by_address.items():
        for at in range(0, len(parts), SAMPLES_PER_REQUEST_MAX):
            some = parts[at:at + SAMPLES_PER_REQUEST_MAX]
            request = Fetch(tuple(FetchPart(part.incarnation, part.start_offset, 1)
                                  for part in some))
            outcome = yield Exchange(address, request, SAMPLE_TIMEOUT_MS)
            if not isinstance(outcome, Lost) and outcome.code == Code.OK:
                found.update(_measured(some, outcome.reply))
    return found


def _measured(parts: Sequence[Range], reply: Any) -> Iterator[tuple[Range, float]]:
    at = 0
    for part, result in zip(parts, reply.results, strict=True):
        batches, _ = intact_batches(reply.payload[at:at + result.length])
        at += result.length
        for _, header in batches[:1]:
            yield part, header.total_bytes / max(1, header.count)
