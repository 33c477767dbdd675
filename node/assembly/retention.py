"""Parts that decide which records leave the partitions that this node leads."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from node.assembly.env import NodeEnv
from node.assembly.metadata import MetadataParts
from node.assembly.peers import PeerParts
from node.assembly.reads import ReadParts
from node.clock import wall_ms
from node.config import NodeConfig
from node.metadata.node_releases import ReleaseGate, retention_entries_fault
from node.observability.load_records import TOPIC
from node.retention.clock_entries import CLOCK_INTERVAL_MS, ClockEntries
from node.retention.retention_pass import RetentionPasses
from node.retention.retention_policy import RETENTION_MS
from node.retention.retention_task import RetentionTask, report_pause


@dataclass(frozen=True, slots=True)
class RetentionParts:
    """The passes of retention, the clocks that they measure ages by, and the task."""

    clocks: ClockEntries
    passes: RetentionPasses
    task: RetentionTask


def settings_of_node(config: NodeConfig) -> dict[str, dict[str, str]]:
    """Return topic that nodes make -> settings that it has from the configuration of a node."""
    return {TOPIC: {RETENTION_MS: str(config.metrics.retention_ms)}}


def build_retention(env: NodeEnv, metadata: MetadataParts, peers: PeerParts,
                    reads: ReadParts) -> RetentionParts:
    """Build retention, have it told of altered settings, and answer other nodes about epochs that
    ended in groups of this one."""
    core, store, config = env.core, env.store, env.config
    interval_ms = config.limits.retention_check_interval_ms
    skew = peers.liveness.clock_skew
    gate = ReleaseGate(metadata.log, retention_entries_fault)
    clocks = ClockEntries(core, store.partition_states, skew, gate, wall_ms,
                          min(CLOCK_INTERVAL_MS, interval_ms))
    passes = RetentionPasses(
        core, store, metadata.log, clocks, skew, gate, interval_ms,
        {topic: tuple(values.items()) for topic, values in settings_of_node(config).items()},
        functools.partial(report_pause, env.log))
    metadata.log.settings_altered.subscribe(passes.settings_altered)
    task = RetentionTask(config.node.id, passes, store, metadata.log, core.status, peers.control,
                         reads.blocks, interval_ms, wall_ms, env.turns.take, env.loop.request,
                         env.log)
    peers.bulk.handlers.update(task.handlers)
    return RetentionParts(clocks, passes, task)
