"""Metadata of one boot, as the product's request handlers see them.

Contract.  The product numbers partitions by incarnation; the simulator's groups use ``FIRST +
incarnation`` for partitions of topics, and lower numbers for partitions that exist for the whole
run.  ``MetadataView`` translates: partitions without a topic are at epoch 1 of a fixed group.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from chaos.simulator.node.metadata.metadata_replica import MetadataReplica
from chaos.simulator.oracle.metadata_oracle import FIRST, Location, MetadataState
from multiraft.types import Configuration
from node.metadata.commands import NodeRecord
from node.metadata.placement_table import FIRST_EPOCH, EpochEntry, EpochHistory
from node.metadata.state_machine import Topic

#: Producers of the workload choose their ids and epochs themselves: every epoch counts as granted.
EPOCH_MAX = 0x7FFF
_NO_TOPIC = Topic("", b"", 0, 0, 0)


class _AllGranted:
    """Producer ids of the workload."""

    def highest_epoch(self, _producer: int) -> int:
        return EPOCH_MAX


class Histories(NamedTuple):
    """Partition -> its epochs, of those that were switched."""

    epoch_histories: Mapping[int, EpochHistory]


class SeenTopic(NamedTuple):
    """Topic with the partition numbers of the simulator's groups."""

    topic: Topic

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return self.topic.partitions

    def incarnation_of(self, number: int) -> int:
        """Return the simulator's number of partition ``number``.  O(log additions)."""
        return FIRST + self.topic.incarnation_of(number)


class SeenState:
    """One state of the metadata, with the partition numbers of the simulator's groups."""

    def __init__(self, state: MetadataState, plain: Mapping[int, Location]):
        self.state = state
        self.producers = _AllGranted()
        self._plain = plain

    @property
    def version(self) -> int:
        return self.state.version

    @property
    def sinks(self) -> Any:
        return self.state.sinks

    def locate(self, partition: int) -> Location | None:
        """Return where a partition takes appends; None = it is unknown."""
        if partition < FIRST:
            return self._plain.get(partition)
        return self.state.locate(partition - FIRST)

    @property
    def settings(self) -> Any:
        return self.state.settings

    @property
    def next_incarnation(self) -> int:
        return FIRST + self.state.next_incarnation

    @property
    def hash_seed(self) -> int:
        return self.state.hash_seed

    @property
    def placed(self) -> Histories:
        return Histories({FIRST + partition: history for partition, history
                          in self.state.placed.epoch_histories.items()})

    def nodes(self) -> tuple[NodeRecord, ...]:
        """Return no nodes of earlier releases: all nodes of a run have this one."""
        return ()

    def topic_at(self, partition: int) -> SeenTopic | None:
        """Return the topic whose first partition this is."""
        found = None if partition < FIRST else self.state.topic_at(partition - FIRST)
        return SeenTopic(found) if found is not None else None

    def configuration(self, group: int) -> Configuration:
        return self.state.configuration(group)


class MetadataView:
    """Metadata that are applied on one node, and waits for newer ones."""

    def __init__(self, metadata: MetadataReplica, partitions: Mapping[int, tuple[int, ...]]):
        """``partitions`` without a topic, by group."""
        self.applied: Callable[[int, float], Coroutine[Any, None, bool]] = metadata.wait
        self._metadata = metadata
        self._plain = {
            partition: Location(_NO_TOPIC, 0, group, FIRST_EPOCH, 0,
                                (EpochEntry(FIRST_EPOCH, group, 0),), None)
            for group, found in partitions.items() for partition in found}
        self._seen = SeenState(metadata.state, self._plain)

    @property
    def state(self) -> SeenState:
        """The state; another object after a snapshot, as in the node."""
        if self._seen.state is not self._metadata.state:
            self._seen = SeenState(self._metadata.state, self._plain)
        return self._seen
