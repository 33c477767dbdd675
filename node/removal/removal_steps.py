"""The order in which the space of removed records returns: one pass of all that is due.

Contract. ``give_back`` is called at intervals, one call at a time. Records leave the record stores
(``node.removal.record_trim``), entries leave the Raft logs (``node.replicas.log_compaction``), and
segments without either leave the disk (``node.removal.segment_remover``).

Full disk. Checkpoints move what may go, and no regular one is due while records are refused. So
after a log start rose, or a partition was deleted, a checkpoint is required for each step that
waits for one. A disk that is full for another reason has none written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Protocol

from node.loop.steps import ROWS_PER_STEP
from node.removal.record_trim import RecordTrim
from node.removal.segment_remover import SegmentRemover, Space


class Compaction(Protocol):
    """The compaction of Raft logs: ``node.replicas.log_compaction``."""

    @property
    def is_due(self) -> bool: ...

    @property
    def has_raised(self) -> bool: ...

    def steps(self) -> Iterator[None]: ...

    def waits_for_checkpoint(self) -> bool: ...


class Store(Protocol):
    """The store's part: a checkpoint that is due by itself."""

    def require_checkpoints(self, frees_space: bool = False) -> None: ...


class RemovalSteps:
    """The passes of one node that give space back."""

    def __init__(self, store: Store, trim: RecordTrim, remover: SegmentRemover,
                 take_turn: Callable[[int], Awaitable[None]], space: Space | None = None,
                 compaction: Compaction | None = None):
        """``compaction``: None = Raft logs stay as they are."""
        self._store = store
        self._trim = trim
        self._remover = remover
        self._take_turn = take_turn
        self._space = space
        self._compaction = compaction
        self._noted = 0  # as of ``trim``, when a checkpoint was last required for it

    async def give_back(self) -> None:
        """Carry out what is due. Raises ``DiskFailed`` for an error of the disk other than a lack
        of space."""
        for _ in self._trim.steps():
            await self._take_turn(ROWS_PER_STEP)
        if self._compaction is not None:
            if self._compaction.is_due:
                for _ in self._compaction.steps():
                    await self._take_turn(ROWS_PER_STEP)
            if self._space is not None and self._space.full:
                self._require_checkpoint(self._compaction)
        await self._remover.remove_due()

    def _require_checkpoint(self, compaction: Compaction) -> None:
        if self._trim.noted != self._noted and compaction.waits_for_checkpoint():
            self._noted = self._trim.noted
        elif not compaction.has_raised:
            return
        self._store.require_checkpoints(frees_space=True)
