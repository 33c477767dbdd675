"""Positions at which a read begins or ends (words, offsets per partition, times), and offsets of a
stream.

Contract.  Pure.  JSON as Spark's Kafka source takes it: -2 is the earliest offset, -1 the latest.
A stream's offsets in its checkpoint are JSON with sorted keys and a version; they name the
incarnation of each topic, so that a topic that was deleted and created again is not taken for the
same.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from pyspark_multiraft.failures import OptionError, SourceError

#: Kafka's numbers for the two words.
EARLIEST_NUMBER, LATEST_NUMBER = -2, -1
#: Version of the offsets in checkpoints.
OFFSETS_VERSION = 1
_I64_MAX = (1 << 63) - 1


class Position(NamedTuple):
    """A position in many partitions: one word or time for all, or a number for each."""

    word: str = ""  # "earliest" or "latest"
    timestamp_ms: int = -1
    #: ((topic, partition), offset) or, with ``by_time``, ((topic, partition), milliseconds)
    each: tuple[tuple[tuple[str, int], int], ...] = ()
    by_time: bool = False


EARLIEST = Position("earliest")
LATEST = Position("latest")


def parse_offsets(option: str, text: str, is_end: bool) -> Position:
    """Return the position that startingOffsets or endingOffsets names. Raises ``OptionError`` for
    another form, or an offset that this option does not take."""
    if text.lower() in ("earliest", "latest"):
        return Position(text.lower())
    each = _by_partition(option, text, '"earliest", "latest" or {"topic":{"0":23,"1":-2}}')
    for (topic, partition), offset in each:
        if offset < EARLIEST_NUMBER or is_end and offset == EARLIEST_NUMBER:
            raise OptionError(f"{option}: offset {offset} of {topic}/{partition}. An offset is 0 "
                              f"or more, -1 the latest{'' if is_end else ', -2 the earliest'}.")
    return Position(each=each)


def parse_timestamps(option: str, text: str) -> Position:
    """Return the position that startingOffsetsByTimestamp or endingOffsetsByTimestamp names. Raises
    ``OptionError`` for another form, or a negative time."""
    each = _by_partition(option, text, '{"topic":{"0":1700000000000}}, milliseconds since 1970')
    for (topic, partition), timestamp_ms in each:
        if timestamp_ms < 0:
            raise OptionError(f"{option}: time {timestamp_ms} of {topic}/{partition} is negative.")
    return Position(each=each, by_time=True)


def parse_assignment(text: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return (topic, partitions) of the option assign, in order. Raises ``OptionError`` for another
    form."""
    wanted = '{"topic":[0,1],...}'
    found = _object("assign", text, wanted)
    for topic, partitions in found.items():
        if not (isinstance(partitions, list) and partitions
                and all(type(number) is int and number >= 0 for number in partitions)):
            raise OptionError(f"assign: {topic!r} has no list of partitions. It is {wanted}.")
    return tuple((topic, tuple(sorted(set(partitions))))
                 for topic, partitions in sorted(found.items()))


def _object(option: str, text: str, wanted: str) -> dict:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:  # RecursionError: nested too deeply
        raise OptionError(f"{option}={text!r} cannot be read ({error}). It is {wanted}.") from error
    if not isinstance(found, dict) or not found:
        raise OptionError(f"{option}={text!r} is something else than {wanted}.")
    return found


def _by_partition(option: str, text: str, wanted: str) -> tuple[tuple[tuple[str, int], int], ...]:
    each = {}
    for topic, partitions in _object(option, text, wanted).items():
        if not isinstance(partitions, dict):
            raise OptionError(f"{option}: {topic!r} has no partitions. It is {wanted}.")
        for partition, number in partitions.items():
            if not (partition.isascii() and partition.isdecimal() and type(number) is int
                    and number <= _I64_MAX):
                raise OptionError(f"{option}: {topic!r} has {partition!r}: {number!r}. It is "
                                  f"{wanted}.")
            each[topic, int(partition)] = number
    return tuple(sorted(each.items()))


class TopicOffsets(NamedTuple):
    """Progress of a stream in one topic: the next offset of each partition."""

    incarnation: int
    next: tuple[tuple[int, int], ...]  # (partition, offset), ascending


StreamOffsets = dict[str, TopicOffsets]


def dump_offsets(offsets: StreamOffsets, record_bytes: int = 0) -> dict:
    """Return the JSON that Spark keeps.  ``record_bytes``: the size of a record that was assumed
    when a batch that ends here was planned (0 = not estimated), so that the batch is cut into the
    same tasks when it is repeated."""
    return {"version": OFFSETS_VERSION, "record_bytes": record_bytes, "topics": {
        topic: {"incarnation": found.incarnation,
                "offsets": {str(partition): offset for partition, offset in found.next}}
        for topic, found in sorted(offsets.items())}}


def load_offsets(stored: dict) -> StreamOffsets:
    """Parse the JSON that ``dump_offsets`` wrote.  Raises ``SourceError`` for a version that this
    release cannot read."""
    version = stored.get("version")
    if version != OFFSETS_VERSION:
        raise SourceError(f"the checkpoint has offsets of version {version!r}, this release reads "
                          f"{OFFSETS_VERSION}. Use the release that wrote it, or begin with a new "
                          "checkpoint.")
    return {topic: TopicOffsets(found["incarnation"], tuple(sorted(
        (int(partition), offset) for partition, offset in found["offsets"].items())))
        for topic, found in stored["topics"].items()}
