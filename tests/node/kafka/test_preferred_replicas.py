"""The replica that a client which names its rack is sent to."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from node.kafka.preferred_replicas import PreferredReplicas
from node.kafka.topic_view import UNKNOWN, Endpoint

#: Rack of each node that Kafka's clients can reach; node 6 has no port for them.
RACKS = {1: "a", 2: "b", 3: "b", 4: "c", 5: "b"}


def named(rack: str, incarnation: int = 10, leads: bool = True, up=(1, 2, 3, 4, 5, 6),
          caught_up=(1, 2, 3, 4, 6), voters=(1, 2, 3, 4, 6)) -> int:
    """Return the replica that node 1, in rack a, names."""
    status = SimpleNamespace(
        caught_up=lambda group: frozenset(caught_up) if leads else None,
        configuration=lambda group: SimpleNamespace(voters=voters), is_up=up.__contains__)
    topics = SimpleNamespace(endpoint=lambda node: Endpoint(node, "host", 1, RACKS[node])
                             if node in RACKS else None)
    directory = SimpleNamespace(locate=lambda incarnation: SimpleNamespace(group=7))
    return PreferredReplicas(SimpleNamespace(status=status), directory, topics, "a").of(
        incarnation, rack)


def test_the_replicas_of_a_rack_share_the_partitions():
    assert [named("b", at) for at in range(10, 14)] == [2, 3, 2, 3]
    assert named("c") == 4


@pytest.mark.parametrize("rack", ["", "a", "unknown"])
def test_the_leader_serves_other_clients_itself(rack):
    assert named(rack) == UNKNOWN


def test_only_the_leader_names_a_replica():
    assert named("b", leads=False) == UNKNOWN


def test_no_replica_is_named_that_is_down_or_behind_or_no_voter():
    assert named("b", up=(1, 3)) == 3
    assert named("b", caught_up=(1, 2)) == 2
    assert named("b", caught_up=(1, 5), voters=(1, 2, 3)) == UNKNOWN
    assert named("c", up=(1, 2, 3)) == UNKNOWN
