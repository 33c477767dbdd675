"""What one replica has published within its node: that it leads, or whom it believes to lead, and
which nodes' events concern it.

Contract.  Each ``Group`` has one and says when something changes; the sums, lists and versions of
``NodeContext``, which all groups share, follow.  What was published is kept here, so that exactly
that is taken back, also when the group's term is a later one by then.
Invariants.  ``term`` is not 0 exactly while the group leads.  A leader's fact is in the sum of each
member that it serves, and in no other; a follower's belief is in one sum, or in none.
Theory.  Two nodes compare such sums instead of asking group by group
(``liveness/leadership_digest.py``), so a sum that is not in step would be looked into for ever, or
hide that a leader was lost.
"""

from __future__ import annotations

from collections.abc import Iterable

from multiraft.liveness import leadership_digest
from multiraft.liveness.leadership_digest import LeadershipDigest
from multiraft.raft.context import NodeContext


class LeadershipRecord:
    """See the module's docstring."""

    __slots__ = ("_context", "_group", "term", "fact", "_believed", "_concerned_by")

    def __init__(self, context: NodeContext, group: int):
        self._context = context
        self._group = group
        #: In which this leader is published; 0 = it does not lead.
        self.term = 0
        #: Digest of that.
        self.fact = 0
        #: (leader, digest fact) under which this follower's belief is counted.
        self._believed = (0, 0)
        self._concerned_by: set[int] = set()

    def publish_leader(self, incarnation: int, term: int, members: Iterable[int]) -> None:
        """The group leads: counted in the sums that its members check."""
        self.term, self.fact = term, leadership_digest.fact(self._group, incarnation, term)
        self.update_members((), members)
        self._context.leading_changes.record(self._group, incarnation, term, True)

    def withdraw_leader(self, incarnation: int, members: Iterable[int]) -> None:
        """It leads no more, and served these members until now."""
        self.update_members(members, ())
        self._context.leading_changes.record(self._group, incarnation, self.term, False)
        self.term = self.fact = 0

    def update_members(self, gone: Iterable[int], come: Iterable[int]) -> None:
        """The leader serves some members no more, and others from now on."""
        self._context.digests_version += 1
        for node in gone:
            self._context.led[node].remove(self._group, self.fact)
        for node in come:
            self._context.led.setdefault(node, LeadershipDigest()).add(self._group, self.fact)

    def follow(self, leader: int, incarnation: int, term: int) -> bool:
        """``leader`` leads in ``term`` as far as this replica knows (0 = nobody, or itself);
        whether that is news of a node whose events do not concern the group yet."""
        belief = (leader, leadership_digest.fact(self._group, incarnation, term) if leader else 0)
        if belief == self._believed:
            return False
        self._context.digests_version += 1
        node, value = self._believed
        if node:
            self._context.believed[node].remove(self._group, value)
        if leader:
            self._context.believed.setdefault(leader, LeadershipDigest()).add(
                self._group, belief[1]
            )
        self._believed = belief
        return leader not in self._concerned_by

    def set_peers(self, nodes: set[int]) -> None:
        """Events about these nodes, and no others, concern the group."""
        shared = self._context.shared
        for node in self._concerned_by - nodes:
            del shared[node][self._group]
        for node in nodes - self._concerned_by:
            shared.setdefault(node, {})[self._group] = None
        self._concerned_by = nodes
