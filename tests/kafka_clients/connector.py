"""Driver of a stream processor's connector, which has verbs of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.kafka_clients.driver import VERB_S, ProgramDriver, row_of
from tests.kafka_clients.records import Row


class ConnectorDriver(ProgramDriver):
    """A program of a connector. Its last arguments are a directory for its files and the
    servers."""

    def __init__(self, command: Sequence[str], servers: str, environment: Mapping[str, str],
                 log: Path):
        super().__init__([*command, f"{log}.files", servers], environment, log)

    def match(self, pattern: str, splits: int) -> tuple[int, dict[tuple[str, int], list[Row]]]:
        """Read all topics that match a pattern. Return the number of parts of the source, and the
        records of each partition in order."""
        answer = self._ask("match", pattern=pattern, splits=splits)
        found: dict[tuple[str, int], list[Row]] = {}
        for topic, partition, row in sorted(answer["rows"], key=lambda each: each[2][0]):
            found.setdefault((topic, partition), []).append(row_of(row))
        return answer["parts"], found

    def copy(self, topic: str, target: str) -> int:
        """Copy what a topic has more than at the last copy. Return the number of records read."""
        return self._ask("copy", topic=topic, target=target, timeout_s=VERB_S)
