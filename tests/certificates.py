"""Certificates for tests: a new CA, and files that it has signed."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import trustme

from multiraft.client.tls import TlsFiles

EXPIRED = datetime.now(timezone.utc) - timedelta(days=1)


class Authority:
    """A CA whose files are in ``directory``."""

    def __init__(self, directory: Path, name: str = "ca"):
        self._ca = trustme.CA()
        self._directory = directory
        self._issued = 0
        self.path = directory / f"{name}.pem"
        self._ca.cert_pem.write_to_path(str(self.path))

    def issue(self, *names: str, expired: bool = False) -> TlsFiles:
        """Return the paths of a certificate for these host names or addresses, and of its key."""
        self._issued += 1
        certificate = self._ca.issue_cert(*names, not_after=EXPIRED if expired else None)
        stem = self._directory / f"{self.path.stem}-{self._issued}"
        key, chain = stem.with_suffix(".key"), stem.with_suffix(".crt")
        certificate.private_key_pem.write_to_path(str(key))
        chain.write_bytes(b"".join(pem.bytes() for pem in certificate.cert_chain_pems))
        return TlsFiles(str(self.path), str(chain), str(key))
