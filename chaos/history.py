"""History of a run: requests of clients and their outcomes; the input of every checker.

Contract.  A history is a sequence of ``Event``s in the order of one monotonic clock, that of the
process that controls the run, or of the simulator.  Every operation has one ``invoke`` and at most
one completion: ``ok`` it took effect; ``fail`` it did not and never will; ``info`` unknown
(timeouts, broken connections, a leader that changed meanwhile).  An operation without a completion
is ``info``.  Operations of one process may overlap (a producer pipelines); they are invoked in
order.  A process whose operation ended in ``info`` sends no further request: its client continues
under a new number, so that real-time order within a process is meaningful.

A *key* is one incarnation of a partition, ``topic@incarnation/partition``: the same name, created
again, is another key.  A *value* is a number that is appended once in a run; ``chaos.values`` makes
a record of it that says which run, key and producer it belongs to.  In an event a record that is
not intact is ``CORRUPT``, one whose tag names another key or run is ``FOREIGN``.  An append that a
workload repeats on purpose, with the same values, producer, epoch and sequence, may be recorded
again as an operation of its own.

What ``data`` holds, by ``name``; a run of records is ``[base offset, [value, ...]]``::

    append        invoke key, values, acks ("commit", "leader" or "none"), producer, epoch, sequence
                  (the last three: -1 without idempotence)
                  ok     offset (-1 with acks "none")
                  of a client of Kafka also: times [ms of each record]
                  when it is staged also: sink, transaction, task, attempt (numbers)
    read          invoke key, offset, mode ("committed" or "linearizable"), node (optional)
                  ok     runs, start, high_watermark, node
    assign        invoke positions {key: offset}: where ``poll`` begins
    poll          invoke keys
                  ok     runs {key: [run, ...]}
    begin_transaction   invoke sink (a name), batch, nonce, task, attempt_id, topics
                        ok     sink (its number), transaction, state ("open" or "committed"),
                               attempt
    commit_transaction  invoke sink, transaction, batch, winners [[task, attempt], ...]     ok  -
    abort_transaction   invoke sink, transaction   ok  committed (whether it was, and stays so)
    poll_committed  invoke positions {key: offset}: where it begins, leaving out what is void
                  ok     runs {key: [run, ...]}, reached {key: offset}
    offsets       invoke key, mode
                  ok     start, high_watermark
    offset_for_time  invoke key, time_ms           ok  offset (-1: there is no such record)
    delete_records  invoke key, before (-1 = all)  ok  log_start
    create_topic  invoke topic, partitions         ok  incarnation
    delete_topic  invoke topic, incarnation        ok  -
    describe      invoke topic                     ok  incarnation (-1: there is no such topic),
                                                       epoch, groups [group of each partition]

An operation of a client of Kafka, at the port for those, has ``port: "kafka"`` in its invocation;
without it, the port is the native one.

``fail`` and ``info`` carry ``error``, the name of its class, and ``text``. ``final: true`` in an
invocation marks the reads after everything has been healed, by fresh clients, from the start of the
key to its end. Faults of a nemesis are recorded in the same order: kind ``fault``, the kind of
fault as name, ``on`` true or false, ``nodes`` (0 = the clients) and ``text``; phases of the run
have kind ``phase``. A fault ``NEMESIS`` is on as long as any fault may affect any node: it excuses
what other faults excuse, and does not itself count as a fault. A history of the simulator also has
committed entries of the groups' logs, kind ``log``: ``log_start``, with ``key`` and ``log_start``.
In a run of real nodes the dumps of their logs tell these.

On disk a history is one JSON array per line, in the order of the fields.  ``read_history`` gives
events of earlier versions, which called a transaction a run, the names of this one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

INVOKE, OK, FAIL, INFO, FAULT, PHASE = "invoke", "ok", "fail", "info", "fault", "phase"
#: An entry of a group's log that is committed.
LOG = "log"
KINDS = (INVOKE, OK, FAIL, INFO, FAULT, PHASE, LOG)
#: The only entries that a history has: the log start of a key is raised.
LOG_START = "log_start"

#: The field of an invocation that names its port, and the only port that is named.
PORT, KAFKA = "port", "kafka"

#: The value of a record whose CRC does not match.
CORRUPT = -1
#: The value of an intact record that was made for another key or another run.
FOREIGN = -2

#: The fault that stands for all faults that a simulated nemesis may inject.
NEMESIS = "nemesis"

#: Phases of a run, in order; ``HEAL`` ends the faults, ``FINAL`` begins the final reads.
WARM_UP, FAULTS, HEAL, FINAL, END = "warm-up", "faults", "heal", "final", "end"


class Event(NamedTuple):
    """One line of a history."""

    time_us: int  # since the run began
    kind: str  # one of KINDS
    operation: int  # pairs an invocation with its completion; -1 for faults and phases
    process: int  # process that asks; -1 for faults and phases
    name: str  # operation, kind of fault, or phase
    data: dict[str, Any]


#: Names of operations in earlier versions -> their names.
_EARLIER = {"open_run": "begin_transaction", "commit_run": "commit_transaction",
            "abort_run": "abort_transaction"}


def key_of(topic: str, incarnation: int, partition: int) -> str:
    """Return the key of one incarnation of a partition."""
    return f"{topic}@{incarnation}/{partition}"


class HistoryWriter:
    """Writer that appends events to a file; a run that breaks off leaves all but the last lines."""

    def __init__(self, file: TextIO):
        self._write = file.write
        self._encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
        self.events = 0

    def write(self, event: Event) -> None:
        """Write one event as a line, without flushing the file.  Raises ``OSError`` of the file."""
        self._write(self._encode(event) + "\n")
        self.events += 1


class BadHistory(Exception):
    """Raised for a line that is no event."""


def read_history(path: Path) -> Iterator[Event]:
    """Yield the events of a file, read as they are needed: a history need not fit into memory.

    Raises ``BadHistory`` with the line's number; an incomplete last line was being written when the
    run was broken off, and is left out.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                event = Event(*json.loads(line))
                if event.name in _EARLIER or "run" in event.data:
                    event = _renamed(event)
            except (ValueError, TypeError, AttributeError, RecursionError) as error:
                raise BadHistory(f"{path} line {number}: {error}") from error
            if event.kind not in KINDS:
                raise BadHistory(f"{path} line {number}: kind {event.kind!r}")
            yield event


def _renamed(event: Event) -> Event:
    """Return an event of an earlier version with the names of this one."""
    data = {"transaction" if key == "run" else key: value for key, value in event.data.items()}
    if data.get("error") == "StaleRun":
        data["error"] = "StaleTransaction"
    return event._replace(name=_EARLIER.get(event.name, event.name), data=data)


def topic_of(key: str) -> str:
    """Return ``topic@incarnation`` of a key: one incarnation of a topic."""
    return key.rpartition("/")[0]


def partition_of(key: str) -> int:
    """Return the partition of a key."""
    return int(key.rpartition("/")[2])


def incarnation_of(key: str) -> int:
    """Return the number that the partition of a key has in the logs: partitions of a topic are
    numbered from its incarnation on."""
    return int(topic_of(key).rpartition("@")[2]) + partition_of(key)


def write_history(path: Path, events: Iterable[Event]) -> None:
    """Write all events into a file, which is replaced if it exists."""
    with path.open("w", encoding="utf-8") as file:
        writer = HistoryWriter(file)
        for event in events:
            writer.write(event)
