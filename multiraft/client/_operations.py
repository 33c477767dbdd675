"""Everything that is one question and one answer: topics, offsets, groups, status.

Contract.  Each operation is a generator that yields ``Exchange`` or ``Pause`` and is sent the
outcome; a driver runs it with its own way to wait (``Exchange`` -> ``ResponseEvent`` or ``Lost``,
``Pause`` -> None).  So both clients have one behaviour.

Theory.  Every request is repeated until it is answered or time is up, also when an answer was lost:
each is such that asking twice is asking once (``_repeating.py``), by what it names or because the
client looks what became of it first.  A change of which no answer came in time is
``AmbiguousOutcome``, and may be asked for again.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Generator, Mapping, NamedTuple, Sequence

from multiraft.client import _search
from multiraft.client._client import ClientCore
from multiraft.client._exchange import Exchange, Pause
from multiraft.client._network import Lost, NoNodeAnswered, backoff_ms, parse_address
from multiraft.client._plans import PlanOperations
from multiraft.client._repeating import changes, may_have_happened
from multiraft.wire import messages, nodes
from multiraft.wire.connection import ResponseEvent
from multiraft.wire.errors import (
    AmbiguousOutcome,
    Code,
    InvalidRequest,
    LimitExceeded,
    OffsetNotAvailable,
    RequestError,
    TimedOut,
    UnknownTopic,
    exception_for,
)
from multiraft.wire.members import (
    GroupMembers,
    GroupMembersReply,
    GroupRecover,
    GroupRecoverReply,
)
from multiraft.wire.messages import (
    EARLIEST,
    LATEST,
    REFUSALS_PER_REPLY_MAX,
    TOPICS_PER_REQUEST_MAX,
    ClusterStatus,
    ClusterStatusReply,
    CreateTopic,
    DeleteTopic,
    DeleteTopicReply,
    GroupDescribe,
    GroupDescribeReply,
    GroupList,
    GroupSummary,
    GroupTransfer,
    GroupTransferReply,
    ListOffsets,
    ListTopics,
    Metadata,
    NodeStatus,
    NodeStatusReply,
    OffsetQuery,
    TopicMetadata,
    TopicSummary,
)

#: An operation that is refused for passing reasons is tried for this long.
OPERATION_TIMEOUT_MS = 10_000
#: One node's time to answer: less than the whole, so that another one can be asked.
EXCHANGE_TIMEOUT_MS = 5_000
#: The metadata leader's time to say how new the metadata is.
CATCH_UP_TIMEOUT_MS = 2_000
#: Offsets of partitions whose leader does not answer are left out of a description after this.
DESCRIBE_TIMEOUT_MS = 2_000

#: Bytes by which a node knows a topic's creation again.
TOPIC_NONCE_BYTES = 16
#: No refusal means that a request was carried out.
NOTHING_HAPPENED: Mapping[Code, Any] = MappingProxyType({})

#: A partition's range is two questions.
RANGES_PER_REQUEST_MAX = REFUSALS_PER_REPLY_MAX // 2


class OffsetRange(NamedTuple):
    """A partition's readable range: start_offset <= offset < end_offset."""

    start_offset: int
    end_offset: int


class PartitionDescription(NamedTuple):
    """One partition.  ``leader`` 0 = unknown; offsets are None when nobody could tell."""

    partition: int
    incarnation: int
    group: int
    leader: int
    leader_epoch: int
    start_offset: int | None
    end_offset: int | None


class TopicDescription(NamedTuple):
    """One topic."""

    name: str
    id: bytes
    incarnation: int
    partitions: tuple[PartitionDescription, ...]


