"""Administrative requests: topics, producers, groups, status.

Contract.  ``handle`` gives each request a task of its own (they are rare), waits, bounded, until
this node has applied the metadata its client has seen, and answers exactly once.  Changes of
metadata go to the metadata leader; another node refuses with that leader's address.

Theory.  Retrying a change whose outcome was ambiguous is safe: creating an existing topic and
deleting a missing one are answered with their own codes.  The cost of a request is counted before
any of it is done; more than one step of it is done in turns (``turns.py``).
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Awaitable, Callable
from itertools import repeat
from typing import TYPE_CHECKING, Any

import trio

from multiraft.errors import NotLeader, ProposalError
from multiraft.settings.effective import is_internal
from multiraft.types import METADATA_GROUP
from multiraft.wire import members
from multiraft.wire import messages as wire
from multiraft.wire.connection import RequestEvent
from multiraft.wire.errors import (
    Code,
    ErrorDetail,
    InvalidPartitions,
    InvalidRequest,
    LeaderUnknown,
    LimitExceeded,
    StaleMetadata,
    TimedOut,
    UnknownTopic,
    Unsupported,
    exception_for,
)
from multiraft.wire.schema import I16_MAX
from multiraft.wire.settings import SettingChange
from node.admin.group_requests import GroupRequests
from node.admin.permissions import denied
from node.admin.setting_requests import judged
from node.clients.metadata_wait import METADATA_WAIT_S
from node.clients.request_tasks import RequestTasks
from node.config import NodeConfig
from node.loop.steps import ROWS_PER_STEP, parts
from node.loop.turns import Turns
from node.metadata import state_machine
from node.metadata.node_releases import added_partitions_fault
from node.metadata.settings_table import NONE
from node.peers.registry import PeerRegistry
from node.replicas.group_description import describe_group

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.storage.store import Store
    from node.clients.router import Router
    from node.clients.session import Answer, Session
    from node.loop.leadership_notifier import LeadershipNotifier
    from node.metadata.commands import Command
    from node.metadata.log import MetadataLog

#: Time for a transfer, in seconds; then the reply reports the present leader.
TRANSFER_WAIT_S = 3.0
TRANSFER_RETRY_S = 0.1
#: Cost of a request that names no more than a few rows: a task, and perhaps a command.
REQUEST_ROWS = 32


class Admin:
    """Handler of every request except Produce, Fetch, ListOffsets and ReportCorruption."""

    def __init__(self, core: MultiRaft, store: Store, metadata_log: MetadataLog, directory: Router,
                 config: NodeConfig, known: PeerRegistry, others: dict,
                 request_round: Callable[[], None], roles: LeadershipNotifier, turns: Turns):
        """Create the handler.  ``others``: request -> its handler in another part; the map may be
        filled later, before the first request arrives."""
        self._turns = turns
        self._groups = GroupRequests(core, metadata_log, request_round)
        self._core = core
        self._store = store
        self._metadata_log = metadata_log
        self._directory = directory
        self._config = config
        self._known = known
        self._others = others
        self._request_round = request_round
        self._roles = roles
        self._tasks = RequestTasks(turns, request_round, directory.leader_detail)
        self._creating = 0  # partitions of topics whose creation is not decided
        self._wide = trio.Lock()  # held while a command of many partitions is in progress

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the nursery of requests in progress, until cancelled."""
        await self._tasks.run(task_status)

    @property
    def peer_handlers(self) -> dict[type, Callable[[Any], Awaitable[Any]]]:
        """Request that another node passes on to the metadata leader -> its handler."""
        return {shape.kind: self._handle for shape in wire.PEER_REQUESTS.values()}

    def handle(self, event: RequestEvent, answer: Answer) -> None:
        """Start a task that handles a request and calls ``answer`` once, later; above
        ``ADMIN_REQUESTS_MAX``, and without permission, refuse at once."""
        reason = denied(answer.session, event.request, self._metadata_log.state)
        if reason:
            answer.refuse(Code.NOT_AUTHORIZED, ErrorDetail(text=reason))
            return
        self._tasks.start(answer, self._reply_to, event)

    def forget(self, session: Session) -> None:
        """Cancel the requests of a session that has ended."""
        self._tasks.forget(session)

    async def _reply_to(self, event: RequestEvent) -> Any:
        if not await self._metadata_log.applied(event.metadata_index, METADATA_WAIT_S):
            raise StaleMetadata(
                f"this node has applied metadata {self._directory.metadata_index}, the client "
                f"has seen {event.metadata_index}")
        await self._turns.take(REQUEST_ROWS)
        return await self._handle(event.request)

    def _handle(self, request: Any) -> Awaitable[Any]:
        other = self._others.get(type(request))
        return other(request) if other is not None else self._handlers[type(request)](self, request)

    # ---- topics ----------------------------------------------------------------------------------

    async def _metadata(self, request: wire.Metadata) -> wire.MetadataReply:
        """Return metadata of the topics named, and the names that no topic has.

        A name that is given twice is answered once. O(partitions of the topics named), in turns.
        Raises ``LimitExceeded``, before any of it is done, for more than ``metadata_rows_max``
        partitions."""
        state = self._metadata_log.state
        names = dict.fromkeys(request.topics or ())
        found = {name: state.topic(name) for name in names}
        topics = [topic for topic in found.values() if topic is not None]
        self._check_rows(topics)
        described = tuple([await self._topic_metadata(topic) for topic in topics])
        nodes = tuple(wire.NodeAddress(node.id, node.client_address, node.rack)
                      for node in self._known.nodes())
        groups = tuple({part.group: None for topic in described for part in topic.partitions})
        replicas: list[wire.GroupReplicas] = []
        for part in parts(len(groups)):
            await self._turns.take(len(part))
            replicas += [wire.GroupReplicas(group, self._directory.replicas(group))
                         for group in groups[part.start:part.stop]]
        return wire.MetadataReply(
            self._config.cluster_id, nodes, described,
            tuple(name for name, topic in found.items() if topic is None), tuple(replicas))

    def _check_rows(self, topics: list[state_machine.Topic]) -> None:
        """Raise ``LimitExceeded`` when these topics have more partitions than one reply can
        describe."""
        limit = self._config.limits.metadata_rows_max
        value = sum(topic.partitions for topic in topics)
        if value > limit:
            raise LimitExceeded(
                f"metadata_rows_max is {limit}; the {len(topics)} topics named have {value} "
                f"partitions: ask for fewer at a time", limit=limit, value=value)

    async def _topic_metadata(self, topic: state_machine.Topic) -> wire.TopicMetadata:
        """Return metadata of one topic.  O(partitions), in turns."""
        rows: list[wire.PartitionMetadata] = []
        for part in parts(topic.partitions):
            await self._turns.take(len(part))
            # Not ``locate``: the topic may have been deleted since its creation was applied.
            entries = self._metadata_log.state.last_epoch_entries(topic, part)
            rows += map(self._partition_metadata, repeat(topic), part, entries)
        return wire.TopicMetadata(topic.name, topic.id, topic.incarnation, tuple(rows))

    def _partition_metadata(self, topic: state_machine.Topic, number: int,
                            entry: state_machine.EpochEntry) -> wire.PartitionMetadata:
        leader, term = self._core.status.leader_hint(entry.group)
        return wire.PartitionMetadata(number, topic.incarnation_of(number), entry.group, leader,
                                      entry.leader_epoch_base + term, entry.epoch)

    async def _create_topic(self, request: wire.CreateTopic) -> wire.CreateTopicReply:
        factor = self._known.facts.replication_factor
        if request.replication_factor not in (0, factor):
            raise LimitExceeded(
                f"the replication factor belongs to the pool and is {factor} here; "
                f"{request.replication_factor} was asked for", limit=factor,
                value=request.replication_factor)
        topic_id = _topic_id(request)
        known = self._metadata_log.state.topic(request.name)
        # else the topic was deleted or recreated meanwhile
        settings = None
        if known is None or known.id != topic_id:
            self._check_room(request.partitions, request.partitions, 1)
            settings = self._judged_settings(request)
        self._creating += request.partitions
        try:
            topic = await self._propose_wide(state_machine.CreateTopic(
                request.name, topic_id, request.partitions, settings), request.partitions)
        finally:
            self._creating -= request.partitions
        return wire.CreateTopicReply(await self._topic_metadata(topic))

    def _judged_settings(self, request: wire.CreateTopic) -> tuple[tuple[str, str], ...] | None:
        """Return the requested settings in canonical form; None = there are none. Raises
        ``InvalidSetting``, and the errors of ``check_leading``, because only the leader judges."""
        if not request.settings:
            return None
        self._metadata_log.check_leading()
        changes = judged(self._metadata_log.state, request.name, NONE,
                         [SettingChange(*pair) for pair in request.settings])
        return tuple((name, value) for name, value in changes if value is not None)

    def _check_room(self, partitions: int, added: int, topics: int) -> None:
        """Return if a topic of so many ``partitions``, of which so many are ``added``, fits beside
        the others, or this node does not lead the metadata group. ``topics``: 1 = the topic is new.
        Raises ``LimitExceeded`` with the limit that it would exceed.

        Another node's refusal names the leader's address. Creations in progress count as if each
        were a topic of its own."""
        limits, state = self._config.limits, self._metadata_log.state
        if not self._core.status.is_leader(METADATA_GROUP):
            return
        values = {"partitions_per_topic_max": partitions,
                  "partitions_max": state.partitions_count + self._creating + added}
        if topics:
            values["topics_max"] = state.topics_count + self._creating + topics
        for name, value in values.items():
            limit = getattr(limits, name)
            if value > limit:
                raise LimitExceeded(f"{name} is {limit}; with this topic there would be {value}",
                                    limit=limit, value=value)

    async def _delete_topic(self, request: wire.DeleteTopic) -> wire.DeleteTopicReply:
        topic = self._metadata_log.state.topic(request.name)
        if topic is None:
            self._metadata_log.check_leading()
            raise UnknownTopic(f"no topic is named {request.name!r:.80}")
        if request.incarnation not in (0, topic.incarnation):
            self._metadata_log.check_leading()
            raise UnknownTopic(f"topic {request.name!r:.80} has incarnation {topic.incarnation}: "
                               f"incarnation {request.incarnation}, which was to be deleted, is "
                               "gone already, and the name was given away again")
        await self._propose_wide(
            state_machine.DeleteTopic(request.name, topic.id), topic.partitions
        )
        return wire.DeleteTopicReply()

    async def _add_partitions(self, request: wire.AddPartitions) -> wire.AddPartitionsReply:
        self._metadata_log.check_leading()
        topic = self._metadata_log.state.topic(request.name)
        if topic is None or request.incarnation not in (0, topic.incarnation):
            named = f" with incarnation {request.incarnation}" if request.incarnation else ""
            raise UnknownTopic(f"no topic is named {request.name!r:.80}{named}")
        request_id = request.nonce or uuid.uuid4().bytes
        added = request.partitions - topic.partitions
        if all(addition.request_id != request_id for addition in topic.added):
            self._judge_addition(topic, request.partitions)
            if request.dry_run:
                return wire.AddPartitionsReply(await self._topic_metadata(topic))
        self._creating += max(0, added)
        try:
            topic = await self._propose_wide(state_machine.AddPartitions(
                topic.name, topic.id, request.partitions, request_id), added)
        finally:
            self._creating -= max(0, added)
        return wire.AddPartitionsReply(await self._topic_metadata(topic))

    def _judge_addition(self, topic: state_machine.Topic, partitions: int) -> None:
        """Return if a topic may get so many partitions. Raises the error of the refusal."""
        fault = added_partitions_fault(self._metadata_log.state.nodes())
        if fault:
            raise Unsupported(fault)
        if is_internal(topic.name):
            raise InvalidRequest(f"{topic.name} is an internal topic: nodes append to it, and the "
                                 f"number of its partitions is theirs")
        if partitions <= topic.partitions:
            raise InvalidPartitions(
                f"topic {topic.name} has {topic.partitions} partitions: {partitions} would not be "
                f"more, and none can be taken away", value=topic.partitions)
        self._check_room(partitions, partitions - topic.partitions, 0)

    async def _list_topics(self, request: wire.ListTopics) -> wire.ListTopicsReply:
        await self._turns.take(request.count_max)
        topics, more = self._metadata_log.state.list_topics(request.after, request.count_max)
        return wire.ListTopicsReply(
            tuple(wire.TopicSummary(topic.name, topic.id, topic.incarnation, topic.partitions)
                  for topic in topics), more)

    async def _propose_wide(self, command: Command, partitions: int) -> Any:
        """Propose like ``_propose``, but commands of more than ``ROWS_PER_STEP`` partitions one at
        a time, because every node applies each without interruption."""
        if partitions <= ROWS_PER_STEP:
            return await self._propose(command)
        async with self._wide:
            return await self._propose(command)

    async def _propose(self, command: Command) -> Any:
        """Propose a command and return the value of its result, once it is applied here. Raises the
        error of a refusal, and what ``MetadataLog.propose`` raises."""
        result = await self._metadata_log.propose(command)
        if result.code != Code.OK:
            raise exception_for(result.code, result.error)
        return result.value

    # ---- producers -------------------------------------------------------------------------------

    async def _init_producer(self, request: wire.InitProducer) -> wire.InitProducerReply:
        producer, epoch = request
        if producer >= 0:
            return wire.InitProducerReply(*await self._propose(state_machine.BumpProducerEpoch(
                producer, epoch if epoch >= 0 else self._epoch_to_name(producer))))
        # The last id of the block.  The other ids are granted to no producer and are refused, so
        # the distance between two producers' ids cannot be guessed.
        count = 1 + secrets.randbelow(self._config.limits.producer_id_gap_max)
        first, count = await self._propose(state_machine.AllocateProducerIds(count))
        return wire.InitProducerReply(first + count - 1, 0)

    def _epoch_to_name(self, producer: int) -> int:
        """Return the epoch to bump from, for a request that names none. -1 = the id was never
        bumped, and the producer gets another id.

        The epoch is random, so that the owner of the id does not name the same one when it asks for
        its next epoch."""
        known = self._metadata_log.state.producers.bumped(producer)
        if known is None:
            return -1
        return min(known + 1 + secrets.randbelow(wire.EPOCHS_SKIPPED_MAX), I16_MAX)

    # ---- cluster and groups ----------------------------------------------------------------------

    async def _cluster_status(self, _request: wire.ClusterStatus) -> wire.ClusterStatusReply:
        state, core, config = self._metadata_log.state, self._core, self._config
        known = self._known.nodes()
        leads = {node.id: 0 for node in known}
        holds = dict(leads)
        for part in parts(state.last_group + 1):
            await self._turns.take(len(part))  # a pool of any size cannot stall the loop
            for group in part:
                configuration = core.status.configuration(group) or state.configuration(group)
                leader = core.status.living_leader(group, configuration)
                if leader in leads:
                    leads[leader] += 1
                for member in configuration.members():
                    holds[member] = holds.get(member, 0) + 1
        nodes = tuple(wire.NodeSummary(
            node.id, node.client_address, node.peer_address, node.rack,
            core.status.node_state(node.id), holds[node.id], leads[node.id], node.kafka_address)
            for node in known)
        facts = self._known.facts
        return wire.ClusterStatusReply(
            config.cluster_id, config.node.id, nodes, state.pool_size or facts.groups,
            facts.replication_factor, core.status.living_leader(
                METADATA_GROUP, state.metadata_members()),
            state.topics_count, state.partitions_count)

    async def _list_groups(self, request: wire.ListGroups) -> wire.ListGroupsReply:
        state = self._metadata_log.state
        if not state.pool_size:
            raise LeaderUnknown("this node does not know the cluster's metadata yet; try again")
        groups = state.last_group + 1
        end = min(groups, request.first + request.count_max)
        rows: list[wire.GroupSummary] = []
        for part in parts(max(0, end - request.first)):
            await self._turns.take(len(part))
            rows += [self._group_summary(state, request.first + at) for at in part]
        return wire.ListGroupsReply(tuple(rows), more=end < groups)

    def _group_summary(self, state: state_machine.MetadataState, group: int) -> wire.GroupSummary:
        status = self._core.status
        configuration = status.configuration(group) or state.configuration(group)
        return wire.GroupSummary(group, state_machine.FIRST_GROUP_INCARNATION,
                                 status.leader_hint(group)[1],
                                 status.living_leader(group, configuration),
                                 configuration.voters, configuration.learners)

    async def _transfer_leadership(
        self, request: wire.TransferLeadership
    ) -> wire.TransferLeadershipReply:
        group, core = request.group, self._core
        if group > self._metadata_log.state.last_group:
            raise InvalidRequest(f"there is no group {group}, the last one is "
                                 f"{self._metadata_log.state.last_group}")
        if not core.status.is_leader(group):
            raise NotLeader(group)
        if request.to and request.to not in core.status.of(group).configuration.voters:
            raise InvalidRequest(f"node {request.to} is not a voter of group {group}")
        if request.to != self._config.node.id:
            await self._begin_transfer(group, request.to)
            with trio.move_on_after(TRANSFER_WAIT_S):
                while core.status.is_leader(group) or not core.status.leader_hint(group)[0]:
                    await self._roles.wait(TRANSFER_WAIT_S)
        leader, term = core.status.leader_hint(group)
        return wire.TransferLeadershipReply(leader, term)

    async def _begin_transfer(self, group: int, to: int) -> None:
        """Start a transfer, without waiting for its end. Retry for ``TRANSFER_WAIT_S`` while the
        target is not connected or another transfer is under way. Raises ``TimedOut`` with the
        reason, or the error of ``transfer``."""
        why = ""
        with trio.move_on_after(TRANSFER_WAIT_S):
            while True:
                try:
                    self._core.transfer(group, to)
                    self._request_round()
                    return
                except ProposalError as error:
                    if type(error) is not ProposalError:
                        raise
                    why = str(error)
                await self._roles.wait(TRANSFER_RETRY_S)
        raise TimedOut(why)

    async def _group_members(self, request: members.GroupMembers) -> members.GroupMembersReply:
        return await self._groups.members(request)

    async def _recover_group(self, request: members.RecoverGroup) -> members.RecoverGroupReply:
        return await self._groups.recover(request)

    async def _group_describe(self, request: wire.GroupDescribe) -> wire.GroupDescribeReply:
        return describe_group(self._config.node.id, self._core, self._store, request.group)

    _handlers: dict[type, Callable[[Admin, Any], Awaitable[Any]]] = {
        wire.Metadata: _metadata, wire.CreateTopic: _create_topic,
        wire.DeleteTopic: _delete_topic, wire.AddPartitions: _add_partitions,
        wire.ListTopics: _list_topics,
        wire.InitProducer: _init_producer, wire.ClusterStatus: _cluster_status,
        wire.ListGroups: _list_groups, wire.TransferLeadership: _transfer_leadership,
        members.GroupMembers: _group_members, members.RecoverGroup: _recover_group,
        wire.GroupDescribe: _group_describe,
    }


def _topic_id(request: wire.CreateTopic) -> bytes:
    """Return the id of the requested topic.

    With a nonce the id is a function of nonce and name, so that the state machine recognises a
    repeated request.  Because the name is hashed too, no nonce leads to the id of a topic of
    another name.
    """
    if request.nonce is None:
        return uuid.uuid4().bytes
    return uuid.uuid5(uuid.UUID(bytes=request.nonce), request.name).bytes
