"""`multiraft sink`, against the ledger itself."""

from __future__ import annotations

import json

import pytest

from multiraft.wire.sinks import AbortRun, AbortRunReply, CommitRun, OpenRun, SinkListReply
from node.metadata_sinks import SinkTable
from tests.admin_cli.fakes import FakeClient, FakeCluster


class Ledger(FakeCluster):
    """One sink has committed batch 0 and left batch 1 open."""

    def __init__(self):
        super().__init__()
        self.table = SinkTable()
        for command in (OpenRun("delays", 0, bytes(16)), CommitRun(1, 1, 0),
                        OpenRun("delays", 1, bytes(16))):
            self.table.apply(command)

    def connect(self, addresses):
        super().connect(addresses)
        return Client(self)


class Client(FakeClient):
    """The part of the client that sinks need."""

    def sink_request(self, request):
        if isinstance(request, AbortRun):
            return AbortRunReply(self._cluster.table.apply(request).value)
        return SinkListReply(*self._cluster.table.rows(request.after, 1))


@pytest.fixture
def cluster():
    return Ledger()


def test_sinks_and_what_they_left_open_are_shown(run, cluster):
    done = run("sink", "list")
    assert done.exit_code == 0 and "delays" in done.output and "open batch" in done.output
    assert json.loads(run("sink", "list", "--json").stdout) == {"sinks": [
        {"sink": "delays", "number": 1, "runs": 2, "committed_batch": 0, "open_batch": 1}]}


def test_an_open_run_is_given_up_once(run, cluster):
    assert "Batch 1 of delays is given up" in run("sink", "abort", "delays").output
    assert "no batch of delays is open" in run("sink", "abort", "delays").output
    assert json.loads(run("sink", "abort", "delays", "--json").stdout) == {
        "sink": "delays", "batch": None, "aborted": False}
    assert cluster.table.rows(0, 1)[0][0].last_batch == 0


def test_a_sink_that_does_not_exist_is_named(run, cluster):
    done = run("sink", "abort", "other")
    assert done.exit_code == 4 and "no sink 'other'" in done.output
