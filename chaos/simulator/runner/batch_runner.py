"""Runner of many seeds in parallel processes.

Contract.  Seeds are judged twice: by the simulator's invariants while they run, and by the checkers
of all layers from the history of their clients.  ``run_seeds`` yields each seed's ``Result`` when
it is complete, in no order.  The result of a seed does not depend on the process that runs it.
When the time is up, no more seeds are started, and running ones are finished.  Closing the
generator ends the processes after their current seed.

Theory.  A simulation has many reference cycles.  To free one, the garbage collector visits more
than a million objects, which took a sixth of the time of the seed.  So each seed has a process of
its own, and its memory is never collected.
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
from chaos.simulator.simulation import PROMISED_LOSS, Result

#: Upper bound (exclusive) of fresh seeds: short enough to be typed.
FRESH_BELOW = 1 << 40


def fresh_seed() -> int:
    """Return a random seed, which has very likely never run."""
    return secrets.randbelow(FRESH_BELOW)


def run_one(seed: int, variant: Variant, sink: Callable[[str], None] | None = None,
            recording: Recording | None = None) -> Result:
    """Run one seed in this process, and return its result. Unless the simulator found a failure, or
    relaxed durability lost records as it may, anomalies of the checkers make it one.

    ``sink`` gets every line of its trace.  ``recording``, which must be new, gets the operations of
    its clients.
    """
    recording = Recording() if recording is None else recording
    with planted(BUGS.get(variant.bug)):
        result = simulation.run(variant.parameters(seed), sink, recording)
    # The checkers would report records that relaxed durability was allowed to lose.
    if not result.failure and not result.event_counts[PROMISED_LOSS]:
        result.failure = "\n".join(f"{found.id} {found.name}: {found.text}"
                                   for found in check(recording.finish()).anomalies)
    return result


def numbers(first: int, seeds: int | None, minutes: float | None) -> Iterator[int]:
    """Yield seeds from ``first`` on, ``seeds`` of them or for ``minutes``; with both, whichever
    ends first, with neither without end."""
    deadline = time.monotonic() + minutes * 60 if minutes is not None else None
    number = first
    while ((seeds is None or number < first + seeds)
           and (deadline is None or time.monotonic() < deadline)):
        yield number
        number += 1


def run_seeds(seeds: Iterator[int], variant: Variant, jobs: int) -> Iterator[Result]:
    """Yield the results of all seeds as they are complete. ``jobs`` run at a time: 1 in this
    process, more in worker processes. Raises ``ChildProcessError`` when the process of a seed ends
    without a result."""
    if jobs == 1:
        for seed in seeds:
            yield run_one(seed, variant)
        return
    # Spawned: a fork of a process with threads may inherit a lock that no thread releases.
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
    """Run one seed in a fork of this process, which has no threads and has imported all code; wait
    for its result. Raises ``ChildProcessError`` when it ends without one."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run_and_send, args=(seed, variant, sender))
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


def _run_and_send(seed: int, variant: Variant, sender: Connection) -> None:
    gc.disable()
    sender.send(run_one(seed, variant))


def _finished(running: list[Future[Result]]) -> Iterator[Result]:
    """Wait until at least one of ``running`` has finished. Remove all finished ones from the list,
    and yield their results in the order of their start."""
    done, _ = wait(running, return_when=FIRST_COMPLETED)
    finished = [future for future in running if future in done]
    running[:] = [future for future in running if future not in done]
    for future in finished:
        yield future.result()
