"""Conduct of one run: its phases in order, and the end of every process in any case.

Contract.  ``conduct`` takes a backend that is not up yet and leaves the folder with everything that
checkers need: history, leadership, the run's own findings (also when the run breaks off), logs of
all nodes and their data collected in ``data``.  It raises ``SetupFailed`` or ``BackendError`` when
the run could not begin, and ``OSError`` when the folder cannot be written.  A signal ends the
phase, heals, and raises ``Interrupted``; the caller that opened the backend closes it.  The crash
of a client ends only that client's workload.

Phases: warm-up (no faults), faults, heal (everything is healed while the load continues, then each
group must answer), final reads, end.

Theory.  Backends block, so each of their methods runs in a thread, one at a time per caller; trio
waits for it even when the run is cancelled, because a fault that is begun halfway would never be
healed.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trio

from chaos.backends.backend import Backend, BackendError
from chaos.checkers.verdict import Anomaly
from chaos.history import END, FAULTS, FINAL, HEAL, WARM_UP, HistoryWriter
from chaos.run.crashes import Crashes, leaves
from chaos.run.endings import judged
from chaos.run.final_reads import Unreadable, read_everything
from chaos.run.findings import OwnFindings, kept
from chaos.run.leadership import Leadership
from chaos.run.liveness import stuck_groups
from chaos.run.machine import Machine
from chaos.run.open_plans import end_plan
from chaos.run.open_transactions import abort_open_transactions
from chaos.run.parameters import (
    ALL,
    RECOVERY_S,
    WARM_UP_S,
    Folder,
    Parameters,
    run_number,
    versions,
)
from chaos.run.progress import Progress
from chaos.run.topics import SetupFailed, create_topics
from chaos.workloads import WORKLOADS
from chaos.workloads.recorder import Recorder
from chaos.workloads.setting import Setting, Topics

#: Lines of the history that a crash of the harness may lose.
BUFFER_BYTES = 1 << 16


class Interrupted(Exception):
    """Raised when a signal ended the run."""


@dataclass
class Conducted(OwnFindings):
    """Findings of the run itself, besides the history."""

    acknowledged_during_faults: int = 0
    leader_changes: int = 0
    faults: dict[str, int] = field(default_factory=dict)


@dataclass
class Stage:
    """State that the phases share."""

    parameters: Parameters
    backend: Backend
    setting: Setting
    leadership: Leadership
    folder: Folder
    found: Conducted
    crashes: Crashes
    active: list[str] = field(default_factory=list)  # active faults, for the progress line

    def phase(self, name: str) -> None:
        """Begin a phase."""
        self.setting.recorder.phase(name)
        at_s = self.setting.recorder.now_us() / 1e6
        self.folder.note(phases={**self.folder.facts.get("phases", {}), name: at_s})


#: A fault schedule: it runs between warm-up and heal while the load continues.
Torment = Callable[[Stage], Any]


def conduct(parameters: Parameters, folder: Folder, backend: Backend, torment: Torment,
            data: Path, say: Callable[[str], None]) -> Conducted:
    """Conduct a run on a backend that is not up yet; see the module for phases and errors.  ``say``
    takes the progress line."""
    try:
        return trio.run(_conduct, parameters, folder, backend, torment, data, say)
    except BaseExceptionGroup as group:  # tasks wrap the exception that ends them
        expected, others = group.split((BackendError, SetupFailed, OSError))
        if expected is None or others is not None:
            raise
        raise next(leaves(expected)) from group


async def _conduct(parameters: Parameters, folder: Folder, backend: Backend, torment: Torment,
                   data: Path, say: Callable[[str], None]) -> Conducted:
    now_s = time.time()
    folder.note(began=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_s)),
                run=run_number(parameters.seed, now_s))
    interrupted: list[int] = []
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            await nursery.start(_heed_signals, scope, interrupted)
            found = await _phases(parameters, folder, backend, torment, data, say)
            nursery.cancel_scope.cancel()
    if interrupted:
        raise Interrupted(signal.Signals(interrupted[0]).name)
    return found


async def _heed_signals(scope: trio.CancelScope, interrupted: list[int],
                        task_status=trio.TASK_STATUS_IGNORED) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for number in signals:
            interrupted.append(number)
            scope.cancel()


async def _phases(parameters: Parameters, folder: Folder, backend: Backend, torment: Torment,
                  data: Path, say: Callable[[str], None]) -> Conducted:
    say("starting the nodes")
    await blocking(backend.up)
    folder.note(versions=versions(), backend_versions=dict(backend.versions),
                left_out=dict(backend.left_out), kinds=sorted(backend.kinds))
    found = Conducted()
    with (kept(found, folder.findings),
          folder.history.open("w", encoding="utf-8", buffering=BUFFER_BYTES) as history,
          folder.leadership.open("w", encoding="utf-8") as leadership_file):
        recorder = Recorder(HistoryWriter(history))
        setting = Setting(folder.facts["run"], recorder, Topics(),
                          _node_table(backend), parameters.seed, parameters.pace)
        leadership = Leadership(recorder, leadership_file, setting.leaders)
        machine = Machine(recorder.now_us)
        crashes = Crashes(folder.crashes, found.anomalies, recorder.now_us)
        stage = Stage(parameters, backend, setting, leadership, folder, found, crashes)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(crashes.survive, "leadership", leadership.watch, setting.nodes)
            nursery.start_soon(Progress(stage, say).show)
            nursery.start_soon(machine.watch)
            await _with_load(stage, torment)
            await _without_load(stage)
            nursery.cancel_scope.cancel()
        found.notes += machine.notes()
        say("stopping the nodes, collecting their data")
        await _look_at_endings(backend, found)
        await _stop(backend)
        await blocking(backend.collect, data)
        stage.phase(END)
    folder.note(operations={f"{name} {kind}": count
                            for (name, kind), count in sorted(recorder.counts.items())},
                acknowledged_during_faults=found.acknowledged_during_faults,
                leader_changes=found.leader_changes, faults=found.faults)
    return found


async def _with_load(stage: Stage, torment: Torment) -> None:
    """Run warm-up, faults and heal while clients send requests.  A workload that crashes ends
    alone."""
    parameters, setting, found = stage.parameters, stage.setting, stage.found
    survive = stage.crashes.survive
    stage.phase(WARM_UP)
    if not await survive("setup", create_topics, setting, parameters.groups):
        return  # there is no partition to send requests to
    async with trio.open_nursery() as load:
        for name in chosen(parameters.workloads):
            load.start_soon(survive, f"workload {name}", WORKLOADS[name][0], setting)
        await trio.sleep(WARM_UP_S)
        stage.phase(FAULTS)
        await survive("faults", _or_anomaly, stage, "faults could not be healed", torment, stage)
        found.acknowledged_during_faults = setting.recorder.acknowledged[FAULTS]
        found.leader_changes = stage.leadership.changes
        found.faults = dict(setting.recorder.faults)
        stage.phase(HEAL)
        await _heal(stage)
        await trio.sleep(RECOVERY_S)
        load.cancel_scope.cancel()


async def _heal(stage: Stage) -> None:
    """Heal everything: every member runs and has caught up, every group answers, no plan is
    open."""
    await _or_anomaly(stage, "the cluster could not be healed", blocking, stage.backend.heal_all)
    await _or_anomaly(stage, "after everything was healed", blocking, stage.backend.await_whole)
    await stage.crashes.survive("asking all groups", _ask_all_groups, stage)
    await stage.crashes.survive("ending the plan", _end_plan, stage)


async def _ask_all_groups(stage: Stage) -> None:
    stage.found.anomalies += await stuck_groups(stage.setting)


async def _end_plan(stage: Stage) -> None:
    stage.found.anomalies += await end_plan(stage.setting)


async def _or_anomaly(stage: Stage, when: str, action: Callable[..., Any], *arguments: Any,
                      ) -> None:
    """Run an action; report its failure as an anomaly.  Once a cluster was up, a node that does not
    start or catch up is a finding of the run."""
    try:
        await action(*arguments)
    except (BackendError, BaseExceptionGroup) as error:
        found = next(leaves(error))
        if not isinstance(found, BackendError):
            raise
        stage.found.anomalies.append(Anomaly("A28", "not-whole", f"{when}: {found}", "", (),
                                             stage.setting.recorder.now_us()))


async def _without_load(stage: Stage) -> None:
    """Run the final reads.  Before them, removed nodes are started again with all their files, and
    open transactions are aborted, because the reads would wait for those."""
    await _or_anomaly(stage, "removed nodes", blocking, stage.backend.try_removed)
    stage.phase(FINAL)
    await stage.crashes.survive("aborting open transactions", _abort_transactions, stage)
    await stage.crashes.survive("final reads", _read_everything, stage)


async def _abort_transactions(stage: Stage) -> None:
    stage.found.anomalies += await abort_open_transactions(stage.setting)


async def _read_everything(stage: Stage) -> None:
    try:
        stage.found.anomalies += await read_everything(stage.setting, stage.leadership,
                                                       stage.crashes)
    except Unreadable as error:
        stage.found.anomalies.append(Anomaly("A28", "unreadable", str(error), "", (),
                                             stage.setting.recorder.now_us()))


def chosen(names: tuple[str, ...]) -> list[str]:
    """Return the workloads of these names."""
    return [name for name in WORKLOADS if ALL in names or name in names]


def _node_table(backend: Backend) -> Callable[[], dict[int, str]]:
    return lambda: {node: backend.address(node) for node in backend.nodes()}


async def _look_at_endings(backend: Backend, found: Conducted) -> None:
    """Check unexpected ends of nodes before the nodes are stopped; an end that the backend did not
    request is judged now."""
    anomalies, notes = judged(await blocking(backend.endings), backend.log_path)
    found.anomalies += anomalies
    found.notes += notes


async def _stop(backend: Backend) -> None:
    """Stop all nodes at once: the last ones need not transfer leadership to nodes that stop after
    them."""
    async with trio.open_nursery() as nursery:
        for node in backend.nodes():
            nursery.start_soon(blocking, backend.stop, node)


async def blocking(method: Callable[..., Any], *arguments: Any) -> Any:
    """Run a method of the backend in a thread; even a cancelled run waits for its end."""
    return await trio.to_thread.run_sync(method, *arguments)


