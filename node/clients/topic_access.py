"""Permission of one request for the topics whose partitions it names.

Contract. ``check`` asks once for each topic of a request, however many partitions of it the request
names, and however often the request is processed again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multiraft.wire.errors import Code, ErrorDetail
from node.access import Operation, ResourceKind, denial
from node.clients.read_view import Refused

if TYPE_CHECKING:
    from node.clients.session import Session
    from node.metadata.topics import Topic


class TopicAccess:
    """The topics that a request may use, as far as they were asked for."""

    __slots__ = ("_session", "_operation", "_last", "_allowed")

    def __init__(self, session: Session, operation: Operation):
        self._session = session
        self._operation = operation
        self._last: Topic | None = None  # allowed: most requests name partitions of one topic
        self._allowed: set[str] = set()  # names of others

    def check(self, topic: Topic) -> None:
        """Return if the client may use the topic. Raises ``Refused``."""
        if topic is self._last:
            return
        name, session = topic.name, self._session
        if name not in self._allowed:
            if not session.may(self._operation, ResourceKind.TOPIC, name):
                raise Refused(Code.NOT_AUTHORIZED, ErrorDetail(text=denial(
                    session.principal, self._operation, ResourceKind.TOPIC, name)))
            self._allowed.add(name)
        self._last = topic
