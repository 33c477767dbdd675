"""Network addresses of nodes, as the configuration and the metadata write them."""

from __future__ import annotations

from dataclasses import dataclass

from multiraft.wire.addresses import split_address
from node.errors import BadConfig


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port, written ``host:port``."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: object, where: str) -> Address:
    """Return the address that ``host:port`` or ``[v6]:port`` names. Raises ``BadConfig``, which
    names the key or field ``where``."""
    if not isinstance(text, str):
        raise BadConfig(f"{where} must be text like '127.0.0.1:9101', not {text!r}")
    parsed = split_address(text)
    if parsed is None or not parsed[1]:
        raise BadConfig(f"{where} must be 'host:port', not {text!r:.320}")
    return Address(*parsed)
