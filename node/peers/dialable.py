"""Checks of the addresses that a node hands out to other nodes and clients.

A node listens at the very addresses that it hands out; only Kafka's clients may receive another
one. Therefore an address that means "every address of this machine" is refused: a node that dials
it connects to itself, which stays unnoticed as long as all nodes run on one machine.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Sequence

from node.address import parse_address
from node.config import KafkaConfig, Member
from node.errors import BadConfig
from node.metadata.state_machine import NodeRecord

#: What to write in place of an address, and where a node listens at another one.
_ADVERTISED = "Name the address or host name of this machine by which they reach it"
_LISTENED_AT = (f"{_ADVERTISED}; the node listens at that address, there is no separate listen "
                f"address")


def require_dialable(members: Iterable[Member], servers: Sequence[str] = ()) -> None:
    """Raise ``BadConfig`` for the first address, of a node or of the cluster to join
    (``host:port``), that other machines cannot connect to."""
    for member in members:
        for name in ("client_address", "peer_address"):
            _require(getattr(member, name).host, f"{name} of node {member.id}"
                     if member.id else name)
    for server in servers:
        _require(server.rpartition(":")[0].strip("[]"), "--join")


def require_dialable_row(node: NodeRecord) -> None:
    """Raise ``BadConfig`` for a joining node whose address is malformed, or cannot be reached from
    other machines."""
    for name in ("client_address", "peer_address"):
        _require(parse_address(getattr(node, name), f"the {name}").host, f"the {name}")


def require_dialable_kafka_row(node: NodeRecord) -> None:
    """Raise ``BadConfig`` for a starting node whose address for Kafka's clients, if it has one, is
    malformed, or cannot be reached from other machines."""
    if node.kafka_address:
        address = parse_address(node.kafka_address, "the kafka_address")
        _require(address.host, "the kafka_address", _ADVERTISED)


def require_kafka_dialable(kafka: KafkaConfig) -> None:
    """Raise ``BadConfig`` if Kafka's clients receive an address that other machines cannot connect
    to."""
    told = kafka.advertised()
    if told is None:
        return
    if kafka.advertised_address:
        _require(told.host, "kafka.advertised_address", _ADVERTISED)
    else:
        _require(told.host, "kafka.address without kafka.advertised_address",
                 f"{_ADVERTISED} in kafka.advertised_address; the node listens at kafka.address")


def unreachable_hosts(member: Member) -> list[str]:
    """Return the hosts of a node's own addresses that other machines cannot connect to."""
    return [host for host in (member.client_address.host, member.peer_address.host)
            if _not_dialable(host)]


def _require(host: str, where: str, advice: str = _LISTENED_AT) -> None:
    why = _not_dialable(host)
    if why:
        raise BadConfig(f"{where} cannot be {host}: that is {why}, which other nodes and clients "
                        f"cannot connect to. {advice}")


def _not_dialable(host: str) -> str:
    """Return the kind of an address that cannot be dialled; empty for all other addresses, and for
    names."""
    if host == "*":  # glibc treats it like an empty host
        return "every address of a machine"
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        try:
            # Resolvers accept shorter forms as well: 0 is 0.0.0.0.
            found = ipaddress.IPv4Address(socket.inet_aton(host))
        except (OSError, ValueError):
            return ""
    found = getattr(found, "ipv4_mapped", None) or found
    if found.is_unspecified:
        return "every address of a machine"
    if found.is_multicast:
        return "a multicast address"
    return "the broadcast address" if str(found) == "255.255.255.255" else ""
