"""One replica's entries in the node-wide leadership digests and in the index of groups by peer.

Contract.  Each ``Group`` has one and reports changes to it.  The digests, lists and versions of
``NodeContext``, which all groups share, follow.  The record keeps what it added, so that exactly
that is removed, even when the group's term has grown meanwhile.

Invariants.  ``term`` is not 0 exactly while the group leads.  A leader's fact is in the digest of
each member that it serves, and in no other; a follower's fact is in one digest or in none.

Theory.  Two nodes compare digests instead of groups (``liveness/leadership_digest.py``).  A digest
that does not match the groups would be queried again and again, or hide a lost leader.
"""

from __future__ import annotations

from collections.abc import Iterable

from multiraft.liveness import leadership_digest
from multiraft.liveness.leadership_digest import LeadershipDigest
from multiraft.raft.context import NodeContext


class LeadershipRecord:
    """One replica's published leader and peers, with what is needed to withdraw them."""

    __slots__ = ("_context", "_group", "term", "fact", "_followed", "_peers")

    def __init__(self, context: NodeContext, group: int):
        self._context = context
        self._group = group
        #: Term in which this replica is published as leader; 0 = it does not lead.
        self.term = 0
        #: Digest fact of that leadership.
        self.fact = 0
        #: (leader, digest fact) that this follower contributes to the leader's digest.
        self._followed = (0, 0)
        self._peers: set[int] = set()

    def publish_leader(self, incarnation: int, term: int, members: Iterable[int]) -> None:
        """Publish that the group is led here, in the digests that its members check."""
        self.term, self.fact = term, leadership_digest.fact(self._group, incarnation, term)
        self.update_members((), members)
        self._context.leading_changes.record(self._group, incarnation, term, True)

    def withdraw_leader(self, incarnation: int, members: Iterable[int]) -> None:
        """Withdraw published leadership from the digests of ``members``."""
        self.update_members(members, ())
        self._context.leading_changes.record(self._group, incarnation, self.term, False)
        self.term = self.fact = 0

    def update_members(self, gone: Iterable[int], come: Iterable[int]) -> None:
        """Update a leader's digests for members that are ``gone`` and members that have
        ``come``."""
        self._context.digests_version += 1
        for node in gone:
            self._context.leading_digests[node].remove(self._group, self.fact)
        for node in come:
            self._context.leading_digests.setdefault(node, LeadershipDigest()).add(
                self._group, self.fact)

    def follow(self, leader: int, incarnation: int, term: int) -> bool:
        """Publish that ``leader`` leads in ``term`` (0 = unknown, or this replica itself).

        True if events of the leader's node do not concern the group yet, so that the caller has to
        extend ``set_peers``."""
        followed = (leader, leadership_digest.fact(self._group, incarnation, term) if leader else 0)
        if followed == self._followed:
            return False
        self._context.digests_version += 1
        node, value = self._followed
        if node:
            self._context.followed_digests[node].remove(self._group, value)
        if leader:
            self._context.followed_digests.setdefault(leader, LeadershipDigest()).add(
                self._group, followed[1]
            )
        self._followed = followed
        return leader not in self._peers

    def set_peers(self, nodes: set[int]) -> None:
        """Subscribe the group to events of exactly these nodes, and no longer to those of
        others."""
        groups_by_peer = self._context.groups_by_peer
        for node in self._peers - nodes:
            del groups_by_peer[node][self._group]
        for node in nodes - self._peers:
            groups_by_peer.setdefault(node, {})[self._group] = None
        self._peers = nodes
