"""Waits of a reader: partition, offset, duration and reason, as values and as text.

Contract.  Values and text without decisions.
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft.wire.sinks import OPEN, TransactionDescription, TransactionRef


class Wait(NamedTuple):
    """A partition in which a reader waits, or has ended, before the partition's end.

    ``partition`` -1 = the whole topic, whose metadata are not known; ``offset``: the next to be
    read, and ``end_offset``: the known end of the partition (-1 = not known); ``waiting_ms``:
    milliseconds without progress; ``transaction``: the transaction that it waits for; None =
    another reason."""

    topic: str
    partition: int
    offset: int
    end_offset: int
    waiting_ms: int
    reason: str
    transaction: TransactionRef | None = None

    @property
    def run(self) -> TransactionRef | None:
        """Return ``transaction``, by the name of earlier versions."""
        return self.transaction

    def __str__(self) -> str:
        if self.partition < 0:
            return f"{self.topic}: {self.reason}"
        at = f" at offset {self.offset}" if self.offset >= 0 else ""
        return f"{self.topic}/{self.partition}{at}: {self.reason}"


def about_transaction(txn: TransactionRef, description: TransactionDescription | None,
                      why: str) -> str:
    """Return the known state of an undecided transaction as text.  ``description``: open or never
    opened, by the metadata leader; None = not known.  ``why``: error of the request to the metadata
    leader, when ``description`` is None; "" = none."""
    name = f"transaction {txn.number} of sink {txn.sink}"
    if description is not None and description.state == OPEN:
        return (f"staged by {name}, {description.name!r}, whose batch {description.batch} has been "
                f"open for {max(0, description.open_ms) // 1000} s")
    if description is not None:
        return f"staged by {name}, which was never opened; it is not void yet: {description.why}"
    return (f"staged by {name}, of which nothing is decided"
            + (f"; the metadata leader was not asked: {why}" if why else ""))
