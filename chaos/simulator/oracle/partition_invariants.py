"""Invariants of partitions that move between groups, and of groups that move between nodes.

Contract.  Classes like ``invariants.Invariant``, checked when an entry is committed: at the first
replica that reports it.

Theory.  A switch is one entry in each of two logs (docs/decisions/0028).  Everything that they have
to agree on is in their contents, so they are checked without the state of the switch.
"""

from __future__ import annotations

from chaos.simulator.oracle.invariants import Invariant
from chaos.simulator.oracle.model import GroupModel, ReplicaModel
from multiraft import core
from multiraft.partitions.producer_state import import_windows, last_sequence, window_epoch
from multiraft.partitions.records import (
    NO_PREDECESSOR,
    PartitionOpen,
    parse_open,
    parse_seal,
)
from multiraft.partitions.retention_records import (
    parse_clock,
    parse_compact,
    parse_delete,
    parse_log_starts,
)
from multiraft.raft import joint_quorum
from multiraft.types import Configuration, Entry, EntryKind


def log_starts_of(entry: Entry) -> list[tuple[int, int]]:
    """Return (partition, log start) of each row of a LOG_START entry, of either version."""
    if not len(entry.payload):
        return [(entry.partition, entry.base_offset)]
    return [(each.partition, each.log_start) for each in parse_log_starts(entry.payload)]


class _Place:
    """Group that accepts batches of a partition, and the state that a switch has to carry over."""

    __slots__ = ("group", "epoch", "sealed", "end", "stamp", "producers", "log_start")

    def __init__(self, group: int, epoch: int):
        self.group = group
        self.epoch = epoch
        self.sealed = False
        self.end = 0
        self.stamp = 0  # highest leader epoch of a batch
        self.log_start = 0
        self.producers: dict[int, tuple[int, int]] = {}  # -> (epoch, last sequence)


class ExtentsFollow(Invariant):
    """A partition takes batches in one group at a time, in the group and epoch of its last open
    entry.

    An open entry in the next group follows the committed seal of the previous group, at the offset
    of that seal, and no batch follows a seal.  Stamped leader epochs never decrease.  (A1, A31,
    S42)  A log start is raised in the group of the last epoch first; its opening takes it over, and
    the groups of earlier epochs follow.  (S44)
    """

    def __init__(self) -> None:
        self._places: dict[int, _Place] = {}

    def on_commit(self, replica: ReplicaModel, index: int, added: int) -> None:
        group = replica.group
        for at in range(index - added, index):
            entry = group.entries[group.committed[at]]
            if entry.kind == EntryKind.DATA:
                self._append(group, entry)
            elif entry.kind == EntryKind.PARTITION_OPEN:
                self._open(group, entry)
            elif entry.kind == EntryKind.PARTITION_SEAL:
                self._seal(group, entry)
            elif entry.kind == EntryKind.LOG_START:
                self._raise_log_starts(group, entry)

    def _append(self, group: GroupModel, entry: Entry) -> None:
        place, info = self._places[entry.partition], entry.batch
        self.require(place.group == group.group and not place.sealed,
                     "partition {}: a batch at offset {} is committed in g{}, it is in g{} at "
                     "epoch {}{}", entry.partition, entry.base_offset, group.group, place.group,
                     place.epoch, ", sealed" if place.sealed else "")
        stamp = core.batch_header(entry.payload).leader_epoch
        self.require(stamp >= place.stamp, "partition {}: offset {} has leader epoch {}, {} came "
                     "before", entry.partition, entry.base_offset, stamp, place.stamp)
        place.stamp, place.end = stamp, entry.base_offset + info.count
        if info.producer_id >= 0:
            last = (info.base_sequence + info.count - 1) & 0x7FFFFFFF
            place.producers[info.producer_id] = (info.producer_epoch, last)

    def _open(self, group: GroupModel, entry: Entry) -> None:
        opening, place = parse_open(entry.payload), self._places.get(entry.partition)
        if place is None:
            self.require(opening.epoch == 1 and not opening.start_offset,
                         "partition {}: its first opening is {}", entry.partition, opening[:2])
            self._places[entry.partition] = _Place(group.group, 1)
        elif (place.group, place.epoch) != (group.group, opening.epoch):
            self._continue(group, entry, opening, place)

    def _continue(
        self, group: GroupModel, entry: Entry, opening: PartitionOpen, place: _Place
    ) -> None:
        self.require(place.sealed and opening.epoch == place.epoch + 1,
                     "partition {}: it is opened in g{} at epoch {}, and in g{} at epoch {}{}",
                     entry.partition, group.group, opening.epoch, place.group, place.epoch,
                     ", sealed" if place.sealed else "")
        self.require(opening.start_offset == place.end,
                     "partition {}: g{} goes on at {}, g{} ended at {}", entry.partition,
                     group.group, opening.start_offset, place.group, place.end)
        self.require(opening.leader_epoch_base + entry.term > place.stamp or not place.end,
                     "partition {}: g{} stamps from {} on, {} came before", entry.partition,
                     group.group, opening.leader_epoch_base + entry.term, place.stamp)
        carried = {producer: (window_epoch(window), last_sequence(window)) for producer, window
                   in import_windows(opening.windows, entry.index).items()}
        self.require(carried == place.producers, "partition {}: g{} goes on with producers {}, g{} "
                     "had {}", entry.partition, group.group, carried, place.group, place.producers)
        self.require(opening.log_start in (NO_PREDECESSOR, place.log_start), "partition {}: g{} "
                     "goes on with log start {}, g{} had {}", entry.partition, group.group,
                     opening.log_start, place.group, place.log_start)
        place.group, place.epoch, place.sealed = group.group, opening.epoch, False

    def _raise_log_starts(self, group: GroupModel, entry: Entry) -> None:
        for partition, log_start in log_starts_of(entry):
            place = self._places[partition]
            if place.group == group.group and not place.sealed:
                place.log_start = max(place.log_start, log_start)
            else:
                self.require(log_start <= place.log_start, "partition {}: log start {} in g{}, "
                             "which has an earlier epoch; in g{} it is {}", partition, log_start,
                             group.group, place.group, place.log_start)

    def _seal(self, group: GroupModel, entry: Entry) -> None:
        place, epoch = self._places[entry.partition], parse_seal(entry.payload)
        self.require((place.group, place.epoch) == (group.group, epoch)
                     and entry.base_offset == place.end,
                     "partition {}: g{} seals epoch {} at {}, it is in g{} at epoch {} and ends at "
                     "{}", entry.partition, group.group, epoch, entry.base_offset, place.group,
                     place.epoch, place.end)
        place.sealed = True


