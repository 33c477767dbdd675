"""Epoch histories of partitions that are not in the group of their hash, and pending switches.

Contract.  A part of the metadata state machine: functions of state and command.  A switch to
another group is *decided* here first and *published* here last.  Between the two its progress is
only in the logs of the two groups (``replicas/partition_switch.py``).  Both commands compare and
set the partition's epoch, so repetitions change nothing and a late command is refused.

Invariants.  Epochs and start offsets of a history ascend: an epoch entry without offsets is
replaced by the next one.  A partition has at most one switch that is decided and not published, and
the epoch of that switch is the last one of the history + 1.  A decided switch ends by being
published or with the deletion of the topic; only another switch reverts it.

Theory.  The start offset, the producers' state and the leader epoch base are in the log of the
group that the partition leaves.  The next group takes them from there and does not wait for the
metadata.  Publishing serves readers: it tells which group holds the offsets from the start offset
on.
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft.codec import shapes
from multiraft.partitions.state import PARTITIONS_PER_GROUP_MAX
from multiraft.wire.errors import Code
from node.metadata.commands import DecideSwitch, PublishSwitch, TrimEpochHistory
from node.metadata.result import Result, over, refused

#: Partitions that are not in the group of their hash.  Hashing produces exceptions for far less
#: than 1 % of the partitions; switches produce one per partition moved.  Every replica holds and
#: every checkpoint contains them.  When the table is full, new partitions are placed by the hash
#: and no more partitions are switched: balance suffers, creation of topics does not.
EXCEPTIONS_MAX = 1 << 16

#: Entries of one partition: groups that hold a part of it that retention has not dropped yet.  Each
#: is in every copy of the metadata, and a lookup by timestamp may ask the leader of each.
EPOCH_ENTRIES_MAX = 64

#: Switches that are decided and not published; a leader scans all of them when one changes.
SWITCHES_MAX = 1024

#: Epoch of a partition's first entry; each switch to another group adds one.
FIRST_EPOCH = 1

# without leader epoch base: snapshots of versions 1 and 2
_EPOCH_ENTRY_1 = (shapes.UINT, shapes.UINT, shapes.UINT)
_EPOCH_ENTRY = (shapes.UINT,) * 4
#: Shape of this table in a snapshot, without the histories.
_SHAPE = {"switches": [(shapes.UINT, shapes.UINT, shapes.UINT)]}


class EpochEntry(NamedTuple):
    """The group that holds a partition's offsets from ``start_offset`` on.  Its batches there are
    stamped with ``leader_epoch_base`` + term."""

    epoch: int
    group: int
    start_offset: int
    leader_epoch_base: int = 0


class Switch(NamedTuple):
    """A decided switch: the partition continues in ``to_group`` at ``epoch``."""

    epoch: int
    to_group: int


EpochHistory = tuple[EpochEntry, ...]


class PlacementTable:
    """The epoch histories (``epoch_histories``) and pending switches of one replica's metadata."""

    __slots__ = ("epoch_histories", "switches")

    def __init__(self) -> None:
        self.epoch_histories: dict[int, EpochHistory] = {}
        self.switches: dict[int, Switch] = {}

    # ---- commands -------------------------------------------------------------------------------

    def decide(self, command: DecideSwitch, history: EpochHistory, pool_size: int,
               partitions_there: int) -> Result:
        """Record the decision to switch a partition to another group; the value is the switch. A
        repetition changes nothing. Refused if the epoch is not the next one, another switch is
        pending, or a limit is reached. ``history``: the partition's; ``partitions_there``: number
        of partitions in the new group. O(switches)."""
        last, pending = history[-1], self.switches.get(command.partition)
        wanted = Switch(command.epoch, command.to_group)
        if wanted in (pending, Switch(last.epoch, last.group)):
            return Result(Code.OK, wanted)  # proposed twice
        if pending is not None:
            return refused(Code.STALE_EPOCH, f"partition {command.partition} is being switched to "
                           f"group {pending.to_group} at epoch {pending.epoch}: wait for that",
                           value=pending.epoch)
        if command.epoch != last.epoch + 1:
            return refused(Code.STALE_EPOCH, f"partition {command.partition} is at epoch "
                           f"{last.epoch} in group {last.group}: the next one is "
                           f"{last.epoch + 1}, not {command.epoch}", value=last.epoch)
        if not 0 < command.to_group <= pool_size:
            return refused(Code.INVALID_REQUEST, f"there is no group {command.to_group} for "
                           f"partitions, the pool has groups 1 to {pool_size}")
        if command.to_group == last.group:
            return refused(Code.INVALID_REQUEST, f"partition {command.partition} is in group "
                           f"{last.group} already")
        return (self._full(command.partition, history, partitions_there)
                or self._begin(command.partition, wanted))

    def _begin(self, partition: int, switch: Switch) -> Result:
        self.switches[partition] = switch
        return Result(Code.OK, switch)

    def _full(self, partition: int, history: EpochHistory, partitions_there: int) -> Result | None:
        if len(history) >= EPOCH_ENTRIES_MAX:
            return over("groups that hold a part of the partition", EPOCH_ENTRIES_MAX,
                        len(history) + 1)
        if len(self.switches) >= SWITCHES_MAX:
            return over("switches under way", SWITCHES_MAX, len(self.switches) + 1)
        if partition not in self.epoch_histories and not self.room:
            return over("partitions elsewhere than the hash says", EXCEPTIONS_MAX,
                        EXCEPTIONS_MAX + 1)
        if partitions_there >= PARTITIONS_PER_GROUP_MAX:
            return over("partitions of the group", PARTITIONS_PER_GROUP_MAX, partitions_there + 1)
        return None

    @property
    def room(self) -> int:
        """Number of partitions that may still become exceptions.  O(switches)."""
        coming = sum(partition not in self.epoch_histories for partition in self.switches)
        return EXCEPTIONS_MAX - len(self.epoch_histories) - coming

    def publish(self, command: PublishSwitch, history: EpochHistory) -> Result:
        """Append the entry of a switched partition to its history and end the switch: the next
        group has opened the partition. The value is the entry that the partition leaves; None =
        published before."""
        partition, last = command.partition, history[-1]
        if command.epoch <= last.epoch:
            return Result(Code.OK)
        switch = self.switches.get(partition)
        if switch is None or switch.epoch != command.epoch:
            return refused(Code.STALE_EPOCH, f"partition {partition} has no switch at epoch "
                           f"{command.epoch}, it is at {last.epoch}", value=last.epoch)
        if command.start_offset < last.start_offset:
            return refused(Code.INVALID_REQUEST, f"partition {partition} begins at "
                           f"{last.start_offset} in its last group: it cannot go on at "
                           f"{command.start_offset}")
        kept = history if command.start_offset > last.start_offset else history[:-1]
        self.epoch_histories[partition] = (*kept, EpochEntry(switch.epoch, switch.to_group,
                                                   command.start_offset,
                                                   command.leader_epoch_base))
        del self.switches[partition]
        return Result(Code.OK, last)

    def trim(self, command: TrimEpochHistory, history: EpochHistory) -> Result:
        """Drop entries whose offsets are all below the log start, but never the last entry. The
        value is the dropped entries."""
        gone = 0
        while gone + 1 < len(history) and history[gone + 1].start_offset <= command.log_start:
            gone += 1
        if gone:
            self.epoch_histories[command.partition] = history[gone:]
        return Result(Code.OK, history[:gone])

    def forget(self, partition: int) -> None:
        """Remove a partition of a deleted topic."""
        self.epoch_histories.pop(partition, None)
        self.switches.pop(partition, None)

    # ---- checkpoints ----------------------------------------------------------------------------

    def snapshot(self) -> dict:
        """Return the table as values that CBOR can encode."""
        return {"chains": list(self.epoch_histories.items()),
                "switches": [[partition, *switch] for partition, switch in self.switches.items()]}

    def fill(self, snapshot: dict) -> None:
        """Restore the table from a snapshot.

        Snapshots of versions 1 and 2 have no switches.  Raises ``KeyError``, ``TypeError`` or
        ``ValueError`` when the snapshot is malformed.
        """
        entry = _EPOCH_ENTRY if "switches" in snapshot else _EPOCH_ENTRY_1
        shapes.check({"switches": (), **snapshot},
                    {**_SHAPE, "chains": [(shapes.UINT, [entry])]}, "chains")
        self.epoch_histories = {partition: tuple(EpochEntry(*row) for row in history)
                       for partition, history in snapshot["chains"]}
        self.switches = {partition: Switch(*fields)
                         for partition, *fields in snapshot.get("switches", ())}

    def _check(self) -> None:
        """Assert every invariant.  O(exceptions)."""
        assert len(self.switches) <= SWITCHES_MAX and self.room >= 0
        for partition, history in self.epoch_histories.items():
            assert 1 <= len(history) <= EPOCH_ENTRIES_MAX, f"partition {partition}: {history}"
            for before, after in zip(history, history[1:]):
                assert before.epoch < after.epoch, f"partition {partition}: {history}"
                assert before.start_offset < after.start_offset, f"partition {partition}: {history}"