class Operations(PlanOperations):
    """See the module docstring."""

    def __init__(self, core: ClientCore):
        self._core = core

    # ---- topics ----

    def create_topic(self, name: str, partitions: int, replication_factor: int) -> Generator:
        """-> ``TopicMetadata``.  Known again by its nonce; a node of an earlier release knows no
        nonces, and is asked once."""
        request = CreateTopic(name, partitions, replication_factor,
                              self._core.rng.randbytes(TOPIC_NONCE_BYTES))
        try:
            reply = yield from self._ask(request)
        except InvalidRequest:
            reply = yield from self._ask(request._replace(nonce=None), repeatable=False)
        self._core.metadata.created(reply.topic)
        return reply.topic

    def delete_topic(self, name: str, incarnation: int) -> Generator:
        """-> None.  ``incarnation`` 0 = the one that the topic has now.  It is named, so that no
        repetition deletes the next topic of that name."""
        if not incarnation:
            yield from self.catch_up()
            incarnation = (yield from self._topic(name)).incarnation
        yield from self._ask(DeleteTopic(name, incarnation),
                             happened={Code.UNKNOWN_TOPIC: DeleteTopicReply()})
        self._core.metadata.forget_topic(name)

    def list_topics(self) -> Generator:
        """-> list of ``TopicSummary``, by name."""
        yield from self.catch_up()
        topics: list[TopicSummary] = []
        while True:
            reply = yield from self._ask(ListTopics(topics[-1].name if topics else ""))
            topics += reply.topics
            if not reply.more or not reply.topics:
                return topics

    def describe_topic(self, name: str) -> Generator:
        """-> ``TopicDescription``."""
        topic = yield from self._topic(name)
        ranges = yield from self._ranges((topic,), DESCRIBE_TIMEOUT_MS)
        partitions = []
        for part in topic.partitions:
            start, end = ranges.get(part.incarnation, (None, None))
            location = self._core.metadata.locations.get(part.incarnation)
            leader, epoch = ((location.leader, location.leader_epoch) if location is not None
                             else (part.leader, part.leader_epoch))
            partitions.append(PartitionDescription(
                part.partition, part.incarnation, part.group, leader, epoch, start, end))
        return TopicDescription(topic.name, topic.id, topic.incarnation, tuple(partitions))

    def topic_metadata(self, name: str) -> Generator:
        """-> ``TopicMetadata``."""
        return (yield from self._topic(name))

    def list_offsets(self, name: str) -> Generator:
        """-> {partition: ``OffsetRange``}.  Raises when a partition's leader does not answer."""
        topic = yield from self._topic(name)
        ranges = yield from self._ranges((topic,), OPERATION_TIMEOUT_MS)
        return _by_partition(topic, ranges)

    def list_many_offsets(self, names: Sequence[str]) -> Generator:
        """-> {name: (``TopicMetadata``, {partition: ``OffsetRange``})} of the topics that exist, a
        request for thousands of them.  Raises as ``list_offsets``."""
        topics = yield from self._topics(names)
        ranges = yield from self._ranges(topics, OPERATION_TIMEOUT_MS)
        return {topic.name: (topic, _by_partition(topic, ranges)) for topic in topics}

    def offsets_at(self, name: str, timestamp_ms: int) -> Generator:
        """-> {partition: offset of its first record at or after ``timestamp_ms``, None = none}.
        Raises when a partition's leader does not answer, or what opening a batch raises."""
        topic = yield from self._topic(name)
        return (yield from _search.offsets_at(self._core, topic, timestamp_ms,
                                              OPERATION_TIMEOUT_MS))

    # ---- cluster ----

    def catch_up(self) -> Generator:
        """Hear from the metadata group's leader how new the metadata is: whatever this client asks
        from then on, of whatever node, knows all that was changed before.  -> None.

        A node that is behind waits for what its client has seen; a client that has seen nothing
        would take the honest ignorance of a node that has just started for the truth.  When nobody
        knows the leader, every node that is up is asked; a node that does not answer is left out.
        """
        status = yield from self._ask(ClusterStatus())
        leader = [node for node in status.nodes if node.id == status.metadata_leader]
        for node in leader or [node for node in status.nodes if node.state != "down"]:
            yield Exchange(node.client_address, NodeStatus(), CATCH_UP_TIMEOUT_MS)

    def cluster_status(self) -> Generator:
        """-> ``ClusterStatusReply``."""
        reply: ClusterStatusReply = yield from self._ask(ClusterStatus())
        return reply

    def group_list(self) -> Generator:
        """-> list of ``GroupSummary``, by group."""
        groups: list[GroupSummary] = []
        while True:
            reply = yield from self._ask(GroupList(groups[-1].group + 1 if groups else 0))
            groups += reply.groups
            if not reply.more or not reply.groups:
                return groups

    def group_transfer(self, group: int, to: int) -> Generator:
        """-> ``GroupTransferReply``.  To whoever is furthest (``to`` 0) it is asked again only of
        the leader that it was to be taken from."""
        if to:
            return (yield from self._ask(GroupTransfer(group, to)))
        before = yield from self._leader_of(group)
        deadline_ms = self._core.now_ms + OPERATION_TIMEOUT_MS
        while True:
            try:
                return (yield from self._ask(GroupTransfer(group), repeatable=False))
            except AmbiguousOutcome:
                now = yield from self._leader_of(group)
                if not before.leader or not now.leader or self._core.now_ms >= deadline_ms:
                    raise
                if now.leader != before.leader:
                    return GroupTransferReply(now.leader, now.term)

    def _leader_of(self, group: int) -> Generator:
        """-> ``GroupSummary`` of a group; without a leader when there is no such group."""
        reply = yield from self._ask(GroupList(group, 1))
        return next((row for row in reply.groups if row.group == group),
                    GroupSummary(group, 0, 0, 0, (), ()))

    def group_members(self, group: int, voters: tuple[int, ...], learners: tuple[int, ...],
                      expected_index: int) -> Generator:
        """-> ``GroupMembersReply`` of the leader.  Whether a change has begun whose answer was lost
        is looked up before it is asked for again."""
        request = GroupMembers(group, voters, learners, expected_index)
        if not voters:
            return (yield from self._ask(request))
        deadline_ms = self._core.now_ms + OPERATION_TIMEOUT_MS
        while True:
            try:
                return (yield from self._ask(request, repeatable=False))
            except AmbiguousOutcome:
                found = yield from self._ask(GroupMembers(group))
                if (sorted(found.voters), sorted(found.learners)) == (
                        sorted(voters), sorted(learners)):
                    return found
                if found.index != expected_index or self._core.now_ms >= deadline_ms:
                    raise

    def group_replica(self, group: int, address: str, timeout_ms: int) -> Generator:
        """-> ``GroupMembersReply`` of the node at ``address``."""
        reply: GroupMembersReply = yield from self._ask_node(GroupMembers(group, local=True),
                                                             address, timeout_ms)
        return reply

    def group_recover(self, group: int, survivor: int, incarnation: int) -> Generator:
        """-> ``GroupRecoverReply``."""
        reply: GroupRecoverReply = yield from self._ask(
            GroupRecover(group, survivor, incarnation))
        return reply

    def node_status(self, address: str, timeout_ms: int) -> Generator:
        """-> ``NodeStatusReply`` of the node at ``address`` ("" = any)."""
        reply: NodeStatusReply = yield from self._ask_node(NodeStatus(), address, timeout_ms)
        return reply

    def group_describe(self, group: int, address: str, timeout_ms: int) -> Generator:
        """-> ``GroupDescribeReply`` of the node at ``address``."""
        reply: GroupDescribeReply = yield from self._ask_node(GroupDescribe(group), address,
                                                              timeout_ms)
        return reply

    # ---- nodes ----

    def join_cluster(self, node: nodes.NodeRow) -> Generator:
        """-> ``JoinClusterReply``.  Joining twice is joining once."""
        reply: nodes.JoinClusterReply = yield from self._ask(nodes.JoinCluster(node))
        return reply

    def node_list(self) -> Generator:
        """-> ``NodeListReply``."""
        reply: nodes.NodeListReply = yield from self._ask(nodes.NodeList())
        return reply

    def node_describe(self, node: int) -> Generator:
        """-> ``NodeDescribeReply``."""
        reply: nodes.NodeDescribeReply = yield from self._ask(nodes.NodeDescribe(node))
        return reply

    def remove_node(self, node: int) -> Generator:
        """-> None.  Removing twice is removing once."""
        yield from self._ask(nodes.RemoveNode(node))

    def scrub_node(self, node: int, address: str, bytes_per_second: int,
                   timeout_ms: int) -> Generator:
        """-> ``ScrubNodeReply`` of ``node``, which is at ``address``."""
        reply: nodes.ScrubNodeReply = yield from self._ask_node(
            nodes.ScrubNode(node, bytes_per_second), address, timeout_ms)
        return reply

    # ---- parts ----

    def _topic(self, name: str) -> Generator:
        """Fresh metadata of one topic.  Raises ``UnknownTopic``, never because a node is behind."""
        for asked_before in (False, True):
            reply = yield from self._ask(Metadata((name,)))
            self._core.learn((name,), reply)
            for topic in reply.topics:
                if topic.name == name:
                    return topic
            if not asked_before:
                yield from self.catch_up()
        raise UnknownTopic(f"topic {name!r} does not exist")

    def _topics(self, names: Sequence[str]) -> Generator:
        """-> fresh metadata of those of many topics that exist, in the order of their names."""
        topics: dict[str, TopicMetadata] = {}
        yield from self.catch_up()
        left, count = tuple(dict.fromkeys(names)), TOPICS_PER_REQUEST_MAX
        while left:
            asked = left[:count]
            try:
                reply = yield from self._ask(Metadata(asked))
            except LimitExceeded:
                if len(asked) == 1:
                    raise
                count = len(asked) // 2  # they have more partitions than one answer holds
                continue
            self._core.learn(asked, reply)
            topics.update((topic.name, topic) for topic in reply.topics)
            left = left[count:]
        return [topics[name] for name in names if name in topics]

    def _ranges(self, topics: Sequence[TopicMetadata], timeout_ms: int) -> Generator:
        """-> {incarnation: OffsetRange} of the partitions whose leaders answered in time."""
        core, ranges, failures = self._core, {}, 0
        deadline_ms = core.now_ms + timeout_ms
        missing = {part.incarnation: topic.name for topic in topics for part in topic.partitions}
        while True:
            by_address: dict[str, list[int]] = {}
            for incarnation in missing:
                address = core.metadata.leader_address(incarnation)
                if address is not None:
                    by_address.setdefault(address, []).append(incarnation)
            for address, incarnations in by_address.items():
                for at in range(0, len(incarnations), RANGES_PER_REQUEST_MAX):
                    remaining = max(1, deadline_ms - core.now_ms)
                    ranges.update((yield from self._ranges_at(
                        address, incarnations[at:at + RANGES_PER_REQUEST_MAX], remaining)))
            missing = {incarnation: name for incarnation, name in missing.items()
                       if incarnation not in ranges}
            if not missing or core.now_ms >= deadline_ms:
                return ranges
            failures += 1
            for name in missing.values():
                core.metadata.want(name)
            yield Pause(backoff_ms(core.limits, failures, core.rng))

    def _ranges_at(self, address: str, incarnations: list[int], timeout_ms: int) -> Generator:
        request = ListOffsets(tuple(OffsetQuery(incarnation, word) for incarnation in incarnations
                                    for word in (EARLIEST, LATEST)))
        outcome = yield Exchange(address, request, min(timeout_ms, EXCHANGE_TIMEOUT_MS))
        if isinstance(outcome, Lost) or outcome.code != Code.OK:
            return {}
        results, found = outcome.reply.results, {}
        for first, last in zip(results[::2], results[1::2], strict=False):
            if first.code == Code.OK and last.code == Code.OK:
                found[first.incarnation] = OffsetRange(first.offset, last.offset)
            else:
                bad = first if first.code != Code.OK else last
                location = self._core.metadata.locations.get(bad.incarnation)
                if bad.code == Code.NOT_LEADER and location is not None:
                    self._core.metadata.leader_refused(bad.incarnation, location.leader, bad.error)
                elif bad.code == Code.MOVED:
                    self._core.metadata.moved(bad.incarnation, bad.error)
        return found

    def _ask(self, request: messages.Request, repeatable: bool = True, address: str = "",
             happened: Mapping[Code, Any] = NOTHING_HAPPENED) -> Generator:
        """One answer from any node (or ``address``), following hints to the right one.
        ``happened``: refusals that mean, when an answer before was lost, that the request was
        carried out, and what is returned then."""
        core, failures, hint, avoid, answered = self._core, 0, "", "", False
        perhaps = False
        begun_ms = core.now_ms
        while True:
            if perhaps and core.ended is not None:  # nobody asks again
                raise AmbiguousOutcome(f"{messages.OPS[type(request)]}: it may have happened, an "
                                       f"answer was lost; {core.ended}") from core.ended
            target = address or hint or core.network.any_address(core.now_ms, avoid)
            if target is not None:
                outcome = yield Exchange(target, request, EXCHANGE_TIMEOUT_MS)
                if isinstance(outcome, ResponseEvent) and outcome.code == Code.OK:
                    return outcome.reply
                answered |= isinstance(outcome, ResponseEvent)
                if perhaps and isinstance(outcome, ResponseEvent) and outcome.code in happened:
                    return happened[outcome.code]
                perhaps |= changes(request) and may_have_happened(outcome)
                if perhaps and core.ended is not None:
                    continue
                hopeless = not answered and self._is_hopeless(begun_ms, address)
                try:
                    hint = self._judge(request, target, outcome, repeatable, begun_ms, hopeless)
                except (RequestError, NoNodeAnswered) as error:
                    if perhaps and (hopeless or error.retriable):
                        raise AmbiguousOutcome(
                            f"{messages.OPS[type(request)]}: it may have happened, an answer was "
                            f"lost; last: {error}. Ask again") from error
                    raise
                avoid = target if isinstance(outcome, Lost) else ""
            elif not answered and self._is_hopeless(begun_ms, address):
                if perhaps:
                    raise AmbiguousOutcome(f"{messages.OPS[type(request)]}: it may have happened, "
                                           "an answer was lost; no node answers now. Ask again")
                raise NoNodeAnswered(core.network.errors())
            failures += 1
            yield Pause(backoff_ms(core.limits, failures, core.rng))

    def _ask_node(self, request: messages.Request, address: str, timeout_ms: int) -> Generator:
        """The answer of one node about itself: with ``timeout_ms`` above 0 it is asked once and
        not waited for longer.  Raises ``TimedOut`` then, ``ConfigError`` for what is no address."""
        if address or timeout_ms:
            parse_address(address)
        if not timeout_ms:
            return (yield from self._ask(request, address=address))
        outcome = yield Exchange(address, request, timeout_ms)
        if isinstance(outcome, Lost):
            if outcome.impossible:
                raise InvalidRequest(outcome.why)
            raise TimedOut(f"{messages.OPS[type(request)]}: {address}: {outcome.why}")
        if outcome.code != Code.OK:
            raise exception_for(outcome.code, outcome.error)
        return outcome.reply

    def _is_hopeless(self, begun_ms: int, address: str) -> bool:
        """Whether what nobody has answered since ``begun_ms`` is given up: not while there is an
        address that was never tried: one that swallows packets may take all the time."""
        core = self._core
        patience_ms = core.limits.unreachable_ms
        if not address and core.network.has_untried():
            patience_ms = max(patience_ms, OPERATION_TIMEOUT_MS)
        return core.now_ms - begun_ms >= patience_ms

    def _judge(self, request, target: str, outcome: ResponseEvent | Lost, repeatable: bool,
               begun_ms: int, hopeless: bool) -> str:
        """Raises what ends the operation; else the address to ask next ("" = any)."""
        elapsed_ms = self._core.now_ms - begun_ms
        op = messages.OPS[type(request)]
        if isinstance(outcome, Lost):
            if outcome.impossible:
                raise InvalidRequest(outcome.why)
            if outcome.sent and not repeatable:
                raise AmbiguousOutcome(f"{op}: {target} gave no answer ({outcome.why}); it may or "
                                       "may not have happened")
            if hopeless:
                raise NoNodeAnswered(self._core.network.errors())
            if elapsed_ms >= OPERATION_TIMEOUT_MS:
                raise TimedOut(f"{op}: {target}: {outcome.why}")
            return ""
        error = exception_for(outcome.code, outcome.error)
        may_repeat = error.retriable or (repeatable and not error.definite)
        if not may_repeat or elapsed_ms >= OPERATION_TIMEOUT_MS:
            raise error
        return error.detail.leader_address


def _by_partition(topic: TopicMetadata,
                  ranges: dict[int, OffsetRange]) -> dict[int, OffsetRange]:
    """Raises ``OffsetNotAvailable`` for a partition whose range nobody told."""
    for part in topic.partitions:
        if part.incarnation not in ranges:
            raise OffsetNotAvailable(f"{topic.name}/{part.partition}: its leader did not answer in "
                                     f"{OPERATION_TIMEOUT_MS} ms")
    return {part.partition: ranges[part.incarnation] for part in topic.partitions}
