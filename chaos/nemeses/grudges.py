"""Grudges: the shapes of a network partition, as sets of cut links.

Contract.  Pure functions of node ids and a generator.  In every result a link is one direction;
clients are only in grudges that name them.

Theory.  Halves and an isolated node are the simplest partitions.  In a *bridge* one node hears both
halves, so two majorities overlap in it.  In a *ring of majorities* every node hears a majority and
no two hear the same one: whichever node is elected, another node has a majority without it.
One-way cuts make a node that is heard and does not hear, or the reverse, which no timeout of its
own tells apart from silence.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

from chaos.backends.backend import CLIENTS, Link, all_links

Grudge = frozenset[Link]


def halves(rng: random.Random, nodes: Sequence[int]) -> Grudge:
    """Return the links between a majority and a minority, the minority as large as possible."""
    mixed = _mixed(rng, nodes)
    middle = len(mixed) // 2
    return all_links(mixed[:middle], mixed[middle:])


def alone(node: int, nodes: Sequence[int]) -> Grudge:
    """Return the links between one node and all others."""
    return all_links([node], [other for other in nodes if other != node])


def bridge(rng: random.Random, nodes: Sequence[int]) -> Grudge:
    """Return the links between two halves of all nodes but one, drawn at random, which hears
    both."""
    mixed = _mixed(rng, nodes)[1:]
    middle = len(mixed) // 2
    return all_links(mixed[:middle], mixed[middle:])


def majorities_ring(rng: random.Random, nodes: Sequence[int]) -> Grudge:
    """Return links such that every node hears a majority, itself included, and no two hear the
    same: each hears its successors in a ring.  With three nodes each hears one other, one way
    round."""
    ring = _mixed(rng, nodes)
    majority = len(ring) // 2 + 1
    cut = set()
    for place, node in enumerate(ring):
        first = place - majority // 2
        heard = {ring[(first + step) % len(ring)] for step in range(majority)}
        cut |= {Link(other, node) for other in ring if other not in heard}
    return frozenset(cut)


def deaf(node: int, others: Collection[int]) -> Grudge:
    """Return the links by which the node receives; it can still send."""
    return frozenset(Link(other, node) for other in others if other != node)


def mute(node: int, others: Collection[int]) -> Grudge:
    """Return the links by which the node sends; it can still receive."""
    return frozenset(Link(node, other) for other in others if other != node)


def from_clients(nodes: Sequence[int]) -> Grudge:
    """Return the links between these nodes and the clients; among themselves nodes hear each
    other."""
    return all_links(nodes, [CLIENTS])


def _mixed(rng: random.Random, nodes: Sequence[int]) -> list[int]:
    return rng.sample(list(nodes), len(nodes))
