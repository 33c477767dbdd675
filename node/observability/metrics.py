"""Metrics in Prometheus's formats, rendered from one ``Sample`` by a table of families.

Contract.  ``render`` runs on request, off the loop; no event on the loop calls this module.  Names,
types and labels are those of ``docs/metrics.md``; a test compares the two.  Labels
have values for nodes, ack levels, codes and phases, and for the ``TOPICS_MAX`` largest topics; no
metric has a series per topic or group.

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
from node.retention.retention_pass import CLOCK, RELEASES

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
    """Return a reader of the counter ``key`` of a sample, times ``scale``."""

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
    """Return a reader of each peer's lag in a sample: ``which`` 0 = entries, 1 = bytes."""
    return lambda sample: [((str(peer),), lag[which])
                           for peer, lag in sorted(sample.survey.peer_lag.items())]


def _of_kafka(field: str) -> Callable[[Sample], Rows]:
    """Return a reader of a number of the port for Kafka's clients."""
    return lambda sample: [((), getattr(sample.kafka, field))]


def _by_name(field: str) -> Callable[[Sample], Rows]:
    """Return a reader of the numbers of that port by name."""
    return lambda sample: [((name,), count)
                           for name, count in getattr(sample.kafka, field).items()]


def _peers_up(sample: Sample) -> Rows:
    return [((str(peer),), int(is_up)) for peer, is_up in sorted(sample.peers_up.items())]


def _largest_bytes(sample: Sample) -> Rows:
    return [((topic.name,), topic.bytes) for topic in sample.largest_topics]


def _largest_records(sample: Sample) -> Rows:
    return [((topic.name,), topic.records) for topic in sample.largest_topics]


def _round_trips(sample: Sample) -> Rows:
    return [((str(peer),), histogram) for peer, histogram in sorted(sample.round_trips.items())]


def _certificates(sample: Sample) -> Rows:
    return [((port,), end) for port, end in sorted(sample.certificates.items())]


def _metadata_leader_known(sample: Sample) -> Rows:
    return [((), int(sample.counters["metadata_leader"] > 0))]


#: States of a plan that is not over; ``node.metadata.plan_table`` has the names.
_PLAN_STATES = (RUNNING, PAUSED, CANCELLING)


def _plan_states(sample: Sample) -> Rows:
    return [((state,), int(sample.counters["plan_state"] == state)) for state in _PLAN_STATES]


def _paused(sample: Sample) -> Rows:
    return [((reason,), sample.counters[f"retention_paused_{reason}"])
            for reason in (CLOCK, RELEASES)]


