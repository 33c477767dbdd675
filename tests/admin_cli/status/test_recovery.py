"""Replicas from which a forced recovery could continue: every node is asked, and none delays
without limit.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from admin_cli import connection
from multiraft.wire import errors as wire


class Nodes:
    """Replicas of group 1 by node; ``silent``: node -> times that it does not answer."""

    def __init__(self, replicas: dict[int, tuple[int, int]], nodes: int, silent: dict[int, int]):
        self.replicas, self.silent = replicas, silent
        self.nodes = range(1, nodes + 1)
        self.asked: list[int] = []

    def cluster_status(self):
        return SimpleNamespace(nodes=[SimpleNamespace(id=node, client_address=str(node))
                                      for node in self.nodes])

    def group_replica(self, group, address, timeout_ms):
        assert (group, timeout_ms) == (1, connection.NODE_TIMEOUT_MS)
        node = int(address)
        self.asked.append(node)
        if self.silent.get(node, 0):
            self.silent[node] -= 1
            raise wire.TimedOut(f"node {node} does not answer")
        if node not in self.replicas:
            raise wire.LeaderUnknown(f"group 1 has no replica on node {node}")
        term, index = self.replicas[node]
        return SimpleNamespace(node=node, incarnation=1, last_term=term, last_index=index,
                               commit=0, quarantined="", voters=(1, 2, 3), outgoing=())

    def list_topics(self):
        return []


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(connection, "RETRY_S", 0)
    monkeypatch.setattr(connection, "RECOVERY_TIMEOUT_S", 0.05)


def test_a_node_that_answers_late_has_the_best_replica():
    nodes = Nodes({2: (4, 90), 3: (5, 80)}, 4, {1: 1 << 40, 3: 2})
    report = connection.recovery_report(nodes, 1)
    assert (report["survivor"], report["last_term"], report["last_index"]) == (3, 5, 80)
    assert (report["unreachable"], report["missing"], report["has_majority"]) == ([1], [1], True)
    assert nodes.asked.count(3) == 3 and nodes.asked.count(1) > 3


def test_who_has_answered_is_not_asked_again():
    nodes = Nodes({2: (4, 90)}, 4, {1: 1 << 40, 3: 1 << 40})
    report = connection.recovery_report(nodes, 1)
    assert (report["survivor"], report["has_majority"]) == (2, False)
    assert report["unreachable"] == [1, 3]
    assert nodes.asked.count(2) == nodes.asked.count(4) == 1
