"""Log of events, as the parts of a node write to it: a ``logging.Logger``, or a trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class EventLog(Protocol):
    """Receiver of events, each a name (``replica_created``) and its fields."""

    def info(self, event: str, /, *, extra: Mapping[str, object]) -> None:
        """Log an expected event."""

    def warning(self, event: str, /, *, extra: Mapping[str, object]) -> None:
        """Log an event that an operator should see."""
