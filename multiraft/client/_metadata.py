"""Metadata cache of a client: nodes, topics, and the leader of each partition.

Contract.  All of it may be stale; a stale entry costs one refused request, whose answer corrects
it.  ``wanted`` names the topics of the next metadata request, ``apply`` takes the answer.  Entries
are ordered by the incarnation of the topic, then by the partition epoch, which grows when a
partition is switched to another group, and then by the leader epoch; an older one never replaces a
newer one.  Topics get more partitions and never fewer: topics in ``used`` are requested from time
to time, so that new partitions become known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import NamedTuple

from multiraft.client.texts import by_reason
from multiraft.errors import MultiRaftError
from multiraft.wire.errors import ErrorDetail
from multiraft.wire.messages import TOPICS_PER_REQUEST_MAX, MetadataReply, TopicMetadata

#: Errors of an address that was never asked, of one that was and has neither answered nor failed,
#: and of one that answered last.
NOT_TRIED, UNANSWERED, ANSWERED = "not asked", "no answer so far", "answered"


class Location(NamedTuple):
    """Last known group and leader of a partition."""

    topic: str
    partition: int
    incarnation: int
    group: int
    leader: int  # 0 = unknown
    leader_epoch: int
    epoch: int  # partition epoch: grows with each switch to another group


class _Missing(NamedTuple):
    """First and last time at which nodes answered that a topic does not exist."""

    first_ms: int
    last_ms: int


class MetadataCache:
    """Metadata of one client.  ``version`` counts changes; readers compare it with the last one."""

    #: A topic that a node does not know may have been created through another node a moment ago.  A
    #: caller that waits for it gets ``UnknownTopic`` after nodes have said so for this long.
    MISSING_GRACE_MS = 1_000
    #: An answer that a topic does not exist is valid for this long, because another client may
    #: create the topic at any time.
    MISSING_KEPT_MS = 1_000
    #: Missing topics that are remembered; the one whose answer is oldest is dropped first.
    MISSING_NAMES_MAX = 4_096

    def __init__(self) -> None:
        self.version = 0
        self.nodes: dict[int, str] = {}  # id -> client address
        self.racks: dict[int, str] = {}
        self._replicas: dict[int, tuple[int, ...]] = {}  # group -> nodes
        self.topics: dict[str, TopicMetadata] = {}  # known topics by name
        self.locations: dict[int, Location] = {}  # by partition incarnation, of known topics
        self.wants: dict[str, None] = {}  # topics to request, first come, first served
        #: Topics that are written, or read as a whole, since ``want_used``: see there.
        self.used: dict[str, None] = {}
        self._by_group: dict[int, dict[int, None]] = {}  # group -> partition incarnations
        self._missing: dict[str, _Missing] = {}
        #: Topics whose metadata request was refused, with the error: see ``refuse``.
        self.refused: dict[str, MultiRaftError] = {}
        #: Returns the last error of each known address, "answered" if there is none.
        self.answers: Callable[[], Mapping[str, str]] = dict
        #: True while no node answers requests for metadata.
        self.is_unanswered = False

    # ---- reading ----

    def leader_address(self, incarnation: int) -> str | None:
        """Return the client address of the partition's leader; None = not known.  O(1)."""
        location = self.locations.get(incarnation)
        return self.nodes.get(location.leader) if location is not None else None

    def replicas(self, incarnation: int) -> tuple[int, ...]:
        """Return the known nodes with a replica of the partition, ascending.  O(1)."""
        location = self.locations.get(incarnation)
        return self._replicas.get(location.group, ()) if location is not None else ()

    def is_missing(self, name: str, since_ms: int, now_ms: int) -> bool:
        """Return True if the topic is missing for a caller that has waited since ``since_ms``:
        nodes have said so during ``MISSING_GRACE_MS``, and last after the caller began to wait and
        not more than ``MISSING_KEPT_MS`` ago.  O(1)."""
        said = self._missing.get(name)
        if (said is None or said.last_ms < since_ms
                or now_ms - said.last_ms > self.MISSING_KEPT_MS):
            return False
        return now_ms - max(since_ms, said.first_ms) >= self.MISSING_GRACE_MS

    def why_missing(self) -> str:
        """Return, as the end of an error's text, why there are no metadata: the error of each
        address; "" while nodes answer.  O(addresses)."""
        if not self.is_unanswered:
            return ""
        return f"; no node answered: {by_reason(self.answers())}"

    def why_unavailable(self, incarnation: int) -> str:
        """Return, as the end of an error's text, the group of a partition, its leader, and which of
        its members answered last; "" when the group is not known.  O(members)."""
        location = self.locations.get(incarnation)
        members = self.replicas(incarnation)
        if location is None or not members:
            return ""
        answers = self.answers()
        leader = (f"the last known leader of group {location.group} is node {location.leader}"
                  if location.leader else f"no leader of group {location.group} is known")
        states = {}
        for node in members:
            address = self.nodes.get(node)
            name = f"node {node}" if address is None else f"node {node} ({address})"
            why = answers.get(address or "", NOT_TRIED)
            states[name] = ("not known any more" if address is None
                            else "answers" if why == ANSWERED else why)
        return f"; {leader}; its members: {by_reason(states)}"

    # ---- asking ----

    def want(self, name: str) -> None:
        """Add a topic to those of the next metadata request, because it is unknown or stale.
        O(1)."""
        self.refused.pop(name, None)
        self.wants[name] = None

    def want_used(self) -> None:
        """Request the topics in ``used``, which may have more partitions now, and empty it.
        O(topics)."""
        for name in self.used:
            if name in self.topics:
                self.want(name)
        self.used.clear()

    def wanted(self) -> tuple[str, ...]:
        """Return the topics to request, at most as many as one request may name."""
        return tuple(islice(self.wants, TOPICS_PER_REQUEST_MAX))

    # ---- learning ----

    def apply(self, asked: tuple[str, ...], reply: MetadataReply, now_ms: int) -> None:
        """Apply the answer to a request for the topics ``asked``; topics of unknown leader, and
        those missing for a short time, are requested again.  O(partitions named)."""
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
        """Record that a request for this topic alone was refused.  Callers that wait for the topic
        get ``error``; the topic is requested again when it is wanted again."""
        self.wants.pop(name, None)
        self.refused[name] = error
        self.version += 1

    def created(self, topic: TopicMetadata) -> None:
        """Add a topic that this client has created, or added partitions to, so that callers do not
        wait for it, and request its metadata."""
        self.version += 1
        self._missing.pop(topic.name, None)
        self._learn(topic)
        self.want(topic.name)

    def _note_missing(self, name: str, now_ms: int) -> int:
        """Record that a node called the topic missing.  Returns the time of the first such
        answer."""
        said = self._missing.pop(name, None)
        if said is None or now_ms - said.last_ms > self.MISSING_KEPT_MS:
            said = _Missing(now_ms, now_ms)
        self._missing[name] = _Missing(said.first_ms, now_ms)
        if len(self._missing) > self.MISSING_NAMES_MAX:
            del self._missing[next(iter(self._missing))]
        return said.first_ms

    def leader_refused(self, incarnation: int, node: int, detail: ErrorDetail | None) -> None:
        """Apply a NOT_LEADER answer of ``node``, which may name the leader, to all partitions of
        the group, and request the topic's metadata.  O(partitions of the group)."""
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
        """Apply a MOVED answer, which names the group of a partition since an epoch and its leader;
        older knowledge is ignored.

        Returns True if no newer epoch is known: that group takes appends.  O(1)."""
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
        """Remove a topic that this client has deleted."""
        self._forget(name)
        self.version += 1

    def _learn(self, topic: TopicMetadata) -> None:
        old = self.topics.get(topic.name)
        if old is not None and old.incarnation > topic.incarnation:
            return  # the node that answered lags behind
        if old is not None and old.incarnation != topic.incarnation:
            self._forget(topic.name)
        if old is None or len(old.partitions) <= len(topic.partitions) or (
                old.incarnation != topic.incarnation):
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
