"""Folder of a simulated run, with the same files as ``multiraft chaos run`` writes.

Contract.  ``prepare(path)`` creates the folder before anything runs.  ``Kept(path, seed, variant)``
is one seed: ``run`` runs it, ``write`` writes all files and returns the path of the page.  Failures
that the simulator found (a broken invariant, an unexpected error) are in ``findings.json``; the
verdict adds the anomalies of the checkers, as ``multiraft chaos check`` does on the folder.

Theory.  A seed is a function of itself.  So a batch of seeds keeps nothing while it runs, and a
failed seed is run again for its folder.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from chaos.checkers.verdict import Anomaly
from chaos.history import FAULTS, FINAL, PHASE, Event, write_history
from chaos.report.build import build
from chaos.run.evaluation import verdict_on, write_verdict
from chaos.run.findings import INVARIANT, OwnFindings
from chaos.run.parameters import SIMULATOR, Folder, versions
from chaos.simulator.env.parameters import Parameters
from chaos.simulator.runner import batch_runner
from chaos.simulator.runner.coverage import why_not
from chaos.simulator.runner.run_trace import RunTrace
from chaos.simulator.runner.variant import Variant
from chaos.simulator.simulation import PROMISED_LOSS, WARM_UP_MS, Result

BROKEN = "Violation: "


def prepare(path: Path) -> None:
    """Create the folder.  Raises ``OSError`` when it holds runs already or cannot be written."""
    Folder(path).create()
    if any(Folder(below).history.exists() for below in path.iterdir()):
        raise FileExistsError(f"{path} holds folders of runs already")
    with tempfile.TemporaryFile(dir=path):  # raises ``OSError`` in a read-only folder
        pass


class Kept:
    """One seed and its folder."""

    def __init__(self, path: Path, seed: int, variant: Variant):
        self.result = Result(seed)
        self._folder = Folder(path)
        self._variant = variant
        self._run_trace = RunTrace()

    def run(self, also: Callable[[str], None] | None = None) -> Result:
        """Run the seed and return its result; ``also`` gets every line of its trace, which is kept
        for ``write``."""
        sink = self._run_trace.line

        def both(line: str) -> None:
            sink(line)
            also(line)

        self.result = batch_runner.run_one(self.result.seed, self._variant,
                                       sink if also is None else both, self._run_trace)
        return self.result

    def write(self) -> Path:
        """Write the folder of the seed, after ``run``, and return the path of its page.  Raises
        ``OSError``, also when the folder holds a run."""
        folder, evidence, result = self._folder, self._run_trace, self.result
        folder.create()
        folder.note(**self._facts())
        folder.trace.write_text("".join(f"{line}\n" for line in evidence.lines), encoding="utf-8")
        folder.leadership.write_text("".join(f"{json.dumps(row)}\n" for row
                                             in evidence.leadership), encoding="utf-8")
        found, events = findings_of(result), evidence.finish()
        write_history(folder.history, broken_off(events) if found.anomalies else events)
        found.write(folder.findings)
        write_verdict(folder, verdict_on(folder))
        return build(folder.path)

    def _facts(self) -> dict[str, Any]:
        """Return the contents of ``run.json``."""
        result, seed = self.result, self.result.seed
        return {"parameters": parameters_of(self._variant.parameters(seed), self._variant),
                "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "versions": versions(), "replay": self._variant.replay(seed),
                "phases": {FAULTS: WARM_UP_MS / 1000, **self._run_trace.phases},
                "digest": result.digest, "simulated_ms": result.simulated_ms,
                "acknowledged": result.acked, "reads": result.reads, "crashes": result.crashes,
                "leader_changes": result.leader_changes,
                "faults": dict(sorted(result.faults.items())),
                "marks": dict(sorted(result.event_counts.items())),
                "unjudged": bool(result.event_counts[PROMISED_LOSS])}


def parameters_of(parameters: Parameters, variant: Variant) -> dict[str, Any]:
    """Return the parameters for ``run.json``, under the names that ``multiraft chaos run`` uses."""
    drawn = asdict(parameters)
    del drawn["control"]  # only proofs set it, and they write no folder
    return {"backend": SIMULATOR, "seed": drawn.pop("seed"), "nodes": drawn.pop("nodes"),
            "groups": drawn.pop("groups"), "seconds": drawn.pop("safety_ms") / 1000,
            "planted": [variant.bug] if variant.bug else [], **drawn}


def broken_off(events: Iterable[Event]) -> Iterator[Event]:
    """Yield the history of a seed that broke an invariant as one without final reads: their phase
    and their marks are left out.

    A checker that sees the phase of final reads would expect a final read of every record.
    """
    for event in events:
        if event.kind == PHASE and event.name == FINAL:
            continue
        yield event._replace(data={name: value for name, value in event.data.items()
                                   if name != "final"})


def findings_of(result: Result) -> OwnFindings:
    """Return what the simulator itself found in a seed. A failure that is not of the checkers is an
    anomaly. A seed that does not count gets a note; one with allowed losses is invalid."""
    found = OwnFindings()
    reason = why_not(result)
    if result.event_counts[PROMISED_LOSS]:
        found.invalid.append("relaxed durability lost what it may lose: the run was over there, "
                             "and the checkers were not asked")
    elif not result.failure:
        found.notes += [f"the seed does not count: {reason}"] * bool(reason)
    elif "\n    at " in result.failure:  # otherwise the checkers found it, and will again
        said = result.failure.removeprefix(BROKEN)
        name, _, text = said.partition(": ")
        found.anomalies.append(Anomaly(INVARIANT, name, text, time_us=result.simulated_ms * 1000))
    return found
