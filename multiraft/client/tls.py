"""TLS contexts made from certificate files, for clients and for nodes.

Contract.  TLS 1.2 at least, no renegotiation, no compression.  A missing or invalid file raises a
``ConfigError`` that names it.
"""

from __future__ import annotations

import ssl
from typing import NamedTuple

from multiraft.errors import ConfigError


class TlsFiles(NamedTuple):
    """Paths of PEM files.  ``ca``: trusted CA certificates; ``certificate`` (with its intermediate
    certificates) and ``key``: the own identity.  "" = none."""

    ca: str = ""
    certificate: str = ""
    key: str = ""


class TlsSettings(NamedTuple):
    """TLS settings of a client; paths of PEM files.

        ca                 trusted CA certificates; "" = those of the system
        certificate, key   client certificate, if the cluster requires one (mutual TLS)
        server_name        name that node certificates must have; "" = the host connected to

        Client(["db1:9101"], tls=TlsSettings(ca="/etc/multiraft/ca.pem"))
    """

    ca: str = ""
    certificate: str = ""
    key: str = ""
    server_name: str = ""

    def context(self) -> ssl.SSLContext:
        """Return a new context, read from the files for each connection, so that the files may be
        replaced.  Raises ``ConfigError`` that names an unusable file."""
        return client_context(TlsFiles(self.ca, self.certificate, self.key))


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Return a context for accepting connections.  With a ``ca`` the client must present a
    certificate of it.  Raises ``ConfigError`` that names an unusable file."""
    context = _context(ssl.PROTOCOL_TLS_SERVER, files)
    context.verify_mode = ssl.CERT_REQUIRED if files.ca else ssl.CERT_NONE
    return context


def client_context(files: TlsFiles, check_hostname: bool = True) -> ssl.SSLContext:
    """Return a context for opening connections.  Without a ``ca`` the system's CAs are trusted.
    Raises ``ConfigError`` that names an unusable file."""
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
    """Raise ``ValueError``, because OpenSSL would otherwise prompt on the terminal."""
    raise ValueError("the key is encrypted, and a server cannot ask for its passphrase")
