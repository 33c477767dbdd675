"""Parameters of a run, and the folder with its results.

Contract.  ``RunParameters`` decide a run together with the machine; they are in ``run.json`` with
the versions of the software.  The same parameters give the same requests and the same order of
faults, not the same interleaving: real processes are no simulator.

The folder::

    run.json           parameters, versions, when it began, how long each phase took, findings
    history.jsonl      chaos.history
    leadership.jsonl   chaos.run.leadership
    replicas/          every replica's log, chaos.replicas
    nodes/N/log        log of each node
    findings.json      chaos.run.findings
    crashes/NAME.txt   chaos.run.crashes, when a client crashed
    verdict.json       chaos.checkers.verdict
    report.html        chaos.report

A seed of the simulator leaves ``run.json``, ``history.jsonl``, ``leadership.jsonl``,
``findings.json``, ``verdict.json`` and ``report.html`` of the same kind, and ``trace.txt``
(``chaos.simulator.runner.run_folder``).
"""

from __future__ import annotations

import json
import platform
import sys
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from chaos.commit import commit_of

#: All kinds of fault that the backend can inject here.
ALL = "all"
#: The backend of a seed: nodes that are simulated.
SIMULATOR = "simulator"
#: Fault-free time in which all topics are created.
WARM_UP_S = 8.0
#: Time of load after everything was healed.
RECOVERY_S = 5.0
#: Files of nodes that fill several segments and checkpoints in a run of some minutes: fields of
#: ``multiraft.storage.config.StorageConfig``.
SMALL_FILES = {"entry_bytes_max": 256 << 10, "first_segment_bytes": 512 << 10,
               "segment_bytes_max": 512 << 10, "checkpoint_bytes": 128 << 10,
               "checkpoint_growth_factor": 1}
#: What stays in their Raft logs: a member that was away for seconds is behind the Raft start.
SMALL_LIMITS = {"raft_log_bytes_newest": 64 << 10, "raft_log_bytes_kept": 512 << 10,
                "node_raft_log_bytes_newest": 512 << 10}


@dataclass(frozen=True, slots=True)
class RunParameters:
    """Parameters of one run."""

    output: Path
    backend: str = "process"
    nodes: int = 3
    groups: int = 16
    seconds: float = 120.0  # of the phase with faults
    seed: int = 0
    nemeses: tuple[str, ...] = (ALL,)
    workloads: tuple[str, ...] = (ALL,)
    control: str = ""  # name of a control arm
    planted: tuple[str, ...] = ()
    pace: float = 1.0

    @property
    def has_small_files(self) -> bool:
        """True for three seeds of four: their nodes have ``SMALL_FILES`` and ``SMALL_LIMITS``."""
        return self.seed % 4 != 3

    def replace(self, **changes: Any) -> "RunParameters":
        """Return a copy that differs in these fields."""
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """Return the parameters as data for ``run.json``, the folder by its name only."""
        return {**asdict(self), "output": self.output.name}


def run_number(seed: int, now_s: float) -> int:
    """Return the 64-bit number in every record of a run, of its seed and start time: two runs with
    one seed do not share records."""
    return (seed << 32 | int(now_s) & 0xFFFF_FFFF) & 0xFFFF_FFFF_FFFF_FFFF


@dataclass(slots=True)
class Folder:
    """A run's folder, and ``run.json`` as it grows."""

    path: Path
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def history(self) -> Path:
        """Return the path of ``history.jsonl``."""
        return self.path / "history.jsonl"

    @property
    def leadership(self) -> Path:
        """Return the path of ``leadership.jsonl``."""
        return self.path / "leadership.jsonl"

    @property
    def trace(self) -> Path:
        """Return the path of ``trace.txt``, of a simulated run."""
        return self.path / "trace.txt"

    @property
    def nodes(self) -> Path:
        """Return the path of ``nodes/``."""
        return self.path / "nodes"

    @property
    def replicas(self) -> Path:
        """Return the path of ``replicas/``."""
        return self.path / "replicas"

    @property
    def crashes(self) -> Path:
        """Return the path of ``crashes/``."""
        return self.path / "crashes"

    @property
    def findings(self) -> Path:
        """Return the path of ``findings.json``."""
        return self.path / "findings.json"

    @property
    def verdict(self) -> Path:
        """Return the path of ``verdict.json``."""
        return self.path / "verdict.json"

    @property
    def report(self) -> Path:
        """Return the path of ``report.html``."""
        return self.path / "report.html"

    def create(self) -> None:
        """Create the folder.  Raises ``FileExistsError`` when it already holds a run."""
        self.path.mkdir(parents=True, exist_ok=True)
        if self.history.exists():
            raise FileExistsError(f"{self.path} holds a run already")

    def note(self, **facts: Any) -> None:
        """Add facts to ``facts`` and ``run.json``, on disk at once: the file of a run that breaks
        off shows its progress. Facts of the same name are replaced."""
        self.facts |= facts
        text = json.dumps(self.facts, indent=2, default=str)
        (self.path / "run.json").write_text(text + "\n", encoding="utf-8")


def versions() -> dict[str, str]:
    """Return the versions of the software on the harness's side, its commit, and the arguments of
    its command, by name."""
    return {"commit": commit_of(Path(__file__).parent),
            "multiraft": metadata.version("multiraft"), "python": platform.python_version(),
            "kernel": platform.release(), "machine": platform.machine(),
            "trio": metadata.version("trio"), "command": " ".join(sys.argv[1:])}
