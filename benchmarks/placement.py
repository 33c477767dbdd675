"""The planner against other ways of placing: balance and movement, also where it is worse.

Contract.  Loads are drawn from a seed; the same seed gives the same table.  *Worst* is the fullest
bin in multiples of its share by weight, *bound* a lower bound of any placement, *gap* how far the
worst is above it; *moved* is the load that changes its bin, in per cent of all load, and *least*
the part of it that has to move for a placement inside the band (a way that does not reach the band
may move less).  Every way begins at the placement that the hash made, as a cluster does.

    python -m benchmarks.placement [--quick] [--seeds 3] [--loads "zipf 1.0"] [--only-placing]

Parts: partitions to groups; replicas to nodes, with racks, and with nodes of unequal weight; a node
that joins; drifting loads, where one window is planned for and later ones are judged.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks import figures
from benchmarks.placement_rivals import OF_GROUPS, OF_NODES, SEED, Groups, Replicas
from placement import NodePlace
from placement.cluster import SNAPSHOT_FORMAT, GroupRow, NodeRow, PartitionRow, Snapshot
from placement.hashing import HASH_VERSION
from placement.outcome import planned
from placement.plan import ResourceOutcome
from placement.planner import make_plan
from placement.policy import DISK, GROUP_INGRESS, MOVES_MAX, Band, Policy

BAND = 0.02
FACTOR = 3
DISTRIBUTIONS = ("uniform", "zipf 0.8", "zipf 1.0", "zipf 1.2", "lognormal 2")
#: The targets are for these loads.
TARGETED = ("lognormal 2", "zipf 0.8")
#: Loads of later windows are those of the previous one times a lognormal factor of this deviation.
DRIFT_SIGMA = 0.3
WINDOWS = 5


class Size(NamedTuple):
    """Numbers of items and bins."""

    nodes: int
    groups: int
    partitions: int
    bins: int  # groups of the first part
    items: int  # partitions of the first part and of drift


FULL = Size(100, 4096, 200_000, 256, 100_000)
QUICK = Size(20, 256, 10_000, 32, 10_000)


class Row(NamedTuple):
    """One way of placing on one set of loads."""

    part: str
    loads: str
    way: str
    worst: float
    bound: float
    moved: float
    least: float
    seconds: float

    @property
    def gap(self) -> float:
        return round(self.worst / self.bound - 1, 9)  # the edge of the band counts as inside


def drawn(distribution: str, count: int, seed: int) -> list[int]:
    """Return loads of ``count`` partitions, in no particular order."""
    rng = random.Random(f"{distribution} {seed}")
    if distribution == "uniform":
        return [rng.randint(500_000, 1_500_000) for _ in range(count)]
    if distribution.startswith("zipf"):
        exponent = float(distribution.split()[1])
        loads = [1 + int(1e10 / rank ** exponent) for rank in range(1, count + 1)]
        rng.shuffle(loads)
        return loads
    return [1 + int(1e6 * rng.lognormvariate(0, 2)) for _ in range(count)]


# ---- snapshots ----------------------------------------------------------------------------------

def of_groups(loads: Sequence[int], placed: Groups, pool: int) -> Snapshot:
    """Return a snapshot of partitions in groups, all of them on three nodes."""
    sums = [0] * (pool + 1)
    for load, group in zip(loads, placed, strict=True):
        sums[group] += load
    groups = tuple(GroupRow(group, 1, 1, (1, 2, 3), 1, ingress=sums[group])
                   for group in range(1, pool + 1))
    partitions = tuple(PartitionRow(incarnation, "t", incarnation, group, ingress=load)
                       for incarnation, (load, group) in enumerate(
                           zip(loads, placed, strict=True), start=1))
    return _snapshot(tuple(NodeRow(node) for node in (1, 2, 3)), groups, partitions, pool)


def of_nodes(nodes: Sequence[NodePlace], loads: Sequence[int], placed: Replicas) -> Snapshot:
    """Return a snapshot of groups on nodes whose disk is balanced."""
    rows = tuple(NodeRow(node.id, node.rack, node.weight) for node in nodes)
    groups = tuple(GroupRow(group, 1, 1, voters, voters[0], bytes=loads[group])
                   for group, voters in enumerate(placed))
    return _snapshot(rows, groups, (), len(loads) - 1)


def _snapshot(nodes, groups, partitions, pool: int) -> Snapshot:
    return Snapshot(SNAPSHOT_FORMAT, "be" * 16, 1, 1 << 40, HASH_VERSION, SEED, pool, FACTOR, 0,
                    nodes, groups, partitions)


def policy_for(resource: str) -> Policy:
    """Return a policy with one resource in the band and no other limits than the format's."""
    return Policy(bands=(Band(resource, int(BAND * 1000)),), moves_max=MOVES_MAX,
                  switches_max=MOVES_MAX, cool_down_ms=0)


