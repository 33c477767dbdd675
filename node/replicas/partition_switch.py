"""The driver of partition switches: seal in the old group, open in the new one, publish.

Contract. Every node runs the driver and acts for the groups that it leads. The leader of the old
group seals the partition there and hands the applied seal to the leader of the new group. That
leader opens the partition and reports it to the metadata leader. The driver is level-triggered:
each step reads the logs and the metadata and does what is missing. A driver, a node or a leader may
fail between any two steps, and the next leader continues. Every step is idempotent.

Invariants. Only the epoch that the decided switch ends is sealed, and only while the new group's
leader would take the partition. A partition is opened only from an applied seal, which is committed
and final, so it does not matter which node hands it over, or how often. An opening is published
only after it is applied in the new group.

Theory. Between the seal in the old leader's log and the opening in the new leader's log the
partition takes no appends: one commit and one message. Everything slower happens before
(``prepare``: the connection, the metadata, the consent of the new leader) or after (publishing).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import trio

from multiraft.errors import MultiRaftError, NotLeader, UnknownPartition
from multiraft.partitions.records import PartitionSeal, continue_payload, seal_payload
from multiraft.types import EntryKind
from multiraft.wire import placements as wire
from multiraft.wire.errors import LeaderUnknown, StaleEpoch, StaleMetadata, TimedOut
from node.clients.metadata_wait import METADATA_WAIT_S
from node.clients.partition_open import partition_open_of, require_known_deletions
from node.loop.applied_waiters import AppliedEntries
from node.metadata.placement_table import Switch
from node.metadata.state_machine import Location, MetadataState

if TYPE_CHECKING:
    from multiraft.partitions.state import PartitionStates
    from multiraft.raft.multi_raft import MultiRaft
    from node.metadata.log import MetadataLog

#: Pause after a step that failed, in seconds: the first, and the longest.
RETRY_S_MIN = 0.01
RETRY_S_MAX = 0.5
#: Interval at which all open switches are checked, in seconds, even without a change.
POLL_S = 0.5
#: Longest wait for a commit, in seconds: usually it takes a round trip.
COMMIT_WAIT_S = 5.0


class PeerCaller(Protocol):
    """Requests to other nodes: ``peer_requests.PeerRequests``."""

    async def ask(self, peer: int, request: Any) -> Any:
        """Return the reply of ``peer``. Raises ``RequestError`` for a refusal, ``AmbiguousOutcome``
        without a valid reply."""


class MetadataCaller(Protocol):
    """Requests to the metadata leader: ``metadata_client.MetadataRequests``."""

    async def ask(self, request: Any) -> Any:
        """Return the reply of the metadata leader. Raises ``RequestError`` for a refusal,
        ``AmbiguousOutcome`` without a valid reply, ``LeaderUnknown`` if no leader is known."""


class PartitionSwitcher:
    """The driver on one node: a task per switch in which this node leads one of the two groups."""

    def __init__(self, core: MultiRaft, partition_states: dict[int, PartitionStates],
                 metadata_log: MetadataLog, applied: AppliedEntries, peers: PeerCaller,
                 metadata_leader: MetadataCaller, request_round: Callable[[], None],
                 log: logging.Logger):
        self._core = core
        self._partition_states = partition_states
        self._metadata_log = metadata_log
        self._applied = applied
        self._peers = peers
        self._metadata_leader = metadata_leader
        self._request_round = request_round
        self._log = log
        self._changed = trio.Event()
        self._at_work: dict[int, Switch] = {}
        self.sealed = 0
        self.opened = 0
        self.published = 0

    @property
    def handlers(self) -> dict:
        """Handlers of other nodes' requests."""
        return {wire.OpenPartition: self.open}

    def check(self) -> None:
        """Wake ``run`` if any switch is open: the metadata or the leader of a group changed.
        O(1)."""
        if self._state.placed.switches:
            changed, self._changed = self._changed, trio.Event()
            changed.set()

    async def run(self) -> None:
        """Start a task for each open switch in which this node leads a group, until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                changed = self._changed
                for partition, switch in [*self._state.placed.switches.items()]:
                    if partition not in self._at_work and self.has_part(partition, switch):
                        self._at_work[partition] = switch
                        nursery.start_soon(self._drive, partition, switch)
                with trio.move_on_after(POLL_S if self._state.placed.switches else float("inf")):
                    await changed.wait()

    # ---- one switch -----------------------------------------------------------------------------

    async def _drive(self, partition: int, switch: Switch) -> None:
        pause_s, why = RETRY_S_MIN, ""
        try:
            while self.has_part(partition, switch):
                changed = self._changed
                try:
                    if await self.step(partition, switch):
                        pause_s = RETRY_S_MIN
                        await trio.lowlevel.checkpoint()  # the step may have waited for nothing
                        continue
                except MultiRaftError as error:  # an election, an absent node, or one that lags
                    if str(error) != why:
                        why = str(error)
                        self._log.info("partition_switch_deferred", extra={
                            "partition": partition, "partition_epoch": switch.epoch,
                            "group": switch.to_group, "reason": why})
                with trio.move_on_after(pause_s):
                    await changed.wait()
                pause_s = min(2 * pause_s, RETRY_S_MAX)
        finally:
            del self._at_work[partition]

    def has_part(self, partition: int, switch: Switch) -> bool:
        """Return True if the switch is still open and this node leads one of its two groups."""
        if self._state.placed.switches.get(partition) != switch:
            return False
        place = self._state.locate(partition)
        assert place is not None
        return any(map(self._core.status.is_leader, (place.group, switch.to_group)))

    async def step(self, partition: int, switch: Switch) -> bool:
        """Do the step that is missing: publish, or seal and hand over. Return True if this node has
        a next step, False if it waits for another node or the metadata. Raises ``MultiRaftError``
        if the step cannot be done now."""
        leads_next = self._core.status.is_leader(switch.to_group)
        if leads_next:
            opened = self._partition_states[switch.to_group].applied(partition)
            if opened is not None and opened.epoch > switch.epoch:
                raise StaleMetadata(
                    f"partition {partition} is at epoch {opened.epoch} in group {switch.to_group}, "
                    f"this node knows of the switch to epoch {switch.epoch}")
            if opened is not None and opened.epoch == switch.epoch:
                await self._metadata_leader.ask(wire.PublishSwitch(
                    partition, switch.epoch, opened.start_offset, opened.leader_epoch_base))
                self.published += 1
                return False
        place = self._state.locate(partition)
        assert place is not None
        if not self._core.status.is_leader(place.group):
            return False
        sealed = self._sealed(place, partition)
        if sealed is None:
            await self._seal(place, partition, switch)
            sealed = self._sealed(place, partition)
            if sealed is None:
                raise TimedOut(f"the seal in group {place.group} is not committed")
        await self._ask_next(self._open_request(partition, switch, sealed))
        return leads_next

    def _sealed(self, place: Location, partition: int) -> PartitionSeal | None:
        """Return the seal that ends the partition's present epoch, if it is applied in its group's
        replica here; None otherwise."""
        tail = self._partition_states.get(place.group)
        sealed = tail.sealed(partition) if tail is not None else None
        return sealed if sealed is not None and sealed.epoch == place.epoch else None

    async def _seal(self, place: Location, partition: int, switch: Switch) -> None:
        """Ask the new group's leader for its consent, then propose the seal and wait for its
        commit, ``COMMIT_WAIT_S`` at most.

        Return without a seal if this node lost its part meanwhile. Raises the error of a refusal,
        ``LeaderUnknown`` while it is a new leader, and ``StaleMetadata`` if its metadata are behind
        the group."""
        group = place.group
        if not self._core.status.has_applied_in_term(group):
            raise LeaderUnknown(f"the leader of group {group} is new")
        await self._ask_next(wire.OpenPartition(partition, switch.epoch, switch.to_group,
                                                self._state.version, True))
        # No await from here to the proposal: the conditions checked now hold when the seal enters
        # the log.
        if not self.has_part(partition, switch) or not self._core.status.is_leader(group):
            return
        tail = self._partition_states[group]
        if tail.epoch_of(partition) < place.epoch:
            require_known_deletions(tail, self._state.version)
            self._core.propose(group, EntryKind.PARTITION_OPEN, partition_open_of(place), partition)
        state = tail.tail_state(partition)
        if state.epoch != place.epoch:
            raise StaleMetadata(f"partition {partition} is at epoch {state.epoch} in group "
                                f"{group}, this node knows of {place.epoch}")
        if not state.sealed:
            self._core.propose(group, EntryKind.PARTITION_SEAL, seal_payload(place.epoch),
                               partition, state.next_offset)
            self.sealed += 1
        index = tail.last_index
        self._request_round()
        await self._applied.wait(group, index, COMMIT_WAIT_S)

    def _open_request(
        self, partition: int, switch: Switch, sealed: PartitionSeal
    ) -> wire.OpenPartition:
        return wire.OpenPartition(partition, switch.epoch, switch.to_group, self._state.version,
                                  False, sealed.end_offset, sealed.log_start, sealed.leader_epoch,
                                  sealed.windows)

    async def _ask_next(self, request: wire.OpenPartition) -> None:
        """Send the request to the new group's leader, or handle it here if that is this node, and
        wait for the reply. Raises the error of a refusal, and ``LeaderUnknown`` if this node knows
        no leader."""
        leader = self._core.status.leader_hint(request.to_group)[0]
        if leader == self._core.node:
            await self.open(request)
        elif leader:
            await self._peers.ask(leader, request)
        else:
            raise LeaderUnknown(f"group {request.to_group} has no leader that this node knows of")

    # ---- at the next group's leader -------------------------------------------------------------

    async def open(self, request: wire.OpenPartition) -> wire.OpenPartitionReply:
        """Open a partition in a group that this node leads and wait until that is applied; with
        ``prepare`` only consent to it. Without effect if the switch is published already.

        Raises ``StaleMetadata`` if this node lacks metadata, and ``UnknownPartition`` or
        ``StaleEpoch`` if no such switch is decided. Raises ``NotLeader`` if it does not lead the
        group, and ``LeaderUnknown`` while it is a new leader. Raises ``TimedOut`` if disks of
        voters are full or the commit takes too long."""
        if not await self._metadata_log.applied(request.metadata_index, METADATA_WAIT_S):
            raise StaleMetadata(f"this node has applied metadata {self._state.version}, "
                                f"{request.metadata_index} is needed")
        if not self._is_decided(request):
            return wire.OpenPartitionReply()  # published already
        group = request.to_group
        tail = self._partition_states.get(group)
        if tail is None or not self._core.status.is_leader(group):
            raise NotLeader(group, self._core.status.leader_hint(group)[0])
        if not self._core.status.has_applied_in_term(group):
            raise LeaderUnknown(f"the leader of group {group} is new")
        if tail.epoch_of(request.incarnation) < request.epoch:
            # Before the seal as well: the partition would wait without taking appends.
            require_known_deletions(tail, self._state.version)
        if request.prepare:
            if not self._core.records_fit(group):
                raise TimedOut(f"the disks of too many voters of group {group} are full")
            return wire.OpenPartitionReply()
        if tail.epoch_of(request.incarnation) < request.epoch:
            self._open(request)
        index = tail.last_index
        self._request_round()
        if not await self._applied.wait(group, index, COMMIT_WAIT_S):
            raise TimedOut(f"the opening in group {group} is not committed")
        self.check()
        return wire.OpenPartitionReply()

    def _is_decided(self, request: wire.OpenPartition) -> bool:
        """Return True if the metadata decided this switch and wait for it; False = it is complete.
        Raises ``UnknownPartition`` for a partition that does not exist, ``StaleEpoch`` if no such
        switch is decided."""
        place = self._state.locate(request.incarnation)
        if place is None:
            raise UnknownPartition(f"no partition has the incarnation {request.incarnation}")
        if place.epoch >= request.epoch:
            return False
        if place.switch != Switch(request.epoch, request.to_group):
            raise StaleEpoch(f"partition {request.incarnation} is at epoch {place.epoch}, and no "
                             f"switch to group {request.to_group} at epoch {request.epoch} is "
                             f"decided")
        return True

    def _open(self, request: wire.OpenPartition) -> None:
        sealed = PartitionSeal(request.epoch - 1, request.end_offset, request.log_start,
                        request.leader_epoch, request.producer_state)
        term = self._core.status.of(request.to_group).term
        self._core.propose(request.to_group, EntryKind.PARTITION_OPEN,
                           continue_payload(sealed, term), request.incarnation)
        self.opened += 1

    @property
    def _state(self) -> MetadataState:
        return self._metadata_log.state
