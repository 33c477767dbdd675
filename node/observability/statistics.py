"""Counters of one node in one place, for ``node_status`` and metrics.

Contract.  ``snapshot`` and ``sample`` run on the loop, are O(nodes), O(1) in topics and groups, and
take no lock; values that need a scan of all groups come from a ``Survey``.  Every key of
``snapshot`` is documented in ``docs/protocol.md``, in this order.  Counters start with the process.
The parts keep plain attributes; no event calls this module.
"""

from __future__ import annotations

import platform
import resource
from collections.abc import Callable
from dataclasses import dataclass, field

import multiraft
from multiraft.raft.multi_raft import MultiRaft
from multiraft.storage.cold.cleaner import Cleaner
from multiraft.storage.store import Store
from multiraft.types import METADATA_GROUP
from node.clients.client_connection import ClientConnections
from node.clients.fetch import FetchHandler
from node.clients.listener import ConnectionCounts
from node.clients.produce import ProduceHandler
from node.clients.session import Sessions
from node.compaction.compaction_pass import CompactionPasses
from node.histogram import Histogram
from node.loop.applier import Applier
from node.loop.checkpoints import Checkpoints
from node.loop.disk_space import Space
from node.loop.round_loop import RoundLoop
from node.loop.scrub import Scrub
from node.loop.watchdog import Watchdog
from node.loop.write_gather import WriteGather
from node.metadata.log import MetadataLog
from node.metadata.plan_table import ActivePlan
from node.observability import health
from node.observability.group_health import Survey
from node.observability.kafka_port import KafkaPort
from node.observability.largest_topics import LargestTopics, LargeTopic
from node.observability.load_publisher import LoadPublisher
from node.observability.phase import Life
from node.peers.append_links import Peers
from node.peers.bulk_channel import Bulk
from node.peers.lease_events import LeaseEvents
from node.peers.liveness_thread import LivenessThread
from node.peers.registry import PeerRegistry
from node.peers.security import Security
from node.removal.segment_cleaner import SegmentCleaner
from node.removal.segment_remover import SegmentRemover
from node.replicas.lifecycle import Replicas
from node.replicas.log_compaction import LogCompaction
from node.replicas.partition_switch import PartitionSwitcher
from node.replicas.record_copies_task import RecordCopyTask
from node.replicas.repair import Repairs
from node.replicas.snapshots import Snapshots
from node.retention import retention_pass
from node.retention.clock_entries import ClockEntries
from node.retention.retention_pass import RetentionPasses

#: Bytes per page of ``/proc/self/statm``.
_PAGE_BYTES = resource.getpagesize()


@dataclass(slots=True)
class Sample:
    """All measurements at one moment.  Immutable once it is made."""

    counters: dict
    survey: Survey
    histograms: dict[str, Histogram] = field(default_factory=dict)
    #: Kind of request -> wire code -> count.
    refusals: dict[str, dict[int, int]] = field(default_factory=dict)
    #: Other node of the cluster -> True if it is up, as far as this node can tell.
    peers_up: dict[int, bool] = field(default_factory=dict)
    #: Other node -> microseconds from a heartbeat until its response.
    round_trips: dict[int, Histogram] = field(default_factory=dict)
    #: Port ``client`` or ``peer`` -> Unix time at which its certificate ends.
    certificates: dict[str, int] = field(default_factory=dict)
    #: The largest topics led here, the largest first.
    largest_topics: tuple[LargeTopic, ...] = ()
    kafka: KafkaPort = KafkaPort()


@dataclass(frozen=True, slots=True)
class CountingParts:
    """The parts of a node that keep counters."""

    life: Life
    store: Store
    core: MultiRaft
    applier: Applier
    watchdog: Watchdog
    produce_handler: ProduceHandler
    fetch_handler: FetchHandler
    disk: WriteGather
    rounds: RoundLoop
    peers: Peers
    liveness: LivenessThread
    bulk: Bulk
    checkpoints: Checkpoints
    repairs: Repairs
    scrub: Scrub
    remover: SegmentRemover
    cleaner: SegmentCleaner
    compaction: LogCompaction
    space: Space
    snapshots: Snapshots
    record_copies: RecordCopyTask
    replicas: Replicas
    metadata_log: MetadataLog
    partition_switcher: PartitionSwitcher
    retention: RetentionPasses
    key_compaction: CompactionPasses
    clocks: ClockEntries
    load_publisher: LoadPublisher
    sessions: Sessions
    client_connections: ClientConnections
    lease_events: LeaseEvents
    #: Of the client port.
    connections: ConnectionCounts
    known: PeerRegistry
    security: Security
    largest_topics: LargestTopics
    #: Returns the counters of the port for Kafka's clients.
    kafka: Callable[[], KafkaPort]


