"""Conduct of one run: its phases in order, and the end of every process in any case.

Contract.  ``run_phases`` takes a backend that is not up yet and leaves the folder with everything
that checkers need: history, leadership, the run's own findings (also when the run breaks off), logs
of all nodes and their data collected in ``data``.  It raises ``SetupFailed`` or ``BackendError``
when the run could not begin, and ``OSError`` when the folder cannot be written.  A signal ends the
phase, heals, and raises ``RunInterrupted``; the caller that opened the backend closes it.  The
crash of a client ends only that client's workload.

Phases: warm-up (no faults), faults, heal (everything is healed while the load continues, then each
group must answer), final reads, end.

Theory.  Backends block, so each of their methods runs in a thread, one at a time per caller; trio
waits for it even when the run is cancelled, because a fault that is begun halfway would never be
healed.
"""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from chaos.backends.backend import Backend, BackendError
from chaos.checkers.verdict import Anomaly
from chaos.history import END, FAULTS, FINAL, HEAL, WARM_UP, HistoryWriter
from chaos.run.crashes import Crashes, leaves
from chaos.run.final_reads import Unreadable, read_everything
from chaos.run.findings import OwnFindings, kept
from chaos.run.host_stats import HostStats
from chaos.run.kafka_port import stuck_partitions
from chaos.run.leadership import Leadership
from chaos.run.liveness import stuck_groups
from chaos.run.node_exits import check_exits
from chaos.run.open_plans import end_plan
from chaos.run.open_transactions import abort_open_transactions
from chaos.run.parameters import (
    ALL,
    RECOVERY_S,
    WARM_UP_S,
    Folder,
    RunParameters,
    run_number,
    versions,
)
from chaos.run.progress import ProgressLine
from chaos.run.topics import SetupFailed, create_topics
from chaos.workloads import WORKLOADS, need_kafka
from chaos.workloads.recorder import Recorder
from chaos.workloads.workload_context import Topics, WorkloadContext
from multiraft.client import RecordsNotSent

#: Lines of the history that a crash of the harness may lose.
BUFFER_BYTES = 1 << 16


class RunInterrupted(Exception):
    """Raised when a signal ended the run."""


@dataclass
class RunResult(OwnFindings):
    """Findings of the run itself, besides the history."""

    acknowledged_during_faults: int = 0
    leader_changes: int = 0
    faults: dict[str, int] = field(default_factory=dict)


@dataclass
class RunState:
    """State that the phases share."""

    parameters: RunParameters
    backend: Backend
    context: WorkloadContext
    leadership: Leadership
    folder: Folder
    found: RunResult
    crashes: Crashes
    active: list[str] = field(default_factory=list)  # active faults, for the progress line

    def phase(self, name: str) -> None:
        """Begin the phase ``name``: in the history and, with its time, in ``run.json``."""
        self.context.recorder.phase(name)
        at_s = self.context.recorder.now_us() / 1e6
        self.folder.note(phases={**self.folder.facts.get("phases", {}), name: at_s})


#: A fault schedule: it runs between warm-up and heal while the load continues.
FaultSchedule = Callable[[RunState], Any]


def run_phases(parameters: RunParameters, folder: Folder, backend: Backend, schedule: FaultSchedule,
            data: Path, say: Callable[[str], None]) -> RunResult:
    """Conduct a run on a backend that is not up yet, and return its findings; see the module for
    phases and errors.  Blocks until its end. ``data``: folder for the nodes' data; ``say`` takes
    progress lines."""
    try:
        return trio.run(_run_phases, parameters, folder, backend, schedule, data, say)
    except BaseExceptionGroup as group:  # tasks wrap the exception that ends them
        expected, others = group.split((BackendError, SetupFailed, OSError))
        if expected is None or others is not None:
            raise
        raise next(leaves(expected)) from group


