"""A peer that is admitted and then sends false messages: its connection ends, and nothing else.

It has the identity of a node of the cluster, which was killed; no correct node can send its
messages about a group.  Every group of that node lives in one process and one loop with all others.
"""

from __future__ import annotations

import contextlib
import json

import pytest

from multiraft.liveness.peer_identity import DURABLE
from multiraft.raft import messages as m
from multiraft.wire.errors import RequestError
from multiraft.wire.messages import Hello
from node.peers import codec
from tests.e2e.canary import Canary
from tests.e2e.raw import Session, next_life
from tests.e2e.world import World, await_line, steady, wait_for

SHAPE = {"configure": steady}
LIAR, VICTIM = 3, 1
TOPIC = "lies"


@pytest.fixture(scope="module")
def identity(world: World) -> dict:
    """Return the identity of node 3, which is dead from here on, as the other nodes know."""
    data = world.dev.directory / f"node-{LIAR}" / "data"
    known = json.loads((data / "node.json").read_text())
    world.kill(LIAR)
    wait_for(lambda: all(group.leader not in (0, LIAR) for group in world.groups(VICTIM)),
             "the others lead all groups")
    return known


@pytest.fixture
def victim_pid(world, identity) -> int:
    """Return the pid of the process that has to survive."""
    return world.pid(VICTIM)


class Liar(Session):
    """An append connection of node 3 to its victim."""

    epochs = 1 << 20

    def __init__(self, world: World, identity: dict):
        Liar.epochs += 1
        hello = Hello("append", bytes.fromhex(identity["cluster_id"]), LIAR, Liar.epochs,
                      incarnation=identity["incarnation"], process=DURABLE + Liar.epochs)
        address = world.peer_address(VICTIM)
        super().__init__(address, next_life(address, hello))

    def say(self, *messages: m.Message) -> None:
        """Send items in one frame."""
        self.send_bytes(*codec.frame([codec.encode(each, 0) for each in messages]))


def led_by_victim(world: World):
    """Return a group that the victim leads, by its own answer; if all elections went to the other
    node, the victim gets one."""
    def led() -> int:
        known = [group for group in world.groups(VICTIM) if group.group]
        own = [group.group for group in known if group.leader == VICTIM]
        if not own:
            with contextlib.suppress(RequestError), world.client(VICTIM) as client:
                client.group_transfer(known[0].group, VICTIM)
        return own[0] if own else 0
    group = wait_for(led, "the victim leads a group")
    return next(each for each in world.groups(VICTIM) if each.group == group)


def test_what_no_correct_node_says_ends_that_connection_only(world, identity, victim_pid):
    group = led_by_victim(world)
    with world.client(VICTIM, 2) as client:
        client.create_topic(TOPIC, 1)
    with Canary(world.client(VICTIM, 2), TOPIC):
        with Liar(world, identity) as liar:
            liar.say(m.Append(group.group, 1, group.term, 0, 0, 0, 0))
            assert liar.closed_by_node()
    assert world.pid(VICTIM) == victim_pid
    await_line(world, VICTIM, "both lead")
    assert led_by_victim(world).term >= group.term