class Statistics:
    """Reader of the counters that the parts of a node keep."""

    def __init__(self, parts: CountingParts):
        self._parts = parts

    def snapshot(self, survey: Survey) -> dict:
        """Return the counters: integers, except for the texts ``version``, ``phase`` and
        ``not_ready`` and the lists of groups."""
        verdict = health.readiness(self._parts.life, survey)
        return {
            "version": multiraft.__version__,
            "phase": self._parts.life.phase,
            "ready": int(verdict.good),
            "not_ready": verdict.reason,
            "uptime_ms": self._parts.life.uptime_ms,
            "recovery_ms": self._parts.life.recovery_ms,
            "boot_epoch": self._parts.store.boot_epoch,
            **self._of_groups(survey),
            **self._of_requests(),
            **self._of_parts(),
            **_of_process(),
        }

    def _of_groups(self, survey: Survey) -> dict:
        parts = self._parts
        return {
            "groups": len(parts.store.groups),
            "groups_leading": parts.core.status.led_count,
            "groups_active": parts.core.status.active_count,
            "groups_quarantined": survey.quarantined.count,
            "groups_lagging": survey.behind.count,
            "groups_leaderless": survey.leaderless.count,
            "groups_under_replicated": survey.under_replicated.count,
            "quarantined": list(survey.quarantined.groups),
            "leaderless": list(survey.leaderless.groups),
            "under_replicated": list(survey.under_replicated.groups),
            "lag_entries": survey.lag_entries,
            "log_bytes": survey.log_bytes,
            "records_below_raft_start": survey.records_below_raft_start,
            "disk_used_bytes": survey.disk_used_bytes,
            "disk_free_bytes": survey.disk_free_bytes,
            "disk_total_bytes": survey.disk_total_bytes,
            "elections_won": parts.applier.elections,
            "leadership_resignations": parts.watchdog.resigned,
            "topics": parts.metadata_log.state.topics_count,
            "partitions": parts.metadata_log.state.partitions_count,
            "metadata_leader": self._metadata_leader(),
        }

    def _of_requests(self) -> dict:
        parts = self._parts
        return {
            "records_appended": parts.produce_handler.records,
            "batches_appended": parts.produce_handler.batches,
            "bytes_appended": parts.produce_handler.bytes,
            "batches_refused": parts.produce_handler.refused,
            "records_fetched": parts.fetch_handler.records,
            "bytes_fetched": parts.fetch_handler.bytes,
            "cold_reads": parts.fetch_handler.cold_reads,
            "resident_reads": parts.fetch_handler.resident_reads,
        }

    def _of_parts(self) -> dict:
        parts = self._parts
        return {
            "disk_writes": parts.disk.writes,
            "disk_bytes": parts.disk.bytes_written,
            "disk_write_us": parts.disk.latency.total_us,
            "rounds": parts.rounds.rounds,
            "round_us_max": parts.rounds.round_micros_max,
            "peer_frames_sent": parts.peers.frames_sent,
            "liveness_messages_sent": parts.liveness.messages,
            "clock_skew_ms": parts.liveness.clock_skew.skew_ms or 0,
            "clock_is_far": int(parts.liveness.clock_skew.is_far),
            "bulk_bytes_sent": parts.bulk.bytes_sent,
            "checkpoints": parts.checkpoints.written,
            "raft_entries_compacted": parts.compaction.entries_compacted,
            "segments_removed": parts.remover.segments_removed,
            "segments_removed_bytes": parts.remover.bytes_removed,
            "segments_leaving": parts.store.segments_leaving,
            "segments_held": parts.store.removals_waiting,
            **_of_cleaner(parts.store.cleaner, parts.cleaner),
            "cold_segments": len(parts.store.table.journal.cold),
            "cold_segments_bytes": parts.store.table.journal.cold.bytes,
            "entries_damaged": parts.repairs.found,
            "replicas_repairing": parts.repairs.waiting,
            "replicas_repaired": parts.repairs.repaired,
            "scrub_bytes": parts.scrub.bytes,
            "scrub_completed_ms": parts.scrub.completed_ms,
            "scrub_active": int(parts.scrub.active),
            "scrub_requested": int(parts.scrub.requested_pace > 0),
            "scrub_pass_bytes": parts.scrub.pass_bytes,
            "scrub_total_bytes": parts.scrub.total_bytes,
            "scrub_bytes_per_second": parts.scrub.pace,
            "scrub_passes": parts.scrub.passes,
            "scrub_damaged": parts.scrub.found,
            "disk_full": int(parts.space.full),
            "snapshots_installed": parts.snapshots.installed,
            "groups_copying": parts.record_copies.groups,
            "record_indexes_left": parts.record_copies.indexes_left,
            "records_copied": parts.record_copies.copied,
            "record_bytes_copied": parts.record_copies.bytes,
            "replicas_created": parts.replicas.created,
            "replicas_removed": parts.replicas.removed,
            "partition_switches_in_progress": len(parts.metadata_log.state.placed.switches),
            "partitions_sealed": parts.partition_switcher.sealed,
            "partitions_opened": parts.partition_switcher.opened,
            "partition_switches_published": parts.partition_switcher.published,
            "retention_log_starts": parts.retention.proposed,
            "retention_bytes_removed": parts.retention.bytes_removed,
            "retention_records_removed": parts.retention.records_removed,
            "retention_partitions_scheduled": parts.retention.scheduled,
            "retention_partitions_held": parts.retention.held,
            "retention_paused_clock": parts.retention.reasons[retention_pass.CLOCK],
            "retention_paused_releases": parts.retention.reasons[retention_pass.RELEASES],
            "clock_entries": parts.clocks.proposed,
            **_of_key_compaction(parts.key_compaction),
            "load_windows_published": parts.load_publisher.published,
            "load_windows_lost": parts.load_publisher.lost,
            "load_samples_dropped": parts.load_publisher.left_out,
            **of_plan(parts.metadata_log.state.plans.active),
            "client_connections": parts.connections.connections,
            "client_connections_accepted": parts.connections.accepted,
            "client_connections_rejected": parts.connections.rejected,
            "client_protocol_errors": parts.client_connections.closed_by_error,
            "client_requests_in_flight": parts.sessions.budget.requests,
            "client_requests_in_flight_max": parts.sessions.budget.requests_max,
            "client_bytes_in_flight": parts.sessions.budget.bytes,
            "client_bytes_in_flight_max": parts.sessions.budget.bytes_max,
        }

    def _metadata_leader(self) -> int:
        """Return the leader of the metadata group; 0 = none is known that can append."""
        recorded = self._parts.metadata_log.state.metadata_members()
        return self._parts.core.status.living_leader(METADATA_GROUP, recorded)

    def sample(self, survey: Survey) -> Sample:
        """Return a sample for metrics: copies, which another thread may read at any time."""
        parts = self._parts
        latencies = parts.produce_handler.latencies
        return Sample(
            self.snapshot(survey),
            survey,
            {
                "append_commit": latencies["commit"].copy(),
                "append_leader": latencies["leader"].copy(),
                "fetch": parts.fetch_handler.latency.copy(),
                "disk_write": parts.disk.latency.copy(),
                "loop_delay": parts.lease_events.loop_delay.copy(),
                "round": parts.rounds.durations.copy(),
            },
            {
                "produce": dict(parts.produce_handler.refusals),
                "fetch": dict(parts.fetch_handler.refusals),
                "whole": dict(parts.sessions.refusals),
            },
            {node.id: parts.core.status.is_up(node.id)
             for node in parts.known.peers()},
            {peer: histogram.copy()
             for peer, histogram in list(parts.liveness.round_trips.items())},
            dict(parts.security.expiries),
            parts.largest_topics.found,
            parts.kafka(),
        )


