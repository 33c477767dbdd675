"""Clusters to plan for: built by hand, and drawn by Hypothesis.

``cluster`` makes a cluster as bootstrap would; ``clusters`` draws what years of failures could have
left: any voters, racks and weights, dead and draining nodes, groups without a leader or in joint
consensus, full disks.
"""

from __future__ import annotations

from hypothesis import strategies as st

from placement import NodePlace, Topology, default_group, replicas_of_pool
from placement.cluster import (
    ALIVE,
    DEAD,
    DRAINING,
    MAINTENANCE,
    SNAPSHOT_FORMAT,
    GroupRow,
    NodeRow,
    PartitionRow,
    Snapshot,
    checked,
)
from placement.hashing import HASH_VERSION
from placement.policy import RESOURCES, Band, Options, Policy

NOW_MS = 1_800_000_000_000
SEED = 11
MIB = 1 << 20

#: Everything is balanced, nothing is too small, nothing was moved too recently.
STRICT = Policy(bands=tuple(Band(resource, 50) for resource in RESOURCES), cool_down_ms=0)


def only(resource, permille=20, **changes):
    """A policy that balances one resource."""
    return STRICT._replace(bands=(Band(resource, permille),), **changes)


def nodes(count, racks=0, **changes):
    """Nodes 1 .. count, in turns over racks r0, r1, ..."""
    return tuple(NodeRow(node, f"r{node % racks}" if racks else "")._replace(**changes)
                 for node in range(1, count + 1))


def snapshot(rows, groups, partitions=(), factor=3, pool_size=None):
    """A checked snapshot of these rows."""
    pool = max((group.id for group in groups), default=1) if pool_size is None else pool_size
    return checked(Snapshot(SNAPSHOT_FORMAT, "c1" * 16, 77, NOW_MS, HASH_VERSION, SEED,
                            max(1, pool), factor, 0, tuple(rows), tuple(groups),
                            tuple(partitions)))


def cluster(rows, pool_size, rates, factor=3, retained_s=100):
    """What bootstrap makes of the nodes, with one partition per rate, each where the hash puts it.
    """
    placed = replicas_of_pool(pool_size, factor, Topology.of(
        NodePlace(row.id, row.rack, row.weight) for row in rows), SEED)
    ingress = [0] * (pool_size + 1)
    partitions = []
    for incarnation, rate in enumerate(rates, start=1):
        group = default_group(incarnation, pool_size, SEED)
        ingress[group] += rate
        partitions.append(PartitionRow(incarnation, f"t{incarnation}", 0, group, ingress=rate,
                                       read=rate, bytes=rate * retained_s))
    groups = [GroupRow(group, 1, 10, voters, voters[0], bytes=rate * retained_s, ingress=rate,
                       read=rate) for group, (voters, rate) in enumerate(zip(placed, ingress,
                                                                             strict=True))]
    return snapshot(rows, groups, partitions, factor, pool_size)


def grown(before, *rows):
    """The cluster with nodes more, which hold nothing."""
    return checked(before._replace(nodes=(*before.nodes, *rows)))


def with_state(before, node, state):
    """The cluster with one node in another state."""
    return before._replace(nodes=tuple(row._replace(state=state) if row.id == node else row
                                       for row in before.nodes))


# ---- drawn --------------------------------------------------------------------------------------

#: Mostly alike, sometimes nothing, sometimes a giant.
LOADS = st.one_of(st.integers(0, 100), st.integers(90, 110), st.integers(0, 5000))


@st.composite
def clusters(draw, states=(ALIVE, ALIVE, ALIVE, ALIVE, DRAINING, MAINTENANCE, DEAD)):
    """Any small cluster that ``checked`` accepts."""
    count = draw(st.integers(1, 8))
    racks = draw(st.integers(1, 5))
    rows = tuple(NodeRow(
        node, f"r{draw(st.integers(0, racks - 1))}", draw(st.sampled_from([0, 50, 100, 100, 300])),
        draw(st.sampled_from(states)), draw(st.sampled_from([0, 0, 2000, 20_000])))
        for node in range(1, count + 1))
    factor = draw(st.integers(1, min(3, count)))
    pool = draw(st.integers(1, 12))
    partitions = []
    sums = [[0, 0] for _ in range(pool + 1)]
    for incarnation in range(1, draw(st.integers(0, 24)) + 1):
        row = PartitionRow(
            incarnation, f"t{incarnation % 5}", 0, draw(st.integers(1, pool)),
            epoch=draw(st.integers(1, 3)), links=draw(st.sampled_from([0, 0, 2, 16])),
            ingress=draw(LOADS), read=draw(LOADS), bytes=draw(LOADS), copied=draw(st.booleans()),
            moved_ms=draw(st.sampled_from([0, 0, 0, NOW_MS - 1000])))
        partitions.append(row)
        sums[row.group][0] += row.ingress
        sums[row.group][1] += row.read
    groups = [_group(draw, group, count, factor, sums[group]) for group in range(pool + 1)]
    return snapshot(rows, groups, partitions, factor, pool)


def _group(draw, group, count, factor, loads):
    voters = draw(st.lists(st.integers(1, count), min_size=1, max_size=min(count, factor + 1),
                           unique=True))
    in_joint = draw(st.sampled_from([False] * 9 + [True]))
    return GroupRow(group, 1, draw(st.integers(1, 99)), tuple(voters),
                    draw(st.sampled_from([*voters, 0])), in_joint=in_joint,
                    bytes=draw(LOADS), ingress=loads[0] + draw(st.integers(0, 50)),
                    read=loads[1], moved_ms=draw(st.sampled_from([0, 0, 0, NOW_MS - 1000])))


@st.composite
def policies(draw):
    """Any policy that leaves something to do."""
    bands = tuple(Band(resource, draw(st.sampled_from([0, 20, 100, 500])),
                       draw(st.sampled_from([0, 0, 100])))
                  for resource in RESOURCES if draw(st.sampled_from([True, True, False])))
    return Policy(
        bands=bands, moves_max=draw(st.sampled_from([3, 10_000])),
        switches_max=draw(st.sampled_from([2, 5000])),
        cool_down_ms=draw(st.sampled_from([0, 60_000])), switch_copied=draw(st.booleans()),
        exceptions_max=draw(st.sampled_from([0, 3, 1 << 16])),
        excluded_topics=tuple(draw(st.lists(st.just("t1"), max_size=1))),
        excluded_groups=tuple(draw(st.lists(st.just(1), max_size=1))),
        excluded_nodes=tuple(draw(st.lists(st.just(1), max_size=1))),
        in_per_node_max=draw(st.integers(1, 2)), out_per_node_max=draw(st.integers(1, 2)))


@st.composite
def asked(draw, of):
    """Options that name nodes of the snapshot."""
    scope = draw(st.sampled_from(["all", "all", "repair", "leaders", "node", "drain"]))
    some = st.sampled_from([row.id for row in of.nodes])
    return Options(scope, draw(some) if scope == "node" else 0,
                   tuple(draw(st.lists(some, max_size=2, unique=True)))
                   if scope in ("all", "drain") else (),
                   draw(st.sampled_from([0, 0, 500])), fewer_racks=draw(st.booleans()))
