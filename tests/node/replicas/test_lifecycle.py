"""Creation of a replica for a leader's append, after an earlier one was removed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from multiraft.types import Configuration
from node.metadata.state_machine import MetadataState
from node.replicas.lifecycle import Replicas
from tests.node.harness import silent_log

GROUP, LEADER, LEFT_TERM = 3, 2, 5


class Node:
    """A node that has no replica of the group; ``tombstone`` is what one left."""

    def __init__(self, tombstone: tuple[int, int] | None = None):
        self.tombstone_of = tombstone
        self.groups: dict = {}  # as the store knows them
        self.partition_states = {GROUP: None}
        self.created: list[int] = []
        self.added: list[int] = []
        self.status = SimpleNamespace(groups=lambda: ())
        metadata = SimpleNamespace(state=MetadataState())
        self.replicas = Replicas(self, self, metadata, 8, lambda: None, silent_log(),
                                 created=self.created.append)

    def is_removed(self, group: int) -> bool:
        return self.tombstone_of is not None

    def tombstone(self, group: int) -> tuple[int, int]:
        assert self.tombstone_of is not None
        return self.tombstone_of

    def create_group(self, group: int, incarnation: int, configuration: Configuration):
        assert not configuration.voters
        return SimpleNamespace(incarnation=incarnation)

    def add_group(self, group: int, *_: object) -> None:
        self.added.append(group)

    def request(self, term: int, incarnation: int = 1) -> bool:
        """Ask for a replica, and return True if one was created."""
        self.replicas.on_create_requested(GROUP, incarnation, LEADER, term, 1)
        assert self.created == self.added
        return self.added == [GROUP]


def test_a_replica_is_created_where_there_was_none():
    assert Node().request(term=1)


@pytest.mark.parametrize(("term", "created"), [(LEFT_TERM - 1, False), (LEFT_TERM, True)])
def test_an_append_from_before_the_removal_creates_no_replica(term, created):
    assert Node((LEFT_TERM, 1)).request(term) is created


def test_no_replica_is_created_before_the_tombstone_of_the_earlier_one_is_durable():
    """It would get the removed log, as if that were its own."""
    node = Node()
    node.groups = {GROUP: "removed a moment ago"}
    assert not node.request(term=9)


def test_no_replica_of_another_incarnation_than_that_of_the_metadata_is_created():
    assert not Node().request(term=9, incarnation=2)


def test_a_group_beyond_the_pool_is_not_known_yet():
    node = Node()
    node.replicas.on_create_requested(9, 1, LEADER, 1, 1)
    assert not node.added
