"""Planning of reads: resolves options to ranges of offsets, with one set of requests to the
cluster.

Contract.  Runs on the driver.  A resolved range names the incarnation of its partition and fixed
offsets: reading it again gives the same records.  A read that is impossible raises ``SourceError``
here, before any task starts.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Container, Mapping, Sequence
from typing import NamedTuple

from multiraft.client.blocking import Client, OffsetRange
from multiraft.client.ranges import READ_COMMITTED, Range, bytes_per_record, offset_ranges
from multiraft.client.staging import committed_ranges
from multiraft.client.tls import TlsSettings
from pyspark_multiraft import splits
from pyspark_multiraft.failures import OptionError, SourceError, lost
from pyspark_multiraft.options import Connection, ReadOptions, Topics
from pyspark_multiraft.positions import EARLIEST_NUMBER, LATEST_NUMBER, Position

#: Batches that are sampled to estimate the size of records, of the largest ranges.
SAMPLES_MAX = 64
#: A range with fewer records is too small for a sample.
SAMPLED_RECORDS_MIN = 1_000
#: Size of a record that is assumed without a sample.
RECORD_BYTES_GUESS = 1_024
#: Names that an error message lists.
NAMES_SHOWN_MAX = 10

log = logging.getLogger("pyspark_multiraft")


class Partition(NamedTuple):
    """A partition as the cluster describes it now."""

    topic: str
    number: int
    incarnation: int  # of the partition
    topic_incarnation: int
    start_offset: int
    end_offset: int
    # end of what a read may cover: no record below it is staged by an open transaction
    decided_offset: int

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.number}"


def open_client(connection: Connection) -> Client:
    """Return a client for one query."""
    return Client(connection.servers, client_id=connection.client_id,
                  tls=TlsSettings(*connection.tls) if connection.tls is not None else None)


def partitions_of(client: Client, topics: Topics,
                  may_lack: Callable[[str], bool] = lambda name: False,
                  isolation: str = READ_COMMITTED) -> list[Partition]:
    """Ask the cluster for the partitions that are read, and return them by topic and number. Raises
    ``SourceError`` for a named topic that does not exist, unless ``may_lack`` of its name is True,
    and for an assigned partition that does not exist.

    O(partitions)."""
    names = _names(client, topics)
    known, decided = (committed_ranges(client, names) if isolation == READ_COMMITTED
                      else (offset_ranges(client, names), {}))
    missing = [name for name in names if name not in known and not may_lack(name)]
    if missing and not topics.pattern:  # a topic that matched a pattern may be deleted meanwhile
        raise SourceError(f"{_listed('topic', missing)} does not exist. Create it (multiraft topic "
                          f"create {missing[0]}), or correct {topics}; see: multiraft topic list")
    found = [Partition(name, number, topic.partitions[number].incarnation, topic.incarnation,
                       *ends[number], _decided(ends[number], decided.get((name, number))))
             for name, (topic, ends) in sorted(known.items()) for number in sorted(ends)]
    return _assigned(found, topics, known) if topics.assigned else found


def _decided(ends: OffsetRange, offset: int | None) -> int:
    return ends.end_offset if offset is None else max(ends.start_offset,
                                                      min(offset, ends.end_offset))


def _names(client: Client, topics: Topics) -> list[str]:
    if topics.pattern:
        pattern = re.compile(topics.pattern)
        return [each.name for each in client.list_topics() if pattern.fullmatch(each.name)]
    return sorted(topics.names or (name for name, _ in topics.assigned))


def _assigned(found: list[Partition], topics: Topics, known: Container[str]) -> list[Partition]:
    wanted = {(name, number) for name, numbers in topics.assigned for number in numbers
              if name in known}
    missing = sorted(wanted - {(part.topic, part.number) for part in found})
    if missing:
        raise OptionError(f"assign names {_listed('partition', [f'{t}/{p}' for t, p in missing])}, "
                          "which does not exist. See: multiraft topic describe TOPIC")
    return [part for part in found if (part.topic, part.number) in wanted]


def _listed(what: str, names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:NAMES_SHOWN_MAX])
    more = f" and {len(names) - NAMES_SHOWN_MAX} more" if len(names) > NAMES_SHOWN_MAX else ""
    return f"{what} {shown}{more}"


def batch_ranges(client: Client, options: ReadOptions,
                 wanted: Callable[[Partition], bool] = lambda part: True) -> list[Range]:
    """Return the ranges of a batch read, of those partitions that are ``wanted``. Offsets that are
    gone are left out or raise ``LossError`` (``failOnDataLoss``). Raises ``SourceError`` if no
    topic matches, and as ``partitions_of`` and ``offsets_of``."""
    parts = partitions_of(client, options.topics, isolation=options.isolation)
    if not parts:
        raise SourceError(f"no topic matches subscribePattern={options.topics.pattern!r} (the "
                          "whole name has to match). See: multiraft topic list")
    parts = [part for part in parts if wanted(part)]
    starts = offsets_of(client, options, "starting", options.starting, parts)
    ends = offsets_of(client, options, "ending", options.ending, parts)
    return [_range(part, starts[part], ends[part], options) for part in parts]


def offsets_of(client: Client, options: ReadOptions, side: str, position: Position,
               parts: Sequence[Partition]) -> dict[Partition, int]:
    """Return the offset of each partition at ``position``; ``side`` is "starting" or "ending".

    Raises ``OptionError`` if the position does not name each partition. Raises ``SourceError`` for
    a start by time where there is no record so late, unless the options allow it."""
    if position.word:
        return {part: part.start_offset if position.word == "earliest" else part.decided_offset
                for part in parts}
    each = dict(position.each)
    if each:
        _require_all(side, position, parts, each)
    if position.timestamp_ms >= 0 or position.by_time:
        return _by_time(client, options, side, position, parts, each)
    numbers = {EARLIEST_NUMBER: "start_offset", LATEST_NUMBER: "decided_offset"}
    return {part: getattr(part, numbers[each[part.topic, part.number]])
            if each[part.topic, part.number] in numbers else each[part.topic, part.number]
            for part in parts}


def _require_all(side: str, position: Position, parts: Sequence[Partition],
                 each: Mapping[tuple[str, int], int]) -> None:
    option = f"{side}OffsetsByTimestamp" if position.by_time else f"{side}Offsets"
    missing = [part.name for part in parts if (part.topic, part.number) not in each]
    if missing:
        raise OptionError(f"{option} says nothing of {_listed('partition', missing)}. Name every "
                          "partition that is read (-2 is the earliest offset, -1 the latest).")


def _by_time(client: Client, options: ReadOptions, side: str, position: Position,
             parts: Sequence[Partition], each: Mapping[tuple[str, int], int],
             ) -> dict[Partition, int]:
    """Return for each partition the first offset at or after its time, or its end where there is
    none. A start by time raises ``SourceError`` there, unless the option allows it."""
    times = {part: each.get((part.topic, part.number), position.timestamp_ms) for part in parts}
    asked = sorted({(part.topic, time) for part, time in times.items()})
    answers = {(topic, time): client.offsets_at(topic, time) for topic, time in asked}
    offsets = {}
    for part, time in times.items():
        offset = answers[part.topic, time].get(part.number)
        if offset is None and side == "starting" and options.late_start == "error":
            raise SourceError(
                f"{part.name} has no record at or after {time} (milliseconds since 1970), where "
                "reading shall start. Choose an earlier time, or set "
                "startingOffsetsByTimestampStrategy=latest to begin at the end there.")
        offsets[part] = part.decided_offset if offset is None else offset
    return offsets


def _range(part: Partition, start: int, end: int, options: ReadOptions) -> Range:
    """Return one partition's range, within the existing offsets.

    Raises ``OptionError`` for a start after the end. With ``failOnDataLoss``, raises
    ``SourceError`` for an offset beyond the end and ``LossError`` for offsets that are gone."""
    for side, offset in (("startingOffsets", start), ("endingOffsets", end)):
        if offset > part.end_offset and options.fail_on_data_loss:
            raise SourceError(f"{side}: offset {offset} of {part.name} is beyond the end, "
                              f"{part.end_offset}. Correct it, or set failOnDataLoss=false to read "
                              "what there is.")
    if start > end:
        raise OptionError(f"{part.name}: the start, offset {start}, is after the end, {end}. "
                          "Correct startingOffsets or endingOffsets.")
    if start < part.start_offset and start < end:
        warn_or_fail(options, f"{part.name}: offsets {start}..{min(part.start_offset, end) - 1} "
                              f"are gone, the log begins at {part.start_offset}")
    first = max(start, part.start_offset)
    last = min(end, part.end_offset)
    return Range(part.topic, part.number, part.incarnation, min(first, last), last)


def warn_or_fail(options: ReadOptions, what: str) -> None:
    """Report lost records: raise ``LossError`` with ``failOnDataLoss``, otherwise log a warning and
    return."""
    if options.fail_on_data_loss:
        raise lost(what)
    log.warning("%s; reading continues (failOnDataLoss=false)", what)


def sizes(client: Client, ranges: Sequence[Range]) -> Callable[[Range], float]:
    """Fetch the first batch of some of the largest ranges, and return a function that estimates a
    range's bytes. Other ranges are assumed to be alike."""
    largest = sorted((part for part in ranges if part.count >= SAMPLED_RECORDS_MIN),
                     key=lambda part: (-part.count, part))[:SAMPLES_MAX]
    known = bytes_per_record(client, largest)
    usual = sum(known.values()) / len(known) if known else RECORD_BYTES_GUESS
    by_partition = {part.incarnation: size for part, size in known.items()}
    return lambda part: part.count * by_partition.get(part.incarnation, usual)


def tasks_of(client: Client, options: ReadOptions,
             ranges: Sequence[Range]) -> list[tuple[Range, ...]]:
    """Return the ranges of each task, of about ``splitBytes`` by estimated sizes."""
    return splits.split(ranges, sizes(client, ranges), options.split_bytes,
                        options.min_partitions)
