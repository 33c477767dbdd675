"""Where things are, as this node knows it: partition -> group -> leader -> address.

Contract.  Answers from memory in O(1).  The metadata at its index decides where a partition is; the
leader of a group this node has no part in is a hint from the liveness exchange, good enough to
redirect by and never to decide by.

Invariants.  A cached place is that of the metadata applied last: any command empties the cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multiraft.errors import ProposalError, UnknownPartition
from multiraft.wire.errors import Code, ErrorDetail
from node.clients.error_codes import StaleMetadata
from node.metadata.placement_table import FIRST_EPOCH, ChainLink, Switch
from node.metadata.state_machine import Location
from node.peers.registry import PeerRegistry

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from node.metadata.log import MetadataLog

#: Places kept: asking the metadata takes microseconds, for each batch.  About 20 MB; when it is
#: full it is emptied, and what is in use is there again at once.
PLACES_MAX = 1 << 16


class Router:
    """Read-only view of metadata and hints."""

    def __init__(self, core: MultiRaft, metadata_log: MetadataLog, known: PeerRegistry):
        self._core = core
        self._metadata_log = metadata_log
        self._known = known
        self._places: dict[int, Location] = {}
        self._places_of = metadata_log.state
        self._places_version = 0

    @property
    def metadata_index(self) -> int:
        """The newest metadata applied here."""
        return self._metadata_log.state.version

    def locate(self, partition: int) -> Location | None:
        """Where a partition takes appends; None = no such incarnation here.  O(1)."""
        state = self._metadata_log.state
        if state.version != self._places_version or state is not self._places_of:
            self._places.clear()
            self._places_of, self._places_version = state, state.version
        place = self._places.get(partition)
        if place is None:
            place = state.locate(partition)
            if place is not None:
                if len(self._places) >= PLACES_MAX:
                    self._places.clear()
                self._places[partition] = place
        return place

    def highest_epoch(self, producer: int) -> int:
        """The highest epoch that anybody can have of a producer id, as far as this node knows; -1 =
        the id was granted to nobody.  O(1)."""
        return self._metadata_log.state.producers.highest_epoch(producer)

    def unknown(self, partition: int, seen_index: int) -> ProposalError:
        """Why ``locate`` knows nothing, for a client that has seen the metadata at
        ``seen_index``: only who is not behind may say that there is no such partition."""
        applied = self.metadata_index
        if seen_index > applied:
            return StaleMetadata(f"this node has applied metadata {applied}, the client has seen "
                                 f"{seen_index}")
        return UnknownPartition(f"no partition has the incarnation {partition}")

    def address_of(self, node: int) -> str:
        """Client address of a node; empty when it is not known."""
        return self._known.client_address(node)

    def replicas(self, group: int) -> tuple[int, ...]:
        """Members of a group: those of its log when it is here, else those that its leader
        recorded."""
        configuration = (self._core.status.configuration(group)
                         or self._metadata_log.state.configuration(group))
        return configuration.members()

    def leader_detail(self, group: int) -> tuple[Code, ErrorDetail]:
        """The refusal that sends a client to the leader of ``group``."""
        leader, _term = self._core.status.leader_hint(group)
        if not leader or leader == self._core.node:
            return Code.LEADER_UNKNOWN, ErrorDetail(
                text=f"group {group} has no leader that this node knows of: an election is going "
                     f"on, or the group has lost its majority")
        return Code.NOT_LEADER, ErrorDetail(text=f"group {group} is led by node {leader}",
                                            leader=leader,
                                            leader_address=self.address_of(leader), group=group)

    def elsewhere(self, place: Location, link: ChainLink,
                  end_offset: int = -1) -> tuple[Code, ErrorDetail]:
        """The refusal that sends a client to where ``link`` of a partition is, up to ``end_offset``
        (-1 = its end).  One that never moved needs no more than its leader."""
        if link.epoch == FIRST_EPOCH and len(place.chain) == 1:
            return self.leader_detail(link.group)
        return self._moved(link.group, link.epoch, link.start_offset, end_offset)

    def gone_on(self, switch: Switch) -> tuple[Code, ErrorDetail]:
        """The refusal of appends to a partition that is sealed for good: it goes on there."""
        return self._moved(switch.to_group, switch.epoch, -1, -1)

    def _moved(self, group: int, epoch: int, start_offset: int,
               end_offset: int) -> tuple[Code, ErrorDetail]:
        leader, _term = self._core.status.leader_hint(group)
        return Code.MOVED, ErrorDetail(
            text=f"it is in group {group} since epoch {epoch}, led by node {leader}",
            leader=leader, leader_address=self.address_of(leader), start_offset=start_offset,
            end_offset=end_offset, group=group, epoch=epoch)
