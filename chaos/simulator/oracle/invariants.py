"""Invariants that hold after every effect, one class each.

Contract.  The methods of an invariant are named after the effects that it checks (``HOOKS``);
``StateChecker`` calls them right after the model was updated.  A call costs O(1), or O(members).  A
broken invariant raises ``Violation`` with its own name.  ``ALL`` lists the invariants in the order
of checking.

Theory.  The safety properties of figure 3 of the Raft paper; the durability rule of this system (a
node says nothing that a power loss can take back); and the promises to clients (anomalies A1-A4,
A14, A17-A20, A23, A25, A32).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import ClassVar

from chaos.simulator.env.violations import Violation
from chaos.simulator.oracle.model import (
    BatchModel,
    GroupModel,
    LogModel,
    PartitionModel,
    PendingWrite,
    ReplicaModel,
    chain_of,
)
from chaos.simulator.oracle.operations import ACKS_COMMIT, AppendOperation, ReadOperation
from multiraft import core
from multiraft.codec import layout
from multiraft.raft.log_reader import GroupRestored
from multiraft.raft.messages import AppendReply, Message, Status, VoteReply, VoteRequest
from multiraft.types import Entry, EntryKind, HardState

#: The first value of a batch begins within so many bytes of its records.
FIRST_VALUE_BYTES = 48

HOOKS = ("on_stage", "on_send", "on_leader", "on_commit", "on_apply", "on_recover", "on_found",
         "on_ack", "on_read", "on_converged")


class PromisedLoss(Exception):
    """Relaxed durability lost records that it may lose (docs/decisions/0010): the run ends without
    a violation.
    """


class Invariant:
    """Base class: ways to raise ``Violation`` with the name of the invariant."""

    messages: ClassVar[tuple[type, ...]] = ()  # types of messages that ``on_send`` receives

    def require(self, holds: bool, text: str, *parts: object) -> None:
        """Raise ``Violation`` with the name of this invariant unless ``holds``; ``text`` is
        formatted with ``parts`` only then."""
        if not holds:
            self.fail(text, *parts)

    def fail(self, text: str, *parts: object) -> None:
        """Raise ``Violation`` with the name of this invariant.  Checks on the hottest paths call
        this in an ``if``, instead of ``require``."""
        raise Violation(type(self).__name__, text.format(*parts))


class OneLeaderPerTerm(Invariant):
    """At most one node leads a group in a term (paper 5.2, A19)."""

    def on_leader(self, replica: ReplicaModel, term: int) -> None:
        first = replica.group.leaders.setdefault(term, replica.node)
        self.require(first == replica.node, "g{} term {} is led by n{} and by n{}",
                     replica.group.group, term, first, replica.node)


class VoteOncePerTerm(Invariant):
    """A voter supports one candidate per term, across restarts, and its vote is durable before it
    is sent (paper 5.2, A19, S21).
    """

    messages: ClassVar[tuple[type, ...]] = (VoteReply, VoteRequest)

    def on_send(self, replica: ReplicaModel, to: int, message: Message) -> None:
        if type(message) is VoteReply and message.granted and not message.pre:
            self._voted(replica, message.term, to)
        elif type(message) is VoteRequest and not message.pre:
            self._voted(replica, message.term, replica.node)

    def _voted(self, replica: ReplicaModel, term: int, candidate: int) -> None:
        group = replica.group
        first = group.votes.setdefault((term, replica.node), candidate)
        self.require(first == candidate, "{} votes for n{} and n{} in term {}",
                     replica, first, candidate, term)
        durable = replica.durable_hard_state
        self.require(durable.term > term or durable == (term, candidate),
                     "{} says it votes for n{} in term {}, its disk says {}",
                     replica, candidate, term, durable)


class TermMonotonic(Invariant):
    """A replica's term never decreases, its vote never changes within a term, and a restart finds
    both unchanged (A19).
    """

    def on_stage(self, replica: ReplicaModel, write: PendingWrite, before: tuple) -> None:
        after = write.hard_state
        if after is None:
            return
        self.require(after.term >= before[0], "{} goes from term {} to {}", replica, before[0],
                     after.term)
        self.require(after.term > before[0] or before[1] in (0, after.vote),
                     "{} changes its vote in term {} from n{} to n{}", replica, after.term,
                     before[1], after.vote)

    def on_recover(self, replica: ReplicaModel, log: LogModel, restored: GroupRestored) -> None:
        known = [replica.durable_hard_state]
        for write in replica.pending:
            if write.hard_state is not None:
                known.append(write.hard_state)
                # Entries precede the hard state of their round in the journal, so a torn round may
                # leave the entries without it.  The vote was not durable, so it was not sent.
                if write.hard_state.term in write.terms and write.hard_state.term in log.terms:
                    known.append(HardState(write.hard_state.term, 0))
        self.require(restored.hard_state in known,
                     "{} restarts with hard state {}, its disk had {}", replica,
                     restored.hard_state, known)


class LogMatching(Invariant):
    """Two logs with an entry of the same index and term are equal up to it (paper 5.3, A18)."""

    def on_stage(self, replica: ReplicaModel, write: PendingWrite, before: tuple) -> None:
        if not write.chains:
            return
        chain_at = replica.group.chain_at
        index = replica.staged.last_index - len(write.chains)
        for term, chain in zip(write.terms, write.chains):
            index += 1
            self.require(chain_at[index, term] == chain, "{} holds another entry {}@{} (or "
                         "another log before it) than a replica before it", replica, index, term)


class LeaderAppendOnly(Invariant):
    """A leader truncates nothing in its own term, and no replica truncates entries that it has
    applied (paper 5.3).
    """

    def on_stage(self, replica: ReplicaModel, write: PendingWrite, before: tuple) -> None:
        if not write.drop_from or replica.damaged:
            return
        self.require(write.drop_from > replica.applied, "{} drops from index {}, it applied {}",
                     replica, write.drop_from, replica.applied)
        term = replica.hard_state[0]
        self.require(replica.group.leaders.get(term) != replica.node,
                     "{} drops from index {} while it leads term {}", replica, write.drop_from,
                     term)


class LeaderCompleteness(Invariant):
    """The log of a leader holds everything that was committed in earlier terms (paper 5.4, A20)."""

    def on_leader(self, replica: ReplicaModel, term: int) -> None:
        group = replica.group
        index = group.committed_before_term(term)
        if index:
            self._or_promised_loss(replica, term, index)
            self.require(replica.staged.holds(index, group.committed[index - 1]),
                         "{} leads term {} without the committed entry {} (its log ends at {})",
                         replica, term, index, replica.staged.last_index)

    @staticmethod
    def _or_promised_loss(replica: ReplicaModel, term: int, index: int) -> None:
        """Raise ``PromisedLoss`` if the leader lacks some of the first ``index`` committed entries,
        and a relaxed power loss explains each of them.

        It does if a node forgot the entry in a power loss, and had not got it back in an earlier
        term.
        """
        committed, chains = replica.group.committed, replica.staged.chains
        common = min(index, len(chains))
        while common and chains[common - 1] != committed[common - 1]:
            common -= 1
        forgotten = [each.forgotten for each in replica.group.replicas.values() if each.forgotten]
        missing = committed[common:index]
        if missing and all(any(each.get(chain, 0) >= term for each in forgotten)
                           for chain in missing):
            raise PromisedLoss(f"{replica} leads without the last {len(missing)} of {index}")


class CommittedNeverChanges(Invariant):
    """Entries that one replica takes as committed are the same on every replica, permanently (A17).
    """

    def on_commit(self, replica: ReplicaModel, index: int, added: int) -> None:
        if not replica.staged.holds(index, replica.group.committed[index - 1]):
            self.fail("{} takes index {} as committed with other contents than before", replica,
                      index)

    def on_recover(self, replica: ReplicaModel, log: LogModel, restored: GroupRestored) -> None:
        group = replica.group
        index = restored.commit
        self.require(index <= group.commit, "{} restarts with commit index {}, {} are committed",
                     replica, index, group.commit)
        self.require(not index or log.holds(index, group.committed[index - 1]),
                     "{} restarts with commit index {}, but other contents up to it", replica,
                     index)


class CommitIsDurable(Invariant):
    """An index is committed only when it is durable on a majority; the leader itself counts only
    when the entry is durable there as well (A25).
    """

    def on_commit(self, replica: ReplicaModel, index: int, added: int) -> None:
        if not added:
            return
        group = replica.group
        holders = group.durable_holders(index, group.committed[index - 1])
        self.require(group.is_enough(replica, index, holders),
                     "{} takes index {} as committed, durable only on {}", replica, index, holders)


class CommitOwnTermOnly(Invariant):
    """A leader commits by counting replicas only for entries of its own term (paper 5.4.2, figure
    8, A25).
    """

    def on_commit(self, replica: ReplicaModel, index: int, added: int) -> None:
        term = replica.hard_state[0]
        terms = replica.staged.terms
        if not added or replica.group.leaders.get(term) != replica.node or terms[index - 1] == term:
            return
        own = bisect_left(terms, term) + 1  # the first entry of its own term
        holders = []
        if own <= len(terms):
            holders = replica.group.durable_holders(own, replica.staged.chain(own))
        self.require(replica.group.is_enough(replica, own, holders),
                     "{} commits index {} of term {} in term {}, of which no entry is durable on a "
                     "majority", replica, index, terms[index - 1], term)


class AcknowledgedIsDurable(Invariant):
    """A follower acknowledges only entries that are durable on it and in its leader's log (S3).

    A reply that waited for the disk may leave late, as through a slow network.  When the replica
    was removed by then, the reply is about the removed replica; leaders tell the two apart.
    """

    messages: ClassVar[tuple[type, ...]] = (AppendReply,)

    def on_send(self, replica: ReplicaModel, to: int, message: Message) -> None:
        if message.status != Status.OK:
            return
        match, held = message.match, replica.durable
        if len(held.chains) < match:
            held = replica.last_incarnation
            if len(held.chains) < match:
                self.fail("{} acknowledges index {}, its disk ends at {}", replica, match,
                          replica.durable.last_index)
        group = replica.group
        leader = group.replicas.get(to)
        if (leader is not None and group.leaders.get(message.term) == to
                and leader.hard_state[0] == message.term and len(leader.staged.chains) >= match
                and held.chain(match) != leader.staged.chain(match)):
            self.fail("{} acknowledges index {} to n{}, which holds other contents", replica,
                      match, to)


class AppliedInOrder(Invariant):
    """A replica applies each committed entry once, in order, and only what its own disk holds."""

    def on_apply(self, replica: ReplicaModel, first: int, last: int) -> None:
        if first != replica.applied + 1:
            self.fail("{} applies {}..{} after {}", replica, first, last, replica.applied)
        if len(replica.durable.chains) < last:
            self.fail("{} applies index {}, its disk ends at {}", replica, last,
                      replica.durable.last_index)


class DurableSurvives(Invariant):
    """A restart finds every entry that was durable, and a prefix of each write in flight."""

    def on_recover(self, replica: ReplicaModel, log: LogModel, restored: GroupRestored) -> None:
        if replica.power_lost and self._is_promised_loss(replica, log):
            return
        candidate = replica.durable.copy()
        allowed = [candidate.last_index]
        if log.chains == candidate.chains:
            return
        if replica.installing and log.chains == replica.group.committed[:replica.installing]:
            return
        for write in replica.pending:
            for count in range(len(write.chains) + 1):
                state = candidate.copy()
                state.put(write, count)
                allowed.append(state.last_index)
                if log.chains == state.chains:
                    return
            candidate.put(write)
        self.require(False, "{} restarts with {} entries, its disk held {} (in flight up to {})",
                     replica, log.last_index, allowed[0], allowed[-1])


    def _is_promised_loss(self, replica: ReplicaModel, log: LogModel) -> bool:
        """True if a power loss with relaxed durability explains the recovered log; its lost entries
        are recorded as forgotten then.

        The log must be a prefix that has everything synced, and the lost entries must be records;
        ``Violation`` is raised for others.
        """
        left, held = log.last_index, replica.durable
        if not replica.synced <= left < held.last_index or log.chains != held.chains[:left]:
            return False
        gone = held.chains[left:]
        kinds = {replica.group.entries[chain].kind for chain in gone}
        self.require(kinds == {EntryKind.DATA}, "{} lost more than records with its power: {}",
                     replica, kinds)
        replica.forget(gone)
        return True


class DamagedReadsTrue(Invariant):
    """Entries that a damaged disk can still read are entries that were written at their index and
    term.

    A leader clears the quarantine of a replica by the end of its log, without comparing entries
    before.
    """

    def on_found(self, replica: ReplicaModel, entry: Entry) -> None:
        group = replica.group
        chain = group.chain_at.get((entry.index, entry.term), 0)
        self.require(chain != 0, "{} reads an entry {}@{} that nobody wrote", replica, entry.index,
                     entry.term)
        # Entries below it may be damaged, so only the contents of this entry are compared.
        self.require(chain_of(0, entry) == chain_of(0, group.entries[chain]),
                     "{} reads other contents at {}@{} than were written", replica, entry.index,
                     entry.term)


class OffsetsDense(Invariant):
    """Offsets of a partition are dense from 0, and a batch is contiguous (A32), over all groups
    that the partition was in.  No two groups commit the same offset.
    """

    def __init__(self) -> None:
        self._partitions: dict[int, PartitionModel] = {}

    def on_commit(self, replica: ReplicaModel, index: int, added: int) -> None:
        if not added:
            return
        group = replica.group
        for place in range(index - added, index):
            entry = group.entries[group.committed[place]]
            if entry.kind == EntryKind.DATA:
                self._append(group, entry)
            elif entry.kind == EntryKind.PARTITION_OPEN:
                group.partitions[entry.partition] = self._partitions.setdefault(
                    entry.partition, PartitionModel(entry.partition))

    def _append(self, group: GroupModel, entry: Entry) -> None:
        partition = group.partitions.get(entry.partition)
        self.require(partition is not None, "partition {}: a batch is committed in g{}, where it "
                     "was never opened", entry.partition, group.group)
        batch = group.batch_of(entry)
        self.require(sent_to(batch.payload, entry.partition), "partition {}: a batch is committed "
                     "that was sent to another one", entry.partition)
        self.require(batch.base_offset == partition.next_offset,
                     "partition {}: committed batch at offset {}, expected {}", entry.partition,
                     batch.base_offset, partition.next_offset)
        self.require(core.batch_header(batch.payload).base_offset == batch.base_offset,
                     "partition {}: offset {} is not stamped into its batch", entry.partition,
                     batch.base_offset)
        partition.batches[batch.base_offset] = batch
        partition.next_offset += batch.count


def sent_to(payload: bytes, partition: int) -> bool:
    """True if the first record of a batch names this partition: values name where they were sent.
    """
    head = layout.BATCH_HEADER_BYTES
    return payload.find(b"%d/" % partition, head, head + FIRST_VALUE_BYTES) >= 0


class RetriesExactlyOnce(Invariant):
    """Each batch of a producer is committed once, in the order of the sequences (A2, A23)."""

    def __init__(self) -> None:
        self._next: dict[tuple[int, int], tuple[int, int]] = {}  # -> (epoch, next sequence)

    def on_commit(self, replica: ReplicaModel, index: int, added: int) -> None:
        if not added:
            return
        group = replica.group
        for place in range(index - added, index):
            entry = group.entries[group.committed[place]]
            if entry.kind == EntryKind.DATA and entry.batch.producer_id >= 0:
                self._append(entry)

    def _append(self, entry: Entry) -> None:
        info = entry.batch
        key = (entry.partition, info.producer_id)
        epoch, following = self._next.get(key, (info.producer_epoch, 0))
        if info.producer_epoch > epoch:
            epoch, following = info.producer_epoch, 0
        self.require(info.producer_epoch == epoch and info.base_sequence == following,
                     "partition {}: producer {} epoch {} sequence {} is committed, expected epoch "
                     "{} sequence {}", entry.partition, info.producer_id, info.producer_epoch,
                     info.base_sequence, epoch, following)
        self._next[key] = (epoch, following + info.count)


class AckedIsCommitted(Invariant):
    """An append acknowledged with ``commit`` is committed at the acknowledged offset, and later
    appends get higher offsets (A3, A14, A14b).
    """

    def __init__(self) -> None:
        self.acked: dict[int, list[AppendOperation]] = {}  # by partition

    def on_ack(self, group: GroupModel, append: AppendOperation) -> None:
        if append.acks != ACKS_COMMIT:
            return
        self.require(append.base_offset > append.floor,
                     "{} got offset {}, but {} had been acknowledged before it was sent", append,
                     append.base_offset, append.floor)
        self._find(group, append)
        self.acked.setdefault(append.partition, []).append(append)

    def _find(self, group: GroupModel, append: AppendOperation) -> None:
        partition = group.partitions.get(append.partition)
        batch: BatchModel | None = None
        if partition is not None:
            batch = partition.batches.get(append.base_offset)
        self.require(batch is not None, "{} is acknowledged at offset {}, nothing is committed "
                     "there", append, append.base_offset)
        same = (batch.producer == (append.producer, append.epoch)
                and batch.base_sequence == append.sequence
                and batch.payload[16:] == as_stored(append.payload, batch.payload)[16:])
        self.require(same, "{} is acknowledged at offset {}, which holds producer {} sequence {}",
                     append, append.base_offset, batch.producer, batch.base_sequence)


def as_stored(sent: bytes, stored: bytes) -> bytes:
    """Return the batch ``sent`` with the append time of ``stored``, if that has one."""
    attributes, largest = (slice(at, at + size) for at, size in (
        (layout.BATCH_ATTRIBUTES_AT, 2), (layout.BATCH_MAX_TIMESTAMP_AT, 8)))
    flags = int.from_bytes(stored[attributes], "big")
    if not flags & layout.ATTRIBUTE_LOG_APPEND_TIME:
        return sent
    batch = bytearray(sent)
    flags = int.from_bytes(sent[attributes], "big") | layout.ATTRIBUTE_LOG_APPEND_TIME
    batch[attributes] = flags.to_bytes(2, "big")
    batch[largest] = stored[largest]
    crc = core.crc32c(bytes(batch[layout.BATCH_ATTRIBUTES_AT:]))
    batch[layout.BATCH_CRC_AT:layout.BATCH_CRC_AT + 4] = crc.to_bytes(4, "big")
    return bytes(batch)


class ReadsAreCommitted(Invariant):
    """A read returns whole committed batches, dense from the requested offset on (A1, A7, A17,
    A25).
    """

    def on_read(self, group: GroupModel, read: ReadOperation) -> None:
        partition = group.partitions.get(read.partition) or PartitionModel(read.partition)
        self.require(read.high_watermark <= partition.next_offset,
                     "n{} serves partition {} up to {}, committed are {}", read.node,
                     read.partition, read.high_watermark, partition.next_offset)
        expected = -1
        for data in read.batches:
            header = core.batch_header(data)
            batch = partition.batches.get(header.base_offset)
            self.require(batch is not None and batch.payload == data,
                         "n{} serves offset {} of partition {}, contents that are not committed",
                         read.node, header.base_offset, read.partition)
            self.require(expected in (-1, header.base_offset),
                         "n{} skips from offset {} to {} of partition {}", read.node, expected,
                         header.base_offset, read.partition)
            self.require(expected != -1 or header.base_offset <= read.offset,
                         "n{} was asked for offset {} of partition {} and began at {}", read.node,
                         read.offset, read.partition, header.base_offset)
            expected = header.base_offset + header.count
        self.require(expected <= read.high_watermark or not read.batches,
                     "n{} serves partition {} up to {}, above its high watermark {}", read.node,
                     read.partition, expected, read.high_watermark)


class ReadNeverUnread(Invariant):
    """Later reads of an offset return what the first one returned (A17).

    This is the client's view, compared without the model.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], int] = {}  # (partition, base offset) -> batch CRC

    def on_read(self, group: GroupModel, read: ReadOperation) -> None:
        for data in read.batches:
            header = core.batch_header(data)
            key = (read.partition, header.base_offset)
            first = self._seen.setdefault(key, header.crc)
            self.require(first == header.crc, "partition {} offset {} was read with other contents "
                         "before", read.partition, header.base_offset)


class ReplicasAgree(Invariant):
    """After all faults are healed, every replica has the same log, applied to its end (A18)."""

    def on_converged(self, group: GroupModel, live: list[int]) -> None:
        for node in live:
            if node not in group.configuration().members():
                continue
            replica = group.replica(node)
            self.require(replica.durable.chains == group.committed,
                         "{} ends at index {}, committed are {}", replica,
                         replica.durable.last_index, group.commit)
            self.require(replica.applied == group.commit, "{} applied {} of {}", replica,
                         replica.applied, group.commit)


ALL: tuple[type[Invariant], ...] = (
    OneLeaderPerTerm, VoteOncePerTerm, TermMonotonic, LogMatching, LeaderAppendOnly,
    LeaderCompleteness, CommittedNeverChanges, CommitIsDurable, CommitOwnTermOnly,
    AcknowledgedIsDurable, AppliedInOrder, DurableSurvives, DamagedReadsTrue, OffsetsDense,
    RetriesExactlyOnce, AckedIsCommitted, ReadsAreCommitted, ReadNeverUnread, ReplicasAgree,
)
