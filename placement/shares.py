"""Shares and targets of bins, and lower bounds of any placement.

Contract.  ``node_shares`` and ``group_shares`` compute a resource's ``Shares`` from the state; all
in whole numbers, O(items + bins log bins).  A share is by weight, corrected in two ways:

* A rack takes at most its even part of each group.  So racks with little weight per replica are
  full before the others, and the others share the rest (water filling).
* A bin with an *oversized* item, which is larger than the share of any bin, holds nothing else; the
  others share the remaining load.  Without that, "the worst node is at the lower bound" would be
  said of any placement as soon as one partition is hot.

``bound_ppm`` is a true lower bound of the worst bin, over all placements of the same items: the
mean; the racks; the largest item; two of the N + 1 largest, which share a bin (pigeonhole).
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence
from typing import NamedTuple

from placement.policy import DISK, EGRESS, INGRESS, LEADERS, PERMILLE, REPLICAS, Band
from placement.state import (
    NO_NODE,
    R_DISK,
    R_EGRESS,
    R_INGRESS,
    R_LEADERS,
    R_REPLICAS,
    REPLICA_LOADS,
    State,
)

PPM = 1_000_000

MEAN, RACKS, LARGEST, PIGEONHOLE = "mean", "racks", "largest", "pigeonhole"

#: Position of each resource in a node's loads.
POSITION = {DISK: R_DISK, INGRESS: R_INGRESS, EGRESS: R_EGRESS, LEADERS: R_LEADERS,
            REPLICAS: R_REPLICAS}

#: Loads per weight are compared with this many fraction bits.
_WEIGHT_BITS = 40

#: The level of a rack without bins.
NO_WEIGHT = (0, 0)

#: Items below this part of a bin's mean share are negligible: they are not oversized, and no bound
#: follows from them.  If they were oversized, the others would have to hold fifteen sixteenths.
_SMALL_PART = 16


class Bins(NamedTuple):
    """Weights of bins (0 = no bin), their racks, and the most that each rack can take."""

    weights: tuple[int, ...]
    racks: tuple[int, ...]
    rack_caps: tuple[int, ...]


class Shares(NamedTuple):
    """Share, targets and bound of each bin for one resource.

    ``share``, ``high`` and ``low`` are loads per bin: its share, the target that it should not
    exceed, and the one below which it should not stay.  ``unit`` is its share by weight alone, at
    least 1, in which deviations are compared between bins."""

    total: int
    weight: int
    share: tuple[int, ...]
    high: tuple[int, ...]
    low: tuple[int, ...]
    unit: tuple[int, ...]
    level_ppm: int
    bound_ppm: int
    bound: str

    def ppm(self, load: int, weight: int) -> int:
        """Return ``load`` in millionths of the share of a bin of this weight, by weight alone,
        rounded up."""
        if not self.total or not weight:
            return 0
        return -(-load * self.weight * PPM // (self.total * weight))


def shares_of(bins: Bins, held: Sequence[Sequence[int]], displaced: Sequence[int], fixed: int,
              band: Band) -> Shares:
    """Return shares, targets and bound of ``bins``. ``held``: loads of the items in each bin; those
    in bins of weight 0 do not count. ``displaced``: items that have to leave their bin anyhow;
    ``fixed``: load that is not worth listing."""
    counted = [items if weight else () for items, weight in zip(held, bins.weights, strict=True)]
    total = sum(map(sum, counted)) + sum(displaced) + fixed
    weight = sum(bins.weights)
    if not total or not weight:
        zero = (0,) * len(bins.weights)
        one = (1,) * len(zero)
        return Shares(total, weight, zero, (band.floor,) * len(zero), zero, one, 0, 0, MEAN)
    pieces = _large_pieces(bins, counted, displaced, total, weight)
    bound, bound_ppm = _bound(bins, pieces, total, weight)
    levels = _levels(bins, pieces, total)
    share = tuple(levels[rack][0] * bin_weight // levels[rack][1]
                  for rack, bin_weight in zip(bins.racks, bins.weights, strict=True))
    high = tuple(_high(levels[rack], bin_weight, band)
                 for rack, bin_weight in zip(bins.racks, bins.weights, strict=True))
    low = tuple(part * max(0, PERMILLE - band.permille) // PERMILLE if part > band.floor else 0
                for part in share)
    unit = tuple(max(1, total * bin_weight // weight) for bin_weight in bins.weights)
    level_ppm = max(-(-load * weight * PPM // (bin_weight * total)) for load, bin_weight in levels)
    return Shares(total, weight, share, high, low, unit, level_ppm, bound_ppm, bound)


def negligible_load(total: int, weight: int, weights: int) -> int:
    """Return the load up to which an item is negligible for a bin of ``weight`` among bins of
    ``weights`` in all: it is not oversized and no bound follows from it, so it may be left out of
    the items as long as it is in the ``fixed`` load."""
    return total * weight // (_SMALL_PART * weights)


def _large_pieces(bins: Bins, held: Sequence[Sequence[int]], displaced: Sequence[int], total: int,
                  weight: int) -> list[tuple[int, int]]:
    """Return (load, bin) of the items that may be oversized, largest first; a displaced one counts
    for the heaviest bin. At most _SMALL_PART times as many as bins."""
    heaviest = max(range(len(bins.weights)), key=lambda each: (bins.weights[each], -each))
    found = []
    for bin_, items in ((heaviest, displaced), *enumerate(held)):
        least = negligible_load(total, bins.weights[bin_], weight)
        found += [(load, bin_) for load in items if load > least]
    found.sort(key=lambda piece: (-piece[0], piece[1]))
    return found


def _high(level: tuple[int, int], weight: int, band: Band) -> int:
    load, bin_weight = level
    target = load * weight * (PERMILLE + band.permille) // (bin_weight * PERMILLE)
    if band.resource in (LEADERS, REPLICAS):  # whole ones: the mean rounded up is no excess
        target = max(target, -(-load * weight // bin_weight))
    return max(target, band.floor)


# ---- bounds -------------------------------------------------------------------------------------

def _bound(bins: Bins, pieces: Sequence[tuple[int, int]], total: int,
           weight: int) -> tuple[str, int]:
    """Return (name, value) of the highest lower bound of the fullest bin's load, in millionths of
    its share by weight."""
    heaviest = max(bins.weights)
    count = sum(bin_weight > 0 for bin_weight in bins.weights)
    largest = heapq.nlargest(count + 1, (load for load, _ in pieces))
    found = [(MEAN, total, weight)]
    found += [(RACKS, *level) for level in _fill(bins, bins.weights, total, bins.rack_caps)
              if level != NO_WEIGHT]
    if largest:
        found.append((LARGEST, largest[0], heaviest))
    if len(largest) == count + 1:
        found.append((PIGEONHOLE, largest[-1] + largest[-2], heaviest))
    best = (MEAN, 0)
    for name, load, bin_weight in found:
        ppm = load * weight * PPM // (bin_weight * total)
        if ppm > best[1]:
            best = (name, ppm)
    return best


def _fill(bins: Bins, weights: Sequence[int], total: int,
          caps: Sequence[int]) -> list[tuple[int, int]]:
    """Return (load, weight) of each rack when ``total`` is shared by weight and no rack exceeds its
    cap.

    Racks whose cap is reached first are full; the others share the rest. When all are full, the
    last takes the rest."""
    bin_weight = [0] * len(caps)
    for rack, weight in zip(bins.racks, weights, strict=True):
        bin_weight[rack] += weight
    order = sorted((rack for rack in range(len(caps)) if bin_weight[rack]),
                   key=lambda rack: ((caps[rack] << _WEIGHT_BITS) // bin_weight[rack], rack))
    rest, open_weight = total, sum(bin_weight)
    levels = [NO_WEIGHT] * len(caps)
    for place, rack in enumerate(order):
        last = place == len(order) - 1
        if not last and caps[rack] * open_weight < rest * bin_weight[rack]:
            levels[rack] = (caps[rack], bin_weight[rack])
            rest -= caps[rack]
            open_weight -= bin_weight[rack]
            continue
        for other in order[place:]:
            levels[other] = (rest, open_weight)
        break
    return levels


# ---- oversized items ----------------------------------------------------------------------------

def _levels(bins: Bins, pieces: Sequence[tuple[int, int]], total: int) -> list[tuple[int, int]]:
    """Return (load, weight) of each rack for the bins without oversized items; their quotient is
    the share per weight."""
    weights = list(bins.weights)
    caps = list(bins.rack_caps)
    rest = total
    heaviest = max(weights)
    levels = _fill(bins, weights, rest, caps)
    for piece, bin_ in pieces:
        rack = bins.racks[bin_]
        load, bin_weight = levels[rack]
        if piece * bin_weight <= load * heaviest:
            continue  # there are bins that it fits into
        rest -= piece
        caps[rack] -= min(piece, caps[rack])
        if not weights[bin_]:  # a second one there needs a bin of its own, of that rack if it can
            bin_ = max(range(len(weights)), key=lambda each: (
                weights[each] > 0, bins.racks[each] == rack, weights[each], -each))
        weights[bin_] = 0
        if not any(weights):
            break
        if rest < sum(weights):  # all load is oversized: an empty bin may take as much as the least
            levels = [(piece, heaviest)] * len(caps)
            break
        levels = _fill(bins, weights, rest, caps)
    whole = (total, sum(bins.weights))
    open_levels = [level for level in levels if level != NO_WEIGHT]
    highest = max(open_levels, key=lambda level: (level[0] << _WEIGHT_BITS) // level[1],
                  default=whole)
    return [level if level != NO_WEIGHT else highest for level in levels]


# ---- the two levels -----------------------------------------------------------------------------

def node_shares(state: State, band: Band, fixed: Collection[int] = ()) -> Shares:
    """Return the shares of the nodes in the band's resource; a node that has none is a bin of
    weight 0. ``fixed``: nodes that keep their replicas and get none, so that the others share the
    rest. O(replicas)."""
    position = POSITION[band.resource]
    racks = tuple(node.rack for node in state.nodes)
    if position in REPLICA_LOADS:
        weights = tuple(node.weight if node.has_share and place not in fixed else 0
                        for place, node in enumerate(state.nodes))
        held = [[state.replica_load(group, position) for group in groups] for groups in state.held]
        cap = sum(state.replica_load(group, position) * state.rack_limit[len(voters)]
                  for group, voters in state.voters.items())
        displaced = [load for node, loads in zip(state.nodes, held, strict=True)
                     if node.is_evacuated for load in loads]
        caps = [cap] * len(state.racks)
        for place in fixed:
            caps[racks[place]] -= min(sum(held[place]), caps[racks[place]])
    else:  # leaders may all be in one rack: racks have no cap
        weights = tuple(
            node.weight if node.has_share and node.may_lead else 0 for node in state.nodes
        )
        held, displaced = _leaderships(state, position)
        caps = [sum(map(sum, held)) + sum(displaced)] * len(state.racks)
    return shares_of(Bins(weights, racks, tuple(caps)), held, displaced, 0, band)


def _leaderships(state: State, position: int) -> tuple[list[list[int]], list[int]]:
    """Return the loads of the groups that each node leads, and those of groups led by nodes that
    may not lead."""
    held: list[list[int]] = [[] for _ in state.nodes]
    displaced = []
    for group, leader in state.leader.items():
        load = 1 if position == R_LEADERS else state.leader_egress(group)
        if leader == NO_NODE:
            continue
        if state.nodes[leader].may_lead:
            held[leader].append(load)
        else:
            displaced.append(load)
    return held, displaced


def group_shares(state: State, band: Band) -> tuple[list[int], Shares]:
    """Return the pool's groups and their shares, which are equal except for oversized items.
    O(partitions)."""
    groups = sorted(group for group in state.groups if group)
    items: dict[int, list[int]] = {group: [] for group in groups}
    for row in state.snapshot.partitions:
        items[state.where[row.incarnation]].append(row.ingress)
    whole = sum(state.ingress[group] for group in groups)
    fixed = whole - sum(map(sum, items.values()))
    bins = Bins((1,) * len(groups), (0,) * len(groups), (whole,))
    return groups, shares_of(bins, list(items.values()), (), fixed, band)
