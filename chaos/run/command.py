"""`multiraft chaos run`: a cluster, load, faults, a verdict, a report.

Contract.  Exit code 0: passed; 1: anomalies; 3: the run proves nothing (``Verdict.invalid``, or it
was interrupted); 4: it could not run here, with the reason.  Whatever happens, nothing of the
cluster outlives the command.
"""

from __future__ import annotations

import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import click

from admin_cli import extras
from chaos.backends.backend import Backend, BackendError, ClusterSpec
from chaos.backends.choice import BACKENDS, open_backend
from chaos.checkers.verdict import Verdict
from chaos.ranges import Real, Whole
from chaos.report import REPORT_PACKAGES
from chaos.run import record
from chaos.run.controls import CONTROLS, Control
from chaos.run.evaluation import evaluate, unfinished, write_verdict
from chaos.run.fault_schedule import Impossible, choices, nemeses_of, rotation
from chaos.run.parameters import ALL, SMALL_FILES, SMALL_LIMITS, Folder, RunParameters
from chaos.run.runner import FaultSchedule, RunInterrupted, RunResult, run_phases
from chaos.run.runner import chosen as chosen_workloads
from chaos.run.topics import SetupFailed
from chaos.workloads import WORKLOADS, kafka_client, need_kafka

PASSED, ANOMALIES, INVALID, NOT_HERE = 0, 1, 3, 4
OUTCOMES = {"passed": PASSED, "failed": ANOMALIES, "invalid": INVALID}
#: Seconds between two lines of progress where no terminal can rewrite one.
LINE_S = 10.0
SEED_MAX = 1 << 31
#: Voters of each group, where there are as many nodes.
COPIES = 3


@click.command("run")
@click.option("--backend", type=click.Choice(sorted(BACKENDS)), default="process",
              show_default=True, help="Run nodes as processes or as containers.")
@click.option("--nodes", type=Whole(1, 9), default=3, show_default=True)
@click.option("--groups", type=Whole(1, 1024), default=16, show_default=True)
@click.option("--seconds", type=Real(1, 7 * 86_400), default=120.0, show_default=True,
              help="Duration of the phase with faults.")
@click.option("--seed", type=Whole(0, SEED_MAX), help="Default: a new one, printed.")
@click.option("--nemesis", "nemeses", multiple=True, type=click.Choice((*choices(), ALL)),
              metavar="NAME",
              help="Cause only this: a kind of fault, such as kill, or a nemesis, which is a "
                   "scenario of several; can be repeated. Default: all that this machine can "
                   "cause (`multiraft chaos faults`).")
@click.option("--workload", "workloads", multiple=True, type=click.Choice((*WORKLOADS, ALL)),
              help="Default: all.")
@click.option("--control", type=click.Choice(sorted(CONTROLS)),
              help="Take one protection of records away, and cause the fault that then loses "
                   "some: a control arm, which proves that the checkers see a loss.")
@click.option("--planted", multiple=True, metavar="BUG",
              help="Bugs that every node starts with (multiraft chaos planted).")
@click.option("--pace", type=Real(0.01, 100), default=1.0, show_default=True,
              help="Multiply the requests per second of all clients by this: 0.5 = half the load.")
@click.option("--output", type=click.Path(file_okay=False, path_type=Path),
              help="The run's folder; default: chaos-run-TIME-SEED here.")
@click.option("--keep-data", is_flag=True, help="Keep the nodes' data also when the run passed.")
@click.option("--record", "recorded", is_flag=True,
              help="Append the sums of this run to chaos/runs.jsonl of the source tree, which "
                   "--counters prints.")
@click.option("--counters", is_flag=True, help="Only print the recorded sums, by commit.")
def run_command(output: Path | None, seed: int | None, nemeses: tuple[str, ...],
                workloads: tuple[str, ...], control: str | None, keep_data: bool, recorded: bool,
                counters: bool, **chosen) -> None:
    """Start a cluster, run load and faults against it, and check its promises."""
    if counters:
        click.echo("\n".join(record.table(record.read())))
        return
    extras.require("chaos", *REPORT_PACKAGES, exit_code=NOT_HERE)
    if need_kafka(chosen_workloads(workloads or (ALL,))) and not control:
        extras.require(kafka_client.EXTRA, kafka_client.PACKAGE, exit_code=NOT_HERE)
    seed = random.SystemRandom().randrange(SEED_MAX) if seed is None else seed
    output = output or Path(f"chaos-run-{time.strftime('%Y%m%d-%H%M%S')}-{seed}")
    parameters = RunParameters(output, seed=seed, nemeses=nemeses or (ALL,),
                            control=control or "",
                            workloads=workloads or (ALL,), **chosen)
    click.echo(f"seed {seed}, folder {output}")
    try:
        status = carry_out(parameters, _printer(), keep_data)
        if recorded and status in (PASSED, ANOMALIES):
            record.record(record.entry_of(Folder(output)))
    except (BackendError, Impossible, OSError) as error:
        click.echo(f"\nThe run is not possible here: {error}", err=True)
        status = NOT_HERE
    sys.exit(status)


