"""Faults while the load goes on, written into the history as they begin and end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from chaos.backends.backend import KILL
from chaos.run.conduct import Stage, blocking


def rotation(kinds: list[str]) -> Callable[[Stage], Awaitable[None]]:
    """Faults of these kinds, one after the other."""
    async def torment(stage: Stage) -> None:
        rng, end = stage.setting.rng(), trio.current_time() + stage.parameters.seconds
        backend, recorder = stage.backend, stage.setting.recorder
        while trio.current_time() < end:
            node = rng.choice(backend.nodes())
            recorder.fault(KILL, True, (node,), f"node {node} is killed")
            stage.active.append(f"{KILL} {node}")
            await blocking(backend.kill, node)
            await trio.sleep(4)
            await blocking(backend.start, node)
            recorder.fault(KILL, False, (node,), f"node {node} runs again")
            stage.active.clear()
            await trio.sleep(4)
    return torment
