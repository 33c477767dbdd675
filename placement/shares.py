"""What each bin's share is, how far above it a bin may be, and what no placement can beat.

Contract.  ``node_shares`` and ``group_shares`` compute a resource's ``Shares`` from the state; all
in whole numbers, O(items + bins log bins).  A share is by weight, corrected in two ways:

* A rack takes at most its even part of each group, so racks with little weight per replica are full
  before the others are, and the rest is shared by the others (water filling).
* A bin with a *giant*, an item larger than the share of its bin, holds nothing else; the others
  share what is left.  Without that, "the worst node is at the lower bound" would be said of any
  placement as soon as one partition is hot.

``bound_ppm`` is a true lower bound of the worst bin, over all placements of the same items:
the mean; the racks; the largest item; two of the N + 1 largest, which share a bin (pigeonhole).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

from placement.policy import DISK, EGRESS, INGRESS, LEADERS, PERMILLE, Band
from placement.state import R_DISK, R_EGRESS, R_INGRESS, R_LEADERS, State

PPM = 1_000_000

MEAN, RACKS, LARGEST, PIGEONHOLE = "mean", "racks", "largest", "pigeonhole"

#: Position of each resource in a node's loads.
POSITION = {DISK: R_DISK, INGRESS: R_INGRESS, EGRESS: R_EGRESS, LEADERS: R_LEADERS}

#: Loads per weight are compared with this many fraction bits.
_WEIGHT_BITS = 40


class Piece(NamedTuple):
    """An item and the bin that it is in; -1 = it has to leave its bin anyhow."""

    load: int
    bin: int


class Bins(NamedTuple):
    """Weights of bins (0 = no bin), their racks, and what each rack can take at most."""

    weights: tuple[int, ...]
    racks: tuple[int, ...]
    rack_caps: tuple[int, ...]


class Shares(NamedTuple):
    """See the module's docstring.  ``share``, ``high`` and ``low`` are loads per bin: its share,
    the target that it should not exceed, and the one below which it should not stay."""

    total: int
    weight: int
    share: tuple[int, ...]
    high: tuple[int, ...]
    low: tuple[int, ...]
    level_ppm: int
    bound_ppm: int
    bound: str

    def ppm(self, load: int, weight: int) -> int:
        """A load in millionths of a bin's share by weight alone, rounded up."""
        if not self.total or not weight:
            return 0
        return -(-load * self.weight * PPM // (self.total * weight))


def shares_of(bins: Bins, pieces: Sequence[Piece], fixed: int, band: Band) -> Shares:
    """Shares of ``bins`` for these pieces and ``fixed`` load that is not worth listing."""
    total = sum(piece.load for piece in pieces) + fixed
    weight = sum(bins.weights)
    if not total or not weight:
        zero = (0,) * len(bins.weights)
        return Shares(total, weight, zero, (band.floor,) * len(zero), zero, 0, 0, MEAN)
    bound, bound_ppm = _bound(bins, pieces, total, weight)
    levels = _levels(bins, pieces, total)
    share = tuple(levels[rack][0] * heavy // levels[rack][1]
                  for rack, heavy in zip(bins.racks, bins.weights, strict=True))
    high = tuple(_high(levels[rack], heavy, band)
                 for rack, heavy in zip(bins.racks, bins.weights, strict=True))
    low = tuple(part * max(0, PERMILLE - band.permille) // PERMILLE if part > band.floor else 0
                for part in share)
    level_ppm = max(-(-load * weight * PPM // (heavy * total)) for load, heavy in levels)
    return Shares(total, weight, share, high, low, level_ppm, bound_ppm, bound)


def _high(level: tuple[int, int], weight: int, band: Band) -> int:
    load, heavy = level
    target = load * weight * (PERMILLE + band.permille) // (heavy * PERMILLE)
    if band.resource == LEADERS:  # whole leaders: the mean rounded up is no excess
        target = max(target, -(-load * weight // heavy))
    return max(target, band.floor)


# ---- bounds -------------------------------------------------------------------------------------

def _bound(bins: Bins, pieces: Sequence[Piece], total: int, weight: int) -> tuple[str, int]:
    """The best of the lower bounds and its name."""
    heaviest = max(bins.weights)
    count = sum(heavy > 0 for heavy in bins.weights)
    largest = heapq.nlargest(count + 1, (piece.load for piece in pieces))
    found = [(MEAN, total, weight)]
    found += [(RACKS, *level) for level in _fill(bins, bins.weights, total, bins.rack_caps)]
    if largest:
        found.append((LARGEST, largest[0], heaviest))
    if len(largest) == count + 1:
        found.append((PIGEONHOLE, largest[-1] + largest[-2], heaviest))
    best = (MEAN, 0)
    for name, load, heavy in found:
        ppm = load * weight * PPM // (heavy * total)
        if ppm > best[1]:
            best = (name, ppm)
    return best


def _fill(bins: Bins, weights: Sequence[int], total: int,
          caps: Sequence[int]) -> list[tuple[int, int]]:
    """(load, weight) of each rack when ``total`` is shared by weight and no rack exceeds its cap.

    Racks whose cap is reached first are full; the others share what is left.  When all are full,
    the last takes the rest.
    """
    heavy = [0] * len(caps)
    for rack, weight in zip(bins.racks, weights, strict=True):
        heavy[rack] += weight
    order = sorted((rack for rack in range(len(caps)) if heavy[rack]),
                   key=lambda rack: ((caps[rack] << _WEIGHT_BITS) // heavy[rack], rack))
    rest, open_weight = total, sum(heavy)
    levels = [(0, 1)] * len(caps)
    for place, rack in enumerate(order):
        last = place == len(order) - 1
        if not last and caps[rack] * open_weight < rest * heavy[rack]:
            levels[rack] = (caps[rack], heavy[rack])
            rest -= caps[rack]
            open_weight -= heavy[rack]
            continue
        for other in order[place:]:
            levels[other] = (rest, open_weight)
        break
    return levels


# ---- giants -------------------------------------------------------------------------------------

def _levels(bins: Bins, pieces: Sequence[Piece], total: int) -> list[tuple[int, int]]:
    """(load, weight) of each rack for the bins without giants."""
    weights = list(bins.weights)
    caps = list(bins.rack_caps)
    rest = total
    levels = _fill(bins, weights, rest, caps)
    for piece in _candidates(bins, pieces):
        bin_ = piece.bin if piece.bin >= 0 else max(
            range(len(weights)), key=lambda each: (weights[each], -each))
        load, heavy = levels[bins.racks[bin_]]
        if piece.load * heavy <= load * bins.weights[bin_]:
            break
        rest -= piece.load
        caps[bins.racks[bin_]] -= min(piece.load, caps[bins.racks[bin_]])
        weights[bin_] = 0
        if not any(weights):
            break
        levels = _fill(bins, weights, rest, caps)
    whole = (total, sum(bins.weights))
    open_levels = [level for level in levels if level != (0, 1)]
    highest = max(open_levels, key=lambda level: (level[0] << _WEIGHT_BITS) // level[1],
                  default=whole)
    return [level if level != (0, 1) else highest for level in levels]


def _candidates(bins: Bins, pieces: Sequence[Piece]) -> list[Piece]:
    """Pieces that may be giants: largest per weight of their bin first."""
    heaviest = max(bins.weights)

    def per_weight(piece: Piece) -> tuple[int, int, int]:
        weight = bins.weights[piece.bin] if piece.bin >= 0 else heaviest
        return ((piece.load << _WEIGHT_BITS) // weight, piece.load, -piece.bin)

    return heapq.nlargest(2 * len(bins.weights) + 2, pieces, key=per_weight)


# ---- the two levels -----------------------------------------------------------------------------

def node_shares(state: State, band: Band) -> Shares:
    """Shares of the nodes that have one.  O(replicas)."""
    position = POSITION[band.resource]
    if position in (R_DISK, R_INGRESS):
        bins = tuple(node.weight if node.holds else 0 for node in state.nodes)
        pieces, caps = _replicas(state, position)
    else:
        bins = tuple(node.weight if node.holds and node.may_lead else 0 for node in state.nodes)
        pieces, caps = _leaderships(state, position, bins)
    racks = tuple(node.rack for node in state.nodes)
    return shares_of(Bins(bins, racks, tuple(caps)), pieces, 0, band)


def _replicas(state: State, position: int) -> tuple[list[Piece], list[int]]:
    pieces = []
    cap = 0
    for group, voters in state.voters.items():
        load = state.replica_load(group, position)
        if not load:
            continue
        cap += load * state.rack_limit[len(voters)]
        for node in voters:
            if state.nodes[node].holds:
                pieces.append(Piece(load, node))
            elif state.nodes[node].leaves:
                pieces.append(Piece(load, -1))
    return pieces, [cap] * len(state.racks)


def _leaderships(state: State, position: int,
                 weights: Sequence[int]) -> tuple[list[Piece], list[int]]:
    """Leaders may all be in one rack: racks have no cap."""
    pieces = []
    for group, leader in state.leader.items():
        load = 1 if position == R_LEADERS else state.leader_egress(group)
        if leader >= 0 and load and (weights[leader] or not state.nodes[leader].may_lead):
            pieces.append(Piece(load, leader if weights[leader] else -1))
    whole = sum(piece.load for piece in pieces)
    return pieces, [whole] * len(state.racks)


def group_shares(state: State, band: Band) -> tuple[list[int], Shares]:
    """The pool's groups and their shares, which are equal but for giants.  O(partitions)."""
    groups = sorted(group for group in state.groups if group)
    place = {group: index for index, group in enumerate(groups)}
    pieces = [Piece(row.ingress, place[state.where[row.incarnation]])
              for row in state.snapshot.partitions if row.ingress]
    whole = sum(state.ingress[group] for group in groups)
    fixed = whole - sum(piece.load for piece in pieces)
    bins = Bins((1,) * len(groups), (0,) * len(groups), (whole,))
    return groups, shares_of(bins, pieces, fixed, band)
