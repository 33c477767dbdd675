"""Configurations of consensus and storage, built from the parameters of a seed."""

from __future__ import annotations

from multiraft.raft.config import RaftConfig
from multiraft.storage.config import StorageConfig

#: As in the defaults of ``RaftConfig``.
QUESTIONS_PER_LEASE = 4
LIVENESS_INTERVAL_MS_MIN = 150
#: Batches and commands of the workload are small.
ENTRY_BYTES_MAX = 4096


def raft_config(parameters) -> RaftConfig:
    """Return the default ``RaftConfig`` with the overrides of the seed, validated."""
    raft = parameters.raft
    return RaftConfig(
        append_bytes_max=raft.append_bytes_max, peer_window_bytes=raft.peer_window_bytes,
        catch_up_append_bytes=max(1, raft.append_bytes_max // 2),
        catch_up_window_bytes=max(1, raft.append_bytes_max // 2, raft.peer_window_bytes // 2),
        uncommitted_bytes_max=raft.uncommitted_bytes_max,
        uncommitted_entries_max=raft.uncommitted_entries_max,
        liveness_checks_per_round_max=raft.reexamine_groups_max, lease_ms=raft.lease_ms,
        heartbeat_interval_ms=max(LIVENESS_INTERVAL_MS_MIN, raft.lease_ms // QUESTIONS_PER_LEASE),
        retransmit_ms=raft.retransmit_ms,
        accept_lost_entries=parameters.disk.flush_interval_ms > 0,
        promotion_lag_entries_max=raft.promotion_lag_entries_max).validate(ENTRY_BYTES_MAX)


def storage_config(parameters) -> StorageConfig:
    """Return the ``StorageConfig`` with the sizes of the seed, validated."""
    disk = parameters.disk
    return StorageConfig(
        entry_bytes_max=ENTRY_BYTES_MAX, first_segment_bytes=disk.first_segment_bytes,
        segment_bytes_max=disk.segment_bytes_max, zero_ahead_bytes=disk.zero_ahead_bytes,
        entry_cache_bytes_max=disk.entry_cache_bytes_max, checkpoint_bytes=disk.checkpoint_bytes,
        checkpoint_growth_factor=disk.checkpoint_growth_factor,
        checkpoints_kept=disk.checkpoints_kept).validate()