class VotersChangeJointly(Invariant):
    """Voters change through a joint configuration of the old and the new ones, one change at a
    time.

    No old voter is gone before its successors count (thesis 4.3, S29).
    """

    def __init__(self) -> None:
        self._last: dict[int, Configuration] = {}  # by group

    def on_commit(self, replica: ReplicaModel, index: int, added: int) -> None:
        group = replica.group
        for at in range(index - added, index):
            entry = group.entries[group.committed[at]]
            if entry.kind == EntryKind.MEMBERSHIP:
                self._change(group, joint_quorum.decode(entry.payload))

    def _change(self, group: GroupModel, after: Configuration) -> None:
        before = self._last.get(group.group, group.initial)
        voters_stay = {*before.voters} == {*after.voters}
        if before.outgoing:
            legal = voters_stay and not after.outgoing
        else:
            legal = ({*after.outgoing} == {*before.voters} if after.outgoing else voters_stay)
        self.require(legal, "g{}: {} follows {}", group.group, after, before)
        self._last[group.group] = after


class RetentionFollows(Invariant):
    """Entries that decide retention follow each other in a group's log: clocks do not run back, log
    starts stay within their partition, generations of compactions grow, and nothing follows the
    deletion of a partition but its opening.
    """

    def __init__(self) -> None:
        self._clocks: dict[int, int] = {}  # by group
        #: (group, partition) -> end, of the partitions that the group has.
        self._ends: dict[tuple[int, int], int] = {}
        self._generations: dict[tuple[int, int], int] = {}

    def on_commit(self, replica: ReplicaModel, index: int, added: int) -> None:
        group = replica.group
        for at in range(index - added, index):
            self._take(group.group, group.entries[group.committed[at]])

    def _take(self, group: int, entry: Entry) -> None:
        place = group, entry.partition
        if entry.kind == EntryKind.DATA:
            self._require_open(place, entry)
            self._ends[place] = entry.base_offset + entry.batch.count
        elif entry.kind == EntryKind.PARTITION_OPEN:
            start = parse_open(entry.payload).start_offset
            self._ends[place] = max(start, self._ends.get(place, start))
        elif entry.kind == EntryKind.PARTITION_SEAL:
            self._require_open(place, entry)
        elif entry.kind == EntryKind.LOG_START:
            self._log_starts(group, entry)
        elif entry.kind == EntryKind.PARTITION_DELETE:
            for partition in parse_delete(entry.payload).partitions:
                self._ends.pop((group, partition), None)
                self._generations.pop((group, partition), None)
        elif entry.kind == EntryKind.COMPACT:
            self._compact(place, entry)
        elif entry.kind == EntryKind.CLOCK:
            clock_ms, last = parse_clock(entry.payload), self._clocks.get(group, 0)
            self.require(clock_ms >= last, "g{}: a clock of {} ms follows one of {} ms", group,
                         clock_ms, last)
            self._clocks[group] = clock_ms

    def _require_open(self, place: tuple[int, int], entry: Entry) -> None:
        self.require(place in self._ends, "g{}: {} of partition {}, which the group does not have",
                     place[0], EntryKind(entry.kind).name, place[1])

    def _log_starts(self, group: int, entry: Entry) -> None:
        for partition, log_start in log_starts_of(entry):
            self._require_open((group, partition), entry)
            end = self._ends[group, partition]
            self.require(0 <= log_start <= end, "g{}: log start {} of partition {}, which ends at "
                         "{}", group, log_start, partition, end)

    def _compact(self, place: tuple[int, int], entry: Entry) -> None:
        self._require_open(place, entry)
        found, last = parse_compact(entry.payload), self._generations.get(place, 0)
        self.require(found.generation > last and found.up_to <= self._ends[place],
                     "g{}: {} of partition {}, which ends at {}, after generation {}", place[0],
                     found, place[1], self._ends[place], last)
        self._generations[place] = found.generation


ALL = (ExtentsFollow, VotersChangeJointly, RetentionFollows)
