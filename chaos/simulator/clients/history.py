"""Recorder of a simulated run's client operations, as a history for the checkers of all layers.

Contract.  A ``Recording`` is given to a run.  The run reports every append, its outcome, and every
read when it is served.  ``events`` is the history: keys are ``t@N/0`` for partition N, values are
numbers.  The reads that compare all healed nodes are the final reads.  ``nemesis`` makes the run's
nemesis, whose faults are counted in ``faults``; ``run_trace.RunTrace`` replaces both to observe
them.  A recording changes nothing: a run has the same digest with it and without.

Theory.  The simulator's invariants see internal state; the checkers see what a client of a real
cluster sees.  A bug that is visible to both must be found by both.  Otherwise the checkers do not
work.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from chaos.checkers.reads import OUT_OF_RANGE
from chaos.history import (
    END,
    FAIL,
    FAULT,
    FINAL,
    INVOKE,
    LOG,
    LOG_START,
    NEMESIS,
    OK,
    PHASE,
    WARM_UP,
    Event,
    key_of,
)
from chaos.simulator.env.event_queue import EventQueue
from chaos.simulator.faults.injector import Injector
from chaos.simulator.faults.nemesis import Nemesis
from chaos.simulator.oracle.operations import (
    ACKS_COMMIT,
    ACKS_LEADER,
    ACKS_NONE,
    AppendOperation,
    ReadOperation,
)
from multiraft import core
from multiraft.codec import layout

if TYPE_CHECKING:
    from chaos.simulator.ports import SimulationPort

_LEVELS = {ACKS_COMMIT: "commit", ACKS_LEADER: "leader", ACKS_NONE: "none"}
#: First process numbers of plain appends, readers and topics; below are producers with epochs.
PLAIN, READERS, TOPICS = 1 << 30, 1 << 40, 1 << 50
FINAL_READER = 0


class Recording:
    """History of one run, in the making."""

    def __init__(self) -> None:
        self.faults: Counter[str] = Counter()
        self.events: list[Event] = []
        self.queue: EventQueue | None = None  # clock of the history; the run sets it
        self._operations = 0
        self._open: dict[AppendOperation, int] = {}
        self._final = False
        self.all_healed = False  # all nodes are healed: reads that compare nodes are final
        self._keys: dict[int, str] = {}  # partition of a topic -> key
        self._asked: dict[int, dict] = {}  # open operations of topics
        self._phase(WARM_UP)
        self._nemesis(True)

    def nemesis(self, world: SimulationPort, rng: random.Random) -> Nemesis:
        """Return the nemesis of the run, which injects its faults into ``world``, drawn from
        ``rng``."""
        return Nemesis(Injector(world, rng))

    def _add(self, kind: str, operation: int, process: int, name: str, data: dict) -> None:
        now_us = self.queue.now_us if self.queue is not None else 0
        self.events.append(Event(now_us, kind, operation, process, name, data))

    def _phase(self, name: str) -> None:
        self._add(PHASE, -1, -1, name, {})

    def _nemesis(self, on: bool) -> None:
        """Record one fault of all nodes, which lasts as long as the nemesis may cause faults."""
        self._add(FAULT, -1, -1, NEMESIS, {"on": on, "nodes": [], "text": ""})

    # ---- appends ---------------------------------------------------------------------------

    def invoke(self, append: AppendOperation) -> None:
        """Record an append that is sent for the first time."""
        self._operations += 1
        self._open[append] = self._operations
        self._add(INVOKE, self._operations, self._process(append), "append", {
            "key": self._key(append.partition), "values": _values(append.payload),
            "acks": _LEVELS[append.acks], "producer": append.producer, "epoch": append.epoch,
            "sequence": append.sequence})

    def complete(self, append: AppendOperation, kind: str, error: str = "") -> None:
        """Record the outcome ``kind`` (``OK``, ``FAIL`` or ``INFO``) of an append that was invoked;
        ``error``: its name unless ``OK``."""
        process = self._process(append)
        operation = self._open.pop(append)
        data = {"offset": append.base_offset} if kind == OK else {"error": error, "text": ""}
        self._add(kind, operation, process, "append", data)

    def _process(self, append: AppendOperation) -> int:
        """Return the process number of an append.

        A producer has one process per epoch, because a producer that gives up restarts as a new
        one.  Each plain append has a process of its own, while it is open.
        """
        if append.producer < 0:
            return PLAIN + self._open[append]
        return append.producer * 1000 + append.epoch

    # ---- reads -----------------------------------------------------------------------------

    def read(self, read: ReadOperation) -> None:
        """Record a served read: invocation and completion at one time.

        The first final read also records the end of the nemesis and begins the phase ``FINAL``."""
        final = self.all_healed and read.reader == FINAL_READER
        if final and not self._final:
            self._final = True
            self._nemesis(False)
            self._phase(FINAL)
        self._operations += 1
        process = READERS + read.reader
        asked = {"key": self._key(read.partition), "offset": read.offset, "mode": "committed"}
        if final:  # all replicas have converged, so no node may be behind
            asked |= {"mode": "linearizable" if read.is_last else "committed", "final": True}
        self._add(INVOKE, self._operations, process, "read", asked)
        self._add(OK, self._operations, process, "read", {
            "runs": _runs(read), "start": read.log_start, "high_watermark": read.high_watermark,
            "node": -1})

    def refused(self, reader: int, partition: int, offset: int) -> None:
        """Record a read that a node refuses, because the offset does not exist."""
        self._operations += 1
        process = READERS + reader
        self._add(INVOKE, self._operations, process, "read", {
            "key": self._key(partition), "offset": offset, "mode": "committed"})
        self._add(FAIL, self._operations, process, "read", {
            "error": OUT_OF_RANGE, "text": f"offset {offset}"})

    def log_start(self, partition: int, log_start: int) -> None:
        """Record a log start that is committed."""
        self._add(LOG, -1, -1, LOG_START, {"key": self._key(partition), "log_start": log_start})

    # ---- topics ----------------------------------------------------------------------------

    def topic_asked(self, name: str, ends: bool) -> int:
        """Record the request for a topic, or with ``ends`` for its deletion; return the number of
        the operation.

        A deletion may be requested before the topic exists.
        """
        self._operations += 1
        data = {"topic": name, **({"incarnation": -1} if ends else {"partitions": 1})}
        self._asked[self._operations] = data
        self._add(INVOKE, self._operations, TOPICS, _topic_operation(ends), data)
        return self._operations

    def topic_done(self, operation: int, name: str, incarnation: int, ends: bool,
                   partitions: Sequence[int]) -> None:
        """Record that the request ``operation`` is committed; ``partitions`` of the topic begin, or
        with ``ends`` end, with it."""
        asked = self._asked.pop(operation)
        if ends:
            asked["incarnation"] = incarnation
        self._keys |= {partition: key_of(name, incarnation, place)
                       for place, partition in enumerate(partitions)}
        self._add(OK, operation, TOPICS, _topic_operation(ends),
                  {} if ends else {"incarnation": incarnation})

    def partitions_added(self, name: str, incarnation: int, partitions: Sequence[int]) -> None:
        """Note the keys of all partitions of a topic to which some were added."""
        self._keys |= {partition: key_of(name, incarnation, place)
                       for place, partition in enumerate(partitions)}

    def _key(self, partition: int) -> str:
        return self._keys.get(partition) or key_of("t", partition, 0)

    def finish(self) -> list[Event]:
        """End the history, if it has not ended, and return its events, with the keys of topics'
        partitions filled in."""
        if self.events[-1].name != END:
            self._phase(END)
        # Clients may append to a topic before its creation is recorded as complete, so the keys of
        # those appends are corrected here.
        named = {key_of("t", partition, 0): key for partition, key in self._keys.items()}
        for event in self.events:
            key = event.data.get("key")
            if key in named:
                event.data["key"] = named[key]
        return self.events


def _topic_operation(ends: bool) -> str:
    return "delete_topic" if ends else "create_topic"


def _values(payload: bytes) -> list[int]:
    """Return the unique numbers of the records, whose values are "partition/producer/epoch/number
    ...".
    """
    records = core.decode_records(core.batch_header(payload), payload[layout.BATCH_HEADER_BYTES:])
    return [int(bytes(record.value).split(b" ", 1)[0].split(b"/")[3]) for record in records]


def _runs(read: ReadOperation) -> list[list]:
    """Return runs of [first offset, values] of a read, from the requested offset on; a batch may
    begin below it."""
    runs: list[list] = []
    for data in read.batches:
        base = core.batch_header(data).base_offset
        values = _values(data)
        skipped = max(0, read.offset - base)
        base, values = base + skipped, values[skipped:]
        if runs and runs[-1][0] + len(runs[-1][1]) == base:
            runs[-1][1].extend(values)
        elif values:
            runs.append([base, values])
    return runs

