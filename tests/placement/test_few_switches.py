"""Plans that may not have all the switches it takes: the worst groups gain first."""

from __future__ import annotations

import random

import pytest

from placement.cluster import GroupRow, NodeRow, PartitionRow
from placement.outcome import planned
from placement.plan import MOVES_LIMIT, TOPIC_SWITCH
from placement.planner import make_plan
from placement.policy import GROUP_INGRESS
from placement.sampling import sample_partitions
from placement.shares import group_shares
from placement.shed import (
    Item,
    assign,
    by_load,
    by_urgency,
    fitting_cap,
    shed,
    shed_candidates,
    urgent_first,
)
from placement.state import State
from placement.switches import relief
from placement.verify import verify
from tests.placement.clusters import only, snapshot

GROUPS = 24
PARTITIONS = 600
MEAN = 1000
BAND = 20


def zipf(seed, exponent=0.8):
    """Many partitions, of which a few are larger than a group's share, thrown into groups."""
    dice = random.Random(seed)
    rates = [rank ** -exponent for rank in range(1, PARTITIONS + 1)]
    rates = [1 + int(MEAN * PARTITIONS * rate / sum(rates)) for rate in rates]
    dice.shuffle(rates)
    rows = [PartitionRow(number, f"t{number}", 0, dice.randint(1, GROUPS), ingress=rate)
            for number, rate in enumerate(rates, start=1)]
    sums = [0] * (GROUPS + 1)
    for row in rows:
        sums[row.group] += row.ingress
    return snapshot([NodeRow(1)], [GroupRow(group, 1, 1, (1,), 1, ingress=sums[group])
                                   for group in range(1, GROUPS + 1)], rows, factor=1,
                    pool_size=GROUPS)


def few(switches):
    return only(GROUP_INGRESS, BAND, switches_max=switches)


def worst(made):
    return max(row.after for row in made.groups)


def shed_by_all(before):
    """Return the items that groups above their targets shed, and the free capacity of the
    others."""
    state = State(before, few(0))
    groups, shares = group_shares(state, few(0).bands[0])
    high = dict(zip(groups, shares.high, strict=True))
    rooms = {group: high[group] - state.ingress[group] for group in groups
             if state.ingress[group] < high[group]}
    cap = fitting_cap(rooms.values())
    leaving = {group: shed(sorted((Item(row.ingress, row.incarnation) for row in before.partitions
                                   if row.group == group), key=by_load),
                           state.ingress[group] - high[group], cap)
               for group in groups if state.ingress[group] > high[group]}
    return leaving, rooms


def heaviest_first(before, switches):
    """The worst group when of all that is shed the heaviest is switched."""
    leaving, rooms = shed_by_all(before)
    loads = {row.id: row.ingress for row in before.groups}
    home = {row.incarnation: row.group for row in before.partitions}
    placed = assign((item for items in leaving.values() for item in items), rooms)
    for item, group in placed[:switches]:
        loads[home[item.id]] -= item.load
        loads[group] += item.load
    return max(loads.values())


@pytest.mark.parametrize("seed", range(12))
def test_with_few_switches_the_worst_group_is_no_worse_than_with_the_heaviest_first(seed):
    before = zipf(seed)
    needed = sum(map(len, shed_by_all(before)[0].values()))
    better = 0
    for switches in (1, 2, 5, 10, 20, 40, 80):
        if switches >= needed:
            break
        made = make_plan(before, few(switches))
        assert verify(made, before, before.taken_ms) == ()
        assert not made.converged and len(made.moves) <= switches
        assert any(row.reason == MOVES_LIMIT for row in made.skipped)
        assert worst(made) <= heaviest_first(before, switches)
        better += worst(made) < heaviest_first(before, switches)
    assert better


@pytest.mark.parametrize("seed", range(6))
def test_what_few_switches_move_has_to_move(seed):
    """Nothing moves twice, or out of a group that is not above its target, or into one that is
    above it then; and of what left the fullest group nothing was more than its level took."""
    before = zipf(seed)
    state = State(before, few(0))
    groups, shares = group_shares(state, few(0).bands[0])
    high = dict(zip(groups, shares.high, strict=True))
    made = make_plan(before, few(30))
    loads = {row.incarnation: row.ingress for row in before.partitions}
    assert {move.kind for move in made.moves} == {TOPIC_SWITCH}
    assert len({move.incarnation for move in made.moves}) == len(made.moves)
    left = {group: [loads[move.incarnation] for move in made.moves if move.from_group == group]
            for group in groups}
    for row in made.groups:
        assert row.before > high[row.group] or not left[row.group]
        assert row.after <= max(row.before, high[row.group])
    fullest = max(made.groups, key=lambda row: row.before)
    level = relief(state, few(0)).urgent[fullest.group]
    assert sum(left[fullest.group]) - min(left[fullest.group]) < level
    assert made.resources[0].moved == sum(map(sum, left.values()))


@pytest.mark.parametrize("seed", range(4))
def test_plan_after_plan_goes_on_until_there_is_nothing_to_do(seed):
    now, plans, moved = zipf(seed), [], 0
    for _ in range(40):
        plans.append(make_plan(now, few(25)))
        moved += plans[-1].resources[0].moved
        now = planned(now, plans[-1])
        if plans[-1].converged:
            break
    assert plans[-1].converged and len(plans) > 3
    assert make_plan(now, few(25)).moves == ()
    high = [worst(made) for made in plans]
    assert high == sorted(high, reverse=True)
    at_once = make_plan(zipf(seed), few(5000))
    assert at_once.converged and moved <= 1.02 * at_once.resources[0].moved


def test_the_order_of_rows_does_not_matter_when_switches_are_few():
    before = zipf(1)
    rows = list(before.partitions)
    random.Random(0).shuffle(rows)
    mixed = before._replace(partitions=tuple(rows), groups=before.groups[::-1])
    assert make_plan(mixed, few(30)).plan_id == make_plan(before, few(30)).plan_id


@pytest.mark.parametrize("seed", range(6))
def test_a_listing_of_the_most_urgent_partitions_leads_to_the_same_worst_group(seed):
    """As Spark lists: of all that groups shed, twice as many as may be switched."""
    before = zipf(seed)

    def shed_there(wanted, known):
        found = []
        for group, load in {**wanted.passed_on, **wanted.excess}.items():
            items = sorted((Item(row.ingress, row.incarnation) for row in before.partitions
                            if row.group == group and row.incarnation not in known), key=by_load)
            found += by_urgency(shed_candidates(items, load, wanted.cap),
                                wanted.urgent.get(group, 0))
        chosen = {item.id for _, item in sorted(found, key=urgent_first)[:80]}
        return [row for row in before.partitions if row.incarnation in chosen]

    found = sample_partitions(before._replace(partitions=()), few(40),
                   lambda least: [row for row in before.partitions if row.ingress > least],
                   shed_there)
    some = make_plan(before._replace(partitions=found.partitions), few(40))
    every = make_plan(before, few(40))
    assert found.unrelieved and len(found.partitions) < len(before.partitions) // 2
    assert worst(some) == worst(every) < heaviest_first(before, 40)
