"""Faults of the network: cut, slow and broken links between nodes, and between clients and nodes.

Elsewhere.  Loss, duplication and reordering of single frames: ``env/network.py``.
"""

from __future__ import annotations

from chaos.faults import ALONE, BRIDGE, DELAY, HALVES, NO_CLIENTS, ONE_WAY, RESETS, RING
from chaos.simulator.clients.workload import CLIENT_BASE, READER_BASE
from chaos.simulator.faults.injector import Injector
from chaos.simulator.faults.registry import fault

#: Delay added to each frame of a clogged link.
CLOG_US = 300_000
#: Channels between two nodes, each with connections of its own.
CHANNELS = ("append", "liveness", "bulk")


@fault(ALONE.kind)
def partition_one(injector: Injector) -> bool:
    """Cut one node off from all others."""
    one = injector.draw_node().node
    others = [node for node in sorted(injector.world.nodes) if node != one]
    injector.block([link for other in others for link in ((one, other), (other, one))],
                f"n{one} is cut off")
    return True
@fault(HALVES.kind)
def partition_halves(injector: Injector) -> bool:
    """Partition the nodes into two random sides of any sizes."""
    nodes = sorted(injector.world.nodes)
    injector.rng.shuffle(nodes)
    cut = injector.rng.randrange(1, len(nodes))
    left, right = nodes[:cut], nodes[cut:]
    injector.block([link for a in left for b in right for link in ((a, b), (b, a))],
                f"partition {sorted(left)} | {sorted(right)}")
    return True
@fault(ONE_WAY.kind)
def partition_one_way(injector: Injector) -> bool:
    """Cut the links from one node to another, or to all others."""
    nodes = sorted(injector.world.nodes)
    sender, to = injector.rng.sample(nodes, 2)
    links = [(sender, to)]
    if injector.rng.random() < 0.5:
        links = [(sender, other) for other in nodes if other != sender]
    injector.block(links, f"one way cut {links}")
    return True
@fault(RING.kind)
def majorities_ring(injector: Injector) -> bool:
    """Let each node hear a majority, no two nodes the same one (Jepsen)."""
    ring = sorted(injector.world.nodes)
    injector.rng.shuffle(ring)
    heard = len(ring) // 2
    links = []
    for place, node in enumerate(ring):
        hears = {ring[(place + step) % len(ring)] for step in range(heard + 1)}
        links += [(other, node) for other in ring if other not in hears]
    injector.block(links, f"majorities ring {ring}")
    return True
@fault(BRIDGE.kind)
def bridge(injector: Injector) -> bool:
    """Partition the nodes into two halves, and one node that reaches both (Jepsen)."""
    nodes = sorted(injector.world.nodes)
    injector.rng.shuffle(nodes)
    half = len(nodes) // 2
    left, right = nodes[:half], nodes[half + 1:]
    injector.block([link for a in left for b in right for link in ((a, b), (b, a))],
                f"{sorted(left)} | {sorted(right)}, n{nodes[half]} sees both")
    return True
@fault(NO_CLIENTS.kind)
def client_cut(injector: Injector) -> bool:
    """Cut clients off from some nodes; the nodes still reach each other."""
    workload = injector.world.parameters.workload
    clients = [CLIENT_BASE + number for number in range(workload.producers + 1)]
    clients += [READER_BASE + number for number in range(workload.readers)]
    nodes = sorted(injector.world.nodes)
    cut = injector.rng.sample(nodes, injector.rng.randrange(1, len(nodes) + 1))
    ways = injector.rng.choice(("requests", "answers", "both"))
    links = []
    if ways != "answers":
        links += [(client, node) for client in clients for node in cut]
    if ways != "requests":
        links += [(node, client) for client in clients for node in cut]
    injector.block(links, f"{ways} between clients and {sorted(cut)} are lost")
    return True
@fault("channel-cut")
def channel_cut(injector: Injector) -> bool:
    """Cut one channel between two nodes; their other channels work."""
    a, b = injector.rng.sample(sorted(injector.world.nodes), 2)
    channel = injector.rng.choice(CHANNELS)
    links = [(a, b, channel)] + [(b, a, channel)] * (injector.rng.random() < 0.5)
    injector.block(links, f"{channel} cut {links}")
    return True
@fault("isolate-leader")
def isolate_leader(injector: Injector) -> bool:
    """Cut the leader of a hot group off from all nodes, but not from its clients. Return False when
    no node leads the group.

    It appends entries that will be truncated, while the other voters elect a leader.
    """
    group = injector.rng.choice(sorted(injector.world.state_checker.groups)[:3])
    for number, node in sorted(injector.world.nodes.items()):
        if node.view.leads(group):
            others = [other for other in sorted(injector.world.nodes) if other != number]
            injector.block([(number, other) for other in others]
                        + [(other, number) for other in others],
                        f"n{number} leads g{group} and is cut off")
            return True
    return False
@fault(DELAY.kind)
def clog(injector: Injector) -> bool:
    """Make random links slow together, and fast again one by one (swizzle-clog, FoundationDB).
    Return False when none is drawn."""
    nodes = sorted(injector.world.nodes)
    links = [(a, b) for a in nodes for b in nodes if a != b and injector.rng.random() < 0.4]
    injector.trace(0, f"clog {links}")
    injector.world.network.clog(links, CLOG_US)
    for link in links:
        injector.unclog_later([link])
    return bool(links)
@fault(RESETS.kind)
def disconnect(injector: Injector) -> bool:
    """Break the connection between two nodes and make it again at once; frames under way may be
    lost. Return False when neither is up."""
    a, b = injector.rng.sample(sorted(injector.world.nodes), 2)
    is_connected = injector.world.nodes[a].is_up or injector.world.nodes[b].is_up
    injector.trace(0, f"disconnect n{a} n{b}")
    for node, peer in ((a, b), (b, a)):
        injector.world.nodes[node].reconnect(peer)
    return is_connected
