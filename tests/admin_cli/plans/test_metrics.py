"""`multiraft metrics export`, and `rebalance plan --engine spark` as far as it needs no Java."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

import pyarrow.parquet as pq  # noqa: E402

from multiraft.wire import plans as wire  # noqa: E402
from placement import cluster as placed  # noqa: E402
from spark import gates, session, tables  # noqa: E402
from spark.errors import BadSnapshot  # noqa: E402
from tests.admin_cli.plans.test_rebalance import PlanClient, PlanCluster  # noqa: E402

HOUR_MS = 3_600_000


class Loaded(PlanCluster):
    """Two partitions in group 1, of which the second takes 100 records at every look."""

    def connect(self, addresses):
        super().connect(addresses)
        return LoadedClient(self)


class LoadedClient(PlanClient):
    def partition_loads(self, groups, address, timeout_ms=0):
        assert groups == (1, 2, 3, 4)
        self._cluster.looks += 1
        return [wire.PartitionLoad(7, "quiet", 0, 1, 1, 0, 5),
                wire.PartitionLoad(8, "busy", 0, 1, 2, 2, 100 * self._cluster.looks)]


@pytest.fixture
def cluster():
    return Loaded()


def test_what_the_cluster_knows_is_a_snapshot_that_passes_the_gates(run, tmp_path):
    out = tmp_path / "out"
    done = run("metrics", "export", "--output", str(out))
    assert not done.exit_code and "2 partitions" in done.output, done.output
    found = tables.read(str(out))
    gates.small(found, found.head.taken_ms, HOUR_MS)
    assert found.head.cluster_id == bytes(range(16)).hex() and found.head.partitions == 2
    assert {row["disk_used"] for row in found.nodes} == {5 << 20}
    rows = pq.read_table(out / "partitions.parquet").to_pylist()
    assert [(row["incarnation"], row["topic"], row["records"], row["links"]) for row in rows] == [
        (7, "quiet", 0, 0), (8, "busy", 50, 2)]
    snapshot = placed.checked(tables.as_snapshot(found, ()))
    assert snapshot.metadata_version == 17 and len(snapshot.groups) == 5
    again = run("metrics", "export", "--output", str(out))
    assert again.exit_code == 1 and "holds a snapshot already" in again.output


def test_a_node_that_is_down_is_in_the_export_and_no_plan_is_made_without_it(run, cluster,
                                                                             tmp_path):
    cluster.up.discard(3)
    assert not run("metrics", "export", "--output", str(tmp_path / "out")).exit_code
    found = tables.read(str(tmp_path / "out"))
    with pytest.raises(BadSnapshot, match="the loads of node 3 are not known") as raised:
        gates.small(found, found.head.taken_ms, HOUR_MS)
    assert "--scope repair" in raised.value.do


@pytest.mark.parametrize("flag", ["--master", "--snapshot", "--max-age", "--report"])
def test_flags_of_spark_are_refused_without_it(run, flag):
    done = run("rebalance", "plan", flag, "1")
    assert done.exit_code == 64 and f"{flag} goes with --engine spark" in done.output


def spark_plan(run):
    return run("rebalance", "plan", "--engine", "spark", "--snapshot", "x")


@pytest.mark.parametrize("version, said", [
    (None, "Spark needs Java 17 or newer, and there is none."), (11, "java is 11.")])
def test_without_java_the_one_line_to_run_is_told(run, monkeypatch, version, said):
    monkeypatch.setattr(session, "PACKAGES", ())
    monkeypatch.setattr(session, "java_path", lambda: "/opt/java")
    monkeypatch.setattr(session, "java_version", lambda path: version)
    done = spark_plan(run)
    assert done.exit_code == 1 and said in done.output
    assert "apt-get install -y" in done.output and "Traceback" not in done.output


def test_without_the_name_localhost_the_one_line_to_run_is_told(run, monkeypatch):
    monkeypatch.setattr(session, "PACKAGES", ())
    monkeypatch.setattr(session, "java_version", lambda path: session.JAVA_MIN)
    monkeypatch.setattr(session, "LOCALHOST", "no-such-name.invalid")
    done = spark_plan(run)
    assert done.exit_code == 1 and "needs the name no-such-name.invalid" in done.output
    assert "echo 127.0.0.1 no-such-name.invalid >>/etc/hosts" in done.output


def test_without_packages_the_extra_is_told(run, monkeypatch):
    monkeypatch.setattr(session, "PACKAGES", ("pyspark", "no_such_package"))
    done = spark_plan(run)
    assert "needs no_such_package, which is not installed" in done.output
    assert "pip install 'multiraft[spark]'" in done.output


@pytest.mark.parametrize("text, version", [
    ('openjdk version "17.0.15" 2025-04-15', 17), ('java version "1.8.0_402"', 8),
    ('openjdk version "25-ea"', 25), ("exec format error", None)])
def test_the_version_of_java_is_what_it_says(tmp_path, text, version):
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    java.chmod(0o755)
    assert session.java_version(str(java)) == version
    assert session.java_version(str(tmp_path / "none")) is None


def test_java_is_the_one_of_java_home(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert session.java_path() is None
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "java").chmod(0o755)
    assert session.java_path() == str(tmp_path / "bin" / "java")


@pytest.mark.parametrize("raised, said", [
    ("[PYTHON_EXCEPTION] An exception was thrown from the Python worker:\nTraceback (most recent "
     "call last):\n  File \"x.py\", line 1\nMemoryError: no room\n\tat org.apache.X(X.scala:3)",
     "MemoryError: no room."),
    ("An error occurred while calling o5.x.\n: java.lang.OutOfMemoryError: Java heap space\n\tat "
     "org.apache.X(X.scala)", "Java heap space."),
    ("[PATH_NOT_FOUND] Path does not exist: file:/x. SQLSTATE: 42K03", "[PATH_NOT_FOUND] Path does "
     "not exist: file:/x. SQLSTATE: 42K03."),
])
def test_what_spark_raises_is_told_without_its_stack(raised, said):
    assert session.sentence(RuntimeError(raised)) == said


def test_workers_get_the_packages_that_they_import(tmp_path):
    import zipfile

    names = zipfile.ZipFile(session.shipped(tmp_path)).namelist()
    assert {"placement/shed.py", "spark/loads.py"} <= {*names}


def test_a_package_that_workers_lack_is_named_with_the_python_that_needs_it():
    """Seen on a cluster whose workers ran the python3 of the path."""
    said = session.sentence(ValueError(
        "An error occurred while calling o93.collectToPython.\n: org.apache.spark.SparkException: "
        "Job aborted\nTraceback (most recent call last):\n"
        "ModuleNotFoundError: No module named 'numpy'\n"))
    assert said == "ModuleNotFoundError: No module named 'numpy'."
    assert "PYSPARK_PYTHON" in session.advice(said)
    assert session.LOG_VARIABLE in session.advice("OutOfMemoryError: Java heap space.")
