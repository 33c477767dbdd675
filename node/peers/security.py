"""Load, validate and hot-reload this node's TLS certificates and shared secrets.

Contract.  ``Security`` holds what the files of ``security_config.SecurityConfig`` say now:
``reload`` takes all of it or, raising ``ConfigError``, none of it.  Connections that exist live on
with what they were opened with.

Theory.  Consensus trusts what peers say: one forged vote request with a high term stops a group.
So nothing from the peer port is stepped before its sender has proven to be the node that it says it
is (``handshake.py``), by a certificate of the cluster's CA that names it, by a secret that all
nodes share, or by both.

Invariants.  What is loaded is one value that is swapped whole: the liveness thread reads it too.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

from multiraft.client.tls import TlsFiles, client_context, server_context
from multiraft.errors import ConfigError
from node.security_config import SecurityConfig

#: A secret shorter than this can be guessed by whoever has seen one handshake: 32 hexadecimal
#: digits are 128 bits.
SECRET_CHARACTERS_MIN = 32
#: The one that this node proves with, and the one that it accepts as well while secrets change.
SECRETS_MAX = 2


def node_name(node: int, cluster_id: bytes) -> str:
    """The DNS name that a node's certificate must carry."""
    return f"node-{node}.{cluster_id.hex()}"


class _Loaded(NamedTuple):
    """What the files said when they were read last."""

    secrets: tuple[bytes, ...] = ()
    peer_server: ssl.SSLContext | None = None
    peer_client: ssl.SSLContext | None = None
    client_server: ssl.SSLContext | None = None


class Security:
    """See the module docstring.  Raises ``ConfigError`` when a file cannot be used."""

    def __init__(self, config: SecurityConfig, cluster_id: bytes):
        self.config = config
        self.cluster_id = cluster_id
        self._now = _load(config)

    def reload(self) -> None:
        """Read the files again, for connections that are opened from now on."""
        self._now = _load(self.config)

    @property
    def secrets(self) -> tuple[bytes, ...]:
        """The secrets that prove a node; the first is this node's own.  Empty = none is asked."""
        return self._now.secrets

    @property
    def peer_server(self) -> ssl.SSLContext | None:
        """For connections that nodes open here; None = without TLS."""
        return self._now.peer_server

    @property
    def peer_client(self) -> ssl.SSLContext | None:
        """For connections opened to nodes; None = without TLS."""
        return self._now.peer_client

    @property
    def client_server(self) -> ssl.SSLContext | None:
        """For connections of clients; None = without TLS."""
        return self._now.client_server


def _load(config: SecurityConfig) -> _Loaded:
    peer_server = peer_client = client_server = None
    if config.peer_certificate:
        files = TlsFiles(config.peer_ca, config.peer_certificate, config.peer_key)
        peer_server = server_context(files)
        # The name is compared by ``handshake``, the same way at both ends.
        peer_client = client_context(files, check_hostname=False)
    if config.client_certificate:
        client_server = server_context(TlsFiles(config.client_ca, config.client_certificate,
                                                config.client_key))
    return _Loaded(_secrets(config.peer_secret), peer_server, peer_client, client_server)


def _secrets(path: str) -> tuple[bytes, ...]:
    """The lines of the secret's file.  The error never quotes one."""
    if not path:
        return ()
    try:
        lines = Path(path).read_bytes().split(b"\n")
    except OSError as error:
        raise ConfigError(f"security.peer_secret: cannot read {path}: {error.strerror}") from error
    secrets = tuple(line.strip() for line in lines if line.strip())
    if not 1 <= len(secrets) <= SECRETS_MAX:
        raise ConfigError(f"security.peer_secret: {path} has {len(secrets)} secrets, one per line; "
                          f"1 to {SECRETS_MAX} are expected")
    shortest = min(map(len, secrets))
    if shortest < SECRET_CHARACTERS_MIN:
        raise ConfigError(f"security.peer_secret: a secret in {path} has {shortest} characters; at "
                          f"least {SECRET_CHARACTERS_MIN} cannot be guessed. "
                          "`openssl rand -hex 32` makes one")
    return secrets
