"""Addresses that other nodes and clients can connect to.

A node listens at the very addresses that it hands out: there is no separate listen address.  So an
address that means "every address of this machine" must not be one of them: whoever dials it reaches
himself, which goes unnoticed while everything runs on one machine.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Sequence

from node.address import parse_address
from node.config import Member
from node.errors import BadConfig
from node.metadata.state_machine import NodeRecord


def require_dialable(members: Iterable[Member], servers: Sequence[str] = ()) -> None:
    """Raises ``BadConfig`` naming the first address that nobody else can connect to: of nodes, or
    of the cluster to join (``host:port``)."""
    for member in members:
        for name in ("client_address", "peer_address"):
            _require(getattr(member, name).host, f"{name} of node {member.id}"
                     if member.id else name)
    for server in servers:
        _require(server.rpartition(":")[0].strip("[]"), "--join")


def require_dialable_row(node: NodeRecord) -> None:
    """Raises ``BadConfig`` for a node that asks to join with an address that is none, or that
    nobody else can connect to."""
    for name in ("client_address", "peer_address"):
        _require(parse_address(getattr(node, name), f"the {name}").host, f"the {name}")


def unreachable_hosts(member: Member) -> list[str]:
    """The hosts of a node's own addresses that nobody else can connect to."""
    return [host for host in (member.client_address.host, member.peer_address.host)
            if _not_dialable(host)]


def _require(host: str, where: str) -> None:
    why = _not_dialable(host)
    if why:
        raise BadConfig(f"{where} cannot be {host}: that is {why}, which other nodes and clients "
                        f"cannot connect to. Name the address or host name of this machine by "
                        f"which they reach it; the node listens at that address, there is no "
                        f"separate listen address")


def _not_dialable(host: str) -> str:
    """What kind of address nobody connects to this is; empty for all others, and for names."""
    if host == "*":  # to glibc the same as no host
        return "every address of a machine"
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        try:
            # Resolvers take shorter forms as well: 0 is 0.0.0.0.
            found = ipaddress.IPv4Address(socket.inet_aton(host))
        except (OSError, ValueError):
            return ""
    found = getattr(found, "ipv4_mapped", None) or found
    if found.is_unspecified:
        return "every address of a machine"
    if found.is_multicast:
        return "a multicast address"
    return "the broadcast address" if str(found) == "255.255.255.255" else ""
