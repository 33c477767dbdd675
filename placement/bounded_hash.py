"""Partition -> group: jump hash with bounded overflow at creation.

Contract.  Groups of the pool are numbered 1..pool_size (group 0 is the metadata group and holds no
partitions).  ``assign`` is a function of its arguments.  It returns the exceptions, those
partitions that are not in their ``default_group``, for the caller to store.  The cap applies only
when a partition is created: it never causes a move.

Theory.  Hashing m partitions to G groups leaves groups near mean + sqrt(mean) * z.  The cap,
max((1+eps) mean, mean + 4 sqrt(mean) + 4), is the greater of "a twentieth above the mean", which
binds when groups are full, and "four standard deviations", which binds when they are nearly empty
and keeps exceptions rare.  A partition whose group is at the cap is hashed again with the next
attempt (random-jump overflow: Chen, Coleman, Shrivastava, AAAI 2021), which avoids the cascades of
"the next group on the ring".  As the cap is above the mean, some group is always below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import NamedTuple

from placement.errors import LimitExceeded
from placement.hashing import jump_hash, partition_key

#: Groups of one pool: 1,000 nodes with some 100 group replicas each (placement study, 1.4).
POOL_SIZE_MAX = 1 << 15

#: How far above the mean a group may be filled once groups are full.
EPSILON_PERMILLE = 50

#: Hashes tried before the least filled group is taken.  With half of the groups at their cap (far
#: beyond anything hashing produces) all attempts fail once in 2**64.
ATTEMPTS_MAX = 64


class Assignment(NamedTuple):
    """Groups of the partitions asked for, in their order, and those that are exceptions."""

    groups: tuple[int, ...]
    exceptions: tuple[tuple[int, int], ...]  # (incarnation, group)


def group_cap(partitions: int, pool_size: int) -> int:
    """Return the number of partitions at which a group is full, when the pool holds ``partitions``
    in ``pool_size`` groups.

    Integers only: the mean is rounded up, the square root down."""
    mean = -(-partitions // pool_size)
    return max(mean + mean * EPSILON_PERMILLE // 1000, mean + isqrt(16 * mean) + 4)


def default_group(incarnation: int, pool_size: int, seed: int) -> int:
    """Return the group to which the hash maps a partition: 1 <= group <= ``pool_size``.  O(log
    pool_size)."""
    return 1 + jump_hash(partition_key(incarnation, seed), pool_size)


def assign(incarnations: Sequence[int], counts: Sequence[int], total: int, seed: int,
           hashed: Sequence[int] | None = None) -> Assignment:
    """Return the groups of new partitions, assigned one after the other, and those of them that are
    not in the group of their hash because that is full.

    ``hashed``: the ``default_group`` of each partition, if the caller knows them. ``counts[group]``
    is the number of partitions in each group, ``counts[0]`` (the metadata group) is ignored;
    ``total`` is their sum, so that nothing here is O(groups). The pool has ``len(counts) - 1``
    groups. Raises ``LimitExceeded`` for a pool of an impossible size."""
    pool_size = len(counts) - 1
    if not 1 <= pool_size <= POOL_SIZE_MAX:
        raise LimitExceeded("pool_size", POOL_SIZE_MAX, pool_size)
    added: dict[int, int] = {}
    groups: list[int] = []
    exceptions: list[tuple[int, int]] = []
    if hashed is None:
        hashed = [default_group(incarnation, pool_size, seed) for incarnation in incarnations]
    for position, (incarnation, group) in enumerate(zip(incarnations, hashed, strict=True), 1):
        cap = group_cap(total + position, pool_size)
        if counts[group] + added.get(group, 0) >= cap:
            group = _group_below(cap, incarnation, counts, added, seed)
            exceptions.append((incarnation, group))
        added[group] = added.get(group, 0) + 1
        groups.append(group)
    return Assignment(tuple(groups), tuple(exceptions))


def _group_below(cap: int, incarnation: int, counts: Sequence[int], added: dict[int, int],
                 seed: int) -> int:
    """Return the first group below ``cap`` among the attempts after the first one, which found a
    full group; without one, the least filled group, O(groups)."""
    pool_size = len(counts) - 1
    for attempt in range(1, ATTEMPTS_MAX):
        group = 1 + jump_hash(partition_key(incarnation, seed, attempt), pool_size)
        if counts[group] + added.get(group, 0) < cap:
            return group
    return min(range(1, pool_size + 1),
               key=lambda group: (counts[group] + added.get(group, 0), group))
