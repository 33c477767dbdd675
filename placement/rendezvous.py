"""Group -> replicas: weighted rendezvous hashing, racks first.

Contract.  ``replicas`` is a function of (group, factor, topology, seed).  No two replicas share a
rack while there are racks enough; otherwise racks take turns, so that none holds more than its even
share as long as its nodes suffice.  The first replica is the preferred leader.  It is used when a
group is created and as the order of targets in plans; the Raft membership is the authority.

Theory.  Each candidate scores w / -ln(u), u drawn from (0, 1] by a hash of (seed, group,
candidate); the highest score wins with probability w / sum of w, and a candidate that joins or
leaves changes only what it wins or had (Thaler, Ravishankar 1998; Schindelhauer, Schomaker
2005; Ceph's straw2).  Racks are candidates with the sum of their nodes' weights.  Drawing several
without replacement favours the light: with a 1 : 5 split of weights expect 10 to
15 % off, which plans correct.

Determinism.  A logarithm's last bit differs between C libraries, so ``-log2(u)`` is computed here
in fixed point with integers, and scores are compared as exact ratios, ties by id: no floats.
"""

from __future__ import annotations

from hashlib import blake2b

from placement.errors import LimitExceeded, NotEnoughNodes
from placement.topology import Rack, Topology

#: A quorum of 9 survives 4 failures; more replicas cost every append and no practical fault needs
#: them.
REPLICATION_FACTOR_MAX = 9

#: Fraction bits of the fixed-point logarithm: 2**-40 is far below what one draw can matter.
LOG_FRACTION_BITS = 40

_MANTISSA_BITS = 63
_MANTISSA_TOP = 1 << (_MANTISSA_BITS + 1)


def neg_log2(draw: int) -> int:
    """Return -log2((draw + 1) / 2**64) in units of 2**-40, for a 64-bit ``draw``; 0 for the
    greatest.

    Digit by digit: the square of a mantissa in [1, 2) is at least 2 exactly when the next bit of
    its logarithm is 1 (Knuth, TAOCP 1.2.2, exercise 25)."""
    value = draw + 1
    whole = value.bit_length() - 1
    mantissa = value << _MANTISSA_BITS >> whole
    logarithm = whole
    for _ in range(LOG_FRACTION_BITS):
        mantissa = mantissa * mantissa >> _MANTISSA_BITS
        logarithm <<= 1
        if mantissa >= _MANTISSA_TOP:
            mantissa >>= 1
            logarithm |= 1
    return (64 << LOG_FRACTION_BITS) - logarithm


def _draw(seed: int, group: int, label: bytes) -> int:
    """Return 64 uniform bits for one candidate, named by ``label``, of one group."""
    text = seed.to_bytes(8, "little") + group.to_bytes(8, "little") + label
    return int.from_bytes(blake2b(text, digest_size=8, person=b"mr-placement").digest(), "little")


class _Score:
    """Orders candidates best first: neg_log2 / weight ascending as exact ratios, then identity."""

    __slots__ = ("identity", "neg_log", "weight")

    def __init__(self, seed: int, group: int, label: bytes, weight: int, identity: str | int):
        self.neg_log = neg_log2(_draw(seed, group, label))
        self.weight = weight
        self.identity = identity

    def __lt__(self, other: _Score) -> bool:
        left, right = self.neg_log * other.weight, other.neg_log * self.weight
        if left != right:
            return left < right
        # Identities of one set of candidates are all numbers or all names.
        return self.identity < other.identity  # type: ignore[operator]


def _ranked_racks(group: int, topology: Topology, seed: int) -> list[Rack]:
    return sorted(topology.racks, key=lambda rack: _Score(
        seed, group, b"rack" + rack.name.encode(), rack.weight, rack.name))


def _ranked_nodes(group: int, rack: Rack, seed: int) -> list[int]:
    ranked = sorted(rack.nodes, key=lambda node: _Score(
        seed, group, b"node" + node.id.to_bytes(8, "little"), node.weight, node.id))
    return [node.id for node in ranked]


def replicas(group: int, replication_factor: int, topology: Topology, seed: int) -> tuple[int, ...]:
    """Return the ids of the nodes for a group's replicas, best first, in as many racks as possible.

    Raises ``NotEnoughNodes`` if the topology has fewer nodes, ``LimitExceeded`` for a factor out of
    its range. O(racks log racks + nodes of the chosen racks)."""
    if not 1 <= replication_factor <= REPLICATION_FACTOR_MAX:
        raise LimitExceeded("replication_factor", REPLICATION_FACTOR_MAX, replication_factor)
    if topology.nodes_count < replication_factor:
        raise NotEnoughNodes(replication_factor, topology.nodes_count)
    racks = _ranked_racks(group, topology, seed)[:replication_factor]
    ranked = [_ranked_nodes(group, rack, seed) for rack in racks]
    chosen: list[int] = []
    turn = 0
    while len(chosen) < replication_factor:  # one node of each rack per turn
        for nodes in ranked:
            if turn < len(nodes) and len(chosen) < replication_factor:
                chosen.append(nodes[turn])
        turn += 1
    return tuple(chosen)


def replicas_of_pool(pool_size: int, replication_factor: int, topology: Topology,
                     seed: int) -> tuple[tuple[int, ...], ...]:
    """Return the nodes for the replicas of each of the groups 0..``pool_size``; group 0 is the
    metadata group. Raises as ``replicas``."""
    return tuple(replicas(group, replication_factor, topology, seed)
                 for group in range(pool_size + 1))