def _of_process() -> dict:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "cpu_ms": round((usage.ru_utime + usage.ru_stime) * 1000),
        "memory_bytes": _resident_bytes(),
        "memory_max_kib": usage.ru_maxrss,
    }


def _resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * _PAGE_BYTES


def build() -> dict[str, str]:
    """Return release and Python version, as labels of the metric ``multiraft_build_info``."""
    return {"version": multiraft.__version__, "python": platform.python_version()}


def of_plan(plan: ActivePlan | None) -> dict:
    """Return state and numbers of moves of the plan under way, by this node's metadata; None =
    state ``none`` and zeros."""
    if plan is None:
        return {"plan_state": "none", "plan_moves": 0, "plan_moves_remaining": 0,
                "plan_moves_in_progress": 0}
    return {"plan_state": plan.state, "plan_moves": len(plan.moves),
            "plan_moves_remaining": plan.left, "plan_moves_in_progress": len(plan.under_way)}


def _of_key_compaction(passes: CompactionPasses) -> dict:
    """Return the counters of compaction by key."""
    return {
        "key_compactions_proposed": passes.proposed,
        "key_compactions_refused": passes.refused,
        "key_compactions_in_progress": passes.in_flight,
        "key_compaction_candidates": passes.candidates,
        "key_compaction_dirty_bytes": passes.dirty_bytes,
        "key_compaction_dirty_percent_max": round(100 * passes.dirty_share_max),
    }


def _of_cleaner(cleaner: Cleaner, copies: SegmentCleaner) -> dict[str, int]:
    copying = copies.copying
    return {
        "cleaner_copied_segments": copies.copied_segments,
        "cleaner_copied_records": copies.copied_records,
        "cleaner_copied_bytes": copies.copied_bytes,
        "cleaner_active": int(copying is not None),
        "cleaner_copy_bytes": copying.bytes_to_copy if copying is not None else 0,
        "cleaner_copy_bytes_done": copying.bytes_copied if copying is not None else 0,
        "cleaner_paused": int(copies.pace.is_paused),
        "cleaner_bytes_per_second": copies.pace.bytes_per_second,
        "cleaner_waiting": cleaner.waiting,
        "cleanable_bytes": cleaner.segment_bytes,
        "cleanable_live_bytes": cleaner.live_bytes,
    }