def carry_out(
    parameters: RunParameters, say: Callable[[str], None], keep_data: bool = False
) -> int:
    """Carry out a run, write its verdict and report, and return the exit code. ``say`` takes
    progress lines; the nodes' data are deleted after a passed run unless ``keep_data``.

    Raises ``BackendError`` or ``Impossible`` when the run cannot begin.
    """
    folder = Folder(parameters.output)
    folder.create()
    folder.note(parameters=parameters.to_json(),
                limits={"nodes": parameters.nodes, "copies": COPIES})
    control = CONTROLS.get(parameters.control)
    try:
        verdict = attempt(parameters, folder, control, say)
    except RunInterrupted as signal:
        verdict = unfinished(folder, f"the run was ended by {signal}")
    except SetupFailed as error:
        verdict = unfinished(folder, str(error))
    write_verdict(folder, verdict)
    if verdict.outcome == "passed" and not keep_data:
        forget_data(folder)
    finish(folder, verdict, say)
    return OUTCOMES[verdict.outcome]


def attempt(parameters: RunParameters, folder: Folder, control: Control | None,
            say: Callable[[str], None]) -> Verdict:
    """Open the backend, conduct the run and return the verdict on it.  Findings are not lost when
    the cluster cannot be removed afterwards: that error becomes a note.

    Raises ``Impossible``, and as ``run_phases`` when there are no findings yet.
    """
    found: RunResult | None = None
    try:
        with (tempfile.TemporaryDirectory(prefix="multiraft-chaos-") as scratch,
              open_backend(parameters.backend, Path(scratch) / "cluster",
                           spec_of(parameters, control)) as backend):
            schedule = schedule_of(parameters, control, backend)
            if control is not None and ALL in parameters.workloads:
                parameters = parameters.replace(workloads=control.workloads)
            found = run_phases(parameters, folder, backend, schedule, folder.nodes, say)
    except (BackendError, OSError) as error:
        if found is None:
            raise
        found.notes.append(f"the cluster could not be cleared away: {error}")
    say("checking")
    return evaluate(folder, found)


def schedule_of(
    parameters: RunParameters, control: Control | None, backend: Backend
) -> FaultSchedule:
    """Return the fault schedule of the run: that of the control arm, else a rotation of the
    nemeses.  Raises ``Impossible`` when the backend cannot inject a fault that is needed or asked
    for."""
    if control is None:
        wanted = [name for name in parameters.nemeses if name != ALL]
        return rotation(nemeses_of(wanted, backend))
    if control.needs not in backend.kinds:
        raise Impossible(f"{control.needs}: {backend.left_out[control.needs]}")
    return control.schedule


def spec_of(parameters: RunParameters, control: Control | None) -> ClusterSpec:
    """Return the description of the cluster.  A control arm (None = none) adds its storage
    settings; without one, the nodes of most seeds have small files and short Raft logs, so that
    logs are compacted and segments leave while faults continue."""
    spec = ClusterSpec(nodes=parameters.nodes, groups=parameters.groups,
                       replication_factor=min(COPIES, parameters.nodes),
                       settings={"storage": control.storage} if control else {},
                       planted=parameters.planted)
    if control is None and parameters.has_small_files:
        return replace(spec, settings={"limits": SMALL_LIMITS}, file_sizes=SMALL_FILES)
    return spec


def forget_data(folder: Folder) -> None:
    """Delete the data directories of a passed run: its history has the evidence, and the
    directories are large."""
    for data in folder.nodes.glob("*/data"):
        shutil.rmtree(data)


def finish(folder: Folder, verdict: Verdict, say: Callable[[str], None]) -> None:
    """Build the report and print the verdict in words; without a history, print the reasons
    only."""
    # Packages of an extra, which the command's help does without.
    from chaos.report.build import build
    from chaos.report.series import read
    from chaos.report.words import paragraph

    say("")
    if folder.history.is_file():
        page = build(folder.path)
        click.echo(paragraph(folder.facts, json.loads(folder.verdict.read_text(encoding="utf-8")),
                             read(folder.history)))
        click.echo(f"{verdict.outcome}: {page}")
    else:
        click.echo(f"{verdict.outcome}: {'; '.join(verdict.invalid)}")


def _printer() -> Callable[[str], None]:
    """Return a printer of progress: a line that is rewritten on a terminal, a new line now and then
    elsewhere."""
    if sys.stderr.isatty():
        return lambda line: click.echo(f"\r\x1b[K{line}", nl=False, err=True)
    last = -LINE_S

    def say(line: str) -> None:
        nonlocal last
        now = time.monotonic()
        if line and now - last >= LINE_S:
            last = now
            click.echo(line, err=True)
    return say
