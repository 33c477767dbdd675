"""Damage of a journal: ranges that copies explain, those that they do not, what a LIFT names."""

from __future__ import annotations

import pytest

from multiraft.storage.damage.journal_damage import CLEARED_RANGES_MAX, JournalDamage
from multiraft.storage.damage.place import Place


def at(byte: int) -> Place:
    return Place(0, byte)


def explained(begin: int, end: int) -> JournalDamage:
    damage = JournalDamage()
    damage.explain(at(begin), at(end))
    return damage


def test_a_copy_explains_its_part_of_a_damaged_range():
    damage = explained(128, 192)
    assert damage.unexplained(at(128), at(192)) == []
    assert damage.unexplained(at(64), at(256)) == [(at(64), at(128)), (at(192), at(256))]


def test_a_copy_of_unknown_size_explains_nothing():
    damage = explained(128, 128)
    assert damage.explained == [] and damage.is_explained(at(128)) and damage.is_known
    assert damage.unexplained(at(128), at(192)) == [(at(128), at(192))]


def test_ranges_that_copies_explain_entirely_are_left_out():
    damage = explained(128, 192)
    found = [(at(512), at(576)), (at(128), at(192)), (at(512), at(576)), (at(100), at(140))]
    assert damage.unexplained_ranges(found) == [(at(100), [(at(100), at(128))]),
                                                (at(512), [(at(512), at(576))])]


@pytest.mark.parametrize("byte, inside", [(127, False), (128, False), (129, True), (191, True),
                                          (192, False)])
def test_the_first_byte_of_a_damaged_entry_is_not_inside_it(byte, inside):
    assert explained(128, 192).is_inside_explained(at(byte)) is inside


def test_an_entry_in_another_file_explains_nothing_at_the_same_byte():
    damage = explained(128, 192)
    assert damage.unexplained(Place(4096, 128), Place(4096, 192)) == [
        (Place(4096, 128), Place(4096, 192))]


def test_a_range_over_two_files_is_explained_by_an_entry_in_each():
    damage = explained(128, 192)
    damage.explain(Place(4096, 64), Place(4096, 128))
    assert damage.unexplained(at(128), Place(4096, 128)) == [(at(192), Place(4096, 64))]


def test_a_lift_names_the_newest_ranges_when_there_are_too_many():
    damage = JournalDamage()
    for number in range(CLEARED_RANGES_MAX + 3):
        damage.add_unattributed(at(100 * number), at(100 * number + 10))
    named = damage.ranges_to_clear(())
    assert len(named) == CLEARED_RANGES_MAX and named[0] == (at(300), at(310))
    damage._check()
    assert damage.unattributed_count == CLEARED_RANGES_MAX + 3
