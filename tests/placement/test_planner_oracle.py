"""The planner against exact answers, by trying every placement of small clusters.

Two questions to the oracle: how full must the fullest bin be at least, and how much must be moved
at least to be inside the band?  Bounds must be below, plans above, and most plans must be exact.
"""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import pytest

from placement.cluster import GroupRow, NodeRow, PartitionRow
from placement.outcome import planned
from placement.planner import make_plan
from placement.policy import DISK, EGRESS, GROUP_INGRESS, LEADERS, Options
from placement.shares import group_shares, node_shares
from placement.state import R_EGRESS, State, rack_limit
from placement.verify import verify
from tests.placement.clusters import only, snapshot

SEEDS = 80
BAND = 150

#: Placements that the oracle tries per case.
PLACEMENTS_MAX = 3000


def loads_of(dice, count):
    """Some alike, some skewed."""
    if dice.random() < 0.5:
        return [dice.randint(50, 150) for _ in range(count)]
    return [int(1 + 40 * dice.lognormvariate(0, 1)) for _ in range(count)]


# ---- replicas -----------------------------------------------------------------------------------

def replica_case(seed):
    """Three to five nodes in some racks, groups anywhere that the racks allow."""
    dice = random.Random(seed)
    count, racks = dice.randint(3, 5), dice.randint(1, 3)
    rows = [NodeRow(node, f"r{node % racks}", dice.choice((100, 100, 100, 200)))
            for node in range(1, count + 1)]
    factor = dice.randint(1, 2)
    allowed = allowed_sets(rows, factor)
    most = next(groups for groups in (6, 5, 4, 3) if len(allowed) ** groups <= PLACEMENTS_MAX)
    groups = [GroupRow(group, 1, 1, voters := dice.choice(allowed), voters[0], bytes=load)
              for group, load in enumerate(loads_of(dice, most))]
    return snapshot(rows, groups, factor=factor)


def allowed_sets(rows, factor):
    """Every set of voters that the racks allow."""
    racks = {}
    for row in rows:
        racks[row.rack] = racks.get(row.rack, 0) + 1
    limit = rack_limit(list(racks.values()), factor)
    rack_of = {row.id: row.rack for row in rows}
    return [voters for voters in itertools.combinations(sorted(rack_of), factor)
            if all(sum(rack_of[node] == rack for node in voters) <= limit for rack in racks)]


def every_placement(before):
    """(loads per node, moved) of every placement that the racks allow."""
    allowed = allowed_sets(before.nodes, before.replication_factor)
    for chosen in itertools.product(allowed, repeat=len(before.groups)):
        loads = {row.id: 0 for row in before.nodes}
        moved = 0
        for row, voters in zip(before.groups, chosen, strict=True):
            for node in voters:
                loads[node] += row.bytes
                moved += row.bytes * (node not in row.voters)
        yield loads, moved


