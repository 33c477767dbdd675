"""Metadata requests of Kafka's clients: nodes, topics, partitions and their leaders.

Contract. The answer is what this node knows. ``isr`` are the in-sync replicas (``in_sync``),
``offline`` the members whose nodes are not up. A partition without a leader that can append has the
error LEADER_NOT_AVAILABLE. A topic that does not exist is created if both the request and the
configuration allow it; clients repeat the request until this node knows its partitions. Without
names the answer has all topics; it is kept encoded (``metadata_cache``) as long as the metadata,
the leaders, the nodes that are up and the in-sync replicas stay the same.

Invariants. An answer has at most ``metadata_rows_max`` partitions. More are refused: the request
names fewer topics then, or its connection is closed, because Kafka's message has no other place for
that error.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from multiraft.kafka.apis import ApiKey
from multiraft.kafka.connection import KafkaRequest
from multiraft.kafka.error_codes import ErrorCode
from multiraft.kafka.errors import UnencodableMessage
from multiraft.kafka.hot_messages import MetadataRequest, MetadataResponse
from multiraft.kafka.requests import encoded_message
from multiraft.settings.effective import is_internal
from multiraft.wire.errors import Code, ErrorDetail, LimitExceeded, RemoteProtocolError
from multiraft.wire.messages import CreateTopic
from node.access import ANY_NAME, Operation, ResourceKind
from node.clients.request_tasks import RequestTasks
from node.clients.session import Session
from node.kafka.answers import KafkaAnswer, Refusal
from node.kafka.authorized import (
    cluster_fault,
    cluster_operations,
    topic_fault,
    topic_operations,
)
from node.kafka.error_codes import absent, fault_of, of_controller
from node.kafka.in_sync import InSyncReplicas
from node.kafka.metadata_cache import MetadataCache
from node.kafka.topic_view import UNKNOWN, TopicView
from node.loop.steps import parts
from node.metadata.topics import topic_name_fault
from node.request_errors import REFUSED

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from node.clients.router import MetadataCopy
    from node.cluster.passed_on import PassedOnRequests
    from node.config import KafkaConfig
    from node.loop.turns import Turns
    from node.metadata.topics import Topic

#: Version from which an empty list of topics means none; before, it means all.
EMPTY_IS_NONE_SINCE = 1
#: First version whose responses may lack the name of a topic that was named by its id.
NO_NAME_SINCE = 12
#: Topics per page of a list of all.
TOPICS_PER_PAGE = 128


class _Members(NamedTuple):
    """The nodes of a group, by their part in it."""

    leader: int  # 0 = none that can append
    term: int
    replicas: list[int]
    in_sync: list[int]
    offline: list[int]


class TopicDescriptions:
    """The handler of metadata requests."""

    def __init__(self, core: MultiRaft, metadata_log: MetadataCopy, topics: TopicView,
                 cluster_id: str, config: KafkaConfig, rows_max: int, tasks: RequestTasks,
                 passed_on_requests: PassedOnRequests, turns: Turns):
        self._in_sync = InSyncReplicas(core, turns)
        self.cache = MetadataCache(self._signature)
        self._core = core
        self._metadata_log = metadata_log
        self._topics = topics
        self._cluster_id = cluster_id
        self._config = config
        self._rows_max = rows_max
        self._tasks = tasks
        self._passed_on_requests = passed_on_requests
        self._turns = turns

    def handle(self, session: Session, number: int, request: KafkaRequest) -> None:
        """Answer with the response that is kept, or start a task that describes the topics and
        answers."""
        answer = _DescriptionAnswer(session, number, request, partial(self._refusal, request))
        if _names_all(request) and not self._in_sync.is_due and _may_see_all(session):
            kept = self.cache.found(_asked_for(request))
            if kept is not None:
                answer(kept)
                return
        self._tasks.start(answer, self._respond, session, request)

    def refuse(self, session: Session, number: int, request: KafkaRequest, code: Code,
               detail: ErrorDetail) -> None:
        """Refuse a request before any work is done for it."""
        _DescriptionAnswer(session, number, request, partial(self._refusal, request)).refuse(
            code, detail)

    def _signature(self) -> tuple:
        """Return a value that stays equal as long as all that responses say does.  O(1)."""
        state = self._metadata_log.state
        return (state, state.version, self._topics.nodes_known, self._core.status.view_version,
                self._in_sync.version)

    async def _respond(self, session: Session, request: KafkaRequest) -> Any:
        """Return the response, encoded if it has all topics.  O(partitions), in turns."""
        message: MetadataRequest = request.message
        await self._in_sync.refresh()
        if not _names_all(request):
            return self._response(message, await self._each(
                session, message, message.topics or [], request.header.request_api_version))
        if not _may_see_all(session):
            return self._response(message, await self._all(message, session))
        return await self.cache.response(_asked_for(request),
                                         partial(self._encoded, request))

    async def _encoded(self, request: KafkaRequest) -> Any:
        """Return the encoded response with all topics, or the response itself if that cannot be
        encoded, which then ends the connection.  O(partitions), in turns but for the encoding."""
        response = self._response(request.message, await self._all(request.message))
        try:
            return encoded_message(ApiKey.METADATA, request.header.request_api_version, response)
        except UnencodableMessage:
            return response

    def _response(self, message: MetadataRequest, described: list[Any]) -> MetadataResponse:
        """Return the response with these topics.  O(nodes)."""
        response = self._empty()
        response.topics = described
        if message.include_cluster_authorized_operations:
            response.cluster_authorized_operations = cluster_operations()
        return response

    def _empty(self) -> MetadataResponse:
        """Return a response with nodes and without topics. O(nodes)."""
        return MetadataResponse(
            brokers=[MetadataResponse.MetadataResponseBroker(
                node_id=found.node, host=found.host, port=found.port, rack=found.rack)
                for found in self._topics.endpoints()],
            cluster_id=self._cluster_id, controller_id=self._topics.controller())

    async def _each(self, session: Session, message: MetadataRequest, named: list[Any],
                    version: int) -> list[Any]:
        """Return the descriptions of the topics that a request names, each once.  Raises
        ``LimitExceeded``, before any of it is done."""
        once: dict[tuple[str | None, bytes], Any] = {}
        partitions = 0
        for part in parts(len(named)):
            await self._turns.take(len(part))
            for asked in named[part.start:part.stop]:
                if once.setdefault((asked.name, asked.topic_id), asked) is asked:
                    topic = self._topics.topic(asked.name or "", asked.topic_id,
                                               asked.name is None)
                    partitions += topic.partitions if topic is not None else 0
        self._check_rows(partitions)
        return [await self._named(session, message, asked, version) for asked in once.values()]

    async def _all(self, message: MetadataRequest, session: Session | None = None) -> list[Any]:
        """Return the descriptions of all topics, or of those that the client of ``session`` may
        see.  Raises ``LimitExceeded`` if there are too many."""
        self._check_rows(self._metadata_log.state.partitions_count)
        described, after, more = [], "", True
        while more:
            await self._turns.take(TOPICS_PER_PAGE)
            topics, more = self._metadata_log.state.list_topics(after, TOPICS_PER_PAGE)
            for topic in topics:
                after = topic.name
                if session is None or topic_fault(session, Operation.DESCRIBE, after) is None:
                    described.append(await self._described(message, topic))
        return described

    def _check_rows(self, partitions: int) -> None:
        """Raise ``LimitExceeded`` if a response cannot describe so many partitions."""
        if partitions > self._rows_max:
            raise LimitExceeded(f"metadata_rows_max is {self._rows_max}; there are {partitions} "
                                f"partitions: name the topics", limit=self._rows_max,
                                value=partitions)

    async def _named(self, session: Session, message: MetadataRequest, asked: Any, version: int
                     ) -> Any:
        """Return the description of a topic that a request names, or its error."""
        by_id = asked.name is None
        topic = self._topics.topic(asked.name or "", asked.topic_id, by_id)
        name = topic.name if topic is not None else asked.name
        denied = None if name is None else topic_fault(session, Operation.DESCRIBE, name)
        if denied is None and topic is not None:
            return await self._described(message, topic)
        if denied is not None:
            error = denied.error
        elif by_id:
            error = absent(True).error
        elif topic_name_fault(asked.name):
            error = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif message.allow_auto_topic_creation and self._config.auto_create_topics:
            error = await self._create(session, asked.name)
        else:
            error = absent(False).error
        return MetadataResponse.MetadataResponseTopic(
            error_code=error, name=_name(asked, version), topic_id=asked.topic_id)

    async def _create(self, session: Session, name: str) -> ErrorCode:
        """Create a topic.  Return the error that the client receives: that it has no leader yet, so
        that the client asks again."""
        denied = (cluster_fault(session, Operation.CREATE)
                  and topic_fault(session, Operation.CREATE, name))
        if denied is not None:
            return denied.error
        try:
            await self._passed_on_requests.ask(CreateTopic(name, self._config.num_partitions))
        except REFUSED as error:
            fault = fault_of(error)
            if fault.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
                return fault.error
        return ErrorCode.LEADER_NOT_AVAILABLE

    async def _described(self, message: MetadataRequest, topic: Topic) -> Any:
        """Return the description of a topic.  O(partitions), in turns."""
        response = MetadataResponse.MetadataResponseTopic(
            name=topic.name, topic_id=topic.id,
            is_internal=is_internal(topic.name))
        if message.include_topic_authorized_operations:
            response.topic_authorized_operations = topic_operations()
        members: dict[int, _Members] = {}
        for part in parts(topic.partitions):
            await self._turns.take(len(part))
            # Not ``locate``: the topic may have been deleted meanwhile.
            entries = self._metadata_log.state.last_epoch_entries(topic, part)
            for number, entry in zip(part, entries, strict=True):
                group = members.get(entry.group)
                if group is None:
                    group = members[entry.group] = self._members(entry.group)
                response.partitions.append(MetadataResponse.MetadataResponsePartition(
                    error_code=(ErrorCode.NONE if group.leader
                                else ErrorCode.LEADER_NOT_AVAILABLE),
                    partition_index=number, leader_id=group.leader or UNKNOWN,
                    leader_epoch=entry.leader_epoch_base + group.term,
                    replica_nodes=group.replicas, isr_nodes=group.in_sync,
                    offline_replicas=group.offline))
        return response

    def _members(self, group: int) -> _Members:
        status = self._core.status
        configuration = (status.configuration(group)
                         or self._metadata_log.state.configuration(group))
        replicas = list(configuration.members())
        return _Members(
            status.living_leader(group, configuration), status.leader_hint(group)[1], replicas,
            self._in_sync.of(group, configuration),
            [node for node in replicas if not status.is_up(node)])

    def _refusal(self, request: KafkaRequest, code: Code, _detail: ErrorDetail
                 ) -> MetadataResponse:
        """Return the response that refuses every topic that a request names."""
        response = self._empty()
        response.topics = [MetadataResponse.MetadataResponseTopic(
            error_code=of_controller(code), topic_id=topic.topic_id,
            name=_name(topic, request.header.request_api_version))
            for topic in request.message.topics or ()]
        return response


class _DescriptionAnswer(KafkaAnswer):
    """The reply callback of a metadata request. A refusal of one for all topics closes the
    connection, because a response without topics would say that there are none: clients then ask
    another node."""

    __slots__ = ("_request",)

    def __init__(self, session: Session, number: int, request: KafkaRequest, refusal: Refusal):
        super().__init__(session, number, refusal)
        self._request = request

    def refuse(self, code: Code, detail: ErrorDetail) -> None:
        """Answer with an error for each topic that the request names."""
        if _names_all(self._request) and not self.session.closed:
            self.session.fail(RemoteProtocolError(
                f"metadata of all topics: {detail.text or code.name}"))
        super().refuse(code, detail)


def _may_see_all(session: Session) -> bool:
    """Return True if a client may see every topic, so that the response that is kept for all
    clients is one for it."""
    return session.may(Operation.DESCRIBE, ResourceKind.TOPIC, ANY_NAME)


def _names_all(request: KafkaRequest) -> bool:
    """Return True if a request is for all topics."""
    named = request.message.topics
    return named is None or (
        not named and request.header.request_api_version < EMPTY_IS_NONE_SINCE)


def _asked_for(request: KafkaRequest) -> tuple[int, bool, bool]:
    """Return what the response to a request for all topics depends on beside the cluster."""
    message: MetadataRequest = request.message
    return (request.header.request_api_version, message.include_topic_authorized_operations,
            message.include_cluster_authorized_operations)


def _name(asked: Any, version: int) -> str | None:
    """Return the name of a topic in a response about one that a request names."""
    return asked.name or "" if version < NO_NAME_SINCE else asked.name
