"""Record of soak runs: what many seeds went through, per commit.

Contract.  ``SOAK_FILE`` has one JSON object per run and line.  It is part of the repository, so the
evidence about a commit is kept with the code.  A run on a tree with changes, or with changes made
meanwhile, is marked.  Several processes may record at once: a line is one write at the end of the
file, under a lock.  A merge keeps the lines of both branches (``.gitattributes``).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from chaos.simulator.runner.coverage import Totals

SOAK_FILE = Path(__file__).parents[2] / "soak.jsonl"


def commit_of_run(before: str, after: str) -> str:
    """Return ``before``, the commit when the run began, with a ``+`` (as of a changed tree) if
    ``after``, that when it ended, is another one."""
    return before if before == after else before.rstrip("+") + "+"


def entry_of(totals: Totals, first: int, commit: str) -> dict:
    """Return the object of a line for a run of seeds from ``first`` on, recorded as of now."""
    return {"commit": commit, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "first": first, "seeds": totals.seeds, "counting": totals.counting,
            "simulated_seconds": totals.simulated_ms // 1000, "acked": totals.acked,
            "reads": totals.reads, "leader_changes": totals.leader_changes,
            "crashes": totals.crashes, "faults": dict(sorted(totals.faults.items())),
            "failed": totals.failed}


def record(entry: dict, path: Path = SOAK_FILE) -> None:
    """Append one run's line to the file, whole or not at all; waits for other writers.  Raises
    ``OSError``."""
    line = (json.dumps(entry, separators=(",", ":")) + "\n").encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # ends with the descriptor
        size = os.fstat(descriptor).st_size
        if os.write(descriptor, line) != len(line):
            os.ftruncate(descriptor, size)
            raise OSError(errno.ENOSPC, "no room for a whole line", str(path))
    finally:
        os.close(descriptor)


def read(path: Path = SOAK_FILE) -> list[dict]:
    """Return the objects of all lines, oldest first; empty when there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def table(entries: Iterable[dict]) -> list[str]:
    """Return the lines of a table with the sums of each commit, in the order of their first runs.
    """
    sums: dict[str, Counter[str]] = {}
    faults: dict[str, Counter[str]] = {}
    for entry in entries:
        commit = sums.setdefault(entry["commit"], Counter())
        for field in ("seeds", "counting", "simulated_seconds", "acked", "reads"):
            commit[field] += entry[field]
        commit["checked"] += entry["acked"] + entry["reads"]
        commit["failed"] += len(entry["failed"])
        faults.setdefault(entry["commit"], Counter()).update(entry["faults"])
    lines = [f"{'commit':<14} {'seeds':>7} {'count':>7} {'failed':>7} {'simulated s':>12} "
             f"{'acked':>10} {'reads':>10} {'checked':>10} {'faults':>9}"]
    for name, one in sums.items():
        lines.append(f"{name:<14} {one['seeds']:>7} {one['counting']:>7} {one['failed']:>7} "
                     f"{one['simulated_seconds']:>12} {one['acked']:>10} {one['reads']:>10} "
                     f"{one['checked']:>10} {sum(faults[name].values()):>9}")
        lines.append("    " + "  ".join(f"{kind} {count}" for kind, count
                                        in sorted(faults[name].items())))
    return lines
