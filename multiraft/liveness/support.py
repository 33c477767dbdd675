"""Support between this node and others, connections, and trust, as the driver reported them.

Contract.  A table of facts: ``MultiRaft`` changes it, groups read it.  Support is a failure
detector and never a safety argument; terms, votes and durable majorities decide.

Theory.  ``support_from`` is the support that this node has (others answered it): candidates and
leaders need a majority of it.  ``support_for`` is the support that this node gives (it answered
others): followers rely on it.  ``trust_epoch`` numbers a node's statements about the groups that it
leads.  A new boot epoch of the node, or a digest that it does not explain, raises the number, which
invalidates every belief with an older one at once, without a loop over groups.
"""

from __future__ import annotations


class Support:
    """Support, connections and trust of all other nodes."""

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
        #: node -> its boot epoch, while it supports this node
        self.support_from: dict[int, int] = {}
        #: node -> its boot epoch, while this node supports it
        self.support_for: dict[int, int] = {}
        #: node -> boot epoch heard last
        self.epochs: dict[int, int] = {}
        self.trust_epoch: dict[int, int] = {}
        #: node -> number of the append connection that is up
        self.connections: dict[int, int] = {}
        #: Nodes that support this one and reported a full disk.
        self.full: set[int] = set()
        self._connected = 0

    def is_supported_by(self, node: int) -> bool:
        """True if ``node`` supports this node; a node always supports itself."""
        return node == self.node or node in self.support_from

    def trusts(self, node: int, trust_epoch: int) -> bool:
        """True if a statement that ``node`` made under ``trust_epoch`` can be relied on now."""
        return node in self.support_for and self.trust_epoch.get(node, 0) == trust_epoch

    def revoke_trust(self, node: int) -> None:
        """Invalidate all that ``node`` stated about the groups it leads."""
        self.trust_epoch[node] = self.trust_epoch.get(node, 0) + 1

    def heard_epoch(self, node: int, boot_epoch: int) -> bool:
        """Record the boot epoch of ``node``.  If the node was known in another one, revoke trust in
        it and return True."""
        known = self.epochs.get(node)
        self.epochs[node] = boot_epoch
        if known is None or known == boot_epoch:
            return False
        self.revoke_trust(node)
        return True

    def connect(self, node: int) -> None:
        """Record a new append connection to ``node`` under a new number; messages in flight on an
        earlier one are lost."""
        self._connected += 1
        self.connections[node] = self._connected
