"""Metrics in Prometheus's formats, rendered from one ``Sample`` by a table of families.

Contract.  ``render`` runs on request, off the loop; no event on the loop calls this module.  Names,
types and labels are those of ``docs/metrics.md``; a test compares the two.  No label has a value
per topic or group: nodes, ack levels, codes and phases only.

Theory.  The parts of a node keep plain integers.  They are read on the loop without interruption
(``statistics.Sample``), so that the numbers of one scrape are consistent, and formatted elsewhere.
While a node recovers, or when its loop does not answer, values that need no loop are still exposed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from multiraft.wire.errors import Code
from node.histogram import Histogram
from node.metadata.plan_table import CANCELLING, PAUSED, RUNNING
from node.observability.phase import RECOVERING, SERVING, STARTING, STOPPING, Life
from node.observability.statistics import Sample, build

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"

#: (label values, value) of each series.
Rows = Iterable[tuple[tuple[str, ...], float | Histogram]]


class Family(NamedTuple):
    """One metric; ``read`` gives its rows."""

    name: str  # as exposed, with ``_total`` and unit
    kind: str
    labels: tuple[str, ...]
    help: str
    read: Callable[[Sample], Rows]


def _one(key: str, scale: float = 1) -> Callable[[Sample], Rows]:
    """Return a reader of one key of the snapshot, times ``scale``."""

    def read(sample: Sample) -> Rows:
        return [((), sample.counters[key] * scale)]

    return read


def _histograms(**keys: str) -> Callable[[Sample], Rows]:
    """Return a reader of histograms: label value -> name of a histogram in the sample."""
    return lambda sample: [((label,), sample.histograms[key]) for label, key in keys.items()]


def _histogram(key: str) -> Callable[[Sample], Rows]:
    return lambda sample: [((), sample.histograms[key])]


def _rejections(sample: Sample) -> Rows:
    return [((request, Code(code).name), count)
            for request, codes in sample.refusals.items() for code, count in codes.items()]


def _peers(which: int) -> Callable[[Sample], Rows]:
    """Return a reader of each peer's lag: 0 = entries, 1 = bytes."""
    return lambda sample: [((str(peer),), lag[which])
                           for peer, lag in sorted(sample.survey.peer_lag.items())]


#: States of a plan that is not over; ``node.metadata.plan_table`` has the names.
_PLAN_STATES = (RUNNING, PAUSED, CANCELLING)


def _plan_states(sample: Sample) -> Rows:
    return [((state,), int(sample.counters["plan_state"] == state)) for state in _PLAN_STATES]


