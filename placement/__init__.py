"""Placement of partitions in groups and of groups on nodes: pure planning, values in, values out.

Contract.  Nothing here reads a clock, a file, a socket or a random source, and nothing depends on
the order of sets or on the builtin ``hash``: the same input gives the same placement on every
machine, in every process, permanently.  ``testdata`` of the tests holds golden vectors of each
function.  Placement *proposes*: the metadata state machine and the Raft memberships decide.

    hashing      64-bit mixing and the jump consistent hash
    bounded_hash partition -> group, with a cap on how full a group may get
    topology     nodes, racks, weights, checked once
    rendezvous   group -> replicas, racks first
    describe     placements and plans as text
    errors       errors for invalid input

Rebalancing (docs/placement.md), modules to import by name:

    cluster      the snapshot that a plan is made from
    policy       bands, limits, and the options of one plan
    planner      makes a plan
    plan         the plan, its file, differences between two
    verify       every invariant of a plan, and the progress of its moves
    outcome      the planned cluster, and the figures before and after
    sampling     choice of the partitions that a planner needs, when there are millions
    whatif       the cluster after a hypothetical change of its nodes or its pool

and the parts of the planner: state (placement and loads), shares (targets and bounds), shed
(the core of balancing), switches, repair, balance, leaders (the levers), replica_changes (what the
levers share), imbalance and fill (parts of balance), sequence (the order), canonical (JSON and
digests).
"""

from placement.bounded_hash import POOL_SIZE_MAX, Assignment, assign, default_group, group_cap
from placement.errors import (
    InvalidTopology,
    LimitExceeded,
    NotEnoughNodes,
    PlacementError,
)
from placement.hashing import jump_hash, mix64, partition_key
from placement.rendezvous import replicas, replicas_of_pool
from placement.topology import NodePlace, Topology

__all__ = [
    "POOL_SIZE_MAX",
    "Assignment",
    "InvalidTopology",
    "LimitExceeded",
    "NodePlace",
    "NotEnoughNodes",
    "PlacementError",
    "Topology",
    "assign",
    "default_group",
    "group_cap",
    "jump_hash",
    "mix64",
    "partition_key",
    "replicas",
    "replicas_of_pool",
]
