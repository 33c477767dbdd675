"""Placements as text: the words of logs, golden files and the command line."""

from __future__ import annotations

from collections.abc import Sequence

from placement.overflow import group_cap
from placement.topology import Topology


def describe_replicas(replicas_by_group: Sequence[Sequence[int]]) -> str:
    """One line per group, the preferred leader first: ``g4 -> n2 n5 n1``."""
    return "\n".join(f"g{group} -> " + " ".join(f"n{node}" for node in nodes)
                     for group, nodes in enumerate(replicas_by_group))


def describe_topology(topology: Topology) -> str:
    """One line per rack: ``rack-a (300): n1*100 n4*200``."""
    return "\n".join(f"{rack.name or '(no rack)'} ({rack.weight}): "
                     + " ".join(f"n{node.id}*{node.weight}" for node in rack.nodes)
                     for rack in topology.racks)


def describe_counts(counts: Sequence[int]) -> str:
    """Fill of a pool in one line; ``counts[0]`` is the metadata group's and ignored."""
    pool = counts[1:]
    total = sum(pool)
    return (f"{total} partitions in {len(pool)} groups: least {min(pool)}, mean "
            f"{total / len(pool):.1f}, most {max(pool)}, cap {group_cap(total, len(pool))}")
