"""Tables of the metadata that a snapshot has and this release does not fill.

Contract.  A snapshot of version 9 has each table of ``RESERVED``, and it is empty.  A row in one of
them was written by a later release and changes what that release promises, so this one refuses the
snapshot, as it refuses a later version.

* ``users``: names, and what proves their passwords
* ``quotas``: limits of rates by user and client id
"""

from __future__ import annotations

RESERVED = ("users", "quotas")


def snapshot() -> dict:
    """Return the tables as values that CBOR can encode."""
    return {name: [] for name in RESERVED}


def check(snapshot: dict) -> None:
    """Return if all reserved tables of a snapshot are empty.  Raises ``ValueError`` for one that is
    not, ``KeyError`` for one that is missing."""
    for name in RESERVED:
        if snapshot[name] != []:
            raise ValueError(f"the table {name} has rows, which a later release has written")
