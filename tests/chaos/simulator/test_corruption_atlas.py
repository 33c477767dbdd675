"""Damage is placed so that a good copy of everything remains."""

from __future__ import annotations

import pytest

from chaos.nemeses.atlas import EntryRegion, FaultAtlas, FileRegion

CHECKPOINT = FileRegion("checkpoint-1", 17)


def test_an_entry_is_damaged_on_a_minority_only():
    atlas = FaultAtlas(replication_factor=3)
    atlas.hit(1, EntryRegion(4, 10))
    assert not atlas.may_hit(2, EntryRegion(4, 10))
    assert not atlas.may_hit(3, EntryRegion(4, 10))
    atlas = FaultAtlas(replication_factor=5)
    atlas.hit(1, EntryRegion(4, 10))
    atlas.hit(2, EntryRegion(4, 10))
    assert not atlas.may_hit(3, EntryRegion(4, 10))


def test_every_node_may_be_damaged_in_other_entries():
    atlas = FaultAtlas(replication_factor=3)
    for node in (1, 2, 3):
        atlas.hit(node, EntryRegion(4, node))
    assert atlas.count == 3


def test_what_may_cost_a_node_all_groups_is_damaged_on_the_same_minority_throughout():
    atlas = FaultAtlas(replication_factor=3)
    atlas.hit(2, CHECKPOINT)
    assert not atlas.may_hit(1, CHECKPOINT)
    assert not atlas.may_hit(3, FileRegion("lane-0/0.index", 5))
    assert atlas.may_hit(2, FileRegion("lane-0/0.index", 5))


def test_a_file_is_damaged_once():
    atlas = FaultAtlas(replication_factor=3)
    atlas.hit(2, CHECKPOINT)
    assert not atlas.may_hit(2, CHECKPOINT._replace(position=99))


def test_a_single_copy_is_never_damaged():
    atlas = FaultAtlas(replication_factor=1)
    assert not atlas.may_hit(1, EntryRegion(1, 1))
    assert not atlas.may_hit(1, CHECKPOINT)


def test_a_hit_that_the_rules_forbid_is_an_error():
    atlas = FaultAtlas(replication_factor=3)
    atlas.hit(1, EntryRegion(4, 10))
    with pytest.raises(AssertionError):
        atlas.hit(2, EntryRegion(4, 10))
