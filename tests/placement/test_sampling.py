"""Snapshots that list only some partitions: bounds stay bounds, and what is asked for relieves."""

from __future__ import annotations

import random

import pytest

from placement.plan import SPLIT
from placement.planner import make_plan
from placement.policy import GROUP_INGRESS
from placement.sampling import sample_partitions
from placement.shares import negligible_load
from placement.shed import Item, by_load, shed_candidates
from placement.state import State
from placement.switches import relief
from tests.placement.clusters import MIB, cluster, nodes, only

GROUPS = 16
POLICY = only(GROUP_INGRESS)


def skewed(count, seed):
    rng = random.Random(seed)
    rates = [1 + int(MIB * rng.lognormvariate(0, 2)) for _ in range(count)]
    return cluster(nodes(3), GROUPS, rates)


def listing(before, incarnations):
    """The same cluster, of which only these partitions are listed."""
    return before._replace(partitions=tuple(row for row in before.partitions
                                            if row.incarnation in incarnations))


def heavy(before):
    """Those that shares and bounds follow from."""
    total = sum(row.ingress for row in before.groups if row.id)
    return {row.incarnation for row in before.partitions
            if row.ingress > negligible_load(total, 1, GROUPS)}


def outcome(before):
    return make_plan(before, POLICY).resources[0]


@pytest.mark.parametrize("seed", range(4))
def test_shares_and_bounds_follow_from_the_large_partitions_alone(seed):
    whole = skewed(2000, seed)
    some = outcome(listing(whole, heavy(whole)))
    every = outcome(whole)
    assert (some.bound_ppm, some.bound, some.level_ppm, some.total, some.before_ppm) == (
        every.bound_ppm, every.bound, every.level_ppm, every.total, every.before_ppm)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_not_listed_is_no_large_item_that_has_to_move(seed):
    """The rest of a group was once taken for one item, of more than half a target: two of those
    cannot stay together, so the bound said that more had to move than did."""
    whole = skewed(2000, seed)
    some = listing(whole, heavy(whole))
    assert outcome(some).moved_bound <= outcome(whole).moved_bound <= outcome(whole).moved


def as_far_away(whole):
    """Return the two queries to a store that has all partitions, while no snapshot does."""

    def above(least):
        return [row for row in whole.partitions if row.ingress > least]

    def shed_there(wanted, known):
        found = []
        for group, load in {**wanted.passed_on, **wanted.excess}.items():
            rows = {Item(row.ingress, row.incarnation): row for row in whole.partitions
                    if row.group == group and row.incarnation not in known}
            found += [rows[item] for item in shed_candidates(sorted(rows, key=by_load), load,
                                                wanted.cap)]
        return found

    return sample_partitions(whole._replace(partitions=()), POLICY, above, shed_there)


@pytest.mark.parametrize("seed", range(6))
def test_listing_what_is_asked_for_relieves_as_listing_everything_does(seed):
    whole = skewed(4000, seed)
    found = as_far_away(whole)
    assert found.rounds and len(found.partitions) < 1000
    some = outcome(whole._replace(partitions=found.partitions))
    every = outcome(whole)
    assert some.after_ppm <= max(every.after_ppm, 1_020_000)
    assert some.moved <= 1.01 * every.moved
    assert not found.unrelieved or every.after_ppm > 1_021_000


def test_groups_with_headroom_are_asked_what_they_would_pass_on_for_a_large_partition():
    """Two partitions of two thirds of a target in one group, and no other group has such room."""
    rates = [MIB] * 400
    before = cluster(nodes(3), GROUPS, rates)
    home = before.partitions[0].group
    high = 1.02 * sum(rates) / GROUPS
    rows = tuple(row._replace(ingress=int(high * 2 / 3)) if row.group == home and place < 2 else row
                 for place, row in enumerate(sorted(before.partitions,
                                                    key=lambda row: row.group != home)))
    sums = {group: sum(row.ingress for row in rows if row.group == group)
            for group in range(GROUPS + 1)}
    before = before._replace(partitions=rows, groups=tuple(
        row._replace(ingress=sums[row.id], read=0) for row in before.groups))
    before = before._replace(partitions=tuple(row._replace(read=0) for row in rows))
    wanted = relief(State(before, POLICY), POLICY)
    assert home in wanted.excess
    assert wanted.passed_on and not set(wanted.passed_on) & set(wanted.excess)
    assert all(load > 0 for load in wanted.passed_on.values())


def test_nothing_is_asked_for_when_groups_are_not_balanced_or_may_not_change():
    whole = skewed(500, 0)
    assert not relief(State(whole, POLICY), POLICY._replace(bands=())).excess
    closed = POLICY._replace(excluded_groups=tuple(range(1, GROUPS + 1)))
    assert not relief(State(whole, closed), closed).excess
    assert not any(row.reason == SPLIT for row in make_plan(whole, closed).skipped
                   if row.load < MIB)
