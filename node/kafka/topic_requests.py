"""Creation and deletion of topics for Kafka's clients.

Contract. The metadata leader decides, whichever node a client asks: another node passes the request
on to it. Topics of one request are created one after the other, and each has its own result. The
answer leaves when this node has applied what it did, or after ``timeout_ms``: then the result is
REQUEST_TIMED_OUT, and the change may still happen.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from multiraft.kafka.connection import KafkaRequest
from multiraft.kafka.error_codes import ErrorCode
from multiraft.kafka.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from multiraft.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from multiraft.kafka.schema import ZERO_UUID
from multiraft.settings.effective import Source
from multiraft.wire.errors import Code, ErrorDetail, InvalidTopicName, TopicExists
from multiraft.wire.messages import CreateTopic, DeleteTopic
from multiraft.wire.settings import DescribeSettings, SettingChange, SettingRow
from node.access import Operation
from node.admin.setting_requests import judged
from node.clients.metadata_wait import METADATA_WAIT_S
from node.clients.request_tasks import RequestTasks
from node.clients.session import Session
from node.kafka.answers import KafkaAnswer
from node.kafka.authorized import cluster_fault, topic_fault
from node.kafka.error_codes import Fault, absent, fault_of, of_controller
from node.kafka.topic_view import TopicView
from node.kafka.validated import validated
from node.metadata.settings_table import NONE
from node.metadata.topics import topic_name_fault
from node.request_errors import REFUSED

if TYPE_CHECKING:
    from node.cluster.passed_on import PassedOnRequests
    from node.config import KafkaConfig
    from node.limits import Limits
    from node.loop.turns import Turns
    from node.metadata.log import MetadataLog
    from node.metadata.topics import Topic

#: Handler of ``DescribeSettings``.
SettingHandler = Callable[[Any], Awaitable[Any]]

#: Version from which topics to delete may be named by their ids.
DELETE_BY_ID_SINCE = 6
#: In place of a number: the default.
DEFAULT = -1

#: Bounds of the time that a request gives, in milliseconds.  A request without time would be given
#: up before the metadata leader is asked, and one with more holds a task for nothing.
TIMEOUT_MS_MIN, TIMEOUT_MS_MAX = 100, 120_000

ASSIGNED = Fault(ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                 "replicas are placed by the cluster; leave the assignment out")
TOO_LATE = Fault(ErrorCode.REQUEST_TIMED_OUT, "not decided within the time that the request "
                 "gives; it may still happen")
NAMED_UNCLEARLY = Fault(ErrorCode.INVALID_REQUEST, "a topic to delete has a name or an id")
TWICE = Fault(ErrorCode.INVALID_REQUEST, "the request names the topic twice")


class TopicChanges:
    """The handler of requests that create or delete topics."""

    def __init__(self, metadata_log: MetadataLog, topics: TopicView,
                 passed_on_requests: PassedOnRequests, settings: SettingHandler,
                 config: KafkaConfig, limits: Limits, replication_factor: Callable[[], int],
                 tasks: RequestTasks, turns: Turns):
        """``settings``: handler of ``DescribeSettings``."""
        self._turns = turns
        self._metadata_log = metadata_log
        self._topics = topics
        self._passed_on_requests = passed_on_requests
        self._settings = settings
        self._config = config
        self._limits = limits
        self._replication_factor = replication_factor
        self._tasks = tasks

    # ---- creation ------------------------------------------------------------------------------

    def create(self, session: Session, number: int, request: KafkaRequest) -> None:
        """Start a task that creates the topics and answers."""
        answer = KafkaAnswer(session, number, partial(_creation_refusal, request))
        self._tasks.start(answer, self._created, session, request.message)

    def refuse_creation(self, session: Session, number: int, request: KafkaRequest, code: Code,
                        detail: ErrorDetail) -> None:
        """Refuse a request before any work is done for it."""
        KafkaAnswer(session, number, partial(_creation_refusal, request)).refuse(code, detail)

    async def _created(self, session: Session, message: CreateTopicsRequest
                       ) -> CreateTopicsResponse:
        """Return the response.  O(topics) changes of the metadata."""
        twice = {name for name, times in Counter(topic.name for topic in message.topics).items()
                 if times > 1}
        results = [_creation_failed(name, TWICE) for name in sorted(twice)]
        deadline = deadline_of(message.timeout_ms)
        creates_all = cluster_fault(session, Operation.CREATE) is None
        for asked in message.topics:
            if asked.name in twice:
                continue
            await self._turns.take()
            denied = None if creates_all else topic_fault(session, Operation.CREATE, asked.name)
            fault = denied or self._creation_fault(asked)
            if fault is not None:
                results.append(_creation_failed(asked.name, fault))
                continue
            try:
                results.append(await self._create(asked, message.validate_only, deadline))
            except REFUSED as error:
                results.append(_creation_failed(asked.name, fault_of(error)))
        return CreateTopicsResponse(topics=results)

    def _creation_fault(self, asked: Any) -> Fault | None:
        """Return the error of a topic that no node would create, or None."""
        if asked.assignments:
            return ASSIGNED
        most = self._limits.partitions_per_topic_max
        if asked.num_partitions != DEFAULT and not 0 < asked.num_partitions <= most:
            return Fault(ErrorCode.INVALID_PARTITIONS,
                         f"{asked.num_partitions} partitions; 1 to {most} are possible")
        nothing = [each.name for each in asked.configs if each.value is None]
        if nothing:
            return Fault(ErrorCode.INVALID_CONFIG, f"{nothing[0]:.100}: no value is named")
        factor = self._replication_factor()
        if asked.replication_factor not in (DEFAULT, factor):
            return Fault(ErrorCode.INVALID_REPLICATION_FACTOR,
                         f"replication factor {asked.replication_factor}; it belongs to the "
                         f"cluster and is {factor}, or -1 for that")
        return None

    async def _create(self, asked: Any, validate_only: bool, deadline: float) -> Any:
        """Create a topic, or only judge it, and return its result.  Raises one of ``REFUSED``."""
        partitions = (self._config.num_partitions if asked.num_partitions == DEFAULT
                      else asked.num_partitions)
        pairs = tuple((each.name, each.value) for each in asked.configs)
        if validate_only:
            self._judge(asked.name, pairs)
            return CreateTopicsResponse.CreatableTopicResult(
                name=asked.name, error_message=None, num_partitions=partitions,
                replication_factor=self._replication_factor(), configs=None)
        with trio.move_on_at(deadline):
            reply = await self._passed_on_requests.ask(validated(CreateTopic(
                asked.name, partitions, nonce=uuid.uuid4().bytes, settings=pairs or None)))
            # This node may apply the creation later than the metadata leader.
            await until_applied(self._metadata_log, lambda: self._topics.topic(
                "", reply.topic.id, True) is not None)
            described = await self._settings(DescribeSettings(asked.name))
            return CreateTopicsResponse.CreatableTopicResult(
                name=asked.name, topic_id=reply.topic.id, error_message=None,
                num_partitions=partitions, replication_factor=self._replication_factor(),
                configs=[_config(row) for row in described.settings])
        return _creation_failed(asked.name, TOO_LATE)

    def _judge(self, name: str, pairs: tuple[tuple[str, str], ...]) -> None:
        """Raise the error that the creation of a topic would be refused with, as far as this node
        knows."""
        fault = topic_name_fault(name)
        if fault:
            raise InvalidTopicName(fault)
        state = self._metadata_log.state
        if state.topic(name) is not None:
            raise TopicExists(f"topic {name} exists")
        judged(state, name, NONE, [SettingChange(*pair) for pair in pairs])

    # ---- deletion ------------------------------------------------------------------------------

    def delete(self, session: Session, number: int, request: KafkaRequest) -> None:
        """Start a task that deletes the topics and answers."""
        answer = KafkaAnswer(session, number, partial(_deletion_refusal, request))
        self._tasks.start(answer, self._deleted, session, request)

    def refuse_deletion(self, session: Session, number: int, request: KafkaRequest, code: Code,
                        detail: ErrorDetail) -> None:
        """Refuse a request before any work is done for it."""
        KafkaAnswer(session, number, partial(_deletion_refusal, request)).refuse(code, detail)

    async def _deleted(self, session: Session, request: KafkaRequest) -> DeleteTopicsResponse:
        """Return the response.  O(topics) changes of the metadata."""
        deadline = deadline_of(request.message.timeout_ms)
        results = []
        named = [(asked, self._topics.topic(asked.name or "", asked.topic_id, asked.name is None))
                 for asked in _to_delete(request)]
        times = Counter(_named_as(asked, topic) for asked, topic in named)
        for asked, topic in named:
            result = DeleteTopicsResponse.DeletableTopicResult(
                name=asked.name, topic_id=asked.topic_id)
            results.append(result)
            name = topic.name if topic is not None else asked.name
            fault: Fault | None
            if (asked.name is None) == (asked.topic_id == ZERO_UUID):
                fault = NAMED_UNCLEARLY
            elif times[_named_as(asked, topic)] > 1:
                fault = TWICE
            elif name is None:
                fault = absent(True)
            else:
                fault = topic_fault(session, Operation.DELETE, name)
            if fault is None:
                try:
                    fault = await self._delete(topic, asked.name, deadline)
                except REFUSED as error:
                    fault = fault_of(error)
            if topic is not None:
                result.name, result.topic_id = topic.name, topic.id
            if fault is not None:
                result.error_code, result.error_message = fault
        return DeleteTopicsResponse(responses=results)

    async def _delete(self, topic: Topic | None, name: str | None, deadline: float
                      ) -> Fault | None:
        """Delete a topic that this node knows, or else one of that name. Return the error if it was
        not decided in time.  Raises one of ``REFUSED``."""
        with trio.move_on_at(deadline):
            if topic is None:
                assert name is not None
                await self._passed_on_requests.ask(validated(DeleteTopic(name)))
                return None
            await self._passed_on_requests.ask(DeleteTopic(topic.name, topic.incarnation))
            await until_applied(self._metadata_log,
                                lambda: self._topics.topic("", topic.id, True) is None)
            return None
        return TOO_LATE


async def until_applied(log: MetadataLog, holds: Callable[[], bool]) -> None:
    """Wait until a condition on the metadata applied here holds."""
    while not holds():
        await log.applied(log.state.version + 1, METADATA_WAIT_S)


def deadline_of(timeout_ms: int) -> float:
    """Return the time, on trio's clock, up to which a request may take."""
    return trio.current_time() + min(max(timeout_ms, TIMEOUT_MS_MIN), TIMEOUT_MS_MAX) / 1000


