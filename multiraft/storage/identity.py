"""Whose directory this is: ``node.json``, written at the first start, and the boot epoch in it.

Contract.  ``claim`` compares the directory's identity with the one that starts, counts the boot
epoch up by one and returns when that is durable, so no epoch is ever used twice.  A directory that
holds data but no identity is refused: its identity was lost, or it is half a copy.

Theory.  JSON, because a person who finds a disk wants to read whose it is.  The CRC covers the
canonical form of the other fields.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from multiraft import _layout, core
from multiraft.storage.envelope import replace_file
from multiraft.storage.errors import CorruptFile, UnknownFormat, WrongIdentity
from multiraft.storage.filesystem import Filesystem

NODE_FILE = "node.json"

#: The file is a few hundred bytes; more is not ours.
_NODE_FILE_BYTES_MAX = 1 << 16


class Identity(NamedTuple):
    """Who starts.  ``fresh_incarnation`` is a random 63-bit number, used only when the directory is
    new: it then becomes the incarnation of the directory."""

    cluster: bytes  # 16 bytes
    node: int
    fresh_incarnation: int


class Claimed(NamedTuple):
    """What the directory says after it was claimed."""

    incarnation: int
    boot_epoch: int


def claim(filesystem: Filesystem, directory: str, identity: Identity, has_data: bool) -> Claimed:
    """Check or create the identity and start a new boot epoch.

    Raises ``WrongIdentity``, ``UnknownFormat``, ``CorruptFile``.
    """
    assert len(identity.cluster) == 16, f"cluster id of {len(identity.cluster)} bytes"
    path = f"{directory}/{NODE_FILE}"
    if filesystem.exists(path):
        claimed = _read(filesystem, path, identity)
    elif has_data:
        raise CorruptFile(path, "it is missing, but the directory holds data")
    else:
        claimed = Claimed(identity.fresh_incarnation, 0)
    claimed = claimed._replace(boot_epoch=claimed.boot_epoch + 1)
    _write(filesystem, directory, identity, claimed)
    return claimed


def _write(filesystem: Filesystem, directory: str, identity: Identity, claimed: Claimed) -> None:
    fields = {"format_version": _layout.FORMAT_VERSION, "cluster_id": identity.cluster.hex(),
              "node": identity.node, "incarnation": claimed.incarnation,
              "boot_epoch": claimed.boot_epoch}
    fields["crc"] = _crc(fields)
    text = json.dumps(fields, indent=1, sort_keys=True) + "\n"
    replace_file(filesystem, directory, NODE_FILE, [text.encode()])


def _read(filesystem: Filesystem, path: str, identity: Identity) -> Claimed:
    file = filesystem.open(path)
    try:
        data = file.read(_NODE_FILE_BYTES_MAX, 0)
    finally:
        file.close()
    try:
        fields = json.loads(data)
    except ValueError as error:
        raise CorruptFile(path, f"not JSON ({error})") from error
    if not isinstance(fields, dict) or fields.pop("crc", None) != _crc(fields):
        raise CorruptFile(path, "its CRC does not match")
    if fields.get("format_version") != _layout.FORMAT_VERSION:
        raise UnknownFormat(path, fields.get("format_version"), _layout.FORMAT_VERSION)
    if fields["cluster_id"] != identity.cluster.hex():
        raise WrongIdentity(path, "cluster", fields["cluster_id"], identity.cluster.hex())
    if fields["node"] != identity.node:
        raise WrongIdentity(path, "node", fields["node"], identity.node)
    return Claimed(fields["incarnation"], fields["boot_epoch"])


def _crc(fields: dict) -> int:
    return core.crc32c(json.dumps(fields, sort_keys=True).encode())
