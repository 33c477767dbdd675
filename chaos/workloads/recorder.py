"""Recorder of a run's history: requests of processes and their outcomes.

Contract.  ``Recorder`` is the only writer of a history: one clock, one order, one thread (trio's).
``ClientProcess.invoke`` gives an ``Operation``, which is completed at most once.  It is used as a
block:

    with process.invoke("read", key=key, offset=offset) as operation:
        operation.ok(**await whatever_it_takes())

An error of the product that ends the block is its outcome: a ``RequestError`` is a ``fail`` (it
certainly did not happen), any other ``MultiRaftError`` an ``info`` (ambiguous), and the caller
continues behind the block; ``operation.happened`` gives the outcome.  A cancelled operation is
``info``, and the cancellation is raised again.  Every other exception is a bug, of the product's
client or of the harness: it is ``info`` under its own name, and is raised again.

Invariants.  A process whose operation ended in ``info`` sends no further request: ``ClientProcess``
continues under the next number by itself.
"""

from __future__ import annotations

import time
from collections import Counter
from types import TracebackType
from typing import Any, Callable

from chaos.history import FAIL, FAULT, INFO, INVOKE, OK, PHASE, Event, HistoryWriter
from multiraft.errors import MultiRaftError
from multiraft.wire.errors import RequestError

#: Length of an error's text in the history; a node's message about many partitions can be long.
TEXT_MAX = 300


class Recorder:
    """Writer of one history, with counters.  ``counts[(name, kind)]`` and ``open`` may be read at
    any time."""

    def __init__(self, writer: HistoryWriter, clock_ns: Callable[[], int] = time.monotonic_ns):
        self._writer = writer
        self._clock_ns = clock_ns
        self._begun_ns = clock_ns()
        self._operation = 0
        self._process = 0
        self._producer = 0
        self.counts: Counter[tuple[str, str]] = Counter()
        self.faults: Counter[str] = Counter()  # that began, by kind
        self.open = 0  # invoked and not completed
        self.phase_name = ""
        self.acknowledged: Counter[str] = Counter()  # appends by phase, but those with acks "none"

    def now_us(self) -> int:
        """Return microseconds since the run began."""
        return (self._clock_ns() - self._begun_ns) // 1000

    def process(self) -> "ClientProcess":
        """Return a new process, with a number that is not used yet."""
        return ClientProcess(self, self.next_process())

    def next_process(self) -> int:
        """Return a process number that is not used yet."""
        self._process += 1
        return self._process

    def next_producer(self) -> int:
        """Return a producer number for ``values.value_of`` that no other workload of this run
        uses."""
        self._producer += 1
        return self._producer

    def invoked(self, process: int, name: str, data: dict[str, Any]) -> int:
        """Record the invocation of an operation; return its number."""
        self._operation += 1
        self.open += 1
        self._write(INVOKE, self._operation, process, name, data)
        return self._operation

    def completed(self, kind: str, operation: int, process: int, name: str,
                data: dict[str, Any]) -> None:
        """Record the completion of an operation; ``kind``: ``OK``, ``FAIL`` or ``INFO``."""
        self.open -= 1
        self._write(kind, operation, process, name, data)

    def fault(self, name: str, on: bool, nodes: tuple[int, ...], text: str) -> None:
        """Record that a nemesis begins (``on``) or ends a fault of kind ``name``; ``nodes``: the
        affected ones, 0 = the clients, () = all."""
        self.faults[name] += on
        self._write(FAULT, -1, -1, name, {"on": on, "nodes": list(nodes), "text": text})

    def phase(self, name: str, **data: Any) -> None:
        """Record that the run enters a phase."""
        self.phase_name = name
        self._write(PHASE, -1, -1, name, data)

    def _write(self, kind: str, operation: int, process: int, name: str,
               data: dict[str, Any]) -> None:
        self.counts[name, kind] += 1
        self._writer.write(Event(self.now_us(), kind, operation, process, name, data))


class ClientProcess:
    """A logical process; its ``number`` changes when an outcome stays ambiguous."""

    def __init__(self, recorder: Recorder, number: int):
        self.recorder = recorder
        self.number = number

    def invoke(self, name: str, **data: Any) -> "Operation":
        """Record the invocation of an operation and return the operation, which the caller
        completes; as a context manager it completes itself when its body raises."""
        return Operation(self, self.recorder.invoked(self.number, name, data), name, data)

    def retire(self, number: int) -> None:
        """Take a new number, because an operation of ``number`` ended in ``info``. No-op if the
        process has another number already."""
        if self.number == number:
            self.number = self.recorder.next_process()


class Operation:
    """One operation under way."""

    __slots__ = ("completed", "happened", "refusal", "_process", "_asked_by", "_number", "_name",
                 "_asked")

    def __init__(self, process: ClientProcess, number: int, name: str, asked: dict[str, Any]):
        self.completed = False
        self.happened = False
        self.refusal = ""  # reason of a failure, or of an ambiguous outcome
        self._process = process
        self._asked_by = process.number
        self._number = number
        self._name = name
        self._asked = asked

    def __enter__(self) -> "Operation":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None,
                 trace: TracebackType | None) -> bool:
        if isinstance(error, MultiRaftError):
            self.failed(error)
            return True
        if error is not None and not self.completed:
            if isinstance(error, Exception):  # a bug of the client, or of the harness
                self.unknown(kind.__name__, str(error))
            else:
                self.unknown("Cancelled", "the run continued without waiting")
        return False

    def ok(self, **data: Any) -> None:
        """Complete with ``ok`` and this ``data``: it took effect."""
        recorder = self._process.recorder
        if self._name == "append" and self._asked["acks"] != "none":
            recorder.acknowledged[recorder.phase_name] += 1
        self.happened = True
        self._complete(OK, data)

    def failed(self, error: MultiRaftError) -> None:
        """Complete with ``fail`` for a refusal (``RequestError``), otherwise with ``info``; keep
        the error in ``refusal``."""
        self.refusal = f"{type(error).__name__}: {error}"[:TEXT_MAX]
        if isinstance(error, RequestError):
            self._complete(FAIL, {"error": type(error).__name__, "text": str(error)[:TEXT_MAX]})
        else:
            self.unknown(type(error).__name__, str(error))

    def unknown(self, error: str, text: str) -> None:
        """Complete with ``info``: the outcome stays ambiguous, and the process takes a new number.
        ``error``: name of its class."""
        self._complete(INFO, {"error": error, "text": text[:TEXT_MAX]})
        self._process.retire(self._asked_by)

    def _complete(self, kind: str, data: dict[str, Any]) -> None:
        assert not self.completed, f"{self._name} {self._number} has two outcomes"
        self.completed = True
        self._process.recorder.completed(kind, self._number, self._asked_by, self._name, data)
