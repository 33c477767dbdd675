"""What clients ask: appends and reads, with what they know at invocation and at completion.

Contract.  Plain records, filled in by the workload and judged by the invariants.  An append keeps
its identity (producer, epoch, sequence) over all its attempts; values are unique and say who wrote
them, so that a read value names its append.
"""

from __future__ import annotations

from dataclasses import dataclass

ACKS_NONE, ACKS_LEADER, ACKS_COMMIT = 0, 1, -1


@dataclass(slots=True, eq=False)
class AppendOperation:
    """One batch of one producer, retried until it is acknowledged or its producer gives up."""

    producer: int
    epoch: int
    sequence: int
    count: int
    partition: int
    acks: int
    payload: bytes
    invoked_us: int
    floor: int  # highest acknowledged offset of the partition at invocation; -1 = none
    number: int = 0  # counts the batches of its producer and partition
    attempts: int = 0
    asked: int = 0  # the node that was asked last
    refusals: int = 0
    base_offset: int = -1
    done: bool = False
    ambiguous: bool = False  # given up; it may have happened
    last_error: str = ""

    def __repr__(self) -> str:
        return (f"append p{self.producer}.{self.epoch} seq {self.sequence}+{self.count} to "
                f"partition {self.partition}")


@dataclass(slots=True)
class ReadOperation:
    """One fetch that was answered."""

    reader: int
    node: int
    partition: int
    offset: int
    high_watermark: int
    batches: tuple[bytes, ...]
    is_last: bool = True  # of the parts of a partition: its end is the partition's
