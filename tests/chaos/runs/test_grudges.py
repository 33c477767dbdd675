"""Grudges: the links that each shape of a partition cuts."""

from __future__ import annotations

import random

import pytest

from chaos.backends.backend import CLIENTS, Link
from chaos.nemeses import grudges

SEEDS = range(20)


def heard(cut: grudges.Grudge, node: int, nodes: list[int]) -> set[int]:
    """Return the nodes that ``node`` hears, itself included."""
    return {other for other in nodes if Link(other, node) not in cut}


def nodes_of(count: int) -> list[int]:
    return list(range(1, count + 1))


@pytest.mark.parametrize("count", [2, 3, 4, 5, 7])
def test_halves_split_the_nodes_in_two_that_do_not_hear_each_other(count):
    for seed in SEEDS:
        cut = grudges.halves(random.Random(seed), nodes_of(count))
        sides = {frozenset(heard(cut, node, nodes_of(count))) for node in nodes_of(count)}
        assert sorted(map(len, sides)) == sorted([count // 2, count - count // 2])


@pytest.mark.parametrize("count", [3, 4, 5, 6, 7, 9])
def test_in_a_ring_every_node_hears_a_majority_and_no_two_the_same(count):
    for seed in SEEDS:
        cut = grudges.majorities_ring(random.Random(seed), nodes_of(count))
        views = [frozenset(heard(cut, node, nodes_of(count))) for node in nodes_of(count)]
        assert all(len(view) == count // 2 + 1 for view in views)
        assert all(node in view for node, view in zip(nodes_of(count), views, strict=True))
        assert len(set(views)) == count


@pytest.mark.parametrize("count", [5, 7])
def test_a_ring_of_an_odd_number_above_three_cuts_both_directions(count):
    for seed in SEEDS:
        cut = grudges.majorities_ring(random.Random(seed), nodes_of(count))
        whole = {frozenset((link.source, link.target)) for link in cut}
        both = {pair for pair in whole if all(Link(a, b) in cut for a in pair for b in pair
                                              if a != b)}
        assert (both == whole) is (count % 4 == 1)  # a window of 3, 7, ... is centred, one of 4 not


@pytest.mark.parametrize("count", [3, 4, 5, 6])
def test_a_bridge_is_heard_by_both_halves_and_hears_both(count):
    for seed in SEEDS:
        cut = grudges.bridge(random.Random(seed), nodes_of(count))
        views = {node: heard(cut, node, nodes_of(count)) for node in nodes_of(count)}
        bridges = [node for node, view in views.items() if len(view) == count]
        assert len(bridges) == 1
        assert all(bridges[0] in view for view in views.values())
        assert all(len(view) < count for node, view in views.items() if node not in bridges)


def test_a_lonely_node_hears_itself_and_the_others_hear_each_other():
    cut = grudges.alone(2, nodes_of(3))
    assert heard(cut, 2, nodes_of(3)) == {2}
    assert heard(cut, 1, nodes_of(3)) == {1, 3}


def test_one_way_cuts_leave_the_other_way():
    assert grudges.deaf(1, [1, 2, 3]) == {Link(2, 1), Link(3, 1)}
    assert grudges.mute(1, [1, 2, 3]) == {Link(1, 2), Link(1, 3)}


def test_clients_are_in_no_grudge_but_their_own():
    shapes = (grudges.halves, grudges.bridge, grudges.majorities_ring)
    links = {link for shape in shapes for link in shape(random.Random(1), nodes_of(5))}
    assert not any(CLIENTS in link for link in links)
    assert grudges.from_clients([2]) == {Link(2, CLIENTS), Link(CLIENTS, 2)}
