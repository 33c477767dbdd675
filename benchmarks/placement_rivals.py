"""Other ways of placing, with which the planner is compared.

Contract.  Each function returns a whole placement, from the same input, and uses nothing of the
planner but the hashes.  ``of_groups`` places partitions in groups, ``of_nodes`` replicas on nodes,
racks apart.

    hash         the placement of the hash
    bounded      the hash recomputed with bounded loads: full groups and nodes are skipped
    lpt          longest processing time first, from scratch: best balance, any movement
    first fit    largest first into the first bin with capacity under the cap
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Callable, Sequence

from placement import NodePlace, Topology, default_group, jump_hash, partition_key, replicas

SEED = 11
ATTEMPTS = 64

Groups = list[int]  # group of each partition, 1 ..
Replicas = list[tuple[int, ...]]  # nodes of each group


# ---- partitions to groups -----------------------------------------------------------------------

def hashed_groups(loads: Sequence[int], pool: int, _band: float) -> Groups:
    """Place partitions by jump hash alone."""
    return list(_hashed_groups(len(loads), pool))


@functools.cache
def _hashed_groups(count: int, pool: int) -> tuple[int, ...]:
    """Place by jump hash, which ignores loads."""
    return tuple(default_group(incarnation, pool, SEED) for incarnation in range(1, count + 1))


def bounded_groups(loads: Sequence[int], pool: int, band: float) -> Groups:
    """Place by jump hash, hashing again while the group would be above the cap; else the
    emptiest."""
    cap = (1 + band) * sum(loads) / pool
    filled = [0] * (pool + 1)
    found = []
    for incarnation, load in enumerate(loads, start=1):
        for attempt in range(ATTEMPTS):
            group = 1 + jump_hash(partition_key(incarnation, SEED, attempt), pool)
            if filled[group] + load <= cap:
                break
        else:
            group = min(range(1, pool + 1), key=filled.__getitem__)
        filled[group] += load
        found.append(group)
    return found


def lpt_groups(loads: Sequence[int], pool: int, _band: float) -> Groups:
    """Place the largest first into the emptiest group."""
    heap = [(0, group) for group in range(1, pool + 1)]
    found = [0] * len(loads)
    for place in sorted(range(len(loads)), key=lambda each: (-loads[each], each)):
        filled, group = heap[0]
        found[place] = group
        heapq.heapreplace(heap, (filled + loads[place], group))
    return found


def first_fit_groups(loads: Sequence[int], pool: int, band: float) -> Groups:
    """Place the largest first into the first group with capacity under the cap; else the
    emptiest."""
    cap = (1 + band) * max(sum(loads) / pool, max(loads))
    filled = [0] * (pool + 1)
    found = [0] * len(loads)
    first = 1  # every earlier group is full for any item that is not smaller than a hundredth
    for place in sorted(range(len(loads)), key=lambda each: (-loads[each], each)):
        load = loads[place]
        while first < pool and filled[first] > 0.999 * cap:
            first += 1
        group = next((group for group in range(first, pool + 1) if filled[group] + load <= cap), 0)
        group = group or min(range(1, pool + 1), key=filled.__getitem__)
        filled[group] += load
        found[place] = group
    return found


OF_GROUPS: dict[str, Callable[[Sequence[int], int, float], Groups]] = {
    "hash": hashed_groups, "bounded": bounded_groups, "lpt": lpt_groups,
    "first fit": first_fit_groups}


# ---- replicas to nodes --------------------------------------------------------------------------

def hashed_nodes(nodes: Sequence[NodePlace], loads: Sequence[int], factor: int,
                 _band: float) -> Replicas:
    """Place by weighted rendezvous hashing, racks first."""
    return list(_hashed_nodes(tuple(nodes), len(loads), factor))


@functools.cache
def _hashed_nodes(nodes: tuple[NodePlace, ...], groups: int,
                  factor: int) -> tuple[tuple[int, ...], ...]:
    topology = Topology.of(nodes)
    return tuple(replicas(group, factor, topology, SEED) for group in range(groups))


def bounded_nodes(nodes: Sequence[NodePlace], loads: Sequence[int], factor: int,
                  band: float) -> Replicas:
    """Place by the same hash among the nodes that have capacity under their cap."""
    share = factor * sum(loads) / sum(node.weight for node in nodes)
    room = {node.id: (1 + band) * share * node.weight for node in nodes}
    topologies: dict[tuple[int, ...], Topology] = {}
    found = []
    for group, load in enumerate(loads):
        open_nodes = tuple(node for node in nodes if room[node.id] >= load)
        if len({node.rack for node in open_nodes}) < factor:
            open_nodes = tuple(nodes)
        key = tuple(node.id for node in open_nodes)
        if key not in topologies:
            topologies[key] = Topology.of(open_nodes)
        chosen = replicas(group, factor, topologies[key], SEED)
        for node in chosen:
            room[node] -= load
        found.append(chosen)
    return found


def lpt_nodes(nodes: Sequence[NodePlace], loads: Sequence[int], factor: int,
              _band: float) -> Replicas:
    """Place the largest group first, each replica on the node that is least full for its weight."""
    filled = {node.id: 0 for node in nodes}
    found: list[tuple[int, ...]] = [()] * len(loads)
    for group in sorted(range(len(loads)), key=lambda each: (-loads[each], each)):
        order = sorted(nodes, key=lambda node: (filled[node.id] / node.weight, node.id))
        found[group] = _apart(order, factor)
        for node in found[group]:
            filled[node] += loads[group]
    return found


def first_fit_nodes(nodes: Sequence[NodePlace], loads: Sequence[int], factor: int,
                    band: float) -> Replicas:
    """Place the largest group first, each replica on the first node with capacity under its cap."""
    share = factor * sum(loads) / sum(node.weight for node in nodes)
    room = {node.id: (1 + band) * share * node.weight for node in nodes}
    found: list[tuple[int, ...]] = [()] * len(loads)
    for group in sorted(range(len(loads)), key=lambda each: (-loads[each], each)):
        order = [node for node in nodes if room[node.id] >= loads[group]]
        order += sorted((node for node in nodes if room[node.id] < loads[group]),
                        key=lambda node: (-room[node.id], node.id))
        found[group] = _apart(order, factor)
        for node in found[group]:
            room[node] -= loads[group]
    return found


def _apart(order: Sequence[NodePlace], factor: int) -> tuple[int, ...]:
    """Return the first nodes in order that are in different racks (a node without a rack counts as
    one)."""
    racks: dict[object, int] = {}
    for node in order:
        racks.setdefault(node.rack or node.id, node.id)
        if len(racks) == factor:
            break
    return tuple(racks.values())


OF_NODES: dict[str, Callable[[Sequence[NodePlace], Sequence[int], int, float], Replicas]] = {
    "hash": hashed_nodes, "bounded": bounded_nodes, "lpt": lpt_nodes,
    "first fit": first_fit_nodes}
