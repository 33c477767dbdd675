"""Record of one process: points with their times, and the probes that record them in a node.

Contract.  ``Recorder.mark`` takes about half a microsecond, and the record of a wait about five at
each end, because it reads the thread's scheduling statistics.  Above ``EVENTS_MAX`` events the
record ends.  Only the thread that made the recorder marks, but for passes of the garbage collector,
which stop every thread.  ``probe_node`` replaces methods of the node's classes and must run before
a node is made.
"""

from __future__ import annotations

import gc
import importlib
import os
import threading
from array import array
from collections.abc import Callable
from pathlib import Path
from time import monotonic_ns
from typing import Any

import trio

from benchmarks.append_trace import points

#: Events of one process: about 25 for an append at the leader.
EVENTS_MAX = 4_000_000
#: Numbers of an event: point, nanoseconds of the monotonic clock, value.
WIDTH = 3

#: Classes of a node that are probed, by module: nothing imports a node, so they are found by name.
PROBED = (("clients.client_connection", "ClientConnection"),
          ("clients.session", "Sessions"),
          ("loop.disk_worker", "DiskWorker"), ("loop.poller", "Poller"),
          ("loop.ready_driver", "ReadyDriver"), ("loop.round_loop", "RoundLoop"),
          ("peers.append_links", "Peers"), ("peers.listener", "_Incoming"))


class Recorder:
    """Events of the thread that makes it."""

    def __init__(self) -> None:
        self._events = array("q")
        self._thread = threading.get_native_id()
        self._schedstat = os.open(f"/proc/self/task/{self._thread}/schedstat", os.O_RDONLY)

    def mark(self, point: int, value: int = 0) -> None:
        """Record that ``point`` is reached now."""
        if len(self._events) < WIDTH * EVENTS_MAX:
            self._events.extend((point, monotonic_ns(), value))

    def runnable_ns(self) -> int:
        """Return the time for which the thread has waited for a processor since its start."""
        return int(os.pread(self._schedstat, 100, 0).split()[1])

    def wait_begins(self) -> None:
        """Record that the thread waits for arrivals from now on."""
        self.mark(points.WAIT_BEGIN, self.runnable_ns())

    def wait_ends(self) -> None:
        """Record that the thread has returned from waiting."""
        if len(self._events) < WIDTH * EVENTS_MAX:  # the time first: reading the other takes time
            self._events.extend((points.WAIT_END, monotonic_ns(), self.runnable_ns()))

    def write(self, path: Path) -> None:
        """Write the record to ``path``, whole or not at all."""
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            self._events.tofile(file)
        part.replace(path)


def read(path: Path) -> list[tuple[int, int, int]]:
    """Return the events of a record, in the order of time."""
    events = array("q")
    with path.open("rb") as file:
        events.frombytes(file.read())
    return sorted(zip(events[1::WIDTH], events[::WIDTH], events[2::WIDTH], strict=True))


class TracedWaits:
    """An epoll or poll object whose waits are recorded."""

    def __init__(self, inner: Any, recorder: Recorder):
        self._inner = inner
        self._recorder = recorder

    def poll(self, *arguments: Any) -> Any:
        self._recorder.wait_begins()
        found = self._inner.poll(*arguments)
        self._recorder.wait_ends()
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class TracedScheduler:
    """Instrument of trio that records when the scheduler waits."""

    def __init__(self, recorder: Recorder):
        self._recorder = recorder

    def before_io_wait(self, _timeout: float) -> None:
        self._recorder.wait_begins()

    def after_io_wait(self, _timeout: float) -> None:
        self._recorder.wait_ends()


def probe_node(recorder: Recorder) -> None:
    """Have the classes of the node record their points, from now on, in this process."""
    mark = recorder.mark
    (session, sessions, worker_class, poller_class, driver, loop, peers, incoming) = (
        getattr(importlib.import_module(f"node.{module}"), name) for module, name in PROBED)

    def before(owner: type, name: str, point: int, value: Callable[[Any], int] = lambda _: 0,
               when: Callable[[Any], bool] = lambda _: True) -> None:
        """Mark ``point`` before each call of a method."""
        inner = getattr(owner, name)

        def probed(self: Any, *arguments: Any) -> Any:
            if when(self):
                mark(point, value(self))
            return inner(self, *arguments)

        setattr(owner, name, probed)

    before(session, "receive", points.CLIENT_RECEIVED)
    before(incoming, "receive", points.PEER_RECEIVED, lambda self: self._peer)
    before(peers, "flush", points.PEERS_FLUSHED, when=lambda self: self._collected)
    before(sessions, "flush", points.CLIENTS_FLUSHED, when=lambda self: self.to_flush)

    round_of, run_loop = driver.step, loop.run
    make_poller, make_worker = poller_class.__init__, worker_class.__init__

    def step(self: Any, now_ms: int) -> None:
        mark(points.ROUND_BEGIN)
        round_of(self, now_ms)
        mark(points.ROUND_END)

    def poller(self: Any) -> None:
        make_poller(self)
        self._epoll = TracedWaits(self._epoll, recorder)

    def worker(self: Any, *arguments: Any, **named: Any) -> None:
        make_worker(self, *arguments, **named)
        self._queue = self.gather._queue = TracedQueue(self._queue, recorder)

    async def run(self: Any, **named: Any) -> None:
        trio.lowlevel.add_instrument(TracedScheduler(recorder))
        await run_loop(self, **named)

    patched: dict[type, dict[str, Any]] = {
        driver: {"step": step}, loop: {"run": run}, poller_class: {"__init__": poller},
        worker_class: {"__init__": worker}}
    for owner, methods in patched.items():
        for name, method in methods.items():
            setattr(owner, name, method)

    def collected(phase: str, info: dict[str, int]) -> None:
        mark(points.GC_BEGIN if phase == "start" else points.GC_END, info["generation"])

    gc.callbacks.append(collected)


class TracedQueue:
    """The queue of the disk thread, with its submissions and completions recorded."""

    def __init__(self, inner: Any, recorder: Recorder):
        self._inner = inner
        self._recorder = recorder

    def submit(self, number: int, buffers: Any, *arguments: Any) -> Any:
        self._recorder.mark(points.WRITE_SUBMITTED, sum(map(len, buffers)))
        return self._inner.submit(number, buffers, *arguments)

    def completions(self) -> Any:
        found = self._inner.completions()
        for _token, _error, _size, micros in found:
            self._recorder.mark(points.WRITE_COLLECTED, micros)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
