"""Counters of one node, gathered in one place: what ``node_status`` answers and metrics show.

Contract.  ``snapshot`` and ``sample`` run on the loop, are O(1) in topics and groups and touch no
lock; what needs a look at every group comes from a ``Survey``.  Every key of ``snapshot`` is
documented in ``docs/protocol.md``, in this order.  Counters count from the start of the process.
The parts keep plain attributes; nothing is called when something happens.
"""

from __future__ import annotations

import platform
import resource
from dataclasses import dataclass, field

import multiraft
from node import health
from node.histogram import Histogram
from node.plans.state import ActivePlan
from node.survey import Survey

#: Bytes per page of ``/proc/self/statm``.
_PAGE_BYTES = resource.getpagesize()


@dataclass(slots=True)
class Sample:
    """All that is measured, at one moment.  Not changed once it is made."""

    counters: dict
    survey: Survey
    histograms: dict[str, Histogram] = field(default_factory=dict)
    #: Kind of request -> wire code -> how many.
    refusals: dict[str, dict[int, int]] = field(default_factory=dict)


class Statistics:
    """Reads the counters that the parts of a node keep."""

    def __init__(self, node):
        self._node = node

    def snapshot(self, survey: Survey) -> dict:
        """Whole numbers, but for the texts ``version``, ``phase`` and ``not_ready`` and the lists
        of groups."""
        verdict = health.readiness(self._node.life, survey)
        return {
            "version": multiraft.__version__,
            "phase": self._node.life.phase,
            "ready": int(verdict.good),
            "not_ready": verdict.reason,
            "uptime_ms": self._node.life.uptime_ms,
            "recovery_ms": self._node.life.recovery_ms,
            "boot_epoch": self._node.store.boot_epoch,
            **self._of_groups(survey),
            **self._of_requests(),
            **self._of_parts(),
            **_of_process(),
        }

    def _of_groups(self, survey: Survey) -> dict:
        node = self._node
        return {
            "groups": len(node.store.groups),
            "groups_led": node.core.status.led_count,
            "groups_awake": node.core.status.awake_count,
            "groups_quarantined": survey.quarantined.count,
            "groups_behind": survey.behind.count,
            "groups_leaderless": survey.leaderless.count,
            "groups_under_replicated": survey.under_replicated.count,
            "quarantined": list(survey.quarantined.groups),
            "leaderless": list(survey.leaderless.groups),
            "under_replicated": list(survey.under_replicated.groups),
            "lag_entries": survey.lag_entries,
            "log_bytes": survey.log_bytes,
            "disk_used_bytes": survey.disk_used_bytes,
            "disk_free_bytes": survey.disk_free_bytes,
            "disk_total_bytes": survey.disk_total_bytes,
            "elections_won": node.applying.elections,
            "groups_resigned": node.watchdog.resigned,
        }

    def _of_requests(self) -> dict:
        node = self._node
        return {
            "records_appended": node.producing.records,
            "batches_appended": node.producing.batches,
            "bytes_appended": node.producing.bytes,
            "batches_refused": node.producing.refused,
            "records_fetched": node.fetching.records,
            "bytes_fetched": node.fetching.bytes,
            "cold_reads": node.fetching.cold_reads,
        }

    def _of_parts(self) -> dict:
        node = self._node
        return {
            "disk_writes": node.disk.writes,
            "disk_bytes": node.disk.bytes_written,
            "disk_write_us": node.disk.latency.total_us,
            "rounds": node.rounds.rounds,
            "round_us_max": node.rounds.round_micros_max,
            "peer_frames": node.peers.frames_sent,
            "liveness_messages": node.liveness.messages,
            "bulk_bytes_sent": node.bulk.bytes_sent,
            "checkpoints": node.checkpoints.written,
            "entries_damaged": node.repairs.found,
            "replicas_repairing": node.repairs.waiting,
            "replicas_repaired": node.repairs.repaired,
            "scrub_bytes": node.scrub.bytes,
            "scrub_completed_ms": node.scrub.completed_ms,
            "scrub_active": int(node.scrub.active),
            "scrub_requested": int(node.scrub.requested_pace > 0),
            "scrub_pass_bytes": node.scrub.pass_bytes,
            "scrub_total_bytes": node.scrub.total_bytes,
            "scrub_bytes_per_second": node.scrub.pace,
            "scrub_passes": node.scrub.passes,
            "scrub_damaged": node.scrub.found,
            "disk_full": int(node.space.full),
            "snapshots_installed": node.snapshots.installed,
            "replicas_created": node.replicas.created,
            "replicas_removed": node.replicas.removed,
            "switches_under_way": len(node.metadata_log.state.placed.switches),
            "partitions_sealed": node.switching.sealed,
            "partitions_opened": node.switching.opened,
            "switches_published": node.switching.published,
            "loads_published": node.publishing.published,
            "loads_lost": node.publishing.lost,
            "loads_left_out": node.publishing.left_out,
            **of_plan(node.metadata_log.state.plans.active),
            "client_connections": node.listeners[0].connections,
            "client_connections_accepted": node.listeners[0].accepted,
            "client_connections_turned_away": node.listeners[0].turned_away,
            "client_connections_broken": node.sessions.closed_by_error,
        }

    def sample(self, survey: Survey) -> Sample:
        """For metrics: copies, which another thread may read at leisure."""
        node = self._node
        latencies = node.producing.latencies
        return Sample(
            self.snapshot(survey), survey,
            {"append_commit": latencies["commit"].copy(),
             "append_leader": latencies["leader"].copy(),
             "disk_write": node.disk.latency.copy(),
             "loop_delay": node.lease_events.loop_delay.copy(),
             "round": node.rounds.durations.copy()},
            {"produce": dict(node.producing.refusals), "fetch": dict(node.fetching.refusals),
             "whole": dict(node.sessions.refusals)})


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
    """What runs here, as labels."""
    return {"version": multiraft.__version__, "python": platform.python_version()}


def of_plan(plan: ActivePlan | None) -> dict:
    """Of the plan under way, as this node's metadata have it."""
    if plan is None:
        return {"plan_state": "none", "plan_moves": 0, "plan_moves_left": 0,
                "plan_moves_under_way": 0}
    return {"plan_state": plan.state, "plan_moves": len(plan.moves), "plan_moves_left": plan.left,
            "plan_moves_under_way": len(plan.under_way)}
