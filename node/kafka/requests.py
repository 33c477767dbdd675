"""The requests of Kafka's protocol: from the events of a session to the handlers.

Contract. ``KafkaRequests`` is the ``RequestDispatch`` of the port for Kafka's clients, for all its
sessions. It passes each request to the handler of its API, and advertises the APIs that have one.

Invariants. This module has no socket, no task and no clock, as ``node.clients.session``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from multiraft.kafka.apis import APIS, ApiKey, ApiTable
from multiraft.kafka.connection import KafkaConnection, KafkaRequest
from multiraft.kafka.error_codes import ErrorCode
from multiraft.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from multiraft.kafka.requests import api_versions_response
from multiraft.wire.connection import RequestEvent, ResponseEvent
from multiraft.wire.errors import Code, ErrorDetail, LocalProtocolError, RemoteProtocolError
from multiraft.wire.frames import WireLimits
from multiraft.wire.messages import PARTITIONS_PER_REQUEST_MAX
from node.clients.native_requests import FetchRequests, YieldFlag
from node.clients.request_tasks import RequestTasks
from node.clients.session import Session, Sessions
from node.kafka.answers import KafkaAnswer
from node.kafka.error_codes import of_append
from node.kafka.expected_answers import expected_bytes
from node.kafka.port_counts import TOO_MANY_PARTITIONS, UNENCODABLE, PortCounts
from node.kafka.topic_view import UNKNOWN


class Handle(Protocol):
    """Handling of one request of an API."""

    def __call__(self, session: Session, number: int, request: KafkaRequest) -> None:
        """Answer the request once, before this returns or later."""


class Refuse(Protocol):
    """Refusal of one request of an API, before any work is done for it."""

    def __call__(self, session: Session, number: int, request: KafkaRequest, code: Code,
                 detail: ErrorDetail) -> None:
        """Answer the request with the error."""


class Handler(NamedTuple):
    """The handler of an API."""

    handle: Handle
    refuse: Refuse


#: Where a request has its partitions: fields of its topics, and of the partitions of each.
_PARTITIONS: dict[int, tuple[str, str]] = {
    ApiKey.PRODUCE: ("topic_data", "partition_data"),
    **dict.fromkeys((ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH,
                     ApiKey.DELETE_RECORDS), ("topics", "partitions"))}


def _partitions_named(request: KafkaRequest) -> int:
    """Return the number of partitions that a request names one by one.  O(topics)."""
    fields = _PARTITIONS.get(request.header.request_api_key)
    if fields is None:
        return 0
    topics, partitions = fields
    return sum([len(getattr(topic, partitions)) for topic in getattr(request.message, topics)])


def _is_within_limit(session: Session, request: KafkaRequest, counts: PortCounts) -> bool:
    """Return True if a request names as many partitions as a native one may, else fail the
    session.  O(topics)."""
    named = _partitions_named(request)
    if named > PARTITIONS_PER_REQUEST_MAX:
        session.fail(RemoteProtocolError(
            f"a request names {named} partitions, {PARTITIONS_PER_REQUEST_MAX} are possible"))
        counts.close(TOO_MANY_PARTITIONS)
    return named <= PARTITIONS_PER_REQUEST_MAX


class KafkaRequests:
    """The APIs that are served, and the handlers of their requests."""

    def __init__(self, sessions: Sessions, handlers: Mapping[int, Handler], tasks: RequestTasks,
                 fetch_handler: FetchRequests, loop: YieldFlag, cluster_id: str, node: int):
        """``handlers``: of all APIs but ApiVersions, by key. ``fetch_handler``: of the node, which
        has the waiting fetches of all sessions. ``cluster_id`` and ``node``: whom clients
        reach."""
        self._cluster_id = cluster_id
        self._node = node
        limits = sessions.limits
        self.wire_limits = WireLimits(frame_bytes_max=limits.frame_bytes_max,
                                      in_flight_max=limits.requests_in_flight_max)
        self._handlers = {**handlers, ApiKey.API_VERSIONS: Handler(self._versions,
                                                                   self._refuse_versions)}
        self.apis: ApiTable = {key: api for key, api in APIS.items() if key in self._handlers}
        self._tasks = tasks
        self._fetch_handler = fetch_handler
        self._loop = loop
        self._expected_bytes = partial(expected_bytes, limits.fetch_bytes_max)
        self.counts = PortCounts()

    def new_stream(self) -> KafkaConnection:
        """Return the stream of a connection that was accepted."""
        return KafkaConnection(self.apis, self.wire_limits, self._expected_bytes, self.counts)

    # ---- calls of sessions -----------------------------------------------------------------------

    def handle(self, session: Session, event: RequestEvent) -> None:
        """Pass a request to the handler of its API. Close the connection for one that names more
        partitions than a native request may: even a refusal of each would take long."""
        request: KafkaRequest = event.request
        if not _is_within_limit(session, request, self.counts):
            return
        self._handlers[request.header.request_api_key].handle(session, event.id, request)
        self._loop.yield_due = True  # a task may have to read or to ask

    def refuse(self, session: Session, event: RequestEvent, code: Code,
               detail: ErrorDetail) -> None:
        """Refuse a request before any work is done for it."""
        request: KafkaRequest = event.request
        if not _is_within_limit(session, request, self.counts):
            return
        self._handlers[request.header.request_api_key].refuse(
            session, event.id, request, code, detail)

    def handle_other(self, session: Session, event: Any) -> None:
        """Fail: all events of Kafka's protocol are requests."""
        raise AssertionError(f"unexpected event {event!r}")

    def replacement(self, session: Session, event: ResponseEvent,
                    error: LocalProtocolError) -> list:
        """Close the connection: its version has no place for the response, which is a defect. A
        client that provokes it must not end the node."""
        self.counts.close(UNENCODABLE)
        session.fail(RemoteProtocolError(f"the response cannot be encoded: {error}"))
        return []

    def answer_long_polls(self, session: Session) -> None:
        """Have the next round answer the waiting fetches of a session, with what they have."""
        self._fetch_handler.answer_long_polls(session)

    def forget(self, session: Session) -> None:
        """Drop the waiting fetches of a session that ended, and cancel its tasks."""
        self._fetch_handler.forget(session)
        self._tasks.forget(session)

    # ---- versions --------------------------------------------------------------------------------

    def _versions(self, session: Session, number: int, request: KafkaRequest) -> None:
        KafkaAnswer(session, number, self._refused_versions)(
            self._versions_for(request.message) if request.message is not None else None)

    def _versions_for(self, message: ApiVersionsRequest) -> ApiVersionsResponse:
        """Return the versions, or the error for a client that names another cluster or node than
        this one: an address that it knows belongs to another node now (KIP-1242)."""
        named = message.cluster_id is not None, message.node_id != UNKNOWN
        if any(named) and not all(named):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        if any(named) and (message.cluster_id, message.node_id) != (self._cluster_id, self._node):
            return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
        return api_versions_response(self.apis)

    def _refuse_versions(self, session: Session, number: int, request: KafkaRequest, code: Code,
                         detail: ErrorDetail) -> None:
        if request.message is None:
            self._versions(session, number, request)
        else:
            KafkaAnswer(session, number, self._refused_versions).refuse(code, detail)

    def _refused_versions(self, code: Code, _detail: ErrorDetail) -> Any:
        response = api_versions_response(self.apis)
        response.error_code = of_append(code)
        return response
