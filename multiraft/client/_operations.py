"""Administrative operations on topics, offsets, groups, nodes and sinks.

Contract.  Each public function is an operation (see ``_steps.py``) on the ``ClientCore`` that it
takes first.  The clients make their methods from these functions (``_methods.py``), so parameters,
defaults and docstrings here are those of the methods.  Beside the errors that it names, each
operation raises ``NoNodeAnswered`` when no address answers, ``TimedOut`` after 10 s,
``InvalidRequest`` for an argument out of range, ``Closed`` or ``Forked`` after the client's end,
and, if it changes the cluster, ``AmbiguousOutcome`` when no answer came in time.  Retries:
``_retries.py``.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Mapping, NamedTuple, Sequence

from multiraft.client import _retries, _search
from multiraft.client._client import ClientCore
from multiraft.client._network import Lost, backoff_ms
from multiraft.client._retries import EXCHANGE_TIMEOUT_MS, ask, ask_node
from multiraft.client._steps import Exchange, Operation, Pause
from multiraft.client.texts import duration, setting_text
from multiraft.wire import nodes, sinks
from multiraft.wire.errors import (
    AmbiguousOutcome,
    Code,
    InvalidRequest,
    LimitExceeded,
    OffsetNotAvailable,
    TopicExists,
    UnknownTopic,
)
from multiraft.wire.members import (
    GroupMembers,
    GroupMembersReply,
    RecoverGroup,
    RecoverGroupReply,
)
from multiraft.wire.messages import (
    EARLIEST,
    LATEST,
    REFUSALS_PER_REPLY_MAX,
    TOPICS_PER_REQUEST_MAX,
    AddPartitions,
    ClusterStatus,
    ClusterStatusReply,
    CreateTopic,
    DeleteTopic,
    DeleteTopicReply,
    GroupDescribe,
    GroupDescribeReply,
    GroupSummary,
    ListGroups,
    ListOffsets,
    ListTopics,
    Metadata,
    NodeStatus,
    NodeStatusReply,
    OffsetQuery,
    TopicMetadata,
    TopicSummary,
    TransferLeadership,
    TransferLeadershipReply,
)

#: Time for the metadata leader to answer with its metadata index.
CATCH_UP_TIMEOUT_MS = 2_000
#: Time after which a description leaves out offsets of partitions whose leader does not answer.
DESCRIBE_TIMEOUT_MS = 2_000

#: Bytes by which a node recognizes a repeated creation of a topic, or addition of partitions.
TOPIC_NONCE_BYTES = 16

#: A topic without settings of its own.
NO_SETTINGS: Mapping[str, str | int | float] = MappingProxyType({})

#: Partitions per request: the range of one is two queries.
RANGES_PER_REQUEST_MAX = REFUSALS_PER_REPLY_MAX // 2


class OffsetRange(NamedTuple):
    """Readable range of a partition: start_offset <= offset < end_offset."""

    start_offset: int
    end_offset: int


class PartitionDescription(NamedTuple):
    """One partition.  ``leader`` 0 = unknown; offsets are None when its leader did not answer."""

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


# ---- topics -------------------------------------------------------------------------------------


def create_topic(core: ClientCore, name: str, partitions: int = 1, replication_factor: int = 0,
                 if_not_exists: bool = False,
                 settings: Mapping[str, str | int | float] = NO_SETTINGS,
                 ) -> Operation[TopicMetadata]:
    """Create a topic and return its metadata.

    ``name``: 1 to 249 characters of ``A-Za-z0-9._-``; ``partitions``: 1 to 10,000;
    ``replication_factor``: 0 = the pool's, which is the only one accepted; ``if_not_exists``:
    return the metadata of a topic that exists already, whatever its partitions and settings;
    ``settings``: name -> value, for example ``{"max.message.bytes": 100_000}``.

    A repetition by this call, after a lost answer, returns the topic that it has created.  Raises
    ``TopicExists``, ``InvalidTopicName``, ``InvalidSetting`` with the reason, ``LimitExceeded``
    with limit and value, and ``AmbiguousOutcome`` when no answer came in 10 s."""
    # The nonce makes a repetition recognizable.  A node of an earlier release takes no nonce: it
    # is asked once without one.
    pairs = tuple((setting, setting_text(value)) for setting, value in settings.items())
    request = CreateTopic(name, partitions, replication_factor,
                          core.rng.randbytes(TOPIC_NONCE_BYTES), pairs or None)
    try:
        try:
            reply = yield from ask(core, request)
        except InvalidRequest:
            reply = yield from ask(core, request._replace(nonce=None), repeatable=False)
    except TopicExists:
        if not if_not_exists:
            raise
        return (yield from topic_metadata(core, name))
    core.metadata.created(reply.topic)
    return reply.topic


def delete_topic(core: ClientCore, name: str, incarnation: int = 0) -> Operation[None]:
    """Delete a topic with all its records.  ``incarnation``: delete only that incarnation of the
    name; 0 = the present one.  Raises ``UnknownTopic``, and ``AmbiguousOutcome`` when no answer
    came in 10 s.  Consumers and producers of the topic get ``UnknownPartition``."""
    # The incarnation is always named, so that no repetition deletes the next topic of that name.
    if not incarnation:
        yield from catch_up(core)
        incarnation = (yield from topic_metadata(core, name)).incarnation
    yield from ask(core, DeleteTopic(name, incarnation),
                   happened={Code.UNKNOWN_TOPIC: DeleteTopicReply()})
    core.metadata.forget_topic(name)


def add_partitions(core: ClientCore, name: str, partitions: int, dry_run: bool = False,
                   ) -> Operation[TopicMetadata]:
    """Add partitions to a topic, so that it has ``partitions`` of them, and return its metadata.
    ``dry_run``: only check, and return the present metadata.

    Records with a key go to other partitions from then on, so that the order of those of one key
    does not hold across the addition.  Consumers of the whole topic read the new partitions from
    their first record on.  A repetition by this call, after a lost answer, adds nothing twice.
    Raises ``InvalidPartitions`` if the topic has as many or more, ``UnknownTopic``,
    ``InvalidRequest`` for an internal topic, ``LimitExceeded`` with limit and value, and
    ``AmbiguousOutcome`` when no answer came in 10 s."""
    yield from catch_up(core)
    incarnation = (yield from topic_metadata(core, name)).incarnation
    reply = yield from ask(core, AddPartitions(
        name, partitions, incarnation, core.rng.randbytes(TOPIC_NONCE_BYTES), dry_run))
    core.metadata.created(reply.topic)
    return reply.topic


def list_topics(core: ClientCore, count_max: int | None = None) -> Operation[list[TopicSummary]]:
    """Return all topics, sorted by name; with ``count_max``, the first so many.  O(topics), in
    pages of 1,000."""
    yield from catch_up(core)
    topics: list[TopicSummary] = []
    while count_max is None or len(topics) < count_max:
        reply = yield from ask(core, ListTopics(topics[-1].name if topics else ""))
        topics += reply.topics
        if not reply.more or not reply.topics:
            break
    return topics[:count_max]


def describe_topic(core: ClientCore, name: str) -> Operation[TopicDescription]:
    """Return partitions, leaders and offsets of a topic.  Offsets are None where a leader does not
    answer in 2 s.  Raises ``UnknownTopic``."""
    topic = yield from topic_metadata(core, name)
    ranges = yield from _ranges(core, (topic,), DESCRIBE_TIMEOUT_MS)
    partitions = []
    for part in topic.partitions:
        start, end = ranges.get(part.incarnation, (None, None))
        location = core.metadata.locations.get(part.incarnation)
        leader, epoch = ((location.leader, location.leader_epoch) if location is not None
                         else (part.leader, part.leader_epoch))
        partitions.append(PartitionDescription(
            part.partition, part.incarnation, part.group, leader, epoch, start, end))
    return TopicDescription(topic.name, topic.id, topic.incarnation, tuple(partitions))


def topic_metadata(core: ClientCore, name: str) -> Operation[TopicMetadata]:
    """Return groups and leaders of a topic's partitions, as one node knows them.  Raises
    ``UnknownTopic``, after a comparison with the metadata leader."""
    # A node that lags behind may not know the topic yet: catch up once before believing it.
    for asked_before in (False, True):
        reply = yield from ask(core, Metadata((name,)))
        core.learn((name,), reply)
        for topic in reply.topics:
            if topic.name == name:
                return topic
        if not asked_before:
            yield from catch_up(core)
    raise UnknownTopic(f"topic {name!r} does not exist").about(name)


def list_offsets(core: ClientCore, name: str) -> Operation[dict[int, OffsetRange]]:
    """Return the first and the next offset of each partition.  They are linearizable: the leader
    confirms them with a majority.  Raises ``UnknownTopic``, ``OffsetNotAvailable`` when the leader
    of a partition does not answer in 10 s."""
    topic = yield from topic_metadata(core, name)
    ranges = yield from _ranges(core, (topic,), _retries.OPERATION_TIMEOUT_MS)
    return _by_partition(core, topic, ranges)


def list_many_offsets(core: ClientCore, names: Sequence[str],
                      ) -> Operation[dict[str, tuple[TopicMetadata, dict[int, OffsetRange]]]]:
    """Return metadata and ranges of those topics that exist, by name, with up to 1,000 topics per
    request.  Raises as ``list_offsets``.  O(partitions)."""
    topics = yield from _topics(core, names)
    ranges = yield from _ranges(core, topics, _retries.OPERATION_TIMEOUT_MS)
    return {topic.name: (topic, _by_partition(core, topic, ranges)) for topic in topics}


def offsets_at(core: ClientCore, name: str, timestamp_ms: int) -> Operation[dict[int, int | None]]:
    """Return for each partition the offset of its first record at or after ``timestamp_ms``
    (milliseconds since 1970); None when there is none yet.  Raises ``UnknownTopic``,
    ``OffsetNotAvailable`` when the leader of a partition does not answer in 10 s,
    ``UnreadableBatch`` for a batch that cannot be opened."""
    topic = yield from topic_metadata(core, name)
    return (yield from _search.offsets_at(core, topic, timestamp_ms,
                                          _retries.OPERATION_TIMEOUT_MS))


# ---- cluster ------------------------------------------------------------------------------------


def catch_up(core: ClientCore) -> Operation[None]:
    """Learn the present metadata index.  Each later request of this client, to any node, then sees
    all changes of the metadata that were made before this call."""
    # A node that lags behind parks a request until it has applied the index that the client names.
    # A new client names none, and would get the old metadata of a node that has just started.
    # Without a known leader every node that is up is asked; one that does not answer is left out.
    status = yield from ask(core, ClusterStatus())
    leader = [node for node in status.nodes if node.id == status.metadata_leader]
    for node in leader or [node for node in status.nodes if node.state != "down"]:
        yield Exchange(node.client_address, NodeStatus(), CATCH_UP_TIMEOUT_MS)


def cluster_status(core: ClientCore) -> Operation[ClusterStatusReply]:
    """Return nodes and totals of the cluster, as one node knows them."""
    return (yield from ask(core, ClusterStatus()))


def group_list(core: ClientCore) -> Operation[list[GroupSummary]]:
    """Return all Raft groups, sorted by id.  O(groups), in pages of 10,000."""
    groups: list[GroupSummary] = []
    while True:
        reply = yield from ask(core, ListGroups(groups[-1].group + 1 if groups else 0))
        groups += reply.groups
        if not reply.more or not reply.groups:
            return groups


def group_transfer(core: ClientCore, group: int, to: int = 0) -> Operation[TransferLeadershipReply]:
    """Transfer leadership of ``group`` to node ``to`` (0 = the most up-to-date follower).  Returns
    the new leader and its term.  Raises ``AmbiguousOutcome`` when the answer was lost and the
    leader did not change."""
    if to:
        return (yield from ask(core, TransferLeadership(group, to)))
    # A repetition must not transfer leadership away from the new leader: repeat the request only
    # while the former leader still leads.
    before = yield from _leader_of(core, group)
    deadline_ms = core.now_ms + _retries.OPERATION_TIMEOUT_MS
    while True:
        try:
            return (yield from ask(core, TransferLeadership(group), repeatable=False))
        except AmbiguousOutcome:
            now = yield from _leader_of(core, group)
            if not before.leader or not now.leader or core.now_ms >= deadline_ms:
                raise
            if now.leader != before.leader:
                return TransferLeadershipReply(now.leader, now.term)


def _leader_of(core: ClientCore, group: int) -> Operation[GroupSummary]:
    """Return the summary of a group; one without a leader when the group does not exist."""
    reply = yield from ask(core, ListGroups(group, 1))
    return next((row for row in reply.groups if row.group == group),
                GroupSummary(group, 0, 0, 0, (), ()))


def group_members(core: ClientCore, group: int, voters: tuple[int, ...] = (),
                  learners: tuple[int, ...] = (),
                  expected_index: int = -1) -> Operation[GroupMembersReply]:
    """Return the members of ``group`` as its leader sees them.  With ``voters``, start a change to
    these ``voters`` and ``learners`` first, if the configuration in force is still the one at log
    index ``expected_index`` (-1 = any).  The change completes later: ``is_open`` is False then."""
    request = GroupMembers(group, voters, learners, expected_index)
    if not voters:
        return (yield from ask(core, request))
    deadline_ms = core.now_ms + _retries.OPERATION_TIMEOUT_MS
    while True:
        try:
            return (yield from ask(core, request, repeatable=False))
        except AmbiguousOutcome:
            # The answer was lost: look up whether the change has begun before asking again.
            found = yield from ask(core, GroupMembers(group))
            if (sorted(found.voters), sorted(found.learners)) == (
                    sorted(voters), sorted(learners)):
                return found
            if found.index != expected_index or core.now_ms >= deadline_ms:
                raise


def group_replica(core: ClientCore, group: int, address: str,
                  timeout_ms: int = 0) -> Operation[GroupMembersReply]:
    """Return the members of ``group`` that the replica on the node at ``address`` knows.
    ``timeout_ms`` as in ``node_status``."""
    return (yield from ask_node(core, GroupMembers(group, local=True), address, timeout_ms))


def group_recover(core: ClientCore, group: int, survivor: int,
                  incarnation: int) -> Operation[RecoverGroupReply]:
    """Force recovery of a group that has lost its majority: node ``survivor`` continues as its only
    voter, in ``incarnation``, which is one above the present one.  Entries that only other replicas
    had are lost (docs/decisions/0007)."""
    return (yield from ask(core, RecoverGroup(group, survivor, incarnation)))


def node_status(core: ClientCore, address: str = "",
                timeout_ms: int = 0) -> Operation[NodeStatusReply]:
    """Return statistics of the node at ``address`` ("" = any).  With ``timeout_ms`` the node is
    asked once, and ``TimedOut`` is raised without an answer in that time; with 0 the request is
    repeated for 10 s."""
    return (yield from ask_node(core, NodeStatus(), address, timeout_ms))


def group_describe(core: ClientCore, group: int, address: str,
                   timeout_ms: int = 0) -> Operation[GroupDescribeReply]:
    """Return the Raft state of the replica of ``group`` on the node at ``address``.
    ``timeout_ms`` as in ``node_status``."""
    return (yield from ask_node(core, GroupDescribe(group), address, timeout_ms))


# ---- nodes --------------------------------------------------------------------------------------


def join_cluster(core: ClientCore, node: nodes.NodeRow) -> Operation[nodes.JoinClusterReply]:
    """Register a new data directory as a node of the cluster.  ``node.id`` 0 = the next free id.
    Returns the id and what the node needs to find the others.  Idempotent per incarnation."""
    return (yield from ask(core, nodes.JoinCluster(node)))


def node_list(core: ClientCore) -> Operation[nodes.ListNodesReply]:
    """Return all nodes, and the ids of removed nodes."""
    return (yield from ask(core, nodes.ListNodes()))


def node_describe(core: ClientCore, node: int) -> Operation[nodes.DescribeNodeReply]:
    """Return one node and the groups it is a member of.  Raises ``UnknownNode``."""
    return (yield from ask(core, nodes.DescribeNode(node)))


def remove_node(core: ClientCore, node: int) -> Operation[None]:
    """Remove a node that is a member of no group.  Its id is never used again.  Idempotent."""
    yield from ask(core, nodes.RemoveNode(node))


def scrub_node(core: ClientCore, node: int, address: str, bytes_per_second: int = 0,
               timeout_ms: int = 0) -> Operation[nodes.ScrubNodeReply]:
    """Start a scrub on ``node``, at ``address``: it reads and verifies all its data at
    ``bytes_per_second`` (0 = as configured).  Returns when the pass has begun.  ``timeout_ms`` as
    in ``node_status``."""
    return (yield from ask_node(core, nodes.ScrubNode(node, bytes_per_second), address,
                                timeout_ms))


def control_cleaner(core: ClientCore, node: int, address: str, action: str,
                    bytes_per_second: int = 0,
                    timeout_ms: int = 0) -> Operation[nodes.ControlCleanerReply]:
    """Pause or resume the cleaner of ``node``, at ``address``, until it stops: ``action`` is
    "pause" or "resume".  ``bytes_per_second`` is its pace from now on (0 = as it is).
    ``timeout_ms`` as in ``node_status``."""
    return (yield from ask_node(core, nodes.ControlCleaner(node, action, bytes_per_second),
                                address, timeout_ms))


# ---- sinks --------------------------------------------------------------------------------------


def sink_request(core: ClientCore, request: sinks.Request) -> Operation[Any]:
    """Send one of the requests of ``multiraft.wire.sinks`` and return its reply. Raises
    ``StaleTransaction`` when the transaction is over, ``AmbiguousOutcome`` when a change of the
    sink ledger was not answered in 10 s."""
    # All of these may be repeated: a transaction is opened once per nonce, and decisions are final.
    return (yield from ask(core, request))


# ---- parts --------------------------------------------------------------------------------------


def _topics(core: ClientCore, names: Sequence[str]) -> Operation[list[TopicMetadata]]:
    """Return fresh metadata of those topics that exist, in the order of ``names``."""
    topics: dict[str, TopicMetadata] = {}
    yield from catch_up(core)
    left, count = tuple(dict.fromkeys(names)), TOPICS_PER_REQUEST_MAX
    while left:
        asked = left[:count]
        try:
            reply = yield from ask(core, Metadata(asked))
        except LimitExceeded:
            if len(asked) == 1:
                raise
            count = len(asked) // 2  # the topics have more partitions than one answer holds
            continue
        core.learn(asked, reply)
        topics.update((topic.name, topic) for topic in reply.topics)
        left = left[count:]
    return [topics[name] for name in names if name in topics]


def _ranges(core: ClientCore, topics: Sequence[TopicMetadata],
            timeout_ms: int) -> Operation[dict[int, OffsetRange]]:
    """Return partition incarnation -> readable range, for the partitions whose leaders answered
    within ``timeout_ms``.  Those that did not are asked again until then."""
    ranges: dict[int, OffsetRange] = {}
    failures = 0
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
                ranges.update((yield from _ranges_at(
                    core, address, incarnations[at:at + RANGES_PER_REQUEST_MAX], remaining)))
        missing = {incarnation: name for incarnation, name in missing.items()
                   if incarnation not in ranges}
        if not missing or core.now_ms >= deadline_ms:
            return ranges
        failures += 1
        for name in missing.values():
            core.metadata.want(name)
        yield Pause(backoff_ms(core.limits, failures, core.rng))


def _ranges_at(core: ClientCore, address: str, incarnations: list[int],
               timeout_ms: int) -> Operation[dict[int, OffsetRange]]:
    """Return partition incarnation -> readable range, for the partitions that the node at
    ``address`` answers.  Redirects of the others go into the metadata cache."""
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
            location = core.metadata.locations.get(bad.incarnation)
            if bad.code == Code.NOT_LEADER and location is not None:
                core.metadata.leader_refused(bad.incarnation, location.leader, bad.error)
            elif bad.code == Code.MOVED:
                core.metadata.moved(bad.incarnation, bad.error)
    return found


def _by_partition(core: ClientCore, topic: TopicMetadata,
                  ranges: dict[int, OffsetRange]) -> dict[int, OffsetRange]:
    """Return the ranges by partition.  Raises ``OffsetNotAvailable`` for a missing one."""
    for part in topic.partitions:
        if part.incarnation not in ranges:
            raise OffsetNotAvailable(f"{topic.name}/{part.partition}: its leader did not answer in "
                                     f"{duration(_retries.OPERATION_TIMEOUT_MS)}"
                                     f"{core.metadata.why_unavailable(part.incarnation)}")
    return {part.partition: ranges[part.incarnation] for part in topic.partitions}
