"""Leader epochs of partitions: the offset at which the records of each end.

Contract. ``LeaderEpochs.ends`` answers queries about partitions whose last group this node leads.
A majority has confirmed that after the call began, so the end of a partition covers everything that
any reader was shown before. A query that cannot be answered so has the code of a refusal that the
client repeats. ``epoch_at`` returns what this node knows, without a confirmation.

Theory. A client asks for the end of the epoch of the last record that it has read. An end below its
position means to it that records were lost. Committed records are never replaced here, so an answer
must never be too low; one that is too high hides nothing. Each group has the epochs of its own
batches, and of a partition with an epoch history this node knows those of the groups that it has
replicas of. An epoch that is not known, because it is in another group or was forgotten, ends at
the first offset of the next one that is known. An epoch above that of a confirmed leader belongs to
an earlier partition of the same name: then no end is known, as in Kafka.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import trio

from multiraft.partitions.partition_state import leader_epochs
from multiraft.wire.errors import Code
from multiraft.wire.messages import LEADER
from node.clients.read_view import ReadView, Refused
from node.loop.steps import parts

if TYPE_CHECKING:
    from multiraft.partitions.state import PartitionStates
    from multiraft.raft.multi_raft import MultiRaft
    from node.clients.read_index import ReadIndexRequests
    from node.loop.turns import Turns
    from node.metadata.state_machine import Location

#: In place of an epoch or an offset: there is none.
NONE = -1


class EpochQuery(NamedTuple):
    """A partition and the leader epoch whose end is asked for."""

    incarnation: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    """The highest known epoch at or below the one that a query names, and the offset behind its
    records; both ``NONE`` if there is none, or with the code of a refusal."""

    code: Code
    leader_epoch: int = NONE
    end_offset: int = NONE


class LeaderEpochs:
    """The leader epochs of the partitions that have replicas on this node."""

    def __init__(self, core: MultiRaft, partition_states: dict[int, PartitionStates],
                 read_view: ReadView, read_index_requests: ReadIndexRequests, turns: Turns):
        self._core = core
        self._partition_states = partition_states
        self._read_view = read_view
        self._read_index_requests = read_index_requests
        self._turns = turns

    async def ends(self, queries: Sequence[EpochQuery]) -> list[EpochEnd]:
        """Return the results of all queries, in their order.  O(queries), in turns, and one
        confirmation for each group."""
        groups: set[int] = set()
        for part in parts(len(queries)):
            await self._turns.take(len(part))
            for query in queries[part.start:part.stop]:
                try:
                    span = self._read_view.readable_range(query.incarnation, 0, LEADER)
                except Refused:
                    continue  # ``_end`` meets the same refusal and answers with it
                if span.is_end_certain:
                    groups.add(span.group)
        confirmed = await self._confirmed(groups)
        found = []
        for part in parts(len(queries)):
            await self._turns.take(len(part))
            found += [self._end(query, confirmed) for query in queries[part.start:part.stop]]
        return found

    def epoch_at(self, incarnation: int, offset: int) -> int:
        """Return the leader epoch of the record at ``offset``, ``NONE`` if this node does not know
        it.  O(leader epochs known)."""
        try:
            place = self._read_view.location(incarnation, 0)
        except Refused:
            return NONE
        known = self._known(place, incarnation)
        at = bisect_right(known, offset, key=_first_offset) - 1
        return known[at][0] if at >= 0 else NONE

    async def _confirmed(self, groups: set[int]) -> set[int]:
        """Return those of the groups that a majority confirms this node to lead, in a time that
        ``ReadIndexRequests`` limits.  O(groups), in turns."""
        confirmed: set[int] = set()
        waiting, done = set(groups), trio.Event()

        def ended(group: int, is_confirmed: bool) -> None:
            waiting.discard(group)
            if is_confirmed:
                confirmed.add(group)
            if not waiting:
                done.set()

        asked = tuple(groups)
        for part in parts(len(asked)):
            await self._turns.take(len(part))
            for group in asked[part.start:part.stop]:
                if not self._read_index_requests.ask(group, partial(ended, group)):
                    ended(group, False)
        if groups:
            await done.wait()
        return confirmed

    def _end(self, query: EpochQuery, confirmed: set[int]) -> EpochEnd:
        """Return the result of a query.  O(leader epochs known)."""
        try:
            place = self._read_view.location(query.incarnation, 0)
            span = self._read_view.readable_part(place, query.incarnation,
                                                 len(place.epoch_history) - 1, LEADER)
        except Refused as refused:
            return EpochEnd(refused.code)
        if not span.is_end_certain or span.group not in confirmed:
            return EpochEnd(Code.OFFSET_NOT_AVAILABLE)
        present = (place.epoch_history[-1].leader_epoch_base
                   + self._core.status.leader_hint(span.group)[1])
        epoch, end_offset = end_of(self._known(place, query.incarnation), query.leader_epoch,
                                   present, max(span.high_watermark, span.log_start))
        if end_offset == NONE:
            return EpochEnd(Code.OK)
        return EpochEnd(Code.OK, epoch, max(end_offset, span.log_start))

    def _known(self, place: Location, incarnation: int) -> list[tuple[int, int]]:
        """Return (leader epoch, first offset) of the partition's applied batches in all groups that
        have a replica here, oldest first.  O(those)."""
        found: list[tuple[int, int]] = []
        for group in {entry.group for entry in place.epoch_history}:
            states = self._partition_states.get(group)
            state = states.applied(incarnation) if states is not None else None
            if state is not None:
                found += leader_epochs(state.details)
        found.sort()
        return found


def end_of(known: Sequence[tuple[int, int]], asked: int, present: int,
           end_offset: int) -> tuple[int, int]:
    """Return the highest known epoch at or below ``asked``, or ``asked`` itself if there is none,
    and the offset behind its records; (``NONE``, ``NONE``) for an epoch above ``present``, which is
    the leader's, or below 0.  ``known``: (epoch, first offset), oldest first; ``end_offset``: of
    the partition.  O(log known)."""
    if asked < 0 or asked > present:
        return NONE, NONE
    if asked == present:
        return present, end_offset
    following = bisect_right(known, asked, key=_epoch)
    return (known[following - 1][0] if following else asked,
            known[following][1] if following < len(known) else end_offset)


def _epoch(known: tuple[int, int]) -> int:
    return known[0]


def _first_offset(known: tuple[int, int]) -> int:
    return known[1]
