"""The round loop, the applier of committed entries, and the watchdog of stalled groups."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from multiraft.types import METADATA_GROUP
from node.assembly.admin import AdminParts
from node.assembly.clients import ClientParts
from node.assembly.compaction import CompactionParts
from node.assembly.env import NodeEnv
from node.assembly.metadata import MetadataParts
from node.assembly.peers import PeerParts
from node.assembly.reads import ReadParts
from node.assembly.replicas import ReplicaParts
from node.assembly.retention import RetentionParts
from node.assembly.storage import StorageParts
from node.clients.pending_appends import PendingAppends
from node.loop.applier import Applier
from node.loop.event_reports import EventReports
from node.loop.ready_driver import ReadyDriver
from node.loop.round_loop import RoundLoop
from node.loop.watchdog import Watchdog
from node.metadata.log import MetadataLog
from node.observability.change_reports import ChangeReports
from node.subscribers import Subscribers


@dataclass(frozen=True, slots=True)
class DriverParts:
    """The driver of the consensus core."""

    applier: Applier
    rounds: RoundLoop
    watchdog: Watchdog
    changes: ChangeReports


def build_driver(env: NodeEnv, storage: StorageParts, metadata: MetadataParts, peers: PeerParts,
                 reads: ReadParts, admin: AdminParts, clients: ClientParts,
                 replicas: ReplicaParts, retention: RetentionParts,
                 compaction: CompactionParts) -> DriverParts:
    """Build the round loop and attach it to the handle that all other parts have."""
    core, pending = env.core, clients.pending
    changes = ChangeReports(core, peers.liveness, lambda node: node in metadata.known.facts.nodes,
                            env.log, env.config.raft.lease_ms)
    led = Subscribers()
    led.subscribe(replicas.partition_deletion.lead)
    led.subscribe(retention.passes.lead)
    led.subscribe(compaction.passes.lead)
    replicas.compaction.raised.subscribe(compaction.passes.raised)
    applied = Subscribers()
    applied.subscribe(storage.trim.note)
    applied.subscribe(replicas.compaction.note)
    applier = Applier(
        core, env.store, metadata.log, pending, reads.fetch_handler, reads.read_index_requests,
        clients.sessions, admin.roles, replicas.replicas, EventReports(core, changes, env.log),
        replicas.applied, replicas.member_reports.note, replicas.partition_switcher.check,
        replicas.snapshots.on_snapshot_offer, led.notify, applied.notify)
    driver = ReadyDriver(core, env.store, storage.gather, peers.links, applier,
                         (core, pending, reads.fetch_handler, reads.read_index_requests),
                         peers.lease_events.publish)
    rounds = RoundLoop(driver, env.poller)
    env.loop.attach(rounds)
    watchdog = Watchdog(core, functools.partial(_oldest_waiting, pending, metadata.log),
                        env.loop.request, env.config.limits.group_stall_ms_max, env.log)
    return DriverParts(applier, rounds, watchdog, changes)


def _oldest_waiting(pending: PendingAppends, metadata_log: MetadataLog) -> dict[int, int]:
    """Return group -> index of its oldest proposal that waits on this node."""
    oldest = pending.oldest()
    command = metadata_log.oldest_waiting
    if command:
        oldest[METADATA_GROUP] = command
    return oldest
