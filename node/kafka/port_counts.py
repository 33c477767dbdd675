"""Counters of the port for Kafka's clients: requests by API, errors by name, bytes, closings.

Contract. ``PortCounts`` is the observer of all connections of the port. Keys are the APIs that are
served, Kafka's numbers of errors and the reasons here, so their number is bounded. An error counts
once for each place in a response that has it: a partition, a topic, or the response itself.
Responses with the metadata of all topics are kept encoded and have no place for errors but those of
partitions without a leader, which are not counted.
"""

from __future__ import annotations

from typing import Any

from multiraft.kafka.apis import ApiKey
from multiraft.kafka.connection import KafkaRequest
from multiraft.kafka.error_codes import ErrorCode
from multiraft.kafka.requests import EncodedMessage

#: Reasons for which the node closes connections: a request of an API or a version that is not
#: served, bytes that are no request, more partitions than a request may name, a response that its
#: version cannot express.
UNSUPPORTED, MALFORMED = "unsupported", "malformed"
TOO_MANY_PARTITIONS, UNENCODABLE = "too_many_partitions", "unencodable"
REASONS = (UNSUPPORTED, MALFORMED, TOO_MANY_PARTITIONS, UNENCODABLE)

#: API -> lists of its response whose rows have errors, the second inside the rows of the first.
_ROWS: dict[int, tuple[str, ...]] = {
    ApiKey.PRODUCE: ("responses", "partition_responses"),
    ApiKey.FETCH: ("responses", "partitions"),
    ApiKey.LIST_OFFSETS: ("topics", "partitions"),
    ApiKey.METADATA: ("topics",),
    ApiKey.FIND_COORDINATOR: ("coordinators",),
    ApiKey.CREATE_TOPICS: ("topics",),
    ApiKey.DELETE_TOPICS: ("responses",),
    ApiKey.CREATE_PARTITIONS: ("results",),
    ApiKey.DELETE_RECORDS: ("topics", "partitions"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ("topics", "partitions"),
    ApiKey.DESCRIBE_CONFIGS: ("results",),
    ApiKey.ALTER_CONFIGS: ("responses",),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ("responses",),
    ApiKey.DESCRIBE_LOG_DIRS: ("results",),
}
#: APIs whose response has an error of its own. That of DescribeLogDirs repeats the one of its row,
#: in later versions.
_WHOLE = {ApiKey.FETCH, ApiKey.FIND_COORDINATOR, ApiKey.API_VERSIONS, ApiKey.INIT_PRODUCER_ID,
          ApiKey.DESCRIBE_ACLS, ApiKey.DESCRIBE_CLUSTER}


class PortCounts:
    """Counters of all connections of the port since the node began."""

    def __init__(self) -> None:
        self.requests: dict[int, int] = {}  # API -> received
        self.errors: dict[int, int] = {}  # number of an error -> places in responses
        self.closed = dict.fromkeys(REASONS, 0)  # connections
        self.received_bytes = 0  # of requests
        self.sent_bytes = 0  # of responses, encoded

    # ---- calls of connections --------------------------------------------------------------------

    def received(self, request: KafkaRequest, size: int) -> None:
        """Count a request of ``size`` bytes."""
        key = request.header.request_api_key
        self.requests[key] = self.requests.get(key, 0) + 1
        self.received_bytes += size

    def answered(self, key: int, response: Any, size: int) -> None:
        """Count a response of ``size`` bytes and its errors; None = the version of the request was
        not known.  O(partitions)."""
        self.sent_bytes += size
        if response is None:
            self._note(ErrorCode.UNSUPPORTED_VERSION)
        elif type(response) is not EncodedMessage:
            if key in _WHOLE and response.error_code:
                self._note(response.error_code)
            for row in _rows(response, _ROWS.get(key, ())):
                if row.error_code:
                    self._note(row.error_code)

    def refused(self, is_supported: bool) -> None:
        """Count a connection that is closed for its bytes: ``is_supported`` False = for a request
        of an API or a version that is not served."""
        self.closed[MALFORMED if is_supported else UNSUPPORTED] += 1

    # ---- all -------------------------------------------------------------------------------------

    def close(self, reason: str) -> None:
        """Count a connection that is closed for one of ``REASONS``."""
        self.closed[reason] += 1

    def _note(self, error: int) -> None:
        self.errors[error] = self.errors.get(error, 0) + 1


def _rows(response: Any, lists: tuple[str, ...]) -> list[Any]:
    """Return the rows of a response that have errors.  O(rows)."""
    rows: list[Any] = [response]
    for name in lists:
        rows = [row for each in rows for row in getattr(each, name)]
    return rows if lists else []
