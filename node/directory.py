"""Where things are, as this node knows it: partition -> group -> leader -> address.

Contract.  Answers from memory in O(1).  The metadata at its index decides where a partition is; the
leader of a group this node has no part in is a hint from the liveness exchange, good enough to
redirect by and never to decide by.
"""

from __future__ import annotations

from multiraft.wire.errors import Code, ErrorDetail
from node.config import NodeConfig


class Directory:
    """Read-only view of metadata and hints."""

    def __init__(self, core, metadata_log, config: NodeConfig):
        self._core = core
        self._metadata_log = metadata_log
        self._addresses = {member.id: str(member.client_address) for member in config.members}

    @property
    def metadata_index(self) -> int:
        """The newest metadata applied here."""
        return self._metadata_log.state.version

    def group_of(self, partition: int) -> int | None:
        """The group that takes a partition's appends; None = no such incarnation here."""
        place = self._metadata_log.state.locate(partition)
        return None if place is None else place.group

    def epoch_of(self, partition: int) -> int:
        """The epoch of a partition that ``group_of`` knows."""
        return self._metadata_log.state.locate(partition).epoch

    def address_of(self, node: int) -> str:
        """Client address of a node; empty when it is not known."""
        return self._addresses.get(node, "")

    def leader_detail(self, group: int) -> tuple[Code, ErrorDetail]:
        """The refusal that sends a client to the leader of ``group``."""
        leader, _term = self._core.leader_hint(group)
        if not leader or leader == self._core.node:
            return Code.LEADER_UNKNOWN, ErrorDetail(
                text=f"group {group} has no leader that this node knows of: an election is going "
                     f"on, or the group has lost its majority")
        return Code.NOT_LEADER, ErrorDetail(text=f"group {group} is led by node {leader}",
                                            leader=leader,
                                            leader_address=self.address_of(leader))
