"""Links and leases of the known nodes, as the metadata change."""

from types import SimpleNamespace

from node.metadata.state_machine import NodeRecord
from node.peers.link_manager import LinkManager
from node.peers.registry import PeerRegistry, of_new_cluster
from tests.node.harness import silent_log

CLUSTER = bytes(16)


def nodes(**addresses: str) -> dict[int, NodeRecord]:
    """Return nodes from ``n<id>="host:port"`` of their peer ports."""
    return {int(name[1:]): NodeRecord(int(name[1:]), 1, 1, "c:1", address)
            for name, address in addresses.items()}


class ClusterView:
    """Node 1's link manager, with collaborators that record their calls."""

    def __init__(self):
        self.said: list[tuple] = []
        peers = SimpleNamespace(add=lambda link: self.said.append(("dial", *link)),
                                remove=lambda peer: self.said.append(("hang up", peer)))
        liveness = SimpleNamespace(
            add=lambda peer, host, port: self.said.append(("ask", peer, f"{host}:{port}")),
            remove=lambda peer: self.said.append(("forget", peer)))
        first = tuple(nodes(n1="a:1", n2="a:2", n3="a:3").values())
        self.known = PeerRegistry(None, "", 1, of_new_cluster(CLUSTER, 1, 1, first))
        self.link_manager = LinkManager(self.known, peers, liveness,
                               lambda peer, where: (peer, str(where)),
                               lambda peer: self.said.append(("end", peer)), silent_log())
        self.link_manager.changed()

    def hear(self, version: int, applied: int = 0, **addresses: str) -> list[tuple]:
        """Apply metadata up to ``applied``, with the nodes as of ``version``, and return the
        resulting calls."""
        self.said.clear()
        self.link_manager.follow(SimpleNamespace(version=applied or version, table=SimpleNamespace(
            version=version, nodes=nodes(**addresses), removed={})))
        return self.said


def test_every_peer_is_dialled_and_asked_and_never_oneself():
    assert ClusterView().said == [("dial", 2, "a:2"), ("ask", 2, "a:2"),
                            ("dial", 3, "a:3"), ("ask", 3, "a:3")]


def test_what_did_not_change_is_left_alone():
    assert ClusterView().hear(5, n1="a:1", n2="a:2", n3="a:3") == []


def test_a_new_node_is_dialled_and_a_removed_one_is_let_go():
    assert ClusterView().hear(5, n1="a:1", n2="a:2", n4="a:4") == [
        ("hang up", 3), ("forget", 3), ("end", 3), ("dial", 4, "a:4"), ("ask", 4, "a:4")]


def test_a_node_that_moved_is_dialled_at_its_new_address():
    assert ClusterView().hear(5, n1="a:1", n2="b:2", n3="a:3") == [
        ("hang up", 2), ("dial", 2, "b:2"), ("ask", 2, "b:2")]


def test_older_metadata_change_nothing():
    world = ClusterView()
    world.hear(5, n1="a:1", n2="b:2", n3="a:3")
    assert world.hear(4, n1="a:1") == []


def test_nodes_of_metadata_that_were_recovered_by_force_replace_those_that_nobody_has_any_more():
    """A node that was only in the lost metadata was admitted, and the node in its place was not: it
    received a permanent removal, and stopped."""
    world = ClusterView()
    world.hear(9, n1="a:1", n3="a:3", n4="a:4")
    assert world.hear(5, applied=8, n1="a:1", n2="a:2", n3="a:3") == [], "the leader may be new"
    assert world.hear(5, applied=9, n1="a:1", n2="a:2", n3="a:3") == [
        ("hang up", 4), ("forget", 4), ("end", 4), ("dial", 2, "a:2"), ("ask", 2, "a:2")]


def test_an_address_that_is_none_is_told_and_harms_no_other():
    assert ClusterView().hear(5, n1="a:1", n2="a:2", n3="nowhere", n4="a:4") == [
        ("dial", 4, "a:4"), ("ask", 4, "a:4")]
