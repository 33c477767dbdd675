"""Progress line of a run.

Contract.  ``ProgressLine.show`` passes a line to ``say`` every second until it is cancelled; the
printer decides how often and where it appears.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import trio

from chaos.history import FAIL, INFO, INVOKE, OK

PAUSE_S = 1.0


class ProgressLine:
    """Counters of a run as a line of text."""

    def __init__(self, run_state, say: Callable[[str], None]):
        self._run_state = run_state
        self._say = say

    async def show(self) -> None:
        """Show a line every second until cancelled."""
        while True:
            await trio.sleep(PAUSE_S)
            self._say(line(self._run_state))


def line(run_state) -> str:
    """Return one line: seconds, phase, outcomes of operations so far, leader changes and active
    faults."""
    recorder = run_state.context.recorder
    kinds: Counter[str] = Counter()
    for (_, kind), count in recorder.counts.items():
        kinds[kind] += count
    faults = ", ".join(run_state.active) or "none"
    return (
        f"{recorder.now_us() / 1e6:5.0f} s  {recorder.phase_name:8}  "
        f"asked {kinds[INVOKE]:6}  ok {kinds[OK]:6}  fail {kinds[FAIL]:5}  "
        f"info {kinds[INFO]:4}  leader changes {run_state.leadership.changes:4}  faults: {faults}"
    )
