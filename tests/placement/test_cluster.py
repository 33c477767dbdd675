"""The planner's input: what is refused, and that a digest is the contents' alone."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

from placement import cluster as clusters_module
from placement.cluster import (
    GroupRow,
    NodeRow,
    PartitionRow,
    checked,
    digest,
    load,
    save,
)
from placement.errors import InvalidDocument, InvalidSnapshot, InvalidTopology, LimitExceeded
from placement.topology import NODES_MAX
from tests.placement.clusters import clusters, snapshot

NODES = (NodeRow(1, "a"), NodeRow(2, "b"), NodeRow(3, "c"))
GROUPS = (GroupRow(0, 1, 5, (1, 2, 3), 1), GroupRow(1, 1, 5, (1, 2, 3), 2, bytes=9, ingress=10,
                                                    read=4))
PARTITIONS = (PartitionRow(7, "flights", 0, 1, ingress=6, read=4),)
GOOD = snapshot(NODES, GROUPS, PARTITIONS)


def node(**changes):
    """The snapshot with its first node changed."""
    return GOOD._replace(nodes=(NODES[0]._replace(**changes), *NODES[1:]))


def group(**changes):
    """The snapshot with group 1 changed."""
    return GOOD._replace(groups=(GROUPS[0], GROUPS[1]._replace(**changes)))


def partition(**changes):
    """The snapshot with its partition changed."""
    return GOOD._replace(partitions=(PARTITIONS[0]._replace(**changes),))


@pytest.mark.parametrize("bad, code", [
    (GOOD._replace(nodes=()), "NO_NODES"),
    (GOOD._replace(nodes=NODES * 2), "TWICE"),
    (GOOD._replace(groups=GROUPS * 2), "TWICE"),
    (GOOD._replace(partitions=PARTITIONS * 2), "TWICE"),
    (GOOD._replace(hash_version=2), "OTHER_HASH"),
    (GOOD._replace(format=2), "ABSURD"),
    (GOOD._replace(taken_ms=-1), "NEGATIVE"),
    (node(state="asleep"), "BAD_STATE"),
    (node(disk_capacity=-1), "NEGATIVE"),
    (node(disk_capacity=1 << 61), "ABSURD"),
    (node(ingress_capacity=1.5), "ABSURD"),
    (group(id=99), "UNKNOWN_GROUP"),
    (group(voters=(1, 2, 9)), "UNKNOWN_NODE"),
    (group(learners=(9,)), "UNKNOWN_NODE"),
    (group(voters=()), "BAD_MEMBERS"),
    (group(voters=(1, 1, 2)), "BAD_MEMBERS"),
    (group(learners=(1,)), "BAD_MEMBERS"),
    (group(leader=9), "BAD_LEADER"),
    (group(bytes=-5), "NEGATIVE"),
    (group(ingress=1 << 60), "ABSURD"),
    (group(ingress="much"), "ABSURD"),
    (group(ingress=True), "ABSURD"),
    (partition(group=2), "UNKNOWN_GROUP"),
    (partition(group=0), "UNKNOWN_GROUP"),
    (partition(ingress=-1), "NEGATIVE"),
    (partition(ingress=11), "BAD_SUM"),
    (partition(read=5), "BAD_SUM"),
    (partition(read=None), "ABSURD"),
])
def test_what_contradicts_itself_is_refused_with_a_code(bad, code):
    with pytest.raises(InvalidSnapshot) as refused:
        checked(bad)
    assert refused.value.code == code and str(refused.value)


@pytest.mark.parametrize("bad, error", [
    (node(weight=-1), InvalidTopology),
    (node(rack="x" * 300), InvalidTopology),
    (GOOD._replace(nodes=tuple(NodeRow(each) for each in range(1, NODES_MAX + 2))), LimitExceeded),
    (GOOD._replace(pool_size=0), LimitExceeded),
    (GOOD._replace(replication_factor=10), LimitExceeded),
    (GOOD._replace(partitions=(PARTITIONS[0], (1, 2))), InvalidSnapshot),
    (GOOD._replace(partitions=(PARTITIONS[0], PARTITIONS[0]._replace(incarnation="7"))),
     InvalidSnapshot),
])
def test_what_is_too_much_or_no_row_is_refused(bad, error):
    with pytest.raises(error):
        checked(bad)


def test_a_group_in_joint_consensus_may_be_led_by_a_leaving_node():
    assert checked(group(leader=3, voters=(1, 2), in_joint=True))


@given(clusters())
@settings(max_examples=30, deadline=None)
def test_what_is_saved_is_loaded(before):
    assert load(save(before)) == before
    assert digest(load(save(before))) == digest(before)


def test_the_digest_is_the_contents_and_not_their_order():
    turned = GOOD._replace(nodes=NODES[::-1], groups=GROUPS[::-1])
    assert digest(checked(turned)) == digest(GOOD)
    assert digest(group(bytes=10)) != digest(GOOD)


@pytest.mark.parametrize("change, complaint", [
    (lambda fields: fields.update(format=7), "format"),
    (lambda fields: fields.pop("nodes"), "snapshot lacks nodes"),
    (lambda fields: fields["groups"][0].update(bytes=-1), "bytes"),
    (lambda fields: fields["groups"][0].update(in_joint=0), "in_joint"),
])
def test_a_file_that_is_no_snapshot_is_refused(change, complaint):
    fields = json.loads(save(GOOD))
    change(fields)
    with pytest.raises(InvalidDocument, match=complaint):
        load(json.dumps(fields).encode())


def test_a_file_beyond_its_limit_is_refused(monkeypatch):
    monkeypatch.setattr(clusters_module, "SNAPSHOT_BYTES_MAX", 10)
    with pytest.raises(InvalidDocument, match="limit is 10"):
        load(save(GOOD))
