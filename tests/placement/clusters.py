"""Clusters to plan for: built by hand, and drawn by Hypothesis.

``cluster`` makes a cluster as bootstrap would; ``clusters`` draws what years of failures could have
left: any voters, racks and weights, dead and draining nodes, groups without a leader or in joint
consensus, full disks.
"""

from __future__ import annotations

import random

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
    """Return the bootstrap cluster of the nodes, with one partition per rate in the group of its
    hash."""
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

MIXED = (ALIVE,) * 5 + (DRAINING, MAINTENANCE, DEAD)


class Dice(random.Random):
    """Random source of drawn clusters.  Hypothesis draws their sizes and one seed, which is much
    faster than drawing each field, and shrinks the sizes."""

    def load(self):
        """Mostly alike, sometimes nothing, sometimes a giant."""
        return self.choice((self.randint(0, 100), self.randint(90, 110), self.randint(0, 5000)))

    def some(self, of, most):
        """Up to ``most`` of these, distinct."""
        return tuple(self.sample(of, self.randint(0, min(most, len(of)))))


@st.composite
def clusters(draw, states=MIXED):
    """Any small cluster that ``checked`` accepts."""
    count, racks = draw(st.integers(1, 8)), draw(st.integers(1, 5))
    pool, partitions = draw(st.integers(1, 12)), draw(st.integers(0, 24))
    dice = Dice(draw(st.integers(0, 1 << 32)))
    rows = [NodeRow(node, f"r{dice.randrange(racks)}", dice.choice((0, 50, 100, 100, 100, 300)),
                    dice.choice(states), dice.choice((0, 0, 2000, 20_000)))
            for node in range(1, count + 1)]
    factor = dice.randint(1, min(3, count))
    inside = [_partition(dice, incarnation, pool) for incarnation in range(1, partitions + 1)]
    groups = [_group(dice, group, count, factor, inside) for group in range(pool + 1)]
    return snapshot(rows, groups, inside, factor, pool)


def elected(seed):
    """Return the bootstrap cluster of three to six nodes with groups of unequal loads, which
    elections have given any leaders, and with up to two nodes that joined and hold nothing.  The
    default floors concern some of its loads."""
    dice = Dice(seed)
    count, racks = dice.randint(3, 6), dice.choice((0, 0, 2, 3))
    rates = [dice.choice((0, 1000, dice.randint(0, MIB), dice.randint(0, 16 * MIB)))
             for _ in range(dice.randint(0, 60))]
    before = cluster(nodes(count, racks), dice.randint(4, 40), rates, dice.randint(1, 3),
                     dice.choice((1, 100, 1000)))
    luck = [dice.random() for _ in range(count + 1)]
    led = tuple(row._replace(leader=max(row.voters, key=lambda node: luck[node] * dice.random()))
                for row in before.groups)
    return grown(before._replace(groups=led), *(
        NodeRow(node, f"r{node % racks}" if racks else "", dice.choice((50, 100, 100, 300)))
        for node in range(count + 1, count + 1 + dice.choice((0, 1, 1, 2)))))


def _partition(dice, incarnation, pool):
    return PartitionRow(
        incarnation, f"t{incarnation % 5}", 0, dice.randint(1, pool), epoch=dice.randint(1, 3),
        links=dice.choice((0, 0, 2, 16)), ingress=dice.load(), read=dice.load(),
        bytes=dice.load(), copied=dice.random() < 0.3,
        moved_ms=dice.choice((0, 0, 0, NOW_MS - 1000)))


def _group(dice, group, count, factor, inside):
    voters = dice.sample(range(1, count + 1), min(count, max(1, dice.choice(
        (factor, factor, factor, factor - 1, factor + 1)))))
    mine = [row for row in inside if row.group == group]
    return GroupRow(group, 1, dice.randint(1, 99), tuple(voters),
                    dice.choice((*voters * 3, 0)), in_joint=dice.random() < 0.1,
                    bytes=dice.load(),
                    ingress=sum(row.ingress for row in mine) + dice.randint(0, 50),
                    read=sum(row.read for row in mine),
                    moved_ms=dice.choice((0, 0, 0, NOW_MS - 1000)))


@st.composite
def policies(draw):
    """Any policy that leaves something to do."""
    dice = Dice(draw(st.integers(0, 1 << 32)))
    bands = tuple(Band(resource, dice.choice((0, 20, 100, 500)), dice.choice((0, 0, 100)))
                  for resource in RESOURCES if dice.random() < 0.7)
    return Policy(
        bands=bands, moves_max=dice.choice((3, 10_000, 10_000)),
        switches_max=dice.choice((2, 5000)), cool_down_ms=dice.choice((0, 60_000)),
        switch_copied=dice.random() < 0.5, exceptions_max=dice.choice((0, 3, 1 << 16)),
        excluded_topics=dice.some(("t1",), 1), excluded_groups=dice.some((1,), 1),
        excluded_nodes=dice.some((1,), 1), in_per_node_max=dice.randint(1, 2),
        out_per_node_max=dice.randint(1, 2))


@st.composite
def asked(draw, of):
    """Options that name nodes of the snapshot."""
    scope = draw(st.sampled_from(["all", "all", "repair", "leaders", "node", "drain"]))
    dice = Dice(draw(st.integers(0, 1 << 32)))
    known = [row.id for row in of.nodes]
    return Options(scope, dice.choice(known) if scope == "node" else 0,
                   dice.some(known, 2) if scope in ("all", "drain") else (),
                   dice.choice((0, 0, 500)), fewer_racks=dice.random() < 0.5)
