"""Workloads of clients during faults: appends, reads, consumers, topics; in a table.

Contract.  A workload is ``async def run(context)``: a bounded number of logical processes sends
requests at a bounded rate until the workload is cancelled, and each request and its outcome is
written to the history.  It never raises because of a fault of the cluster; any exception that it
raises is a bug of the product's client, or of the harness, and ends this workload
(``chaos.run.crashes``).
"""

from __future__ import annotations

from collections.abc import Iterable

from chaos.workloads import (
    appends,
    churn,
    consumers,
    idempotent,
    kafka_appends,
    kafka_reads,
    kafka_topics,
    reads,
    retention,
    sinks,
)
from chaos.workloads.workload_context import Workload

#: name -> (workload, its line in the help)
WORKLOADS: dict[str, tuple[Workload, str]] = {
    "appends": (appends.run, "unique appends with each ack level, without retries"),
    "idempotent": (idempotent.run, "idempotent producers that pipeline, retry and replay"),
    "consumers": (consumers.run, "consumers with positions that are assigned anew"),
    "reads": (reads.run, "offsets read from any replica, linearizable ends, descriptions"),
    "sinks": (sinks.run, "batches staged in runs, and readers of committed records"),
    "churn": (churn.run, "topics created, used, deleted and created again"),
    "retention": (retention.run, "topics from which records leave by limits and by requests"),
    "kafka-appends": (kafka_appends.run, "clients of Kafka that append, idempotent or not, with "
                                         "each ack level"),
    "kafka-reads": (kafka_reads.run, "clients of Kafka with assigned partitions, ends, offsets of "
                                     "times"),
    "kafka-topics": (kafka_topics.run, "clients of Kafka that create, use and delete topics, and "
                                       "delete records"),
}
#: Workloads of clients of Kafka, which need a package of an extra.
KAFKA_WORKLOADS = frozenset(name for name in WORKLOADS if name.startswith("kafka-"))


def need_kafka(names: Iterable[str]) -> bool:
    """Return True if one of these workloads has clients of Kafka."""
    return not KAFKA_WORKLOADS.isdisjoint(names)
