"""Fault schedule of a run: the rotation of nemeses, recorded in the history.

Contract.  ``rotation(names)`` is a schedule for ``run_phases``: turns of random nemeses for
``RunParameters.seconds``, all healed at the end.  A fault that could not begin is a note of the
run: it does not count as survived.

Theory.  The rotation blocks, so it has a thread; its events are passed to trio's thread and take
their place in the single order of events there.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import trio

from chaos.backends.backend import CLIENTS, KINDS, Backend
from chaos.nemeses.rotation import Rotation, names
from chaos.run.runner import RunState, blocking


class Impossible(Exception):
    """Raised when a requested fault cannot be injected here."""


def nemeses_of(wanted: Sequence[str], backend: Backend) -> list[str]:
    """Return the names of the nemeses that ``wanted``, their names or kinds of fault, selects;
    without any, of all that are possible. Raises ``Impossible`` when the backend cannot inject one
    of them."""
    possible = names(sorted(backend.kinds))
    if not wanted:
        return possible
    chosen: list[str] = []
    for name in wanted:
        found = [name] if name in possible else names([name]) if name in backend.kinds else []
        if not found:
            why = backend.left_out.get(name, "none of its faults can be caused here")
            raise Impossible(f"{name}: {why}")
        chosen += found
    return sorted(set(chosen))


def choices() -> list[str]:
    """Return the names of all nemeses and kinds of fault, sorted."""
    return sorted({*KINDS, *names()})


def rotation(enabled: Sequence[str]) -> Callable[[RunState], Awaitable[None]]:
    """Return a schedule that runs turns of the enabled nemeses for ``RunParameters.seconds``, in a
    thread, and returns when all is healed. It raises ``BackendError`` when that fails."""
    async def schedule(run_state: RunState) -> None:
        token = trio.lowlevel.current_trio_token()

        def emit(kind: str, on: bool, nodes: list[int], text: str) -> None:
            trio.from_thread.run_sync(
                record_fault, run_state, kind, on, nodes, text, trio_token=token
            )

        stop = threading.Event()
        turns = Rotation(run_state.backend, run_state.parameters.seed, emit, enabled,
                         lambda: [place.group for place in run_state.context.topics.hot])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_stop_after, run_state.parameters.seconds, stop)
            await blocking(turns.run, stop)
            nursery.cancel_scope.cancel()
        note(run_state, turns)
    return schedule


def record_fault(run_state: RunState, kind: str, on: bool, nodes: list[int], text: str) -> None:
    """Record in the history and for the progress line that a fault begins (``on``) or ends. Runs in
    trio's thread."""
    run_state.context.recorder.fault(kind, on, tuple(nodes), text)
    met = ",".join(str(node) for node in nodes if node != CLIENTS)
    label = f"{text.partition(':')[0]} {met}".strip()
    if on:
        run_state.active.append(label)
    elif label in run_state.active:
        run_state.active.remove(label)


def note(run_state: RunState, turns: Rotation) -> None:
    """Note in ``run.json`` which turns and nemeses were run, and there and in the findings what was
    refused."""
    played = Counter(name for turn in turns.turns for name in turn.names)
    run_state.folder.note(
        turns=[[list(turn.names), round(turn.seconds, 1)] for turn in turns.turns],
        nemeses_played=dict(sorted(played.items())),
        refusals=turns.refusals,
    )
    run_state.found.notes += [f"not done: {refusal}" for refusal in turns.refusals]


async def _stop_after(seconds: float, stop: threading.Event) -> None:
    try:
        await trio.sleep(seconds)
    finally:
        stop.set()
