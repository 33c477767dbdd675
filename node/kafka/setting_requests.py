"""Settings of topics and nodes for Kafka's tools.

Contract. The settings of a topic are those of ``topic describe --settings``: with their value,
where it was set, and the values that it hides. Changes go to the metadata leader, and are judged
there like those of the native protocol. The settings of a node are read from its configuration, by
the node itself; they are changed in its file, and no request changes them.

Theory. Kafka has two requests for changes. The older one replaces all settings of a topic, so that
those that it does not name are taken back; kafkajs knows no other. The newer one sets and takes
back single settings, and adds to lists or removes from them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from multiraft.kafka.connection import KafkaRequest
from multiraft.kafka.error_codes import ErrorCode
from multiraft.kafka.messages.alter_configs import AlterConfigsResponse
from multiraft.kafka.messages.describe_configs import DescribeConfigsResponse
from multiraft.kafka.messages.incremental_alter_configs import IncrementalAlterConfigsResponse
from multiraft.settings.effective import Source
from multiraft.settings.registry import SETTINGS
from multiraft.settings.values import Kind
from multiraft.wire.errors import Code, ErrorDetail, InvalidRequest, InvalidSetting
from multiraft.wire.settings import (
    AlterSettings,
    DescribeSettings,
    SettingChange,
    SettingRow,
)
from node.access import Operation
from node.clients.request_tasks import RequestTasks
from node.clients.session import Session
from node.kafka.answers import KafkaAnswer
from node.kafka.authorized import cluster_fault, topic_fault
from node.kafka.error_codes import Fault, fault_of, of_controller
from node.kafka.validated import validated
from node.metadata.topics import topic_name_fault
from node.request_errors import REFUSED

if TYPE_CHECKING:
    from node.cluster.passed_on import PassedOnRequests

#: Kinds of resources with settings.
TOPIC, BROKER = 2, 4
#: Operations of the newer request.
SET, DELETE, APPEND, SUBTRACT = range(4)

NO_RESOURCE = Fault(ErrorCode.INVALID_REQUEST, "a kind of resource without settings here: topics "
                    "(2) and brokers (4) have some")
OF_ANOTHER_NODE = Fault(ErrorCode.INVALID_REQUEST, "a node answers for itself only: ask that node")
#: The native protocol names the defaults of the cluster by an empty name.
NO_NAME = Fault(ErrorCode.INVALID_REQUEST, "a topic without a name")
TWICE = Fault(ErrorCode.INVALID_REQUEST, "the request names the resource twice")
READ_ONLY = Fault(ErrorCode.INVALID_REQUEST, "settings of a node are changed in its configuration "
                  "file, and take effect at its next start")


#: Kind of a resource -> why its settings cannot be changed, None = they can.
#: Changes of a resource in a request, given its present settings.
Changes = Callable[[Any, Sequence[SettingRow]], tuple[SettingChange, ...]]


class NodeSetting(NamedTuple):
    """A setting of this node under Kafka's name."""

    name: str
    value: str
    kind: Kind


