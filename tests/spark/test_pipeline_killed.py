"""A pipeline that is killed between any two effects: its next run continues, and no record is lost,
doubled or half visible.

Effects of Python on the directory are interrupted by SIGKILL at every one, in a process of its own,
without Spark.  Spark repeats its own effects: the states that a kill leaves are created directly.
"""

from __future__ import annotations

import json
import os
import signal

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from pyarrow import fs  # noqa: E402

from spark import pipeline, tables  # noqa: E402
from spark.pipeline import PERIODS, Pipeline, Plan  # noqa: E402
from tests.spark.test_load_records import (  # noqa: E402
    BEGIN_MS,
    CLUSTER,
    INTERVAL_MS,
    both,
    facts,
)

PERIOD_MS = 2 * INTERVAL_MS
SIZE = 60 * INTERVAL_MS
END = BEGIN_MS + PERIOD_MS
EFFECTS_MAX = 60


# ---- killed at every effect ---------------------------------------------------------------------

class _File:
    """File that writes to the disk at once.  The first writes are effects, and so is the close."""

    closed = False

    def __init__(self, effect, path):
        self._effect, self._file = effect, open(path, "wb", buffering=0)
        self._torn = 2

    def write(self, data):
        if self._torn:
            self._effect()
            self._torn -= 1
        return self._file.write(data)

    def flush(self):
        pass

    def close(self):
        if not self.closed:
            self._effect()
            self._file.close()
            self.closed = True


class _Killing(fs.FileSystemHandler):
    """Local files; the process is killed before the given effect."""

    def __init__(self, effects):
        self._left = effects
        self._local = fs.LocalFileSystem()

    def effect(self):
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1

    def get_type_name(self):
        return "killing"

    def normalize_path(self, path):
        return path

    def get_file_info(self, paths):
        return self._local.get_file_info(paths)

    def get_file_info_selector(self, selector):
        return self._local.get_file_info(selector)

    def open_input_stream(self, path):
        return self._local.open_input_stream(path)

    def open_input_file(self, path):
        return self._local.open_input_file(path)

    def create_dir(self, path, recursive):
        self.effect()
        self._local.create_dir(path, recursive=recursive)

    def open_output_stream(self, path, metadata):
        self.effect()
        return pa.PythonFile(_File(self.effect, path), mode="w")

    def move(self, src, dest):
        self.effect()
        self._local.move(src, dest)

    def delete_file(self, path):
        self.effect()
        self._local.delete_file(path)

    def delete_dir(self, path):
        """Remove the files one by one, as Arrow does; the head last, if it exists."""
        for info in sorted(self._local.get_file_info(fs.FileSelector(path)),
                           key=lambda info: (info.base_name.startswith("snapshot"), info.path)):
            self.effect()
            self._local.delete_file(info.path)
        self.effect()
        self._local.delete_dir(path)

    def _unused(self, *arguments):
        """End the process at an effect that no test expects."""
        raise AssertionError(f"an effect that is not counted: {arguments}")

    copy_file = delete_dir_contents = delete_root_dir_contents = _unused
    open_append_stream = _unused


def killed_everywhere(do, check):
    """Run ``do(system)`` again and again, killed one effect later each time, until it ends;
    ``check()`` the files each time.  Returns the number of kills."""
    for effects in range(EFFECTS_MAX):
        child = os.fork()
        if not child:
            status = 1
            try:
                do(fs.PyFileSystem(_Killing(effects)))
                status = 0
            finally:
                os._exit(status)  # the child must not run pytest's own shutdown
        status = os.waitpid(child, 0)[1]
        check()
        if not os.WIFSIGNALED(status):
            assert os.WEXITSTATUS(status) == 0
            return effects
        assert os.WTERMSIG(status) == signal.SIGKILL
    raise AssertionError("it does not end")


@pytest.fixture
def written_period(tmp_path):
    """Return a function that writes one period to a system, and one that reads it."""
    period = tmp_path / PERIODS / str(END)
    snapshot = facts().snapshot._replace(taken_ms=END)

    def write(system):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tables, "located", lambda directory: (system, str(directory)))
            tables.write(snapshot, str(period), INTERVAL_MS, {}, {})

    def whole():
        ends = pipeline._whole(fs.LocalFileSystem(), str(tmp_path))
        return [tables.read(str(tmp_path / PERIODS / str(end))) for end in ends]

    return write, whole, period


