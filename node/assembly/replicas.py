"""Parts that create, catch up, repair and move this node's replicas and partitions."""

from __future__ import annotations

from dataclasses import dataclass

from multiraft.storage.filesystem import RealFilesystem
from multiraft.storage.snapshot_download import SnapshotDownload
from node.admin.record_deletion import RecordDeletion
from node.assembly.admin import AdminParts
from node.assembly.env import NodeEnv
from node.assembly.metadata import MetadataParts
from node.assembly.peers import PeerParts
from node.assembly.reads import ReadParts
from node.assembly.storage import StorageParts
from node.cluster.config_reports import MemberReports
from node.cluster.metadata_learners import MetadataLearners
from node.loop.applied_waiters import AppliedEntries
from node.loop.checkpoints import Checkpoints
from node.metadata.node_releases import ReleaseGate, data_snapshots_fault
from node.removal.removal_steps import RemovalSteps
from node.removal.removal_task import RemovalTask
from node.replicas.lifecycle import Replicas
from node.replicas.log_compaction import CompactionLimits, LogCompaction
from node.replicas.log_start_propagation import LogStartPropagation
from node.replicas.partition_deletion import PartitionDeletion
from node.replicas.partition_switch import PartitionSwitcher
from node.replicas.record_copies_task import RecordCopyTask
from node.replicas.repair import Repairs
from node.replicas.shed_leadership import LeadershipShedder
from node.replicas.snapshots import SNAPSHOT_BYTES_MAX, Snapshots


@dataclass(frozen=True, slots=True)
class ReplicaParts:
    """Parts that change this node's replicas and partitions."""

    repairs: Repairs
    replicas: Replicas
    checkpoints: Checkpoints
    snapshots: Snapshots
    record_copies: RecordCopyTask
    applied: AppliedEntries
    partition_switcher: PartitionSwitcher
    log_start_propagation: LogStartPropagation
    record_deletion: RecordDeletion
    partition_deletion: PartitionDeletion
    leadership_shedder: LeadershipShedder
    member_reports: MemberReports
    metadata_learners: MetadataLearners
    compaction: LogCompaction
    removal: RemovalTask


def build_replicas(env: NodeEnv, storage: StorageParts, metadata: MetadataParts, peers: PeerParts,
                   reads: ReadParts, admin: AdminParts) -> ReplicaParts:
    """Build the parts that create, move, repair and remove this node's replicas. Before the peers
    admit this node, no replica is created and no request is sent to a peer."""
    core, store, request_round, log = env.core, env.store, env.loop.request, env.log
    repairs = Repairs(storage.repairer, peers.bulk, request_round, log)
    storage.damage_found.subscribe(repairs.on_damage)
    replicas = Replicas(core, store, metadata.log, metadata.known.facts.groups, request_round, log,
                        is_admitted=metadata.admission.admitted.is_set,
                        created=repairs.on_replica_created, removed=storage.repairer.groups.discard)
    checkpoints = Checkpoints(store, core, metadata.log, env.space)
    partial = SnapshotDownload(RealFilesystem(), str(env.config.data_dir), SNAPSHOT_BYTES_MAX)
    record_copies = RecordCopyTask(core, store, peers.bulk, storage.gather.write, env.space,
                                   storage.damage_found.notify, repairs.on_records_copied,
                                   request_round, log)
    snapshots = Snapshots(core, store, metadata.log, checkpoints, peers.bulk, env.config.limits,
                          request_round, log, partial, env.space, replicas.reload,
                          record_copies.add)
    limits = env.config.limits
    compaction = LogCompaction(
        core, store,
        CompactionLimits(limits.raft_log_bytes_kept, limits.raft_log_bytes_newest,
                         limits.node_raft_log_bytes_newest),
        ReleaseGate(metadata.log, data_snapshots_fault), snapshots.held_from, env.space)
    checkpoints.completed.subscribe(compaction.checkpointed)
    applied = AppliedEntries(store.partition_states)
    partition_switcher = PartitionSwitcher(core, store.partition_states, metadata.log, applied,
                                  peers.requests, peers.metadata_requests, request_round, log)
    peers.handlers.update(partition_switcher.handlers)
    log_start_propagation = LogStartPropagation(
        core, store.partition_states, metadata.log, reads.log_starts, peers.control,
        peers.metadata_requests, request_round, env.turns, log)
    peers.bulk.handlers.update(log_start_propagation.handlers)
    record_deletion = RecordDeletion(
        core, store, store.partition_states, metadata.directory, lambda: metadata.log.state,
        reads.log_starts, applied, env.turns, reads.blocks,
        env.config.limits.append_timeout_ms_max, request_round)
    admin.handlers.update(record_deletion.handlers)
    partition_deletion = PartitionDeletion(core, store.partition_states, metadata.log,
                                           request_round, env.turns, log)
    metadata.log.topic_deleted.subscribe(partition_deletion.topic_deleted)
    metadata.log.epochs_dropped.subscribe(partition_deletion.left)
    metadata.log.state_changed.subscribe(partition_deletion.replaced)
    return ReplicaParts(
        repairs, replicas, checkpoints, snapshots, record_copies, applied,
        partition_switcher,
        log_start_propagation, record_deletion, partition_deletion,
        LeadershipShedder(core, env.space, admin.roles, request_round, log),
        MemberReports(core, metadata.log, peers.metadata_requests),
        MetadataLearners(core, metadata.log, request_round, log),
        compaction,
        RemovalTask(RemovalSteps(store, storage.trim, storage.remover, env.turns.take, env.space,
                                 compaction)))