def _config(row: SettingRow) -> Any:
    """Return a setting as the answer to a creation shows it."""
    return CreateTopicsResponse.CreatableTopicConfigs(
        name=row.name, value=row.value, config_source=Source[row.source.upper()])


def _creation_failed(name: str, fault: Fault) -> Any:
    return CreateTopicsResponse.CreatableTopicResult(
        name=name, error_code=fault.error, error_message=fault.text)


def _creation_refusal(request: KafkaRequest, code: Code, detail: ErrorDetail
                      ) -> CreateTopicsResponse:
    fault = Fault(of_controller(code), detail.text)
    return CreateTopicsResponse(topics=[_creation_failed(topic.name, fault)
                                        for topic in request.message.topics])


def _to_delete(request: KafkaRequest) -> list[Any]:
    """Return the topics of a request, by name or by id."""
    message: DeleteTopicsRequest = request.message
    if request.header.request_api_version >= DELETE_BY_ID_SINCE:
        return message.topics
    return [DeleteTopicsRequest.DeleteTopicState(name=name) for name in message.topic_names]


def _named_as(asked: Any, topic: Topic | None) -> bytes | str:
    """Return what stays the same for a topic that a request names in different ways."""
    return topic.id if topic is not None else asked.name or asked.topic_id


def _deletion_refusal(request: KafkaRequest, code: Code, detail: ErrorDetail
                      ) -> DeleteTopicsResponse:
    error = of_controller(code)
    return DeleteTopicsResponse(responses=[DeleteTopicsResponse.DeletableTopicResult(
        name=topic.name, topic_id=topic.topic_id, error_code=error, error_message=detail.text)
        for topic in _to_delete(request)])
