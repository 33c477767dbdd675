"""Coverage of runs: the seeds that count, and sums over many seeds.

Contract.  A seed *counts* when it ran long enough, acknowledged enough appends, and met enough
faults to be evidence (``why_not``).  A summary counts no other seed.  A failed seed does not count.
"""

from __future__ import annotations

import textwrap
from collections import Counter

from chaos.simulator.env.parameters import FAULT_KINDS
from chaos.simulator.simulation import PROMISED_LOSS, Result

#: Minimums for a seed that counts.
SIMULATED_MS_MIN = 300_000
ACKED_MIN = 2_000
LEADER_CHANGES_MIN = 3
FAULT_KINDS_MIN = 5
#: Columns of the summary.
WIDTH = 79


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
    return ", ".join(f"{found:,} {what} of {least:,}" for what, found, least in wanted
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
        """Return the lines of the summary: the result in a sentence, then its numbers."""
        return [
            *_wrapped(self.result()), "",
            f"simulated time       {self.simulated_ms / 1000:,.0f} s, {self.speed:.0f} times as "
            f"fast as a clock, per core",
            f"acknowledged appends {self.acked:,}, {self.acked_per_second:.1f} per simulated "
            f"second",
            f"reads                {self.reads:,}",
            f"leader changes       {self.leader_changes:,}",
            f"crashes              {self.crashes:,}",
            *_counts("faults injected", self.faults),
            *_counts("events", self.event_counts),
            *self._short_lines(),
        ]

    def result(self) -> str:
        """Return the result in one sentence, for a reader who sees it for the first time."""
        if self.failed:
            told = _seeds(self.failed)
            return (f"FAILED: {told} broke a promise, of {_clusters(self.seeds)}. The lines above "
                    f"say which, and how to replay it.")
        if not self.seeds:
            return "No seed was run."
        lost = self.event_counts[PROMISED_LOSS]
        told = (f"No fault found: {_clusters(self.seeds - lost)} lost no acknowledged record and "
                f"broke no rule of the protocol.")
        if lost:
            told += (f" In {lost:,} more, a loss of power took records whose relaxed durability "
                     f"permits that; the seed ended there.")
        return told

    def _short_lines(self) -> list[str]:
        """Return the reasons why seeds are no evidence, and that they are no failures."""
        if not self.short:
            return []
        told = (f"{len(self.short)} of {self.seeds} seeds held like the others, and "
                f"{'is' if len(self.short) == 1 else 'are'} left out of the {self.counting} that "
                f"count as evidence, because too little happened in "
                f"{'it' if len(self.short) == 1 else 'them'}:")
        return ["", *_wrapped(told), *[f"  seed {seed}: {reason}" for seed, reason
                                       in sorted(self.short.items())]]


def _seeds(seeds: list[int]) -> str:
    return f"seed{'s' * (len(seeds) != 1)} {', '.join(map(str, seeds))}"


def _clusters(count: int) -> str:
    return f"{count:,} simulated cluster{'s' * (count != 1)}"


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_long_words=False,
                         break_on_hyphens=False)


def _counts(title: str, counter: Counter[str]) -> list[str]:
    """Return the counts as sentences under a title, in lines that fit a terminal."""
    if not counter:
        return []
    told = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counter.items()))
    return _wrapped(f"{title}: {told}", "  ")
