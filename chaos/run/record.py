"""Record of the runs against real nodes, kept per commit.

Contract.  One JSON object per run and line, appended to ``RUNS_FILE``, which is in the repository,
as ``chaos/soak.jsonl`` is for the simulator.  ``entry_of`` takes a run's folder and returns its
parameters, numbers and outcome; ``table`` sums the records by commit.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from chaos.history import FINAL, HEAL
from chaos.run.parameters import RECOVERY_S, Folder

RUNS_FILE = Path(__file__).parents[1] / "runs.jsonl"
#: Parameters that a line copies.
ASKED = ("backend", "nodes", "groups", "seconds", "seed")
#: Numbers of a verdict that a line copies.
CHECKED = ("operations", "acknowledged", "acknowledged_under_faults", "log_entries")


def entry_of(folder: Folder) -> dict[str, Any]:
    """Return the line for the run in a folder.  Raises ``OSError``, ``KeyError`` or ``ValueError``
    when the folder is not that of a run that came to its end."""
    run = json.loads((folder.path / "run.json").read_text(encoding="utf-8"))
    verdict = json.loads(folder.verdict.read_text(encoding="utf-8"))
    parameters, phases = run["parameters"], run["phases"]
    return {"commit": run["versions"]["commit"], "at": run["began"],
            **{name: parameters[name] for name in ASKED},
            "outcome": verdict["outcome"], "anomalies": verdict["counts"],
            **{name: verdict["checked"][name] for name in CHECKED},
            "leader_changes": run["leader_changes"], "faults": dict(sorted(run["faults"].items())),
            # From the end of the faults until every member and every group was seen to work again.
            "converged_s": round(phases[FINAL] - phases[HEAL] - RECOVERY_S, 1)}


def record(entry: dict[str, Any], path: Path = RUNS_FILE) -> None:
    """Append the line ``entry``, of one run, to the file."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(entry, separators=(",", ":")) + "\n")


def read(path: Path = RUNS_FILE) -> list[dict[str, Any]]:
    """Return the lines of all runs, oldest first; empty when there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def table(entries: Iterable[dict[str, Any]]) -> list[str]:
    """Return the lines of a table with the sums of each commit and backend, in the order of their
    first runs. Below each are its numbers of faults."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entry in entries:
        groups.setdefault((entry["commit"], entry["backend"]), []).append(entry)
    lines = [f"{'commit':<14} {'backend':<8} {'runs':>5} {'passed':>6} {'seconds':>8} "
             f"{'operations':>11} {'acked':>9} {'in faults':>9} {'leaders':>8} {'converged s':>12}"]
    for (commit, backend), runs in groups.items():
        slowest = max(run["converged_s"] for run in runs)
        lines.append(
            f"{commit:<14} {backend:<8} {len(runs):>5} "
            f"{sum(run['outcome'] == 'passed' for run in runs):>6} "
            f"{_sum(runs, 'seconds'):>8.0f} {_sum(runs, 'operations'):>11} "
            f"{_sum(runs, 'acknowledged'):>9} {_sum(runs, 'acknowledged_under_faults'):>9} "
            f"{_sum(runs, 'leader_changes'):>8} {f'<= {slowest}':>12}")
        faults: Counter[str] = Counter()
        for run in runs:
            faults.update(run["faults"])
        lines.append("    " + "  ".join(f"{kind} {count}" for kind, count
                                        in sorted(faults.items())))
    return lines


def _sum(runs: list[dict[str, Any]], field: str) -> float:
    return sum(run[field] for run in runs)
