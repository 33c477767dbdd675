"""TLS settings: files in, contexts out; for clients and for nodes.

Contract.  Nothing below TLS 1.2, no renegotiation.  A file that is missing or wrong is a
``ConfigError`` that names it.
"""

from __future__ import annotations

import ssl
from typing import NamedTuple

from multiraft.errors import ConfigError


class TlsFiles(NamedTuple):
    """Paths of PEM files.  ``ca``: whose certificates are believed; ``certificate`` (with what it
    needs to be traced to a CA) and ``key``: who we are.  "" = none."""

    ca: str = ""
    certificate: str = ""
    key: str = ""


class TlsSettings(NamedTuple):
    """How a client speaks TLS: ``ca`` "" = the system's CAs; ``certificate`` and ``key`` where the
    cluster asks clients who they are; ``server_name`` "" = certificates name the host that was
    connected to."""

    ca: str = ""
    certificate: str = ""
    key: str = ""
    server_name: str = ""

    def context(self) -> ssl.SSLContext:
        """Made anew for each connection, so that files may be replaced.  Raises ``ConfigError``."""
        return client_context(TlsFiles(self.ca, self.certificate, self.key))


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """For accepting connections; with a ``ca`` the other side must show a certificate of it.
    Raises ``ConfigError`` naming the file."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, files)
    context.verify_mode = ssl.CERT_REQUIRED if files.ca else ssl.CERT_NONE
    return context


def client_context(files: TlsFiles, check_hostname: bool = True) -> ssl.SSLContext:
    """For opening connections; without a ``ca`` those of the system are believed.
    Raises ``ConfigError`` naming the file."""
    context = _context(ssl.PROTOCOL_TLS_CLIENT, files)
    if not files.ca:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    context.check_hostname = check_hostname
    return context


def _context(protocol: int, files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    if bool(files.certificate) != bool(files.key):
        raise ConfigError("a TLS certificate and its key come together: "
                          f"certificate={files.certificate!r}, key={files.key!r}")
    try:
        if files.certificate:
            context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the certificate {files.certificate} with the key {files.key} cannot be "
                          f"used: {error}") from error
    try:
        if files.ca:
            context.load_verify_locations(files.ca)
    except (OSError, ValueError) as error:
        raise ConfigError(f"the CA certificates {files.ca} cannot be used: {error}") from error
    return context


def _no_password() -> str:
    """OpenSSL would ask on the terminal."""
    raise ValueError("the key is encrypted; a server starts without somebody to ask")
