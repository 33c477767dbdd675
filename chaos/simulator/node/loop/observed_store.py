"""The store and the core of one boot, as the product's driver sees them.

Contract.  Each call that is an effect is one at which an armed crash may strike, and is reported to
the state checker when it takes place.  ``durable`` is called when writes have reached the disk.
"""

from __future__ import annotations

from collections import deque

from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.machine.fail_points import FailPoints
from multiraft.raft.multi_raft import MultiRaft
from multiraft.raft.ready import Ready, Writes
from multiraft.storage.io_jobs import StagedWrite
from multiraft.storage.store import Store
from node.loop.write_gather import WriteGather


class ObservedStore:
    """The store of one boot."""

    def __init__(self, env: NodeEnv, fail_points: FailPoints, store: Store):
        self.store = store
        self._node = env.node
        self._state_checker = env.state_checker
        self._effect = fail_points.effect
        self._staged: deque[tuple[StagedWrite, Writes]] = deque()
        self._submitted: list[Writes] = []

    def stage(self, writes: Writes) -> StagedWrite:
        """Stage the writes of a round."""
        self._effect()
        self._state_checker.staged(self._node, writes)
        staged = self.store.stage(writes)
        self._staged.append((staged, writes))
        return staged

    def finish(self, staged: StagedWrite) -> None:
        """Finish a staged write that is durable."""
        self._effect()
        self.store.finish(staged)

    # ---- the gathering of writes -----------------------------------------------------------

    @property
    def durable_position(self) -> int:
        """Journal position up to which all rounds are durable."""
        return self.store.durable_position

    @property
    def prepare_due(self) -> bool:
        """True if the next segment's file should be created now."""
        return self.store.prepare_due

    @property
    def seals_waiting(self) -> int:
        """Number of full segments that need their index."""
        return self.store.seals_waiting

    def submitted(self, staged: StagedWrite) -> None:
        """Record that the disk has all staged writes up to this one."""
        self.store.submitted(staged)
        while self._staged and self._staged[0][0].end <= staged.end:
            self._submitted.append(self._staged.popleft()[1])

    def fsynced(self, position: int) -> None:
        """Record that the writes before ``position`` are synced."""
        self.store.fsynced(position)

    # ---- the disk --------------------------------------------------------------------------

    def failed(self) -> None:
        """Forget the submitted writes: one of them failed, so they never count as durable."""
        self._submitted.clear()

    def durable(self, is_synced: bool) -> None:
        """Report to the state checker that all submitted writes are on the disk now, and with
        relaxed durability that nothing is unsynced if ``is_synced``."""
        submitted, self._submitted = self._submitted, []
        for writes in submitted:
            self._state_checker.durable(self._node, writes)
        if self.store.relaxed and is_synced:
            self._state_checker.synced(self._node)


class ObservedGather:
    """The gathering of writes, whose start is an effect."""

    def __init__(self, fail_points: FailPoints, gather: WriteGather):
        self._effect = fail_points.effect
        self._start_next = gather.start_next
        self.submit = gather.submit

    def start_next(self) -> None:
        """Start what has gathered."""
        self._effect()
        self._start_next()


class ObservedCore:
    """The core of one boot.  With ``gathers`` False it hands out writes only to an idle disk."""

    def __init__(self, fail_points: FailPoints, raft: MultiRaft, gather: WriteGather,
                 gathers: bool):
        self._effect = fail_points.effect
        self._raft = raft
        self._gather = gather
        self._gathers = gathers
        self.tick = raft.tick

    @property
    def has_work(self) -> bool:
        """True if the core has effects."""
        return self._raft.has_work

    @property
    def earliest_ms(self) -> int:
        """Lower bound of the next deadline."""
        return self._raft.earliest_ms

    def ready(self) -> Ready:
        """Return the effects that are due."""
        return self._raft.ready(self._gathers or self._gather.busy_since_ms is None)

    def written(self, sequence: int) -> None:
        """Record that the write ``sequence`` is durable."""
        self._effect()
        self._raft.written(sequence)
