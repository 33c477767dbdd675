"""Runner of proofs: runs the proof that must catch a bug, in its layer.

Contract.  ``prove(bug)`` is a ``Finding``: caught or missed, in how many seconds, and by what.  A
bug counts as caught only by the result that its proof names: a test that failed, a seed that broke
an invariant, a run whose verdict is ``failed``.  A proof that could not run at all (no tests found,
an import error, a run that is invalid) raises ``NoProof``: the bug is neither caught nor missed.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from chaos.checkers import check
from chaos.planted.bug import (
    Bug,
    Histories,
    NemesisRun,
    Nodes,
    ProcessRun,
    Scripts,
    Seeds,
    Tests,
    planted,
)
from chaos.planted.plugin import VARIABLE
from chaos.simulator import simulation
from chaos.simulator.clients.history import Recording
from chaos.simulator.env.parameters import Parameters

#: Seeds that are tried after the pinned ones: a change of the system changes the course of a seed.
SEEDS_MAX = 80
#: Histories that are tried.
HISTORIES_MAX = 10
#: Mean times from one fault to the next: seeds of seconds need more than those of minutes.
INTERVALS_MS = (300, 700, 1500)
#: Sizes that only such seeds can afford.
CHECKPOINT_BYTES = (4 << 10, 16 << 10, 64 << 10)
SEGMENT_GROWTH = (1, 1, 4, 16)
#: Faults of leaders that change the members and are isolated with that change.
OF_CONFIGURATIONS = ("members", "members", "return", "isolate-leader", "partition-halves",
                     "partition-one")
#: The variable that chooses how tests use Hypothesis (``tests/conftest.py``).
PROFILE = "HYPOTHESIS_PROFILE"
#: Exit codes of pytest.
ALL_PASSED, SOME_FAILED = 0, 1
#: Exit code of ``multiraft chaos run`` whose checkers found an anomaly.
RUN_FAILED = 1
#: Exit code of one that proves nothing.
RUN_INVALID = 3
#: Length of the text about a proof that did not run, at most.
TEXT_MAX = 2000
ROOT = Path(__file__).resolve().parents[2]


class NoProof(Exception):
    """Raised when the proof did not run, so that the result is unknown."""


class Finding(NamedTuple):
    """Result for one bug."""

    bug: str
    caught: bool
    layer: str
    seconds: float
    by: str  # the test, seed or run that caught it, or those that did not

    def to_json(self) -> dict[str, object]:
        """Return the finding as data for ``--json``, without ``by``."""
        return {"bug": self.bug, "caught": self.caught, "layer": self.layer,
                "seconds": round(self.seconds, 1)}


def prove(bug: Bug, layer: str) -> Finding:
    """Run the proof of a bug in a layer with the bug planted, and return whether it was caught.
    Raises ``NoProof`` when the proof did not run, and ``StaleBug``. The bug must have a proof
    there."""
    proof = bug.proof_in(layer)
    assert proof is not None, f"nothing in {layer} has to catch {bug.name}"
    began = time.monotonic()
    if isinstance(proof, Seeds):
        by, tried = _failing_seed(bug, proof), f"{SEEDS_MAX} seeds"
    elif isinstance(proof, Histories):
        by = _failing_history(bug, proof)
        tried = f"histories of {HISTORIES_MAX} seeds"
    elif isinstance(proof, (NemesisRun, ProcessRun)):
        by = _failed_run(bug, proof)
        tried = f"a run of {proof.seconds} s with {', '.join(proof.nemeses)}"
    else:
        by, tried = _failed_test(proof.ids, (bug.name,)), " ".join(proof.ids)
    return Finding(bug.name, bool(by), layer, time.monotonic() - began, by or tried)


def check_tests(ids: Sequence[str]) -> None:
    """Run the tests that are to catch bugs, without any bug.  Raises ``NoProof`` when one fails."""
    failed = _failed_test(tuple(ids), ()) if ids else ""
    if failed:
        raise NoProof(f"without any bug planted: {failed}")


def tests_of(bug: Bug, layer: str) -> tuple[str, ...]:
    """Return the ids of the tests that are to catch a bug in a layer; empty where something else
    does."""
    proof = bug.proof_in(layer)
    return proof.ids if isinstance(proof, (Scripts, Tests, Nodes)) else ()


# ---- tests ---------------------------------------------------------------------------------------


def _failed_test(ids: tuple[str, ...], names: tuple[str, ...]) -> str:
    """Run these tests with these bugs planted, in a process of their own; return the first that
    fails, "" = none. Raises ``NoProof`` when pytest does not run them."""
    if not (ROOT / "tests").is_dir():
        raise NoProof("the tests are not installed: run this in a source tree")
    done = _pytest(["-x", "--tb=no", *ids], {VARIABLE: ",".join(names), PROFILE: "planted"})
    if done.returncode not in (ALL_PASSED, SOME_FAILED):
        raise NoProof(f"{' '.join(ids)}: pytest ended with {done.returncode}\n"
                      f"{(done.stdout + done.stderr)[-TEXT_MAX:]}")
    if done.returncode == ALL_PASSED:
        return ""
    for line in done.stdout.splitlines():
        kind, _, rest = line.partition(" ")
        if kind in ("FAILED", "ERROR"):
            return rest.partition(" - ")[0]
    raise NoProof(f"{' '.join(ids)}: pytest names no test that failed\n{done.stdout[-TEXT_MAX:]}")


def _pytest(arguments: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "pytest", "-p", "chaos.planted.plugin", "-p",
               "no:cacheprovider", "-q", "--no-header", *arguments]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **environment},
                          capture_output=True, text=True)


# ---- seeds ---------------------------------------------------------------------------------------


def _failing_seed(bug: Bug, proof: Seeds) -> str:
    """Run seeds with the bug, the pinned ones first; return the number and failure of the first
    that breaks an invariant, "" = none."""
    for seed in dict.fromkeys((*proof.pinned, *range(1, SEEDS_MAX + 1))):
        with planted(bug):
            result = simulation.run(dense(seed, proof))
        if result.failure:
            return f"seed {seed}: {str(result.failure).splitlines()[0]}"
    return ""


def _failing_history(bug: Bug, proof: Histories) -> str:
    """Return the first seed whose history shows one of the proof's anomalies, with what it shows;
    "" = none.  Raises ``NoProof`` when the checkers find an anomaly in that seed without the
    bug."""
    for seed in range(1, HISTORIES_MAX + 1):
        found = _anomalies(bug, seed, proof)
        if found & {*proof.anomalies}:
            sound = _anomalies(None, seed, proof)
            if sound:
                raise NoProof(f"seed {seed}, without the bug: {', '.join(sorted(sound))}")
            return f"seed {seed}: {', '.join(sorted(found))}"
    return ""


def _anomalies(bug: Bug | None, seed: int, proof: Histories) -> set[str]:
    """Return the names of the anomalies that the checkers find in a seed with this bug (None =
    without), without the simulator's invariants."""
    recording = Recording()
    with planted(bug):
        simulation.run(
            dense(seed, Seeds(faults=proof.faults)), history=recording, check_invariants=False
        )
    return {anomaly.name for anomaly in check(recording.finish()).anomalies}


