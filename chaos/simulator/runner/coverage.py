"""Coverage of runs: the seeds that count, and sums over many seeds.

Contract.  A seed *counts* when it ran long enough, acknowledged enough appends, and met enough
faults to be evidence (``why_not``).  A summary counts no other seed.  A failed seed does not count.
"""

from __future__ import annotations

from collections import Counter

from chaos.simulator.env.parameters import FAULT_KINDS
from chaos.simulator.simulation import Result

#: Minimums for a seed that counts.
SIMULATED_MS_MIN = 300_000
ACKED_MIN = 2_000
LEADER_CHANGES_MIN = 3
FAULT_KINDS_MIN = 5


def fault_kinds(result: Result) -> int:
    """Return the number of kinds of fault (``FAULT_KINDS``) that the nemesis caused in a seed.

    Frames that the network lost at random, and other counters beside faults, are no kinds.
    """
    return sum(result.faults[kind] > 0 for kind in FAULT_KINDS)


def why_not(result: Result) -> str:
    """Return why a seed does not count as evidence; "" = it counts."""
    if result.failure:
        return "it failed"
    wanted = (("simulated seconds", result.simulated_ms // 1000, SIMULATED_MS_MIN // 1000),
              ("acknowledged appends", result.acked, ACKED_MIN),
              ("leader changes", result.leader_changes, LEADER_CHANGES_MIN),
              ("kinds of fault", fault_kinds(result), FAULT_KINDS_MIN))
    return ", ".join(f"{found} {what} of {least}" for what, found, least in wanted
                     if found < least)


class Totals:
    """Sums over seeds."""

    def __init__(self) -> None:
        self.seeds = 0
        self.counting = 0
        self.simulated_ms = 0
        self.cpu_seconds = 0.0
        self.acked = 0
        self.reads = 0
        self.leader_changes = 0
        self.crashes = 0
        self.faults: Counter[str] = Counter()
        self.event_counts: Counter[str] = Counter()
        self.failed: list[int] = []
        self.short: dict[int, str] = {}  # seed without failure that does not count -> why

    def add(self, result: Result) -> None:
        """Add the result of a seed."""
        self.seeds += 1
        self.simulated_ms += result.simulated_ms
        self.cpu_seconds += result.cpu_seconds
        self.acked += result.acked
        self.reads += result.reads
        self.leader_changes += result.leader_changes
        self.crashes += result.crashes
        self.faults.update(result.faults)
        self.event_counts.update(result.event_counts)
        reason = why_not(result)
        if result.failure:
            self.failed.append(result.seed)
        elif reason:
            self.short[result.seed] = reason
        else:
            self.counting += 1

    @property
    def speed(self) -> float:
        """Simulated seconds per second of a core; 0 before the first seed."""
        return self.simulated_ms / 1000 / self.cpu_seconds if self.cpu_seconds else 0.0

    @property
    def acked_per_second(self) -> float:
        """Acknowledged appends per simulated second; 0 before the first seed."""
        return self.acked / self.simulated_ms * 1000 if self.simulated_ms else 0.0

    def lines(self) -> list[str]:
        """Return the lines of the summary."""
        return [
            f"seeds {self.seeds}, of which {self.counting} count   failed {len(self.failed)}   "
            f"simulated {self.simulated_ms / 1000:.0f} s   speed {self.speed:.0f} x per core",
            f"acked appends {self.acked} ({self.acked_per_second:.1f} per simulated second)   "
            f"reads {self.reads}   leader changes {self.leader_changes}   crashes {self.crashes}",
            f"faults   {_counts(self.faults)}",
            f"events   {_counts(self.event_counts)}",
            *[f"seed {seed} does not count: {reason}" for seed, reason
              in sorted(self.short.items())],
        ]


def _counts(counter: Counter[str]) -> str:
    return "  ".join(f"{kind} {count}" for kind, count in sorted(counter.items()))
