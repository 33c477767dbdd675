"""Who does not hear whom: the shapes of a partition, as sets of cut links.

Contract.  Pure functions of node ids and a generator.  In every result a link is one direction;
the clients are in no grudge but those that name them.

Theory.  Halves and a lonely node are the partitions that everybody thinks of.  In a *bridge* one
node hears both halves, so two majorities overlap in it.  In a *ring of majorities* every node hears
a majority and no two hear the same one: whoever is elected, somebody else has a majority without
it.  One-way cuts make a node that is heard and does not hear, or the reverse, which no timeout of
its own tells apart from silence.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

from chaos.backends.backend import CLIENTS, Link, all_links

Grudge = frozenset[Link]


def halves(rng: random.Random, nodes: Sequence[int]) -> Grudge:
    """A majority and a minority, as large as can be, that do not hear each other."""
    mixed = _mixed(rng, nodes)
    middle = len(mixed) // 2
    return all_links(mixed[:middle], mixed[middle:])


def alone(node: int, nodes: Sequence[int]) -> Grudge:
    """One node and all others."""
    return all_links([node], [other for other in nodes if other != node])


def bridge(rng: random.Random, nodes: Sequence[int]) -> Grudge:
    """Two halves that do not hear each other, and one node that hears both."""
    mixed = _mixed(rng, nodes)[1:]
    middle = len(mixed) // 2
    return all_links(mixed[:middle], mixed[middle:])


def majorities_ring(rng: random.Random, nodes: Sequence[int]) -> Grudge:
    """Every node hears a majority, itself included, and no two hear the same: each hears those that
    stand around it in a ring.  With three nodes each hears one other, one way round."""
    ring = _mixed(rng, nodes)
    majority = len(ring) // 2 + 1
    cut = set()
    for place, node in enumerate(ring):
        first = place - majority // 2
        heard = {ring[(first + step) % len(ring)] for step in range(majority)}
        cut |= {Link(other, node) for other in ring if other not in heard}
    return frozenset(cut)


def deaf(node: int, others: Collection[int]) -> Grudge:
    """The node speaks and does not hear."""
    return frozenset(Link(other, node) for other in others if other != node)


def mute(node: int, others: Collection[int]) -> Grudge:
    """The node hears and is not heard."""
    return frozenset(Link(node, other) for other in others if other != node)


def from_clients(nodes: Sequence[int]) -> Grudge:
    """These nodes and the clients; among themselves nodes hear each other."""
    return all_links(nodes, [CLIENTS])


def _mixed(rng: random.Random, nodes: Sequence[int]) -> list[int]:
    return rng.sample(list(nodes), len(nodes))
