"""Verbs that each client performs, and their transport to a program of the client.

Contract.  A driver has one method per verb.  Each call is bounded; ``ClientFailed`` has the text of
the client.  ``close`` ends the processes that the driver started, by id.
"""

from __future__ import annotations

import base64
import json
import queue
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tests.kafka_clients.records import Record, Row

#: An answer is due so long after the time that the verb itself may take: a JVM starts in seconds.
GRACE_S = 60.0
#: Time in which a client must have delivered, or fetched, all that one verb names.
VERB_S = 60.0
END_S = 10.0
STDERR_LINES = 12


class ClientFailed(Exception):
    """A client answered with an error, ended, or did not answer in time."""


class Driver(Protocol):
    """Verbs of a client. Offsets are -1 when the broker tells none."""

    def produce(self, topic: str, partition: int, acks: str, compression: str, idempotent: bool,
                header: bytes, records: Sequence[Record]) -> list[int | None]:
        """Produce records; return the offset of each, None if it was not acknowledged."""

    def fetch(self, topic: str, partition: int, start: str | int | dict[str, int],
              count: int) -> list[Row]:
        """Return up to ``count`` records from "beginning", an offset, or ``{"time": ms}`` on."""

    def offsets(self, topic: str, partition: int, at: str | dict[str, int]) -> int:
        """Return the offset of "earliest", "latest" or ``{"time": ms}``; -1 = no record."""

    def metadata(self, topic: str) -> dict[str, Any]:
        """Return ids of ``brokers`` and the number of ``partitions``."""

    def create(self, topic: str, partitions: int, replication: int) -> None:
        """Create a topic."""

    def describe(self, topic: str, name: str) -> str:
        """Return the value of a setting of a topic."""

    def alter(self, topic: str, name: str, value: str) -> None:
        """Change a setting of a topic."""

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the records before an offset."""

    def delete(self, topic: str) -> None:
        """Delete a topic."""

    def close(self) -> None:
        """End the processes of the client."""


def encoded(value: bytes | None) -> str | None:
    """Return bytes as text for JSON."""
    return None if value is None else base64.b64encode(value).decode()


def decoded(text: str | None) -> bytes | None:
    """Return the bytes of a text of ``encoded``."""
    return None if text is None else base64.b64decode(text)


def row_of(answer: Sequence[Any]) -> Row:
    """Return the record of a program's answer."""
    offset, at, key, value, header = answer
    return Row(offset, at, decoded(key), decoded(value), decoded(header))


class ProgramDriver:
    """A client behind a program that answers lines of JSON (``programs/python/serve.py`` states
    the form)."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path):
        self._log = log
        with open(log, "wb") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=errors,
                                             stdout=subprocess.PIPE, env=dict(environment))
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(b"")

    def _ask(self, verb: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": verb, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
            line = self._answers.get(timeout=VERB_S + GRACE_S)
        except (OSError, queue.Empty) as error:
            self._process.kill()
            raise ClientFailed(f"{verb}: {self._said() or 'no answer in time'}") from error
        if not line:
            raise ClientFailed(f"{verb}: the program ended: {self._said()}")
        answer = json.loads(line)
        if "error" in answer:
            raise ClientFailed(f"{verb}: {answer['error']}")
        return answer["ok"]

    def _said(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return " | ".join(lines[-STDERR_LINES:])

    def produce(self, topic: str, partition: int, acks: str, compression: str, idempotent: bool,
                header: bytes, records: Sequence[Record]) -> list[int | None]:
        """Produce records; return the offset of each, None if it was not acknowledged."""
        return self._ask("produce", topic=topic, partition=partition, acks=acks,
                         compression=compression, idempotent=idempotent, header=encoded(header),
                         records=[[encoded(key), encoded(value)] for key, value in records],
                         timeout_s=VERB_S)

    def fetch(self, topic: str, partition: int, start: str | int | dict[str, int],
              count: int) -> list[Row]:
        """Return up to ``count`` records from ``start`` on."""
        rows = self._ask("fetch", topic=topic, partition=partition, start=start, count=count,
                         timeout_s=VERB_S)
        return [row_of(row) for row in rows]

    def offsets(self, topic: str, partition: int, at: str | dict[str, int]) -> int:
        """Return the offset of ``at``."""
        return self._ask("offsets", topic=topic, partition=partition, at=at)

    def metadata(self, topic: str) -> dict[str, Any]:
        """Return ids of ``brokers`` and the number of ``partitions``."""
        return self._ask("metadata", topic=topic)

    def create(self, topic: str, partitions: int, replication: int) -> None:
        """Create a topic."""
        self._ask("create", topic=topic, partitions=partitions, replication=replication)

    def describe(self, topic: str, name: str) -> str:
        """Return the value of a setting of a topic."""
        return self._ask("describe", topic=topic, name=name)

    def alter(self, topic: str, name: str, value: str) -> None:
        """Change a setting of a topic."""
        self._ask("alter", topic=topic, name=name, value=value)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the records before an offset."""
        self._ask("delete_records", topic=topic, partition=partition, before=before)

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self._ask("delete", topic=topic)

    def close(self) -> None:
        """End the program: at the end of its input, or with SIGKILL."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(END_S)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait(END_S)
        self._reader.join(END_S)
        self._process.stdout.close()


def run(command: Sequence[str], given: bytes = b"", limit_s: float = VERB_S + GRACE_S) -> bytes:
    """Run a command to its end and return its standard output. Raises ``ClientFailed`` with what
    it wrote when it fails; it is killed after ``limit_s``."""
    try:
        done = subprocess.run(command, input=given, capture_output=True, timeout=limit_s)
    except subprocess.TimeoutExpired as error:
        raise ClientFailed(f"{command[0]}: no end after {limit_s:.0f} s") from error
    if done.returncode:
        said = (done.stderr + done.stdout).decode(errors="replace").splitlines()
        raise ClientFailed(f"{command[0]}: status {done.returncode}: "
                           f"{' | '.join(said[-STDERR_LINES:])}")
    return done.stdout
