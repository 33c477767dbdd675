"""Benchmark of the checkers: time and memory to check a history.

A generator makes a valid history of the requested size: a faultless log behind many keys, producers
that pipeline with each ack level, readers and consumers that lag, ambiguous outcomes, a few topics
created and deleted, faults in the same order.  It is written to a file and checked from it, as a
run's history is; seconds are processor seconds of one thread, memory is the peak of a process that
only checks.

    python -m benchmarks.bench_checkers [--operations N] [--records 2.5] [--replicas 3] [--keep DIR]
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from chaos.history import (
    END,
    FAIL,
    FAULT,
    FAULTS,
    FINAL,
    HEAL,
    INFO,
    INVOKE,
    OK,
    PHASE,
    WARM_UP,
    Event,
    key_of,
    write_history,
)
from chaos.replicas import Dump, LogBatch, ReplicaLog, write
from chaos.values import crc_of_key, value_of

KEYS = 64
PROCESSES = 40
#: Cumulative shares of the operations: appends, reads, polls, certain ends.
APPENDS, READS, POLLS = 0.45, 0.80, 0.97
UNKNOWN, REFUSED, LEADER = 0.01, 0.02, 0.2
RESULT_MAX = 20
REPLICAS = "replicas"
#: Limits of the whole: a minute, and so many bytes per operation.
SECONDS_MAX = 60.0
BYTES_PER_OPERATION_MAX = 400


class _Log:
    """The log of one key, without faults."""

    def __init__(self, name: str):
        self.name = name
        self.values: list[int] = []
        self.batches: list[int] = []  # records of each


class Generator:
    """Generator of a valid history; ``events`` may be iterated once."""

    def __init__(self, operations: int, seed: int = 1, records: float = 2.5):
        self._operations = operations
        self._rng = random.Random(seed)
        self._records = records
        self._now_us = 0
        self._count = 0
        self._logs = [_Log(key_of("t", 1 + number * 4, number % 4)) for number in range(KEYS)]
        self._numbers = [0] * PROCESSES
        self._processes = PROCESSES + 1
        self._clients = list(range(1, PROCESSES + 1))
        self._positions: list[dict[str, int]] = [{} for _ in range(PROCESSES)]

    def _event(self, kind: str, operation: int, process: int, name: str, data: dict) -> Event:
        self._now_us += self._rng.randrange(1, 200)
        return Event(self._now_us, kind, operation, process, name, data)

    def _mark(self, phase: str) -> Event:
        return self._event(PHASE, -1, -1, phase, {})

    def events(self) -> Iterator[Event]:
        """Yield all events, in order."""
        yield self._mark(WARM_UP)
        yield self._mark(FAULTS)
        while self._count < self._operations:
            if self._count % 20_000 == 0:
                on = self._count % 40_000 == 0
                yield self._event(FAULT, -1, -1, "kill", {"on": on, "nodes": [2], "text": ""})
            yield from self._overlapping(self._rng.randrange(1, 8))
        yield self._mark(HEAL)
        yield self._mark(FINAL)
        for log in self._logs:
            yield from self._final(log)
        yield self._mark(END)

    def _overlapping(self, count: int) -> Iterator[Event]:
        """Yield some operations at once, on different keys, that end in any order."""
        logs = self._rng.sample(self._logs, count)
        opened = []
        for log in logs:
            self._count += 1
            ask = self._choose()
            opened.append((self._count, log, *ask(self._count, log)))
        for _, _, invoked, _ in opened:
            yield invoked
        self._rng.shuffle(opened)
        for operation, _, invoked, end in opened:
            kind, data = end()
            yield self._event(kind, operation, invoked.process, invoked.name, data)

    def _choose(self):
        draw = self._rng.random()
        if draw < APPENDS:
            return self._append
        if draw < READS:
            return self._read
        return self._poll if draw < POLLS else self._offsets

    def _append(self, operation: int, log: _Log):
        client = self._rng.randrange(PROCESSES)
        count = 1 + min(30, int(self._rng.expovariate(1 / max(0.01, self._records - 1))))
        values = [value_of(client, self._numbers[client] + place) for place in range(count)]
        self._numbers[client] += count
        draw = self._rng.random()
        acks = "leader" if self._rng.random() < LEADER else "commit"
        process = self._clients[client]
        data = {"key": log.name, "values": values, "acks": acks, "producer": client, "epoch": -1,
                "sequence": -1}

        def end() -> tuple[str, dict]:
            if draw < REFUSED:
                return FAIL, {"error": "NotLeader", "text": ""}
            offset = len(log.values)
            log.values += values
            log.batches.append(len(values))
            if draw < REFUSED + UNKNOWN:
                self._processes += 1
                self._clients[client] = self._processes
                return INFO, {"error": "TimedOut", "text": ""}
            return OK, {"offset": offset}

        return self._event(INVOKE, operation, process, "append", data), end

    def _read(self, operation: int, log: _Log):
        offset = self._rng.randrange(len(log.values) + 1)
        lag = self._rng.randrange(3)

        def end() -> tuple[str, dict]:
            high_watermark = max(offset, len(log.values) - lag)
            found = log.values[offset:min(high_watermark, offset + RESULT_MAX)]
            runs = [[offset, found]] if found else []
            return OK, {"runs": runs, "start": 0, "high_watermark": high_watermark, "node": -1}

        data = {"key": log.name, "offset": offset, "mode": "committed"}
        return self._event(INVOKE, operation, 1000 + operation % 7, "read", data), end

    def _poll(self, operation: int, log: _Log):
        consumer = self._rng.randrange(PROCESSES)

        def end() -> tuple[str, dict]:
            positions = self._positions[consumer]
            at = positions.get(log.name, 0)
            found = log.values[at:at + RESULT_MAX]
            positions[log.name] = at + len(found)
            return OK, {"runs": {log.name: [[at, found]]} if found else {}}

        data = {"keys": [log.name]}
        return self._event(INVOKE, operation, 2000 + consumer, "poll", data), end

    def _offsets(self, operation: int, log: _Log):
        data = {"key": log.name, "mode": "linearizable"}
        return (self._event(INVOKE, operation, 3000, "offsets", data),
                lambda: (OK, {"start": 0, "high_watermark": len(log.values)}))

    def _final(self, log: _Log) -> Iterator[Event]:
        at, end = 0, len(log.values)
        while at < end:
            self._count += 1
            data = {"key": log.name, "offset": at, "mode": "linearizable", "final": True}
            yield self._event(INVOKE, self._count, 4000, "read", data)
            found = log.values[at:at + 500]
            yield self._event(OK, self._count, 4000, "read", {
                "runs": [[at, found]], "start": 0, "high_watermark": end, "node": -1})
            at += len(found)


    def dump(self, node: int) -> Dump:
        """Return the log on a node's disk at the end: a group per key."""
        found = Dump(node)
        for group, log in enumerate(self._logs):
            replica = found.logs[group] = ReplicaLog(commit=len(log.batches))
            at, name = 0, crc_of_key(log.name)
            for index, count in enumerate(log.batches, 1):
                replica.put(index, 1 + index // 1000, "data", index * count)
                replica.put_batch(LogBatch(index, group + 1, at, name,
                                        tuple(log.values[at:at + count])))
                at += count
            replica.configuration = [[1, 2, 3], [], []]
        return found


def measure(path: Path) -> int:
    """Check a file and print time and memory; return 1 when a limit is exceeded, or an anomaly was
    found."""
    from chaos.checkers import check
    from chaos.checkers.leaders import LeaderTrace, RoleChange
    from chaos.history import read_history
    from chaos.replicas import load_all

    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    changed = LeaderTrace(RoleChange(1 << 60, node, 1, node, "leader", node) for node in (1, 2))
    begun_s = time.process_time()
    verdict = check(read_history(path), trace=changed, replicas=load_all(path.parent / REPLICAS))
    seconds = time.process_time() - begun_s
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    operations, appends = verdict.checked["operations"], verdict.checked["appends"]
    per_operation = (peak_kib - before_kib) * 1024 / operations
    print(f"{operations:,} operations, {appends:,} appends, {verdict.checked['records_read']:,} "
          f"records read, history of {path.stat().st_size / 1e6:.0f} MB, "
          f"{verdict.checked.get('log_entries', 0):,} log entries: {verdict.outcome}")
    print(f"{seconds:.1f} processor seconds ({operations / seconds:,.0f} operations a second), "
          f"{peak_kib / 1024:.0f} MiB at most, {per_operation:.0f} bytes per operation")
    print(f"allowed: {SECONDS_MAX:.0f} s per million operations, {BYTES_PER_OPERATION_MAX} bytes "
          f"per operation")
    slow = seconds > SECONDS_MAX * max(1.0, operations / 1e6)
    return int(slow or per_operation > BYTES_PER_OPERATION_MAX or verdict.outcome != "passed")


def main() -> int:
    """Generate a history, check it in a process of its own, and print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--records", type=float, default=2.5, help="per append, on average")
    parser.add_argument("--replicas", type=int, default=3, help="whose logs are compared")
    parser.add_argument("--keep", type=Path, help="a folder where history and logs are left")
    parser.add_argument("--only-check", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only_check:
        return measure(given.only_check)
    with tempfile.TemporaryDirectory() as directory:
        path = (given.keep or Path(directory)) / "history.jsonl"
        generator = Generator(given.operations, records=given.records)
        write_history(path, generator.events())
        (path.parent / REPLICAS).mkdir(exist_ok=True)
        for node in range(1, given.replicas + 1):
            write(path.parent / REPLICAS / f"{node}.jsonl", generator.dump(node))
        return subprocess.run([sys.executable, "-m", "benchmarks.bench_checkers", "--only-check",
                               str(path)]).returncode


if __name__ == "__main__":
    sys.exit(main())
