"""A leader with false snapshots: no part of them is installed, the node survives and stays small.

The liar has the identity and the addresses of a node that was killed.  It claims to lead the
metadata group in a later term and offers a snapshot; the victim connects and requests it.
"""

from __future__ import annotations

import json
import socket
import threading
import time

import cbor2
import pytest

from multiraft import core
from multiraft.liveness.peer_identity import DURABLE
from multiraft.partitions.state import PartitionStates
from multiraft.raft import messages as m
from multiraft.wire import messages as wire
from multiraft.wire.frames import FrameReader, encode_frame
from node.metadata.state_machine import MetadataState
from node.peers import codec
from tests.e2e.canary import Canary
from tests.e2e.raw import Session, next_life
from tests.e2e.world import POLL_S, World, wait_for

LIAR, VICTIM = 3, 1
TOPIC = "snapshots"
EPOCH = 1 << 20
INDEX = 1 << 30
#: An offer is repeated when it had no effect for so long.
PATIENCE_S = 2.0
#: Growth that is allowed for a node of this size during the false offers.
GROWTH_BYTES = 64 << 20


def image(**changes: object) -> bytes:
    """Return a metadata image of the right form, apart from the changes."""
    state = {**MetadataState().snapshot(), **changes}
    return cbor2.dumps([1, [[1, 2, 3], [], []], PartitionStates(0, INDEX).snapshot(), state])


def chunk(data: bytes, **changes: object) -> tuple[dict, bytes]:
    """Return the answer with a whole image, apart from the changes."""
    return {"op": "snapshot", "known": True, "index": INDEX, "term": 1, "total": len(data),
            "crc": core.crc32c(data), "offset": 0, **changes}, data


LIES = {
    "an absurd size": chunk(b"x", total=1 << 62),
    "a size below what came": chunk(bytes(1_000), total=10),
    "a piece from elsewhere": chunk(b"x" * 10, offset=5, total=20),
    "an empty piece": chunk(b"", total=1 << 20),
    "another CRC": chunk(b"x" * 10, crc=1),
    "no numbers": chunk(b"x" * 10, index="../../etc", total=[1]),
    "no CBOR": chunk(b"\xff" * 100),
    "a bomb": chunk(b"\x81" * 100_000),
    "an array that is announced only": chunk(b"\x9b\x00\x00\x00\x7f\xff\xff\xff\xff"),
    "names that are paths and no lists": chunk(image(topics=[["../../x", 1, [], {}, None]])),
    "nodes without fields": chunk(image(nodes=[[]])),
    "another group": chunk(cbor2.dumps([1, [[1], [], []], PartitionStates(7, INDEX + 1).snapshot(),
                                        MetadataState().snapshot()])),
}


class Leader(threading.Thread):
    """Server at node 3's address; it answers every request on a bulk connection with ``lie``."""

    def __init__(self, world: World, cluster: bytes):
        super().__init__(name="liar", daemon=True)
        host, port = world.peer_address(LIAR).rsplit(":", 1)
        self._listening = socket.create_server((host, int(port)))
        self._cluster = cluster
        self._open: list[socket.socket] = [self._listening]
        self.lie: tuple[dict, bytes] = ({}, b"")
        self.asked = 0

    def run(self) -> None:
        """Serve until ``close``."""
        while True:
            try:
                connected, _ = self._listening.accept()
            except OSError:
                return
            self._open.append(connected)
            threading.Thread(target=self._serve, args=(connected,), daemon=True).start()

    def close(self) -> None:
        """Close every connection."""
        for each in self._open:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # it was not connected
            each.close()

    def _serve(self, connected: socket.socket) -> None:
        reader, bulk = FrameReader(), False
        try:
            while count := connected.recv_into(reader.buffer_for_receive()):
                reader.received(count)
                while (frame := reader.next_frame()) is not None:
                    if frame.header.get("op") == "hello":
                        bulk = frame.header["class"] == "bulk"
                        welcome = wire.Welcome(self._cluster, LIAR, EPOCH)
                        connected.sendall(b"".join(encode_frame(wire.welcome_header(welcome))))
                    elif bulk:
                        self.asked += 1
                        header, payload = self.lie
                        connected.sendall(b"".join(encode_frame(header, [payload])))
        except OSError:
            return  # the victim has closed the connection


@pytest.fixture(scope="module")
def cluster(world: World):
    """Return the cluster with the canary's topic, after node 3 was killed and replaced by the
    liar."""
    with world.client() as client:
        client.create_topic(TOPIC, 1)
    wait_for(lambda: world.leader_of(TOPIC), "the topic has leaders")
    found = json.loads((world.dev.directory / f"node-{LIAR}" / "data" / "node.json").read_text())
    world.kill(LIAR)
    wait_for(lambda: all(group.leader not in (0, LIAR) for group in world.groups(VICTIM)),
             "the others lead all groups")
    leader = Leader(world, bytes.fromhex(found["cluster_id"]))
    leader.start()
    yield leader, found
    leader.close()


def offer(world: World, found: dict) -> bool:
    """Claim the metadata group in a later term; return True if the victim connected, requested the
    snapshot and complained.  Another node may have been elected in that term first."""
    refused = complaints(world)
    term = next(group.term for group in world.groups(VICTIM) if group.group == 0)
    hello = wire.Hello("append", bytes.fromhex(found["cluster_id"]), LIAR, EPOCH,
                       incarnation=found["incarnation"], process=DURABLE + 1)
    address = world.peer_address(VICTIM)
    with Session(address, next_life(address, hello)) as session:
        said = m.SnapshotOffer(0, 1, term + 1, INDEX, 0)
        session.send_bytes(*codec.frame([codec.encode(said, 0)]))
        give_up = time.monotonic() + PATIENCE_S
        while complaints(world) == refused and time.monotonic() < give_up:
            time.sleep(POLL_S)
    return complaints(world) > refused


def complaints(world: World) -> int:
    """Return how often the victim logged that it could not fetch a snapshot."""
    return sum('"snapshot_download_failed"' in line for line in world.log_lines(VICTIM))


def resident_bytes(pid: int) -> int:
    """Return the memory of a process."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_no_lie_is_installed_and_the_canary_notices_none(world, cluster):
    leader, found = cluster
    pid = world.pid(VICTIM)
    before = resident_bytes(pid)
    with Canary(world.client(VICTIM, 2), TOPIC) as canary:
        # It asks the metadata group for its id once; from then on it needs nothing from that group.
        wait_for(lambda: canary.count, "the canary sings")
        for name, lie in LIES.items():
            leader.lie, asked = lie, leader.asked
            # The first complaint may concern a connection to the node that was killed.
            wait_for(lambda asked=asked: offer(world, found) and leader.asked > asked,
                     f"the victim asks, and says what is wrong with {name}")
            wait_for(lambda: next(group.leader for group in world.groups(VICTIM)
                                  if group.group == 0) in (1, 2), "the metadata group goes on")
    assert world.pid(VICTIM) == pid
    assert resident_bytes(pid) < before + GROWTH_BYTES
    log = world.log_lines(VICTIM)
    assert not any('"snapshot_installed"' in line or "Traceback" in line for line in log)