# ---- measures -----------------------------------------------------------------------------------

def worst_group(loads: Sequence[int], placed: Groups, pool: int) -> float:
    """Return the fullest group in multiples of the mean."""
    sums = [0] * (pool + 1)
    for load, group in zip(loads, placed, strict=True):
        sums[group] += load
    return max(sums) * pool / sum(sums)


def worst_node(nodes: Sequence[NodePlace], loads: Sequence[int], placed: Replicas) -> float:
    """Return the fullest node in multiples of its share."""
    sums = {node.id: 0 for node in nodes}
    for load, voters in zip(loads, placed, strict=True):
        for node in voters:
            sums[node] += load
    share = sum(sums.values()) / sum(node.weight for node in nodes)
    return max(sums[node.id] / (node.weight * share) for node in nodes)


def moved_partitions(loads: Sequence[int], before: Groups, after: Groups) -> float:
    """Return the part of the load that changes its group."""
    return sum(load for load, old, new in zip(loads, before, after, strict=True)
               if old != new) / sum(loads)


def moved_replicas(loads: Sequence[int], before: Replicas, after: Replicas) -> float:
    """Return the part of the load that changes its node."""
    moved = sum(load * sum(node not in old for node in new)
                for load, old, new in zip(loads, before, after, strict=True))
    return moved / (FACTOR * sum(loads))


# ---- parts --------------------------------------------------------------------------------------

def groups_part(distribution: str, size: Size, seed: int) -> list[Row]:
    """Measure partitions to groups, from the placement of the hash."""
    loads = drawn(distribution, size.items, seed)
    start = OF_GROUPS["hash"](loads, size.bins, BAND)
    began = time.perf_counter()
    before = of_groups(loads, start, size.bins)
    made = make_plan(before, policy_for(GROUP_INGRESS))
    seconds = time.perf_counter() - began
    ours = [row.group for row in planned(before, made).partitions]
    rows = [_ours("partitions", distribution, made.resources[0],
                  worst_group(loads, ours, size.bins), moved_partitions(loads, start, ours),
                  seconds)]
    for way, place in OF_GROUPS.items():
        began = time.perf_counter()
        after = place(loads, size.bins, BAND)
        rows.append(Row("partitions", distribution, way, worst_group(loads, after, size.bins),
                        rows[0].bound, moved_partitions(loads, start, after), rows[0].least,
                        time.perf_counter() - began))
    return rows


