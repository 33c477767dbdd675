"""Who counts: decisions over a configuration, joint or simple.

Contract.  Pure functions over ``types.Configuration``.  While ``outgoing`` is not empty a decision
needs a majority of ``voters`` *and* of ``outgoing`` (thesis 4.3).  Learners receive entries and
count for nothing.
Elsewhere.  Majorities of one set: quorum.py.  MEMBERSHIP entries change a group's configuration the
moment they are in its log: ``Group.adopt`` is the one place where that will happen.
"""

from __future__ import annotations

from collections.abc import Callable

from multiraft import quorum
from multiraft.quorum import Vote
from multiraft.types import Configuration


def voters(configuration: Configuration) -> tuple[int, ...]:
    """Who votes in either half, in the order of preference, without repeats."""
    return tuple(dict.fromkeys(configuration.voters + configuration.outgoing))


def is_voter(configuration: Configuration, node: int) -> bool:
    """Whether ``node`` votes in either half of the configuration."""
    return node in configuration.voters or node in configuration.outgoing


def committed(configuration: Configuration, match_of: Callable[[int], int]) -> int:
    """Highest index that is durable on a majority (of both halves)."""
    index = quorum.reached([match_of(voter) for voter in configuration.voters])
    if configuration.outgoing:
        index = min(index, quorum.reached([match_of(voter) for voter in configuration.outgoing]))
    return index


def supported(configuration: Configuration, supports: Callable[[int], bool]) -> bool:
    """Whether a majority (of both halves) supports."""
    if not quorum.supported(configuration.voters, supports):
        return False
    return not configuration.outgoing or quorum.supported(configuration.outgoing, supports)


def tally(configuration: Configuration, votes: dict[int, bool]) -> Vote:
    """Outcome of an election: won in both halves, lost in either."""
    incoming = quorum.tally(configuration.voters, votes)
    if not configuration.outgoing or incoming is Vote.LOST:
        return incoming
    outgoing = quorum.tally(configuration.outgoing, votes)
    if outgoing is Vote.LOST or incoming is Vote.WON:
        return outgoing
    return incoming


def validate(configuration: Configuration) -> Configuration:
    """The configuration, checked where it enters.  Raises ``ValueError``."""
    for name, nodes in configuration._asdict().items():
        if len({*nodes}) != len(nodes):
            raise ValueError(f"{name} {nodes} repeat a node")
        if any(node <= 0 for node in nodes):
            raise ValueError(f"{name} {nodes} hold a number that is no node id")
    if not configuration.voters:
        raise ValueError("a configuration needs a voter")
    doubled = [node for node in configuration.learners if is_voter(configuration, node)]
    if doubled:
        raise ValueError(f"nodes {doubled} are voters and learners at once")
    return configuration
