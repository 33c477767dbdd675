"""Command ``multiraft chaos sim``: replay a seed, or run many and print a summary.

Contract.  Exit code 0 when every seed holds, 1 when one fails.  For a failed seed the command
prints the end of its trace and the command that replays it.  If there is time for shrinking, it
also prints the smallest variant that still fails.  Results go to standard output.  Progress goes to
standard error, and only on a terminal.  Exit code 2, before anything runs, when ``--output`` cannot
be used.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from admin_cli import extras
from chaos.commit import commit_of
from chaos.planted.catalogue import BUGS
from chaos.ranges import Real, Whole
from chaos.report import REPORT_PACKAGES
from chaos.simulator.env.parameters import FAULT_KINDS
from chaos.simulator.runner import batch_runner, soak_log
from chaos.simulator.runner.coverage import Totals, fault_kinds, why_not
from chaos.simulator.runner.shrink import shrink
from chaos.simulator.runner.variant import Variant
from chaos.simulator.simulation import Result

SEEDS = 20
#: Exit code when ``--output`` cannot be used.
CANNOT_WRITE = 2
#: Seconds of a core that a seed takes, from the quickest to the slowest of most seeds.
SEED_S = (3, 15)
#: Failed seeds, all reported in full, after which a run of many seeds ends.
FAILURES_MAX = 5
SHRINK_SECONDS = 60.0
#: Limits of options: 63 bits of a seed, a week of running, more processes than any machine's cores.
SEED_MAX = (1 << 63) - 1
MINUTES_MAX = 7 * 24 * 60
JOBS_MAX = 1_024
SEED = Whole(0, SEED_MAX)


def _faults(ctx: click.Context, parameter: click.Parameter,
            value: str | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    kinds = tuple(kind for kind in value.split(",") if kind)
    unknown = [kind for kind in kinds if kind not in FAULT_KINDS]
    if unknown or not kinds:
        raise click.BadParameter(f"{', '.join(unknown) or 'nothing'} is no kind of fault; "
                                 f"known are {', '.join(FAULT_KINDS)}")
    return kinds


@click.command("sim", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seed", type=SEED, help="Replay this seed.")
@click.option("--seeds", type=Whole(1, SEED_MAX),
              help=f"Run this many seeds (default {SEEDS}).")
@click.option("--minutes", type=Real(0, MINUTES_MAX), help="Run seeds for this long.")
@click.option("--first", type=SEED, default=1, show_default=True, help="First seed.")
@click.option("--fresh", is_flag=True, help="Draw the first seed; it is printed.")
@click.option("--jobs", type=Whole(1, JOBS_MAX), help="Processes; default: one per core.")
@click.option("--nodes", type=Whole(3, 7), help="Nodes; default: the seed decides.")
@click.option("--groups", type=Whole(1, 1024), help="Groups; default: the seed decides.")
@click.option("--seconds", type=Whole(1, 36_000), help="Simulated seconds with faults.")
@click.option("--only-faults", callback=_faults, metavar="KIND,...",
              help="The nemesis knows only these kinds of fault.")
@click.option("--calm-network", is_flag=True,
              help="No loss, duplication or reordering of single frames.")
@click.option("--planted", "bug", type=click.Choice(sorted(BUGS)),
              help="Plant this bug: the seed should fail.")
@click.option("--trace", is_flag=True, help="With --seed: print every transition.")
@click.option("--shrink-seconds", type=Real(0, 86_400), default=SHRINK_SECONDS, show_default=True,
              help="Time to look for a smaller variant of a failing seed; 0 = do not.")
@click.option("--output", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="With --seed: leave the run and its page in DIR. Of many seeds: in DIR/SEED for "
                   "each that failed and was reported; those that hold leave nothing.")
@click.option("--record", is_flag=True, help="Append the sums to chaos/soak.jsonl.")
@click.option("--counters", "show", is_flag=True, help="Print what was recorded, by commit.")
def simulate(seed: int | None, seeds: int | None, minutes: float | None, first: int, fresh: bool,
             jobs: int | None, nodes: int | None, groups: int | None, seconds: int | None,
             only_faults: tuple[str, ...] | None, calm_network: bool, bug: str | None, trace: bool,
             shrink_seconds: float, output: Path | None, record: bool, show: bool) -> None:
    """Run the deterministic simulator: real consensus and storage in a simulated world.

    Each seed is a cluster of its own, with faults of its own, for some 300 simulated seconds.  It
    takes some seconds, and is the same every time.
    """
    if show:
        click.echo("\n".join(soak_log.table(soak_log.read())))
        return
    if output is not None:
        _prepare(output)
    variant = Variant(nodes, groups, seconds, only_faults, calm_network, bug)
    if seed is not None:
        replayed = _replay(seed, variant, trace, output)
        failures = [result for result in [replayed] if result.failure]
    else:
        failures = _run_many(variant, batch_runner.fresh_seed() if fresh else first, seeds, minutes,
                             jobs or os.cpu_count() or 1, record)
        if output is not None:
            _keep(failures, variant, output)
    for result in failures:
        _report_smaller(result, variant, 0.0 if trace else shrink_seconds)
    if failures:
        click.echo(f"failing seeds: {' '.join(str(result.seed) for result in failures)}", err=True)
        sys.exit(1)


def _folders() -> ModuleType:
    """Import and return the module that writes folders, because importing charts takes long."""
    return importlib.import_module("chaos.simulator.runner.run_folder")


def _prepare(output: Path) -> None:
    """Create the folder of the output.  Raises ``click.BadParameter`` before anything runs, when it
    holds runs already or cannot be written."""
    extras.require("chaos", *REPORT_PACKAGES, exit_code=CANNOT_WRITE)
    try:
        _folders().prepare(output)
    except OSError as error:
        raise click.BadParameter(f"{error}; name a folder that is new or empty, where files can be "
                                 f"written", param_hint="--output") from error


def _keep(failures: list[Result], variant: Variant, output: Path) -> None:
    """Run each failed seed again, and write its folder, ``output``/SEED."""
    for failed in failures:
        click.echo(f"seed {failed.seed}: running it again for its folder", err=True)
        kept = _folders().Kept(output / str(failed.seed), failed.seed, variant)
        kept.run()
        _write(kept)


def _write(kept) -> None:
    """Write the folder of a seed that was run, and print the path of its page; an error is printed,
    and ends nothing else."""
    try:
        click.echo(f"seed {kept.result.seed}: {kept.write()}")
    except OSError as error:
        click.echo(f"seed {kept.result.seed}: the folder could not be written: {error}", err=True)


def _replay(seed: int, variant: Variant, trace: bool, output: Path | None) -> Result:
    """Run one seed, print its parameters, result and summary, and return the result; with
    ``output`` its folder is written. ``trace``: print every transition."""
    click.echo("\n".join(variant.parameters(seed).describe()))
    also = click.echo if trace else None
    kept = _folders().Kept(output, seed, variant) if output is not None else None
    result = batch_runner.run_one(seed, variant, also) if kept is None else kept.run(also)
    totals = Totals()
    totals.add(result)
    click.echo(_line(result))
    if result.failure:
        _report_failure(result, variant, trace)
    click.echo("\n".join(totals.lines()))
    if kept is not None:
        _write(kept)
    return result


def _run_many(variant: Variant, first: int, seeds: int | None, minutes: float | None, jobs: int,
              record: bool) -> list[Result]:
    """Run seeds from ``first`` on and print the summary; return the failed ones. It ends early
    after ``FAILURES_MAX`` of them. ``record``: append the sums to the soak record."""
    totals, failures = Totals(), []
    commit = commit_of(soak_log.SOAK_FILE.parent) if record else ""
    seeds = SEEDS if seeds is None and minutes is None else seeds
    jobs = min(jobs, seeds or jobs)
    click.echo(_announcement(first, seeds, minutes, jobs))
    running = batch_runner.run_seeds(batch_runner.numbers(first, seeds, minutes), variant, jobs)
    with contextlib.closing(running), _progress(totals, seeds, minutes) as show:
        for result in running:
            totals.add(result)
            show(result)
            if result.failure:
                failures.append(result)
                _report_failure(result, variant, False)
                if len(failures) >= FAILURES_MAX:
                    break
    click.echo("\n".join(totals.lines()))
    if record:
        after = commit_of(soak_log.SOAK_FILE.parent)
        soak_log.record(soak_log.entry_of(totals, first, soak_log.commit_of_run(commit, after)))
    return failures


def _announcement(first: int, seeds: int | None, minutes: float | None, jobs: int) -> str:
    """Return what begins now, and how long that takes."""
    at_once = f"{jobs} at a time" if jobs > 1 else "one after the other"
    if seeds is None:
        return f"Simulating clusters from seed {first} on, {at_once}, for {minutes:g} minutes."
    least, most = (max(1, round(seeds * each / jobs)) for each in SEED_S)
    limit = f", {minutes:g} minutes at most" if minutes is not None else ""
    which = f"seed {first}" if seeds == 1 else f"seeds {first} to {first + seeds - 1}"
    return (f"Simulating {seeds:,} cluster{'s' * (seeds != 1)}, {which}, {at_once}{limit}: about "
            f"{_span(least)} to {_span(most)}, longer on a busy machine.")


def _span(seconds: int) -> str:
    return f"{seconds} s" if seconds < 120 else f"{round(seconds / 60):,} min"


@contextlib.contextmanager
def _progress(totals: Totals, seeds: int | None, minutes: float | None) -> Iterator:
    """Yield a function that shows a result, which ``totals`` has already: in a bar on a terminal,
    as a line per seed elsewhere. The bar ends with the block."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda result: click.echo(_line(result))
        return
    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn(),
               TextColumn("left"), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        timed = minutes is not None
        task = bar.add_task("no seed done yet", total=minutes * 60 if timed else seeds)

        def show(result: Result) -> None:
            done = bar.tasks[0].elapsed or 0.0 if timed else totals.seeds
            bar.update(task, completed=done,
                       description=f"{totals.seeds:,} seed{'s' * (totals.seeds != 1)} done, "
                                   f"{len(totals.failed)} failed")

        yield show