#: Families of a node whose loop answers, in the order of ``docs/metrics.md``.
FAMILIES = (
    # ---- appends and fetches
    Family("multiraft_appended_records_total", COUNTER, (),
           "Records appended here as leader.", _one("records_appended")),
    Family("multiraft_appended_batches_total", COUNTER, (),
           "Batches appended here as leader, repeats included.", _one("batches_appended")),
    Family("multiraft_appended_bytes_total", COUNTER, (),
           "Bytes of those batches.", _one("bytes_appended")),
    Family("multiraft_fetched_records_total", COUNTER, (),
           "Records answered to fetches, from the offsets asked for on.", _one("records_fetched")),
    Family("multiraft_fetched_bytes_total", COUNTER, (),
           "Bytes of batches answered to fetches.", _one("bytes_fetched")),
    Family("multiraft_cold_reads_total", COUNTER, (),
           "Fetches that had to read from disk.", _one("cold_reads")),
    Family("multiraft_append_seconds", HISTOGRAM, ("acks",),
           "From accepting a produce request to answering that it is in, by ack level.",
           _histograms(commit="append_commit", leader="append_leader")),
    Family("multiraft_rejections_total", COUNTER, ("request", "reason"),
           "Definite refusals by wire code: batches of produce, partitions of fetch, whole "
           "requests.", _rejections),
    # ---- groups
    Family("multiraft_groups", GAUGE, (), "Replicas on this node.", _one("groups")),
    Family("multiraft_groups_led", GAUGE, (), "Groups led here.", _one("groups_led")),
    Family("multiraft_groups_awake", GAUGE, (),
           "Timers that are armed: groups that are not quiesced, open questions to nodes.",
           _one("groups_awake")),
    Family("multiraft_groups_quarantined", GAUGE, (),
           "Replicas that are damaged and not repaired.", _one("groups_quarantined")),
    Family("multiraft_groups_behind", GAUGE, (),
           "Replicas that lack what their leader has committed, or cannot know.",
           _one("groups_behind")),
    Family("multiraft_groups_leaderless", GAUGE, (),
           "Replicas that know no leader whose node is up.", _one("groups_leaderless")),
    Family("multiraft_groups_under_replicated", GAUGE, (),
           "Groups led here with a voter that is down, cannot be fed or lacks much.",
           _one("groups_under_replicated")),
    Family("multiraft_elections_won_total", COUNTER, (),
           "Times a group began to be led here.", _one("elections_won")),
    Family("multiraft_groups_resigned_total", COUNTER, (),
           "Times a group was given up because nothing moved in it.", _one("groups_resigned")),
    Family("multiraft_replica_lag_entries", GAUGE, (),
           "Entries the furthest behind replica here lacks of what its leader committed.",
           _one("lag_entries")),
    Family("multiraft_peer_lag_entries", GAUGE, ("peer",),
           "Most entries that a node lacks of any one group led here.", _peers(0)),
    Family("multiraft_peer_lag_bytes", GAUGE, ("peer",),
           "Bytes that a node lacks of all groups led here.", _peers(1)),
    # ---- disk and log
    Family("multiraft_disk_write_seconds", HISTOGRAM, (),
           "Gathered writes of the journal, each synced.", _histogram("disk_write")),
    Family("multiraft_disk_writes_total", COUNTER, (),
           "Those writes, probes included.", _one("disk_writes")),
    Family("multiraft_disk_written_bytes_total", COUNTER, (), "Their bytes.", _one("disk_bytes")),
    Family("multiraft_disk_used_bytes", GAUGE, (),
           "Files of the data directory.", _one("disk_used_bytes")),
    Family("multiraft_disk_free_bytes", GAUGE, (),
           "Free on the data directory's filesystem.", _one("disk_free_bytes")),
    Family("multiraft_disk_size_bytes", GAUGE, (),
           "Size of that filesystem.", _one("disk_total_bytes")),
    Family("multiraft_log_bytes", GAUGE, (),
           "Entries of all groups here that are not compacted.", _one("log_bytes")),
    Family("multiraft_checkpoints_total", COUNTER, (), "Checkpoints written.",
           _one("checkpoints")),
    Family("multiraft_entries_damaged_total", COUNTER, (),
           "Entries that a read found damaged.", _one("entries_damaged")),
    Family("multiraft_replicas_repairing", GAUGE, (),
           "Replicas under repair from their peers.", _one("replicas_repairing")),
    Family("multiraft_replicas_repaired_total", COUNTER, (),
           "Replicas that came back from repair.", _one("replicas_repaired")),
    Family("multiraft_scrub_read_bytes_total", COUNTER, (),
           "Bytes of the log that the scrub has read and checked.", _one("scrub_bytes")),
    Family("multiraft_scrub_completed_milliseconds", GAUGE, (),
           "When the scrub last came to the end, in milliseconds since 1970; 0 = never.",
           _one("scrub_completed_ms")),
    Family("multiraft_scrub_pass_bytes", GAUGE, (),
           "Bytes of the log that the scrub's pass under way has behind it.",
           _one("scrub_pass_bytes")),
    Family("multiraft_scrub_total_bytes", GAUGE, (),
           "Bytes of the log: what a pass of the scrub reads.", _one("scrub_total_bytes")),
    Family("multiraft_scrub_damaged_total", COUNTER, (),
           "Entries and checkpoints that the scrub found damaged.", _one("scrub_damaged")),
    Family("multiraft_disk_full", GAUGE, (),
           "1 while records are refused because only the reserve is left.", _one("disk_full")),
    Family("multiraft_snapshots_installed_total", COUNTER, (),
           "Snapshots of the metadata that this node took over.", _one("snapshots_installed")),
    Family("multiraft_replicas_created_total", COUNTER, (),
           "Replicas that this node took up.", _one("replicas_created")),
    Family("multiraft_replicas_removed_total", COUNTER, (),
           "Replicas that this node let go.", _one("replicas_removed")),
    # ---- switches and plans
    Family("multiraft_switches_under_way", GAUGE, (),
           "Partitions whose switch to another group is decided, and which are not open there.",
           _one("switches_under_way")),
    Family("multiraft_partitions_sealed_total", COUNTER, (),
           "Seals proposed here for switches.", _one("partitions_sealed")),
    Family("multiraft_partitions_opened_total", COUNTER, (),
           "Openings proposed here for switches.", _one("partitions_opened")),
    Family("multiraft_switches_published_total", COUNTER, (),
           "Switches that this node reported as open.", _one("switches_published")),
    Family("multiraft_loads_published_total", COUNTER, (),
           "Windows of loads that this node appended to __metrics.", _one("loads_published")),
    Family("multiraft_loads_lost_total", COUNTER, (),
           "Windows of loads that could not be appended in time.", _one("loads_lost")),
    Family("multiraft_loads_left_out_total", COUNTER, (),
           "Batches and answers of partitions beyond metrics.partitions_max.",
           _one("loads_left_out")),
    Family("multiraft_plan_state", GAUGE, ("state",),
           "1 for the state of the cluster's plan, 0 for others; all 0 without one.",
           _plan_states),
    Family("multiraft_plan_moves", GAUGE, (),
           "Moves of the plan under way.", _one("plan_moves")),
    Family("multiraft_plan_moves_left", GAUGE, (),
           "Moves of it that have not ended.", _one("plan_moves_left")),
    Family("multiraft_plan_moves_under_way", GAUGE, (),
           "Moves of it that have begun and not ended.", _one("plan_moves_under_way")),
    # ---- loop and network
    Family("multiraft_loop_delay_seconds", HISTOGRAM, (),
           "From nudging the loop until it answers, each liveness interval.",
           _histogram("loop_delay")),
    Family("multiraft_round_seconds", HISTOGRAM, (),
           "Rounds of the loop.", _histogram("round")),
    Family("multiraft_peer_frames_total", COUNTER, (),
           "Append frames sent to peers.", _one("peer_frames")),
    Family("multiraft_bulk_sent_bytes_total", COUNTER, (),
           "Bytes sent on bulk connections: repair and its like.", _one("bulk_bytes_sent")),
    Family("multiraft_liveness_messages_total", COUNTER, (),
           "Heartbeats and responses to them that were sent.", _one("liveness_messages")),
    Family("multiraft_client_connections", GAUGE, (),
           "Client connections that are open.", _one("client_connections")),
    Family("multiraft_client_connections_accepted_total", COUNTER, (),
           "Client connections accepted.", _one("client_connections_accepted")),
    Family("multiraft_client_connections_turned_away_total", COUNTER, (),
           "Client connections closed at once, because of the limit.",
           _one("client_connections_turned_away")),
    Family("multiraft_client_connections_broken_total", COUNTER, (),
           "Client connections ended by bytes that are not the protocol.",
           _one("client_connections_broken")),
    # ---- the process
    Family("multiraft_boot_epoch", GAUGE, (),
           "Number of this start of the data directory.", _one("boot_epoch")),
    Family("multiraft_recovery_seconds", GAUGE, (),
           "How long recovery took at this start.", _one("recovery_ms", 0.001)),
)

