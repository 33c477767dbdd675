"""Findings of a run itself, in ``findings.json`` of its folder.

Contract.  A group that never recovered, or a node or a client that ended, is not in the history, so
checkers cannot find it again; every later judgement of the folder reads it here.  ``kept`` writes
the findings in whatever way the run ends.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from chaos.checkers.verdict import ANOMALIES_LISTED_MAX, Anomaly, Verdict

#: The id of a broken invariant of the simulator, or of an unexpected error there.
INVARIANT = "invariant"


class BadFindings(Exception):
    """Raised for a file that holds no findings."""


@dataclass
class OwnFindings:
    """Anomalies, notes and reasons for an invalid run, found by the run itself."""

    anomalies: list[Anomaly] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)  # why the run proves nothing

    def write(self, path: Path) -> None:
        """Write the findings to a file, which is replaced if it exists."""
        found = {"anomalies": [anomaly._asdict() for anomaly in self.anomalies],
                 "notes": self.notes, "invalid": self.invalid}
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")

    def add_to(self, verdict: Verdict) -> None:
        """Add the findings to a verdict; of one name at most ``ANOMALIES_LISTED_MAX`` anomalies are
        listed, all are counted."""
        for anomaly in self.anomalies:
            verdict.counts[anomaly.name] = verdict.counts.get(anomaly.name, 0) + 1
            if verdict.counts[anomaly.name] <= ANOMALIES_LISTED_MAX:
                verdict.anomalies.append(anomaly)
        verdict.notes += self.notes
        verdict.invalid += self.invalid


def read(path: Path) -> OwnFindings:
    """Return the findings in a file; empty ones when there is no file.  Raises ``BadFindings``."""
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
    """Run the block, and write ``found`` to the file when it ends, also by an exception."""
    try:
        yield
    finally:
        found.write(path)
