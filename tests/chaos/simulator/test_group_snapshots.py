"""Compacted groups with partitions among faults: every replica serves all records in the end."""

from __future__ import annotations

import dataclasses

import pytest

from chaos.simulator import simulation
from chaos.simulator.env.parameters import CompactionParameters, Parameters
from multiraft.codec import layout

#: Faults that leave replicas behind the Raft start of their leader, or make them anew.
AWAY = ("kill", "partition-one", "isolate-leader")
CRASHING = ("power-loss", "crash-midway", "members", "return")


def compacting(seed: int, entries_kept: int, faults: tuple[str, ...]) -> Parameters:
    """Return drawn parameters with frequent checkpoints, few entries left in logs, and these faults
    besides those drawn."""
    drawn = Parameters.draw(seed, groups=6, safety_ms=30_000)
    kept_bytes = entries_kept * layout.ENTRY_HEADER_BYTES
    return dataclasses.replace(
        drawn, faults=drawn.faults + faults,
        compaction=CompactionParameters(kept_bytes, kept_bytes, 2 * drawn.disk.segment_bytes_max),
        disk=dataclasses.replace(drawn.disk, checkpoint_bytes=4096, checkpoint_growth_factor=0))


@pytest.mark.parametrize(("seed", "kept", "faults", "least"), [
    (10, 3, AWAY, 0),  # a partition was opened behind the checkpoint of a start
    (3, 0, AWAY, 0),  # batches with a slot among those in index files whose block is not cached
    (12, 0, AWAY, 5),
    (100, 3, CRASHING, 5),
    (102, 0, CRASHING, 10),
])
def test_replicas_behind_the_raft_start_install_snapshots_and_copy_all_records(
        seed, kept, faults, least):
    result = simulation.run(compacting(seed, kept, faults))
    assert not result.failure, result.failure
    assert result.event_counts["entries compacted"] > 100
    assert result.faults["group-snapshot-installed"] >= least
    assert result.event_counts["records copied"] >= least
