"""Waits of a reader, in words: which partition, where, for how long, and for what.

Contract.  Values and text; nothing here decides anything.  The last two classes are what the
consumers of both clients offer of it.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from multiraft.wire.sinks import OPEN, RunFact, RunRef


class Wait(NamedTuple):
    """A partition that a reader waits at, or ended at, before its end.  ``partition`` -1 = the
    whole topic, whose metadata are not known; ``offset`` the next one to be read, ``end_offset``
    the partition's end as far as the reader knows it, -1 = not known; ``waiting_ms`` since the
    reader made no progress there; ``run`` of a sink that it waits for."""

    topic: str
    partition: int
    offset: int
    end_offset: int
    waiting_ms: int
    reason: str
    run: RunRef | None = None

    def __str__(self) -> str:
        if self.partition < 0:
            return f"{self.topic}: {self.reason}"
        at = f" at offset {self.offset}" if self.offset >= 0 else ""
        return f"{self.topic}/{self.partition}{at}: {self.reason}"


def about_run(run: RunRef, fact: RunFact | None, why: str) -> str:
    """What is known of a run that a reader waits for; ``why`` nothing certain is known of it."""
    name = f"run {run.run} of sink {run.sink}"
    if fact is not None and fact.state == OPEN:
        return (f"staged by {name}, {fact.name!r}, whose batch {fact.batch} has been open for "
                f"{max(0, fact.open_ms) // 1000} s")
    if fact is not None:
        return f"staged by {name}, which nobody has opened; it is not void yet: {fact.why}"
    return (f"staged by {name}, of which nothing is decided"
            + (f"; the metadata leader was not asked: {why}" if why else ""))


class _Waits:
    """Part of both consumers, which have ``_state``."""

    __slots__ = ()

    @property
    def unread(self) -> tuple[Wait, ...]:
        """Partitions that a consumer with ``until_end`` left before their end, each with the offset
        and the reason: an open run of a sink.  Empty = all of it was read."""
        return self._state.unread


class BlockingWaits(_Waits):
    """Part of the blocking consumer, which has ``_client`` as well."""

    __slots__ = ()

    def waits(self) -> tuple[Wait, ...]:
        """Partitions that wait now for something else than new records, each with the reason.
        O(partitions)."""
        return self._state.waits(_now_ms())

    def wait(self, timeout_ms: int) -> bool:
        """Wait until there is a batch or nothing more to wait for; False when that takes longer."""
        deadline_ms = _now_ms() + timeout_ms
        while not self._state.ready_to_take:
            left_ms = deadline_ms - _now_ms()
            if left_ms <= 0:
                return False
            self._client.advance()
            if not self._state.ready_to_take:
                self._client.listen(left_ms)
        return True


class AsyncWaits(_Waits):
    """Part of the trio consumer, which has ``_client`` as well."""

    __slots__ = ()

    def waits(self) -> tuple[Wait, ...]:
        """As of the blocking consumer."""
        return self._state.waits(self._client.now_ms())


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
