"""Configurations that a backend writes for its nodes."""

import pytest

from admin_cli.development import dev_state
from chaos.backends import layout
from chaos.backends.backend import ClusterSpec
from chaos.backends.layout import PORTS_OF_NODE, Layout, NodeEndpoint
from node.config import load


def test_clusters_under_test_listen_where_local_ones_do():
    assert layout.KAFKA_IS_SERVED is dev_state.KAFKA_IS_SERVED


@pytest.mark.parametrize("is_served", [False, True])
def test_nodes_have_a_port_for_kafka_s_clients_once_they_listen_there(
        tmp_path, monkeypatch, is_served):
    monkeypatch.setattr(layout, "KAFKA_IS_SERVED", is_served)
    files = Layout(tmp_path, ClusterSpec(replication_factor=2))
    at_own_address = NodeEndpoint(1, "10.0.0.11")
    beside_others = NodeEndpoint(2, "127.0.0.1", *range(7001, 7001 + PORTS_OF_NODE))
    members = (at_own_address, beside_others)
    for endpoint in members:
        files.write(endpoint, members)
    told = [str(load(files.config(node)).kafka.advertised()) for node in (1, 2)]
    assert told == (["10.0.0.11:9401", "127.0.0.1:7004"] if is_served else ["None", "None"])
    files.write(beside_others, ())
    assert (load(files.config(2)).kafka.listen_address() is not None) == is_served