async def _run_phases(
    parameters: RunParameters,
    folder: Folder,
    backend: Backend,
    schedule: FaultSchedule,
    data: Path,
    say: Callable[[str], None],
) -> RunResult:
    now_s = time.time()
    folder.note(began=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_s)),
                run=run_number(parameters.seed, now_s))
    interrupted: list[int] = []
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            await nursery.start(_heed_signals, scope, interrupted)
            found = await _phases(parameters, folder, backend, schedule, data, say)
            nursery.cancel_scope.cancel()
    if interrupted:
        raise RunInterrupted(signal.Signals(interrupted[0]).name)
    return found


async def _heed_signals(scope: trio.CancelScope, interrupted: list[int],
                        task_status=trio.TASK_STATUS_IGNORED) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for number in signals:
            interrupted.append(number)
            scope.cancel()


async def _phases(
    parameters: RunParameters,
    folder: Folder,
    backend: Backend,
    schedule: FaultSchedule,
    data: Path,
    say: Callable[[str], None],
) -> RunResult:
    say("starting the nodes")
    await blocking(backend.up)
    folder.note(versions=versions(), backend_versions=dict(backend.versions),
                left_out=dict(backend.left_out), kinds=sorted(backend.kinds))
    found = RunResult()
    with (kept(found, folder.findings),
          folder.history.open("w", encoding="utf-8", buffering=BUFFER_BYTES) as history,
          folder.leadership.open("w", encoding="utf-8") as leadership_file):
        recorder = Recorder(HistoryWriter(history))
        context = WorkloadContext(folder.facts["run"], recorder, Topics(),
                          _table(backend, backend.address), parameters.seed, parameters.pace,
                          kafka_nodes=_table(backend, backend.kafka_address)
                          if need_kafka(chosen(parameters.workloads)) else dict,
                          anomalies=found.anomalies)
        leadership = Leadership(recorder, leadership_file, context.leaders)
        host_stats = HostStats(recorder.now_us)
        crashes = Crashes(folder.crashes, found.anomalies, recorder.now_us)
        run_state = RunState(parameters, backend, context, leadership, folder, found, crashes)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(crashes.survive, "leadership", leadership.watch, context.nodes)
            nursery.start_soon(ProgressLine(run_state, say).show)
            nursery.start_soon(host_stats.watch)
            await _with_load(run_state, schedule)
            await _without_load(run_state)
            nursery.cancel_scope.cancel()
        found.notes += host_stats.notes()
        say("stopping the nodes, collecting their data")
        await _check_exits(backend, found)
        await _stop(backend)
        await blocking(backend.collect, data)
        run_state.phase(END)
    folder.note(operations={f"{name} {kind}": count
                            for (name, kind), count in sorted(recorder.counts.items())},
                acknowledged_during_faults=found.acknowledged_during_faults,
                leader_changes=found.leader_changes, faults=found.faults)
    return found


async def _with_load(run_state: RunState, schedule: FaultSchedule) -> None:
    """Run warm-up, faults and heal while clients send requests; then cancel the workloads. A
    workload that crashes ends alone; without topics the phases after the setup are left out."""
    parameters, context, found = run_state.parameters, run_state.context, run_state.found
    survive = run_state.crashes.survive
    run_state.phase(WARM_UP)
    if not await survive("setup", create_topics, context, parameters.groups):
        return  # there is no partition to send requests to
    # The workloads are cancelled: the history says which records were acknowledged.
    warnings.simplefilter("ignore", RecordsNotSent)
    async with trio.open_nursery() as load:
        for name in chosen(parameters.workloads):
            load.start_soon(survive, f"workload {name}", WORKLOADS[name][0], context)
        await trio.sleep(WARM_UP_S)
        run_state.phase(FAULTS)
        await survive(
            "faults", _or_anomaly, run_state, "faults could not be healed", schedule, run_state
        )
        found.acknowledged_during_faults = context.recorder.acknowledged[FAULTS]
        found.leader_changes = run_state.leadership.changes
        found.faults = dict(context.recorder.faults)
        run_state.phase(HEAL)
        await _heal(run_state)
        await trio.sleep(RECOVERY_S)
        load.cancel_scope.cancel()


