"""Verdict on a run: the checkers' verdict, the run's own findings, and whether it could have
failed.

Contract.  ``evaluate`` takes the folder that ``run_phases`` left, adds the dumps of the nodes' logs
and the run's findings, and judges it; ``verdict_on`` judges such a folder again at any time and
gives the same result for a run that came to its end.  In a control arm the intended losses are
reported as notes and do not count; when there are none the run is invalid.
"""

from __future__ import annotations

import json
from typing import Any

from chaos.checkers.check import check
from chaos.checkers.checker import LIMITS, CheckerLimits
from chaos.checkers.leaders import LeaderTrace, read_trace
from chaos.checkers.validity import NOTHING_ACKNOWLEDGED, control_arm
from chaos.checkers.verdict import Verdict
from chaos.history import read_history
from chaos.replicas import BadDump, dump, load_all
from chaos.run import findings
from chaos.run.controls import CONTROLS, Control
from chaos.run.findings import OwnFindings
from chaos.run.leadership import trace_of
from chaos.run.parameters import Folder


def evaluate(folder: Folder, found: OwnFindings) -> Verdict:
    """Dump the nodes' logs, write the findings to the folder that ``run_phases`` left, and return
    the verdict. What cannot be dumped makes it invalid.  Raises as ``verdict_on``."""
    found.invalid += dump_replicas(folder)
    found.write(folder.findings)
    return verdict_on(folder)


def verdict_on(folder: Folder) -> Verdict:
    """Return the verdict on the contents of the folder; for a run that cannot be judged, its own
    findings only. Anomalies that a control arm is meant to cause become a note.

    Raises ``BadHistory``, ``BadDump``, ``BadFindings``."""
    if folder.facts.get("unjudged"):  # the findings give the reason
        return _of_findings(folder)
    verdict = check(read_history(folder.history), limits_of(folder.facts),
                    replicas=load_all(folder.replicas), trace=who_led(folder))
    findings.read(folder.findings).add_to(verdict)
    control = control_of(folder)
    if control is not None:
        verdict.invalid += control_arm(verdict, control.level)
        if control.meets_all and NOTHING_ACKNOWLEDGED in verdict.invalid:
            # expected: while the fault is on no node runs that could acknowledge
            verdict.invalid.remove(NOTHING_ACKNOWLEDGED)
        excuse(verdict, control)
    return verdict


def unfinished(folder: Folder, why: str) -> Verdict:
    """Add ``why`` to the findings of a run that broke off, in their file, as a reason that it
    proves nothing. Return a verdict with these findings only."""
    found = findings.read(folder.findings)
    found.invalid.append(why)
    found.write(folder.findings)
    return _of_findings(folder)


def _of_findings(folder: Folder) -> Verdict:
    """Return a verdict with the run's own findings only."""
    verdict = Verdict()
    findings.read(folder.findings).add_to(verdict)
    return verdict


def limits_of(run: dict[str, Any]) -> CheckerLimits:
    """Return the limits for the checkers from the facts in ``run.json``: under ``limits`` the
    fields of ``CheckerLimits``, under ``parameters`` the nodes; else the defaults."""
    nodes = (run.get("parameters") or {}).get("nodes", LIMITS.nodes)
    given = {"nodes": nodes, **(run.get("limits") or {})}
    return CheckerLimits(
        **{name: int(value) for name, value in given.items() if name in CheckerLimits._fields}
    )


def control_of(folder: Folder) -> Control | None:
    """Return the control arm of the run, by ``run.json``; None = no control arm."""
    return CONTROLS.get((folder.facts.get("parameters") or {}).get("control", ""))


def who_led(folder: Folder) -> LeaderTrace | None:
    """Return the trace of leaders: from the nodes' logs, with what the run observed
    (``leadership.jsonl``) as one more follower.

    Without logged roles the observations alone are used; None without either.
    """
    trace = read_trace(folder.path, folder.facts.get("began", ""))
    if trace or not folder.leadership.is_file():
        return trace
    return trace_of(folder.leadership)


def dump_replicas(folder: Folder) -> list[str]:
    """Write the logs of all nodes whose data are in the folder to its ``replicas/``. Return a
    sentence for each node that could not be dumped."""
    problems = []
    for data in sorted(folder.nodes.glob("*/data")):
        try:
            dump(data, int(data.parent.name), folder.facts["run"], folder.replicas)
        except BadDump as error:
            problems.append(f"the logs of node {data.parent.name} cannot be compared: {error}")
    return problems


def excuse(verdict: Verdict, control: Control) -> None:
    """Move the anomalies that the control arm is meant to cause from the verdict's counts and list
    to a note."""
    caused = {name: count for name, count in verdict.counts.items() if name in control.expected}
    verdict.counts = {name: count for name, count in verdict.counts.items() if name not in caused}
    verdict.anomalies = [one for one in verdict.anomalies if one.name not in caused]
    if caused:
        seen = ", ".join(f"{name} {count}" for name, count in sorted(caused.items()))
        verdict.notes.append(f"the control arm was meant to cause, and the checkers saw: {seen}")


def control_sentence(verdict: Verdict, control: Control) -> str:
    """Return the sentence that stands for the verdict on a control arm that passed: how many
    records it lost."""
    lost = verdict.checked.get(f"lost_{control.level}", 0)
    acknowledged = verdict.checked.get(f"acknowledged_{control.level}", 0)
    return (f"Control arm ({control.text}): {lost} of {acknowledged} records that were "
            f"acknowledged with {control.level} are lost, as they must be, and the checkers see "
            f"it. Nothing else is wrong.")


def as_json(verdict: Verdict, control: Control | None) -> dict[str, Any]:
    """Return the verdict as data for ``verdict.json``; a passed control arm (None = none) adds a
    sentence."""
    written = verdict.to_json()
    if control is not None and verdict.outcome == "passed":
        written["control"] = control_sentence(verdict, control)
    return written


def write_verdict(folder: Folder, verdict: Verdict) -> None:
    """Write ``verdict.json`` of the folder, replacing an earlier one."""
    text = json.dumps(as_json(verdict, control_of(folder)), indent=1)
    folder.verdict.write_text(text + "\n", encoding="utf-8")
