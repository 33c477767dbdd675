"""Workloads of clients during faults: appends, reads, consumers, topics; in a table.

Contract.  A workload is ``async def run(context)``: a bounded number of logical processes sends
requests at a bounded rate until the workload is cancelled, and each request and its outcome is
written to the history.  It never raises because of a fault of the cluster; any exception that it
raises is a bug of the product's client, or of the harness, and ends this workload
(``chaos.run.crashes``).
"""

from __future__ import annotations

from chaos.workloads import appends, churn, consumers, idempotent, reads, retention, sinks
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
}
