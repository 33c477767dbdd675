"""The core of balancing: which items leave a bin that is too full, and which bin takes them.

Contract.  Whole numbers in, whole numbers out, ties broken by id: the result is a function of the
values, whatever order they came in.  Nothing here knows what a bin is: groups that hold partitions,
or nodes that hold replicas.  A distributed planner computes loads, targets and ``fitting_cap``
where the data is, runs ``shed`` bin by bin (a bin's items are all it needs), and calls ``assign``
once with what was shed, which is a small set.

Theory.  Placing from scratch, by hashing with bounded loads or longest processing time first, is
balanced and moves nearly everything.  What must move is only each bin's excess over its target.
Shedding the largest items first covers it with few moves; an item larger than the headroom of
(nearly) every receiver would be shed in vain, so only items up to a cap are considered: with the
largest excluded by the cap of the tenth part of the receivers that have most headroom, skewed loads
reach the band where shedding without it stalls (placement study, 5.2).  ``assign`` is longest
processing time first into the headroom that is left (Graham 1969): its error is at most one item.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

#: Exchanges that ``shed`` tries for each bin: the surplus is tiny after a few.
EXCHANGES_MAX = 16
#: Items of one bin of which ``too_large`` tries every choice.
LARGE_MAX = 10


class Item(NamedTuple):
    """A load in one bin that cannot be divided."""

    load: int
    id: int


def by_load(item: Item) -> tuple[int, int]:
    """Return the sort key of an item: largest first, ties by id."""
    return (-item.load, item.id)


def fitting_cap(headroom: Iterable[int]) -> int:
    """Return the largest load that a tenth of the bins with headroom (at least one) can take; 0
    when none has headroom. O(bins log bins)."""
    ordered = sorted((load for load in headroom if load > 0), reverse=True)
    return ordered[len(ordered) // 10] if ordered else 0


def shed(items: Sequence[Item], excess: int, cap: int) -> list[Item]:
    """Return items whose departure takes at least ``excess`` from a bin, or as much as items of at
    most ``cap`` can take.

    ``items`` are in the order of ``by_load``; few of them are read.  O(shed * log items).  Of two
    ways the one that moves less is taken.  The first takes the largest items that still fit into
    the excess and covers the rest by the smallest item that does it, which is then exchanged for
    smaller ones as far as the excess allows.  The second takes one item that covers all of it."""
    if excess <= 0:
        return []
    bin_ = _Bin(items, cap)
    chosen, rest = bin_.fitting(excess)
    taken = set(chosen)
    cover = bin_.smallest_of_at_least(rest, taken) if rest else None
    if cover is None:
        return [items[place] for place in chosen]
    alone = bin_.smallest_of_at_least(excess, taken)
    if alone is not None and items[alone].load <= excess - rest + items[cover].load:
        return [items[alone]]
    kept, surplus = bin_.without_needless(chosen, items[cover].load - rest)
    return [items[place] for place in bin_.exchanged([*kept, cover], surplus)]


def without_negligible(items: list[Item], most: int) -> list[Item]:
    """Return the items without the smallest ones that together are at most ``most``. ``items`` are
    in the order of ``by_load``. O(items)."""
    kept = len(items)
    while kept and items[kept - 1].load <= most:
        most -= items[kept - 1].load
        kept -= 1
    return items[:kept]


def shed_candidates(items: Sequence[Item], excess: int, cap: int) -> list[Item]:
    """Return what ``shed`` returns, then, of the items up to ``cap``, the smallest of each power of
    two of load unless it is among those.

    With these few, a planner that does not have the bin can choose nearly as well as from all.
    O((shed + log cap) * log items)."""
    chosen = dict.fromkeys(shed(items, excess, cap))
    return [*chosen, *(item for item in _Bin(items, cap).smallest_of_each_power()
                       if item not in chosen)]


def by_urgency(items: Iterable[Item], above: int) -> list[tuple[int, Item]]:
    """Return (urgency, item) for each item, the largest first. The urgency is the bin's load above
    a level until the item has left, at least 0. ``above``: that load with all items.

    When not all may leave, the most urgent items of all bins pull the highest bins down with the
    fewest items. O(items log items)."""
    found = []
    for item in sorted(items, key=by_load):
        found.append((max(0, above), item))
        above -= item.load
    return found


def urgent_first(found: tuple[int, Item]) -> tuple[int, int, int]:
    """Return the sort key of a pair (urgency, item) of ``by_urgency``: the highest urgency first,
    then the largest item, ties by id."""
    urgency, item = found
    return (-urgency, *by_load(item))


class _Bin:
    """Items in the order of ``by_load``, by their positions; those from ``first`` to ``end`` may be
    shed.  Only the positions in use are read: a bin may be millions of rows."""

    def __init__(self, items: Sequence[Item], cap: int):
        self.items = items
        self.first = bisect_left(items, -cap, key=_descending)
        self.end = bisect_left(items, 0, self.first, key=_descending)

    def fitting(self, excess: int) -> tuple[list[int], int]:
        """Return the places of the largest items that fit into ``excess`` one after the other, and
        the excess that is left."""
        chosen: list[int] = []
        place = self.first
        while excess and place < self.end:
            if self.items[place].load > excess:
                place = bisect_left(self.items, -excess, place, self.end, key=_descending)
                if place == self.end:
                    break
            chosen.append(place)
            excess -= self.items[place].load
            place += 1
        return chosen, excess

    def smallest_of_at_least(self, load: int, taken: Collection[int],
                             after: int = -1) -> int | None:
        """Return the place of the smallest item of at least ``load`` that is not taken and comes
        ``after`` a place; None = there is none. Of equal items that of the smallest id."""
        items = self.items
        first = max(self.first, after + 1)
        place = bisect_left(items, -load + 1, first, self.end, key=_descending) - 1
        while place >= first and place in taken:
            place -= 1
        if place < first:
            return None
        place = bisect_left(items, -items[place].load, self.first, place, key=_descending)
        while place in taken:
            place += 1
        return place

    def smallest_of_each_power(self) -> list[Item]:
        """Return, for each power of two that loads of the items fall into, the item with the least
        load; the largest loads first."""
        found = []
        end = self.end
        while end > self.first:
            item = self.items[end - 1]
            found.append(item)
            end = bisect_left(self.items, -(1 << item.load.bit_length()) + 1, self.first, end,
                              key=_descending)
        return found[::-1]

    def without_needless(self, chosen: list[int], surplus: int) -> tuple[list[int], int]:
        """Leave out chosen items that the covering item made superfluous, largest first. Return the
        places kept and the surplus left."""
        kept = []
        for place in chosen:
            if self.items[place].load <= surplus:
                surplus -= self.items[place].load
            else:
                kept.append(place)
        return kept, surplus

    def exchanged(self, chosen: list[int], surplus: int) -> list[int]:
        """Exchange chosen items for smaller ones until single exchanges reduce the surplus no
        further, at most ``EXCHANGES_MAX``. Return the places."""
        taken = dict.fromkeys(chosen)
        for _ in range(EXCHANGES_MAX):
            best: tuple[tuple[int, int], int, int] | None = None
            for place in taken if surplus else ():
                item = self.items[place]
                other = self.smallest_of_at_least(max(1, item.load - surplus), taken, place)
                if other is None or self.items[other].load >= item.load:
                    continue
                gain = (item.load - self.items[other].load, -item.id)
                if best is None or gain > best[0]:
                    best = (gain, place, other)
            if best is None:
                break
            (less, _), place, other = best
            surplus -= less
            del taken[place]
            taken[other] = None
        return list(taken)


def _descending(item: Item) -> int:
    return -item.load


def too_large(items: Sequence[Item], load: int, high: int, cap: int) -> list[Item]:
    """Return the items above ``cap`` that have to leave a bin with this ``load`` and target
    ``high``, because all items up to ``cap`` together do not relieve it; none if these suffice. Of
    the choices that relieve it, that with the least load (of more than ``LARGE_MAX``, the largest
    leave in any case); all items above ``cap`` if even they do not suffice. The largest item of all
    stays when it is above the target itself; then all other load has to leave. ``items`` are in the
    order of ``by_load``. O(items + 2 ** LARGE_MAX)."""
    has_oversized = bool(items) and items[0].load > high
    excess = load - (items[0].load if has_oversized else high)
    large = [item for item in items[has_oversized:] if item.load > cap]
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


def assign(items: Iterable[Item], headroom: dict[int, int]) -> list[tuple[Item, int]]:
    """Return each item that fits somewhere, with the bin that takes it: largest first, into the bin
    with most headroom, ties by id. Items that fit nowhere are left out; ``headroom`` is not
    changed. O((items + bins) log bins)."""
    heap = [(-free, bin_) for bin_, free in headroom.items() if free > 0]
    heapq.heapify(heap)
    placed = []
    for item in sorted(items, key=by_load):
        if heap and item.load <= -heap[0][0]:
            free, bin_ = heap[0]
            placed.append((item, bin_))
            heapq.heapreplace(heap, (free + item.load, bin_))
    return placed