class SettingRequests:
    """The handlers of the three requests about settings."""

    def __init__(self, describe: Callable[[Any], Awaitable[Any]],
                 passed_on_requests: PassedOnRequests, node: int,
                 node_settings: Sequence[NodeSetting], tasks: RequestTasks):
        """``describe``: handler of ``DescribeSettings``."""
        self._describe_settings = describe
        self._passed_on_requests = passed_on_requests
        self._node = node
        self._node_settings = node_settings
        self._tasks = tasks

    # ---- description ---------------------------------------------------------------------------

    def describe(self, session: Session, number: int, request: KafkaRequest) -> None:
        """Start a task that describes settings and answers."""
        self._tasks.start(KafkaAnswer(session, number, partial(_refused_description, request)),
                          self._described, session, request.message)

    def refuse_description(self, session: Session, number: int, request: KafkaRequest, code: Code,
                           detail: ErrorDetail) -> None:
        """Refuse a request before any work is done for it."""
        KafkaAnswer(session, number, partial(_refused_description, request)).refuse(code, detail)

    async def _described(self, session: Session, message: Any) -> DescribeConfigsResponse:
        results = []
        for resource in message.resources:
            result = DescribeConfigsResponse.DescribeConfigsResult(
                error_message=None, resource_type=resource.resource_type,
                resource_name=resource.resource_name)
            results.append(result)
            try:
                rows = (_denied(session, Operation.DESCRIBE_CONFIGS, resource)
                        or await self._rows(resource))
            except REFUSED as error:
                rows = fault_of(error)
            if isinstance(rows, Fault):
                result.error_code, result.error_message = rows
                continue
            # No keys, or none named: all settings.
            wanted = set(resource.configuration_keys or ()) or {row.name for row in rows}
            result.configs = [_described(row, message) for row in rows if row.name in wanted]
        return DescribeConfigsResponse(results=results)

    async def _rows(self, resource: Any) -> Sequence[_Described] | Fault:
        """Return the settings of a resource, or its error.  Raises one of ``REFUSED``."""
        if resource.resource_type == TOPIC:
            wrong = topic_name_fault(resource.resource_name)
            if wrong:
                return Fault(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
            reply = await self._describe_settings(validated(
                    DescribeSettings(resource.resource_name)))
            return [_of_topic(row) for row in reply.settings]
        if resource.resource_type != BROKER:
            return NO_RESOURCE
        if resource.resource_name not in ("", str(self._node)):
            return OF_ANOTHER_NODE
        return [_Described(each.name, each.value, Source.NODE, True, each.kind, (), "")
                for each in self._node_settings]

    # ---- changes -------------------------------------------------------------------------------

    def replace(self, session: Session, number: int, request: KafkaRequest) -> None:
        """Start a task that replaces all settings of topics and answers."""
        self._tasks.start(KafkaAnswer(session, number, partial(_refused_replacement, request)),
                          self._replaced, session, request.message)

    def refuse_replacement(self, session: Session, number: int, request: KafkaRequest, code: Code,
                           detail: ErrorDetail) -> None:
        """Refuse a request before any work is done for it."""
        KafkaAnswer(session, number, partial(_refused_replacement, request)).refuse(code, detail)

    def alter(self, session: Session, number: int, request: KafkaRequest) -> None:
        """Start a task that changes single settings of topics and answers."""
        self._tasks.start(KafkaAnswer(session, number, partial(_refused_alteration, request)),
                          self._altered, session, request.message)

    def refuse_alteration(self, session: Session, number: int, request: KafkaRequest, code: Code,
                          detail: ErrorDetail) -> None:
        """Refuse a request before any work is done for it."""
        KafkaAnswer(session, number, partial(_refused_alteration, request)).refuse(code, detail)

    async def _replaced(self, session: Session, message: Any) -> AlterConfigsResponse:
        return AlterConfigsResponse(responses=[
            AlterConfigsResponse.AlterConfigsResourceResponse(**result)
            for result in await self._results(session, message, _replacing)])

    async def _altered(self, session: Session, message: Any) -> IncrementalAlterConfigsResponse:
        return IncrementalAlterConfigsResponse(responses=[
            IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(**result)
            for result in await self._results(session, message, _altering)])

    async def _results(self, session: Session, message: Any, changes: Changes
                       ) -> list[dict[str, Any]]:
        """Change the settings of each topic that a request names, and return the fields of the
        results."""
        times = Counter((each.resource_type, each.resource_name) for each in message.resources)
        results = []
        for each in message.resources:
            is_repeated = times[each.resource_type, each.resource_name] > 1
            fault = (_denied(session, Operation.ALTER_CONFIGS, each)
                     or (TWICE if is_repeated else _unchangeable(each)))
            results.append(await self._result(each, message.validate_only, changes, fault))
        return results

    async def _result(self, resource: Any, validate_only: bool, changes: Changes,
                      fault: Fault | None) -> dict[str, Any]:
        """Change the settings of a topic, and return the fields of its result. ``changes(resource,
        rows)`` returns the changes, given the present settings. ``fault``: an error that is known
        before."""
        if fault is None:
            try:
                reply = await self._describe_settings(validated(
                    DescribeSettings(resource.resource_name)))
                await self._passed_on_requests.ask(validated(AlterSettings(
                    resource.resource_name, changes(resource, reply.settings), reply.incarnation,
                    validate_only)))
            except REFUSED as error:
                fault = fault_of(error)
        return {"resource_type": resource.resource_type, "resource_name": resource.resource_name,
                "error_code": fault.error if fault else ErrorCode.NONE,
                "error_message": fault.text if fault else None}


def _unchangeable(resource: Any) -> Fault | None:
    """Return the error of a resource whose settings cannot be changed, None if they can."""
    if resource.resource_type == BROKER:
        return READ_ONLY
    if resource.resource_type != TOPIC:
        return NO_RESOURCE
    if not resource.resource_name:
        return NO_NAME
    text = topic_name_fault(resource.resource_name)
    return Fault(ErrorCode.INVALID_TOPIC_EXCEPTION, text) if text else None


def _denied(session: Session, operation: Operation, resource: Any) -> Fault | None:
    """Return the error of a client without permission for the settings of a topic, or of a node,
    which belong to the cluster; None if it has it."""
    if resource.resource_type == TOPIC:
        return topic_fault(session, operation, resource.resource_name)
    return cluster_fault(session, operation)


def _replacing(resource: Any, rows: Sequence[SettingRow]) -> tuple[SettingChange, ...]:
    """Return the changes after which a topic has only the settings that a request names. Raises
    ``InvalidRequest`` for one without a value."""
    nothing = [each.name for each in resource.configs if each.value is None]
    if nothing:
        raise InvalidRequest(f"{nothing[0]:.100}: no value is named")
    named = {each.name: each.value for each in resource.configs}
    own = [row.name for row in rows if row.source == Source.TOPIC.word]
    return tuple(SettingChange(name, named.get(name)) for name in dict.fromkeys([*named, *own]))


def _altering(resource: Any, rows: Sequence[SettingRow]) -> tuple[SettingChange, ...]:
    """Return the changes that a request names. Raises ``InvalidSetting`` for an operation that is
    not known or does not fit the setting, and ``InvalidRequest`` for one that lacks a value."""
    values = {row.name: row.value for row in rows}
    return tuple(SettingChange(each.name, _altered(each, values)) for each in resource.configs)


def _altered(change: Any, values: Mapping[str, str]) -> str | None:
    if change.config_operation == DELETE:
        return None
    if change.config_operation not in (SET, APPEND, SUBTRACT):
        raise InvalidSetting(f"{change.name:.100}: operation {change.config_operation} is not "
                             f"known")
    if change.value is None:
        raise InvalidRequest(f"{change.name:.100}: no value is named")
    if change.config_operation == SET:
        return change.value
    setting = SETTINGS.get(change.name)
    if setting is None or setting.type.kind is not Kind.LIST:
        raise InvalidSetting(f"{change.name:.100}: not a list, to add to or remove from")
    words = [word for word in values[change.name].split(",") if word]
    named = [word for word in change.value.split(",") if word]
    if change.config_operation == APPEND:
        return ",".join(dict.fromkeys([*words, *named]))
    return ",".join(word for word in words if word not in named)


class _Described(NamedTuple):
    """A setting in the form that the answer shows."""

    name: str
    value: str
    source: Source
    read_only: bool
    kind: Kind
    values: Sequence[tuple[str, Source]]  # the one that holds first
    text: str


def _of_topic(row: SettingRow) -> _Described:
    setting = SETTINGS.get(row.name)
    return _Described(row.name, row.value, Source[row.source.upper()], False,
                      Kind[row.type.upper()],
                      [(each.value, Source[each.source.upper()]) for each in row.values],
                      setting.text if setting is not None else "")


def _described(row: _Described, message: Any) -> Any:
    return DescribeConfigsResponse.DescribeConfigsResourceResult(
        name=row.name, value=row.value, read_only=row.read_only, config_source=row.source,
        config_type=row.kind, documentation=row.text if message.include_documentation else None,
        synonyms=[DescribeConfigsResponse.DescribeConfigsSynonym(
            name=row.name, value=value, source=source) for value, source in row.values]
        if message.include_synonyms else [])


def _refused_description(request: KafkaRequest, code: Code, detail: ErrorDetail
                         ) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[DescribeConfigsResponse.DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name,
        error_code=of_controller(code), error_message=detail.text)
        for resource in request.message.resources])


def _refused_replacement(request: KafkaRequest, code: Code, detail: ErrorDetail
                         ) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=[AlterConfigsResponse.AlterConfigsResourceResponse(
        resource_type=resource.resource_type, resource_name=resource.resource_name,
        error_code=of_controller(code), error_message=detail.text)
        for resource in request.message.resources])


def _refused_alteration(request: KafkaRequest, code: Code, detail: ErrorDetail
                        ) -> IncrementalAlterConfigsResponse:
    result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    return IncrementalAlterConfigsResponse(responses=[result(
        resource_type=resource.resource_type, resource_name=resource.resource_name,
        error_code=of_controller(code), error_message=detail.text)
        for resource in request.message.resources])
