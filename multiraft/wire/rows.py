"""Rows: the arrays of named fields inside requests and responses.

Contract.  As ``messages.py``, whose tables say what each field may be; whoever builds or reads a
message takes both from there.
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft.wire.errors import ErrorDetail


class NodeAddress(NamedTuple):
    id: int
    client_address: str
    rack: str


class PartitionMetadata(NamedTuple):
    """Where a partition is now.  ``leader`` 0 = unknown; ``leader_epoch`` grows with each leader;
    ``epoch`` counts the partition's moves between groups."""

    partition: int
    incarnation: int
    group: int
    leader: int
    leader_epoch: int
    epoch: int


class TopicMetadata(NamedTuple):
    name: str
    id: bytes  # UUID, 16 bytes
    incarnation: int
    partitions: tuple[PartitionMetadata, ...]


class GroupReplicas(NamedTuple):
    """The nodes that hold a group, as the answering node knows it."""

    group: int
    nodes: tuple[int, ...]


class TopicSummary(NamedTuple):
    name: str
    id: bytes
    incarnation: int
    partitions: int


class BatchPart(NamedTuple):
    """``length`` bytes of the payload are one batch for this partition."""

    incarnation: int
    length: int


class ProduceResult(NamedTuple):
    """``base_offset`` is that of the first append when the batch was a duplicate; -1 on error."""

    code: int
    base_offset: int
    error: ErrorDetail | None = None


class FetchPart(NamedTuple):
    incarnation: int
    offset: int
    bytes_max: int


class FetchResult(NamedTuple):
    """``length`` bytes of the payload are whole batches of this partition, the first of which
    contains the offset asked for.  Marks are -1 when ``code`` is not 0."""

    incarnation: int
    code: int
    high_watermark: int
    log_start: int
    length: int
    error: ErrorDetail | None = None


class OffsetQuery(NamedTuple):
    incarnation: int
    position: str  # EARLIEST, LATEST or TIMESTAMP
    timestamp_ms: int = -1  # with TIMESTAMP: milliseconds since 1970
    epoch: int = 0  # with TIMESTAMP: begin with the group it is in since then


class OffsetResult(NamedTuple):
    """With TIMESTAMP ``offset`` is the first of a batch: no record before it has that timestamp or
    a later one; the reader finds the record itself from there on.  -1 = there is none."""

    incarnation: int
    code: int
    offset: int
    error: ErrorDetail | None = None


class NodeSummary(NamedTuple):
    """``state``: up, down or unknown, as the answering node sees it."""

    id: int
    client_address: str
    peer_address: str
    rack: str
    state: str
    groups: int
    leads: int


class GroupSummary(NamedTuple):
    """``leader`` 0 and ``term`` 0 = not known to the answering node."""

    group: int
    incarnation: int
    term: int
    leader: int
    voters: tuple[int, ...]
    learners: tuple[int, ...]


class MemberRow(NamedTuple):
    """A member as the leader sees it: what it has durably, and how it is fed."""

    node: int
    state: str
    match: int
