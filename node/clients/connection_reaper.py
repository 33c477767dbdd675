"""Connections that hold a place and do nothing with it: slow, idle or deaf ones are ended.

Contract.  ``run`` looks at every session once per ``SWEEP_S``.  A frame that began to arrive is
complete within ``frame_timeout_ms``, unless this node is the one that does not read; a connection
without anything to answer says something within ``idle_timeout_ms``; answers are taken, be it a
byte, within ``answer_timeout_ms``.  While somebody waits for memory, a large frame that holds some
arrives at ``PRESSED_BYTES_MIN`` per sweep.  What breaks that ends, up to one sweep later, with the
limit in the log.

Theory.  Nothing is noted per request: a session only counts what arrived complete.  One look per
second and connection tells whether the counters stand still.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import trio

from node.clock import monotonic_ms
from node.limits import Limits

#: A deadline is noticed at most so late, in seconds; all limits here are far above.
SWEEP_S = 1.0
#: Under pressure memory belongs to those who use it: what a slow line carries in a second.
PRESSED_BYTES_MIN = 128 << 10


class ConnectionSample(NamedTuple):
    """A session at one moment."""

    events: int  # grows when something complete has arrived
    mid_frame: bool  # part of a frame has arrived, and this node would read the rest
    owed: bool  # there is something to answer, or this node does not read now
    arrived: int  # bytes of the large frame that memory is held for
    unsent: int  # bytes of answers
    sent: int  # grows with bytes of answers that were taken


class WatchedConnection(Protocol):
    """A session."""

    def look(self) -> ConnectionSample:
        """How it is now."""

    def account(self) -> None:
        """Tell the node-wide account what is unsent."""

    def end(self, reason: str) -> None:
        """Close the connection."""


class _Since(NamedTuple):
    """What was seen, and since when it has not changed."""

    look: ConnectionSample
    arriving_ms: int  # since when a frame has been arriving, or nothing has
    deaf_ms: int  # since when no answer was taken


class Deadlines:
    """Looks after the sessions of one node; see the module docstring."""

    def __init__(self, limits: Limits, sessions: Callable[[], Iterable[WatchedConnection]],
                 pressed: Callable[[], bool]):
        self._limits = limits
        self._sessions = sessions
        self._pressed = pressed  # () -> somebody waits for memory
        self._seen: dict[WatchedConnection, _Since] = {}
        self.ended = 0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await trio.sleep(SWEEP_S)
            self.sweep(monotonic_ms())

    def sweep(self, now_ms: int) -> None:
        """One look at every session.  O(sessions)."""
        seen = {}
        pressed = self._pressed()
        for session in list(self._sessions()):
            session.account()
            before = self._seen.get(session)
            since = self._compared(session, before, now_ms)
            reason = self._judged(since, now_ms)
            if pressed and before is not None and self._holds_in_vain(before.look, since.look):
                reason = f"a large frame stands still while others wait for its memory: fewer " \
                         f"than {PRESSED_BYTES_MIN} bytes in {SWEEP_S:.0f} s"
            if reason:
                self.ended += 1
                session.end(reason)
            else:
                seen[session] = since
        self._seen = seen

    @staticmethod
    def _holds_in_vain(before: ConnectionSample, now: ConnectionSample) -> bool:
        """Whether the same large frame has hardly grown."""
        return (before.events == now.events and before.arrived > 0
                and now.arrived - before.arrived < PRESSED_BYTES_MIN)

    @staticmethod
    def _compared(session: WatchedConnection, before: _Since | None, now_ms: int) -> _Since:
        look = session.look()
        if before is None:
            return _Since(look, now_ms, now_ms)
        same_frame = (look.events, look.mid_frame) == before.look[:2]
        idle_or_slow = same_frame and (look.mid_frame or not look.owed)
        deaf = look.unsent > 0 and look.sent == before.look.sent
        return _Since(look, before.arriving_ms if idle_or_slow else now_ms,
                      before.deaf_ms if deaf else now_ms)

    def _judged(self, since: _Since, now_ms: int) -> str:
        """Why the connection has to end, "" = it has not."""
        limits, look = self._limits, since.look
        quiet_ms = now_ms - since.arriving_ms
        if look.mid_frame:
            if quiet_ms > limits.frame_timeout_ms:
                return f"a frame has been arriving for {quiet_ms} ms, the limit is " \
                       f"{limits.frame_timeout_ms}"
        elif not look.owed and quiet_ms > limits.idle_timeout_ms:
            return f"idle for {quiet_ms} ms, the limit is {limits.idle_timeout_ms}"
        if look.unsent and now_ms - since.deaf_ms > limits.answer_timeout_ms:
            return f"answers have not been read for {now_ms - since.deaf_ms} ms, the limit is " \
                   f"{limits.answer_timeout_ms}"
        return ""