def nodes_part(part: str, nodes: Sequence[NodePlace], joining: Sequence[NodePlace],
               distribution: str, size: Size, seed: int) -> list[Row]:
    """Measure replicas to nodes, from the placement of the hash before ``joining`` nodes
    existed."""
    partitions = drawn(distribution, size.partitions, seed)
    loads = [0] * (size.groups + 1)
    for load, group in zip(partitions, OF_GROUPS["hash"](partitions, size.groups, BAND),
                           strict=True):
        loads[group] += load
    start = OF_NODES["hash"](nodes, loads, FACTOR, BAND)
    everybody = [*nodes, *joining]
    began = time.perf_counter()
    before = of_nodes(everybody, loads, start)
    made = make_plan(before, policy_for(DISK))
    seconds = time.perf_counter() - began
    ours = [row.voters for row in planned(before, made).groups]
    rows = [_ours(part, distribution, made.resources[0], worst_node(everybody, loads, ours),
                  moved_replicas(loads, start, ours), seconds)]
    for way, place in OF_NODES.items():
        began = time.perf_counter()
        after = place(everybody, loads, FACTOR, BAND)
        rows.append(Row(part, distribution, way, worst_node(everybody, loads, after),
                        rows[0].bound, moved_replicas(loads, start, after), rows[0].least,
                        time.perf_counter() - began))
    return rows


def _ours(part: str, distribution: str, outcome: ResourceOutcome, worst: float, moved: float,
          seconds: float) -> Row:
    """Return the planner's row: bounds are the plan's; worst and moved are measured as for the
    other ways."""
    return Row(part, distribution, "planner", worst, outcome.bound_ppm / 1e6, moved,
               outcome.moved_bound / outcome.total, seconds)


