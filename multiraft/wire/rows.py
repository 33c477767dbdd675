"""Rows of requests and responses: arrays of named fields.

Contract.  As ``messages.py``, whose tables have the type and range of each field, and which exports
the rows.
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft.wire.errors import ErrorDetail


class NodeAddress(NamedTuple):
    id: int
    client_address: str
    rack: str


class PartitionMetadata(NamedTuple):
    """Present group and leader of a partition.  ``leader`` 0 = unknown; ``leader_epoch`` grows with
    each leader; ``epoch`` counts the partition's switches between groups."""

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
    """Nodes with a replica of a group, as the answering node knows them."""

    group: int
    nodes: tuple[int, ...]


class TopicSummary(NamedTuple):
    name: str
    id: bytes
    incarnation: int
    partitions: int


class BatchPart(NamedTuple):
    """One batch for a partition: the next ``length`` bytes of the payload."""

    incarnation: int
    length: int


class ProduceResult(NamedTuple):
    """Result of one batch.  ``base_offset``: of the first append, if this is a repetition; -1 on
    error."""

    code: int
    base_offset: int
    error: ErrorDetail | None = None


class KeylessRecords(NamedTuple):
    """Records without a key, for which the topic refuses a batch: the position of the batch in the
    request, and the positions of the first of these records in the batch."""

    batch: int
    records: tuple[int, ...]


class FetchPart(NamedTuple):
    incarnation: int
    offset: int
    bytes_max: int


class FetchResult(NamedTuple):
    """Result of one partition: the next ``length`` bytes of the payload are whole batches, the
    first of which contains the requested offset.  ``high_watermark`` and ``log_start`` are -1 when
    ``code`` is not 0."""

    incarnation: int
    code: int
    high_watermark: int
    log_start: int
    length: int
    error: ErrorDetail | None = None


class OffsetQuery(NamedTuple):
    incarnation: int
    position: str  # EARLIEST, LATEST, TIMESTAMP or LARGEST_TIME
    timestamp_ms: int = -1  # with TIMESTAMP: milliseconds since 1970
    #: Partition epoch: with TIMESTAMP the one whose group is searched first, with LARGEST_TIME the
    #: only one; 0 = the first, with LARGEST_TIME the last.
    epoch: int = 0


class OffsetResult(NamedTuple):
    """Result of one query.  With TIMESTAMP ``offset`` is the first of a batch: no record before it
    has that timestamp or a later one, and the reader searches from there on.  With LARGEST_TIME
    it is the highest timestamp of the batches of one epoch, which may be that of a record below the
    log start.  -1 = there is none."""

    incarnation: int
    code: int
    offset: int
    error: ErrorDetail | None = None


class RecordDeletion(NamedTuple):
    """Records to delete: those below ``before_offset``; -1 = all that are readable when the request
    arrives."""

    incarnation: int
    before_offset: int


class DeletionResult(NamedTuple):
    """Result of one ``RecordDeletion``.  ``log_start``: of the partition, when the code is OK;
    else -1."""

    incarnation: int
    code: int
    log_start: int
    error: ErrorDetail | None = None


class NodeSummary(NamedTuple):
    """A node.  ``state``: up, down or unknown, as the answering node sees it; ``groups`` and
    ``leads``: number of groups that it is a member of, and that it leads; ``kafka_address``: the
    one for Kafka's clients, "" = it has no port for them."""

    id: int
    client_address: str
    peer_address: str
    rack: str
    state: str
    groups: int
    leads: int
    kafka_address: str = ""


class GroupSummary(NamedTuple):
    """A group.  ``leader`` 0 and ``term`` 0 = not known to the answering node."""

    group: int
    incarnation: int
    term: int
    leader: int
    voters: tuple[int, ...]
    learners: tuple[int, ...]
