"""Replicas that clients read from in place of the leader, in the rack of the client (KIP-392).

Contract. ``of`` names a replica for a fetch that a leader received from a client in another rack:
one whose node is up, in the rack of the client, reachable by Kafka's clients, and caught up. The
choice differs between partitions, so that the replicas of a rack share the reads. The client then
fetches from that node until its metadata are renewed, or until that node refuses a fetch.

Theory. Any replica serves what it has applied of the committed log, and nothing else. A replica
that falls behind refuses offsets that it does not know after the wait of the fetch; the client
returns to the leader, which no longer names a replica that is behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.kafka.topic_view import UNKNOWN

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from node.clients.router import Router
    from node.kafka.topic_view import TopicView


class PreferredReplicas:
    """The replicas that this node names to clients, as the leader of their groups."""

    def __init__(self, core: MultiRaft, directory: Router, topics: TopicView, rack: str):
        """``rack``: of this node."""
        self._core = core
        self._directory = directory
        self._topics = topics
        self._rack = rack

    def of(self, incarnation: int, rack: str) -> int:
        """Return the node that a client in ``rack`` is to read the partition from; ``UNKNOWN`` =
        this one.  O(members of the group)."""
        place = self._directory.locate(incarnation) if rack and rack != self._rack else None
        if place is None:
            return UNKNOWN
        status = self._core.status
        caught_up, configuration = status.caught_up(place.group), status.configuration(place.group)
        if caught_up is None or configuration is None:  # this node does not lead it
            return UNKNOWN
        found = [node for node in configuration.voters
                 if node in caught_up and status.is_up(node) and self._is_in(node, rack)]
        return found[incarnation % len(found)] if found else UNKNOWN

    def _is_in(self, node: int, rack: str) -> bool:
        endpoint = self._topics.endpoint(node)
        return endpoint is not None and endpoint.rack == rack
