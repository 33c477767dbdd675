"""Damage that the fault atlas permits: a good copy of everything must be left."""

from __future__ import annotations

import random

import pytest

from chaos.simulator.disk.corruption import FaultAtlas, Place
from chaos.simulator.oracle.model import GroupModel, LogModel
from multiraft.types import Configuration, Entry, EntryKind


class Whole:
    """A node without damage."""

    has_recovered = False

    def __init__(self, node: int):
        self.node = node


def group_with(holders: tuple[int, ...]) -> GroupModel:
    """Return a group of three voters, with a committed batch on the disks of ``holders``."""
    group = GroupModel(1, (1, 2, 3))
    entry = Entry(EntryKind.DATA, 1, 1, 1, 1, 101, 0, b"a batch")
    for node in holders:
        replica = group.replica(node)
        chain = replica.staged.append(entry)
        replica.durable = replica.staged.copy()
        group.entries[chain] = entry
    group.committed.append(chain)
    return group


def atlas_of(group: GroupModel) -> FaultAtlas:
    return FaultAtlas(random.Random(1), {1: group}, [Whole(node) for node in (1, 2, 3)])


def rots(group: GroupModel) -> bool:
    """Return True if the atlas may damage the batch of n1 in a known way."""
    places = [Place("0.segment", 512, 512, EntryKind.DATA, 1, 1, 1)]
    atlas = atlas_of(group)
    atlas._can_do_without = lambda node: False  # no header
    chosen = [atlas.choose(1, places) for _ in range(20)]
    return any(chosen)


def test_an_entry_rots_that_another_disk_has():
    assert rots(group_with((1, 2)))
    assert not rots(group_with((1,)))


@pytest.mark.parametrize("how", ["power", "damage"])
def test_what_another_node_held_once_is_no_copy(how):
    group = group_with((1, 2))
    replica = group.replica(2)
    if how == "power":
        replica.forget(replica.durable.chains)
    else:
        replica.lose(LogModel())
    replica.durable.drop_from(1)
    assert not rots(group)


def test_a_voter_may_not_be_lost_where_a_leader_goes_by_two_that_are_not_staged_yet():
    """The leader's disk hangs, so the configuration that it decides by is in no log yet."""
    group = group_with((1, 2, 3))
    assert atlas_of(group).may_lose(2)
    group.replica(1).adopt(Configuration((1, 2), (), (1, 2, 3)), 2)
    assert not atlas_of(group).may_lose(2)
    assert atlas_of(group).may_lose(3)


def test_what_a_replica_goes_by_is_what_is_staged_once_it_is():
    group = group_with((1, 2, 3))
    replica = group.replica(1)
    replica.adopt(Configuration((1, 2)), 1)
    replica.staged.members.append((1, Configuration((1, 2, 3))))
    assert atlas_of(group).may_lose(2)


def test_who_has_what_a_loss_of_power_took_from_others_is_spared():
    """With relaxed durability n2 has forgotten the batch, and n3 does not have it yet.

    n1 was damaged all the same, and the run ended as if its loss had been promised.
    """
    group = group_with((1, 2))
    assert atlas_of(group).may_lose(1)
    replica = group.replica(2)
    replica.forget(replica.durable.chains)
    replica.durable.drop_from(1)
    assert not atlas_of(group).may_lose(1)
    assert atlas_of(group).may_lose(2) and atlas_of(group).may_lose(3)
    replica.durable = group.replica(1).durable.copy()  # n2 has the batch again
    assert atlas_of(group).may_lose(1)
