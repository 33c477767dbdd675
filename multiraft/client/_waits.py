"""Waits of a reader, in words: which partition, where, for how long, and for what.

Contract.  Values and text; nothing here decides anything.
"""

from __future__ import annotations

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
