"""Parts that order compaction by key in the partitions that this node leads."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from node.assembly.env import NodeEnv
from node.assembly.metadata import MetadataParts
from node.assembly.peers import PeerParts
from node.assembly.reads import ReadParts
from node.assembly.retention import RetentionParts
from node.clock import wall_ms
from node.compaction.compaction_pass import CarriedOut, CompactionPasses
from node.compaction.compaction_task import CompactionTask, report_proposal
from node.compaction.generation_reports import GenerationReports
from node.metadata.node_releases import ReleaseGate, key_compaction_fault


@dataclass(frozen=True, slots=True)
class CompactionParts:
    """The passes of compaction by key, and their task."""

    passes: CompactionPasses
    task: CompactionTask


def build_compaction(env: NodeEnv, metadata: MetadataParts, peers: PeerParts, reads: ReadParts,
                     retention: RetentionParts) -> CompactionParts:
    """Build compaction by key, and have it told of altered settings."""
    config = env.config
    interval_ms = config.limits.retention_check_interval_ms
    reports = GenerationReports(env.core, env.store, peers.bulk)
    passes = CompactionPasses(
        env.core, env.store, metadata.log, retention.clocks, peers.liveness.clock_skew,
        ReleaseGate(metadata.log, key_compaction_fault), interval_ms,
        CarriedOut(env.store.carried_out, reports.elsewhere, reports.everywhere)
        if config.compaction.enabled else None,
        functools.partial(report_proposal, env.log))
    metadata.log.settings_altered.subscribe(passes.settings_altered)
    task = CompactionTask(passes, reports, reads.blocks, interval_ms, wall_ms, env.turns.take,
                          env.loop.request)
    return CompactionParts(passes, task)
