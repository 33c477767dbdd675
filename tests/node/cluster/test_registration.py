"""Registration of a starting node with the metadata leader, after that leader has changed."""

import trio

from multiraft.wire import nodes as wire
from multiraft.wire.errors import AmbiguousOutcome, Code, LeaderUnknown
from node.cluster.registration import Registration
from node.metadata.state_machine import NodeRecord
from node.peers.registry import PeerRegistry, of_new_cluster
from tests.node.harness import in_trio, silent_log, until
from tests.node.peers.test_registry import CLUSTER, FIRST_HOUR, RealFilesystem

JOINED = NodeRecord(4, 44, 1, "h:4", "p:4")
NOW = [wire.NodeRow(*row) for row in (*FIRST_HOUR[:3], JOINED)]


class Admitted:
    """A node that takes part from the beginning."""

    def __init__(self):
        self.admitted = trio.Event()
        self.admitted.set()

    def check_final(self, code, text, remembered=None):
        assert code == Code.LEADER_UNKNOWN, text


class Cluster:
    """Node 4 has joined while node 1 was away, and leads the metadata group; node 2 is away."""

    def __init__(self, directory):
        self.known = PeerRegistry(RealFilesystem(), str(directory), 1,
                                of_new_cluster(CLUSTER, 8, 3, FIRST_HOUR[:3]))
        self.changes = 0
        self.registered = 0

    async def ask(self, *question):
        """Answer as the metadata leader, or as one node."""
        if len(question) == 1:
            return self._register(*question)
        if question == (3, wire.KnownNodes()):
            return wire.KnownNodesReply(tuple(NOW), (), 17)
        raise AmbiguousOutcome("nobody there")

    def _register(self, request):
        if 4 not in self.known.facts.nodes:
            raise LeaderUnknown("the metadata group has no leader that this node knows of")
        self.registered += 1
        return wire.JoinClusterReply(1, CLUSTER, 8, 3, tuple(NOW), (), 18)

    def changed(self):
        """Record the call, in place of the link manager."""
        self.changes += 1


@in_trio
async def test_whoever_was_away_asks_around_for_those_who_joined(tmp_path):
    cluster = Cluster(tmp_path)
    registration = Registration(cluster, cluster, cluster.known, FIRST_HOUR[0], Admitted(), cluster,
                                silent_log())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(registration.run)
        await until(lambda: cluster.registered, "it is registered with the node that it heard of")
        nursery.cancel_scope.cancel()
    assert cluster.known.facts.nodes[4] == JOINED
    assert cluster.changes >= 1, "connections to it are wanted"
