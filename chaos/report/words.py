"""Numbers with units, and the verdict in one paragraph.

Contract.  Pure functions; what a run that broke off does not know is left out of the sentence.
"""

from __future__ import annotations

import shlex
from typing import Any

from chaos.report.series import Series
from chaos.run.parameters import SIMULATOR


def count(number: int | float) -> str:
    """A count, with its thousands apart."""
    return f"{number:,.0f}"


def duration(seconds: float) -> str:
    """A time with the unit that fits, three digits or so."""
    if seconds <= 0:
        return "-"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.1f} s"


def is_simulated(run: dict[str, Any]) -> bool:
    """Whether it is a seed's, by its ``run.json``."""
    return run.get("parameters", {}).get("backend") == SIMULATOR


def paragraph(run: dict[str, Any], verdict: dict[str, Any], found: Series) -> str:
    """The verdict."""
    parameters = run.get("parameters", {})
    kinds = sorted({fault.kind for fault in found.faults})
    cluster = (f"{parameters.get('nodes', '?')} nodes, {parameters.get('groups', '?')} groups, "
               f"backend {parameters.get('backend', '?')}, seed {parameters.get('seed', '?')}")
    faults = (f"{len(found.faults)} faults of {len(kinds)} kinds ({', '.join(kinds)})" if kinds
              else "no fault")
    parts = [f"{count(len(found.columns.name))} operations in {found.duration_s:.0f} s against "
             f"{cluster}, with {faults}."]
    under_faults = verdict.get("checked", {}).get("acknowledged_under_faults")
    if under_faults is not None and not is_simulated(run):  # there it is all but the last ones
        parts.append(f"{count(under_faults)} appends were acknowledged while a fault was on.")
    if "leader_changes" in run:
        parts.append(f"Leaders were seen to change {count(run['leader_changes'])} times.")
    parts.append(_judgement(verdict))
    return " ".join(parts)


def _judgement(verdict: dict[str, Any]) -> str:
    outcome = verdict.get("outcome")
    if outcome is None:
        return "The run was not checked: it broke off, or is still going on."
    said = ", ".join(f"{name} ({times})" for name, times in
                     sorted(verdict.get("counts", {}).items(), key=lambda row: -row[1]))
    if outcome == "failed":
        return f"Anomalies were found: {said}."
    if outcome == "invalid":
        return "The run proves nothing: " + "; ".join(verdict.get("invalid", [])) + "."
    if verdict.get("control"):
        return verdict["control"]
    return "No anomaly was found, and after everything was healed all groups went on."


def replay(run: dict[str, Any]) -> str:
    """The command that asks for the same run; a seed says its own."""
    if "replay" in run:
        return run["replay"]
    parameters = run.get("parameters", {})
    words = ["multiraft", "chaos", "run"]
    for name in ("backend", "nodes", "groups", "seconds", "seed", "control", "pace"):
        value = parameters.get(name)
        if value not in (None, ""):
            words += [f"--{name}", f"{value:g}" if isinstance(value, float) else str(value)]
    for option, name in (("--nemesis", "nemeses"), ("--workload", "workloads"),
                         ("--planted", "planted")):
        for value in parameters.get(name, ()):
            words += [option, str(value)]
    return shlex.join(words)
