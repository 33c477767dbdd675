"""Figures of retention: starts, small disks, deleted topics, the cleaner, idle topics, memory.

    make bench-retention                                          everything, more than an hour
    make bench-retention ARGS="start --gib 2 8 32"                one row
    make bench-retention ARGS="small-disk --disk-gib 4 --minutes 5"
    make bench-retention ARGS="deleted-topic --gib 10"
    make bench-retention ARGS="mixed --gib 4"
    make bench-retention ARGS="cleaner --gib 4"
    make bench-retention ARGS="idle-topics --topics 20000"
    make bench-retention ARGS="memory --batches 100000"

Contract.  Each row is a command with bounds of its own.  It prints its progress, and compares only
figures of one run.  ``small-disk`` needs root, for a file system of its own; without it the row is
left out, with a message.  Nothing is left behind: processes are ended by the pids that were started
here, files are below one temporary directory.  The exit status says whether everything was
measured, not whether targets hold: a machine under load is no error.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from admin_cli.failures import CommandFailed
from benchmarks import retention
from benchmarks.figures import Figure, Series, add_picture_option, bound, compare, say, show
from benchmarks.processes import BenchmarkError

GIB = 1 << 30

#: A start reads what the last checkpoint does not cover, not the log.
TARGET_START_RATIO = 1.5
TARGET_READY_S = 3.0
#: Throughput of the last minute against the first.
TARGET_LAST_MINUTE = 0.9
TARGET_BACK_S = 60.0
TARGET_P99 = 1.5
#: Sealed and cold segments with their index files, or the whole data directory, against the
#: payload of the records.  The directory has 320 MiB whatever its records are: the reserve, and two
#: segments that have their blocks before they are written.  So it needs some GiB that are left.
TARGET_SPACE = 1.5
#: Records that the cleaner copies, against dd.
TARGET_COPIES = 0.4
#: Share of a processor for 100,000 idle topics, with limits minus without.
TARGET_IDLE = 0.01
#: Resident memory of the last minute against that after a third of the time.
TARGET_GROWTH = 1.05
#: Resident megabytes for a million batches of 1 KiB, with up to so many partitions.
TARGETS_MEMORY_MB = {10: 2.0, 10_000: 6.0}

Row = Callable[[argparse.Namespace, Path], list[Figure]]


def start(asked: argparse.Namespace, home: Path) -> list[Figure]:
    """Measure the start of a killed node on a long log that is not in the page cache."""
    sizes = sorted(int(gib * GIB) for gib in asked.gib)
    series = [Series(f"start on {size / GIB:g} GiB", "s", tuple(seconds)) for size, seconds in
              zip(sizes, retention.ready_after_kill(home, sizes, asked.starts), strict=True)]
    ratio = compare(f"ready after SIGKILL: {sizes[-1] / GIB:g} GiB against {sizes[0] / GIB:g} GiB",
                    series[-1], series[0], TARGET_START_RATIO, at_least=False)
    return [*(bound(f"ready after SIGKILL: {each.name}", each, TARGET_READY_S, at_least=False)
              for each in series), ratio]


def small_disk(asked: argparse.Namespace, home: Path) -> list[Figure]:
    """Measure appends at full speed to a topic whose retention.bytes is a fifth of the disk."""
    if os.geteuid() != 0:
        say("small-disk: left out, it needs root (a file system of its own)")
        return []
    found = retention.small_disk(home, int(asked.disk_gib * GIB), asked.minutes)
    minutes = Series("MB/s", "MB/s", found.mb_per_s)
    third = (asked.minutes + 2) // 3
    resident = [each / 1e6 for each in found.resident]
    return [
        bound(f"appends to a disk of {asked.disk_gib:g} GiB: times that it was full",
              Series("full", "", (float(found.was_full),)), 0, at_least=False, worst=True),
        compare("the last minute against the first", Series("last", "MB/s", minutes.values[-1:]),
                Series("first", "MB/s", minutes.values[:1]), TARGET_LAST_MINUTE, at_least=True),
        compare(f"resident memory of the last minute against minute {third}",
                Series("last", "MB", (resident[-1],)),
                Series(f"minute {third}", "MB", (resident[third - 1],)), TARGET_GROWTH,
                at_least=False)]


def deleted_topic(asked: argparse.Namespace, home: Path) -> list[Figure]:
    """Measure the space of a deleted topic that returns, and appends meanwhile."""
    found = retention.deleted_topic(home, int(asked.gib * GIB), asked.pairs)
    return [
        bound(f"a topic of {asked.gib:g} GiB is deleted: nine tenths are back",
              Series("back", "s", tuple(each.back_s for each in found)), TARGET_BACK_S,
              at_least=False),
        bound("p99 of appends meanwhile against before, at half of the throughput, pair by pair",
              Series("ratio", "", tuple(each.p99_during_ms / each.p99_before_ms
                                        for each in found)), TARGET_P99, at_least=False)]


def mixed(asked: argparse.Namespace, home: Path) -> list[Figure]:
    """Measure the space of a topic without limit that shares groups with one of some seconds."""
    found = retention.mixed_topics(home, int(asked.gib * GIB))
    live = Series("live", "MB", (found.live_bytes / 1e6,))
    return [compare(f"{name} against the live bytes, nine tenths of all have left",
                    Series("space", "MB", (size / 1e6,)), live, TARGET_SPACE, at_least=False)
            for name, size in (("the data directory", found.all_bytes),
                               ("sealed segments alone", found.sealed_bytes))]


def cleaner(asked: argparse.Namespace, home: Path) -> list[Figure]:
    """Measure copies of the cleaner beside dd, and appends beside copies."""
    found = retention.cleaner(home, int(asked.gib * GIB), asked.pairs)
    return [
        compare("copies of the cleaner without a limit against dd of segments",
                Series("cleaner", "MB/s", (found.copied_mb_per_s,)),
                Series("dd", "MB/s", (found.dd_mb_per_s,)), TARGET_COPIES, at_least=True),
        bound("p99 of appends beside the cleaner against without, at half of the throughput, pair "
              "by pair", Series("ratio", "", tuple(
                  during / without for without, during in found.p99_pairs_ms)), TARGET_P99,
              at_least=False)]


def idle_topics(asked: argparse.Namespace, home: Path) -> list[Figure]:
    """Measure the processor time of retention with many idle topics."""
    pairs = retention.idle_topics(home, asked.topics, asked.seconds, asked.pairs)
    return [bound(f"{asked.topics:,} idle topics: processor with a limit, minus without",
                  Series("idle", "processors", tuple(after - before for before, after in pairs)),
                  TARGET_IDLE, at_least=False)]


def memory(asked: argparse.Namespace, home: Path) -> list[Figure]:
    """Measure the memory of a million small batches."""
    figures = []
    for partitions in asked.partitions:
        target = next((mb for most, mb in TARGETS_MEMORY_MB.items() if partitions <= most),
                      max(TARGETS_MEMORY_MB.values()))
        with tempfile.TemporaryDirectory(dir=home) as directory:
            gained = retention.memory_per_million(Path(directory), asked.batches, partitions)
        figures.append(bound(
            f"resident memory of a million batches of 1 KiB in {partitions:,} partitions",
            Series("memory", "MB", (gained / 1e6,)), target, at_least=False))
    return figures


ROWS: dict[str, Row] = {"start": start, "small-disk": small_disk, "deleted-topic": deleted_topic,
                        "mixed": mixed, "cleaner": cleaner, "idle-topics": idle_topics,
                        "memory": memory}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("row", nargs="?", choices=ROWS, help="what to measure (default: everything)")
    add("--gib", nargs="+", type=float, help="start: sizes of the log (default 2 8); "
        "deleted-topic, mixed, cleaner: bytes that are appended (default 2)")
    add("--starts", type=int, default=5, help="start: starts on each size (default 5)")
    add("--disk-gib", type=float, default=4.0, help="small-disk: its size (default 4)")
    add("--minutes", type=int, default=15, help="small-disk: how long (default 15)")
    add("--pairs", type=int, default=5, help="repetitions of a comparison (default 5)")
    add("--topics", type=int, default=100_000, help="idle-topics: how many (default 100,000)")
    add("--seconds", type=float, default=20.0, help="idle-topics: of each window (default 20)")
    add("--batches", type=int, default=700_000, help="memory: in each step (default 700,000; the "
        "entries up to the last checkpoints hide what few records take)")
    add("--partitions", nargs="+", type=int, default=[10, 10_000],
        help="memory: numbers of partitions (default 10 10000)")
    add("--dir", help="where the files go (default: a new temporary directory)")
    add_picture_option(parser)
    return parser.parse_args(arguments)


def arguments_of(row: str, asked: argparse.Namespace) -> argparse.Namespace:
    """Return what one row was asked for, with its own default of ``--gib``."""
    sizes = asked.gib or [2.0, 8.0]
    return argparse.Namespace(**{**vars(asked), "gib": sizes if row == "start"
                                 else (asked.gib or [2.0])[-1]})


def main() -> int:
    """Measure, print, clean up."""
    asked = parse()
    figures: list[Figure] = []
    unmeasured = False
    with tempfile.TemporaryDirectory(prefix="bench-retention-", dir=asked.dir) as home:
        for row in [asked.row] if asked.row else ROWS:
            say(row)
            try:
                with tempfile.TemporaryDirectory(dir=home) as directory:
                    figures += ROWS[row](arguments_of(row, asked), Path(directory))
            except (BenchmarkError, CommandFailed) as error:
                unmeasured = True
                print(f"not measured: {row}: {error}", file=sys.stderr)
    show("Retention", figures, [], asked.picture)
    return int(unmeasured)


if __name__ == "__main__":
    sys.exit(main())
