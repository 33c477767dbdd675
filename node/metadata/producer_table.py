"""Producer ids that the metadata granted, and the epochs of those that were bumped.

Contract.  As ``state_machine.py``, whose state has one of these tables: a function of the commands
alone; an error of the client is a ``Result`` with a code.

Theory.  An epoch is granted once, to the request that named the one before it.  A request that
names that epoch again comes from a client that lost the reply, and gets the same answer.  Only the
latest epoch is kept for that, so snapshots and commands are those of earlier releases, and a
replica of an earlier release, which refuses the repetition, has the same state afterwards.  Two
clients with the same id must not name the same epoch; to make that unlikely, nodes skip a random
number of epochs (``docs/decisions/0054``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from multiraft.wire.errors import Code
from multiraft.wire.schema import I16_MAX, I64_MAX
from node.metadata.commands import AllocateProducerIds, BumpProducerEpoch
from node.metadata.result import Result, over, refused

#: Producer ids whose epoch was ever bumped; the one bumped longest ago is forgotten.  A producer
#: that was forgotten still has to name its epoch, and partitions fence by their producer state.
PRODUCER_EPOCHS_MAX = 1 << 16


class ProducerIds(NamedTuple):
    """Producer ids first .. first + count - 1."""

    first: int
    count: int  # type: ignore[assignment]


class ProducerIdentity(NamedTuple):
    """A producer id and one epoch of it."""

    producer_id: int
    producer_epoch: int


class ProducerTable:
    """The next free producer id and the bumped epochs of one replica's metadata."""

    __slots__ = ("next_id", "_epochs")

    def __init__(self) -> None:
        self.next_id = 1
        #: Producer id -> epoch, the one bumped longest ago first.
        self._epochs: dict[int, int] = {}

    def allocate(self, command: AllocateProducerIds) -> Result:
        """Allocate ids that were never granted before; the value is the ``ProducerIds``. Refused
        when none are left. O(1)."""
        first = self.next_id
        if first + command.count > I64_MAX:
            return over("producer ids", I64_MAX, first + command.count)
        self.next_id += command.count
        return Result(Code.OK, ProducerIds(first, command.count))

    def bump(self, command: BumpProducerEpoch) -> Result:
        """Grant the epoch after the one that is named, or repeat the last grant; the value is the
        identity. A producer whose epoch was forgotten or is used up gets a new id. Refused for an
        unknown id or a fenced epoch. O(1)."""
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
        # forgotten and not named, or epochs used up: grant another id
        if latest < 0 or latest == I16_MAX:
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
        """Return the last epoch granted by a bump; None = there was none, or it is forgotten.
        O(1)."""
        return self._epochs.get(producer)

    def highest_epoch(self, producer: int) -> int:
        """Return the highest epoch that any client can have of a producer id; -1 = the id was never
        granted.  Once epochs were forgotten, an id without an entry may have any epoch.  O(1)."""
        if not 0 < producer < self.next_id:
            return -1
        forgets = len(self._epochs) >= PRODUCER_EPOCHS_MAX
        return self._epochs.get(producer, I16_MAX if forgets else 0)

    # ---- checkpoints ----------------------------------------------------------------------------

    def snapshot(self) -> dict:
        """Return the table as values that CBOR can encode.  O(epochs)."""
        return {"next_producer_id": self.next_id, "producer_epochs": list(self._epochs.items())}

    def fill(self, next_id: int, epochs: Iterable) -> None:
        """Restore the table from the values of a snapshot."""
        self.next_id = next_id
        self._epochs = {producer: epoch for producer, epoch in epochs}

    def _check(self) -> None:
        """Assert every invariant; for tests and the simulator."""
        assert len(self._epochs) <= PRODUCER_EPOCHS_MAX
        assert all(0 < producer < self.next_id for producer in self._epochs)
