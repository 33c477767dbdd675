"""Replicas that are on their way anyhow are exchanged to fill nodes, within the hard rules.

Groups of one replica on four nodes in four racks; X and Z have left node 4 for nodes 1 and 3.
"""

from __future__ import annotations

import pytest

from placement.cluster import GroupRow
from placement.fill import fill
from placement.imbalance import Balancer
from placement.plan import OVERLOAD
from placement.policy import DISK, INGRESS, MOVES_MAX, Options
from placement.replica_changes import ReplicaChanges
from placement.state import R_INGRESS, State
from tests.placement.clusters import nodes, only, snapshot


def balanced(resource, groups, moved, rows=None) -> Balancer:
    """``groups``: (node, bytes, ingress); of the groups in ``moved`` the nodes they went to."""
    listed = [GroupRow(0, 1, 10, (1,), 0)]
    listed += [GroupRow(group, 1, 10, (node,), 0, bytes=size, ingress=ingress, read=ingress)
               for group, (node, size, ingress) in enumerate(groups, 1)]
    policy = only(resource, 100, moves_max=MOVES_MAX)
    state = State(snapshot(rows or nodes(4, 4), listed, factor=1), policy)
    balancer = Balancer(ReplicaChanges(state, policy, Options()))
    (position,) = balancer.positions
    for group, target in moved.items():
        balancer.move(group, 3, target - 1, position, OVERLOAD)
    return balancer


def test_what_was_pulled_away_meanwhile_is_not_offered(monkeypatch):
    """Node 2 pulls X, which node 3 would have got for Z a moment before."""
    loads = [(1, 520), (1, 520), (2, 860), (3, 860), (4, 60), (4, 20), (4, 540), (4, 540)]
    balancer = balanced(INGRESS, [(node, load, load) for node, load in loads], {5: 1, 6: 3})
    move = Balancer.move

    def checked(self, group, source, target, position, reason):
        assert group in self.state.held[source], f"group {group} is not on node {source + 1}"
        moved.append(group)
        move(self, group, source, target, position, reason)

    moved: list[int] = []
    monkeypatch.setattr(Balancer, "move", checked)
    assert fill(balancer)
    assert moved


@pytest.mark.parametrize("capacity", [50, 0])
def test_an_exchange_keeps_to_both_capacities(capacity):
    """Z is small on the disk and takes much in: node 1 may not have it."""
    groups = [(1, 500, 1), (1, 500, 1), (2, 480, 1), (2, 480, 1), (3, 850, 1), (4, 60, 1),
              (4, 20, 90), (4, 500, 1), (4, 500, 1)]
    rows = tuple(row._replace(ingress_capacity=capacity if row.id == 1 else 0)
                 for row in nodes(4, 4))
    balancer = balanced(DISK, groups, {6: 1, 7: 3}, rows)
    fill(balancer)
    taken = balancer.state.load[0][R_INGRESS]
    assert taken <= 50 if capacity else taken > 50
