"""Damaged ranges of a journal: the parts that copies explain, and those that they do not."""

from __future__ import annotations

import pytest

from multiraft.storage.journal_damage import JournalDamage


def test_a_copy_explains_its_part_of_a_damaged_range():
    damage = JournalDamage(repaired_ranges={128: 64})
    assert damage.unexplained(128, 192) == []
    assert damage.unexplained(64, 256) == [(64, 128), (192, 256)]


def test_a_copy_of_unknown_size_explains_nothing():
    damage = JournalDamage(repaired_ranges={128: 0})
    assert damage.explained() == []
    assert damage.unexplained(128, 192) == [(128, 192)]


def test_ranges_that_copies_explain_entirely_are_left_out():
    damage = JournalDamage(repaired_ranges={128: 64})
    found = [(512, 576), (128, 192), (512, 576), (100, 140)]
    assert damage.unexplained_ranges(found) == [(100, [(100, 128)]), (512, [(512, 576)])]


@pytest.mark.parametrize("position, inside", [(127, False), (128, False), (129, True), (191, True),
                                              (192, False)])
def test_the_first_byte_of_a_damaged_entry_is_not_inside_it(position, inside):
    assert JournalDamage(repaired_ranges={128: 64}).is_inside_repaired(position) is inside
