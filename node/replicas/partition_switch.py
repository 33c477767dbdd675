"""The driver of partition switches: seal in the old group, open in the new one, publish.

Contract.  Every node runs it, and does what falls to the leaders that it has: the leader of the
group that a partition leaves seals it there and hands the applied seal to the leader of the next
group; that one opens it and reports it to the metadata leader.  Level-triggered: each step looks at
what the logs and the metadata say now and does what is missing.  So the driver, a node, or a leader
may end between any two steps, and whoever leads then goes on; every step done twice is done once.

Invariants.  Nothing is sealed but the epoch that the decided switch ends, and only while the next
group's leader says that it would take the partition.  Nothing is opened but from an applied seal,
which is committed and final, so it does not matter who hands it over, or how often.  Nothing is
published but what is applied in the next group.

Theory.  Between the seal in the old leader's log and the opening in the new one's the partition
takes no appends: one commit and one message.  Everything that can take longer is done before
(``prepare``: the connection, the metadata, the next leader's consent) or after (publishing).
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
from node.clients.partition_open import opening_of
from node.loop.applied_waiters import AppliedEntries
from node.metadata.placement_table import Switch
from node.metadata.state_machine import Location, MetadataState

if TYPE_CHECKING:
    from multiraft.partitions.state import PartitionStates
    from multiraft.raft.multi_raft import MultiRaft
    from node.metadata.log import MetadataLog

#: Pause after a step that could not be done, in seconds: the first, and what it grows to.
RETRY_S_MIN = 0.01
RETRY_S_MAX = 0.5
#: All switches under way are looked at this often, whatever happens, in seconds.
LOOK_S = 0.5
#: An entry is committed within a round trip; after this one looks again, in seconds.
COMMIT_WAIT_S = 5.0
#: Chains are compared with log starts this often, in seconds: links that retention has emptied cost
#: nothing but a place in the table.
TRIM_S = 5.0
#: Partitions that are looked at without letting others run.
SLICE = 512


class PeerCaller(Protocol):
    """Requests to other nodes; see ``peer_requests.PeerRequests``."""

    async def ask(self, peer: int, request: Any) -> Any:
        """Return the reply of ``peer``.  Raises ``MultiRaftError``."""


class MetadataCaller(Protocol):
    """Requests to the metadata leader; see ``metadata_requests.MetadataRequests``."""

    async def ask(self, request: Any) -> Any:
        """Return the reply of the metadata leader.  Raises ``MultiRaftError``."""


class PartitionSwitcher:
    """Tasks on the loop, one per switch that this node has a part in."""

    def __init__(self, core: MultiRaft, tails: dict[int, PartitionStates],
                 metadata_log: MetadataLog, applied: AppliedEntries, peers: PeerCaller,
                 metadata_leader: MetadataCaller, request_round: Callable[[], None],
                 log: logging.Logger):
        self._core = core
        self._tails = tails
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
        """What other nodes ask of this one."""
        return {wire.OpenPartition: self.open}

    def look(self) -> None:
        """Something changed that a switch may wait for: metadata, or who leads what.  O(1)."""
        if self._state.placed.switches:
            changed, self._changed = self._changed, trio.Event()
            changed.set()

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._trim)
            while True:
                changed = self._changed
                for partition, switch in [*self._state.placed.switches.items()]:
                    if partition not in self._at_work and self.has_part(partition, switch):
                        self._at_work[partition] = switch
                        nursery.start_soon(self._drive, partition, switch)
                with trio.move_on_after(LOOK_S if self._state.placed.switches else float("inf")):
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
                        continue
                except MultiRaftError as error:  # somebody is electing, away, or not so far yet
                    if str(error) != why:
                        why = str(error)
                        self._log.info("switch waits", extra={
                            "partition": partition, "epoch": switch.epoch,
                            "group": switch.to_group, "reason": why})
                with trio.move_on_after(pause_s):
                    await changed.wait()
                pause_s = min(2 * pause_s, RETRY_S_MAX)
        finally:
            del self._at_work[partition]

    def has_part(self, partition: int, switch: Switch) -> bool:
        """Whether the switch is still under way and one of its two leaders is here."""
        if self._state.placed.switches.get(partition) != switch:
            return False
        place = self._state.locate(partition)
        assert place is not None
        return any(map(self._core.status.is_leader, (place.group, switch.to_group)))

    async def step(self, partition: int, switch: Switch) -> bool:
        """Do what is missing; False = it is somebody else's turn.  Raises ``MultiRaftError`` when
        it cannot be done now."""
        leads_next = self._core.status.is_leader(switch.to_group)
        if leads_next:
            opened = self._tails[switch.to_group].applied(partition)
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
        """The applied seal that ends the partition's present epoch, if it is here."""
        tail = self._tails.get(place.group)
        sealed = tail.sealed(partition) if tail is not None else None
        return sealed if sealed is not None and sealed.epoch == place.epoch else None

    async def _seal(self, place: Location, partition: int, switch: Switch) -> None:
        """Ask the next leader, then seal and wait for the commit."""
        group = place.group
        if not self._core.status.is_settled(group):
            raise LeaderUnknown(f"the leader of group {group} is new")
        await self._ask_next(wire.OpenPartition(partition, switch.epoch, switch.to_group,
                                                self._state.version, True))
        # From here to the proposal nothing else runs: what was true for it is true in the log.
        if not self.has_part(partition, switch) or not self._core.status.is_leader(group):
            return
        tail = self._tails[group]
        if tail.epoch_of(partition) < place.epoch:
            self._core.propose(group, EntryKind.PARTITION_OPEN, opening_of(place), partition)
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
        """The consent, or the deed, of the next group's leader."""
        leader = self._core.status.leader_hint(request.to_group)[0]
        if leader == self._core.node:
            await self.open(request)
        elif leader:
            await self._peers.ask(leader, request)
        else:
            raise LeaderUnknown(f"group {request.to_group} has no leader that this node knows of")

    # ---- at the next group's leader -------------------------------------------------------------

    async def open(self, request: wire.OpenPartition) -> wire.OpenPartitionReply:
        """Go on with a partition here.  Raises ``NotLeader``, ``StaleMetadata``, ``StaleEpoch``,
        ``UnknownPartition``, ``TimedOut``."""
        if not await self._metadata_log.applied(request.metadata_index, METADATA_WAIT_S):
            raise StaleMetadata(f"this node has applied metadata {self._state.version}, "
                                f"{request.metadata_index} is needed")
        if not self._is_decided(request):
            return wire.OpenPartitionReply()  # and published since
        group = request.to_group
        tail = self._tails.get(group)
        if tail is None or not self._core.status.is_leader(group):
            raise NotLeader(group, self._core.status.leader_hint(group)[0])
        if not self._core.status.is_settled(group):
            raise LeaderUnknown(f"the leader of group {group} is new")
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
        self.look()
        return wire.OpenPartitionReply()

    def _is_decided(self, request: wire.OpenPartition) -> bool:
        """Whether the metadata decided this and wait for it; False = it is over.  Raises
        ``UnknownPartition``, ``StaleEpoch``."""
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
                        request.leader_epoch, request.windows)
        term = self._core.status.of(request.to_group).term
        self._core.propose(request.to_group, EntryKind.PARTITION_OPEN,
                           continue_payload(sealed, term), request.incarnation)
        self.opened += 1

    # ---- links without records ------------------------------------------------------------------

    async def _trim(self) -> None:
        """Drop the links of chains that the log start has passed, at the leader that knows it."""
        while True:
            await trio.sleep(TRIM_S)
            for at, (partition, chain) in enumerate([*self._state.placed.chains.items()]):
                if not at % SLICE:
                    await trio.lowlevel.checkpoint()
                if len(chain) == 1 or not self._core.status.is_leader(chain[-1].group):
                    continue
                state = self._tails[chain[-1].group].applied(partition)
                if (state is None or state.epoch != chain[-1].epoch
                        or state.log_start < chain[1].start_offset):
                    continue
                try:
                    await self._metadata_leader.ask(wire.TrimChain(partition, state.log_start))
                except MultiRaftError:
                    break  # the metadata group is electing, or away: at the next look

    @property
    def _state(self) -> MetadataState:
        return self._metadata_log.state
