"""Planning on Spark: time and quality of a plan for ten million partitions on a thousand nodes.

Contract.  Each row is one run of the planner in a process of its own, from a synthetic snapshot in
Parquet to a verified plan: seconds from the start of the process, the greatest sum of memory of
Python, the JVM and its workers, the worst bin beside its lower bound, and the moved load beside the
load that has to move.  Snapshots are made once, under ``--directory``, and are not part of the
time.

    python -m benchmarks.spark_planning [--quick] [--loads "zipf 0.8"] [--parts nodes]
        [--directory build/snapshots]

Parts: ``nodes`` plans replicas of 32,768 groups on nodes; ``groups`` switches partitions between
1,024 groups, the part that reads partitions by the million.  Both at a band of 2 %.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import figures, spark_snapshots
from benchmarks.spark_snapshots import Size
from placement import plan
from placement.policy import GROUP_INGRESS, INGRESS, MOVES_MAX, Band, Policy

TARGETED = ("lognormal 2", "zipf 0.8")
BAND_PERMILLE = 20
POOLS = {"nodes": (INGRESS, 32_768), "groups": (GROUP_INGRESS, 1_024)}
SECONDS_MAX, GIB_MAX, GAP_MAX, MOVED_MAX = 30.0, 8.0, 2.0, 1.01
LOOK_S = 0.2


def snapshot(root: Path, loads: str, size: Size) -> Path:
    """Return an existing snapshot, or create it."""
    path = root / f"{loads.replace(' ', '-')}-{size.partitions}-{size.nodes}-{size.groups}"
    if not (path / "snapshot.parquet").exists():
        spark_snapshots.write(path, loads, size, 0, time.time_ns() // 1_000_000)
    return path


class Memory:
    """The greatest resident memory of a process and all below it, sampled while it runs."""

    def __init__(self, pid: int):
        self._pid = pid
        self._over = threading.Event()
        self.most = 0
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(LOOK_S):
            self.most = max(self.most, sum(map(_resident, _below(self._pid))))

    def end(self) -> int:
        """Stop sampling and return the bytes."""
        self._over.set()
        self._thread.join()
        return self.most


def _below(pid: int) -> list[int]:
    found, rest = [], [pid]
    while rest:
        found.append(rest.pop())
        try:
            children = Path(f"/proc/{found[-1]}/task/{found[-1]}/children").read_text()
        except OSError:
            continue  # the process has ended
        rest += map(int, children.split())
    return found


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    except OSError:
        return 0


def run(directory: Path, resource: str, master: str, work: Path) -> dict[str, Any]:
    """Run the command for one plan."""
    policy = Policy(bands=(Band(resource, BAND_PERMILLE),), moves_max=MOVES_MAX,
                    switches_max=MOVES_MAX, cool_down_ms=0)
    told = work / "policy.json"
    told.write_text(json.dumps({"bands": [band._asdict() for band in policy.bands],
                                "moves_max": policy.moves_max, "cool_down_ms": 0,
                                "switches_max": policy.switches_max}))
    made = work / "plan.json"
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "admin_cli", "rebalance", "plan", "--engine", "spark", "--master",
         master, "--snapshot", str(directory), "--max-age", "1e9", "--policy", str(told),
         "--output", str(made), "--json"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    memory = Memory(process.pid)
    _, said = process.communicate()
    seconds = time.monotonic() - began
    if process.returncode:
        raise SystemExit(said)
    sys.stderr.write(said)
    return {"seconds": seconds, "gib": memory.end() / 2 ** 30,
            "outcome": plan.load(made.read_bytes())}


def figures_of(part: str, loads: str, found: dict[str, Any]) -> list[figures.Figure]:
    """Return the targets."""
    outcome = found["outcome"].resources[0]
    name = f"{part}, {loads}"
    moved = outcome.moved / max(1, outcome.moved_bound)
    return [figures.bound(f"{name}: {what}", figures.Series(what, unit, (value,)), most,
                          at_least=False, worst=True)
            for what, unit, value, most in (
                ("end to end", "s", found["seconds"], SECONDS_MAX),
                ("memory", "GiB", found["gib"], GIB_MAX),
                ("worst above the bound", "%", outcome.gap_ppm / 10_000, GAP_MAX),
                ("moved for what has to move", "x", moved, MOVED_MAX))]


def show(console: Console, rows: list[tuple]) -> None:
    """Print all runs as a table."""
    table = Table(title=f"load of the machine before: {os.getloadavg()[0]:.1f}")
    for column in ("part", "loads", "worst before", "after", "bound", "from", "moved",
                   "has to move", "moves", "converged"):
        table.add_column(column)
    for part, loads, made in rows:
        row = made.resources[0]
        table.add_row(part, loads, *(f"{ppm / 1e6:.4f}" for ppm in (
            row.before_ppm, row.after_ppm, row.bound_ppm)), row.bound,
            *(f"{value / row.total:.3%}" for value in (row.moved, row.moved_bound)),
            f"{len(made.moves):,}", str(made.converged))
    console.print(table)


def main() -> int:
    """Measure; return 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a hundredth of it, for a look")
    parser.add_argument("--loads", nargs="*", choices=spark_snapshots.LOADS, default=TARGETED)
    parser.add_argument("--parts", nargs="*", choices=[*POOLS], default=[*POOLS])
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--directory", type=Path, default=Path("build/snapshots"))
    parser.add_argument("--only-snapshots", action="store_true", help="make them, measure nothing")
    figures.add_picture_option(parser)
    arguments = parser.parse_args()
    console = Console(stderr=True)
    console.width = max(console.width, figures.TABLE_COLUMNS_MIN)
    arguments.directory.mkdir(parents=True, exist_ok=True)
    rows, found = [], []
    for part in arguments.parts:
        resource, groups = POOLS[part]
        size = Size(100_000, 100, groups // 16) if arguments.quick else Size(groups=groups)
        for loads in arguments.loads:
            directory = snapshot(arguments.directory, loads, size)
            if arguments.only_snapshots:
                continue
            measured = run(directory, resource, arguments.master, arguments.directory)
            rows.append((part, loads, measured["outcome"]))
            found += figures_of(part, loads, measured)
    if arguments.only_snapshots:
        return 0
    show(console, rows)
    figures.show("Planning with Spark", found, (), arguments.picture)
    return 0 if all(figure.holds for figure in found) else 1


if __name__ == "__main__":
    sys.exit(main())
