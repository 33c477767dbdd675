"""Quorum decisions over a configuration, simple or joint, and its encoding.

Contract.  Pure functions over ``types.Configuration``.  While ``outgoing`` is not empty, a decision
needs a majority of ``voters`` *and* of ``outgoing`` (thesis 4.3).  Learners receive entries and
count for nothing.  A voter that becomes a learner is in ``outgoing`` and ``learners`` at once: it
votes until the joint configuration is left.  An empty configuration belongs to a replica that was
just created and has not heard from a leader.

Elsewhere.  Majorities of one set: quorum.py.  Adoption of a configuration as soon as it is in the
log: ``Group.adopt``.  Rules for changes: conf_change.py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache

from multiraft.errors import CorruptEntry
from multiraft.raft import quorum
from multiraft.raft.quorum import Vote
from multiraft.types import Configuration, Payload

#: Version of a MEMBERSHIP payload.
VERSION = 1
#: version, padding, number of voters, learners and outgoing voters; then their ids as u32.
_HEAD = struct.Struct("<BxHHH")
_ID_BYTES = 4

#: Limit of members of one group.  The metadata group has every node of the cluster; a payload with
#: a false count must not allocate memory.
MEMBERS_MAX = 4096

#: Decoded payloads that are cached.
DECODED_MAX = 256


def voters(configuration: Configuration) -> tuple[int, ...]:
    """Return the voters of either half in order of preference, without repeats."""
    return tuple(dict.fromkeys(configuration.voters + configuration.outgoing))


def is_voter(configuration: Configuration, node: int) -> bool:
    """True if ``node`` votes in either half of the configuration."""
    return node in configuration.voters or node in configuration.outgoing


def committed(configuration: Configuration, match_of: Callable[[int], int]) -> int:
    """Return the highest index that is durable on a majority (of both halves).  ``match_of``:
    durable index of a voter."""
    index = quorum.reached([match_of(voter) for voter in configuration.voters])
    if configuration.outgoing:
        index = min(index, quorum.reached([match_of(voter) for voter in configuration.outgoing]))
    return index


def supported(configuration: Configuration, supports: Callable[[int], bool]) -> bool:
    """True if ``supports`` is true for a majority of the voters (of both halves)."""
    if not quorum.supported(configuration.voters, supports):
        return False
    return not configuration.outgoing or quorum.supported(configuration.outgoing, supports)


def in_every_majority(configuration: Configuration, has: Callable[[int], bool]) -> bool:
    """True if every majority (of either half) contains a node for which ``has`` is true."""
    return not any(quorum.supported(half, lambda node: not has(node))
                   for half in (configuration.voters, configuration.outgoing))


def tally(configuration: Configuration, votes: dict[int, bool]) -> Vote:
    """Return the outcome of an election: won in both halves, lost in either."""
    incoming = quorum.tally(configuration.voters, votes)
    if not configuration.outgoing or incoming is Vote.LOST:
        return incoming
    outgoing = quorum.tally(configuration.outgoing, votes)
    if outgoing is Vote.LOST or incoming is Vote.WON:
        return outgoing
    return incoming


def validate(configuration: Configuration) -> Configuration:
    """Return the configuration if it is valid.  Raises ``ValueError``."""
    for name, nodes in zip(configuration._fields, configuration):
        if len({*nodes}) != len(nodes):
            raise ValueError(f"{name} {nodes} repeat a node")
        if nodes and min(nodes) <= 0:
            raise ValueError(f"{name} {nodes} hold a number that is no node id")
    if not configuration.voters and any(configuration):
        raise ValueError("a configuration needs a voter")
    doubled = [node for node in configuration.learners if node in configuration.voters]
    if doubled:
        raise ValueError(f"nodes {doubled} are voters and learners at once")
    count = len(configuration.members())
    if count > MEMBERS_MAX:
        raise ValueError(f"{count} members exceed the limit of {MEMBERS_MAX}")
    return configuration


# ---- changes -----------------------------------------------------------------------------------


def enter_joint(configuration: Configuration, voters: tuple[int, ...],
                learners: tuple[int, ...]) -> Configuration:
    """Return the first configuration of a change to these members: joint if the voters change."""
    if set(voters) == set(configuration.voters):
        return Configuration(configuration.voters, learners)
    return Configuration(voters, learners, configuration.voters)


def leave_joint(configuration: Configuration) -> Configuration:
    """Return a joint configuration without its outgoing voters."""
    return Configuration(configuration.voters, configuration.learners)


def configurations_before(known: Sequence[tuple[int, Configuration]],
                          first_gone: int) -> list[tuple[int, Configuration]]:
    """Return the (index, configuration) pairs of a log that is cut before ``first_gone``,
    ascending.

    The first pair always stays, because it is the configuration at the log's start.  Its index is
    lowered if necessary: a forced recovery dates it by the end of the log that it continues."""
    (index, first), *later = known
    return [(min(index, first_gone - 1), first), *[each for each in later if each[0] < first_gone]]


# ---- encoding ----------------------------------------------------------------------------------


def encode(configuration: Configuration) -> bytes:
    """Return the payload of a MEMBERSHIP entry."""
    head = _HEAD.pack(VERSION, *map(len, configuration))
    return head + b"".join(node.to_bytes(_ID_BYTES, "little")
                           for nodes in configuration for node in nodes)


def decode(payload: Payload) -> Configuration:
    """Return the configuration in a MEMBERSHIP payload.  Raises ``CorruptEntry``."""
    return _decoded(bytes(payload))


@lru_cache(maxsize=DECODED_MAX)
def _decoded(payload: bytes) -> Configuration:
    """Decode and validate, cached: the groups of a pool have few different configurations, and each
    is decoded when it is checked, when it is appended and at every start."""
    if len(payload) < _HEAD.size:
        raise CorruptEntry(f"a configuration of {len(payload)} bytes")
    version, *counts = _HEAD.unpack_from(payload)
    if version != VERSION:
        raise CorruptEntry(f"a configuration of version {version}, known is {VERSION}")
    if len(payload) != _HEAD.size + _ID_BYTES * sum(counts):
        raise CorruptEntry(f"{len(payload)} bytes for a configuration of {counts} nodes")
    ids = struct.unpack_from(f"<{sum(counts)}I", payload, _HEAD.size)
    voters, learners = ids[:counts[0]], ids[counts[0]:counts[0] + counts[1]]
    try:
        return validate(Configuration(voters, learners, ids[counts[0] + counts[1]:]))
    except ValueError as error:
        raise CorruptEntry(f"not a configuration: {error}") from error


def fault(payload: Payload) -> str:
    """Return why a payload is not a valid MEMBERSHIP payload; empty if it is."""
    try:
        decode(payload)
    except CorruptEntry as error:
        return str(error)
    return ""
