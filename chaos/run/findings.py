"""What a run saw by itself, in ``findings.json`` of its folder.

Contract.  A group that never came back, a node or a client that ended: no checker finds these again
in the history, so whoever judges the folder, now or later, reads them here.  ``kept`` writes them
whatever ends the run.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from chaos.checkers.verdict import ANOMALIES_LISTED_MAX, Anomaly, Verdict

#: The id of an invariant of the simulator that broke, or of an error that nobody expected there.
INVARIANT = "invariant"


class BadFindings(Exception):
    """A file that says no findings."""


@dataclass
class OwnFindings:
    """See the module docstring."""

    anomalies: list[Anomaly] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)  # why the run proves nothing

    def write(self, path: Path) -> None:
        """To a file."""
        found = {"anomalies": [anomaly._asdict() for anomaly in self.anomalies],
                 "notes": self.notes, "invalid": self.invalid}
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

    def tell(self, verdict: Verdict) -> None:
        """Add them to a verdict."""
        for anomaly in self.anomalies:
            verdict.counts[anomaly.name] = verdict.counts.get(anomaly.name, 0) + 1
            if verdict.counts[anomaly.name] <= ANOMALIES_LISTED_MAX:
                verdict.anomalies.append(anomaly)
        verdict.notes += self.notes
        verdict.invalid += self.invalid


def read(path: Path) -> OwnFindings:
    """From a file; none when there is no file.  Raises ``BadFindings``."""
    if not path.is_file():
        return OwnFindings()
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        anomalies = [Anomaly(**{**row, "operations": tuple(row["operations"])})
                     for row in found["anomalies"]]
        return OwnFindings(anomalies, list(found["notes"]), list(found["invalid"]))
    except (ValueError, KeyError, TypeError) as error:
        raise BadFindings(f"{path}: {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def kept(found: OwnFindings, path: Path) -> Iterator[None]:
    """What is in ``found`` when the block ends, however it ends, is in the file."""
    try:
        yield
    finally:
        found.write(path)
