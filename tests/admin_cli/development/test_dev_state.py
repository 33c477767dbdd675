"""Ports of a local cluster, and the files that name them."""

import json
import socket

import pytest

from admin_cli import dev_cluster
from admin_cli.development import dev_state
from node.config import load


@pytest.fixture
def served(monkeypatch):
    """Nodes listen for Kafka's clients."""
    monkeypatch.setattr(dev_state, "KAFKA_IS_SERVED", True)


def written(directory, record):
    """Return the configurations that the nodes read, the last one that of a node that joins."""
    dev_state.write_configs(directory, record)
    joining = dev_state.next_node(record)
    dev_state.write_joining_config(directory, record, joining)
    return [load(dev_state.config_path(directory, node.id)) for node in (*record.nodes, joining)]


def test_each_node_has_four_ports_of_its_own(served, tmp_path):
    record = dev_state.plan(2, 4, 1, 9100)
    assert [[node.client_address, node.peer_address, node.http_address, node.kafka_address]
            for node in (*record.nodes, dev_state.next_node(record))] == [
        [f"127.0.0.1:{base + number}" for base in (9100, 9200, 9300, 9400)] for number in (1, 2, 3)]
    assert [str(config.kafka.advertised()) for config in written(tmp_path, record)] == [
        "127.0.0.1:9401", "127.0.0.1:9402", "127.0.0.1:9403"]


def test_no_two_clusters_share_a_port(served):
    def ports(base):
        return {address for node in dev_state.plan(dev_state.NODES_MAX, 1, 1, base).nodes
                for address in (node.client_address, node.peer_address, node.http_address,
                                node.kafka_address)}

    first = ports(dev_state.DEFAULT_BASE_PORT)
    assert len(first) == 4 * dev_state.NODES_MAX
    assert not first & ports(dev_state.DEFAULT_BASE_PORT + dev_state.PORTS)
    assert max(int(port.rpartition(":")[2]) for port in ports(dev_cluster.BASE_PORT_MAX)) < 1 << 16


def test_while_nodes_do_not_listen_for_kafka_s_clients_no_file_names_a_port(tmp_path, monkeypatch):
    monkeypatch.setattr(dev_state, "KAFKA_IS_SERVED", False)
    record = dev_state.plan(2, 4, 1, 9100)
    for config in written(tmp_path, record):
        assert config.kafka.listen_address() is None
        text = dev_state.config_path(tmp_path, config.node.id).read_text()
        assert "kafka" not in text
    dev_state.save(tmp_path, record)
    assert "kafka" not in (tmp_path / "cluster.json").read_text()
    assert dev_state.load(tmp_path) == record


def test_a_cluster_keeps_its_ports_and_one_of_before_has_none_for_kafka_s_clients(
        served, tmp_path):
    record = dev_state.plan(2, 4, 1, 9100)
    dev_state.save(tmp_path, record)
    assert dev_state.load(tmp_path) == record
    fields = json.loads((tmp_path / "cluster.json").read_text())
    for node in fields["nodes"]:
        del node["kafka_address"]
    (tmp_path / "cluster.json").write_text(json.dumps(fields))
    assert [node.kafka_address for node in dev_state.load(tmp_path).nodes] == ["", ""]


def test_a_base_port_is_free_only_with_its_ports_for_kafka_s_clients(served, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        base = taken.getsockname()[1] - dev_state.KAFKA_PORT_DISTANCE - 1
        monkeypatch.setattr(dev_cluster, "BASE_PORT_MAX", 1 << 16)
        monkeypatch.setattr(dev_cluster, "BASE_PORTS_TRIED", 1)
        with pytest.raises(dev_cluster.CommandFailed, match=f"no free ports from {base}"):
            dev_cluster.free_base_port(base, 1)
