"""Hardly more is copied than has to be, in clusters whose loads no two groups share.

Random voters, as a hash draws them, are farther from balance than any other placement that one
meets; the bound of what has to move is ``placement.outcome``'s.
"""

from __future__ import annotations

import random

import pytest

from placement.cluster import GroupRow
from placement.planner import make_plan
from placement.policy import INGRESS, MOVES_MAX, Options
from tests.placement.clusters import nodes, only, snapshot

RACKS = 20
POLICY = only(INGRESS, 20, moves_max=MOVES_MAX)


def lognormal(dice):
    return [int(1e6 * dice.lognormvariate(0, 0.5)) for _ in range(2048)]


def giants(dice):
    """Six groups are larger than a node's share of 60 ordinary ones, or nearly so."""
    return [*lognormal(dice)[6:], *(int(factor * 60e6) for factor in (0.7, 0.8, 0.9, 1.5, 2, 2.5))]


def drawn(loads, seed):
    """100 nodes, three replicas of each group in different racks."""
    dice = random.Random(seed)
    rows = nodes(100, RACKS)
    groups = [GroupRow(group, 1, 10, tuple(rack + 1 + RACKS * dice.randrange(100 // RACKS)
                                           for rack in dice.sample(range(RACKS), 3)), 0,
                       bytes=load, ingress=load, read=load)
              for group, load in enumerate([0, *loads(dice)])]
    return snapshot(rows, groups)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("loads", [lognormal, giants])
def test_hardly_more_is_copied_than_has_to_be(loads, seed):
    made = make_plan(drawn(loads, seed), POLICY, Options())
    (found,) = made.resources
    assert made.converged
    assert found.gap_ppm <= 20_000
    assert found.moved <= 1.01 * found.moved_bound, found