def node_rows(count: int, racks: int, weights: Sequence[int]) -> list[NodePlace]:
    """Return nodes 1 .. count in racks and weights by turns."""
    return [NodePlace(node, f"r{node % racks}", weights[node // racks % len(weights)])
            for node in range(1, count + 1)]


# ---- drift --------------------------------------------------------------------------------------

class Drift(NamedTuple):
    """One way over several windows: the worst group in each, and the sum of all moves."""

    way: str
    planned: str
    worst: tuple[float, ...]
    moved: float


def drift_part(size: Size, seed: int) -> list[Drift]:
    """Plan on window 0, judge on the later ones; then the same with a new plan in each."""
    rng = random.Random(seed)
    windows = [drawn("lognormal 2", size.items, seed)]
    while len(windows) < WINDOWS + 2:
        windows.append([1 + int(load * rng.lognormvariate(0, DRIFT_SIGMA)) for load in windows[-1]])
    seen, later = windows[:3], windows[2:]
    peaks = [max(loads) for loads in zip(*seen, strict=True)]
    start = OF_GROUPS["hash"](later[0], size.bins, BAND)
    rows = [Drift("hash", "never", _judged(later, [start] * WINDOWS, size.bins), 0.0)]
    for way, loads in (("planner", later[0]), ("planner, on the peak of three windows", peaks)):
        after = _planned_groups(loads, start, size.bins)
        rows.append(Drift(way, "once", _judged(later, [after] * WINDOWS, size.bins),
                          moved_partitions(later[0], start, after)))
    rows.append(_every_window("planner", later, start, size.bins))
    for way in ("bounded", "lpt"):
        after = OF_GROUPS[way](later[0], size.bins, BAND)
        rows.append(Drift(way, "once", _judged(later, [after] * WINDOWS, size.bins),
                          moved_partitions(later[0], start, after)))
        rows.append(_every_window(way, later, start, size.bins))
    return rows


def _judged(windows, placed: Sequence[Groups], pool: int) -> tuple[float, ...]:
    return tuple(worst_group(loads, groups, pool)
                 for loads, groups in zip(windows, placed, strict=True))


def _planned_groups(loads: Sequence[int], start: Groups, pool: int) -> Groups:
    before = of_groups(loads, start, pool)
    after = planned(before, make_plan(before, policy_for(GROUP_INGRESS)))
    return [row.group for row in after.partitions]


def _every_window(way: str, windows, start: Groups, pool: int) -> Drift:
    placed, moved, current = [], 0.0, start
    for loads in windows:
        after = (_planned_groups(loads, current, pool) if way == "planner"
                 else OF_GROUPS[way](loads, pool, BAND))
        moved += moved_partitions(loads, current, after)
        placed.append(after)
        current = after
    return Drift(way, "each window", _judged(windows, placed, pool), moved)


# ---- report -------------------------------------------------------------------------------------

def show_rows(console: Console, title: str, rows: Sequence[Row]) -> None:
    """Print one part as a table."""
    table = Table(title=title)
    for column in ("loads", "way", "worst", "bound", "gap", "moved", "least", "seconds"):
        table.add_column(column, justify="left" if column in ("loads", "way") else "right")
    for row in rows:
        if row.way == "planner":
            table.add_section()
        table.add_row(row.loads, row.way, f"{row.worst:.4f}", f"{row.bound:.4f}",
                      f"{row.gap:+.2%}", f"{row.moved:.3%}", f"{row.least:.3%}",
                      f"{row.seconds:.1f}")
    console.print(table)


def show_drift(console: Console, rows: Sequence[Drift]) -> None:
    """Print drift as a table."""
    table = Table(title="drifting loads: the worst group in each window, and what was moved")
    for column in ("way", "planned", *(f"window {each}" for each in range(WINDOWS)), "moved"):
        table.add_column(column)
    for row in rows:
        table.add_row(row.way, row.planned, *(f"{worst:.3f}" for worst in row.worst),
                      f"{row.moved:.2%}")
    console.print(table)


def judged(rows: Sequence[Row]) -> list[figures.Figure]:
    """Return the targets: the gap, and the moved load against the load that has to move."""
    found = []
    for part, most in (("partitions", 1.01), ("replicas", 1.08)):
        for loads in TARGETED:
            ours = [row for row in rows if row.part == part and row.loads == loads
                    and row.way == "planner"]
            found.append(figures.bound(
                f"{part}, {loads}: worst above the bound", figures.Series(
                    "gap", "%", tuple(100 * row.gap for row in ours)), 2.0, at_least=False,
                worst=True))
            found.append(figures.bound(
                f"{part}, {loads}: moved for what has to move", figures.Series(
                    "moved", "x", tuple(row.moved / row.least for row in ours)), most,
                at_least=False, worst=True))
    return found


def main() -> int:
    """Measure everything; return 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, for a look")
    parser.add_argument("--seeds", type=int, default=3, help="repetitions of what has a target")
    parser.add_argument("--only-placing", action="store_true", help="no drifting loads")
    parser.add_argument("--loads", nargs="*", choices=DISTRIBUTIONS, default=DISTRIBUTIONS)
    figures.add_picture_option(parser)
    arguments = parser.parse_args()
    size = QUICK if arguments.quick else FULL
    console = Console(stderr=True)
    console.width = max(console.width, figures.TABLE_COLUMNS_MIN)
    racks = 10 if size is FULL else 5
    equal, unequal = node_rows(size.nodes, racks, (100,)), node_rows(size.nodes, racks,
                                                                     (100, 500, 200, 100))
    rows: list[Row] = []
    for distribution in arguments.loads:
        for seed in range(arguments.seeds if distribution in TARGETED else 1):
            rows += groups_part(distribution, size, seed)
            rows += nodes_part("replicas", equal, (), distribution, size, seed)
        rows += nodes_part("unequal", unequal, (), distribution, size, 0)
        rows += nodes_part("joining", equal, [NodePlace(size.nodes + 1, "r1")], distribution,
                           size, 0)
    for part, title in (
            ("partitions", f"{size.items} partitions in {size.bins} groups"),
            ("replicas", f"{size.groups} groups on {size.nodes} nodes in {racks} racks"),
            ("unequal", "the same, nodes of weights 100 : 500 : 200 : 100"),
            ("joining", "equal nodes, and one that joins empty")):
        show_rows(console, title, [row for row in rows if row.part == part])
    if not arguments.only_placing:
        show_drift(console, drift_part(size, 0))
    found = judged(rows) if {*TARGETED} <= {*arguments.loads} else []
    figures.show("Placement", found, (), arguments.picture)
    return 0 if all(figure.holds for figure in found) else 1


if __name__ == "__main__":
    sys.exit(main())
