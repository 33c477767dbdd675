"""Many seeds, in as many processes as there are cores to spend on them.

Contract.  Seeds are judged twice: by the simulator's invariants while they run, and by the checkers
of all layers from what their clients were told.  ``run_seeds`` yields each seed's ``Result`` as it
is done, in no order; a seed is a function of itself, whichever process runs it.  When the time is
up no seed is started any more, and those under way are finished.  Closing the generator ends the
processes after the seed they are at.

Theory.  A world is full of circles: what a seed leaves is found by looking at each of more than a
million objects, which took a sixth of the time of the seed.  So each has a process of its own, and
nothing of it is looked for.
"""

from __future__ import annotations

import gc
import multiprocessing
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing.connection import Connection

from chaos.checkers import check
from chaos.planted.bug import planted
from chaos.planted.catalogue import BUGS
from chaos.simulator import simulation
from chaos.simulator.clients.history import Recording
from chaos.simulator.runner.variant import Variant
from chaos.simulator.simulation import Result

#: Fresh seeds are drawn below this: short enough to be typed.
FRESH_BELOW = 1 << 40


def fresh_seed() -> int:
    """A seed that hardly anybody has run."""
    return secrets.randbelow(FRESH_BELOW)


def run_one(seed: int, variant: Variant, sink: Callable[[str], None] | None = None,
            recording: Recording | None = None) -> Result:
    """One seed, in this process; ``sink`` gets every line of its trace, ``recording``, which is
    new, what its clients ask and are told."""
    recording = Recording() if recording is None else recording
    with planted(BUGS.get(variant.bug)):
        result = simulation.run(variant.parameters(seed), sink, recording)
    # What relaxed durability may lose, clients miss.
    if not result.failure and not result.marks["promised loss"]:
        result.failure = "\n".join(f"{found.id} {found.name}: {found.text}"
                                   for found in check(recording.finish()).anomalies)
    return result


def numbers(first: int, seeds: int | None, minutes: float | None) -> Iterator[int]:
    """Seeds from ``first`` on, so many or for so long; both = whichever ends first."""
    deadline = time.monotonic() + minutes * 60 if minutes is not None else None
    number = first
    while ((seeds is None or number < first + seeds)
           and (deadline is None or time.monotonic() < deadline)):
        yield number
        number += 1


def run_seeds(seeds: Iterator[int], variant: Variant, jobs: int) -> Iterator[Result]:
    """Run them all, ``jobs`` at a time."""
    if jobs == 1:
        for seed in seeds:
            yield run_one(seed, variant)
        return
    # Spawned: a fork of a process that has threads may inherit a lock that nobody releases.
    executor = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"))
    try:
        yield from _in_pool(executor, seeds, variant, jobs)
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def _in_pool(executor: ProcessPoolExecutor, seeds: Iterator[int], variant: Variant,
             jobs: int) -> Iterator[Result]:
    running: list[Future[Result]] = []
    for seed in seeds:
        running.append(executor.submit(_run_apart, seed, variant))
        while len(running) >= jobs:
            yield from _finished(running)
    while running:
        yield from _finished(running)


def _run_apart(seed: int, variant: Variant) -> Result:
    """One seed, in a fork of this process, which has no threads and has all of the code."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run_and_tell, args=(seed, variant, sender))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        process.join()
        raise ChildProcessError(
            f"seed {seed} ended its process with exit code {process.exitcode}") from None
    finally:
        receiver.close()
        process.join()


def _run_and_tell(seed: int, variant: Variant, sender: Connection) -> None:
    gc.disable()
    sender.send(run_one(seed, variant))


def _finished(running: list[Future[Result]]) -> Iterator[Result]:
    """Wait for one at least, in the order in which they were started."""
    done, _ = wait(running, return_when=FIRST_COMPLETED)
    finished = [future for future in running if future in done]
    running[:] = [future for future in running if future not in done]
    for future in finished:
        yield future.result()
