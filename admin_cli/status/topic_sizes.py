"""Sizes of topics and partitions, summed over the answers of the nodes that lead them.

Contract.  ``gather`` asks each node that is up once, in pages; a node that does not answer is named
in ``Sizes.missing``.  All figures are then lower bounds, as are those of a cluster with a group
that has no leader among the nodes that answered, and the bytes of a partition whose leader does not
know them.  The figures of one node are of one moment per page.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, NamedTuple

from admin_cli import connection
from admin_cli.values.quantities import size
from multiraft.errors import MultiRaftError

#: Time for a node's answer to one page: as ``connection.NODE_TIMEOUT_MS``, and its work in turns.
PAGE_TIMEOUT_MS = 5_000

COLUMNS = ("topic", "partitions", "replicas", "records", "bytes", "largest")


class TopicTotal(NamedTuple):
    """Size of a topic.  ``unknown``: partitions whose bytes are not in ``bytes``; ``largest`` -1 =
    no partition with known bytes."""

    records: int = 0
    bytes: int = 0
    unknown: int = 0
    largest: int = -1
    largest_bytes: int = 0


class PartitionTotal(NamedTuple):
    """Bytes of a partition; ``unknown``: groups of its epoch history that do not know theirs."""

    bytes: int = 0
    unknown: int = 0


class Sizes(NamedTuple):
    """Topic or partition -> its size, for those that are not empty.  ``missing``: a reason for each
    node without an answer, and for groups without a leader; empty = the figures are complete.
    ``asked``: when the first node was asked, which is the age of the figures."""

    totals: dict[Any, Any]
    missing: tuple[str, ...]
    asked: datetime


def of_topics(client: Any) -> Sizes:
    """Return the sizes of all topics that are not empty, by name."""
    totals: dict[Any, Any] = {}

    def add(address: str) -> None:
        for row in client.topic_sizes(address, PAGE_TIMEOUT_MS):
            before = totals.get(row.name, TopicTotal())
            largest = max((before.largest_bytes, before.largest),
                          (row.largest_bytes, row.largest))
            totals[row.name] = TopicTotal(before.records + row.records, before.bytes + row.bytes,
                                          before.unknown + row.unknown, largest[1], largest[0])

    return _gathered(client, totals, add)


def of_partitions(client: Any, topic: str) -> Sizes:
    """Return the sizes of the partitions of a topic that are not empty, by number."""
    totals: dict[Any, Any] = {}

    def add(address: str) -> None:
        for row in client.partition_sizes(topic, address, PAGE_TIMEOUT_MS):
            before = totals.get(row.partition, PartitionTotal())
            totals[row.partition] = PartitionTotal(before.bytes + max(0, row.bytes),
                                                   before.unknown + (row.bytes < 0))

    return _gathered(client, totals, add)


def _gathered(client: Any, totals: dict[Any, Any], add: Callable[[str], None]) -> Sizes:
    asked = datetime.now(timezone.utc)
    return Sizes(totals, _ask_all(client, add), asked)


def _ask_all(client: Any, add: Callable[[str], None]) -> tuple[str, ...]:
    nodes = client.cluster_status().nodes
    answered, missing = set(), []
    for node in nodes:
        if node.state != "up":
            continue
        try:
            add(node.client_address)
            answered.add(node.id)
        except MultiRaftError as error:
            missing.append(f"node {node.id}: {error}")
    without = sum(row.leader not in answered for row in connection.groups(client, nodes)
                  if row.group)
    if without:
        missing.append(f"{without} groups have no leader that answered")
    return tuple(missing)


def sort_key(total: TopicTotal) -> tuple[int, int]:
    """Return the key that sorts topics from small to large."""
    return total.bytes, total.records


def bytes_text(known: int, unknown: int, is_complete: bool) -> str:
    """Return a number of bytes for people: ``?`` if nothing is known, ``>= `` before a lower
    bound."""
    if unknown and not known:
        return "?"
    return f"{'' if is_complete and not unknown else '>= '}{size(known)}"


def shown(total: TopicTotal, is_complete: bool) -> tuple[object, ...]:
    """Return the cells of a topic behind its name, partitions and replicas."""
    records = f"{'' if is_complete else '>= '}{total.records}"
    largest = None if total.largest < 0 else f"{total.largest} ({size(total.largest_bytes)})"
    return (total.records if is_complete else records,
            bytes_text(total.bytes, total.unknown, is_complete), largest)


def partition_text(sizes: Sizes, partition: int) -> str:
    """Return the bytes of a partition for people."""
    total = sizes.totals.get(partition, PartitionTotal(0, int(bool(sizes.missing))))
    return bytes_text(total.bytes, total.unknown, not sizes.missing)


def partition_json(sizes: Sizes, partition: int) -> dict[str, Any]:
    """Return the bytes of a partition as the JSON has them: None = not known at all."""
    total = sizes.totals.get(partition, PartitionTotal(0, int(bool(sizes.missing))))
    return {"bytes": None if total.unknown and not total.bytes else total.bytes,
            "bytes_complete": not total.unknown and not sizes.missing}


def as_json(total: TopicTotal) -> dict[str, Any]:
    """Return the size of a topic as the JSON has it."""
    largest = None if total.largest < 0 else {"partition": total.largest,
                                              "bytes": total.largest_bytes}
    return {"records": total.records, "bytes": total.bytes,
            "partitions_of_unknown_bytes": total.unknown, "largest": largest}
