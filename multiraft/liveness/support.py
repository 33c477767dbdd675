"""Which nodes hold whom up, and which can be reached, as the driver reported it.

Contract.  A table of facts; ``MultiRaft`` changes it, groups ask it.  A lease is a failure detector
and never a safety argument: whatever stands here, terms, votes and durable majorities decide.
Theory.  ``held`` is the support this node has (others answered it): a candidate and a leader need a
majority of it.  ``granted`` is the support this node gives (it answered others): a follower leans
on it.  ``trust_epoch`` numbers what a node has said about the groups it leads: a new life of the
node, or a digest that it does not explain, raises the number, and every belief with an older one is
void at once, without a loop over groups.
"""

from __future__ import annotations


class Support:
    """Leases, connections and credit of all other nodes."""

    __slots__ = (
        "node",
        "support_from",
        "support_for",
        "epochs",
        "trust_epoch",
        "connections",
        "full",
        "_connected",
    )

    def __init__(self, node: int):
        self.node = node
        #: node -> its boot epoch, while its lease for this node lasts
        self.support_from: dict[int, int] = {}
        #: node -> its boot epoch, while this node's lease for it lasts
        self.support_for: dict[int, int] = {}
        #: node -> boot epoch of the life heard of last
        self.epochs: dict[int, int] = {}
        self.trust_epoch: dict[int, int] = {}
        #: node -> number of the append connection that is up
        self.connections: dict[int, int] = {}
        #: Nodes that hold this one up and have no room for records.
        self.full: set[int] = set()
        self._connected = 0

    def is_supported_by(self, node: int) -> bool:
        """Whether ``node`` supports this node; a node always supports itself."""
        return node == self.node or node in self.support_from

    def trusts(self, node: int, trust_epoch: int) -> bool:
        """Whether what ``node`` said at that credit can be relied on now."""
        return node in self.support_for and self.trust_epoch.get(node, 0) == trust_epoch

    def revoke_trust(self, node: int) -> None:
        """What ``node`` said about the groups it leads is void."""
        self.trust_epoch[node] = self.trust_epoch.get(node, 0) + 1

    def heard_epoch(self, node: int, boot_epoch: int) -> bool:
        """Note the life of ``node``; whether it is another than before."""
        known = self.epochs.get(node)
        self.epochs[node] = boot_epoch
        if known is None or known == boot_epoch:
            return False
        self.revoke_trust(node)
        return True

    def connect(self, node: int) -> None:
        """A new append connection to ``node`` is up; whatever was in flight before is lost."""
        self._connected += 1
        self.connections[node] = self._connected
