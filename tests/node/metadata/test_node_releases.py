"""Releases of nodes: leaders propose entries that decide retention once all nodes know them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import multiraft
from node.metadata.commands import NodeRecord
from node.metadata.node_releases import (
    DATA_SNAPSHOTS_SINCE,
    ReleaseGate,
    data_snapshots_fault,
    retention_entries_fault,
)


def node(number: int, version: str) -> NodeRecord:
    return NodeRecord(number, 100 + number, 1, f"a:{number}", f"b:{number}", "rack", 100, version,
                      0)


@pytest.mark.parametrize("version", [multiraft.__version__, "0.2.0", "0.2", "0.2.0.dev0",
                                     "0.2.0rc1", "0.2rc1", "0.10.0", "1.0.0", "0.3+local"])
def test_a_release_that_knows_the_entries(version):
    assert retention_entries_fault([node(1, version), node(2, "0.2.0")]) == ""


@pytest.mark.parametrize("version", ["", "0.1.0", "0.1.9", "0.1", "0", "0.2x", "two", "v0.2.0",
                                     "-1.2", "0.2" + "9" * 20])
def test_a_release_that_does_not_or_cannot_be_told(version):
    fault = retention_entries_fault([node(1, "0.2.0"), node(2, version)])
    assert fault.endswith(f"upgrade node 2 ({version or 'unknown'})")


def test_a_refusal_names_some_nodes_and_the_number_of_the_others():
    fault = retention_entries_fault([node(number, "0.1.0") for number in range(1, 8)])
    assert "need release 0.2 or later" in fault
    assert fault.endswith("node 4 (0.1.0) and 3 more")


def test_a_cluster_without_nodes_has_none_that_lacks_them():
    assert retention_entries_fault([]) == ""


def test_logs_of_partitions_stay_whole_until_all_nodes_take_their_snapshots():
    since = ".".join(map(str, DATA_SNAPSHOTS_SINCE))
    assert data_snapshots_fault([node(1, since), node(2, f"{since}.4")]) == ""
    fault = data_snapshots_fault([node(1, since), node(2, "0.1.4")])
    assert fault == (f"snapshots of groups with partitions need release {since} or later on all "
                     f"nodes; upgrade node 2 (0.1.4)")


def test_a_gate_judges_the_nodes_once_for_each_version_of_the_metadata():
    judged = []
    state = SimpleNamespace(version=1, nodes=lambda: [node(1, "0.1.0")])
    gate = ReleaseGate(SimpleNamespace(state=state), lambda nodes: judged.append(1) or
                       data_snapshots_fault(nodes))
    assert gate.fault and gate.fault and len(judged) == 1
    state.version, state.nodes = 2, lambda: [node(1, "9.0.0")]
    assert not gate.fault and len(judged) == 2
