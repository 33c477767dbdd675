"""Rules of a node's namespace, and packets that wait."""

from __future__ import annotations

import random
import struct

from chaos.backends.backend import CLIENTS, Delay, Link
from chaos.backends.held_packets import Waiting, packet_ids, verdict
from chaos.backends.packets import LinkFaults, rules

ADDRESSES = {CLIENTS: "10.9.9.254", 1: "10.9.9.1", 2: "10.9.9.2"}


def appended(node: int, **faults) -> list[str]:
    """Return the rules of a node, without the header and trailer around them."""
    table = rules(node, ADDRESSES, LinkFaults(**faults))
    return [line for line in table.splitlines() if line.startswith("-A")]


def test_without_faults_there_is_a_table_without_rules():
    assert rules(1, ADDRESSES, LinkFaults()).splitlines() == [
        "*filter", ":INPUT ACCEPT [0:0]", ":OUTPUT ACCEPT [0:0]", "COMMIT"]


def test_a_link_is_cut_where_it_arrives():
    cut = frozenset({Link(2, 1)})
    assert appended(1, cut=cut) == ["-A INPUT -s 10.9.9.2 -j DROP"]
    assert appended(2, cut=cut) == []


def test_a_link_to_the_clients_is_cut_where_it_leaves():
    cut = frozenset({Link(1, CLIENTS), Link(CLIENTS, 1)})
    assert appended(1, cut=cut) == ["-A INPUT -s 10.9.9.254 -j DROP",
                                    "-A OUTPUT -d 10.9.9.254 -j DROP"]


def test_a_node_that_has_gone_has_no_rule():
    assert appended(1, cut=frozenset({Link(7, 1)})) == []


def test_faults_compose_and_a_reset_comes_first():
    link = frozenset({Link(2, 1)})
    found = appended(1, cut=link, reset=link, lossy=link, loss=0.25, delayed=link,
                     delay=Delay(5.0))
    assert [line.split(" -j ")[1].split()[0] for line in found] == ["REJECT", "DROP", "DROP",
                                                                    "NFQUEUE"]
    assert "--probability 0.250000" in found[2]


def test_packets_keep_their_order_unless_they_may_overtake():
    waiting = Waiting(50.0, 40.0, False, random.Random(1))
    for packet in range(100):
        waiting.add(packet, now_ms=float(packet))
    assert list(waiting.take_due(1e6)) == list(range(100))
    mixed = Waiting(50.0, 40.0, True, random.Random(1))
    for packet in range(100):
        mixed.add(packet, now_ms=float(packet))
    taken = list(mixed.take_due(1e6))
    assert sorted(taken) == list(range(100)) and taken != sorted(taken)


def test_no_packet_goes_before_its_time():
    waiting = Waiting(50.0, 0.0, True, random.Random(1))
    waiting.add(1, now_ms=100.0)
    assert list(waiting.take_due(149.0)) == []
    assert waiting.next_ms(149.0) == 1.0
    assert list(waiting.take_due(150.0)) == [1]
    assert waiting.next_ms(150.0) is None


def test_ids_are_found_among_other_attributes_of_several_messages():
    def message(kind: int, packet: int) -> bytes:
        attributes = (struct.pack("HHI", 8, 3, 0)
                      + struct.pack("HH", 11, 1) + struct.pack(">IHB", packet, 0x800, 1) + b"\0")
        body = struct.pack(">BBH", 0, 0, 1) + attributes
        return struct.pack("IHHII", 16 + len(body), kind, 0, 0, 0) + body

    data = message(3 << 8, 7) + message((3 << 8) | 9, 8) + message(3 << 8, 9)
    assert list(packet_ids(data)) == [7, 9]
    assert struct.unpack(">II", verdict(1, 7)[-8:]) == (1, 7)
