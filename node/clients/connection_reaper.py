"""The deadlines of client connections: closes those that are slow, idle, or do not read their
replies.

Contract. ``run`` checks every session once per ``SWEEP_S``. A frame that began to arrive must be
complete within ``frame_timeout_ms``, unless this node has stopped reading the connection. A
connection without open requests must send something within ``idle_timeout_ms``. The client must
read replies, at least a byte of them within ``write_timeout_ms``. While a frame waits for memory,
each large frame that holds some must receive ``CONTENDED_BYTES_MIN`` per sweep. A connection that
breaks a deadline is closed at the next sweep, with the limit in the log.

Theory. Requests record nothing: a session only counts complete events. Comparing the counters once
per second and connection is enough to detect missing progress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import trio

from node.clock import monotonic_ms
from node.limits import Limits

#: Interval between sweeps, in seconds: a deadline is detected at most this late. All limits checked
#: here are far above it.
SWEEP_S = 1.0
#: Bytes per sweep that a large frame must receive while other frames wait for memory: what a slow
#: line carries in a second.
CONTENDED_BYTES_MIN = 128 << 10


class ConnectionSample(NamedTuple):
    """The counters of a session at one moment."""

    events: int  # grows when a frame is complete
    mid_frame: bool  # part of a frame has arrived, and this node reads the rest
    owed: bool  # requests are open, or this node does not read the connection now
    arrived: int  # bytes received of the large frame that holds memory
    unsent: int  # bytes of replies that the client has not read
    sent: int  # grows with bytes of replies that the client's kernel took


class WatchedConnection(Protocol):
    """The session of a client, as the reaper sees it."""

    def sample(self) -> ConnectionSample:
        """Return the counters of the connection."""

    def account(self) -> None:
        """Update the unsent bytes of this connection in the node's memory budget."""

    def end(self, reason: str) -> None:
        """Close the connection; ``reason`` goes to the log."""


class _Observed(NamedTuple):
    """The last sample of a connection, and the times since which it has not changed."""

    sample: ConnectionSample
    arriving_ms: int  # start of the time without a complete frame
    unread_ms: int  # start of the time in which no byte of a reply was taken


class ConnectionReaper:
    """Task that closes a node's client connections that break a deadline."""

    def __init__(self, limits: Limits, sessions: Callable[[], Iterable[WatchedConnection]],
                 memory_contended: Callable[[], bool]):
        self._limits = limits
        self._sessions = sessions
        self._memory_contended = memory_contended  # () -> True while a frame waits for memory
        self._seen: dict[WatchedConnection, _Observed] = {}
        self.ended = 0

    async def run(self) -> None:
        """Sweep every ``SWEEP_S``, until cancelled."""
        while True:
            await trio.sleep(SWEEP_S)
            self.sweep(monotonic_ms())

    def sweep(self, now_ms: int) -> None:
        """Check every session once, and close those that broke a deadline. O(sessions)."""
        seen = {}
        memory_contended = self._memory_contended()
        for session in list(self._sessions()):
            session.account()
            before = self._seen.get(session)
            since = self._observed(session, before, now_ms)
            reason = self._violation(since, now_ms)
            if (
                memory_contended
                and before is not None
                and self._is_stalled(before.sample, since.sample)
            ):
                reason = f"a large frame makes no progress while others wait for memory: fewer " \
                         f"than {CONTENDED_BYTES_MIN} bytes in {SWEEP_S:.0f} s"
            if reason:
                self.ended += 1
                session.end(reason)
            else:
                seen[session] = since
        self._seen = seen

    @staticmethod
    def _is_stalled(before: ConnectionSample, now: ConnectionSample) -> bool:
        """Return True if the large frame of the last sample is still incomplete and has received
        fewer than ``CONTENDED_BYTES_MIN`` since."""
        return (before.events == now.events and before.arrived > 0
                and now.arrived - before.arrived < CONTENDED_BYTES_MIN)

    @staticmethod
    def _observed(session: WatchedConnection, before: _Observed | None, now_ms: int) -> _Observed:
        sample = session.sample()
        if before is None:
            return _Observed(sample, now_ms, now_ms)
        same_frame = (sample.events, sample.mid_frame) == before.sample[:2]
        idle_or_slow = same_frame and (sample.mid_frame or not sample.owed)
        is_unread = sample.unsent > 0 and sample.sent == before.sample.sent
        return _Observed(sample, before.arriving_ms if idle_or_slow else now_ms,
                      before.unread_ms if is_unread else now_ms)

    def _violation(self, since: _Observed, now_ms: int) -> str:
        """Return the reason for which the connection must be closed, "" = none."""
        limits, sample = self._limits, since.sample
        quiet_ms = now_ms - since.arriving_ms
        if sample.mid_frame:
            if quiet_ms > limits.frame_timeout_ms:
                return f"a frame has been arriving for {quiet_ms} ms, the limit is " \
                       f"{limits.frame_timeout_ms}"
        elif not sample.owed and quiet_ms > limits.idle_timeout_ms:
            return f"idle for {quiet_ms} ms, the limit is {limits.idle_timeout_ms}"
        if sample.unsent and now_ms - since.unread_ms > limits.write_timeout_ms:
            return f"answers have not been read for {now_ms - since.unread_ms} ms, the limit is " \
                   f"{limits.write_timeout_ms}"
        return ""
