"""The description of one replica for ``group_describe``: the core's state and the store's sizes.

Contract. O(members): sizes are differences of running sums. Raises ``InvalidRequest`` for a group
without a replica on this node; ``group_list`` names the nodes that have one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multiraft.errors import Compacted, UnknownGroup
from multiraft.raft.status import GroupStatus
from multiraft.wire.description import TEXT_MAX, GroupDescribeReply, MemberProgress
from multiraft.wire.errors import InvalidRequest

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.storage.store import Store


def describe_group(node: int, core: MultiRaft, store: Store, group: int) -> GroupDescribeReply:
    """Return the description of this node's replica of ``group``. Raises ``InvalidRequest`` if
    there is none."""
    try:
        status = core.status.of(group)
    except UnknownGroup as error:
        raise InvalidRequest(f"node {node} has no replica of group {group}") from error
    configuration = status.configuration
    records, record_bytes = store.records_kept(group)
    return GroupDescribeReply(
        node=node, group=group, incarnation=status.incarnation, role=status.role.name.lower(),
        term=status.term, vote=status.vote, leader=status.leader,
        first_index=status.first_index, last_index=status.last_index,
        durable_index=status.durable_index, commit=status.commit,
        applied_index=status.applied_index, leader_commit_seen=status.leader_commit_seen,
        committed_in_term=status.committed_in_term, voters=tuple(configuration.voters),
        learners=tuple(configuration.learners), outgoing=tuple(configuration.outgoing),
        quarantined=status.quarantined[:TEXT_MAX // 4], quiesced=status.quiesced,
        transferee=status.transferee, uncommitted_bytes=status.uncommitted_bytes,
        log_bytes=kept_bytes(store, status),
        partitions=store.partition_states[group].partitions_count,
        members=tuple(MemberProgress(
            member.node, member.state, member.match, member.next_index, member.commit_known,
            member.inflight_bytes, log_bytes(store, status, member.match + 1))
            for member in status.members),
        records=records, record_bytes=record_bytes)


def kept_bytes(store: Store, status: GroupStatus) -> int:
    """Return the framed bytes of a replica's log and of its records below the Raft start. O(1)."""
    try:
        return log_bytes(store, status, status.first_index) + store.records_kept(status.group)[1]
    except UnknownGroup:
        return 0  # storage has removed it already


def log_bytes(store: Store, status: GroupStatus, first: int) -> int:
    """Return the framed bytes from ``first`` to the durable end of a replica's log, without
    compacted entries. O(1)."""
    try:
        return store.bytes_between(status.group, max(first, status.first_index),
                                   min(status.last_index, status.durable_index))
    except (Compacted, UnknownGroup):
        return 0  # storage has compacted or removed it already