#: Families of a node whose loop answers, in the order of ``docs/metrics.md``.
FAMILIES = (
    # ---- appends and fetches
    Family("multiraft_appended_records_total", COUNTER, (),
           "Records appended here as leader.",
           _one("records_appended")),
    Family("multiraft_appended_batches_total", COUNTER, (),
           "Batches appended here as leader, duplicates included.",
           _one("batches_appended")),
    Family("multiraft_appended_bytes_total", COUNTER, (),
           "Bytes of those batches.", _one("bytes_appended")),
    Family("multiraft_fetched_records_total", COUNTER, (),
           "Records returned to fetches, from the requested offsets on.",
           _one("records_fetched")),
    Family("multiraft_fetched_bytes_total", COUNTER, (),
           "Bytes of batches returned to fetches.",
           _one("bytes_fetched")),
    Family("multiraft_cold_reads_total", COUNTER, (),
           "Fetches that read from disk.",
           _one("cold_reads")),
    Family("multiraft_resident_reads_total", COUNTER, (),
           "Ranges of entries that fetches found in the page cache.",
           _one("resident_reads")),
    Family("multiraft_fetch_duration_seconds", HISTOGRAM, (),
           "Time from the receipt of a fetch to its reply, of fetches that did not wait for "
           "records.",
           _histogram("fetch")),
    Family("multiraft_append_duration_seconds", HISTOGRAM, ("acks",),
           "Time from the receipt of a produce request to its reply, by ack level.",
           _histograms(commit="append_commit", leader="append_leader")),
    Family("multiraft_rejections_total", COUNTER, ("request", "reason"),
           "Definite errors by wire code: batches of produce, partitions of fetch, whole "
           "requests.",
           _rejections),
    # ---- groups
    Family("multiraft_groups", GAUGE, (), "Replicas on this node.", _one("groups")),
    Family("multiraft_groups_leading", GAUGE, (),
           "Groups that this node leads.",
           _one("groups_leading")),
    Family("multiraft_groups_active", GAUGE, (),
           "Groups that are not quiesced, and heartbeats without an answer.",
           _one("groups_active")),
    Family("multiraft_groups_quarantined", GAUGE, (),
           "Replicas that are damaged and not repaired.",
           _one("groups_quarantined")),
    Family("multiraft_groups_lagging", GAUGE, (),
           "Replicas that lack committed entries, or cannot know whether they do.",
           _one("groups_lagging")),
    Family("multiraft_groups_leaderless", GAUGE, (),
           "Replicas that know no leader whose node is up.",
           _one("groups_leaderless")),
    Family("multiraft_groups_under_replicated", GAUGE, (),
           "Groups led here with a voter that is down, receives no entries or lags.",
           _one("groups_under_replicated")),
    Family("multiraft_elections_won_total", COUNTER, (),
           "Elections and transfers that made this node the leader of a group.",
           _one("elections_won")),
    Family("multiraft_leadership_resignations_total", COUNTER, (),
           "Leaderships resigned because an append made no progress.",
           _one("leadership_resignations")),
    Family("multiraft_replica_lag_entries", GAUGE, (),
           "Committed entries that the most lagging replica here lacks.",
           _one("lag_entries")),
    Family("multiraft_peer_lag_entries", GAUGE, ("peer",),
           "Entries that a peer lacks of the group led here in which it lags most.",
           _peers(0)),
    Family("multiraft_peer_lag_bytes", GAUGE, ("peer",),
           "Bytes that a peer lacks of all groups led here.",
           _peers(1)),
    Family("multiraft_peer_up", GAUGE, ("peer",),
           "1 if a peer supports this node or is supported by it, 0 if not.",
           _peers_up),
    Family("multiraft_metadata_leader_known", GAUGE, (),
           "1 if this node knows a leader of the metadata group whose node is up.",
           _metadata_leader_known),
    Family("multiraft_topics", GAUGE, (),
           "Topics of the cluster, as this node has applied the metadata.",
           _one("topics")),
    Family("multiraft_partitions", GAUGE, (),
           "Partitions of these topics.",
           _one("partitions")),
    # ---- retention
    Family("multiraft_retention_log_starts_total", COUNTER, (),
           "Log starts that this node proposed because of limits of topics.",
           _one("retention_log_starts")),
    Family("multiraft_retention_removed_bytes_total", COUNTER, (),
           "Bytes of records that left their partitions with these log starts.",
           _one("retention_bytes_removed")),
    Family("multiraft_retention_removed_records_total", COUNTER, (),
           "Records that left their partitions with these log starts.",
           _one("retention_records_removed")),
    Family("multiraft_retention_scheduled_partitions", GAUGE, (),
           "Partitions led here whose oldest records have a time at which they are due.",
           _one("retention_partitions_scheduled")),
    Family("multiraft_retention_held_partitions", GAUGE, (),
           "Partitions led here that keep all records, because groups of earlier epochs have some.",
           _one("retention_partitions_held")),
    Family("multiraft_retention_paused", GAUGE, ("reason",),
           "1 while nothing leaves by age (`clock`) or at all (`releases`), else 0.",
           _paused),
    Family("multiraft_clock_entries_total", COUNTER, (),
           "CLOCK entries that this node proposed.",
           _one("clock_entries")),
    # ---- compaction by key
    Family("multiraft_key_compactions_total", COUNTER, (),
           "COMPACT entries that this node proposed.",
           _one("key_compactions_proposed")),
    Family("multiraft_key_compactions_refused_total", COUNTER, (),
           "COMPACT entries that the log of their group refused; they are proposed again.",
           _one("key_compactions_refused")),
    Family("multiraft_key_compactions_in_progress", GAUGE, (),
           "Partitions led here with a COMPACT entry that is not carried out yet.",
           _one("key_compactions_in_progress")),
    Family("multiraft_key_compaction_candidates", GAUGE, (),
           "Partitions of compacted topics led here whose records are counted for the next COMPACT "
           "entry.",
           _one("key_compaction_candidates")),
    Family("multiraft_key_compaction_dirty_bytes_total", COUNTER, (),
           "Bytes that the proposed COMPACT entries name and none before them did.",
           _one("key_compaction_dirty_bytes")),
    Family("multiraft_key_compaction_dirty_percent_max", GAUGE, (),
           "Largest share of a partition that was never compacted, in percent, in the last pass "
           "that compared one.",
           _one("key_compaction_dirty_percent_max")),
    # ---- disk and log
    Family("multiraft_disk_write_duration_seconds", HISTOGRAM, (),
           "Time of one write to the journal, its sync included.",
           _histogram("disk_write")),
    Family("multiraft_disk_writes_total", COUNTER, (),
           "Writes to the journal, probes included.",
           _one("disk_writes")),
    Family("multiraft_disk_written_bytes_total", COUNTER, (),
           "Bytes written to the journal.",
           _one("disk_bytes")),
    Family("multiraft_disk_used_bytes", GAUGE, (),
           "Size of the files in the data directory.",
           _one("disk_used_bytes")),
    Family("multiraft_disk_free_bytes", GAUGE, (),
           "Free bytes of the filesystem of the data directory.",
           _one("disk_free_bytes")),
    Family("multiraft_disk_size_bytes", GAUGE, (),
           "Size of that filesystem.",
           _one("disk_total_bytes")),
    Family("multiraft_log_bytes", GAUGE, (),
           "Size of all log entries here that are not compacted, and of the records below.",
           _one("log_bytes")),
    Family("multiraft_records_below_raft_start", GAUGE, (),
           "Batches below the Raft starts of all groups here, kept to be read.",
           _one("records_below_raft_start")),
    Family("multiraft_raft_entries_compacted_total", COUNTER, (),
           "Entries that left Raft logs here; batches among them stay as records.",
           _one("raft_entries_compacted")),
    Family("multiraft_checkpoints_total", COUNTER, (), "Checkpoints written.",
           _one("checkpoints")),
    Family("multiraft_segments_removed_total", COUNTER, (),
           "Segments whose files were unlinked, because nothing needs them.",
           _one("segments_removed")),
    Family("multiraft_segments_removed_bytes_total", COUNTER, (),
           "Size of these files, index files included.",
           _one("segments_removed_bytes")),
    Family("multiraft_segments_leaving", GAUGE, (),
           "Segments that nothing needs, and whose files go after the next checkpoints.",
           _one("segments_leaving")),
    Family("multiraft_segments_held", GAUGE, (),
           "Segments that nothing needs, and that stay because the journal has too many gaps.",
           _one("segments_held")),
    Family("multiraft_cleaner_copied_bytes_total", COUNTER, (),
           "Bytes of records that the cleaner copied into cold segments.",
           _one("cleaner_copied_bytes")),
    Family("multiraft_cleaner_copy_bytes", GAUGE, (),
           "Bytes of records in the copy that the cleaner is making; 0 = it makes none.",
           _one("cleaner_copy_bytes")),
    Family("multiraft_cleaner_copy_bytes_done", GAUGE, (),
           "Those of them that are in the new cold segment.", _one("cleaner_copy_bytes_done")),
    Family("multiraft_cleaner_paused", GAUGE, (), "1 while the cleaner is paused.",
           _one("cleaner_paused")),
    Family("multiraft_cleaner_waiting", GAUGE, (),
           "Cold segments whose sources go after the next checkpoints.",
           _one("cleaner_waiting")),
    Family("multiraft_cold_segments", GAUGE, (), "Cold segments.", _one("cold_segments")),
    Family("multiraft_cold_segments_bytes", GAUGE, (),
           "Size of the cold segments, without index files.", _one("cold_segments_bytes")),
    Family("multiraft_cleanable_bytes", GAUGE, (),
           "Size of the segments that the cleaner may copy, when it last examined them.",
           _one("cleanable_bytes")),
    Family("multiraft_cleanable_live_bytes", GAUGE, (),
           "Bytes of the records in these segments.", _one("cleanable_live_bytes")),
    Family("multiraft_entries_damaged_total", COUNTER, (),
           "Entries that a read found damaged.",
           _one("entries_damaged")),
    Family("multiraft_replicas_repairing", GAUGE, (),
           "Replicas under repair from their peers.",
           _one("replicas_repairing")),
    Family("multiraft_replicas_repaired_total", COUNTER, (),
           "Replicas whose repair is complete.",
           _one("replicas_repaired")),
    Family("multiraft_scrub_read_bytes_total", COUNTER, (),
           "Bytes of the journal that the scrub has verified.",
           _one("scrub_bytes")),
    Family("multiraft_scrub_completed_timestamp_seconds", GAUGE, (),
           "Unix time at which the last scrub was complete; 0 = never.",
           _one("scrub_completed_ms", 0.001)),
    Family("multiraft_scrub_pass_read_bytes", GAUGE, (),
           "Bytes that the running scrub has verified.",
           _one("scrub_pass_bytes")),
    Family("multiraft_scrub_pass_size_bytes", GAUGE, (),
           "Bytes that a whole scrub verifies.",
           _one("scrub_total_bytes")),
    Family("multiraft_scrub_damaged_total", COUNTER, (),
           "Entries and checkpoints that the scrub found damaged.",
           _one("scrub_damaged")),
    Family("multiraft_disk_full", GAUGE, (),
           "1 while records are refused because only the reserve is free.",
           _one("disk_full")),
    Family("multiraft_snapshots_installed_total", COUNTER, (),
           "Snapshots of groups that this node installed.",
           _one("snapshots_installed")),
    Family("multiraft_groups_copying", GAUGE, (),
           "Replicas that lack records, after a snapshot, and copy them from other members.",
           _one("groups_copying")),
    Family("multiraft_record_indexes_left", GAUGE, (),
           "Indexes of their logs at which records are lacking.",
           _one("record_indexes_left")),
    Family("multiraft_records_copied_total", COUNTER, (),
           "Records copied from other members, after snapshots.",
           _one("records_copied")),
    Family("multiraft_record_copied_bytes_total", COUNTER, (),
           "Bytes of records copied from other members, after snapshots.",
           _one("record_bytes_copied")),
    Family("multiraft_replicas_created_total", COUNTER, (),
           "Replicas created on this node.",
           _one("replicas_created")),
    Family("multiraft_replicas_removed_total", COUNTER, (),
           "Replicas removed from this node.",
           _one("replicas_removed")),
    # ---- switches and plans
    Family("multiraft_partition_switches_in_progress", GAUGE, (),
           "Partition switches decided and not yet open in their new group, in the whole "
           "cluster.",
           _one("partition_switches_in_progress")),
    Family("multiraft_partitions_sealed_total", COUNTER, (),
           "Partition seals proposed by this node.",
           _one("partitions_sealed")),
    Family("multiraft_partitions_opened_total", COUNTER, (),
           "Partition opens proposed by this node.",
           _one("partitions_opened")),
    Family("multiraft_partition_switches_published_total", COUNTER, (),
           "Partition switches that this node published as open.",
           _one("partition_switches_published")),
    Family("multiraft_load_windows_published_total", COUNTER, (),
           "Load windows that this node appended to __metrics.",
           _one("load_windows_published")),
    Family("multiraft_load_windows_lost_total", COUNTER, (),
           "Load windows that could not be appended in time.",
           _one("load_windows_lost")),
    Family("multiraft_load_samples_dropped_total", COUNTER, (),
           "Batches and fetch replies without a row, because their partitions are beyond "
           "metrics.partitions_max.",
           _one("load_samples_dropped")),
    Family("multiraft_plan_state", GAUGE, ("state",),
           "1 for the state of the cluster's plan, 0 for others; all 0 without a plan.",
           _plan_states),
    Family("multiraft_plan_moves", GAUGE, (),
           "Moves of the current plan.",
           _one("plan_moves")),
    Family("multiraft_plan_moves_remaining", GAUGE, (),
           "Moves of the current plan that have not ended.",
           _one("plan_moves_remaining")),
    Family("multiraft_plan_moves_in_progress", GAUGE, (),
           "Moves of the current plan that have begun and not ended.",
           _one("plan_moves_in_progress")),
    # ---- loop and network
    Family("multiraft_loop_delay_seconds", HISTOGRAM, (),
           "Time until the event loop answers a probe, one per heartbeat interval.",
           _histogram("loop_delay")),
    Family("multiraft_round_duration_seconds", HISTOGRAM, (),
           "Time of one round of the driver.",
           _histogram("round")),
    Family("multiraft_peer_frames_sent_total", COUNTER, (),
           "Frames with Raft messages sent to peers.",
           _one("peer_frames_sent")),
    Family("multiraft_bulk_sent_bytes_total", COUNTER, (),
           "Bytes of repair, snapshots and copies sent on bulk connections.",
           _one("bulk_bytes_sent")),
    Family("multiraft_liveness_messages_sent_total", COUNTER, (),
           "Heartbeats and responses to them that were sent.",
           _one("liveness_messages_sent")),
    Family("multiraft_peer_round_trip_seconds", HISTOGRAM, ("peer",),
           "Time from a heartbeat to a peer until its response.",
           _round_trips),
    Family("multiraft_clock_skew_seconds", GAUGE, (),
           "Wall clock of this node minus the median of the clocks that it hears.",
           _one("clock_skew_ms", 0.001)),
    Family("multiraft_client_connections", GAUGE, (),
           "Open client connections.",
           _one("client_connections")),
    Family("multiraft_client_connections_accepted_total", COUNTER, (),
           "Client connections accepted.",
           _one("client_connections_accepted")),
    Family("multiraft_client_connections_rejected_total", COUNTER, (),
           "Client connections closed at once, because limits.connections_max were open, or "
           "limits.connections_per_address_max from one address.",
           _one("client_connections_rejected")),
    Family("multiraft_client_protocol_errors_total", COUNTER, (),
           "Client connections closed because of a protocol violation.",
           _one("client_protocol_errors")),
    Family("multiraft_client_requests_in_flight", GAUGE, (),
           "Unanswered requests of all clients.",
           _one("client_requests_in_flight")),
    Family("multiraft_client_requests_in_flight_limit", GAUGE, (),
           "Their limit, limits.node_requests_in_flight_max.",
           _one("client_requests_in_flight_max")),
    Family("multiraft_client_in_flight_bytes", GAUGE, (),
           "Bytes of unanswered appends, and of large frames that are arriving.",
           _one("client_bytes_in_flight")),
    Family("multiraft_client_in_flight_limit_bytes", GAUGE, (),
           "Their limit, limits.node_bytes_in_flight_max.",
           _one("client_bytes_in_flight_max")),
    Family("multiraft_kafka_connections", GAUGE, (),
           "Open connections of Kafka's clients, which multiraft_client_connections has as well.",
           _of_kafka("connections")),
    Family("multiraft_kafka_connections_accepted_total", COUNTER, (),
           "Connections of Kafka's clients accepted.",
           _of_kafka("accepted")),
    Family("multiraft_kafka_connections_closed_total", COUNTER, ("reason",),
           "Connections of Kafka's clients that the node closed: for a request that is not "
           "supported or not well-formed, too many partitions, a response that has no encoding, or "
           "other reasons (deadlines, TLS, failed appends without acks).",
           _by_name("closed")),
    Family("multiraft_kafka_requests_total", COUNTER, ("api",),
           "Requests of Kafka's clients, by API.",
           _by_name("requests")),
    Family("multiraft_kafka_errors_total", COUNTER, ("error",),
           "Errors in responses to Kafka's clients: one for each partition, topic or response that "
           "has it.",
           _by_name("errors")),
    Family("multiraft_kafka_received_bytes_total", COUNTER, (),
           "Bytes of requests of Kafka's clients.",
           _of_kafka("received_bytes")),
    Family("multiraft_kafka_sent_bytes_total", COUNTER, (),
           "Bytes of responses to Kafka's clients.",
           _of_kafka("sent_bytes")),
    Family("multiraft_kafka_held_answers", GAUGE, (),
           "Answers to Kafka's clients that wait for the answer to an earlier request.",
           _of_kafka("held_answers")),
    Family("multiraft_kafka_held_bytes", GAUGE, (),
           "Bytes of those.",
           _of_kafka("held_bytes")),
    Family("multiraft_kafka_requests_waiting", GAUGE, (),
           "Requests of Kafka's clients that wait in tasks of their own, 1,024 at most.",
           _of_kafka("waiting")),
    Family("multiraft_kafka_requests_passed_on", GAUGE, (),
           "Requests of Kafka's clients that are with the metadata leader, at most "
           "limits.passed_on_requests_max.",
           _of_kafka("passed_on")),
    Family("multiraft_certificate_expiry_timestamp_seconds", GAUGE, ("port",),
           "Unix time at which the certificate of the port client or peer ends; absent without "
           "TLS.",
           _certificates),
    Family("multiraft_topic_bytes", GAUGE, ("topic",),
           "Bytes of a topic in the groups led here, of its partitions whose bytes are known; "
           "only the 20 largest topics, as of the last minute or longer.",
           _largest_bytes),
    Family("multiraft_topic_records", GAUGE, ("topic",),
           "Records of the same topics, from log start to end, in the groups led here.",
           _largest_records),
    # ---- the process
    Family("multiraft_boot_epoch", GAUGE, (),
           "Number of starts of the data directory.",
           _one("boot_epoch")),
    Family("multiraft_recovery_duration_seconds", GAUGE, (),
           "Time that recovery took at this start.",
           _one("recovery_ms", 0.001)),
)

