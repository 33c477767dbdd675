"""The counters of the port for Kafka's clients at one moment, for metrics."""

from __future__ import annotations

from typing import NamedTuple


class KafkaPort(NamedTuple):
    """Counters and present values of the port. Names are those of APIs, errors and reasons."""

    requests: dict[str, int] = {}  # by API
    errors: dict[str, int] = {}
    closed: dict[str, int] = {}  # connections, by reason
    received_bytes: int = 0
    sent_bytes: int = 0
    accepted: int = 0  # connections
    connections: int = 0  # open now
    held_answers: int = 0  # answers that wait behind an earlier one
    held_bytes: int = 0
    waiting: int = 0  # requests in tasks of their own
    passed_on: int = 0  # requests that are with the metadata leader
