"""Counters of one node, as a plain map: what ``node_status`` answers.

Contract.  ``snapshot`` is O(1) in topics and touches no lock; it asks every group once whether it
is quarantined.  Every key is documented in ``docs/protocol.md``, in this order.  Counters count
from the start of the process.
"""

from __future__ import annotations

import resource


class Statistics:
    """Reads the counters that the parts of a node keep."""

    def __init__(self, node):
        self._node = node

    def snapshot(self) -> dict:
        """Whole numbers only."""
        node = self._node
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "boot_epoch": node.store.boot_epoch,
            "groups": len(node.store.groups),
            "groups_led": node.core.led_count,
            "groups_awake": node.core.awake_count,
            "groups_quarantined": node.core.quarantined_count,
            "elections_won": node.applying.elections,
            "groups_resigned": node.watchdog.resigned,
            "records_appended": node.producing.records,
            "batches_appended": node.producing.batches,
            "bytes_appended": node.producing.bytes,
            "batches_refused": node.producing.refused,
            "bytes_fetched": node.fetching.bytes,
            "cold_reads": node.fetching.cold_reads,
            "disk_writes": node.disk.writes,
            "disk_bytes": node.disk.bytes_written,
            "disk_write_us": node.disk.write_micros,
            "rounds": node.rounds.rounds,
            "round_us_max": node.rounds.round_micros_max,
            "peer_frames": node.peers.frames_sent,
            "liveness_messages": node.liveness.messages,
            "checkpoints": node.checkpoints.written,
            "client_connections": node.listeners[0].connections,
            "client_connections_accepted": node.listeners[0].accepted,
            "client_connections_turned_away": node.listeners[0].turned_away,
            "client_connections_broken": node.sessions.closed_by_error,
            "cpu_ms": round((usage.ru_utime + usage.ru_stime) * 1000),
            "memory_max_kib": usage.ru_maxrss,
        }
