"""Errors of the library, as types.

    MultiRaftError
    +- CodecError
    |  +- CorruptBatch          bytes do not match their CRC or lengths
    |  +- InvalidBatch          intact, but not acceptable (count, offsets, control bits)
    |  +- BatchTooLarge         over a limit, with limit and value
    |  +- RecordTooLarge        one record alone over the batch limit
    |  +- CorruptEntry          an entry from a peer or a file
    |  +- MalformedHeader       not the CBOR that a frame's header may be
    +- ProposalError            a *definite* refusal: nothing was appended
    |  +- NotLeader             with the leader's node id, 0 = unknown
    |  +- QueueFull             over a limit, with limit and value
    |  +- UnknownGroup
    |  +- GroupQuarantined
    |  +- SequenceError         idempotent producer
    |  |  +- ProducerFenced     a newer epoch of this producer id exists
    |  |  +- OutOfOrderSequence a batch before it is missing
    |  +- PartitionSealed       the partition is not, or no longer, in this group
    |  +- UnknownPartition      not open in this group
    |  +- MembershipError       a configuration change that cannot begin
    |     +- ChangeOpen         another one is under way
    |     +- MemberLags         a new voter lacks entries, with their number
    |     +- BelowVoteBarrier   a new voter is below its vote barrier
    |     +- InvalidMembers     the members asked for are none, or the present ones
    +- Compacted                below the log's first index
    +- ImpossibleMessage        no correct node can have sent it
    +- ConfigError              a limit contradicts another

Broken invariants are not here: they are ``AssertionError`` and stop the node.
"""

from __future__ import annotations

from typing import Self


class MultiRaftError(Exception):
    """Root of the library's errors.  ``topic``, ``partition`` and ``offset`` name the subject of
    the error; None = it has no such subject."""

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None

    def about(self, topic: str, partition: int | None = None, offset: int | None = None) -> Self:
        """Set the topic, partition and offset that this error concerns, and return it."""
        self.topic, self.partition, self.offset = topic, partition, offset
        return self


class CodecError(MultiRaftError):
    """Bytes that cannot be accepted."""


class CorruptBatch(CodecError):
    """A batch whose bytes do not match its CRC or lengths."""


class InvalidBatch(CodecError):
    """An intact batch that a leader may not accept."""


class BatchTooLarge(CodecError):
    """A batch over a limit; the message states limit and value."""


class RecordTooLarge(CodecError):
    """One record that does not fit into a batch of its own.  ``limit`` and ``value`` are bytes, -1
    if only the text states them."""

    limit = -1
    value = -1


class CorruptEntry(CodecError):
    """An entry, from a peer or a file, whose bytes do not match its CRC."""


class MalformedHeader(CodecError):
    """Bytes that are not the CBOR of a frame's header."""


class ProposalError(MultiRaftError):
    """A definite refusal: nothing was appended."""


class NotLeader(ProposalError):
    """This replica does not lead the group; ``leader`` is the node that does, 0 = unknown."""

    def __init__(self, group: int, leader: int = 0):
        super().__init__(f"group {group} is not led here"
                         + (f", node {leader} leads it" if leader else ", its leader is unknown"))
        self.group = group
        self.leader = leader


class QueueFull(ProposalError):
    """A bound on work in progress is reached."""

    def __init__(self, name: str, limit: int, value: int):
        super().__init__(f"{name}: {value} would exceed the limit of {limit}")
        self.name = name
        self.limit = limit
        self.value = value


class UnknownGroup(ProposalError):
    """No such group on this node."""


class GroupQuarantined(ProposalError):
    """The replica here is damaged and neither votes nor leads."""


class SequenceError(ProposalError):
    """An idempotent producer's batch does not follow its last one."""


class ProducerFenced(SequenceError):
    """A newer epoch of this producer id has written to the partition."""


class OutOfOrderSequence(SequenceError):
    """The batch before this one is missing."""


class PartitionSealed(ProposalError):
    """The partition takes no more data in this group."""


class UnknownPartition(ProposalError):
    """The partition is not open in this group."""


class MembershipError(ProposalError):
    """A configuration change that cannot begin (now)."""


class ChangeOpen(MembershipError):
    """Another change is not complete; one is open at a time."""


class MemberLags(MembershipError):
    """A node that is to become a voter lacks too many entries."""

    def __init__(self, node: int, entries: int, limit: int):
        super().__init__(f"node {node} lacks {entries} entries, at most {limit} may be missing for "
                         f"a voter")
        self.node = node
        self.entries = entries
        self.limit = limit


class BelowVoteBarrier(MembershipError):
    """A node that is to become a voter is below its vote barrier: its log has not reached the place
    up to which an earlier replica of the group on that node may have acknowledged entries."""

    def __init__(self, node: int, group: int):
        super().__init__(f"node {node} had a replica of group {group} before, and its log has not "
                         f"come to where that one's ended; it votes for nobody until then")
        self.node = node
        self.group = group


class RecordsLeft(MembershipError):
    """A node that is to become a voter, or to remain as one of few, still has records of a snapshot
    to copy: it would count as a copy of records that it lacks."""

    def __init__(self, node: int, group: int, left: int):
        super().__init__(f"node {node} is still copying the records of group {group}: {left} "
                         f"indexes of the log are left")
        self.node = node
        self.group = group
        self.left = left


class InvalidMembers(MembershipError):
    """Members that a group cannot have, or has already."""


class Compacted(MultiRaftError):
    """The index is below the log's first."""


class ImpossibleMessage(MultiRaftError):
    """A message that contradicts committed entries, verified entries or the leadership known here:
    no correct node can have sent it.  Raised by ``step`` before the log changed; the driver must
    not process further messages of the sender."""


class ConfigError(MultiRaftError):
    """A setting is out of range or contradicts another; the message names both."""
