"""The read view: offsets of a partition that this node may serve now, or the node to ask instead.

Contract. ``readable_range`` answers from memory in O(entries), or raises ``Refused`` with code and
detail of the reply. Offsets that it names as readable are applied here. They are committed *and*
durable on this node, so they survive its crash and every change of leader, and no reader sees them
disappear.

Theory. The applied state of any replica is a prefix of the committed log, so any replica may serve
it. Only the leader knows the end, and knows it for certain only after a majority has confirmed its
leadership. All members of a quiesced group know the commit index, because a group quiesces only
then. A partition that was switched lies in several groups, one after the other: its epoch history
says which offsets are in which group (an epoch entry), and the applied state of a group says how
much of its entry is here. An epoch entry that has a successor never changes. The end of a last
entry that is sealed must not be named, because appends may already continue in the next group.
The log start is the highest that this node knows of, in whichever group (``log_starts.py``), so an
earlier epoch is not served below the log start that a later one has applied here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from multiraft.partitions.state import PartitionState, PartitionStates
from multiraft.wire.errors import Code, ErrorDetail
from multiraft.wire.messages import ANY
from node.clients.error_codes import refusal
from node.clients.log_starts import LogStarts
from node.metadata.placement_table import EpochEntry
from node.metadata.state_machine import Location

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from node.clients.router import Router
    from node.metadata.topics import Topic

#: Given instead of an offset: the partition's end, which is in its last entry.
END = -1


class ReadableRange(NamedTuple):
    """The part of an epoch entry of a partition that may be served now."""

    group: int
    epoch: int
    start_offset: int  # of the entry
    log_start: int  # of the partition, the highest that this node knows
    high_watermark: int
    next_offset: int
    leads: bool  # this node leads the group
    is_end_certain: bool  # the leader here has committed in its term, and the end is in this entry
    is_last: bool
    sealed: bool  # the last entry is sealed: a successor is about to be published
    known_end: int  # of the partition, as far as any group here has applied it

    @property
    def complete(self) -> bool:
        """True if the whole entry is readable here and another entry follows it."""
        return not self.is_last and self.high_watermark == self.next_offset


class Refused(Exception):
    """A refusal for one partition: code and detail of its result.

    ``retriable``: the next commit may change the refusal, so a long poll waits. ``is_redirect``: it
    redirects the client to another node, according to the metadata here.
    """

    def __init__(self, code: Code, detail: ErrorDetail, retriable: bool = False,
                 is_redirect: bool = False):
        super().__init__(detail.text)
        self.code = code
        self.detail = detail
        self.retriable = retriable
        self.is_redirect = is_redirect


class PartitionAccess(Protocol):
    """The permissions of a request."""

    def check(self, topic: Topic) -> None:
        """Return if the client may use the topic. Raises ``Refused``."""


class ReadView:
    """The read-only view of the partitions that have replicas on this node."""

    def __init__(self, core: MultiRaft, partition_states: dict[int, PartitionStates],
                 directory: Router, log_starts: LogStarts | None = None):
        self._core = core
        self._partition_states = partition_states
        self._directory = directory
        self._log_starts = log_starts or LogStarts(partition_states)

    def readable_range(
        self, partition: int, seen_index: int, replica: str, offset: int = END,
        access: PartitionAccess | None = None
    ) -> ReadableRange:
        """Return the readable part of the epoch entry that holds ``offset``, of the last one if it
        is ``END``. ``replica`` ANY: from any replica on this node, else from its leader only.

        ``seen_index``: the newest metadata index that the client knows. Raises ``Refused`` as
        ``access``, ``location`` and ``readable_part`` do."""
        place = self.location(partition, seen_index, access)
        at = len(place.epoch_history) - 1
        if offset != END:
            while at and place.epoch_history[at].start_offset > offset:
                at -= 1
        return self.readable_part(place, partition, at, replica)

    def location(self, partition: int, seen_index: int,
                 access: PartitionAccess | None = None) -> Location:
        """Return the group, epoch history and switch of a partition. Raises ``Refused`` if this
        node does not know it, or the client may not use its topic. ``access`` None: its permission
        was asked for before."""
        place = self._directory.locate(partition)
        if place is None:
            raise Refused(*refusal(self._directory.unknown(partition, seen_index),
                                   self._directory.leader_detail))
        if access is not None:
            access.check(place.topic)
        return place

    def readable_part(self, place: Location, partition: int, at: int,
                      replica: str) -> ReadableRange:
        """Return the readable part of entry ``at`` of a partition's epoch history. Raises
        ``Refused``: a redirect, or ``QUARANTINED`` for a damaged replica."""
        entry, core = place.epoch_history[at], self._core
        is_last = at + 1 == len(place.epoch_history)
        end = END if is_last else place.epoch_history[at + 1].start_offset
        group = entry.group
        tail = self._partition_states.get(group)
        leads = tail is not None and core.status.is_leader(group)
        if not leads:
            if tail is None or replica != ANY or not core.status.has_group(group):
                code, detail = self._directory.redirect(place, entry, end)
                raise Refused(code, detail, is_redirect=True)
            why = core.status.quarantine_reason(group)
            if why:
                raise Refused(Code.QUARANTINED, ErrorDetail(
                    text=f"the replica of group {group} on this node is damaged: {why}"))
        assert tail is not None
        if is_last:
            return self._last(place, entry, partition, tail, leads)
        log_start = self._log_starts.highest(place, partition)
        return ReadableRange(group, entry.epoch, entry.start_offset, log_start,
                     _applied_end(entry, tail.applied(partition), end), end, leads, False, False,
                     False, max(log_start, self._known_end(place, partition)))

    def log_start(self, place: Location, partition: int) -> int:
        """Return the highest log start of the partition that this node knows. O(entries)."""
        return self._log_starts.highest(place, partition)

    def _last(
        self, place: Location, entry: EpochEntry, partition: int, tail: PartitionStates, leads: bool
    ) -> ReadableRange:
        state = tail.applied(partition)
        is_end_certain = leads and self._core.status.has_applied_in_term(entry.group)
        log_start = self._log_starts.highest(place, partition)
        if state is not None and state.epoch > entry.epoch:
            # The partition was switched away and back; the metadata here do not know that yet.
            raise Refused(Code.STALE_METADATA, ErrorDetail(
                text=f"this node knows of epoch {entry.epoch}, group {entry.group} has epoch "
                     f"{state.epoch}"), retriable=True)
        if state is not None and not tail.epoch_of(partition):
            # Only a partition that the metadata group has deleted, or moved elsewhere.
            raise Refused(Code.STALE_METADATA, ErrorDetail(
                text=f"group {entry.group} is deleting what it knows of the partition; this node "
                     f"does not know the reason yet"), retriable=True)
        if state is None and self._directory.metadata_index < tail.group_state.opens_from:
            # Deleted from the group, whether with its topic or after a switch, or not opened yet.
            raise Refused(Code.STALE_METADATA, ErrorDetail(
                text=f"this node has applied metadata {self._directory.metadata_index}; group "
                     f"{entry.group} has deleted partitions by those at "
                     f"{tail.group_state.opens_from}"), retriable=True)
        if state is None or state.epoch != entry.epoch:  # not opened yet
            is_end_certain = is_end_certain and tail.epoch_of(partition) <= entry.epoch
            next_offset = entry.start_offset
            if tail.epoch_of(partition) == entry.epoch:
                next_offset = tail.next_offset(partition)
            return ReadableRange(
                entry.group,
                entry.epoch,
                entry.start_offset,
                log_start,
                entry.start_offset,
                next_offset,
                leads,
                is_end_certain,
                True,
                False,
                max(log_start, entry.start_offset),
            )
        return ReadableRange(
            entry.group,
            entry.epoch,
            entry.start_offset,
            log_start,
            state.next_offset,
            tail.next_offset(partition),
            leads,
            is_end_certain and not state.sealed,
            True,
            state.sealed,
            max(log_start, state.next_offset),
        )

    def _known_end(self, place: Location, partition: int) -> int:
        """Return the end of the partition according to its newest entry with a replica on this
        node. A reply about an earlier entry must not show a lower end than this node has shown
        before. O(entries)."""
        for at in range(len(place.epoch_history) - 1, -1, -1):
            tail, entry = (
                self._partition_states.get(place.epoch_history[at].group),
                place.epoch_history[at],
            )
            if tail is None:
                continue
            state = tail.applied(partition)
            if at + 1 < len(place.epoch_history):
                return _applied_end(entry, state, place.epoch_history[at + 1].start_offset)
            if state is not None and state.epoch >= entry.epoch:
                return state.next_offset
            return entry.start_offset
        return place.epoch_history[0].start_offset


def _applied_end(entry: EpochEntry, state: PartitionState | None, end: int) -> int:
    """Return the offset up to which a replica has applied an epoch entry that ends at ``end``."""
    if state is None or state.epoch < entry.epoch:
        return entry.start_offset
    return min(state.next_offset, end) if state.epoch == entry.epoch else end


#: Reasons for which a leader does not name the end.
TERM_NOT_COMMITTED = ErrorDetail(text="the leader is new and has not committed in its term yet")
BEING_SWITCHED = ErrorDetail(text="the partition is being switched to another group")


def not_known_yet(offset: int, span: ReadableRange) -> Refused:
    """Return the retriable refusal of an offset that this replica cannot judge: above its commits,
    of a new leader, or during a switch."""
    if span.sealed:
        return Refused(Code.OFFSET_NOT_AVAILABLE, BEING_SWITCHED, retriable=True)
    if span.leads and span.is_last:
        return Refused(Code.OFFSET_NOT_AVAILABLE, TERM_NOT_COMMITTED, retriable=True)
    return Refused(Code.OFFSET_NOT_AVAILABLE, ErrorDetail(
        text=f"offset {offset}: this replica knows of commits up to {span.high_watermark} only",
        end_offset=span.high_watermark), retriable=True)


def out_of_range(offset: int, span: ReadableRange) -> Refused:
    """Return the refusal that makes a client reset its position. Only for a range that is
    certain."""
    return Refused(Code.OFFSET_OUT_OF_RANGE, ErrorDetail(
        text=f"offset {offset} is outside {span.log_start}..{span.known_end}",
        start_offset=span.log_start, end_offset=span.known_end))
