"""Differences from Kafka 4.4 that are expected, with the row of ``docs/kafka.md`` that says why."""

from __future__ import annotations

from tests.kafka_compare.comparison import Known

KNOWN: tuple[Known, ...] = ()
