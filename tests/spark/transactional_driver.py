"""A process that writes one batch as Spark's driver and its tasks do, and dies at a chosen step.

Contract.  ``run_batch`` does the steps of Spark for a batch: the writer is created, its tasks
stage, the driver commits, and Spark records that.  ``die_at`` names the step after which the
process kills itself with SIGKILL; "" = nowhere.  No code of the product knows of this.
"""

from __future__ import annotations

import os
import pickle
import signal
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.types import StructType

from multiraft.client.blocking import Client
from pyspark_multiraft import writing
from pyspark_multiraft.options import parse_write

TASKS = 3
ROWS = 12  # of a task, in as many partitions as there are, appended in two parts


class Job(NamedTuple):
    """Description of the batch, and the directory of Spark's own state."""

    servers: str
    topic: str
    sink: str
    batch: int
    directory: Path

    @property
    def log(self) -> Path:
        """True if Spark's log of commits has this batch."""
        return self.directory / f"committed-{self.batch}"

    @property
    def messages(self) -> Path:
        """Return the messages of the tasks to the driver."""
        return self.directory / f"messages-{self.batch}"

    def writer(self) -> writing.MultiRaftStreamWriter:
        options = parse_write({"servers": self.servers, "topic": self.topic, "sinkId": self.sink,
                               "mode": "transactional"})
        return writing.MultiRaftStreamWriter(options, StructType().add("value", "binary"))


def values(batch: int) -> set[bytes]:
    """Return all rows of a batch."""
    return {b"%d/%d/%d" % (batch, task, row) for task in range(TASKS) for row in range(ROWS)}


def rows(batch: int, task: int) -> list[pa.RecordBatch]:
    each = [b"%d/%d/%d" % (batch, task, row) for row in range(ROWS)]
    parts = pa.array([row % 2 for row in range(ROWS)], pa.int32())
    table = pa.table({"value": each, "partition": parts})
    return table.to_batches(max_chunksize=ROWS // 2)


def arm(die_at: str) -> None:
    """Kill this process after the step of that name."""

    def at(step: str) -> None:
        if step == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    asked, added = Client.sink_request, writing._Staging.add
    parts = []

    def sink_request(self, request):
        at(f"before {type(request).__name__}")
        reply = asked(self, request)
        at(f"taken {type(request).__name__}")
        return reply

    def add(self, batch):
        added(self, batch)
        self._producer.flush()
        parts.append(batch)
        at(f"part {len(parts)}")

    Client.sink_request, writing._Staging.add = sink_request, add
    globals()["at"] = at


def run_task(job: Job, task: int, nonce: bytes, die_at: str = "") -> None:
    """Run one attempt of a task; its message to the driver is kept."""
    if die_at:
        arm(die_at)
    found = writing.stage_task(job.writer()._options, writing.Attempt(job.sink, task, job.batch),
                               nonce, iter(rows(job.batch, task)))
    kept = pickle.loads(job.messages.read_bytes()) if job.messages.exists() else []
    job.messages.write_bytes(pickle.dumps([*kept, found]))


def run_batch(job: Job, die_at: str = "") -> None:
    """Run all tasks, the commit, and Spark's log."""
    arm(die_at)
    job.messages.unlink(missing_ok=True)
    writer = job.writer()
    for task in range(TASKS):
        run_task(job, task, writer._nonce)
    job.writer().commit(pickle.loads(job.messages.read_bytes()), job.batch)
    globals()["at"]("commit")
    job.log.write_text("v1")


def abort(job: Job) -> None:
    """Abort a failed batch as Spark may do it, in a process of its own: it has the messages of the
    tasks that have ended, and nothing from the others."""
    kept = pickle.loads(job.messages.read_bytes()) if job.messages.exists() else []
    job.writer().abort([*kept, *[None] * (TASKS - len(kept))], job.batch)
