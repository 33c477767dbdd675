"""Records of the topic ``__metrics``: the loads of one node in one window, as JSON.

Contract.  ``node_fields``, ``group_columns`` and ``partition_columns`` are pure except for reading
the state that they are given; ``encoded`` makes a record's value of them.  The format is
``LOADS_FORMAT``, described in docs/spark-planning.md, and a test compares that page, this module
and ``spark.load_records``, which reads it.  Fields may be added; a changed meaning needs a new
version.

A window with many partitions is several records, *parts*, that each carry the node's own fields.
Only partitions and groups with load are named; an absent one had none.  Tables are by column, so
that names are not repeated for each row.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from multiraft.codec.layout import CODEC_GZIP
from multiraft.core import BatchBuilder
from node.histogram import Histogram
from node.replicas.group_description import kept_bytes

if TYPE_CHECKING:
    from multiraft.partitions.state import PartitionStates
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.storage.store import Store
    from node.metadata.state_machine import MetadataState

#: Version of the topic's records.
LOADS_FORMAT = 1
TOPIC = "__metrics"
#: Partitions of the topic: a node appends to the partition of its id modulo this.
PARTITIONS = 8
#: Partitions that one record names: about 100 KB of JSON, 20 KB compressed.
ROWS_PER_RECORD = 1_000
#: Above the size of a full record, of which names of topics are the longest part.
RECORD_BYTES_MAX = 1 << 20

GROUP_COLUMNS = ("group", "bytes_in", "bytes_out", "stored")
PARTITION_COLUMNS = ("incarnation", "topic", "partition", "group", "epoch", "links", "bytes_in",
                     "records_in", "appends", "bytes_out", "records_out", "reads", "first_offset",
                     "next_offset", "moved_ms", "compacted")
#: Names in the order of ``Counters``.
COUNTER_FIELDS = ("bytes_in", "records_in", "appends", "bytes_out", "records_out")


class Window(NamedTuple):
    """The interval of a record.

    ``begin_ms`` since 1970 is a multiple of the interval; ``length_ms`` is measured by the node's
    monotonic clock, and less than the interval for a node that started within it.
    """

    begin_ms: int
    interval_ms: int
    length_ms: int


class Counters(NamedTuple):
    """A node's running totals at one moment, in the order of ``COUNTER_FIELDS``, and copies of its
    latency histograms."""

    totals: tuple[int, ...]
    disk: Histogram
    commit: Histogram


def latency_us(now: Histogram, before: Histogram) -> int:
    """Return the 99th percentile of the durations between the two counts in microseconds, rounded
    up to a power of two. -1 = there were none. O(buckets)."""
    counts = [after - old for after, old in zip(now.counts, before.counts, strict=True)]
    total, seen = sum(counts), 0
    for bits, count in enumerate(counts):
        seen += count
        if total and seen * 100 >= total * 99:
            return 1 << bits
    return -1


def counter_fields(now: Counters, before: Counters) -> dict[str, int]:
    """Return the counts between two moments, all partitions and groups together, and the 99th
    percentiles of disk writes and commits between them."""
    done = {name: after - old for name, after, old in
            zip(COUNTER_FIELDS, now.totals, before.totals, strict=True)}
    return {**done, "fsync_p99_us": latency_us(now.disk, before.disk),
            "commit_p99_us": latency_us(now.commit, before.commit)}


def group_columns(core: MultiRaft, store: Store,
                  groups: Iterable[tuple[int, Sequence[int]]]) -> dict[str, list]:
    """Return columns of groups with their sums and the bytes of their logs here.  O(groups named).
    """
    rows = []
    for group, (bytes_in, bytes_out) in groups:
        stored = 0
        if core.status.has_group(group):
            status = core.status.of(group)
            stored = kept_bytes(store, status)
        rows.append((group, bytes_in, bytes_out, stored))
    return _by_column(GROUP_COLUMNS, rows)


def partition_columns(state: MetadataState, partition_states: dict[int, PartitionStates],
                      rows: Iterable[tuple[int, Sequence[int]]]) -> dict[str, list]:
    """Return columns of partitions with their counts and their metadata from ``state``.

    A partition that was deleted meanwhile is left out.  O(partitions named).
    """
    named = []
    for incarnation, (group, *counts) in rows:
        place = state.locate(incarnation)
        if place is None:
            continue
        tail = partition_states.get(group)
        applied = tail.applied(incarnation) if tail is not None else None
        offsets = (applied.log_start, applied.next_offset) if applied is not None else (0, 0)
        named.append(
            (
                incarnation,
                place.topic.name,
                place.partition,
                place.group,
                place.epoch,
                len(place.epoch_history) if incarnation in state.placed.epoch_histories else 0,
                *counts,
                *offsets,
                state.plans.switched.get(incarnation, 0),
                state.settings.is_compacted(place.topic.incarnation, place.topic.name),
            )
        )
    return _by_column(PARTITION_COLUMNS, named)


def _by_column(names: Sequence[str], rows: Sequence[Sequence]) -> dict[str, list]:
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


def encoded(node: int, fields: dict, now_ms: int) -> bytearray:
    """Return a gzip batch of one record with the time ``now_ms``: key ``node``, value ``fields`` as
    JSON."""
    builder = BatchBuilder(RECORD_BYTES_MAX)
    value = json.dumps(fields, separators=(",", ":")).encode()
    builder.append(now_ms, b"%d" % node, value)
    machine = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    return builder.build(codec=CODEC_GZIP,
                         block=machine.compress(builder.records_block()) + machine.flush())
