"""Requests and responses about the sizes of topics and partitions, as the leaders know them.

Contract.  As ``messages.py``, whose tables include ``REQUESTS`` and ``RESPONSES``.  A node answers
for the groups that it leads, so the sizes of a topic are the sums over the answers of all nodes.
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft.wire import schema
from multiraft.wire.schema import Shape, list_of, row

#: Topics, or partitions, in one answer.
ROWS_MAX = 1_000
NAME_MAX = 249
#: Longer than a valid name, because the handler of the request answers UNKNOWN_TOPIC.
ANY_NAME_MAX = 4096
PARTITIONS_MAX = 10_000


class TopicSizes(NamedTuple):
    """Request for the sizes of the topics with names above ``after``, at most ``count_max``."""

    after: str = ""
    count_max: int = ROWS_MAX


class PartitionSizes(NamedTuple):
    """Request for the sizes of the partitions of ``topic`` from ``first`` on, at most
    ``count_max``."""

    topic: str
    first: int = 0
    count_max: int = ROWS_MAX


class TopicSize(NamedTuple):
    """Part of a topic that is in groups which the answering node leads.

    ``records``: offsets from log start to end, of partitions whose appends these groups take.
    ``bytes``: of the partitions whose bytes are known; ``unknown``: number of the others.
    ``largest``: the partition with most known bytes, -1 = there is none."""

    name: str
    incarnation: int
    records: int
    bytes: int
    unknown: int
    largest: int
    largest_bytes: int


class PartitionSize(NamedTuple):
    """Part of a partition that is in groups which the answering node leads.

    ``log_start`` and ``end``: -1 = another group takes its appends.  ``bytes``: -1 = not known."""

    partition: int
    log_start: int
    end: int
    bytes: int


class TopicSizesReply(NamedTuple):
    """Topics without anything in these groups are left out.  ``last``: the name after which the
    next request begins, if there are ``more``."""

    topics: tuple[TopicSize, ...]
    last: str
    more: bool


class PartitionSizesReply(NamedTuple):
    """Partitions without anything in these groups are left out."""

    partitions: tuple[PartitionSize, ...]
    more: bool


_u64 = schema.integer(0, schema.U64_MAX)
_count = schema.integer(0, schema.I64_MAX)
_mark = schema.integer(-1, schema.I64_MAX)
_partition = schema.integer(0, PARTITIONS_MAX - 1)
_count_max = schema.integer(1, ROWS_MAX)

#: op -> fields of its request.
REQUESTS: dict[str, Shape] = {
    "topic_sizes": Shape(TopicSizes, {"after": schema.text(ANY_NAME_MAX), "count_max": _count_max}),
    "partition_sizes": Shape(PartitionSizes, {
        "topic": schema.text(ANY_NAME_MAX), "first": schema.integer(0, schema.U32_MAX),
        "count_max": _count_max}),
}

#: op -> fields of its response.
RESPONSES: dict[str, Shape] = {
    "topic_sizes": Shape(TopicSizesReply, {
        "topics": list_of(row(TopicSize, schema.text(NAME_MAX), _u64, _count, _count, _count,
                              schema.integer(-1, PARTITIONS_MAX - 1), _count), ROWS_MAX),
        "last": schema.text(NAME_MAX), "more": schema.boolean}),
    "partition_sizes": Shape(PartitionSizesReply, {
        "partitions": list_of(row(PartitionSize, _partition, _mark, _mark, _mark), ROWS_MAX),
        "more": schema.boolean}),
}

Request = TopicSizes | PartitionSizes
Reply = TopicSizesReply | PartitionSizesReply
