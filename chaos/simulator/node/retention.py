"""Retention of one boot: the product's passes and clocks, in virtual time.

Contract.  ``passes`` and ``clocks`` are those of the node.  A pass begins each interval, and its
steps are apart by a millisecond, so that anything may happen in between.  Without ``retention`` in
the parameters no pass begins, and no CLOCK is proposed.  The oracle has to find every record, so a
run with retention has no changes of settings (``tests/node/retention/test_simulated_leaders.py``
has limits).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.machine.process import ProcessScheduler
from chaos.simulator.node.machine.round_queue import RoundQueue
from chaos.simulator.node.metadata.metadata_view import MetadataView
from multiraft.liveness.clock_skew import ClockSkew
from multiraft.storage.errors import CorruptRange
from multiraft.storage.store import Store
from node.retention.clock_entries import ClockEntries, Consensus
from node.retention.retention_pass import RetentionPasses

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Interval of the passes, and of the clocks of a group, in milliseconds.
INTERVAL_MS = 500
#: Virtual time between two steps of a pass, in microseconds.
STEP_US = 1_000


class _Gate:
    """The releases of a cluster in which retention is on or off for the whole run."""

    def __init__(self, fault: str):
        self.fault = fault


class SimulatedRetention:
    """Clocks and passes of one boot."""

    def __init__(self, env: NodeEnv, process: ProcessScheduler, rounds: RoundQueue,
                 core: Consensus, store: Store, view: MetadataView, skew: ClockSkew):
        self._env = env
        self._process = process
        self._rounds = rounds
        self._store = store
        gate = _Gate("" if env.parameters.retention else "the run has no retention")
        self.clocks = ClockEntries(core, store.partition_states, skew, gate,
                                   lambda: env.clock.wall_ms, INTERVAL_MS)
        self.passes = RetentionPasses(core, store, view, self.clocks, skew, gate, INTERVAL_MS, {})

    def begin(self) -> None:
        """Begin passes, if the run has retention."""
        if self._env.parameters.retention:
            self._process.later(1_000 * INTERVAL_MS, self._begin_pass)

    def _begin_pass(self) -> None:
        self._env.event_counts["passes of retention"] += 1
        self._step(self.passes.steps(self._env.clock.wall_ms))

    def _read_block(self) -> None:
        """Read the block of an index file that the step lacked; the disk's faults are met by other
        reads."""
        wanted = self.passes.wanted_block
        if wanted is None:
            return
        job = self._store.block_job(wanted)
        try:
            job.execute()
        except CorruptRange:
            return  # the pass leaves the partition alone
        self._store.block_read(job)
        self.passes.wanted_block = None
        self._env.event_counts["blocks that retention read"] += 1

    def _step(self, steps: Iterator[None]) -> None:
        before = self.clocks.proposed
        goes_on = next(steps, steps) is not steps
        self._env.event_counts["clocks of idle groups"] += self.clocks.proposed - before
        self._rounds.request()
        self._read_block()
        if goes_on:
            self._process.later(STEP_US, self._step, steps)
        else:
            self._process.later(1_000 * INTERVAL_MS, self._begin_pass)
