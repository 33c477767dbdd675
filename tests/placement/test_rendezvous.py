"""Groups over nodes: golden vectors, racks, weights, and how little moves."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement import (
    InvalidTopology,
    LimitExceeded,
    NodePlace,
    NotEnoughNodes,
    Topology,
    replicas,
    replicas_of_pool,
)
from placement.describe import describe_replicas, describe_topology
from placement.rendezvous import neg_log2
from placement.topology import NODES_MAX, RACK_BYTES_MAX, WEIGHT_MAX

TESTDATA = Path(__file__).parent / "testdata"
FIVE = [NodePlace(node) for node in range(1, 6)]
RACKS = [NodePlace(1, "a"), NodePlace(2, "a"), NodePlace(3, "b"), NodePlace(4, "b", 300),
         NodePlace(5, "c"), NodePlace(6, "c", 0)]


def held(placed):
    """Replicas per node."""
    counts = {}
    for nodes in placed:
        for node in nodes:
            counts[node] = counts.get(node, 0) + 1
    return counts


@pytest.mark.parametrize("name, nodes", [("five_nodes", FIVE), ("racks", RACKS)])
def test_golden(name, nodes):
    topology = Topology.of(nodes)
    text = describe_topology(topology) + "\n\n" + describe_replicas(
        replicas_of_pool(16, 3, topology, seed=20))
    assert text + "\n" == (TESTDATA / f"replicas_{name}.txt").read_text()


def test_five_nodes_with_factor_three_share_replicas_and_preferred_leaders():
    placed = replicas_of_pool(1000, 3, Topology.of(FIVE), seed=1)
    assert all(len(set(nodes)) == 3 for nodes in placed)
    for counts, mean in ((held(placed), 600), (held(nodes[:1] for nodes in placed), 200)):
        assert len(counts) == 5
        assert all(abs(count - mean) < 4 * math.sqrt(mean) for count in counts.values())


def test_no_two_replicas_share_a_rack_while_racks_suffice():
    rack_of = {node.id: node.rack for node in RACKS}
    for nodes in replicas_of_pool(200, 3, Topology.of(RACKS), seed=1):
        assert len({rack_of[node] for node in nodes}) == 3


def test_with_two_racks_and_factor_three_neither_holds_all():
    nodes = [NodePlace(node, "ab"[node % 2]) for node in range(1, 7)]
    for chosen in replicas_of_pool(200, 3, Topology.of(nodes), seed=1):
        assert sorted(sum(node % 2 == side for node in chosen) for side in (0, 1)) == [1, 2]


def test_a_small_rack_gives_its_turn_to_the_others():
    nodes = [NodePlace(1, "a"), NodePlace(2, "b"), NodePlace(3, "b"), NodePlace(4, "b")]
    for chosen in replicas_of_pool(50, 4, Topology.of(nodes), seed=1):
        assert sorted(chosen) == [1, 2, 3, 4]


def test_weights_are_shares():
    nodes = [NodePlace(1, weight=100), NodePlace(2, weight=200), NodePlace(3, weight=700)]
    counts = held(replicas_of_pool(4000, 1, Topology.of(nodes), seed=3))
    for node in nodes:
        assert abs(counts[node.id] / 4001 - node.weight / 1000) < 0.03


def test_weight_zero_takes_no_replica():
    assert 6 not in held(replicas_of_pool(200, 3, Topology.of(RACKS), seed=1))


@pytest.mark.parametrize("racks", [1, 5])
def test_a_joining_node_moves_at_most_one_replica_per_group_and_only_to_itself(racks):
    nodes = [NodePlace(node, f"r{node % racks}") for node in range(1, 11)]
    before = replicas_of_pool(1000, 3, Topology.of(nodes), seed=4)
    after = replicas_of_pool(1000, 3, Topology.of([*nodes, NodePlace(11, "r0")]), seed=4)
    moved = 0
    for old, new in zip(before, after, strict=True):
        gained = set(new) - set(old)
        assert len(gained) <= 1
        moved += len(gained)
        if racks == 1:
            assert gained <= {11}
    assert held(after)[11] > 0
    assert moved < 1.5 * 3 * 1001 / 11


def test_a_new_rack_takes_only_to_itself():
    nodes = [NodePlace(node, f"r{node % 5}") for node in range(1, 11)]
    before = replicas_of_pool(1000, 3, Topology.of(nodes), seed=4)
    after = replicas_of_pool(1000, 3, Topology.of([*nodes, NodePlace(11, "r9")]), seed=4)
    for old, new in zip(before, after, strict=True):
        assert set(new) - set(old) <= {11}


def test_a_lost_node_moves_only_what_it_held():
    before = replicas_of_pool(500, 3, Topology.of(FIVE), seed=4)
    after = replicas_of_pool(500, 3, Topology.of(FIVE[:-1]), seed=4)
    for old, new in zip(before, after, strict=True):
        if 5 not in old:
            assert new == old
        assert set(old) - {5} <= set(new)


def test_the_order_of_the_input_does_not_matter():
    assert Topology.of(RACKS) == Topology.of(reversed(RACKS))


@settings(max_examples=100, derandomize=True, deadline=None)
@given(st.integers(0, 2**64 - 1))
def test_the_fixed_point_logarithm_is_the_logarithm(draw):
    exact = 64 - math.log2(draw + 1)
    assert abs(neg_log2(draw) / 2**40 - exact) < 1e-8


def test_the_logarithm_at_its_ends():
    assert neg_log2(2**64 - 1) == 0
    assert neg_log2(0) == 64 << 40
    assert neg_log2(2**63 - 1) == 1 << 40


def test_too_few_nodes_is_a_typed_error_with_both_numbers():
    with pytest.raises(NotEnoughNodes, match="factor 6 .* there are 5") as caught:
        replicas(1, 6, Topology.of(RACKS), seed=1)
    assert (caught.value.replication_factor, caught.value.nodes) == (6, 5)
    with pytest.raises(NotEnoughNodes):
        replicas(1, 1, Topology.of([]), seed=1)


@pytest.mark.parametrize("factor", [0, -1, 10])
def test_a_factor_outside_the_limit_is_refused(factor):
    with pytest.raises(LimitExceeded, match="replication_factor"):
        replicas(1, factor, Topology.of(FIVE), seed=1)


@pytest.mark.parametrize("node", [
    NodePlace(0), NodePlace(-3), NodePlace(1 << 31), NodePlace("1"), NodePlace(True),
    NodePlace(9, None), NodePlace(9, "x" * (RACK_BYTES_MAX + 1)), NodePlace(9, "r", -1),
    NodePlace(9, "r", WEIGHT_MAX + 1), NodePlace(9, "r", 1.5), NodePlace(5)])
def test_an_impossible_node_is_refused(node):
    with pytest.raises(InvalidTopology):
        Topology.of([*FIVE, node])


def test_too_many_nodes_are_refused():
    with pytest.raises(LimitExceeded, match="nodes"):
        Topology.of(NodePlace(node) for node in range(1, NODES_MAX + 2))
