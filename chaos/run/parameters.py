"""What a run is asked to be, and where it leaves what it found.

Contract.  ``Parameters`` are all that decides a run besides the machine; they are in ``run.json``
with the versions of what ran.  The same parameters give the same questions and the same order of
faults, not the same interleaving: real processes are no simulator.

The folder::

    run.json           parameters, versions, when it began, how long each phase took, what was seen
    history.jsonl      chaos.history
    leadership.jsonl   chaos.run.leadership
    replicas/          every replica's log, chaos.replicas
    nodes/N/log        what each node wrote
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

#: Every kind of fault that the backend can cause here.
ALL = "all"
#: The backend of a seed: nodes that are simulated.
SIMULATOR = "simulator"
#: Fault-free time in which all topics come to life.
WARM_UP_S = 8.0
#: Load goes on so long after everything was healed.
RECOVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class Parameters:
    """See the module docstring."""

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

    def replace(self, **changes: Any) -> "Parameters":
        """A copy that differs in these fields."""
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """For ``run.json``."""
        return {**asdict(self), "output": self.output.name}


def run_number(seed: int, now_s: float) -> int:
    """The number in every record of a run: two runs with one seed do not share records."""
    return (seed << 32 | int(now_s) & 0xFFFF_FFFF) & 0xFFFF_FFFF_FFFF_FFFF


@dataclass(slots=True)
class Folder:
    """The run's folder, and ``run.json`` as it grows."""

    path: Path
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def history(self) -> Path:
        """``history.jsonl``"""
        return self.path / "history.jsonl"

    @property
    def leadership(self) -> Path:
        """``leadership.jsonl``"""
        return self.path / "leadership.jsonl"

    @property
    def trace(self) -> Path:
        """``trace.txt``, of a simulated run"""
        return self.path / "trace.txt"

    @property
    def nodes(self) -> Path:
        """``nodes/``"""
        return self.path / "nodes"

    @property
    def replicas(self) -> Path:
        """``replicas/``"""
        return self.path / "replicas"

    @property
    def crashes(self) -> Path:
        """``crashes/``"""
        return self.path / "crashes"

    @property
    def findings(self) -> Path:
        """``findings.json``"""
        return self.path / "findings.json"

    @property
    def verdict(self) -> Path:
        """``verdict.json``"""
        return self.path / "verdict.json"

    @property
    def report(self) -> Path:
        """``report.html``"""
        return self.path / "report.html"

    def create(self) -> None:
        """Make it.  Raises ``FileExistsError`` when it holds a run already."""
        self.path.mkdir(parents=True, exist_ok=True)
        if self.history.exists():
            raise FileExistsError(f"{self.path} holds a run already")

    def note(self, **facts: Any) -> None:
        """Add to ``run.json``, on disk at once: a run that breaks off says how far it came."""
        self.facts |= facts
        text = json.dumps(self.facts, indent=2, default=str)
        (self.path / "run.json").write_text(text + "\n", encoding="utf-8")


def versions() -> dict[str, str]:
    """What this side of the run is made of."""
    return {"commit": commit_of(Path(__file__).parent),
            "multiraft": metadata.version("multiraft"), "python": platform.python_version(),
            "kernel": platform.release(), "machine": platform.machine(),
            "trio": metadata.version("trio"), "command": " ".join(sys.argv[1:])}
