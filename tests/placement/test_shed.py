"""The core of balancing on its own: what leaves a bin, and who takes it."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from placement.policy import DISK, Band
from placement.shares import Bins, shares_of
from placement.shed import (
    Item,
    assign,
    by_load,
    by_urgency,
    fitting_cap,
    shed,
    shed_candidates,
    too_large,
    urgent_first,
)

ITEMS = st.lists(st.integers(0, 60), max_size=9).map(
    lambda loads: sorted((Item(load, place) for place, load in enumerate(loads)), key=by_load))


def total(items):
    return sum(item.load for item in items)


@given(ITEMS, st.integers(-5, 300), st.integers(0, 80))
@settings(max_examples=150)
def test_what_is_shed_covers_the_excess_with_little_more(items, excess, cap):
    found = shed(items, excess, cap)
    usable = [item for item in items if 0 < item.load <= cap]
    assert len({item.id for item in found}) == len(found)
    assert all(item in usable for item in found)
    if excess <= 0:
        assert found == []
    elif total(usable) >= excess:
        assert total(found) >= excess
        assert all(total(found) - item.load < excess for item in found)  # nothing is needless
        best = min(total(some) for size in range(len(usable) + 1)
                   for some in itertools.combinations(usable, size) if total(some) >= excess)
        assert total(found) < best + max(item.load for item in usable)
    else:
        assert total(found) <= total(usable)


@given(ITEMS, st.integers(-5, 300), st.integers(0, 80))
def test_who_is_relieved_names_a_small_item_of_each_power_of_two_as_well(items, excess, cap):
    chosen = shed(items, excess, cap)
    found = shed_candidates(items, excess, cap)
    assert found[:len(chosen)] == chosen
    smallest = {item.load.bit_length(): item for item in items if 0 < item.load <= cap}
    assert set(found) == {*chosen, *smallest.values()} and len(found) == len(set(found))


@given(st.lists(st.lists(st.integers(0, 60), max_size=4), min_size=1, max_size=3),
       st.integers(0, 8), st.integers(0, 60))
@settings(max_examples=150)
def test_no_other_choice_of_so_many_items_makes_the_worst_bin_lower(bins, most, level):
    """But for a level, below which it does not matter."""
    ids = itertools.count()
    bins = [[Item(load, next(ids)) for load in loads] for loads in bins]

    def worst(chosen):
        return max(level, *(total(item for item in items if item not in chosen)
                            for items in bins))

    ranked = sorted((found for items in bins
                     for found in by_urgency(items, total(items) - level)), key=urgent_first)
    every = [item for items in bins for item in items]
    best = min(worst(some) for some in itertools.combinations(every, min(most, len(every))))
    assert worst([item for _, item in ranked[:most]]) == best
    assert [item.load for urgency, item in ranked if not urgency] == sorted(
        (item.load for urgency, item in ranked if not urgency), reverse=True)


class Looked(list):
    """Counter of items that are read."""

    count = 0

    def __getitem__(self, place):
        self.count += 1
        return super().__getitem__(place)

    def __iter__(self):
        raise AssertionError("all of them are looked at")


def test_of_a_million_items_few_are_looked_at():
    """A bin may be a column of millions of rows."""
    items = Looked(Item(load, 1_000_000 - load) for load in range(1_000_000, 0, -1))
    found = shed_candidates(items, 3_000_000, 900_000)
    assert total(found) >= 3_000_000
    assert items.count < 10_000


@given(ITEMS, st.dictionaries(st.integers(0, 5), st.integers(-10, 90), max_size=5), st.randoms())
@settings(max_examples=200)
def test_no_bin_takes_more_than_its_headroom_and_order_does_not_matter(items, rooms, rng):
    placed = assign(items, rooms)
    for bin_ in rooms:
        taken = sum(item.load for item, target in placed if target == bin_)
        assert taken <= max(0, rooms[bin_])
    assert len({item.id for item, _ in placed}) == len(placed)
    mixed, turned = list(items), dict(reversed(rooms.items()))
    rng.shuffle(mixed)
    assert assign(mixed, turned) == placed


@given(ITEMS, st.integers(1, 120), st.integers(0, 60))
@settings(max_examples=200)
def test_of_the_large_those_leave_that_weigh_least_and_let_the_others_do_the_rest(items, high, cap):
    load = total(items)
    found = too_large(items, load, high, cap)
    giant = items[:1] if items and items[0].load > high else []
    small = total(item for item in items if item.load <= cap and item not in giant)
    large = [item for item in items if item.load > cap and item not in giant]
    need = load - max(high, total(giant)) - small
    assert set(found) <= set(large)
    if need <= 0:
        assert found == []
    elif total(large) < need:
        assert found == large
    else:
        assert total(found) == min(
            total(some) for size in range(len(large) + 1)
            for some in itertools.combinations(large, size) if total(some) >= need)


def test_beyond_the_choices_that_are_tried_the_largest_leave():
    items = [Item(100 - place, place) for place in range(40)]
    found = too_large(items, total(items), 300, 0)
    assert total(items) - total(found) <= 300
    assert total(found) < total(items) - 300 + 100


def test_the_cap_is_what_a_tenth_of_the_receivers_can_take():
    assert fitting_cap(range(1, 101)) == 90
    assert fitting_cap([7]) == 7
    assert fitting_cap([0, -3]) == fitting_cap([]) == 0


# ---- shares -------------------------------------------------------------------------------------

def equal(held, permille=20, floor=0):
    """Shares of equal bins in one rack."""
    whole = sum(map(sum, held))
    return shares_of(Bins((1,) * len(held), (0,) * len(held), (whole,)), held, (), 0,
                     Band(DISK, permille, floor))


def test_an_oversized_item_leaves_its_share_to_the_others():
    shares = equal([[90], [3, 3], [2, 2]])
    assert shares.bound == "largest" and shares.bound_ppm == 2_700_000
    assert shares.share == (5, 5, 5) and shares.level_ppm == 150_000


def test_where_all_load_is_oversized_an_empty_bin_may_take_the_smallest_item():
    shares = equal([[50, 33, 3], [], [], []])
    assert shares.share == (3, 3, 3, 3)


def test_pigeons_share_holes():
    shares = equal([[10, 10], [10], [10]])
    assert (shares.bound, shares.bound_ppm) == ("pigeonhole", 1_500_000)


def test_a_small_rack_is_full_before_the_others_have_their_share():
    """Two replicas of each group, racks of one and of three nodes: the small rack's node has to
    take one of each, whatever its weight."""
    held = [[15, 15, 15, 15], [15, 15], [15], [15]]
    for weight, worst in ((1, 2_000_000), (9, 2_000_000)):
        bins = Bins((weight, 1, 1, 1), (0, 1, 1, 1), (60, 60))
        shares = shares_of(bins, held, (), 0, Band(DISK, 0))
        assert shares.share == (60, 20, 20, 20)
        assert (shares.bound, shares.bound_ppm) == ("racks", worst)


def test_a_rack_whose_nodes_all_hold_oversized_items_has_no_share_left():
    bins = Bins((1, 1, 1, 1), (0, 1, 1, 1), (60, 60))
    shares = shares_of(bins, [[30, 30], [30], [30], []], (), 0, Band(DISK, 0))
    assert shares.share == (60, 0, 0, 0) and shares.bound_ppm == 2_000_000


def test_below_the_floor_nothing_is_too_much_and_nothing_is_missing():
    shares = equal([[10], [1], [1]], floor=50)
    assert shares.high == (50, 50, 50) and shares.low == (0, 0, 0)


def test_nothing_has_no_share():
    shares = equal([[], []])
    assert shares.total == 0 and shares.share == (0, 0) and shares.ppm(5, 1) == 0