def _line(result: Result) -> str:
    """Return the line of output for the result of one seed."""
    speed = result.simulated_ms / 1000 / max(result.cpu_seconds, 1e-9)
    verdict = "FAILED" if result.failure else "short" if why_not(result) else "ok"
    return (f"seed {result.seed:<8} {verdict:<6} {result.simulated_ms / 1000:7.1f} s  "
            f"{speed:5.0f} x  acked {result.acked:<6} leaders {result.leader_changes:<5} "
            f"crashes {result.crashes:<4} faults {fault_kinds(result):<3} {result.digest}")


def _report_failure(result: Result, variant: Variant, traced: bool) -> None:
    if not traced:
        click.echo("\n".join(result.trace_tail), err=True)
    click.echo(f"{result.failure}\nreplay: {variant.replay(result.seed)}", err=True)


def _report_smaller(result: Result, variant: Variant, budget_seconds: float) -> None:
    """Shrink a failed seed for at most ``budget_seconds``, and print the smallest variant, or that
    none was found; no-op without a budget."""
    if budget_seconds <= 0:
        return
    click.echo(f"seed {result.seed}: looking for a smaller variant, {budget_seconds:.0f} s at most",
               err=True)
    smaller, found = shrink(result, variant, budget_seconds)
    if smaller == variant:
        click.echo(f"seed {result.seed}: no smaller variant fails in the same way", err=True)
        return
    click.echo(f"{found.failure}\nsmallest: {smaller.replay(result.seed)}", err=True)
