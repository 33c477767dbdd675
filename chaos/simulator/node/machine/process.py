"""Process of a simulated node: runs its events in virtual time, while it is alive.

Contract.  Every event carries the generation in which it was scheduled; ``begin`` and ``end`` start
a new one, and events of an older one do not run.  A paused process runs its events after
``resume``, in their order; what the disk does continues meanwhile (``after_disk``).

Theory.  A paused node keeps its memory and its page cache and receives everything later, like a
stopped process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from chaos.simulator.env.event_queue import EventQueue


class ProcessScheduler:
    """Events of one node's process, over all its boots."""

    def __init__(self, queue: EventQueue, fatal: tuple[type[Exception], ...],
                 on_fatal: Callable[[Exception], None]):
        """``on_fatal`` handles those exceptions of an event that end the process."""
        self.is_alive = False
        self.is_paused = False
        self._queue = queue
        self._fatal = fatal
        self._on_fatal = on_fatal
        self._generation = 0
        self._deferred: deque[tuple[Callable[..., None], tuple]] = deque()

    def begin(self) -> None:
        """Begin a boot."""
        self.is_alive = True
        self._renew()

    def end(self) -> None:
        """End this boot: none of its events runs any longer."""
        self.is_alive = self.is_paused = False
        self._renew()

    def _renew(self) -> None:
        self._generation += 1
        self._deferred.clear()

    def pause(self) -> None:
        """Stop the process: its events wait for ``resume``."""
        self.is_paused = True

    def resume(self, first: Callable[[], None]) -> None:
        """Continue the process: ``first`` and then everything that it missed is scheduled for
        now, in order."""
        self.is_paused = False
        deferred, self._deferred = self._deferred, deque()
        self.later(0, first)
        for callback, arguments in deferred:
            self.later(0, callback, *arguments)

    def later(self, delay_us: int, callback: Callable[..., None], *arguments: object) -> None:
        """Run ``callback`` after ``delay_us`` of virtual time, in this boot only; a paused process
        runs it after ``resume``."""
        self._queue.after(delay_us, self._run, self._generation, callback, arguments)

    def run(self, callback: Callable[..., None], *arguments: object) -> None:
        """Run ``callback`` now, or after ``resume`` in a paused process; no-op without one."""
        self._run(self._generation, callback, arguments)

    def _run(self, generation: int, callback: Callable[..., None], arguments: tuple) -> None:
        if generation != self._generation or not self.is_alive:
            return
        if self.is_paused:
            self._deferred.append((callback, arguments))
            return
        try:
            callback(*arguments)
        except self._fatal as error:
            self._on_fatal(error)

    def after_disk(self, delay_us: int, callback: Callable[..., None], *arguments: object) -> None:
        """Run ``callback`` after ``delay_us``, in this boot only, also while the process is paused,
        because the disk is not."""
        self._queue.after(delay_us, self._run_on_disk, self._generation, callback, arguments)

    def _run_on_disk(self, generation: int, callback: Callable[..., None],
                     arguments: tuple) -> None:
        if generation == self._generation and self.is_alive:
            callback(*arguments)
