"""The event loop's side of the liveness thread: takes lease events, answers nudges, publishes
leadership digests.

Contract. ``run`` wakes on every nudge (once per ``heartbeat_interval_ms``) and on every event.
``publish`` runs after each round and replaces one tuple if the digests changed. If the thread has
failed, ``run`` raises ``LivenessFailed`` and the node stops. ``run`` also logs, once per change,
that the thread found this node's wall clock far from those of the others, or near again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from multiraft.liveness.store_liveness import deliver
from node.clock import monotonic_ms, monotonic_us
from node.errors import LivenessFailed
from node.histogram import Histogram

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from node.loop.write_gather import WriteGather
    from node.peers.liveness_thread import LivenessThread


class LeaseEvents:
    """Task that passes the events of the liveness thread on to the core."""

    def __init__(self, core: MultiRaft, liveness: LivenessThread, disk: WriteGather,
                 request_round: Callable[[], None], probe_file: int, probe_ms: int,
                 log: logging.Logger):
        self._core = core
        self._liveness = liveness
        self._disk = disk
        self._request_round = request_round
        self._probe_file = probe_file
        self._probe_ms = probe_ms
        self._log = log
        self._published_version = -1
        self._is_clock_far = False
        self.loop_delay = Histogram()  # microseconds from a nudge until the loop handles it

    async def run(self) -> None:
        """Deliver lease events to the core and answer nudges, until cancelled; probe the disk if it
        was not written for ``probe_ms``. Raises ``LivenessFailed`` when the liveness thread has
        ended by an error."""
        liveness, probed_us = self._liveness, 0
        while True:
            await trio.lowlevel.wait_readable(liveness.wake_fd)
            os.eventfd_read(liveness.wake_fd)
            if liveness.failure is not None:
                raise LivenessFailed("the liveness thread ended") from liveness.failure
            liveness.loop_seen_ms = monotonic_ms()
            if liveness.probed_us != probed_us:
                probed_us = liveness.probed_us
                self.loop_delay.observe(monotonic_us() - probed_us)
            if liveness.events:
                deliver([liveness.events.popleft() for _ in range(len(liveness.events))],
                        self._core)
                self._request_round()
            if liveness.clock_skew.is_far is not self._is_clock_far:
                self._report_clock()
            self._disk.probe(self._probe_file, self._probe_ms)

    def _report_clock(self) -> None:
        """Log that this node's wall clock became far from the others, or near again."""
        skew = self._liveness.clock_skew
        self._is_clock_far = skew.is_far
        if self._is_clock_far:
            self._log.warning("clock_skew_found", extra={"skew_ms": skew.skew_ms})
        else:
            self._log.info("clock_skew_ended", extra={"skew_ms": skew.skew_ms})

    def publish(self) -> None:
        """Hand the leadership digests of this node to the liveness thread, if they changed in this
        round."""
        version = self._core.status.digests_version
        if version != self._published_version:
            self._published_version = version
            self._liveness.published = self._core.status.digests()
