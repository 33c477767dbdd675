"""Verdict of the checkers: anomalies, and reasons why the run proves nothing.

Contract.  A run is *passed* only when it is valid and no anomaly was found; a run that could not
have failed (no acknowledged append during faults, no leader change, a control arm that lost
nothing) is *invalid*, which is not passed.  Plain data, so that a verdict can be written to
``verdict.json`` of the run's folder and shown by the report.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

#: Anomalies of one kind that are listed; further ones are counted only.
ANOMALIES_LISTED_MAX = 50


class Anomaly(NamedTuple):
    """One violation of a promise."""

    id: str  # "A3": the row of the catalogue
    name: str  # "lost-write"
    text: str  # a sentence with key, offset and values
    key: str = ""  # the key concerned; "" = none, or many
    operations: tuple[int, ...] = ()  # of the history, for the report
    time_us: int = -1  # when it shows; -1 = only at the end


@dataclass(slots=True)
class Verdict:
    """Result of all checkers on one run."""

    anomalies: list[Anomaly] = field(default_factory=list)  # at most ANOMALIES_LISTED_MAX per id
    counts: dict[str, int] = field(default_factory=dict)  # anomalies per name, all of them
    invalid: list[str] = field(default_factory=list)  # why the run proves nothing; empty = valid
    checked: dict[str, int] = field(default_factory=dict)  # what was checked: operations, ...
    notes: list[str] = field(default_factory=list)  # observations that are reported and not judged
    seconds: float = 0.0  # duration of the check

    @property
    def outcome(self) -> str:
        """Return ``failed`` if there is an anomaly, also in an invalid run; else ``invalid`` or
        ``passed``."""
        if self.counts:
            return "failed"
        return "invalid" if self.invalid else "passed"

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as plain data for ``verdict.json``."""
        return {"outcome": self.outcome, **asdict(self),
                "anomalies": [anomaly._asdict() for anomaly in self.anomalies]}
