"""Series of a history in columns, read in one pass, with a few bytes per operation.

Contract.  ``read(path)`` raises ``BadHistory``.  Times are seconds since the run began.  An
operation without a completion ends with the history, as ``info``.
"""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy

from chaos.history import (
    FAIL,
    FAULT,
    INFO,
    INVOKE,
    KAFKA,
    NEMESIS,
    OK,
    PHASE,
    PORT,
    Event,
    read_history,
)

#: Outcome of an append with acks=none that was not refused: it asked for no answer.
UNASKED = "unasked"
#: Outcomes, as numbers in ``OperationColumns.outcome``.
OUTCOMES = (OK, FAIL, INFO, UNASKED)
UNASKED_LABEL = "append (none)"
#: Appends are labelled with their acks; all other operations have their name.
ACKS = "acks"
#: End of the label of an operation of a client of Kafka.
AT_KAFKAS_PORT = ", Kafka"
#: Order from top to bottom; others follow.
ORDER = ("append (commit)", "append (leader)", "append (none)", "read", "poll", "offsets",
         "create topic", "delete topic", "describe", "assign")


class FaultInterval(NamedTuple):
    """One fault from its beginning to its end."""

    kind: str
    nodes: tuple[int, ...]
    begin_s: float
    end_s: float
    text: str


@dataclass
class OperationColumns:
    """Operations, one row each."""

    begin_s: numpy.ndarray
    end_s: numpy.ndarray
    name: numpy.ndarray  # index into ``Series.names``
    outcome: numpy.ndarray  # index into ``OUTCOMES``

    def where(self, names: list[int]) -> "OperationColumns":
        """Return the rows of some kinds of operation."""
        mask = numpy.isin(self.name, names)
        return OperationColumns(
            self.begin_s[mask], self.end_s[mask], self.name[mask], self.outcome[mask]
        )


@dataclass
class Series:
    """Everything of a history that charts and tables show."""

    columns: OperationColumns
    names: list[str]  # "append (commit)", "read", ...
    faults: list[FaultInterval]
    phases: list[tuple[str, float]]  # name, begin
    errors: Counter[tuple[str, str, str]]  # (operation, outcome, error)
    duration_s: float
    events: int


@dataclass
class _Reading:
    """The state of the pass."""

    begin: array = field(default_factory=lambda: array("d"))
    end: array = field(default_factory=lambda: array("d"))
    name: array = field(default_factory=lambda: array("b"))
    outcome: array = field(default_factory=lambda: array("b"))
    names: dict[str, int] = field(default_factory=dict)
    open: dict[int, tuple[float, str]] = field(default_factory=dict)
    faults: list[FaultInterval] = field(default_factory=list)
    begun: dict[tuple[str, tuple[int, ...]], tuple[float, str]] = field(default_factory=dict)
    phases: list[tuple[str, float]] = field(default_factory=list)
    errors: Counter = field(default_factory=Counter)
    now_s: float = 0.0

    def row(self, begin_s: float, label: str, kind: str) -> None:
        outcome = OUTCOMES.index(outcome_of(label, kind))
        self.begin.append(begin_s)
        self.end.append(self.now_s)
        self.name.append(self.names.setdefault(label, len(self.names)))
        self.outcome.append(outcome)


def outcome_of(label: str, kind: str) -> str:
    """Return the outcome of an operation whose history says ``kind``."""
    return UNASKED if kind == INFO and label.startswith(UNASKED_LABEL) else kind


def label_of(event: Event) -> str:
    """Return the label of an operation in charts."""
    name = event.name.replace("_", " ")
    if event.name == "append":
        name = f"append ({event.data.get(ACKS, '?')})"
    return name + AT_KAFKAS_PORT if event.data.get(PORT) == KAFKA else name


def read(path: Path) -> Series:
    """Read a history.  Raises ``BadHistory``."""
    reading, events = _Reading(), 0
    for event in read_history(path):
        events += 1
        reading.now_s = event.time_us / 1e6
        if event.kind == INVOKE:
            reading.open[event.operation] = (reading.now_s, label_of(event))
        elif event.kind in OUTCOMES:
            _completed(reading, event)
        elif event.kind == FAULT and event.name != NEMESIS:
            _fault(reading, event)
        elif event.kind == PHASE:
            reading.phases.append((event.name, reading.now_s))
    for begin_s, label in reading.open.values():
        reading.row(begin_s, label, INFO)
    for (kind, nodes), (begin_s, text) in reading.begun.items():
        reading.faults.append(FaultInterval(kind, nodes, begin_s, reading.now_s, text))
    names = sorted(reading.names, key=lambda name: (ORDER + (name,)).index(name))
    new_number = numpy.array([names.index(name) for name in reading.names], dtype=int)
    columns = OperationColumns(numpy.array(reading.begin), numpy.array(reading.end),
                      new_number[numpy.array(reading.name, dtype=int)],
                      numpy.array(reading.outcome))
    return Series(columns, names, sorted(reading.faults, key=lambda f: f.begin_s),
                  reading.phases, reading.errors, reading.now_s, events)


def _completed(reading: _Reading, event: Event) -> None:
    asked = reading.open.pop(event.operation, None)
    if asked is None:
        return  # a completion without an invocation: the checkers report it
    reading.row(*asked, event.kind)
    if outcome_of(asked[1], event.kind) in (FAIL, INFO):
        reading.errors[asked[1], event.kind, event.data.get("error") or "?"] += 1


def _fault(reading: _Reading, event: Event) -> None:
    nodes = tuple(event.data.get("nodes", ()))
    key, text = (event.name, nodes), event.data.get("text", "")
    if event.data.get("on"):
        reading.begun.setdefault(key, (reading.now_s, text))
        return
    ended = [other for other in reading.begun
             if other == key or other[0] == event.name and not nodes]
    for other in ended:
        begin_s, said = reading.begun.pop(other)
        reading.faults.append(FaultInterval(*other, begin_s, reading.now_s, said))


def percentiles(values: numpy.ndarray) -> tuple[float, float, float]:
    """Return median, 99th percentile and maximum; zeros for no values."""
    if not len(values):
        return 0.0, 0.0, 0.0
    return (float(numpy.percentile(values, 50)), float(numpy.percentile(values, 99)),
            float(values.max()))


def operations_of(path: Path, wanted: set[int], lines_max: int) -> dict[int, list[Event]]:
    """Return the lines of some operations, by a second pass; for anomalies."""
    found: dict[int, list[Event]] = {}
    if not wanted:
        return found
    for event in read_history(path):
        if event.operation in wanted and len(found) < lines_max:
            found.setdefault(event.operation, []).append(event)
        elif event.operation in found:
            found[event.operation].append(event)
    return found
