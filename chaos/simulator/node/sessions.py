"""Client sessions of a simulated node: propose, wait for the commit, answer; serve reads.

Contract.  A refusal of consensus is answered as a definite error.  A batch that was appended and
whose outcome is unknown is answered as ``ambiguous``.  An append with acks ``commit`` is answered
when its entry is applied here, with ``leader`` when it is durable here, with ``none`` never.
Fetches are served from applied state, by any replica.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from chaos.simulator.clients.workload import (
    AMBIGUOUS,
    READ_BYTES_MAX,
    AppendRequest,
    ClientReply,
    FetchRequest,
)
from chaos.simulator.oracle.metadata_oracle import FIRST, Location, extent_at, opening
from chaos.simulator.oracle.operations import ACKS_LEADER, ACKS_NONE, ReadOperation
from multiraft import core
from multiraft.errors import (
    CodecError,
    NotLeader,
    PartitionSealed,
    ProposalError,
    UnknownPartition,
)
from multiraft.partitions.state import open_payload
from multiraft.raft.multi_raft import MultiRaft, Proposed
from multiraft.storage.disk_space import DiskSpaceGuard
from multiraft.storage.errors import CorruptRange
from multiraft.storage.store import Store
from multiraft.types import EntryKind

PARTITION_EPOCH = 1


class InOtherGroup(ProposalError):
    """The partition takes appends in another group, ``group``."""

    def __init__(self, group: int):
        super().__init__(f"it is in group {group}")
        self.group = group


class Waiter(NamedTuple):
    """Client that waits for an index."""

    client: int
    attempt: int
    base_offset: int


class Sessions:
    """Requests under way on one node, in one boot."""

    def __init__(self, raft: MultiRaft, store: Store, answer: Callable[[int, ClientReply], None],
                 was_read: Callable[[int, ReadOperation], None], node: int,
                 damaged: Callable[[CorruptRange], None], space_guard: DiskSpaceGuard,
                 place_for: Callable[[int, int], Location],
                 accepts: Callable[[int, int], None]):
        self._space_guard = space_guard
        self._place_for = place_for  # (partition of a topic, metadata seen)
        self._accepts = accepts  # (partition of a topic, group), called before a batch is appended
        self._raft = raft
        self._store = store
        self._answer = answer
        self._was_read = was_read
        self._node = node
        self._damaged = damaged
        #: group -> index -> clients that wait until it is applied
        self._waiting: dict[int, dict[int, list[Waiter]]] = {}
        #: group -> clients that wait until an index is durable here
        self._durable: dict[int, list[tuple[int, Waiter]]] = {}

    # ---- appends ---------------------------------------------------------------------------

    def append(self, request: AppendRequest) -> None:
        if self._raft.status.is_leader(request.group) and (
                self._space_guard.full or not self._raft.records_fit(request.group)):
            self._space_guard.refused += 1
            self._reply(request, ClientReply(request.attempt, "StorageFull"))
            return
        try:
            proposed = self._propose(request)
        except NotLeader as error:
            leader = error.leader or self._raft.status.leader_hint(request.group)[0]
            self._reply(request, ClientReply(request.attempt, "NotLeader", leader=leader))
            return
        except InOtherGroup as moved:
            self._reply(request, ClientReply(request.attempt, "Moved", moved_to=moved.group))
            return
        except (ProposalError, CodecError) as refused:
            self._reply(request, ClientReply(request.attempt, type(refused).__name__))
            return
        waiter = Waiter(request.client, request.attempt, proposed.base_offset)
        if request.acks == ACKS_LEADER:
            self._durable.setdefault(request.group, []).append((proposed.index, waiter))
        elif request.acks != ACKS_NONE:
            if proposed.index <= self._raft.status.applied_index(request.group):
                self._done(waiter)
            else:
                group = self._waiting.setdefault(request.group, {})
                group.setdefault(proposed.index, []).append(waiter)

    def _propose(self, request: AppendRequest) -> Proposed:
        """Propose a batch, as the real session does: the first batch of a partition opens it.
        Return its index and base offset; raises the refusals of consensus."""
        if request.partition >= FIRST:
            return self._propose_to_topic(request)
        payload = bytearray(request.payload)
        info = core.check_batch(payload)
        try:
            return self._raft.propose_batch(request.group, request.partition, payload, info)
        except UnknownPartition:
            self._raft.propose(request.group, EntryKind.PARTITION_OPEN,
                               open_payload(PARTITION_EPOCH), partition=request.partition)
            return self._raft.propose_batch(request.group, request.partition, payload, info)

    def _propose_to_topic(self, request: AppendRequest):
        """Propose a batch to a partition of a topic.

        Raises ``NotLeader``, ``InOtherGroup``, and the errors of ``place_for`` when the metadata of
        this node do not contain the partition.
        """
        group, partition = request.group, request.partition
        if not self._raft.status.has_group(group) or not self._raft.status.is_leader(group):
            raise NotLeader(group, self._raft.status.leader_hint(group)[0])
        place = self._place_for(partition, request.seen_index)
        tail, switch = self._store.partition_states[group], place.switch
        goes_on_here = (switch is not None and group == switch.to_group
                        and tail.epoch_of(partition) >= switch.epoch)
        if place.group != group and not goes_on_here:
            raise InOtherGroup(place.group)
        self._accepts(partition, group)
        payload = bytearray(request.payload)
        info = core.check_batch(payload)
        if tail.epoch_of(partition) < place.epoch:
            self._raft.propose(group, EntryKind.PARTITION_OPEN, opening(place),
                               partition=partition)
        try:
            return self._raft.propose_batch(group, partition, payload, info)
        except PartitionSealed:
            state = tail.applied(partition)
            if (switch is None or state is None or not state.sealed
                    or state.epoch != place.epoch):
                raise
            raise InOtherGroup(switch.to_group) from None

    def _reply(self, request: AppendRequest, reply: ClientReply) -> None:
        if request.acks != ACKS_NONE:
            self._answer(request.client, reply)

    def _done(self, waiter: Waiter) -> None:
        self._answer(waiter.client, ClientReply(waiter.attempt, "", waiter.base_offset))

    def applied(self, group: int, first: int, last: int) -> None:
        """Answer the clients with acks ``commit`` that wait for indexes of the group up to
        ``last``."""
        waiting = self._waiting.get(group)
        if not waiting:
            return
        for index in [index for index in waiting if index <= last]:
            for waiter in waiting.pop(index):
                self._done(waiter)

    def written(self) -> None:
        """Answer the clients with acks ``leader`` whose index has become durable."""
        for group in list(self._durable):
            durable = self._raft.status.durable_index(group)
            left = []
            for index, waiter in self._durable[group]:
                if index <= durable:
                    self._done(waiter)
                else:
                    left.append((index, waiter))
            if left:
                self._durable[group] = left
            else:
                del self._durable[group]

    def stepped_down(self, group: int) -> None:
        """Answer ``ambiguous`` to all clients of the group: the next leader may commit their
        entries or not.
        """
        for _, waiters in sorted(self._waiting.pop(group, {}).items()):
            for waiter in waiters:
                self._answer(waiter.client, ClientReply(waiter.attempt, AMBIGUOUS))
        for _, waiter in self._durable.pop(group, ()):
            self._answer(waiter.client, ClientReply(waiter.attempt, AMBIGUOUS))

    # ---- reads -----------------------------------------------------------------------------

    def fetch(self, request: FetchRequest) -> None:
        """Serve records that are applied on this node. No reply when the metadata of this node do
        not place the offset in the requested group."""
        limit = None
        if request.partition >= FIRST:
            try:
                place = self._place_for(request.partition, request.seen_index)
            except ProposalError:
                return  # the reader asks another node, or for another partition
            extent = extent_at(place, request.partition, request.offset)
            if extent.group != request.group:
                return  # the reader learns the group of its offset from the metadata
            limit = extent.end
            if limit is None and self._is_behind(place, request):
                return
        self.read(request.client, request.group, request.partition, request.offset,
                  request.bytes_max, limit)

    def _is_behind(self, place: Location, request: FetchRequest) -> bool:
        """True if this replica has applied a later epoch of the partition than the metadata of this
        node know: it left this group and returned."""
        tail = self._store.partition_states.get(place.group)
        state = tail.applied(request.partition) if tail is not None else None
        return state is not None and state.epoch > place.epoch

    def read(self, reader: int, group: int, partition: int, offset: int,
             bytes_max: int = READ_BYTES_MAX, limit: int | None = None) -> int:
        """Serve one fetch from applied records; return the offset after the last record read,
        ``offset`` itself without a replica, records or an intact disk.

        The fetch is judged at once, because its reply may be lost. ``limit`` is the end of the
        partition's extent in this group, None = it has none yet.
        """
        if group not in self._store.groups:
            return offset  # no replica here
        try:
            high_watermark = self._store.partition_states[group].high_watermark(partition)
        except UnknownPartition:
            return offset
        if limit is not None:
            high_watermark = min(high_watermark, limit)
        found = self._store.fetch(group, partition, offset, bytes_max, high_watermark)
        try:
            batches = found.buffers if found.job is None else found.job.execute()
        except CorruptRange as error:
            self._damaged(error)
            return offset
        self._was_read(group, ReadOperation(reader, self._node, partition, offset, high_watermark,
                                            tuple(bytes(batch) for batch in batches),
                                            limit is None))
        return found.next_offset
