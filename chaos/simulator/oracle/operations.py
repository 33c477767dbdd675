"""Operations of clients: appends and reads, with the state at invocation and at completion.

Contract.  Plain records; the workload fills them in and the invariants judge them.  An append keeps
its identity (producer, epoch, sequence) over all its attempts.  Values are unique and name their
writer, so that a value that was read identifies its append.
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
    asked: int = 0  # the node that received the last attempt
    refusals: int = 0
    base_offset: int = -1
    done: bool = False
    ambiguous: bool = False  # given up; it may be committed
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
    is_last: bool = True  # read in the last extent, whose end is the end of the partition
    log_start: int = 0  # of the partition, as the node knows it
