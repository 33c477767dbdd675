"""Validity of a run: reasons why it could not have shown an anomaly.

Contract.  ``Validity`` watches the history as a checker does and reports no anomaly; ``reasons``
are for ``Verdict.invalid``.  A run is invalid when it was broken off; when no append was
acknowledged while a fault was on; when no group changed its leader after the first fault began (as
far as a trace tells: without one this is a reason of its own); when no fault was injected at all;
or when its control arm lost nothing (``control_arm``).
"""

from __future__ import annotations

from chaos.checkers.checker import Checker
from chaos.checkers.faults import Faults
from chaos.checkers.ledger import NONE, Key
from chaos.checkers.verdict import Verdict
from chaos.history import END, FINAL, OK, Event

#: Reason why a run without an acknowledged append during faults proves nothing.
NOTHING_ACKNOWLEDGED = "no append was acknowledged while a fault was on"


class Validity(Checker):
    """Events that a run must contain to prove anything; reports no anomaly."""

    id, name = "-", "validity"

    def __init__(self, *shared):
        super().__init__(*shared)
        self._on = Faults()
        self.faults = 0
        self.first_fault_us = -1
        self.acked_under_faults = 0
        self._phases: set[str] = set()

    def on_fault(self, event: Event) -> None:
        self._on.take(event)
        if event.data.get("on"):
            self.faults += 1
            if self.first_fault_us < 0:
                self.first_fault_us = event.time_us

    def on_phase(self, event: Event) -> None:
        self._phases.add(event.name)

    def on_append(self, key: Key, kind: str, number: int, time_us: int) -> None:
        if kind == OK and self._on and self.ledger.appends.acks[number] != NONE:
            self.acked_under_faults += 1

    def reasons(self, leader_changes: int | None) -> list[str]:
        """Return why the run proves nothing; empty when it is valid.  ``leader_changes``: after the
        first fault; None = unknown, which is a reason too."""
        found = []
        if not {FINAL, END} <= self._phases:
            found.append("the run was broken off: it has no final reads, or no end")
        if not self.faults:
            found.append("no fault was injected")
        elif not self.acked_under_faults:
            found.append(NOTHING_ACKNOWLEDGED)
        if leader_changes is None:
            found.append("nothing says whether a leader changed")
        elif not leader_changes:
            found.append("no leader changed")
        return found

    def figures(self) -> dict[str, int]:
        return {"faults": self.faults, "acknowledged_under_faults": self.acked_under_faults}


def control_arm(verdict: Verdict, level: str) -> list[str]:
    """Return why a control arm proves nothing; empty = it proves something. It must have lost
    records that were acknowledged with ``level``, or else the checkers or the faults cannot show a
    loss."""
    acknowledged = verdict.checked.get(f"acknowledged_{level}", 0)
    if not acknowledged:
        return [f"the control arm acknowledged nothing with {level}"]
    if not verdict.checked.get(f"lost_{level}", 0):
        return [f"the control arm lost none of {acknowledged} records acknowledged with {level}"]
    return []
