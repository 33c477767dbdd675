"""Coroutines of one boot that wait until an entry of a group is applied here."""

from __future__ import annotations

from chaos.simulator.node.machine.coroutines import Future
from chaos.simulator.node.machine.process import ProcessScheduler
from multiraft.storage.store import Store


class AppliedWaits:
    """Waiting coroutines of one boot."""

    def __init__(self, process: ProcessScheduler, store: Store):
        self._process = process
        self._store = store
        self.waiting: list[tuple[int, int, Future]] = []  # (group, index, waiting coroutine)

    async def wait(self, group: int, index: int, timeout_s: float) -> bool:
        """Wait until the entry ``index`` of the group is applied on this node, at most
        ``timeout_s``; return True if it is."""
        if not self._has_applied(group, index):
            waiting = (group, index, Future())
            self.waiting.append(waiting)
            self._process.later(int(timeout_s * 1e6), waiting[2].set_result)
            await waiting[2]
            if waiting in self.waiting:
                self.waiting.remove(waiting)
        return self._has_applied(group, index)

    def _has_applied(self, group: int, index: int) -> bool:
        tail = self._store.partition_states.get(group)
        return tail is not None and tail.applied_index >= index

    def notify(self, group: int) -> None:
        """Resume the coroutines that wait for entries of the group which are applied now."""
        for waiting in [each for each in self.waiting
                        if each[0] == group and self._has_applied(group, each[1])]:
            self.waiting.remove(waiting)
            waiting[2].set_result()
