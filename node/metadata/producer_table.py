"""Producer ids as the metadata grant them, and the epochs of those that were granted another one.

Contract.  As ``metadata.py``, whose state has one of these tables: a function of the commands
alone, and what a client did wrong is a ``Result`` with a code.

Theory.  An epoch is granted once, to the request that named the one before it: whoever names that
again has lost the answer, and is given it again.  Nothing but the latest epoch is kept for that, so
snapshots and commands are those of earlier releases, and a replica of an earlier release, which
refuses the repetition, has the same state afterwards.  That two who have the same id do not name
the same epoch is up to those who ask: they skip a random number of epochs
(``docs/decisions/0054``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from multiraft.wire.errors import Code
from multiraft.wire.schema import I16_MAX, I64_MAX
from node.metadata.commands import AllocateProducerIds, BumpProducerEpoch
from node.metadata.result import Result, over, refused

#: Producer ids whose epoch was ever bumped; the one bumped longest ago is forgotten.  A producer
#: that was forgotten still has to name an epoch of its own, and partitions fence by their windows.
PRODUCER_EPOCHS_MAX = 1 << 16


class ProducerIds(NamedTuple):
    """Producer ids first .. first + count - 1."""

    first: int
    count: int  # type: ignore[assignment]


class ProducerIdentity(NamedTuple):
    producer_id: int
    producer_epoch: int


class ProducerTable:
    """See the module docstring."""

    __slots__ = ("next_id", "_epochs")

    def __init__(self) -> None:
        self.next_id = 1
        #: producer id -> epoch, the one bumped longest ago first
        self._epochs: dict[int, int] = {}

    def allocate(self, command: AllocateProducerIds) -> Result:
        """Ids that nobody had before.  O(1)."""
        first = self.next_id
        if first + command.count > I64_MAX:
            return over("producer ids", I64_MAX, first + command.count)
        self.next_id += command.count
        return Result(Code.OK, ProducerIds(first, command.count))

    def bump(self, command: BumpProducerEpoch) -> Result:
        """The epoch after the one that is named, or the last one once more.  O(1)."""
        producer, epoch = command.producer_id, command.producer_epoch
        if not 0 < producer < self.next_id:
            return refused(Code.INVALID_REQUEST, f"producer id {producer} was never handed out")
        known = self._epochs.get(producer)
        if known is not None and 0 <= epoch == known - 1:
            return Result(Code.OK, ProducerIdentity(producer, known))  # proposed twice
        if known is not None and 0 <= epoch < known:
            return refused(Code.PRODUCER_FENCED,
                           f"producer {producer} epoch {epoch} was fenced by epoch {known}")
        latest = max(epoch, -1 if known is None else known)
        if latest < 0 or latest == I16_MAX:  # forgotten and unnamed, or used up: another id
            renewed = self.allocate(AllocateProducerIds(1))
            if renewed.code != Code.OK:
                return renewed
            producer, latest = renewed.value.first, -1
        self._remember(producer, latest + 1)
        return Result(Code.OK, ProducerIdentity(producer, latest + 1))

    def _remember(self, producer: int, epoch: int) -> None:
        if self._epochs.pop(producer, None) is None and len(self._epochs) >= PRODUCER_EPOCHS_MAX:
            del self._epochs[next(iter(self._epochs))]
        self._epochs[producer] = epoch

    # ---- questions ------------------------------------------------------------------------------

    def bumped(self, producer: int) -> int | None:
        """The last epoch granted by a bump; None = there was none, or it is forgotten.  O(1)."""
        return self._epochs.get(producer)

    def highest_epoch(self, producer: int) -> int:
        """The highest epoch that anybody can have of a producer id, -1 = the id was granted to
        nobody.  Once epochs are forgotten, an id that has none here may have any.  O(1)."""
        if not 0 < producer < self.next_id:
            return -1
        forgets = len(self._epochs) >= PRODUCER_EPOCHS_MAX
        return self._epochs.get(producer, I16_MAX if forgets else 0)

    # ---- checkpoints ----------------------------------------------------------------------------

    def snapshot(self) -> dict:
        """The state as CBOR-able values.  O(epochs)."""
        return {"next_producer_id": self.next_id, "producer_epochs": list(self._epochs.items())}

    def fill(self, next_id: int, epochs: Iterable) -> None:
        """The state that ``snapshot`` described."""
        self.next_id = next_id
        self._epochs = {producer: epoch for producer, epoch in epochs}

    def _check(self) -> None:
        """Every invariant; for tests and the simulator."""
        assert len(self._epochs) <= PRODUCER_EPOCHS_MAX
        assert all(0 < producer < self.next_id for producer in self._epochs)
