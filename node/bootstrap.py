"""The first start: which groups exist and which nodes hold them, as a pure function of the config.

Contract.  Every node of a new cluster computes the same pool from the same ``[cluster]`` table, so no
node has to be asked first.  The metadata group's first leader writes the result into the metadata;
from then on the Raft memberships and the metadata are the authority and this is never asked again.
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft.types import Configuration
from node.config import NodeConfig
from placement.rendezvous import replicas_of_pool
from placement.topology import WEIGHT_DEFAULT, NodePlace, Topology

#: Voters of the metadata group; the nodes beyond hold a learner's copy.
METADATA_VOTERS_MAX = 5
#: The incarnation that every group of a new pool starts with.
FIRST_INCARNATION = 1


class Pool(NamedTuple):
    """Members of every group; index 0 is the metadata group."""

    hash_seed: int
    configurations: tuple[Configuration, ...]


def pool_of(config: NodeConfig) -> Pool:
    """The pool of a new cluster."""
    hash_seed = int.from_bytes(config.cluster_id[:8], "big") >> 1
    topology = Topology.of(NodePlace(member.id, member.rack, _weight(member.weight))
                           for member in config.members)
    replicas = replicas_of_pool(config.groups, config.replication_factor, topology, hash_seed)
    ids = sorted(member.id for member in config.members)
    metadata = Configuration(voters=tuple(ids[:METADATA_VOTERS_MAX]),
                             learners=tuple(ids[METADATA_VOTERS_MAX:]))
    return Pool(hash_seed, (metadata, *(Configuration(voters=tuple(sorted(row)))
                                        for row in replicas)))


def groups_of(pool: Pool, node: int) -> list[int]:
    """Groups of which ``node`` holds a replica, ascending."""
    return [group for group, configuration in enumerate(pool.configurations)
            if node in configuration.members()]


def _weight(weight: float) -> int:
    return max(1, round(weight * WEIGHT_DEFAULT))
