"""Pipeline: a stream that keeps the windows of ``__metrics`` as snapshots in Parquet.

    DIR/pipeline.json              which cluster, and how long a period is
    DIR/periods/END/               one snapshot each (docs/spark-planning.md); END in ms since 1970
    DIR/staging/batch=N/           records that are in no period yet
    DIR/checkpoint/                Spark's

Contract.  A batch of the stream is written under its number, replacing the files of an earlier
attempt, so a record is staged once.  A *period* is closed when a window is staged that ended
``GRACE_INTERVALS`` after it: nodes have appended their records of the period by then, and every
batch takes all records of the topic.  The records of the period become one compacted snapshot,
whose head is written last, so that a reader sees a whole snapshot or none.  Later records of the
period are left out.  Staged batches of closed periods are removed, and periods that are older than
``keep_ms``.

Only one process at a time runs on a directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pyarrow import fs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import DataStreamWriter

from placement import cluster
from spark import load_records, schema, tables, windows
from spark.errors import BadSnapshot
from spark.gates import named
from spark.load_records import TOPIC, Told
from spark.topic import Source
from spark.windows import Facts, Span

PIPELINE_FORMAT = 1
HEAD, PERIODS, STAGING, CHECKPOINT = "pipeline.json", "periods", "staging", "checkpoint"
#: Nodes append a window at most half an interval after its end.
GRACE_INTERVALS = 1


class Plan(NamedTuple):
    """Parameters of a pipeline; times in milliseconds.  ``facts()`` asks the cluster, ``now_ms()``
    the clock, ``tell(text)`` reports progress."""

    directory: str
    period_ms: int
    keep_ms: int
    facts: Callable[[], Facts]
    now_ms: Callable[[], int]
    tell: Callable[[str], None]


class Pipeline:
    """One pipeline on its directory."""

    def __init__(self, session: SparkSession, source: Source, plan: Plan):
        self._session = session
        self._source = source
        self._plan = plan
        self._system, self._path = tables.located(plan.directory)
        self._place = tables.place_of(plan.directory)
        self._refused: set[int] = set()  # impossible periods that were reported already

    # ---- running ------------------------------------------------------------------------------

    def run_once(self) -> None:
        """Stage all records of the topic, close the periods that have ended, then return: for cron.
        """
        query = self._writer().trigger(availableNow=True).start()
        query.awaitTermination()
        self._close_due()

    def run(self, every_s: float) -> None:
        """Stage new records and close periods every ``every_s`` seconds, until the query ends; its
        error is raised."""
        query = self._writer().trigger(processingTime=f"{max(1, int(every_s))} seconds").start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def _writer(self) -> DataStreamWriter:
        stream = (self._session.readStream.format("multiraft").options(**self._source.options)
                  .option("subscribe", TOPIC).option("columns", "value")
                  .option("startingOffsets", "earliest").option("failOnDataLoss", "false")
                  .load())
        return (stream.writeStream.queryName("multiraft-metrics-pipeline")
                .option("checkpointLocation", f"{self._place}/{CHECKPOINT}")
                .foreachBatch(self._staged))

    def _staged(self, batch: DataFrame, number: int) -> None:
        window = sf.get_json_object(sf.col("value").cast("string"), "$.window_ms")
        (batch.select("value", window.try_cast("bigint").alias("window_ms"))
         .write.mode("overwrite").option("compression", "zstd")
         .parquet(f"{self._place}/{STAGING}/batch={number}"))
        self._close_due()

    # ---- periods ------------------------------------------------------------------------------

    def _close_due(self) -> None:
        """Write the snapshots of periods that have ended, then remove files that are not needed.
        Does nothing before the first batch is staged."""
        if not self._numbers(STAGING, "batch="):
            return
        staged = (self._session.read.option("basePath", f"{self._place}/{STAGING}")
                  .schema("value binary, window_ms bigint, batch bigint")
                  .parquet(f"{self._place}/{STAGING}"))
        facts = self._plan.facts()
        recent = staged.filter(sf.col("window_ms") >= max(self._whole(), default=0))
        records = load_records.parsed(recent).cache()
        try:
            told = load_records.told(records, facts.snapshot.cluster_id)
            if told.complaint:
                self._plan.tell(told.complaint)
            if told.rows:
                self._close(records, told, facts)
        finally:
            records.unpersist()
        self._clean(staged)

    def _close(self, records: DataFrame, told: Told, facts: Facts) -> None:
        interval_ms = windows.interval_of(told)
        period_ms = max(interval_ms, self._plan.period_ms // interval_ms * interval_ms)
        last = max(self._whole(), default=0)
        begins = {row["window_ms"] for row in told.rows}
        due_ms = max(begins) + interval_ms - GRACE_INTERVALS * interval_ms
        for end in sorted({(begin // period_ms + 1) * period_ms for begin in begins}):
            if max(last, self._oldest_ms()) < end <= due_ms and end not in self._refused:
                heard = sorted(begin for begin in begins if end - period_ms <= begin < end
                               and windows.present(told, begin))
                if heard:
                    self._write(records, told, facts, Span(tuple(heard), interval_ms), end)

    def _oldest_ms(self) -> int:
        return self._plan.now_ms() - self._plan.keep_ms

    def _write(self, records: DataFrame, told: Told, facts: Facts, span: Span, end: int) -> None:
        usable = load_records.within(records, facts.snapshot.cluster_id, span.begins_ms[0],
                                     span.end_ms)
        when = tables.time_text(end)
        try:
            found = windows.write(usable, told, facts, span,
                                  f"{self._plan.directory}/{PERIODS}/{end}")
        except BadSnapshot as error:
            self._refused.add(end)
            self._plan.tell(f"period until {when} is left out: {error} {error.do}")
            return
        wanted = {row.id for row in facts.snapshot.nodes}
        silent = sorted(wanted - set(windows.present(told, span.begins_ms[-1])))
        lacking = f"; nothing of {named('node', silent)}" if silent else ""
        self._plan.tell(f"period until {when}: {len(span.begins_ms)} windows, {found:,} "
                        f"partitions{lacking}")

    def _clean(self, staged: DataFrame) -> None:
        """Remove staged batches whose windows are all in closed periods, and old periods."""
        last = max([*self._whole(), *self._refused], default=0)
        newest = {row["batch"]: row["newest"] for row in staged.groupBy("batch").agg(
            sf.max("window_ms").alias("newest")).toArrow().to_pylist()}
        for number in self._numbers(STAGING, "batch="):
            if (newest.get(number) or 0) < last:
                self._system.delete_dir(f"{self._path}/{STAGING}/batch={number}")
        for end in self._numbers(PERIODS, ""):
            if end < self._oldest_ms():
                _remove_period(self._system, f"{self._path}/{PERIODS}/{end}")

    def _whole(self) -> list[int]:
        return _whole(self._system, self._path)

    def _numbers(self, folder: str, prefix: str) -> list[int]:
        return _numbers(self._system, f"{self._path}/{folder}", prefix)


def _whole(system: fs.FileSystem, path: str) -> list[int]:
    """Return the ends of the periods whose head is written."""
    return [end for end in _numbers(system, f"{path}/{PERIODS}", "")
            if _exists(system, f"{path}/{PERIODS}/{end}/{schema.SNAPSHOT}.parquet")]


def _numbers(system: fs.FileSystem, path: str, prefix: str) -> list[int]:
    """Return the numbers of the directories ``prefix``N in ``path``, in order."""
    found = system.get_file_info(fs.FileSelector(path, allow_not_found=True))
    names = [info.base_name for info in found if info.type == fs.FileType.Directory]
    return sorted(int(name.removeprefix(prefix)) for name in names
                  if name.startswith(prefix) and name.removeprefix(prefix).isdigit())


def _remove_period(system: fs.FileSystem, path: str) -> None:
    """Remove the directory of a period, its head first: a partly removed period no longer counts as
    one."""
    if _exists(system, f"{path}/{schema.SNAPSHOT}.parquet"):
        system.delete_file(f"{path}/{schema.SNAPSHOT}.parquet")
    system.delete_dir(path)


def _exists(system: fs.FileSystem, path: str) -> bool:
    return system.get_file_info(path).type != fs.FileType.NotFound


# ---- directories --------------------------------------------------------------------------------

@contextlib.contextmanager
def held(directory: str, cluster_id: str, period_ms: int) -> Iterator[None]:
    """Create the directory, or check that it belongs to this cluster and period, and hold it
    exclusively while the block runs (where it is a local one).

    Raises ``BadSnapshot`` if it belongs to another cluster or period, another pipeline runs on it,
    or it cannot be written."""
    system, path = tables.located(directory)
    with contextlib.ExitStack() as stack:
        try:
            system.create_dir(path)
            if isinstance(system, fs.LocalFileSystem):
                _lock(stack, path, directory)
            _claim(system, path, directory, cluster_id, period_ms)
        except OSError as error:
            raise BadSnapshot(f"{directory} cannot be written: {error}.",
                              "Name a directory that may be created.") from error
        yield  # outside of the handler: an error in the block is not about the directory


def _lock(stack: contextlib.ExitStack, path: str, directory: str) -> None:
    lock = stack.enter_context(open(f"{path}/lock", "a", encoding="ascii"))
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise BadSnapshot(f"another pipeline runs on {directory}.",
                          "One is enough; end it, or name another directory.") from error


def _claim(system: fs.FileSystem, path: str, directory: str, cluster_id: str,
           period_ms: int) -> None:
    ours = {"format": PIPELINE_FORMAT, "cluster_id": cluster_id, "period_ms": period_ms}
    if not _exists(system, f"{path}/{HEAD}"):
        with tables.written(system, f"{path}/{HEAD}") as file:
            file.write(json.dumps(ours).encode())
        return
    theirs = _head(system, path, directory)
    for name, what in (("format", "format"), ("cluster_id", "cluster"),
                       ("period_ms", "period in milliseconds")):
        if theirs.get(name) != ours[name]:
            raise BadSnapshot(f"{directory} is a pipeline's with another {what}: "
                              f"{theirs.get(name)}, not {ours[name]}.",
                              "Name a directory of its own for each.")


def _head(system: fs.FileSystem, path: str, directory: str) -> dict:
    try:
        with system.open_input_stream(f"{path}/{HEAD}") as file:
            found = json.loads(file.read())
    except (ValueError, RecursionError) as error:  # RecursionError: nested too deeply
        raise BadSnapshot(f"{directory}/{HEAD} cannot be read: {error}.",
                          "Remove the directory; the pipeline makes it anew.") from error
    return found if isinstance(found, dict) else {}


def snapshot_in(directory: str, complete: bool = True) -> str:
    """Return the directory of the snapshot in ``directory``: that itself, or the latest period of a
    pipeline. Raises ``BadSnapshot`` for a pipeline without a period.

    ``complete``: the latest period in whose last window every node that is not dead reported its
    loads, or the latest of all if there is none."""
    system, path = tables.located(directory)
    if not _exists(system, f"{path}/{HEAD}"):
        return directory
    found = [f"{directory.rstrip('/')}/{PERIODS}/{end}" for end in _whole(system, path)]
    if not found:
        raise BadSnapshot(f"the pipeline in {directory} has no complete period yet.",
                          "One is written when it is over: multiraft metrics pipeline --once")
    for period in reversed(found) if complete else ():
        if all(row["measured_ms"] or row["state"] == cluster.DEAD
               for row in tables.read(period).nodes):
            return period
    return found[-1]  # the gates report what it lacks
