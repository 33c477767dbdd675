"""The router: partition to group to leader to address, as this node knows it.

Contract. Answers come from memory in O(1). The metadata applied here decide in which group a
partition is. The leader of a group without a replica here is known from the liveness exchange: good
enough to redirect a client, and never used for a decision.

Invariants. Cached locations are those of the metadata applied last: every metadata command empties
the cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from multiraft.errors import ProposalError, UnknownPartition
from multiraft.wire.errors import Code, ErrorDetail
from node.clients.error_codes import StaleMetadata
from node.metadata.placement_table import FIRST_EPOCH, EpochEntry, Switch
from node.metadata.state_machine import Location, MetadataState

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft

#: Locations cached, because the lookup in the metadata takes microseconds per batch. About 20 MB. A
#: full cache is emptied, and refills with the locations in use.
LOCATIONS_CACHED_MAX = 1 << 16


class MetadataCopy(Protocol):
    """This node's copy of the metadata; a snapshot replaces the state object."""

    @property
    def state(self) -> MetadataState: ...


class ClientAddresses(Protocol):
    """The addresses of nodes for clients."""

    def client_address(self, node: int) -> str:
        """Return the address; empty if it is not known."""


class Router:
    """The read-only view of metadata and leader hints of one node."""

    def __init__(self, core: MultiRaft, metadata_log: MetadataCopy, known: ClientAddresses):
        self._core = core
        self._metadata_log = metadata_log
        self._known = known
        self._locations: dict[int, Location] = {}
        self._cached_state = metadata_log.state
        self._cached_version = 0

    @property
    def metadata_index(self) -> int:
        """Index of the newest metadata applied here."""
        return self._metadata_log.state.version

    def locate(self, partition: int) -> Location | None:
        """Return the location at which a partition takes appends; None = this incarnation is not
        known here. O(1)."""
        state = self._metadata_log.state
        if state.version != self._cached_version or state is not self._cached_state:
            self._locations.clear()
            self._cached_state, self._cached_version = state, state.version
        place = self._locations.get(partition)
        if place is None:
            place = state.locate(partition)
            if place is not None:
                if len(self._locations) >= LOCATIONS_CACHED_MAX:
                    self._locations.clear()
                self._locations[partition] = place
        return place

    def highest_epoch(self, producer: int) -> int:
        """Return the highest granted epoch of a producer id, as far as this node knows; -1 = the id
        was never granted. O(1)."""
        return self._metadata_log.state.producers.highest_epoch(producer)

    def unknown(self, partition: int, seen_index: int) -> ProposalError:
        """Return the error for a partition that ``locate`` does not know: stale metadata if the
        client has seen newer ones (``seen_index``), otherwise that it does not exist."""
        applied = self.metadata_index
        if seen_index > applied:
            return StaleMetadata(f"this node has applied metadata {applied}, the client has seen "
                                 f"{seen_index}")
        return UnknownPartition(f"no partition has the incarnation {partition}")

    def address_of(self, node: int) -> str:
        """Return the client address of a node; empty if it is not known."""
        return self._known.client_address(node)

    def replicas(self, group: int) -> tuple[int, ...]:
        """Return the members of a group: from its log if it has a replica here, else as its leader
        reported them to the metadata."""
        configuration = (self._core.status.configuration(group)
                         or self._metadata_log.state.configuration(group))
        return configuration.members()

    def leader_detail(self, group: int) -> tuple[Code, ErrorDetail]:
        """Return the refusal that redirects a client to the leader of ``group``; ``LEADER_UNKNOWN``
        if this node knows none or is that leader itself."""
        leader, _term = self._core.status.leader_hint(group)
        if not leader or leader == self._core.node:
            return Code.LEADER_UNKNOWN, ErrorDetail(
                text=f"group {group} has no leader that this node knows of: an election is "
                     f"in progress, or the group has lost its majority")
        return Code.NOT_LEADER, ErrorDetail(text=f"group {group} is led by node {leader}",
                                            leader=leader,
                                            leader_address=self.address_of(leader), group=group)

    def redirect(self, place: Location, entry: EpochEntry,
                  end_offset: int = -1) -> tuple[Code, ErrorDetail]:
        """Return the refusal that redirects a client to the group of ``entry``, for offsets up to
        ``end_offset`` (-1 = the partition's end). For a partition that was never switched it names
        only the leader."""
        if entry.epoch == FIRST_EPOCH and len(place.epoch_history) == 1:
            return self.leader_detail(entry.group)
        return self._moved(entry.group, entry.epoch, entry.start_offset, end_offset)

    def next_location(self, switch: Switch) -> tuple[Code, ErrorDetail]:
        """Return the refusal of appends to a sealed partition: it names the group that the
        partition continues in."""
        return self._moved(switch.to_group, switch.epoch, -1, -1)

    def _moved(self, group: int, epoch: int, start_offset: int,
               end_offset: int) -> tuple[Code, ErrorDetail]:
        leader, _term = self._core.status.leader_hint(group)
        return Code.MOVED, ErrorDetail(
            text=f"it is in group {group} since epoch {epoch}, led by node {leader}",
            leader=leader, leader_address=self.address_of(leader), start_offset=start_offset,
            end_offset=end_offset, group=group, epoch=epoch)
