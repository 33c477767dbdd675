"""What a client believes about the cluster: nodes, topics, and who leads which partition.

Contract.  Everything here may be stale; a wrong belief costs one refused request, whose answer
corrects it.  ``wanted`` names what should be asked for next, ``apply`` takes the answer.  Newer
knowledge is told from older by a partition's epoch, which grows when it is switched to another
group, then its leader epoch, and by a topic's incarnation.
"""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from multiraft.errors import MultiRaftError
from multiraft.wire.errors import ErrorDetail
from multiraft.wire.messages import TOPICS_PER_REQUEST_MAX, MetadataReply, TopicMetadata


class Location(NamedTuple):
    """Where a partition was last seen."""

    topic: str
    partition: int
    incarnation: int
    group: int
    leader: int  # 0 = unknown
    leader_epoch: int
    epoch: int  # grows when the partition goes on in another group


class _Missing(NamedTuple):
    """Since when, and when last, nodes have said that a topic does not exist."""

    first_ms: int
    last_ms: int


class MetadataCache:
    """See the module docstring.  ``version`` counts changes, so that others notice them cheaply."""

    #: A topic that a node does not know may have been created elsewhere a moment ago: whoever waits
    #: for it is told that it does not exist when nodes have said so for this long.
    MISSING_GRACE_MS = 1_000
    #: That a topic does not exist is believed for this long after a node has said it, and asked
    #: again after that: anybody may create it.
    MISSING_KEPT_MS = 1_000
    #: Names of topics that do not exist, the one that was asked for longest ago goes first.
    MISSING_NAMES_MAX = 4_096

    def __init__(self) -> None:
        self.version = 0
        self.nodes: dict[int, str] = {}  # id -> client address
        self.racks: dict[int, str] = {}
        self._replicas: dict[int, tuple[int, ...]] = {}  # group -> nodes
        self.topics: dict[str, TopicMetadata] = {}  # those that are known
        self.locations: dict[int, Location] = {}  # by partition incarnation, likewise
        self.wants: dict[str, None] = {}  # topics to ask for: who asked first is served first
        self._by_group: dict[int, dict[int, None]] = {}  # group -> partition incarnations
        self._missing: dict[str, _Missing] = {}
        #: Topics that no node can be asked for, and why: see ``refuse``.
        self.refused: dict[str, MultiRaftError] = {}

    # ---- reading ----

    def leader_address(self, incarnation: int) -> str | None:
        """Client address of the partition's leader; None = ask for metadata first."""
        location = self.locations.get(incarnation)
        return self.nodes.get(location.leader) if location is not None else None

    def replicas(self, incarnation: int) -> tuple[int, ...]:
        """Nodes that hold the partition, as far as known, ascending."""
        location = self.locations.get(incarnation)
        return self._replicas.get(location.group, ()) if location is not None else ()

    def is_missing(self, name: str, since_ms: int, now_ms: int) -> bool:
        """Tell whether nodes have said to somebody who has been waiting since ``since_ms``, for
        ``MISSING_GRACE_MS`` and not too long ago, that the topic does not exist.  O(1)."""
        said = self._missing.get(name)
        if (said is None or said.last_ms < since_ms
                or now_ms - said.last_ms > self.MISSING_KEPT_MS):
            return False
        return now_ms - max(since_ms, said.first_ms) >= self.MISSING_GRACE_MS

    # ---- asking ----

    def want(self, name: str) -> None:
        """The topic's metadata is unknown or turned out to be wrong."""
        self.refused.pop(name, None)
        self.wants[name] = None

    def wanted(self) -> tuple[str, ...]:
        """Topics to ask for, at most as many as one request may name."""
        return tuple(islice(self.wants, TOPICS_PER_REQUEST_MAX))

    # ---- learning ----

    def apply(self, asked: tuple[str, ...], reply: MetadataReply, now_ms: int) -> None:
        """An answer to a request for the topics ``asked``.  O(partitions named)."""
        self.version += 1
        self.nodes = {node.id: node.client_address for node in reply.nodes}
        self.racks = {node.id: node.rack for node in reply.nodes}
        self._replicas.update((row.group, row.nodes) for row in reply.groups)
        for name in asked:
            self.wants.pop(name, None)
        for topic in reply.topics:
            self._missing.pop(topic.name, None)
            self._learn(topic)
        for name in reply.missing:
            self._forget(name)
            if now_ms - self._note_missing(name, now_ms) < self.MISSING_GRACE_MS:
                self.want(name)

    def refuse(self, name: str, error: MultiRaftError) -> None:
        """A request for this topic alone was refused: whoever waits for it is told so, and it is
        asked for again when it is wanted again."""
        self.wants.pop(name, None)
        self.refused[name] = error
        self.version += 1

    def created(self, topic: TopicMetadata) -> None:
        """The topic was created by this client: whoever waits for it goes on at once."""
        self.version += 1
        self._missing.pop(topic.name, None)
        self._learn(topic)
        self.want(topic.name)

    def _note_missing(self, name: str, now_ms: int) -> int:
        """A node said that the topic does not exist; since when nodes have."""
        said = self._missing.pop(name, None)
        if said is None or now_ms - said.last_ms > self.MISSING_KEPT_MS:
            said = _Missing(now_ms, now_ms)
        self._missing[name] = _Missing(said.first_ms, now_ms)
        if len(self._missing) > self.MISSING_NAMES_MAX:
            del self._missing[next(iter(self._missing))]
        return said.first_ms

    def leader_refused(self, incarnation: int, node: int, detail: ErrorDetail | None) -> None:
        """``node`` said that it does not lead the partition's group, and perhaps who does.  All
        partitions of the group move at once."""
        location = self.locations.get(incarnation)
        if location is None:
            return
        self.want(location.topic)
        if detail is not None and detail.group not in (-1, location.group):
            return  # it knows less, or more, of where the partition is
        named = 0
        if detail is not None and detail.leader:
            named = detail.leader
            if detail.leader_address:
                self.nodes[named] = detail.leader_address
        for other in self._by_group.get(location.group, ()):
            there = self.locations[other]
            if there.leader == node or named:
                self.locations[other] = there._replace(leader=named)
        self.version += 1

    def moved(self, incarnation: int, detail: ErrorDetail) -> bool:
        """A node said in which group the partition is since an epoch, and who leads that; whether
        this is where it takes appends, as far as anybody has told us."""
        if detail.leader and detail.leader_address:
            self.nodes[detail.leader] = detail.leader_address
        location = self.locations.get(incarnation)
        if location is None or detail.epoch < location.epoch:
            return False
        there = location._replace(group=detail.group, leader=detail.leader, epoch=detail.epoch)
        if detail.epoch > location.epoch:
            there = there._replace(leader_epoch=0)
        if there != location:
            self._place(location, there)
            self.version += 1
        if there.group != location.group or not detail.leader:
            self.want(location.topic)
        return True

    def forget_topic(self, name: str) -> None:
        """The topic was deleted by this client."""
        self._forget(name)
        self.version += 1

    def _learn(self, topic: TopicMetadata) -> None:
        old = self.topics.get(topic.name)
        if old is not None and old.incarnation > topic.incarnation:
            return  # an answer from a node that is behind
        if old is not None and old.incarnation != topic.incarnation:
            self._forget(topic.name)
        self.topics[topic.name] = topic
        for part in topic.partitions:
            known = self.locations.get(part.incarnation)
            if known is None or ((known.epoch, known.leader_epoch)
                                 <= (part.epoch, part.leader_epoch)):
                self._place(known, Location(topic.name, part.partition, part.incarnation,
                                            part.group, part.leader, part.leader_epoch,
                                            part.epoch))
            if not part.leader:
                self.want(topic.name)

    def _place(self, known: Location | None, location: Location) -> None:
        if known is not None:
            self._by_group[known.group].pop(known.incarnation)
        self.locations[location.incarnation] = location
        self._by_group.setdefault(location.group, {})[location.incarnation] = None

    def _forget(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        for part in topic.partitions if topic is not None else ():
            location = self.locations.pop(part.incarnation, None)
            if location is not None:
                self._by_group[location.group].pop(part.incarnation)
