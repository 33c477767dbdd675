"""Figures of a node in operation: failover, restarts, creation, catching up, reading.

    make bench-node                                  everything, about ten minutes
    make bench-node ARGS="--only kill catch-up"      some parts
    make bench-node ARGS="--repeat 2"                a quick look
    make bench-node ARGS="--only requests --seconds 4"                  each operation for 4 s
    make bench-node ARGS="--only requests --operations metadata fetch"  some of them

Contract.  Every part is repeated and printed with its spread beside its target.  ``drop`` needs
root, for network namespaces; without it the part is left out, with a message.  Nothing is left
behind: processes are ended by the pids that were started here, files are below one temporary
directory.  The exit status says whether everything was measured, not whether targets hold: a
machine under load is no error.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from admin_cli.failures import CommandFailed
from benchmarks import costliest_requests, failover, reading, recovery, rolling
from benchmarks.figures import Figure, Series, add_picture_option, bound, compare, say, show
from benchmarks.processes import BenchmarkError

GROUPS = 1024
LOG_BYTES = 2 << 30
MISSED_BYTES = 1 << 30
READ_BYTES = 1 << 30
LEASE_S = 0.6

TARGET_KILL_S = 1.2
TARGET_SILENT_S = LEASE_S + 0.7
TARGET_ROLLING_S = 1.0
TARGET_START_S = 3.0
TARGET_CREATE_S = 5.0
TARGET_CATCH_UP_MB_PER_S = 100.0
TARGET_P99 = 2.0
TARGET_SCRUB = 0.9
#: Scrub rate of a disk that is never idle (``node/loop/scrub.py``): yielding to other work costs no
#: throughput.
TARGET_SCRUBBED_MIB_PER_S = 2.5
SCRUBBED_BYTES = 1 << 30
#: A consumer that was away catches up with a producer that continues at full speed.
TARGET_FETCH_MB_PER_S = 200.0


class Bench:
    """Runner of the parts; it collects the measurements."""

    def __init__(self, home: Path, repeat: int, seconds: float = 20.0,
                 operations: list[str] | None = None):
        self.home = home
        self.repeat = repeat
        self.seconds = seconds
        self.operations = operations
        self.figures: list[Figure] = []
        self.remarks: list[str] = []

    def _failover(self, name: str, fault: Callable, target_s: float, namespaces: bool) -> None:
        """Measure the slowest group of each repetition: all groups accept appends by then."""
        slowest: list[float] = []
        every: list[float] = []

        def report(_name: str, times: list[float]) -> None:
            slowest.append(times[-1])
            every.extend(times)
            say(f"{name}: {len(times)} groups, the last after {times[-1]:.3f} s")

        with tempfile.TemporaryDirectory(dir=self.home) as directory:
            failover.measure(Path(directory), GROUPS, self.repeat, {name: fault}, namespaces,
                             report)
        every.sort()
        p99 = every[min(len(every) - 1, len(every) * 99 // 100)]
        self.figures.append(bound(f"{name}: all groups led by the node accept appends again",
                                  Series(name, "s", tuple(slowest)), target_s, at_least=False,
                                  worst=True))
        self.remarks.append(f"{name}: of {len(every):,} groups, p50 {every[len(every) // 2]:.3f} s,"
                            f" p99 {p99:.3f} s.")

    def kill(self) -> None:
        """Measure SIGKILL of a node that leads a third of the groups."""
        self._failover("SIGKILL", failover.kill, TARGET_KILL_S, False)

    def stop(self) -> None:
        """Measure SIGSTOP of such a node."""
        self._failover("SIGSTOP", failover.stop, TARGET_SILENT_S, False)

    def drop(self) -> None:
        """Measure dropped packets of such a node."""
        if os.geteuid() != 0:
            self.remarks.append("Dropped packets: left out, it needs root (network namespaces).")
            return
        self._failover("packets dropped", failover.drop, TARGET_SILENT_S, True)

    def rolling(self) -> None:
        """Measure a restart of every node in turn while all groups are asked for appends."""
        slowest: list[float] = []
        for _ in range(self.repeat):
            with tempfile.TemporaryDirectory(dir=self.home) as directory:
                times = rolling.longest_refusals(Path(directory), GROUPS)
            slowest.append(times[-1])
            say(f"rolling-restart: {len(times)} groups, half of them at most "
                f"{times[len(times) // 2]:.3f} s, the longest {times[-1]:.3f} s")
        self.figures.append(bound("rolling restart: the longest any group refuses appends",
                                  Series("rolling-restart", "s", tuple(slowest)),
                                  TARGET_ROLLING_S, at_least=False, worst=True))

    def create(self) -> None:
        """Measure the creation of a cluster with many groups."""
        self._seconds(f"create {GROUPS:,} groups on three nodes",
                      lambda directory: recovery.create_groups(directory, GROUPS), TARGET_CREATE_S)

    def start(self) -> None:
        """Measure the start of a killed node on a long log."""
        self._seconds(f"ready again on {LOG_BYTES >> 30} GiB of log",
                      lambda directory: recovery.start_with_log(directory, LOG_BYTES),
                      TARGET_START_S)

    def _seconds(self, name: str, measure: Callable[[Path], float], target_s: float) -> None:
        values = []
        for _ in range(self.repeat):
            with tempfile.TemporaryDirectory(dir=self.home) as directory:
                values.append(measure(Path(directory)))
            say(f"{name}: {values[-1]:.3f} s")
        self.figures.append(bound(name, Series(name, "s", tuple(values)), target_s,
                                  at_least=False))

    def catch_up(self) -> None:
        """Measure a follower that returns while appends continue."""
        seen = []
        for _ in range(self.repeat):
            with tempfile.TemporaryDirectory(dir=self.home) as directory:
                seen.append(recovery.catch_up(Path(directory), MISSED_BYTES))
            say(f"catch-up: {seen[-1].mb_per_s:.0f} MB/s, p99 {seen[-1].p99_before_ms:.2f} ms "
                f"before, {seen[-1].p99_during_ms:.2f} ms during")
        self.figures.append(bound(
            f"a follower catches up on {MISSED_BYTES >> 30} GiB",
            Series("catch-up", "MB/s", tuple(one.mb_per_s for one in seen)),
            TARGET_CATCH_UP_MB_PER_S, at_least=True))
        self.figures.append(compare(
            "p99 of appends meanwhile against before",
            Series("during", "ms", tuple(one.p99_during_ms for one in seen)),
            Series("before", "ms", tuple(one.p99_before_ms for one in seen)), TARGET_P99,
            at_least=False))

    def scrub(self) -> None:
        """Measure appends beside a scrub of all data, against appends without one."""
        pairs: list[recovery.Beside] = []
        for _ in range(self.repeat):
            with tempfile.TemporaryDirectory(dir=self.home) as directory:
                found = recovery.scrub_cost(Path(directory), SCRUBBED_BYTES)
            pairs += found
            for pair in found:
                say(f"scrub: appends {pair.without_mb_per_s:.0f} MB/s without, "
                    f"{pair.beside_mb_per_s:.0f} MB/s beside it; it reads "
                    f"{pair.scrubbed_mib_per_s:.1f} MiB/s on each node")
        self.figures.append(bound(
            f"appends beside a scrub of {SCRUBBED_BYTES >> 30} GiB on each node, pair by pair",
            Series("scrub", "of those without",
                   tuple(pair.beside_mb_per_s / pair.without_mb_per_s for pair in pairs)),
            TARGET_SCRUB, at_least=True))
        self.figures.append(bound(
            "what the scrub of each node reads meanwhile",
            Series("scrubbed", "MiB/s", tuple(pair.scrubbed_mib_per_s for pair in pairs)),
            TARGET_SCRUBBED_MIB_PER_S, at_least=True))

    def fetch(self) -> None:
        """Measure one consumer that reads a long partition."""
        seen = []
        for _ in range(self.repeat):
            with tempfile.TemporaryDirectory(dir=self.home) as directory:
                seen.append(reading.read_speeds(Path(directory), READ_BYTES))
            say(f"fetch: {seen[-1].memory:.0f} MB/s from memory, {seen[-1].resident:.0f} from the "
                f"page cache, {seen[-1].cold:.0f} cold")
        for name in ("memory", "resident", "cold"):
            self.figures.append(bound(
                f"one consumer reads, {name}",
                Series(name, "MB/s", tuple(getattr(one, name) for one in seen)),
                TARGET_FETCH_MB_PER_S, at_least=True))
        self.remarks.append("fetch, cold: the disk served "
                            f"{min(one.cold_from_disk for one in seen):.0%} or more of it.")

    def requests(self) -> None:
        """Measure the costliest request of each operation, beside a bystander's appends.  Once:
        each row has its own yardstick."""
        with tempfile.TemporaryDirectory(dir=self.home) as directory:
            rows = costliest_requests.measure(Path(directory), self.seconds, self.operations)
        for row in rows:
            self.figures.append(bound(f"p99 of a bystander's appends beside {row.name}",
                                      Series(row.name, "ms", (row.beside_p99,)), row.target_ms,
                                      at_least=False))
            self.remarks.append(row.as_text())
        self.figures.append(bound(
            "leases that ended meanwhile",
            Series("leases", "", tuple(float(row.leases_ended) for row in rows)), 0,
            at_least=False, worst=True))


PARTS: dict[str, Callable[[Bench], None]] = {
    "kill": Bench.kill, "stop": Bench.stop, "drop": Bench.drop,
    "rolling-restart": Bench.rolling, "create": Bench.create, "start": Bench.start,
    "catch-up": Bench.catch_up, "scrub": Bench.scrub, "fetch": Bench.fetch,
    "requests": Bench.requests}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts to measure")
    add("--repeat", type=int, default=10, help="repetitions (default 10)")
    add("--seconds", type=float, default=20.0, help="requests: how long each operation is sent")
    add("--operations", nargs="+", help="requests: only these; a whole run prints the names")
    add("--dir", help="where the files go (default: a new temporary directory)")
    add_picture_option(parser)
    return parser.parse_args(arguments)


def main() -> int:
    """Measure, print, clean up."""
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="bench-node-", dir=arguments.dir) as home:
        bench = Bench(Path(home), arguments.repeat, arguments.seconds, arguments.operations)
        try:
            for part in arguments.only:
                say(part)
                PARTS[part](bench)
        except (BenchmarkError, CommandFailed) as error:
            print(f"not measured: {error}", file=sys.stderr)
            return 1
    show("The node", bench.figures, bench.remarks, arguments.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
