"""Consumer without its driver: batches, positions, waits and the end, as an application uses them.

Contract.  ``ConsumerCore`` decides and does no I/O.  ``BaseConsumer`` is the part of the drivers'
consumers that does not wait; a driver adds the iteration.
"""

from __future__ import annotations

from collections.abc import Callable

from multiraft.client._client import ClientCore
from multiraft.client._consumer import ConsumerState
from multiraft.client._gaps import Gap
from multiraft.client._lifecycle import Closed, fresh
from multiraft.client._records import FetchedBatch
from multiraft.client._waits import Wait


class ConsumerCore:
    """Consumer without a driver: ``state`` fetches, ``now_ms`` is the driver's clock, ``notify``
    wakes the tasks that wait for a change of the client's state."""

    def __init__(self, client: ClientCore, state: ConsumerState, now_ms: Callable[[], int],
                 notify: Callable[[], None]):
        self.state = state
        self.now_ms = now_ms
        self._client = client
        self._notify = notify

    def is_ready(self) -> bool:
        """Return True if ``take`` does not have to wait."""
        return self.state.ready_to_take

    def take(self) -> FetchedBatch | None:
        """Return the next batch; None = the end is reached.  Raises the error that the consumer
        ended with.  Only when ``is_ready``."""
        batch = self.state.take()
        if batch is None:
            self._release()
            if self.state.error is not None:
                raise fresh(self.state.error)
        return batch

    def close(self) -> None:
        """End the consumer with ``Closed``, and wake the tasks that wait for its batches."""
        self.state.end(Closed("the consumer was closed"))
        self._release()
        self._notify()

    def _release(self) -> None:
        self._client.remove(self.state)

    def __del__(self) -> None:
        self._release()


class BaseConsumer:
    """Methods of a consumer that do not wait, common to both drivers."""

    _core: ConsumerCore

    def position(self, partition: int) -> int | None:
        """Return the offset of the next record of ``partition``, also after the end; None = not
        known yet."""
        return self._core.state.position(partition)

    def positions(self) -> dict[int, int]:
        """Return the offset of the next record by partition, for ``start`` of a later consumer,
        which continues there.  A partition of which nothing is known yet is left out; a later
        consumer reads it from its beginning.  O(partitions)."""
        return self._core.state.positions()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._core.state.topic!r}>"

    @property
    def unread(self) -> tuple[Wait, ...]:
        """Partitions that a consumer with ``until_end`` left before their end, each with the offset
        and the reason: an open transaction of a sink.  Empty = all partitions were read."""
        return self._core.state.unread

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """Offsets that were deleted before this consumer read them, and that it passed over because
        of ``offset_reset``; in the order in which they were noticed, the latest 1,000."""
        return self._core.state.gaps

    def waits(self) -> tuple[Wait, ...]:
        """Return the partitions that wait for something else than new records: metadata, a leader,
        an answer, or the decision of a transaction; each with the reason.  O(partitions)."""
        return self._core.state.waits(self._core.now_ms())

    def close(self) -> None:
        """Stop fetching: calls that wait for a batch, and later ones, raise ``Closed``.  A consumer
        also stops at its end, after an error and when it is garbage-collected.  Closing again does
        nothing."""
        self._core.close()
