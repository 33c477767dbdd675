"""What a run proves: the checkers' verdict, what the run saw by itself, and whether it could fail.

Contract.  ``judge`` reads the folder that ``conduct`` left and adds the dumps of the nodes' logs to
it.  In a control arm the losses that it is meant to cause are told as what they are and do not
count; when there are none the run is invalid.
"""

from __future__ import annotations

from typing import Any

from chaos.checkers.check import check
from chaos.checkers.checker import Limits
from chaos.checkers.leaders import Trace, read_trace
from chaos.checkers.validity import control_arm
from chaos.checkers.verdict import ANOMALIES_LISTED_MAX, Verdict
from chaos.history import read_history
from chaos.replicas import BadDump, dump, load_all
from chaos.run.conduct import Conducted
from chaos.run.controls import Control
from chaos.run.leadership import trace_of
from chaos.run.parameters import Folder, Parameters


def judge(parameters: Parameters, folder: Folder, found: Conducted, control: Control | None,
          ) -> Verdict:
    """See the module docstring.  Raises ``BadHistory``."""
    undumped = dump_replicas(folder)
    verdict = check(read_history(folder.history), Limits(nodes=parameters.nodes),
                    replicas=load_all(folder.replicas), trace=who_led(folder))
    verdict.invalid += undumped
    for anomaly in found.anomalies:
        verdict.counts[anomaly.name] = verdict.counts.get(anomaly.name, 0) + 1
        if verdict.counts[anomaly.name] <= ANOMALIES_LISTED_MAX:
            verdict.anomalies.append(anomaly)
    verdict.notes += found.notes
    if control is not None:
        verdict.invalid += control_arm(verdict, control.level)
        excuse(verdict, control)
    return verdict


def who_led(folder: Folder) -> Trace:
    """By the nodes' own logs; where they do not tell, as it was seen from outside."""
    return read_trace(folder.path, folder.facts["began"]) or trace_of(folder.leadership)


def dump_replicas(folder: Folder) -> list[str]:
    """The logs of all nodes, as files of the folder; what could not be dumped, and why."""
    problems = []
    for data in sorted(folder.nodes.glob("*/data")):
        try:
            dump(data, int(data.parent.name), folder.facts["run"], folder.replicas)
        except BadDump as error:
            problems.append(f"the logs of node {data.parent.name} cannot be compared: {error}")
    return problems


def excuse(verdict: Verdict, control: Control) -> None:
    """What the control arm is meant to cause is no anomaly."""
    caused = {name: count for name, count in verdict.counts.items() if name in control.expected}
    verdict.counts = {name: count for name, count in verdict.counts.items() if name not in caused}
    verdict.anomalies = [one for one in verdict.anomalies if one.name not in caused]
    if caused:
        seen = ", ".join(f"{name} {count}" for name, count in sorted(caused.items()))
        verdict.notes.append(f"the control arm was meant to cause, and the checkers saw: {seen}")


def control_sentence(verdict: Verdict, control: Control) -> str:
    """What a control arm that passed has shown."""
    lost = verdict.checked.get(f"lost_{control.level}", 0)
    acknowledged = verdict.checked.get(f"acknowledged_{control.level}", 0)
    return (f"Control arm ({control.text}): {lost} of {acknowledged} records that were "
            f"acknowledged with {control.level} are lost, as they must be, and the checkers see "
            f"it. Nothing else is wrong.")


def as_json(verdict: Verdict, control: Control | None) -> dict[str, Any]:
    """For ``verdict.json``."""
    written = verdict.to_json()
    if control is not None and verdict.outcome == "passed":
        written["control"] = control_sentence(verdict, control)
    return written
