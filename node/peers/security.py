"""TLS certificates and shared secrets of this node: loaded, validated and reloaded.

Contract. ``Security`` holds the content of the files of ``security_config.SecurityConfig``.
``reload`` replaces all of it or, raising ``ConfigError``, none. Open connections keep what they
were opened with.

Theory. Consensus trusts its peers: one forged vote request with a high term stops a group. So no
message from the peer port is stepped before its sender has proven which node it is (``handshake``):
by a certificate of the cluster's CA with its name, by a secret that all nodes share, or by both.

Invariants. The loaded content is one value that is replaced as a whole, because the liveness thread
reads it too.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

from multiraft.client.tls import TlsFiles, client_context, server_context
from multiraft.errors import ConfigError
from node.peers.certificate_expiry import expiry_of
from node.security_config import SecurityConfig

#: Least length of a secret. A shorter one could be guessed from one recorded handshake: 32
#: hexadecimal digits are 128 bits.
SECRET_CHARACTERS_MIN = 32
#: Secrets in the file: the one that this node proves with, and one that it also accepts while
#: secrets change.
SECRETS_MAX = 2


def node_name(node: int, cluster_id: bytes) -> str:
    """Return the DNS name that a node's certificate must carry."""
    return f"node-{node}.{cluster_id.hex()}"


class _Loaded(NamedTuple):
    """The content of the files when they were last read."""

    secrets: tuple[bytes, ...] = ()
    peer_server: ssl.SSLContext | None = None
    peer_client: ssl.SSLContext | None = None
    client_server: ssl.SSLContext | None = None
    #: ``client`` or ``peer`` -> Unix time at which the certificate of that port ends.
    expiries: dict[str, int] = {}


class Security:
    """The secrets and TLS contexts of one node. Raises ``ConfigError`` if a file cannot be used."""

    def __init__(self, config: SecurityConfig, cluster_id: bytes):
        self.config = config
        self.cluster_id = cluster_id
        self._now = _load(config)

    def reload(self) -> None:
        """Read the files again; connections opened from now on use the new content. Raises
        ``ConfigError`` if a file cannot be used; the earlier content is kept then."""
        self._now = _load(self.config)

    @property
    def secrets(self) -> tuple[bytes, ...]:
        """Secrets of the cluster; this node proves with the first. Empty = no proof is required."""
        return self._now.secrets

    @property
    def peer_server(self) -> ssl.SSLContext | None:
        """TLS context of connections that nodes open here; None = without TLS."""
        return self._now.peer_server

    @property
    def peer_client(self) -> ssl.SSLContext | None:
        """TLS context of connections opened to nodes; None = without TLS."""
        return self._now.peer_client

    @property
    def client_server(self) -> ssl.SSLContext | None:
        """TLS context of client connections; None = without TLS."""
        return self._now.client_server

    @property
    def expiries(self) -> dict[str, int]:
        """Ports ``client`` and ``peer`` that have a certificate, each with the Unix time at which
        its certificate ends."""
        return self._now.expiries


def _load(config: SecurityConfig) -> _Loaded:
    peer_server = peer_client = client_server = None
    if config.peer_certificate:
        files = TlsFiles(config.peer_ca, config.peer_certificate, config.peer_key)
        peer_server = server_context(files)
        # ``handshake`` compares the name, in the same way at both ends.
        peer_client = client_context(files, check_hostname=False)
    if config.client_certificate:
        client_server = server_context(TlsFiles(config.client_ca, config.client_certificate,
                                                config.client_key))
    return _Loaded(_secrets(config.peer_secret), peer_server, peer_client, client_server,
                   _expiries(config))


def _expiries(config: SecurityConfig) -> dict[str, int]:
    """Return the ends of the certificates, whose files were loaded before. Raises
    ``ConfigError``."""
    found = {}
    for port, path in (("client", config.client_certificate), ("peer", config.peer_certificate)):
        try:
            end = expiry_of(path) if path else 0
        except OSError as error:  # replaced a moment ago
            raise ConfigError(f"security.{port}_certificate: cannot read {path}: "
                              f"{error.strerror}") from error
        if end:
            found[port] = end
    return found


def _secrets(path: str) -> tuple[bytes, ...]:
    """Return the secrets in the file at ``path``, one per line; none without a path. Raises
    ``ConfigError``, which never quotes a secret."""
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
