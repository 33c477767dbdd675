"""The log start of a partition, from its last group to the groups of its earlier epochs.

Contract. ``propose_log_start`` is the only way to raise a log start where the partition is now.
``LogStartPropagation`` runs on every node and acts for the groups that it leads: every
``INTERVAL_S`` it learns the log starts of partitions with an earlier epoch in such a group, and
proposes there what is missing. It then has the metadata drop entries of epoch histories whose
offsets are all deleted in their own group.

Invariants. The log start of an earlier epoch's group is never above that of the last epoch, nor
above the end of the epoch in that group. An entry leaves a history only after its group has applied
a log start at its end, so no group with records of a partition is forgotten.

Theory. The applied log start of the last epoch is the authority (docs/decisions/0061). It only
rises, so an old answer is a lower bound, and the work is level-triggered: each pass compares two
numbers per partition. A node, a leader or an answer may be lost at any time; the next pass repeats
the question.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import trio

from multiraft.errors import MultiRaftError, PartitionSealed
from multiraft.types import EntryKind
from multiraft.wire import placements as wire
from multiraft.wire.errors import StaleEpoch
from multiraft.wire.schema import Malformed
from node.clients.log_starts import LogStarts
from node.loop.steps import ROWS_PER_STEP
from node.metadata.placement_table import EpochHistory
from node.peers.errors import NoAnswer

if TYPE_CHECKING:
    from multiraft.partitions.state import PartitionStates
    from multiraft.raft.multi_raft import MultiRaft, Proposed
    from multiraft.wire.frames import Frame
    from node.metadata.log import MetadataLog
    from node.metadata.state_machine import MetadataState
    from node.replicas.partition_switch import MetadataCaller

#: Interval of the passes, in seconds: entries of deleted offsets cost only a row in the table.
INTERVAL_S = 5.0
#: Partitions in one question: a frame of some tens of kilobytes.
PARTITIONS_PER_QUESTION_MAX = 4096
#: The name of the request between nodes.
OP = "log_starts"


def propose_log_start(core: MultiRaft, partition_states: Mapping[int, PartitionStates], group: int,
                      partition: int, epoch: int, log_start: int) -> Proposed:
    """Propose a higher log start in the partition's last group, which this node must lead.

    Raises ``StaleEpoch`` unless ``epoch`` is the partition's epoch in the group, and
    ``PartitionSealed`` once its seal is in the log: in both cases the caller repeats the proposal
    in the next group. Raises as ``MultiRaft.propose`` otherwise."""
    states = partition_states.get(group)
    if states is not None and core.status.is_leader(group):  # else ``propose`` names the leader
        state = states.tail_state(partition)
        if state.epoch != epoch:
            raise StaleEpoch(f"partition {partition} is at epoch {state.epoch} in group {group}, "
                             f"not at {epoch}")
        if state.sealed:
            raise PartitionSealed(f"partition {partition} was sealed in group {group} at offset "
                                  f"{state.next_offset}: its log start is raised in its next group")
    return core.propose(group, EntryKind.LOG_START, b"", partition, log_start)


# ---- the step, without I/O -----------------------------------------------------------------------


class EarlierEpoch(NamedTuple):
    """A partition whose earlier epoch is in a group that this node leads, with records left."""

    partition: int
    group: int
    log_start: int  # at the end of the group's log
    end: int  # of the partition in this group

    def raised(self, authority: int) -> int:
        """Return the log start to propose when the last group has ``authority``; -1 = none."""
        wanted = min(authority, self.end)
        return wanted if wanted > self.log_start else -1


def earlier_epochs(partition: int, history: EpochHistory, states: Mapping[int, PartitionStates],
                   leads: Callable[[int], bool]) -> Iterator[EarlierEpoch]:
    """Yield the earlier epochs of a partition in groups that this node leads, one per group, as far
    as they have records left. The last group is not among them, and no group in which the partition
    is open, or was continued by a switch that the metadata here do not know. O(entries)."""
    last = history[-1].group
    epochs = {entry.group: entry.epoch for entry in history[:-1] if entry.group != last}
    for group, epoch in epochs.items():
        if group not in states or not leads(group) or states[group].epoch_of(partition) != epoch:
            continue
        state = states[group].tail_state(partition)
        if state.sealed and state.log_start < state.next_offset:
            yield EarlierEpoch(partition, group, state.log_start, state.next_offset)


def is_first_deleted(partition: int, history: EpochHistory,
                     states: Mapping[int, PartitionStates], leads: Callable[[int], bool]) -> bool:
    """Return True if this node leads the group of the history's first entry, and all offsets of the
    entry are below the log start that is applied there. False for the only entry."""
    group = history[0].group
    if len(history) == 1 or group not in states or not leads(group):
        return False
    state = states[group].applied(partition)
    return state is not None and state.log_start >= history[1].start_offset


# ---- the driver ----------------------------------------------------------------------------------


class Asker(Protocol):
    """Requests to other nodes: ``bulk_channel.Bulk``."""

    async def ask(self, peer: int, header: dict) -> Frame:
        """Return the reply of ``peer``. Raises ``NoAnswer``."""


class Turns(Protocol):
    """Turns of the loop: ``node.loop.turns.Turns``."""

    async def take(self, rows: int = 1) -> None:
        """Wait until so many rows may be worked on."""


class LogStartPropagation:
    """The task on one node."""

    def __init__(self, core: MultiRaft, partition_states: dict[int, PartitionStates],
                 metadata_log: MetadataLog, log_starts: LogStarts, peers: Asker,
                 metadata_leader: MetadataCaller, request_round: Callable[[], None],
                 turns: Turns, log: logging.Logger):
        self._core = core
        self._partition_states = partition_states
        self._metadata_log = metadata_log
        self._log_starts = log_starts
        self._peers = peers
        self._metadata_leader = metadata_leader
        self._request_round = request_round
        self._turns = turns
        self._log = log

    @property
    def handlers(self) -> dict[str, Callable]:
        """Handlers of requests from other nodes on bulk connections."""
        return {OP: self._asked}

    async def run(self) -> None:
        """Make a pass every ``INTERVAL_S`` until cancelled."""
        while True:
            await trio.sleep(INTERVAL_S)
            await self.step()

    async def step(self) -> None:
        """Make one pass: ask the leaders of last groups, propose what is missing, drop entries of
        histories. O(partitions with a history)."""
        self._log_starts.keep(self._state.placed.epoch_histories)
        waiting = await self._behind()
        await self._ask(waiting)
        self._propose(waiting)
        await self._trim()

    async def _behind(self) -> list[EarlierEpoch]:
        found: list[EarlierEpoch] = []
        for at, (partition, history) in enumerate([*self._state.placed.epoch_histories.items()]):
            if not at % ROWS_PER_STEP:
                await self._turns.take(ROWS_PER_STEP)
            found += earlier_epochs(partition, history, self._partition_states,
                                    self._core.status.is_leader)
        return found

    async def _ask(self, waiting: Sequence[EarlierEpoch]) -> None:
        """Ask the leaders of the partitions' last groups, as far as these are not on this node. A
        leader that does not answer is asked in the next pass."""
        questions: dict[int, dict[int, None]] = {}  # node -> partitions
        for each in waiting:
            place = self._state.locate(each.partition)
            if place is not None and not self._core.status.has_group(place.group):
                leader = self._core.status.leader_hint(place.group)[0]
                if leader:
                    questions.setdefault(leader, {})[each.partition] = None
        for node, partitions in questions.items():
            asked = [*partitions]
            for at in range(0, len(asked), PARTITIONS_PER_QUESTION_MAX):
                some = asked[at:at + PARTITIONS_PER_QUESTION_MAX]
                try:
                    reply = await self._peers.ask(node, {"op": OP, "partitions": some})
                    starts = offsets(reply.header, "log_starts", len(some))
                except (NoAnswer, Malformed) as error:
                    self._log.debug("log_starts_deferred", extra={"reason": str(error)})
                    break
                for partition, log_start in zip(some, starts, strict=True):
                    self._log_starts.tell(partition, log_start)

    def _propose(self, waiting: Sequence[EarlierEpoch]) -> None:
        """Propose the missing log starts, by what is known now. A group that refuses, whose leader
        may have changed, is tried again in the next pass."""
        proposed = False
        for each in waiting:
            place = self._state.locate(each.partition)
            if place is None:
                continue  # its topic was deleted meanwhile
            wanted = each.raised(self._log_starts.highest(place, each.partition))
            if wanted < 0:
                continue
            try:
                self._core.propose(each.group, EntryKind.LOG_START, b"", each.partition, wanted)
                proposed = True
            except MultiRaftError as error:
                self._log.debug("log_starts_deferred", extra={"reason": str(error)})
        if proposed:
            self._request_round()

    async def _trim(self) -> None:
        """Have the first entries of epoch histories dropped whose offsets are deleted in their own
        group, if this node leads it."""
        for at, (partition, history) in enumerate([*self._state.placed.epoch_histories.items()]):
            if not at % ROWS_PER_STEP:
                await self._turns.take(ROWS_PER_STEP)
            if is_first_deleted(partition, history, self._partition_states,
                                self._core.status.is_leader):
                try:
                    await self._metadata_leader.ask(
                        wire.TrimEpochHistory(partition, history[1].start_offset))
                except MultiRaftError as error:  # no reachable leader: the next pass repeats it
                    self._log.debug("log_starts_deferred", extra={"reason": str(error)})
                    return

    async def _asked(self, _peer: int, header: dict, _payload: memoryview) -> tuple[dict, tuple]:
        """Return the highest known log start of each partition for another node, 0 for one that
        this node does not know. Raises ``Malformed`` for another request."""
        if header.keys() != {"op", "partitions"}:
            raise Malformed(f"{OP} takes partitions")
        found = []
        for partition in offsets(header, "partitions"):
            place = self._state.locate(partition)
            found.append(self._log_starts.highest(place, partition) if place is not None else 0)
        return {"log_starts": found}, ()

    @property
    def _state(self) -> MetadataState:
        return self._metadata_log.state


def offsets(header: dict, key: str, count: int | None = None) -> list[int]:
    """Return the non-negative numbers below ``key`` of a header, ``count`` of them if it is given.
    Raises ``Malformed`` for anything else, and above ``PARTITIONS_PER_QUESTION_MAX``."""
    found = header.get(key)
    if type(found) is not list or any(type(each) is not int or each < 0 for each in found):
        raise Malformed(f"{key} is no list of numbers")
    if len(found) > PARTITIONS_PER_QUESTION_MAX:
        raise Malformed(f"{len(found)} {key} exceed the limit of {PARTITIONS_PER_QUESTION_MAX}")
    if count is not None and len(found) != count:
        raise Malformed(f"{len(found)} {key}, {count} were asked for")
    return found