def fullest(before, loads):
    """The worst load per 200 of weight: whole, as weights are 100 and 200."""
    return max(loads[row.id] * (200 // row.weight) for row in before.nodes)


@pytest.fixture(scope="module")
def replica_results():
    """(bound, best, ours, moved bound, least moved or None, moved) of every seed, in loads per 200
    of weight."""
    results = []
    for seed in range(SEEDS):
        before = replica_case(seed)
        policy = only(DISK, BAND)
        made = make_plan(before, policy)
        assert verify(made, before, before.taken_ms) == ()
        outcome = made.resources[0]
        unit = Fraction(200 * outcome.total, sum(row.weight for row in before.nodes)) / 1_000_000
        loads = {row.node: row.after[0] for row in made.nodes}
        shares = node_shares(State(planned(before, made), policy), policy.bands[0])
        band = {row.id: (shares.low[place], shares.high[place])
                for place, row in enumerate(before.nodes)}
        best, least = None, None
        for other, moved in every_placement(before):
            best = min(best or fullest(before, other), fullest(before, other))
            if all(low <= other[node] <= high for node, (low, high) in band.items()):
                least = moved if least is None else min(least, moved)
        results.append((outcome.bound_ppm * unit, best, fullest(before, loads),
                        outcome.moved_bound, least, outcome.moved,
                        all(low <= loads[node] <= high for node, (low, high) in band.items())))
    return results


def test_the_bound_of_balance_is_below_the_best_placement(replica_results):
    for bound, best, ours, *_ in replica_results:
        assert bound <= best <= ours


def test_the_bound_of_movement_is_below_the_least_movement(replica_results):
    checked = 0
    for *_, bound, least, moved, inside in replica_results:
        if least is not None:
            assert bound <= least
            checked += 1
            assert not inside or least <= moved
    assert checked >= 20


def test_most_plans_are_as_balanced_as_can_be(replica_results):
    """Within the band of the best placement in nine of ten; never a third above it."""
    within = [ours <= best * Fraction(1000 + BAND, 1000) for _, best, ours, *_ in replica_results]
    assert sum(within) >= 0.9 * len(within)
    assert all(3 * ours <= 4 * best for _, best, ours, *_ in replica_results)


def test_whoever_can_be_inside_the_band_mostly_gets_there_with_little(replica_results):
    possible = [result for result in replica_results if result[4] is not None]
    reached = [result for result in possible if result[6]]
    assert len(reached) >= 0.75 * len(possible)
    moved = sum(result[5] for result in reached)
    assert moved <= 1.25 * sum(result[4] for result in reached)


# ---- partitions ---------------------------------------------------------------------------------

def switch_case(seed):
    """Up to seven partitions in up to four groups; in some cases fewer than groups."""
    dice = random.Random(1000 + seed)
    pool = dice.randint(2, 4)
    rates = loads_of(dice, dice.randint(3, 8 - pool // 2))
    rows = [PartitionRow(number, "t", number, dice.randint(1, pool), ingress=rate)
            for number, rate in enumerate(rates, start=1)]
    sums = [sum(row.ingress for row in rows if row.group == group) for group in range(pool + 1)]
    groups = [GroupRow(group, 1, 1, (1,), 1, ingress=sums[group]) for group in range(1, pool + 1)]
    return snapshot([NodeRow(1)], groups, rows, factor=1, pool_size=pool)


def best_and_least(before, high):
    """Of every assignment: the lowest maximum, and the least that is switched to be below ``high``
    everywhere, or None."""
    rates = [row.ingress for row in before.partitions]
    pool, here = before.pool_size, [row.group for row in before.partitions]
    best, least = sum(rates), None
    for there in itertools.product(range(1, pool + 1), repeat=len(rates)):
        sums = [0] * (pool + 1)
        for rate, group in zip(rates, there, strict=True):
            sums[group] += rate
        best = min(best, max(sums))
        if all(load <= limit for load, limit in zip(sums[1:], high, strict=True)):
            moved = sum(rate for rate, old, new in zip(rates, here, there, strict=True)
                        if old != new)
            least = moved if least is None else min(least, moved)
    return best, least


@pytest.mark.parametrize("permille", (20, BAND))
def test_switches_against_every_assignment(permille):
    """Never half as much again as the best.  Groups that can be inside the band get there, in nine
    of ten cases, with a fifth more moves than the least at most."""
    exact = reached = possible = moved = needed = 0
    for seed in range(SEEDS):
        before = switch_case(seed)
        policy = only(GROUP_INGRESS, permille)
        made = make_plan(before, policy)
        outcome = made.resources[0]
        _, shares = group_shares(State(planned(before, made), policy), policy.bands[0])
        best, least = best_and_least(before, shares.high)
        after = [row.after for row in made.groups]
        assert outcome.bound_ppm * outcome.total <= best * before.pool_size * 1_000_000
        assert best <= max(after) <= 1.5 * best, seed
        exact += max(after) <= best * (1000 + permille) / 1000
        if least is not None:
            assert outcome.moved_bound <= least, seed
            possible += 1
            if all(load <= limit for load, limit in zip(after, shares.high, strict=True)):
                assert least <= outcome.moved, seed
                reached += 1
                moved += outcome.moved
                needed += least
    assert exact >= 0.95 * SEEDS
    assert possible >= 5 and reached >= 0.9 * possible
    assert moved <= 1.2 * needed


def test_hot_partitions_in_one_group_part_though_nothing_else_has_load():
    """With less load than groups an empty group has to count as room: for a fresh pool with a few
    hot partitions, nothing to do would be the wrong answer."""
    before = snapshot(
        [NodeRow(1)], [GroupRow(group, 1, 1, (1,), 1, ingress=86 * (group == 1))
                       for group in range(1, 9)],
        [PartitionRow(number, "t", number, 1, ingress=rate)
         for number, rate in enumerate((50, 33, 3), start=1)], factor=1, pool_size=8)
    made = make_plan(before, only(GROUP_INGRESS, BAND))
    assert sorted(row.after for row in made.groups)[-3:] == [3, 33, 50]
    assert made.resources[0].moved == 36
    assert make_plan(planned(before, made), only(GROUP_INGRESS, BAND)).moves == ()


# ---- leaders ------------------------------------------------------------------------------------

def test_leaders_against_every_choice():
    """Leaders count one each: the best is known, and reached in nine of ten."""
    exact = 0
    for seed in range(SEEDS):
        dice = random.Random(2000 + seed)
        count = dice.randint(3, 5)
        groups = [GroupRow(group, 1, 1, voters := tuple(dice.sample(range(1, count + 1), 2)),
                           voters[0]) for group in range(dice.randint(3, 8))]
        before = snapshot([NodeRow(node) for node in range(1, count + 1)], groups, factor=2)
        made = make_plan(before, only(LEADERS, 0), Options("leaders"))
        assert verify(made, before, before.taken_ms) == ()
        best = min(max(chosen.count(node) for node in chosen)
                   for chosen in itertools.product(*(row.voters for row in before.groups)))
        ours = max(row.after[3] for row in made.nodes)
        assert best <= ours <= best + 1
        exact += ours == best
    assert exact >= 0.9 * SEEDS


def test_what_leaders_send_against_every_choice():
    """Few groups, each more than any band: exchanges of two find the best in two of three (without
    them in one of four), and are within 5 % of it in eight of ten."""
    gaps = []
    for seed in range(SEEDS):
        dice = random.Random(3000 + seed)
        count = dice.randint(3, 4)
        groups = [GroupRow(group, 1, 1, voters := tuple(dice.sample(range(1, count + 1), 3)),
                           voters[0], ingress=dice.randint(400, 1300))
                  for group in range(dice.randint(6, 8))]
        before = snapshot([NodeRow(node) for node in range(1, count + 1)], groups, factor=3)
        made = make_plan(before, only(EGRESS, 0), Options("leaders"))
        assert verify(made, before, before.taken_ms) == ()
        best = min(_most_sent(before, chosen)
                   for chosen in itertools.product(*(row.voters for row in before.groups)))
        gaps.append(Fraction(max(row.after[R_EGRESS] for row in made.nodes), best) - 1)
        assert 0 <= gaps[-1] <= Fraction(1, 5)
        assert make_plan(planned(before, made), only(EGRESS, 0), Options("leaders")).moves == ()
    assert sum(gap == 0 for gap in gaps) >= 0.6 * SEEDS
    assert sum(gap <= Fraction(1, 20) for gap in gaps) >= 0.8 * SEEDS


def _most_sent(before, chosen):
    """By the node that sends most: leaders send what is appended to both followers."""
    sent = dict.fromkeys((row.id for row in before.nodes), 0)
    for row, leader in zip(before.groups, chosen, strict=True):
        sent[leader] += 2 * row.ingress
    return max(sent.values())
