"""Figures of the first release, each beside its yardstick.

    make bench-first-light                       everything, about five minutes
    make bench-first-light ARGS="--only idle"    one part
    make bench-first-light ARGS="--repeat 1"     a quick look

Contract.  Everything is repeated and judged by its medians.  Yardsticks and this system run in
turn, within the same minutes, never at the same time.  Nothing is left behind: processes are ended
by the pids that were started here, files are below one temporary directory.  The exit status says
whether everything was measured, not whether targets hold: a machine under load is no error.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from admin_cli.failures import CommandFailed
from benchmarks import nats, ours
from benchmarks.figures import Figure, Series, add_picture_option, compare, show
from benchmarks.processes import BenchmarkError, probe

PARTS = ("appends", "latency", "idle")
#: One acknowledged frame of the probe is 256 KiB: 2,000 of them are half a gigabyte.
PROBE_FRAMES = 2000
PROBE_SMALL_FRAMES = 5000

TARGET_OF_PROBE = 0.15
TARGET_OF_NATS = 1.5
TARGET_LATENCY = 6.0
TARGET_IDLE = 1.2
GROUPS = 64
GROUPS_FEW, GROUPS_MANY = 8, 1024


class Bench:
    """Collects repetitions by name."""

    def __init__(self, arguments: argparse.Namespace, home: Path):
        self.arguments = arguments
        self.home = home
        self.values: dict[str, list[float]] = defaultdict(list)
        self.units: dict[str, str] = {}
        self.remarks: list[str] = []

    def add(self, name: str, unit: str, value: float) -> None:
        """Keep one repetition and print it: a run takes minutes."""
        self.values[name].append(value)
        self.units[name] = unit
        print(f"  {name}: {value:,.4g} {unit}", file=sys.stderr, flush=True)

    def series(self, name: str) -> Series:
        return Series(name, self.units[name], tuple(self.values[name]))

    def directory(self) -> Path:
        """Yield a directory of its own for one run."""
        return Path(tempfile.mkdtemp(dir=self.home))

    def measure_appends_and_latency(self) -> None:
        """Measure one repetition of every part that moves bytes, yardsticks and this system in
        turn."""
        parts = self.arguments.only
        with tempfile.TemporaryDirectory(dir=self.home) as name:
            self._yardsticks(Path(name), parts)
        with tempfile.TemporaryDirectory(dir=self.home) as name, \
                ours.cluster(Path(name), GROUPS) as dev:
            self.add("ours, batched", "MB/s", ours.append_batched(
                dev.addresses, self.arguments.records, self.arguments.partitions))
            if "latency" in parts:
                self.add("ours, one by one", "ms", ours.append_one_by_one(
                    dev.addresses, self.arguments.synchronous))
        if "appends" in parts and not self.arguments.without_nats:
            with tempfile.TemporaryDirectory(dir=self.home) as name:
                run = nats.jetstream(Path(name), self.arguments.records)
            self.add("NATS JetStream R3", "MB/s", run["mb_per_s"])
            self.remarks = [f"NATS: nats-server {run['version']}, file storage, its default "
                            f"without fsync, {nats.IN_FLIGHT:,} in flight, 1 KiB records."]

    def _yardsticks(self, directory: Path, parts: list[str]) -> None:
        if "appends" in parts:
            self.add("probe", "MB/s", probe(directory, count=PROBE_FRAMES)["mb_per_s"])
            self.add("probe, fsync", "MB/s",
                     probe(directory, count=PROBE_FRAMES, fsync=True)["mb_per_s"])
        if "latency" in parts:
            self.add("probe, one by one, fsync", "ms", probe(
                directory, frame=1024, count=PROBE_SMALL_FRAMES, window=1, fsync=True)["p50_ms"])

    def measure_idle(self) -> None:
        """Measure few groups and many, without traffic."""
        for groups in (GROUPS_FEW, GROUPS_MANY):
            with tempfile.TemporaryDirectory(dir=self.home) as name, \
                    ours.cluster(Path(name), groups) as dev:
                seen = ours.idle(dev, self.arguments.settle, self.arguments.window)
            self.add(f"liveness, {groups} groups", "messages/s", seen.liveness_per_s)
            self.add(f"peer frames, {groups} groups", "frames/s", seen.frames_per_s)
            self.add(f"CPU, {groups} groups", "s/min", seen.cpu_s_per_minute)

    def figures(self) -> list[Figure]:
        """Return the measured figures with their targets."""
        found = []
        parts = self.arguments.only
        if "appends" in parts:
            batched = self.series("ours, batched")
            found.append(compare("batched appends against the probe with fsync", batched,
                                 self.series("probe, fsync"), TARGET_OF_PROBE, at_least=True))
            if not self.arguments.without_nats:
                found.append(compare("batched appends against NATS JetStream R3", batched,
                                     self.series("NATS JetStream R3"), TARGET_OF_NATS,
                                     at_least=True))
            self.remarks.append(f"The probe without fsync: {self.series('probe').as_text()}; it "
                                f"says how fast this machine is, and is no yardstick of ours.")
        if "latency" in parts:
            found.append(compare("synchronous append, p50", self.series("ours, one by one"),
                                 self.series("probe, one by one, fsync"), TARGET_LATENCY,
                                 at_least=False))
        if "idle" in parts:
            found += [compare(f"idle, {GROUPS_MANY:,} groups against {GROUPS_FEW}: {what}",
                              self.series(f"{what}, {GROUPS_MANY} groups"),
                              self.series(f"{what}, {GROUPS_FEW} groups"), TARGET_IDLE,
                              at_least=False) for what in ("liveness", "peer frames", "CPU")]
        return found


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts to measure")
    add("--repeat", type=int, default=3, help="repetitions (default 3)")
    add("--records", type=int, default=200_000, help="records of 1 KiB per batched run")
    add("--synchronous", type=int, default=2000, help="synchronous appends per run")
    add("--partitions", type=int, default=1, help="partitions of our topic (default 1)")
    add("--settle", type=float, default=10.0, help="quiet seconds before the idle window")
    add("--window", type=float, default=20.0, help="seconds of the idle window")
    add("--without-nats", action="store_true", help="leave NATS out")
    add("--dir", help="where the files go (default: a new temporary directory)")
    add_picture_option(parser)
    return parser.parse_args(arguments)


def main() -> int:
    """Measure, print, clean up."""
    arguments = parse()
    with tempfile.TemporaryDirectory(prefix="first-light-", dir=arguments.dir) as home:
        bench = Bench(arguments, Path(home))
        try:
            for repetition in range(arguments.repeat):
                print(f"repetition {repetition + 1} of {arguments.repeat}", file=sys.stderr)
                if {"appends", "latency"} & set(arguments.only):
                    bench.measure_appends_and_latency()
                if "idle" in arguments.only:
                    bench.measure_idle()
        except (BenchmarkError, CommandFailed) as error:
            print(f"not measured: {error}", file=sys.stderr)
            return 1
    show("First light", bench.figures(), bench.remarks, arguments.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
