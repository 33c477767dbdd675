"""The core of balancing: which items leave a bin that is too full, and which bin takes them.

Contract.  Whole numbers in, whole numbers out, ties broken by id: the result is a function of the
values, whatever order they came in.  Nothing here knows what a bin is: groups that hold partitions,
or nodes that hold replicas.  A distributed planner computes loads, targets and ``fitting_cap``
where the data is, runs ``shed`` bin by bin (a bin's items are all it needs), and calls ``assign``
once with what was shed, which is a small set.

Theory.  Placing from scratch, by hashing with bounded loads or longest processing time first, is
balanced and moves nearly everything.  What must move is only each bin's excess over its target.
Shedding the largest items first covers it with few moves; an item larger than the room of (nearly)
every receiver would be shed in vain, so only items up to a cap are considered: with the largest
excluded by the cap of the tenth part of the receivers that have most room, skewed loads reach the
band where shedding without it stalls (placement study, 5.2).  ``assign`` is longest processing time
first into the room that is left (Graham 1969): its error is at most one item.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

#: Exchanges that ``shed`` tries for each bin: the surplus is tiny after a few.
EXCHANGES_MAX = 16
#: Items of one bin of which ``too_large`` tries every choice.
LARGE_MAX = 10


class Item(NamedTuple):
    """Something with a load that is in one bin and cannot be divided."""

    load: int
    id: int


def by_load(item: Item) -> tuple[int, int]:
    """Largest first, ties by id."""
    return (-item.load, item.id)


def fitting_cap(rooms: Iterable[int]) -> int:
    """The largest load that a tenth of the bins with room (at least one) can take; 0 when none has
    room.  O(bins log bins)."""
    ordered = sorted((room for room in rooms if room > 0), reverse=True)
    return ordered[len(ordered) // 10] if ordered else 0


def shed(items: Sequence[Item], excess: int, cap: int) -> list[Item]:
    """Items whose departure takes at least ``excess`` from a bin, or as much as items of at most
    ``cap`` can take.  ``items`` are in the order of ``by_load``.  O(items).

    Of two ways the one that moves less is taken: the largest items that still fit into the excess,
    the rest covered by the smallest item that does it, and then exchanged for smaller ones as far
    as the excess allows; or one item that covers all of it.
    """
    if excess <= 0:
        return []
    chosen: list[Item] = []
    spare: list[Item] = []
    rest = excess
    for item in items:
        if not 0 < item.load <= cap:
            continue
        if item.load <= rest:
            chosen.append(item)
            rest -= item.load
        else:
            spare.append(item)
    if not rest:
        return chosen
    cover = _smallest_of_at_least(spare, rest)
    if cover is None:
        return chosen
    alone = _smallest_of_at_least(spare, excess)
    if alone is not None and alone.load <= excess - rest + cover.load:
        return [alone]
    kept, surplus = _without_needless(chosen, cover.load - rest)
    return _exchanged([*kept, cover], [item for item in items if 0 < item.load <= cap], surplus)


def without_dust(items: list[Item], most: int) -> list[Item]:
    """All but the smallest items that together are at most ``most``.  ``items`` are in the order of
    ``by_load``.  O(items)."""
    kept = len(items)
    while kept and items[kept - 1].load <= most:
        most -= items[kept - 1].load
        kept -= 1
    return items[:kept]


def relieving(items: Sequence[Item], excess: int, cap: int) -> list[Item]:
    """What ``shed`` takes, and of each power of two of load one small item more: so that whoever
    knows only these can cover what is left of the excess nearly as well.  O(items)."""
    chosen = dict.fromkeys(shed(items, excess, cap))
    smallest = {item.load.bit_length(): item for item in items if 0 < item.load <= cap}
    return [*chosen, *(item for item in smallest.values() if item not in chosen)]


def too_large(items: Sequence[Item], load: int, high: int, cap: int) -> list[Item]:
    """Items above ``cap`` that have to leave a bin with this ``load`` and target ``high``, because
    all others together do not relieve it: those that weigh least together.  The largest of all
    stays when it is above the target itself.  ``items`` are in the order of ``by_load``.
    O(items + 2 ** LARGE_MAX)."""
    giant = bool(items) and items[0].load > high
    excess = load - (items[0].load if giant else high)
    large = [item for item in items[giant:] if item.load > cap]
    need = excess - sum(item.load for item in items if 0 < item.load <= cap)
    if need <= 0 or sum(item.load for item in large) < need:
        return large if need > 0 else []
    # Beyond these, the largest ones leave: there are hardly ever so many.
    chosen, large = large[:-LARGE_MAX], large[-LARGE_MAX:]
    need -= sum(item.load for item in chosen)
    best = min(group for count in range(len(large) + 1)
               for some in combinations(large, count)
               if (group := (sum(item.load for item in some), some))[0] >= need)
    return [*chosen, *best[1]]


def _exchanged(chosen: list[Item], items: Sequence[Item], surplus: int) -> list[Item]:
    """Exchange items for smaller ones until the surplus is as small as single exchanges make it.

    ``items`` are all that may be chosen, in the order of ``by_load``.  O(items) per exchange.
    """
    taken = {item: None for item in chosen}
    for _ in range(EXCHANGES_MAX):
        spare = [item for item in items if item not in taken]
        best: tuple[tuple[int, int], Item, Item] | None = None
        for item in taken:
            other = _smallest_of_at_least(spare, max(1, item.load - surplus))
            if other is not None and other.load < item.load \
                    and (best is None or (item.load - other.load, -item.id) > best[0]):
                best = ((item.load - other.load, -item.id), item, other)
        if best is None:
            break
        (less, _), item, other = best
        surplus -= less
        del taken[item]
        taken[other] = None
    return list(taken)


def _smallest_of_at_least(items: Sequence[Item], load: int) -> Item | None:
    """``items`` are in the order of ``by_load``; ties go to the smaller id."""
    place = bisect_left(items, -load + 1, key=lambda item: -item.load)
    if not place:
        return None
    smallest = items[place - 1].load
    return items[bisect_left(items, -smallest, key=lambda item: -item.load)]


def _without_needless(chosen: list[Item], surplus: int) -> tuple[list[Item], int]:
    """Leave out what the covering item made superfluous, largest first; and the surplus left."""
    kept = []
    for item in chosen:
        if item.load <= surplus:
            surplus -= item.load
        else:
            kept.append(item)
    return kept, surplus


def assign(items: Iterable[Item], rooms: dict[int, int]) -> list[tuple[Item, int]]:
    """Each item that fits somewhere, with the bin that takes it: largest first, into the bin with
    most room, ties by id.  ``rooms`` is not changed.  O((items + bins) log bins)."""
    heap = [(-room, bin_) for bin_, room in rooms.items() if room > 0]
    heapq.heapify(heap)
    placed = []
    for item in sorted(items, key=by_load):
        if heap and item.load <= -heap[0][0]:
            room, bin_ = heap[0]
            placed.append((item, bin_))
            heapq.heapreplace(heap, (room + item.load, bin_))
    return placed
