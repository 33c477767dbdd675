"""Structured logs: one JSON object per line, with the node's id in each.

Contract.  ``logger(node, stream)`` returns a standard ``logging.Logger``; ``extra`` fields become
keys.  Text from outside (client ids, topic names) is escaped by JSON and cannot forge a line.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import datetime, timezone

_STANDARD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """Formats a record as one line of JSON."""

    def __init__(self, node: int):
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, timezone.utc)
        line = {"at": at.isoformat(timespec="milliseconds"), "level": record.levelname.lower(),
                "node": self._node, "event": record.getMessage()}
        line.update((key, value) for key, value in record.__dict__.items()
                    if key not in _STANDARD)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def logger(node: int, stream=None) -> logging.Logger:
    """The node's logger, writing to ``stream``; None = standard output."""
    log = logging.getLogger(f"multiraft.node.{node}")
    log.propagate = False
    log.setLevel(logging.INFO)
    handler = logging.StreamHandler(sys.stdout if stream is None else stream)
    handler.setFormatter(JsonLines(node))
    log.handlers = [handler]
    return log