def dense(seed: int, proof: Seeds) -> Parameters:
    """Return the parameters of a seed in a dense world: few groups, many faults and appends, tiny
    files, and the faults that the proof needs."""
    nodes = 4 if "plan" in proof.faults else 3  # with three a plan could move no replica
    parameters = Parameters.draw(seed, None if proof.members else nodes, 3, 15_000)
    disk = parameters.disk
    parameters = dataclasses.replace(
        parameters, fault_interval_ms=INTERVALS_MS[seed % 3],
        disk=dataclasses.replace(
            disk, checkpoint_bytes=CHECKPOINT_BYTES[seed // 3 % 3],
            segment_bytes_max=disk.first_segment_bytes * SEGMENT_GROWTH[seed % 4]),
        round_us=100, workload=dataclasses.replace(
            parameters.workload, appends_per_second=30.0, burst_interval_ms=100))
    if proof.members and seed % 2:
        return parameters.with_members()
    if proof.members:
        return dataclasses.replace(parameters, faults=OF_CONFIGURATIONS, fault_interval_ms=150,
                                   fault_duration_ms=600)
    if not proof.faults:
        return parameters
    return dataclasses.replace(parameters, faults=proof.faults, fault_interval_ms=150,
                               fault_duration_ms=800)


# ---- runs ----------------------------------------------------------------------------------------


@functools.cache
def check_run(proof: ProcessRun) -> None:
    """Carry out the run of a proof without any bug, once in this process.  Raises ``NoProof`` when
    it does not pass."""
    outcome, found = _run(proof, "")
    if outcome != "passed":
        raise NoProof(f"without any bug planted: {', '.join(found) or outcome}")


def _failed_run(bug: Bug, proof: NemesisRun | ProcessRun) -> str:
    """Run real nodes with the bug and the proof's nemeses; return the names of the anomalies found,
    "" = it passed, or showed others than the proof names. Raises ``NoProof`` when the run breaks
    off or is invalid, or a process run does not pass without the bug."""
    outcome, found = _run(proof, bug.name)
    if outcome == "invalid":
        raise NoProof("the run is invalid")
    if isinstance(proof, ProcessRun):
        if not {*proof.anomalies} & {*found}:
            return ""
        check_run(proof._replace(anomalies=()))
    return ", ".join(found)


def _run(proof: NemesisRun | ProcessRun, name: str) -> tuple[str, list[str]]:
    """Carry out the run of a proof with the bug ``name``, "" = none; return the outcome and the
    names of the anomalies. Raises ``NoProof`` when the run breaks off."""
    with tempfile.TemporaryDirectory(prefix="multiraft-planted-") as directory:
        command = [sys.executable, "-m", "admin_cli", "chaos", "run", "--backend", proof.layer,
                   "--seconds", str(proof.seconds), "--seed", str(proof.seed), "--output",
                   directory]
        command += ["--planted", name] if name else []
        for nemesis in proof.nemeses:
            command += ["--nemesis", nemesis]
        for workload in proof.workloads if isinstance(proof, ProcessRun) else ():
            command += ["--workload", workload]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        verdicts = sorted(Path(directory).rglob("verdict.json"))
        if done.returncode not in (0, RUN_FAILED, RUN_INVALID) or not verdicts:
            raise NoProof(f"{' '.join(command[1:])} ended with {done.returncode}\n"
                          f"{(done.stdout + done.stderr)[-TEXT_MAX:]}")
        verdict = json.loads(verdicts[0].read_text(encoding="utf-8"))
    return verdict["outcome"], sorted(verdict["counts"])