def test_a_period_is_written_whole_or_not_at_all(written_period):
    write, whole, _ = written_period

    def check():
        for found in whole():
            assert len(found.nodes) == 2 and len(found.groups) == 3

    assert killed_everywhere(write, check) > 10
    assert len(whole()) == 1


def test_a_period_that_is_removed_is_none_from_the_first_step_on(written_period):
    write, whole, period = written_period

    def remove(system):
        pipeline._remove_period(system, str(period))

    write(fs.LocalFileSystem())
    assert killed_everywhere(remove, whole) > 1  # reading a half removed period would raise
    assert not period.exists()


def test_a_directory_that_was_killed_when_it_was_made_is_taken_by_the_next_run(tmp_path):
    directory = str(tmp_path / "kept")

    def claim(system):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tables, "located", lambda _: (system, directory))
            with pipeline.held(directory, CLUSTER, PERIOD_MS):
                pass

    assert killed_everywhere(claim, lambda: None) >= 3
    with pipeline.held(directory, CLUSTER, PERIOD_MS):
        assert pipeline._head(fs.LocalFileSystem(), directory, directory)["cluster_id"] == CLUSTER


# ---- what Spark does again ----------------------------------------------------------------------

def batch(session, *windows):
    """Return records of both nodes, as the stream passes them."""
    values = [(json.dumps(each).encode(),) for window in windows
              for each in both(window, (11, 1, SIZE * (window + 1)), (12, 2, SIZE))]
    return session.createDataFrame(values, "value binary")


def rows(directory, end):
    """Return (window, partition, rate) of a period, in order."""
    found = pq.read_table(f"{directory}/{PERIODS}/{end}/partitions.parquet").to_pylist()
    return sorted(((row["window_ms"] - BEGIN_MS) // INTERVAL_MS, row["incarnation"],
                   row["ingress"]) for row in found)


def test_a_batch_that_is_run_again_is_in_its_periods_once(spark, tmp_path):
    told = []
    plan = Plan(str(tmp_path), PERIOD_MS, 1 << 40, facts, lambda: BEGIN_MS, told.append)

    def expected(*windows):
        return sorted((window, *row) for window in windows
                      for row in ((11, 60 * 1000 * (window + 1)), (12, 60 * 1000)))

    # Killed when the batch was staged, and while the partitions of its period were written.
    first = batch(spark, 0, 1, 2, 3)
    begins = [BEGIN_MS + at // 2 * INTERVAL_MS for at in range(8)]
    (tmp_path / "staging" / "batch=0").mkdir(parents=True)
    pq.write_table(pa.table({"value": first.toArrow().column("value"), "window_ms": begins}),
                   tmp_path / "staging" / "batch=0" / "part-0.parquet")
    for torn in ("staging/batch=0/_temporary/0/part-1.parquet",
                 f"{PERIODS}/{END}/partitions.parquet/part-0.parquet",
                 f"{PERIODS}/{END}/partitions.parquet/_temporary/0/part-1.parquet",
                 f"{PERIODS}/{END}/nodes.parquet", f"{PERIODS}/{END}/_snapshot.parquet"):
        (tmp_path / torn).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / torn).write_bytes(b"PAR1 torn")
    assert pipeline._whole(fs.LocalFileSystem(), str(tmp_path)) == []
    # Spark did not record the batch as done: the next process runs it again.
    Pipeline(spark, None, plan)._staged(first, 0)
    assert rows(tmp_path, END) == expected(0, 1)
    # The batch after that closes the next period, with the rest of the first batch.
    Pipeline(spark, None, plan)._staged(batch(spark, 4), 1)
    assert rows(tmp_path, END) == expected(0, 1)
    assert rows(tmp_path, END + PERIOD_MS) == expected(2, 3)
    assert pipeline._whole(fs.LocalFileSystem(), str(tmp_path)) == [END, END + PERIOD_MS]
    assert [text for text in told if "period until" in text] == told and len(told) == 2
    assert [path.name for path in (tmp_path / "staging").iterdir()] == ["batch=1"]
