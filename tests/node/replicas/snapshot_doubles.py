"""A core and partition states, as far as snapshots of the metadata group use them."""

from __future__ import annotations

from types import SimpleNamespace

from multiraft.partitions.state import PartitionStates
from multiraft.raft.log_reader import LogBounds
from multiraft.types import METADATA_GROUP, Configuration, Entry, EntryKind


class Core:
    """A core of a leader or a follower, as far as snapshots use it."""

    def __init__(self, applied: int = 7):
        self.status = self  # as core.status
        self.applied = applied
        self.installed: list = []
        self.compacted_to: list[int] = []
        self.willing = True
        self.settled = True
        self.quarantined = ""
        self.first_index = 1
        self.incarnation = 1
        self.needed = 1 << 62  # by learners: nothing
        self.installing: set[int] = set()

    def needed_from(self, group: int) -> int:
        return self.needed

    def has_applied_in_term(self, group: int) -> bool:
        return self.settled

    def of(self, group: int):
        return SimpleNamespace(quarantined=self.quarantined, first_index=self.first_index,
                               incarnation=self.incarnation)

    def groups(self) -> tuple[int, ...]:
        return (METADATA_GROUP,)

    def has_group(self, group: int) -> bool:
        return group in self.groups()

    def is_installing(self, group: int) -> bool:
        return group in self.installing

    def is_applied_term_known(self, group: int) -> bool:
        return True

    def begin_install(self, group: int, index: int, term: int) -> bool:
        if self.willing:
            self.installing.add(group)
        return self.willing

    def common_index(self, group: int, runs, last: int) -> int:
        return self.applied

    def applied_index(self, group: int) -> int:
        return self.applied

    def compacted(self, group: int, first_index: int) -> None:
        assert first_index - 1 <= self.applied, "consensus would end the node"
        self.compacted_to.append(first_index)

    def snapshot_point(self, group: int):
        return LogBounds(self.applied + 1, 3, self.applied), 2, Configuration((1, 2), (3,))

    def may_install(self, group: int, index: int, term: int) -> bool:
        return self.willing

    def install_snapshot(self, *arguments) -> None:
        self.installed.append(arguments)
        self.installing.discard(arguments[0])


def tail_at(index: int, group: int = METADATA_GROUP) -> PartitionStates:
    tail = PartitionStates(group)
    for at in range(1, index + 1):
        tail.append(Entry(EntryKind.NOOP, group, 1, 1, at))
    tail.apply(index)
    return tail
