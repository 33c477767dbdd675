"""Deletion of the state of partitions that the metadata no longer place in a group.

Contract.  ``topic_deleted``, ``left``, ``lead`` and ``replaced`` say in O(1) which partitions a
later pass examines.  ``steps`` is one pass, as an iterator whose ``next`` is a bounded portion of
work.  A pass proposes PARTITION_DELETE entries in groups that this node leads: for partitions of
deleted topics, and for sealed ones that are elsewhere and have no offsets here that still exist.
Their records leave the record store afterwards (``node.removal.record_trim``).

Invariants.  A partition is deleted only by metadata that have created it: incarnations ascend and
are never used again, so metadata that lag behind know that it is not theirs to judge.  A sealed
partition is deleted only if the metadata know a later epoch, and neither its history nor a switch
names the group.  The entry has the index of these metadata, and older ones open nothing in the
group from then on.

Theory.  A pass examines partitions of deleted topics, those that have left a group, and those of a
group whose leader this node became, because an earlier leader may have left some.  No pass visits
idle groups.  A node, or a proposal, may be lost at any time: the next leader examines its group.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import trio

from multiraft.core import default_groups
from multiraft.errors import NotLeader, ProposalError, UnknownGroup
from multiraft.partitions.retention_records import delete_payload
from multiraft.types import METADATA_GROUP, EntryKind
from node.loop.steps import ROWS_PER_STEP, parts
from node.metadata.node_releases import retention_entries_fault

if TYPE_CHECKING:
    from multiraft.partitions.state import PartitionStates
    from multiraft.raft.multi_raft import MultiRaft
    from node.loop.turns import Turns
    from node.metadata.log import MetadataLog
    from node.metadata.state_machine import MetadataState
    from node.metadata.topics import Topic

#: Rows of one entry that a pass proposes.  The format allows more, but each replica applies an
#: entry in one turn of its loop: some tenths of a millisecond with so many.
ROWS_PER_ENTRY = 512
#: Pause after a proposal that was refused, or while a node of an earlier release is in the cluster,
#: in seconds.
RETRY_S = 5.0


class PartitionDeletion:
    """The decisions of one node about the groups that it leads."""

    def __init__(self, core: MultiRaft, partition_states: Mapping[int, PartitionStates],
                 metadata_log: MetadataLog, request_round: Callable[[], None], turns: Turns,
                 log: logging.Logger):
        self._core = core
        self._partition_states = partition_states
        self._metadata_log = metadata_log
        self._request_round = request_round
        self._turns = turns
        self._log = log
        self._topics: list[tuple[Topic, Mapping[int, Sequence[int]]]] = []
        self._left: dict[tuple[int, int], None] = {}  # (group, partition)
        self._begun: dict[int, None] = {}  # groups whose leader this node became
        self._found: dict[int, dict[int, None]] = {}  # group -> partitions to delete
        self._known_state = metadata_log.state
        self._changed = trio.Event()
        self.deleted = 0  # partitions, proposed

    # ---- what happens between passes ------------------------------------------------------------

    def topic_deleted(self, topic: Topic, placed: Mapping[int, Sequence[int]]) -> None:
        """Have the next pass examine the partitions of a topic that was deleted.  ``placed``:
        partition -> the groups that its history and its switch named, where that was not only the
        group of its hash."""
        self._topics.append((topic, placed))
        self._changed.set()

    def left(self, partition: int, groups: Iterable[int]) -> None:
        """Have the next pass examine a partition in groups that its history may no longer name."""
        self._left.update(dict.fromkeys((group, partition) for group in groups))
        self._changed.set()

    def lead(self, group: int) -> None:
        """Have the next pass examine all partitions of a group whose leader this node became."""
        if group != METADATA_GROUP:
            self._begun[group] = None
            self._changed.set()

    def replaced(self, state: MetadataState) -> None:
        """Have the next pass examine all groups led here if the metadata were replaced by a
        snapshot, which does not say what was deleted.  O(1) otherwise."""
        if state is not self._known_state:
            self._known_state = state
            for group in self._core.status.led_groups():
                self.lead(group)

    @property
    def is_due(self) -> bool:
        """True if a pass has something to examine or to propose."""
        return bool(self._topics or self._left or self._begun or self._found)

    # ---- a pass ---------------------------------------------------------------------------------

    def steps(self) -> Iterator[None]:
        """Run a pass, in steps of ``ROWS_PER_STEP`` partitions.  O(partitions to examine).

        Nothing is examined while a node of the cluster does not know the entry."""
        if retention_entries_fault(self._state.nodes()):
            return
        topics, self._topics = self._topics, []
        for topic, placed in topics:
            yield from self._examine_topic(topic, placed)
        left, self._left = [*self._left], {}
        for part in parts(len(left)):
            for group, partition in left[part.start:part.stop]:
                self._examine(group, partition)
            yield
        begun, self._begun = self._begun, {}
        for group in begun:
            states = self._partition_states.get(group)
            partitions = [*states.partitions()] if states is not None else []
            for part in parts(len(partitions)):
                for partition in partitions[part.start:part.stop]:
                    self._examine(group, partition)
                yield
        for group in [*self._found]:
            while group in self._found and self._propose(group):
                yield

    def _examine_topic(self, topic: Topic, placed: Mapping[int, Sequence[int]]) -> Iterator[None]:
        for part in parts(topic.partitions):
            for run in topic.runs(part):
                groups = default_groups(run.incarnation, run.count, run.pool_size,
                                        self._state.hash_seed)
                for partition, group in enumerate(groups, run.incarnation):
                    for place in placed.get(partition, (group,)):
                        self._examine(place, partition)
            yield

    def _examine(self, group: int, partition: int) -> None:
        if self._is_gone(group, partition):
            self._found.setdefault(group, {})[partition] = None

    def _is_gone(self, group: int, partition: int) -> bool:
        """Return True if this node leads the group, the group knows the partition, and the metadata
        do not need what it knows.  O(entries of the epoch history)."""
        states = self._partition_states.get(group)
        if states is None or not self._core.status.is_leader(group):
            return False
        if not states.epoch_of(partition):
            return False
        place = self._state.locate(partition)
        if place is None:
            return partition < self._state.next_incarnation
        tail = states.tail_state(partition)
        named = [entry.group for entry in place.epoch_history]
        if place.switch is not None:
            named.append(place.switch.to_group)
        return tail.sealed and tail.epoch < place.epoch and group not in named

    def _propose(self, group: int) -> bool:
        """Propose the deletion of some partitions of a group, judged again by the present metadata.
        Return False if the proposal was refused, and has to be repeated later."""
        found = self._found[group]
        some = [*found][:ROWS_PER_ENTRY]
        gone = [partition for partition in some if self._is_gone(group, partition)]
        try:
            if gone:
                self._core.propose(group, EntryKind.PARTITION_DELETE,
                                   delete_payload(self._state.version, gone))
                self._request_round()
        except (NotLeader, UnknownGroup):
            del self._found[group]  # the next leader examines the group
            return True
        except ProposalError as error:
            self._log.debug("partition_deletion_deferred", extra={
                "group": group, "reason": str(error)})
            return False
        self.deleted += len(gone)
        for partition in some:
            del found[partition]
        if not found:
            del self._found[group]
        return True

    @property
    def _state(self) -> MetadataState:
        return self._metadata_log.state

    # ---- the driver -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Make a pass after each change, in turns of the loop, and again after ``RETRY_S`` while
        something is left, until cancelled."""
        while True:
            self._changed = changed = trio.Event()
            for _ in self.steps():
                await self._turns.take(ROWS_PER_STEP)
            with trio.move_on_after(RETRY_S if self.is_due else float("inf")):
                await changed.wait()
