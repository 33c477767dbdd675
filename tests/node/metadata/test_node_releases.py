"""Releases of nodes: leaders propose entries that decide retention once all nodes know them."""

from __future__ import annotations

import pytest

import multiraft
from node.metadata.commands import NodeRecord
from node.metadata.node_releases import retention_entries_fault


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
