"""Partitions that were added to topics: where their incarnations are, and their table in a
checkpoint.

Contract.  A part of the metadata state machine.  ``owner`` returns the topic of an incarnation that
may be one of an added partition.  The topics themselves have the additions (``topics.py``); the
state machine tells this table of each addition and of each deleted topic.

Invariants.  One row per topic with additions.  Incarnations of additions ascend, within a topic and
in the table; no two runs overlap.
"""

from __future__ import annotations

from collections.abc import Mapping

from sortedcontainers import SortedDict

from multiraft.codec import shapes
from node.metadata.setting_commands import TOPIC_ID_BYTES
from node.metadata.topics import Addition, GrownTopic, Topic

_ADDITION = (shapes.UINT, shapes.UINT, shapes.UINT, shapes.BYTES)
_SHAPE = {"added_partitions": [(shapes.UINT, [_ADDITION])]}

#: Bytes of the id of a request that adds partitions.
REQUEST_ID_BYTES = TOPIC_ID_BYTES


class AddedPartitions:
    """The additions of one replica's metadata, by their incarnations."""

    __slots__ = ("_owners",)

    def __init__(self) -> None:
        #: First incarnation of each addition -> incarnation of its topic.
        self._owners: SortedDict[int, int] = SortedDict()

    def __len__(self) -> int:
        """Return the number of additions."""
        return len(self._owners)

    def owner(self, incarnation: int) -> int:
        """Return the incarnation of the topic that may have a partition with that one as an added
        partition; 0 = none.  O(log additions)."""
        place = self._owners.bisect_right(incarnation) - 1
        return self._owners.peekitem(place)[1] if place >= 0 else 0

    def put(self, topic: Topic) -> None:
        """Note the additions of a topic.  O(its additions)."""
        for addition in topic.added:
            self._owners[addition.incarnation] = topic.incarnation

    def forget(self, topic: Topic) -> None:
        """Remove the additions of a deleted topic.  O(its additions)."""
        for addition in topic.added:
            del self._owners[addition.incarnation]

    # ---- checkpoints ----------------------------------------------------------------------------

    def snapshot(self, topics: Mapping[int, Topic]) -> dict:
        """Return the table as values that CBOR can encode; ``topics``: by their incarnations.
        O(additions)."""
        rows = []
        for incarnation in sorted(set(self._owners.values())):
            rows.append([incarnation, [addition[1:] for addition in topics[incarnation].added]])
        return {"added_partitions": rows}


def restored(snapshot: dict, topics: list[Topic]) -> list[Topic]:
    """Return the topics of a snapshot with their additions.  Raises ``KeyError``, ``TypeError`` or
    ``ValueError`` when the table is malformed.  O(topics)."""
    shapes.check(snapshot, _SHAPE, "added_partitions")
    rows = {incarnation: row for incarnation, row in snapshot["added_partitions"]}
    if len(rows) != len(snapshot["added_partitions"]):
        raise ValueError("a topic has two rows of added partitions")
    if not rows:
        return topics
    found = [_grown(topic, rows.pop(topic.incarnation)) if topic.incarnation in rows else topic
             for topic in topics]
    if rows:
        raise ValueError(f"partitions were added to {min(rows)}, which is no topic")
    return found


def _grown(topic: Topic, rows: list) -> Topic:
    number = topic.partitions - sum(count for _, count, _, _ in rows)
    before, end = topic.incarnation, topic.incarnation + number
    additions = []
    for incarnation, count, pool_size, request_id in rows:
        if incarnation < end or not count or len(request_id) != REQUEST_ID_BYTES:
            raise ValueError(f"an addition of {count} partitions from {incarnation} on to topic "
                             f"{topic.incarnation}, whose partitions up to there end at {end}")
        additions.append(Addition(number, incarnation, count, pool_size, request_id))
        number, end = number + count, incarnation + count
    if not additions or additions[0].number < 1 or before < 1:
        raise ValueError(f"topic {topic.incarnation} has additions and {number} partitions")
    return GrownTopic.of(topic, tuple(additions))
