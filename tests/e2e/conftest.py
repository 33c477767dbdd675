"""Clusters of real processes, one per test module."""

from __future__ import annotations

import pytest

from tests.e2e import world as worlds


@pytest.fixture(scope="module")
def world(request, tmp_path_factory):
    """Yield nodes for this module; a module sets SHAPE = dict(nodes=, groups=, factor=, configure=)
    for others."""
    shape = getattr(request.module, "SHAPE", {})
    with worlds.start(tmp_path_factory.mktemp("cluster") / "dev", **shape) as started:
        yield started


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Add the nodes' last log lines to the report of a failed test."""
    report = yield
    started = getattr(item, "funcargs", {}).get("world")
    if report.failed and started is not None:
        report.sections.append(("node logs", started.logs()))
    return report