#: Families that need no loop: (name, labels, help).
_LIFE = (
    ("multiraft_build_info", ("version", "python"), "What runs here; always 1."),
    ("multiraft_phase", ("phase",), "1 for the phase of the node's life it is in, 0 for others."),
    ("multiraft_ready", (), "What /readyz says: 1 = every replica here has caught up."),
    ("multiraft_loop_answers", (), "Whether the loop answered this scrape in time."),
    ("multiraft_uptime_seconds", (), "Since the process began."),
    ("multiraft_recovery_segments", ("state",), "Segments that recovery found and has read."),
)
_PHASES = (RECOVERING, STARTING, SERVING, STOPPING)


def _of_life(life: Life, sample: Sample | None) -> Iterator[Metric]:
    labels = build()
    rows: dict[str, list[tuple[tuple[str, ...], float]]] = {
        "multiraft_build_info": [(tuple(labels.values()), 1)],
        "multiraft_phase": [((phase,), int(phase == life.phase)) for phase in _PHASES],
        "multiraft_ready": [((), sample.counters["ready"] if sample is not None else 0)],
        "multiraft_loop_answers": [((), int(sample is not None))],
        "multiraft_uptime_seconds": [((), life.uptime_ms / 1000)],
        "multiraft_recovery_segments": [(("found",), life.recovery.segments_total),
                                        (("read",), life.recovery.segments_done)],
    }
    for name, names, text in _LIFE:
        family = GaugeMetricFamily(name, text, labels=names)
        for values, value in rows[name]:
            family.add_metric(values, value)
        yield family


def _of_sample(family: Family, sample: Sample) -> Metric:
    if family.kind == HISTOGRAM:
        histograms = HistogramMetricFamily(family.name, family.help, labels=family.labels)
        for values, histogram in family.read(sample):
            assert isinstance(histogram, Histogram)
            histograms.add_metric(values, histogram.buckets(), histogram.total_us / 1_000_000)
        return histograms
    kind = CounterMetricFamily if family.kind == COUNTER else GaugeMetricFamily
    made = kind(family.name, family.help, labels=family.labels)
    for values, value in family.read(sample):
        assert not isinstance(value, Histogram)
        made.add_metric(values, value)
    return made


class _Once(Collector):
    """Collector of one scrape's values."""

    def __init__(self, life: Life, sample: Sample | None):
        self._life = life
        self._sample = sample

    def collect(self) -> Iterator[Metric]:
        yield from _of_life(self._life, self._sample)
        if self._sample is not None:
            for family in FAMILIES:
                yield _of_sample(family, self._sample)


def registry_of(life: Life, sample: Sample | None) -> CollectorRegistry:
    """Return all metrics; ``sample`` None = the loop gave none."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_Once(life, sample))
    return registry


def render(life: Life, sample: Sample | None, accept: str) -> tuple[str, bytes]:
    """Return (content type, body) in the format that ``accept`` asks for."""
    encoder, content_type = choose_encoder(accept)
    return content_type, encoder(registry_of(life, sample))
