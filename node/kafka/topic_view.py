"""Topics, partitions and leaders as Kafka's clients name them.

Contract. Kafka's clients name a partition by topic and number, the topic by its name or its id; the
node's handlers name it by its incarnation. ``NO_PARTITION`` stands for one that does not exist:
the handlers refuse it. Leader epochs are the native protocol's: the base of the epoch entry plus
the term of its group, which never falls, whichever groups the partition was in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from multiraft.types import METADATA_GROUP
from multiraft.wire.errors import ErrorDetail
from node.address import parse_address
from node.errors import BadConfig

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from node.clients.read_view import ReadView
    from node.clients.router import MetadataCopy, Router
    from node.metadata.commands import NodeRecord
    from node.metadata.topics import Topic
    from node.peers.registry import PeerRegistry

#: Incarnation that no partition has.
NO_PARTITION = 0
#: Epoch and node of a leader that is not known.
UNKNOWN = -1


class Endpoint(NamedTuple):
    """The address that Kafka's clients reach a node at."""

    node: int
    host: str
    port: int
    rack: str | None


class TopicView:
    """The metadata that this node has applied, as Kafka's clients see them."""

    def __init__(self, core: MultiRaft, metadata_log: MetadataCopy, directory: Router,
                 read_view: ReadView, known: PeerRegistry):
        self._core = core
        self._metadata_log = metadata_log
        self._directory = directory
        self._read_view = read_view
        self._known = known

    def topic(self, name: str, topic_id: bytes, by_id: bool) -> Topic | None:
        """Return the topic with that id or that name; None = there is none.  O(1)."""
        state = self._metadata_log.state
        return state.topic_of_id(topic_id) if by_id else state.topic(name)

    def leader(self, incarnation: int) -> tuple[int, int]:
        """Return node and leader epoch of the partition's leader, or of its last one, as far as
        this node knows. The epoch is ``UNKNOWN`` for a partition that does not exist, the node 0
        without a leader. O(1)."""
        place = self._directory.locate(incarnation)
        if place is None:
            return 0, UNKNOWN
        node, term = self._core.status.leader_hint(place.group)
        return node, place.epoch_history[-1].leader_epoch_base + term

    def leads(self, incarnation: int) -> bool:
        """Return True if this node leads the group of the partition.  O(1)."""
        place = self._directory.locate(incarnation)
        return place is not None and self._core.status.is_leader(place.group)

    def controller(self) -> int:
        """Return Kafka's controller: the metadata leader, or this node if Kafka's clients cannot
        reach that one; ``UNKNOWN`` without a leader. Any node passes changes on to the leader."""
        state = self._metadata_log.state
        leader = self._core.status.living_leader(METADATA_GROUP, state.metadata_members())
        if not leader:
            return UNKNOWN
        return leader if self.endpoint(leader) is not None else self._core.node

    def log_start(self, incarnation: int) -> int:
        """Return the highest log start of a partition that this node knows, ``UNKNOWN`` if it does
        not exist.  O(entries of its history)."""
        place = self._directory.locate(incarnation)
        return self._read_view.log_start(place, incarnation) if place is not None else UNKNOWN

    def leader_named(self, incarnation: int, detail: ErrorDetail) -> tuple[int, int] | None:
        """Return node and leader epoch of the leader that a refusal names; None if it names none,
        or one of a group that the metadata here do not place the partition in."""
        place = self._directory.locate(incarnation) if detail.leader else None
        if place is None or detail.group != place.group:
            return None
        leader = self.leader(incarnation)
        return leader if leader[0] == detail.leader else None

    @property
    def nodes_known(self) -> object:
        """The facts that addresses come from; another object after each change."""
        return self._known.facts

    def endpoint(self, node: int) -> Endpoint | None:
        """Return the address of a node; None if Kafka's clients cannot reach it."""
        record = self._known.facts.nodes.get(node)
        return endpoint_of(record) if record is not None else None

    def endpoints(self) -> list[Endpoint]:
        """Return the addresses of all nodes that Kafka's clients can reach, by id.  O(nodes)."""
        found = map(endpoint_of, self._known.nodes())
        return [endpoint for endpoint in found if endpoint is not None]


def incarnation_of(topic: Topic | None, partition: int) -> int:
    """Return the incarnation of a partition, ``NO_PARTITION`` if the topic has none with that
    number."""
    if topic is None or not 0 <= partition < topic.partitions:
        return NO_PARTITION
    return topic.incarnation_of(partition)


def endpoint_of(node: NodeRecord) -> Endpoint | None:
    """Return the address of a registered node; None if it has no port for Kafka's clients, or
    registered an address that cannot be parsed."""
    if not node.kafka_address:
        return None
    try:
        address = parse_address(node.kafka_address, "kafka_address")
    except BadConfig:
        return None
    return Endpoint(node.id, address.host, address.port, node.rack or None)
