"""Operations on the sizes of topics and partitions, each for what one node leads.

Contract.  As ``_operations.py``.  The sizes of a topic are the sums over the answers of all nodes.
"""

from __future__ import annotations

from multiraft.client._client import ClientCore
from multiraft.client._retries import ask_node
from multiraft.client._steps import Operation
from multiraft.wire.errors import UnknownTopic
from multiraft.wire.sizes import PartitionSize, PartitionSizes, TopicSize, TopicSizes


def topic_sizes(core: ClientCore, address: str, timeout_ms: int = 0) -> Operation[list[TopicSize]]:
    """Return the sizes of the parts of all topics that are in groups which the node at ``address``
    leads, by name; ``timeout_ms`` for each page, as in ``node_status``.  O(topics), in pages of at
    most 1,000."""
    rows: list[TopicSize] = []
    after = ""
    while True:
        reply = yield from ask_node(core, TopicSizes(after), address, timeout_ms)
        rows += reply.topics
        if not reply.more or reply.last <= after:
            return rows
        after = reply.last


def partition_sizes(core: ClientCore, topic: str, address: str,
                    timeout_ms: int = 0) -> Operation[list[PartitionSize]]:
    """Return the sizes of the parts of a topic's partitions that are in groups which the node at
    ``address`` leads; ``timeout_ms`` as in ``topic_sizes``.  Raises ``UnknownTopic``."""
    rows: list[PartitionSize] = []
    first = 0
    while True:
        request = PartitionSizes(topic, first)
        try:
            reply = yield from ask_node(core, request, address, timeout_ms)
        except UnknownTopic as error:
            error.about(topic)
            raise
        rows += reply.partitions
        if not reply.more:
            return rows
        first += request.count_max
