"""One Spark session for all tests of a process, and the clusters that they read.

Contract.  Without Java the tests are skipped, with the line that installs it.  The session has two
cores, no user interface, and directories of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from spark import session as spark_session
from spark.errors import NoSpark
from tests.client.fake_cluster import ThreadedCluster
from tests.e2e import world as worlds
from tests.tidy import tree


@pytest.fixture(scope="session")
def spark(tmp_path_factory) -> Iterator[object]:
    """Yield a session with two cores."""
    try:
        spark_session.check_machine()
    except NoSpark as error:
        pytest.skip(f"{error} {error.do}")
    from pyspark.sql import SparkSession

    home = tmp_path_factory.mktemp("spark")
    # Workers import the same packages as this process, wherever it was started.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tree.ROOT))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        settings = {
            "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2",
            "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.warehouse.dir": str(home / "warehouse"), "spark.local.dir": str(home),
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={home} -XX:TieredStopAtLevel=1",
            "spark.sql.session.timeZone": "UTC", "spark.log.level": "ERROR",
            "spark.sql.python.filterPushdown.enabled": "true"}
        builder = SparkSession.builder.master("local[2]").appName("tests")
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        yield session
        session.stop()


@pytest.fixture(scope="session")
def world(tmp_path_factory) -> Iterator[worlds.World]:
    """Yield a cluster of one node: these tests do not cover replication."""
    with worlds.start(tmp_path_factory.mktemp("cluster") / "dev", 1, 4, 1) as started:
        yield started


@pytest.fixture
def fake() -> Iterator[object]:
    """Yield a cluster that a test controls: it loses records, deletes topics."""
    threaded = ThreadedCluster()
    with threaded:
        yield threaded


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Add the node's last log lines to a failure."""
    report = yield
    started = getattr(item, "funcargs", {}).get("world")
    if report.failed and started is not None:
        report.sections.append(("node logs", started.logs()))
    return report
