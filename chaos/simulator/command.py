"""The command: replay a seed, or run many and say what they went through.

Contract.  Exit code 0 when every seed holds, 1 when one does not; a failing seed is printed with
the end of its trace and the one command that replays it.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator

import click

from chaos.planted.bug import planted
from chaos.planted.catalogue import BUGS
from chaos.simulator import world
from chaos.simulator.parameters import Parameters
from chaos.simulator.world import Result

#: Failing seeds that are reported in full before a run of many gives up.
FAILURES_MAX = 5


class Totals:
    """The sums of the summary line."""

    def __init__(self) -> None:
        self.seeds = 0
        self.simulated_ms = 0
        self.real_seconds = 0.0
        self.acked = 0
        self.reads = 0
        self.leader_changes = 0
        self.crashes = 0
        self.faults: Counter[str] = Counter()
        self.marks: Counter[str] = Counter()
        self.failed: list[int] = []

    def add(self, result: Result) -> None:
        self.seeds += 1
        self.simulated_ms += result.simulated_ms
        self.real_seconds += result.real_seconds
        self.acked += result.acked
        self.reads += result.reads
        self.leader_changes += result.leader_changes
        self.crashes += result.crashes
        self.faults.update(result.faults)
        self.marks.update(result.marks)
        if result.failure:
            self.failed.append(result.seed)

    def lines(self) -> list[str]:
        simulated = self.simulated_ms / 1000
        speed = simulated / self.real_seconds if self.real_seconds else 0.0
        faults = _counts(self.faults)
        return [
            f"seeds {self.seeds}   failed {len(self.failed)}   simulated {simulated:.0f} s   "
            f"real {self.real_seconds:.1f} s   speed {speed:.0f} x",
            f"acked appends {self.acked}   reads {self.reads}   leader changes "
            f"{self.leader_changes}   crashes {self.crashes}",
            f"faults   {faults}",
            f"marks   {_counts(self.marks)}",
        ]


def _counts(counter: Counter[str]) -> str:
    return "  ".join(f"{kind} {count}" for kind, count in sorted(counter.items()))


def replay_command(seed: int, nodes: int | None, groups: int | None, seconds: int | None,
                   bug: str | None) -> str:
    """The one command that shows this seed again, line by line."""
    options = [("--nodes", nodes), ("--groups", groups), ("--seconds", seconds), ("--planted", bug)]
    given = "".join(f" {name} {value}" for name, value in options if value is not None)
    return f"python -m chaos.simulator --seed {seed}{given} --trace"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seed", type=int, help="Replay this seed.")
@click.option("--seeds", type=int, help="Run this many seeds (default 20).")
@click.option("--first", type=int, default=1, show_default=True, help="First seed of --seeds.")
@click.option("--minutes", type=float, help="Run seeds for this long.")
@click.option("--nodes", type=click.IntRange(3, 7), help="Nodes; default: the seed decides.")
@click.option("--groups", type=click.IntRange(1, 1024), help="Groups; default: the seed decides.")
@click.option("--seconds", type=click.IntRange(1, 36_000), help="Simulated seconds with faults.")
@click.option("--trace", is_flag=True, help="Print every transition.")
@click.option("--planted", "bug", type=click.Choice(sorted(BUGS)),
              help="Plant this bug: the seed should fail.")
def simulate(seed: int | None, seeds: int | None, first: int, minutes: float | None,
             nodes: int | None, groups: int | None, seconds: int | None, trace: bool,
             bug: str | None) -> None:
    """Run the deterministic simulator: real consensus and storage in a simulated world."""
    totals = Totals()
    safety_ms = seconds * 1000 if seconds is not None else None
    for number in _numbers(seed, seeds, first, minutes):
        parameters = Parameters.draw(number, nodes, groups, safety_ms)
        if seed is not None:
            click.echo("\n".join(parameters.describe()))
        with planted(BUGS[bug] if bug else None):
            result = world.run(parameters, click.echo if trace else None)
        totals.add(result)
        _report(result, trace, replay_command(number, nodes, groups, seconds, bug))
        if len(totals.failed) >= FAILURES_MAX:
            break
    click.echo("\n".join(totals.lines()))
    if totals.failed:
        click.echo(f"failing seeds: {' '.join(map(str, totals.failed))}", err=True)
        sys.exit(1)


def _numbers(seed: int | None, seeds: int | None, first: int,
             minutes: float | None) -> Iterator[int]:
    if seed is not None:
        yield seed
        return
    if minutes is None:
        yield from range(first, first + (seeds if seeds is not None else 20))
        return
    deadline = time.monotonic() + minutes * 60
    number = first
    while time.monotonic() < deadline and (seeds is None or number < first + seeds):
        yield number
        number += 1


def _report(result: Result, traced: bool, replay: str) -> None:
    speed = result.simulated_ms / 1000 / max(result.real_seconds, 1e-9)
    verdict = "FAILED" if result.failure else "ok"
    click.echo(f"seed {result.seed:<8} {verdict:<6} {result.simulated_ms / 1000:7.1f} s  "
               f"{speed:5.0f} x  acked {result.acked:<6} leaders {result.leader_changes:<5} "
               f"crashes {result.crashes:<4} {result.digest}")
    if result.failure:
        if not traced:
            click.echo("\n".join(result.trace_tail), err=True)
        click.echo(f"{result.failure}\nreplay: {replay}", err=True)
