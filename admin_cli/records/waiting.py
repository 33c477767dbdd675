"""Waits for the client, and those of a reader, reported on the terminal.

Contract.  ``until`` drives a client until a condition holds.  ``report_waits`` passes batches on as
they come.  When a partition has waited for anything but new records for ``TOLD_AFTER_MS``, it
reports the position and the reason, and again after longer and longer pauses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from admin_cli.console.output import note, plural

#: Elections and confirmations are over by then: a longer wait needs an explanation.
TOLD_AFTER_MS = 5_000
#: Limit of the pauses between two reports.
TOLD_AGAIN_MS_MAX = 300_000
#: Partitions named.
NAMED_MAX = 3


def until(client: Any, is_over: Callable[[], bool], deadline_ms: int | None = None) -> bool:
    """Send and receive until ``is_over``.  Return False when that is not so by ``deadline_ms`` (of
    ``now_ms``; None = wait without limit)."""
    wait_ms = None
    while not is_over():
        if deadline_ms is not None:
            wait_ms = deadline_ms - now_ms()
            if wait_ms <= 0:
                return False
        client.advance()
        if not is_over():
            client.listen(wait_ms)
    return True


def report_waits(consumer: Any,
                 explain: Callable[[Sequence[Any]], Sequence[str]] = lambda waits: (),
                 ) -> Iterator[Any]:
    """Yield the batches of a consumer until it ends, and report on standard error what it waits
    for; ``explain`` returns more sentences about some waits."""
    pause_ms = TOLD_AFTER_MS
    due_ms = now_ms() + pause_ms
    while True:
        while not consumer.wait(max(1, due_ms - now_ms())) or now_ms() >= due_ms:
            waits = consumer.waits()
            longest_ms = max((wait.waiting_ms for wait in waits), default=0)
            if longest_ms >= TOLD_AFTER_MS:
                long = [wait for wait in waits if wait.waiting_ms >= TOLD_AFTER_MS]
                note("; ".join([_sentence(long), *explain(long)]))
                pause_ms = min(2 * pause_ms, TOLD_AGAIN_MS_MAX)
                due_ms = now_ms() + pause_ms
            else:
                pause_ms = TOLD_AFTER_MS
                due_ms = now_ms() + TOLD_AFTER_MS - longest_ms
        try:
            batch = next(consumer)
        except StopIteration:
            return
        yield batch


def _sentence(waits: Sequence[Any]) -> str:
    named = "; ".join(f"{wait} ({wait.waiting_ms // 1000} s)" for wait in waits[:NAMED_MAX])
    more = len(waits) - NAMED_MAX
    return f"waiting for {named}" + (f"; and {plural(more, 'other partition')}" if more > 0 else "")


def now_ms() -> int:
    """Return the monotonic time, in milliseconds."""
    return time.monotonic_ns() // 1_000_000