#: Families that need no loop: (name, labels, help).
_LIFE = (
    ("multiraft_build_info", ("version", "python"),
     "Release and Python version of the node; always 1."),
    ("multiraft_phase", ("phase",),
     "1 for the phase that the node is in, 0 for others."),
    ("multiraft_ready", (),
     "1 if every replica here has caught up, as /readyz reports."),
    ("multiraft_loop_responsive", (),
     "1 if the event loop answered this scrape in time."),
    ("multiraft_uptime_seconds", (),
     "Time since the process began."),
    ("multiraft_recovery_segments", ("state",),
     "Segments that recovery found, and those that it has read."),
)
_PHASES = (RECOVERING, STARTING, SERVING, STOPPING)


def _of_life(life: Life, sample: Sample | None) -> Iterator[Metric]:
    labels = build()
    rows: dict[str, list[tuple[tuple[str, ...], float]]] = {
        "multiraft_build_info": [(tuple(labels.values()), 1)],
        "multiraft_phase": [((phase,), int(phase == life.phase)) for phase in _PHASES],
        "multiraft_ready": [((), sample.counters["ready"] if sample is not None else 0)],
        "multiraft_loop_responsive": [((), int(sample is not None))],
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
    """Return a registry of all metrics for one scrape; ``sample`` None = only those that need no
    loop."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_Once(life, sample))
    return registry


def render(life: Life, sample: Sample | None, accept: str) -> tuple[str, bytes]:
    """Return (content type, body) of all metrics in the format that the header ``accept`` asks for;
    ``sample`` None = only those that need no loop."""
    encoder, content_type = choose_encoder(accept)
    return content_type, encoder(registry_of(life, sample))