async def _heal(run_state: RunState) -> None:
    """Heal everything, then wait until every member has caught up, every group answers, and no plan
    is open. A failure of one step is added to the findings, and the others still run."""
    await _or_anomaly(
        run_state, "the cluster could not be healed", blocking, run_state.backend.heal_all
    )
    await _or_anomaly(
        run_state, "after everything was healed", blocking, run_state.backend.await_whole
    )
    await run_state.crashes.survive("asking all groups", _ask_all_groups, run_state)
    if run_state.context.kafka_nodes():
        await run_state.crashes.survive("asking at the port of Kafka", _ask_kafka, run_state)
    await run_state.crashes.survive("ending the plan", _end_plan, run_state)


async def _ask_all_groups(run_state: RunState) -> None:
    run_state.found.anomalies += await stuck_groups(run_state.context)


async def _ask_kafka(run_state: RunState) -> None:
    run_state.found.anomalies += await stuck_partitions(run_state.context)


async def _end_plan(run_state: RunState) -> None:
    run_state.found.anomalies += await end_plan(run_state.context)


async def _or_anomaly(run_state: RunState, when: str, action: Callable[..., Any], *arguments: Any,
                      ) -> None:
    """Await an action; add a ``BackendError`` of it, as a clause after ``when``, to the run's
    anomalies. Any other error is raised. Once a cluster was up, a node that does not start or catch
    up is a finding of the run."""
    try:
        await action(*arguments)
    except (BackendError, BaseExceptionGroup) as error:
        found = next(leaves(error))
        if not isinstance(found, BackendError):
            raise
        run_state.found.anomalies.append(Anomaly("A28", "not-whole", f"{when}: {found}", "", (),
                                             run_state.context.recorder.now_us()))


async def _without_load(run_state: RunState) -> None:
    """Run the final reads.  Before them, removed nodes are started again with all their files, and
    open transactions are aborted, because the reads would wait for those."""
    await _or_anomaly(run_state, "removed nodes", blocking, run_state.backend.try_removed)
    run_state.phase(FINAL)
    await run_state.crashes.survive("aborting open transactions", _abort_transactions, run_state)
    await run_state.crashes.survive("final reads", _read_everything, run_state)


async def _abort_transactions(run_state: RunState) -> None:
    run_state.found.anomalies += await abort_open_transactions(run_state.context)


async def _read_everything(run_state: RunState) -> None:
    try:
        run_state.found.anomalies += await read_everything(run_state.context, run_state.leadership,
                                                       run_state.crashes)
    except Unreadable as error:
        run_state.found.anomalies.append(Anomaly("A28", "unreadable", str(error), "", (),
                                             run_state.context.recorder.now_us()))


def chosen(names: tuple[str, ...]) -> list[str]:
    """Return the workloads of these names, all if ``ALL`` is among them, in the order of
    ``WORKLOADS``."""
    return [name for name in WORKLOADS if ALL in names or name in names]


def _table(backend: Backend, address: Callable[[int], str]) -> Callable[[], dict[int, str]]:
    return lambda: {node: address(node) for node in backend.nodes()}


async def _check_exits(backend: Backend, found: RunResult) -> None:
    """Add anomalies and notes about ends of nodes that the backend did not request to ``found``.
    Called before the nodes are stopped."""
    anomalies, notes = check_exits(await blocking(backend.exits), backend.log_path)
    found.anomalies += anomalies
    found.notes += notes


async def _stop(backend: Backend) -> None:
    """Stop all nodes at once: the last ones need not transfer leadership to nodes that stop after
    them."""
    async with trio.open_nursery() as nursery:
        for node in backend.nodes():
            nursery.start_soon(blocking, backend.stop, node)


async def blocking(method: Callable[..., Any], *arguments: Any) -> Any:
    """Run a method of the backend in a thread and return its result; even a cancelled run waits for
    its end."""
    return await trio.to_thread.run_sync(method, *arguments)


