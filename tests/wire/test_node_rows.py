"""Rows of nodes: an address for Kafka's clients is a last field, absent at nodes without one."""

import cbor2
import pytest

from multiraft.wire import messages as m
from multiraft.wire import nodes as n
from multiraft.wire.schema import COLUMNS_FROM, Malformed

PLAIN = n.NodeRow(4, 1 << 62, 3, "h:1", "h:2", "r1", 100, "0.2.0", 1_700_000_000_000)
NAMED = PLAIN._replace(id=5, kafka_address="k.example.org:9092")
CLUSTER = bytes(16)


def exchanged(row):
    """Return (table, operation, value) of each message that has rows of nodes."""
    joined = n.JoinClusterReply(4, CLUSTER, 8, 3, (PLAIN, row), (2,), 17)
    state = n.NodeState(row, "up", 8, 3)
    return [
        (n.REQUESTS, "join_cluster", n.JoinCluster(row)),
        (n.RESPONSES, "join_cluster", joined),
        (n.PEER_REQUESTS, "register_node", n.RegisterNode(row)),
        (n.PEER_RESPONSES, "register_node", joined),
        (n.PEER_RESPONSES, "known_nodes", n.KnownNodesReply((row, PLAIN), (2,), 17)),
        (n.RESPONSES, "list_nodes", n.ListNodesReply((state,), (2,))),
        (n.RESPONSES, "describe_node", n.DescribeNodeReply(state, (1,), (), ())),
        (m.RESPONSES, "cluster_status", m.ClusterStatusReply(
            CLUSTER, 1, (m.NodeSummary(row.id, "h:1", "h:2", "r", "up", 8, 3, row.kafka_address),),
            8, 3, 1, 2, 4))]


def rows_of(value):
    """Return the rows of nodes in an encoded message."""
    if isinstance(value, dict):
        value = list(value.values())
    if not isinstance(value, list):
        return []
    if "h:1" in value:
        return [value]
    return [row for item in value for row in rows_of(item)]


@pytest.mark.parametrize("row", [PLAIN, NAMED], ids=["without", "with"])
@pytest.mark.parametrize("at", range(len(exchanged(PLAIN))))
def test_every_message_has_the_address_of_a_node_that_has_one_and_no_field_of_others(at, row):
    table, operation, value = exchanged(row)[at]
    fields = cbor2.loads(cbor2.dumps(table[operation].header(value)))
    assert table[operation].read(fields) == value
    length = 7 if operation == "cluster_status" else 9
    found = {encoded[0]: encoded for encoded in rows_of(fields)}
    assert found[row.id][length:] == ([row.kafka_address] if row.kafka_address else [])
    assert PLAIN.id not in found or len(found[PLAIN.id]) == length


@pytest.mark.parametrize("row", [list(NAMED[:8]), [*NAMED, ""], [*NAMED[:9], 5],
                                 [*NAMED[:9], "x" * (n.ADDRESS_MAX + 1)], [*NAMED[:9], None]])
def test_a_row_of_another_length_or_type_is_refused(row):
    with pytest.raises(Malformed):
        n.REQUESTS["join_cluster"].read({"node": row})


def test_many_rows_of_both_lengths_are_read():
    rows = [list(PLAIN[:9]), list(NAMED)] * COLUMNS_FROM
    read = n.PEER_RESPONSES["known_nodes"].read
    assert read({"nodes": rows, "removed": [], "version": 1}).nodes == (
        PLAIN, NAMED) * COLUMNS_FROM
    short = read({"nodes": [list(PLAIN[:9])] * COLUMNS_FROM, "removed": [], "version": 1})
    assert short.nodes == (PLAIN,) * COLUMNS_FROM
