"""The table [security] of ``node.toml``: paths of certificates and secrets, and its checks.

Contract. Values of this module name files and read none; ``peers/security.py`` loads them.
``require_protection`` and ``require_kafka_protection`` refuse an unprotected address that other
machines can reach.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from multiraft.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SecurityConfig:
    """The table [security]: paths, relative to node.toml.  Empty = not used."""

    #: A file with the secret that all nodes of the cluster share, one per line; with two, this node
    #: proves with the first and accepts both, so that secrets can be replaced one node at a time.
    peer_secret: str = ""
    #: CA that signs the certificates of nodes, and of nothing else.
    peer_ca: str = ""
    #: This node's certificate; its DNS names include ``node-ID.CLUSTER``.
    peer_certificate: str = ""
    #: Its key.
    peer_key: str = ""
    #: Certificate that clients see; its names include the client address's host.
    client_certificate: str = ""
    #: Its key.
    client_key: str = ""
    #: CA of clients' certificates; with it only clients that show one are heard.
    client_ca: str = ""
    #: Accepts knowingly that an address others can reach is protected by nothing here.
    insecure: bool = False

    def validate(self) -> "SecurityConfig":
        """Return this table.  Raises ``ConfigError`` when files that need each other are not all
        named."""
        peer = (self.peer_ca, self.peer_certificate, self.peer_key)
        if any(peer) and not all(peer):
            raise ConfigError("security.peer_ca, peer_certificate and peer_key come together: "
                              "nodes show certificates to each other")
        if bool(self.client_certificate) != bool(self.client_key):
            raise ConfigError("security.client_certificate and client_key come together")
        if self.client_ca and not self.client_certificate:
            raise ConfigError("security.client_ca needs client_certificate and client_key: "
                              "certificates of clients are asked for within TLS")
        return self

    def relative_to(self, directory: Path) -> "SecurityConfig":
        """Return the same table with paths that start in ``directory``."""
        paths: dict[str, Any] = {item.name: str(directory / value) for item in fields(self)
                 if isinstance(value := getattr(self, item.name), str) and value}
        return replace(self, **paths)

    @property
    def protects_peers(self) -> bool:
        """True if a node has to prove its identity to its peers."""
        return bool(self.peer_secret or self.peer_certificate)

    @property
    def protects_clients(self) -> bool:
        """True if clients speak TLS."""
        return bool(self.client_certificate)


def require_protection(config: SecurityConfig, client_host: str, peer_host: str) -> None:
    """Return if both addresses are protected, reached by this machine only, or accepted as
    insecure. Raises ``ConfigError`` otherwise."""
    if config.insecure:
        return
    if not config.protects_peers and not is_loopback(peer_host):
        raise ConfigError(
            f"the peer address {peer_host} can be reached by others, and whoever reaches it could "
            "pass for a node: name security.peer_secret, or peer_ca, peer_certificate and "
            "peer_key; or accept that knowingly with security.insecure = true")
    if not config.protects_clients and not is_loopback(client_host):
        raise ConfigError(
            f"the client address {client_host} can be reached by others: name "
            "security.client_certificate and client_key; or accept that knowingly with "
            "security.insecure = true")


def require_kafka_protection(config: SecurityConfig, host: str) -> None:
    """Return if the address for Kafka's clients is protected, reached by this machine only, or
    accepted as insecure. Raises ``ConfigError`` otherwise."""
    if config.insecure or config.protects_clients or is_loopback(host):
        return
    raise ConfigError(
        f"the address for Kafka's clients, {host}, can be reached by others: name "
        "security.client_certificate and client_key, which are those of kafka.address too; or "
        "accept that knowingly with security.insecure = true")


def is_loopback(host: str) -> bool:
    """Return True if only this machine reaches ``host``; a name other than localhost counts as
    reachable by others, because it may resolve to any address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
