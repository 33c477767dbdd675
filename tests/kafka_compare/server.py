"""One server under comparison: connections to it, and the outcomes of all requests.

Contract.  ``ask`` sends one request and notes its outcome under a label and a version; nothing is
repeated.  ``outcomes`` of two servers that were asked the same can be compared.  A request that
closes the connection, or is not answered in time, has that as its outcome; the next one has a new
connection.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

from multiraft.kafka.apis import APIS, ApiKey
from multiraft.kafka.hot_messages import MetadataRequest, RequestHeader
from multiraft.kafka.requests import decode_response, encode_request
from tests.kafka_compare.outcome import Outcome, outcome_of

ANSWER_S = 15.0
#: A change of topics is known to the node that made it; others and the log follow.
READY_S = 30.0
POLL_S = 0.05
CLOSED, SILENT = {"": "closes the connection"}, {"": "does not answer"}
#: Version in which requests are sent that only prepare a comparison.
LATEST = {key: api.served[1] for key, api in APIS.items()}
#: First version with ids of topics.
METADATA_IDS_SINCE = 10


class Server:
    """A server of Kafka's protocol, and what it answered."""

    def __init__(self, name: str, host: str, port: int):
        self.name = name
        self.address = (host, port)
        self.outcomes: dict[tuple[str, int], Outcome] = {}
        #: Names of topics by id, and ids by name.
        self.topics: dict[bytes, str] = {}
        self.ids: dict[str, bytes] = {}
        self._socket: socket.socket | None = None
        self._next = 1

    # ---- one request -------------------------------------------------------------------------

    def send(self, key: int, message: Any, version: int | None = None, is_answered: bool = True
             ) -> Any:
        """Return the response to a request. Raises ``EOFError`` or ``TimeoutError``."""
        version = LATEST[ApiKey(key)] if version is None else version
        header = RequestHeader(request_api_key=key, request_api_version=version,
                               correlation_id=self._next, client_id="compare")
        self._next += 1
        self.connection().sendall(b"".join(map(bytes, encode_request(header, message))))
        return decode_response(self.receive(), header) if is_answered else None

    def connection(self) -> socket.socket:
        """Return the connection, a new one after the last was closed."""
        if self._socket is None:
            self._socket = socket.create_connection(self.address, ANSWER_S)
        return self._socket

    def receive(self) -> bytes:
        """Return the next frame.  Raises ``EOFError`` or ``TimeoutError``."""
        return self._take(int.from_bytes(self._take(4)))

    def _take(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            data = self.connection().recv(count - len(found))
            if not data:
                raise EOFError(f"{self.name} closed the connection")
            found += data
        return bytes(found)

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # ---- comparisons -------------------------------------------------------------------------

    def note(self, label: str, outcome: Outcome, version: int = -1) -> None:
        """Note an outcome. Each label and version occurs once."""
        assert (label, version) not in self.outcomes, f"{label} version {version} is there twice"
        self.outcomes[label, version] = outcome

    def ask(self, label: str, key: ApiKey, message: Any, version: int | None = None) -> Any:
        """Send a request and note its outcome.  Return the response, None without any."""
        version = LATEST[key] if version is None else version
        try:
            response = self.send(key, message, version)
        except (EOFError, ConnectionError):
            self.close()
            self.note(label, CLOSED, version)
            return None
        except TimeoutError:
            self.close()
            self.note(label, SILENT, version)
            return None
        self.note(label, outcome_of(key, version, response, self.topics), version)
        return response

    def ask_each(self, label: str, key: ApiKey, message: Callable[[int], Any] | Any,
                 since: int | None = None) -> None:
        """Send a request in each version that is served, from ``since`` on.  ``message`` is the
        same for all, or a function of the version."""
        first, last = APIS[key].served
        for version in range(first if since is None else since, last + 1):
            self.ask(label, key, message(version) if callable(message) else message, version)

    def silent(self, label: str, key: ApiKey, message: Any, version: int | None = None) -> None:
        """Send a request without an answer, and note if the connection was closed: a request behind
        it is answered or not."""
        self.send(key, message, version, is_answered=False)
        try:
            self.send(ApiKey.METADATA, MetadataRequest(topics=[]))
        except (EOFError, ConnectionError):
            self.close()
            self.note(label, CLOSED)
        else:
            self.note(label, {"": "stays open"})

    # ---- topics ------------------------------------------------------------------------------

    def learn(self, *names: str) -> None:
        """Wait until topics have leaders, and note their ids."""
        give_up = time.monotonic() + READY_S
        while True:
            found = self.send(ApiKey.METADATA, MetadataRequest(topics=[
                MetadataRequest.MetadataRequestTopic(name=name) for name in names],
                allow_auto_topic_creation=False)).topics
            if all(topic.error_code == 0 and topic.partitions
                   and not any(each.error_code for each in topic.partitions) for topic in found):
                break
            assert time.monotonic() < give_up, f"{self.name}: no leaders of {names}: {found}"
            time.sleep(POLL_S)
        for topic in found:
            self.topics[bytes(topic.topic_id)] = topic.name
            self.ids[topic.name] = bytes(topic.topic_id)
