"""Numbers with units, and the verdict in one paragraph.

Contract.  Pure functions; facts that a broken-off run lacks are left out of the sentence.
"""

from __future__ import annotations

import shlex
from typing import Any

from chaos.history import FAIL, FAULTS, FINAL, HEAL, INFO, OK, WARM_UP
from chaos.report.series import UNASKED, Series
from chaos.run.parameters import SIMULATOR

#: Outcomes in the words of the page, and their meanings.
OUTCOME_WORDS = {OK: "done", FAIL: "refused", INFO: "unknown", UNASKED: "unasked"}
OUTCOME_MEANINGS = {OK: "answered", FAIL: "did not happen", INFO: "no answer",
                    UNASKED: "acks=none"}


def count(number: int | float) -> str:
    """Return a count with separated thousands."""
    return f"{number:,.0f}"


def duration(seconds: float) -> str:
    """Return a time with the unit that fits, with about three digits."""
    if seconds <= 0:
        return "-"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.1f} s"


def heading(run: dict[str, Any], folder: str) -> str:
    """Return what was run, its seed and its day: ``Chaos run, seed 7, 2026-11-26``; without these
    the name of the folder."""
    what = "Simulated run" if is_simulated(run) else "Chaos run"
    seed = run.get("parameters", {}).get("seed")
    parts = [what, *([f"seed {seed}"] if seed is not None else [folder]),
             *([run["began"][:10]] if "began" in run else [])]
    return ", ".join(parts)


#: First word of a note -> its meaning.
NOTE_MEANINGS = {
    "consume-counts": "how often consumers got each record; more than once is no fault, because "
                      "consumers that are killed or begin anew read records again",
    "realtime-lag": "the longest time between the acknowledgement of a record and the poll that "
                    "got it: how far behind a consumer was",
    "metadata": "answers of nodes that had not heard of a topic's creation or deletion yet, which "
                "another client knew of; a node answers by what it has applied",
    "kafka-producers": "producers of Kafka's clients that an error ended for good; each was "
                       "replaced, so that its workload continued",
    "unseen": "records that may be there or not: nothing read the ends of the partitions",
}
#: Phase of a run -> its content.
PHASE_MEANINGS = {WARM_UP: "load alone", FAULTS: "load and faults",
                  HEAL: "all is mended, and groups recover",
                  FINAL: "the check: everything is read once more"}


def explained(note: str) -> str:
    """Return a note of the verdict with its meaning; notes are not judged."""
    meaning = NOTE_MEANINGS.get(note.partition(":")[0])
    return note if meaning is None else f"{note} ({meaning}). Not judged."


def phases(found: Series) -> str:
    """Return the phases of a run in order, each with its seconds and content; empty if the history
    has none."""
    begins = sorted(found.phases, key=lambda phase: phase[1])
    ends = [*(begin_s for _, begin_s in begins), found.duration_s][1:]
    return ", ".join(
        f"{name} {max(0.0, end_s - begin_s):.0f} s ({PHASE_MEANINGS[name]})"
        for (name, begin_s), end_s in zip(begins, ends, strict=True) if name in PHASE_MEANINGS)


def is_simulated(run: dict[str, Any]) -> bool:
    """True if the run is that of a simulator's seed, by its ``run.json``."""
    return run.get("parameters", {}).get("backend") == SIMULATOR


def paragraph(run: dict[str, Any], verdict: dict[str, Any], found: Series) -> str:
    """Return the verdict in one paragraph."""
    parameters = run.get("parameters", {})
    kinds = sorted({fault.kind for fault in found.faults})
    cluster = (f"{parameters.get('nodes', '?')} nodes, {parameters.get('groups', '?')} groups, "
               f"backend {parameters.get('backend', '?')}, seed {parameters.get('seed', '?')}")
    faults = (f"{len(found.faults)} fault{'s' * (len(found.faults) != 1)} of {len(kinds)} "
              f"kind{'s' * (len(kinds) != 1)} ({', '.join(kinds)})" if kinds else "no fault")
    seconds = parameters.get("seconds")
    under_way = f" ({seconds:g} s of them with faults)" if seconds else ""
    parts = [f"{count(len(found.columns.name))} operations in {found.duration_s:.0f} s{under_way} "
             f"against {cluster}, with {faults}."]
    under_faults = verdict.get("checked", {}).get("acknowledged_under_faults")
    # in a simulated run all but the last ones are under faults
    if under_faults is not None and not is_simulated(run):
        parts.append(f"{count(under_faults)} appends were acknowledged while a fault was on.")
    if "leader_changes" in run:
        parts.append(f"Leaders were seen to change {count(run['leader_changes'])} times.")
    parts.append(_judgement(verdict))
    return " ".join(parts)


def _judgement(verdict: dict[str, Any]) -> str:
    outcome = verdict.get("outcome")
    if outcome is None:
        return "The run was not checked: it broke off, or is still running."
    said = ", ".join(f"{name} ({times})" for name, times in
                     sorted(verdict.get("counts", {}).items(), key=lambda row: -row[1]))
    if outcome == "failed":
        return f"Anomalies were found: {said}."
    if outcome == "invalid":
        return "The run proves nothing: " + "; ".join(verdict.get("invalid", [])) + "."
    if verdict.get("control"):
        return verdict["control"]
    return "No anomaly was found, and after everything was healed all groups recovered."


def replay(run: dict[str, Any]) -> str:
    """Return the command that repeats the run."""
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
