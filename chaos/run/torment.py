"""Fault schedule of a run: the rotation of nemeses, recorded in the history.

Contract.  ``rotation(names)`` is a schedule for ``conduct``: turns of random nemeses for
``Parameters.seconds``, all healed at the end.  A fault that could not begin is a note of the run:
it does not count as survived.

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
from chaos.run.conduct import Stage, blocking


class Impossible(Exception):
    """Raised when a requested fault cannot be injected here."""


def nemeses_of(wanted: Sequence[str], backend: Backend) -> list[str]:
    """Return the nemeses of these names, or of these kinds of fault; () = all that are possible.
    Raises ``Impossible``."""
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
    """Return the names that may be requested."""
    return sorted({*KINDS, *names()})


def rotation(enabled: Sequence[str]) -> Callable[[Stage], Awaitable[None]]:
    """Return the schedule of turns of the enabled nemeses."""
    async def torment(stage: Stage) -> None:
        token = trio.lowlevel.current_trio_token()

        def emit(kind: str, on: bool, nodes: list[int], text: str) -> None:
            trio.from_thread.run_sync(tell, stage, kind, on, nodes, text, trio_token=token)

        stop = threading.Event()
        turns = Rotation(stage.backend, stage.parameters.seed, emit, enabled,
                         lambda: [place.group for place in stage.setting.topics.hot])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_stop_after, stage.parameters.seconds, stop)
            await blocking(turns.run, stop)
            nursery.cancel_scope.cancel()
        note(stage, turns)
    return torment


def tell(stage: Stage, kind: str, on: bool, nodes: list[int], text: str) -> None:
    """Record that a fault begins or ends."""
    stage.setting.recorder.fault(kind, on, tuple(nodes), text)
    met = ",".join(str(node) for node in nodes if node != CLIENTS)
    label = f"{text.partition(':')[0]} {met}".strip()
    if on:
        stage.active.append(label)
    elif label in stage.active:
        stage.active.remove(label)


def note(stage: Stage, turns: Rotation) -> None:
    """Note which nemeses were used, and what could not begin."""
    played = Counter(name for turn in turns.turns for name in turn.names)
    stage.folder.note(turns=[[list(turn.names), round(turn.seconds, 1)] for turn in turns.turns],
                      nemeses_played=dict(sorted(played.items())), refusals=turns.refusals)
    stage.found.notes += [f"not done: {refusal}" for refusal in turns.refusals]


async def _stop_after(seconds: float, stop: threading.Event) -> None:
    try:
        await trio.sleep(seconds)
    finally:
        stop.set()
