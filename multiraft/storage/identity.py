"""Identity of a data directory: cluster, node, boot epoch and boot ids, in ``node.json``.

Contract.  ``create`` gives an empty directory its identity, once.  ``claim`` compares it with the
starting node's, increments the boot epoch, appends the boot id of this start, and returns when that
is durable, so no epoch is ever used twice.  A directory without identity is refused: its disk is
not mounted, its identity was lost, or it is an incomplete copy.  In none of these cases may it look
like a new node's (scenario S28f).  ``adopt`` adds a boot id that the directory has not had, by an
operator's decision; ``renew`` gives the running process another boot id.

Theory.  JSON, so that a person who finds a disk can read its owner.  The CRC covers the canonical
form of the other fields; ``write_signed`` and ``read_signed`` keep other small files of a data
directory in the same form.
"""

from __future__ import annotations

import json
from typing import NamedTuple

from multiraft import core
from multiraft.liveness.peer_identity import BOOT_IDS_KEPT, BootId
from multiraft.storage.atomic_file import replace_file
from multiraft.storage.errors import CorruptFile, IdentityMissing, UnknownFormat, WrongIdentity
from multiraft.storage.filesystem import Filesystem

NODE_FILE = "node.json"

#: Version of ``node.json`` and of the files beside it.  Version 1 has no boot ids.
FORMAT_VERSION = 2
FORMATS_READ = (1, 2)

#: These files are a few hundred bytes for each node of a cluster; more is not ours.
_FILE_BYTES_MAX = 1 << 20


class Identity(NamedTuple):
    """Identity of the starting node.

    ``fresh_incarnation``: a random 63-bit number for a new directory, whose incarnation it becomes;
    0 = the directory must have an identity already.  ``process``: a random number from
    ``peer_identity.DURABLE`` on for this start; 0 = it talks to no peer, and needs none.
    """

    cluster: bytes  # 16 bytes
    node: int
    fresh_incarnation: int = 0
    process: int = 0


class Found(NamedTuple):
    """Identity in a directory.  ``boot_ids``: its latest boot ids, oldest first."""

    cluster: bytes
    node: int
    incarnation: int
    boot_epoch: int
    boot_ids: tuple[BootId, ...] = ()


class Claimed(NamedTuple):
    """Numbers of a directory after a start claimed it."""

    incarnation: int
    boot_epoch: int
    boot_ids: tuple[BootId, ...] = ()


def claim(filesystem: Filesystem, directory: str, identity: Identity, has_data: bool) -> Claimed:
    """Check the directory's identity, or write that of a new directory; begin the next boot epoch,
    durably, and return the directory's numbers. Block.

    Raises ``WrongIdentity`` for a directory of another cluster or node, and ``UnknownFormat`` for
    an identity file of a later release. Without an identity, raises ``CorruptFile`` if the
    directory ``has_data``, ``IdentityMissing`` if ``identity`` has no fresh incarnation.
    ``CorruptFile`` is also raised for a damaged identity file."""
    assert len(identity.cluster) == 16, f"cluster id of {len(identity.cluster)} bytes"
    path = f"{directory}/{NODE_FILE}"
    found = read(filesystem, directory)
    if found is not None:
        if found.cluster != identity.cluster:
            raise WrongIdentity(path, "cluster", found.cluster.hex(), identity.cluster.hex())
        if found.node != identity.node:
            raise WrongIdentity(path, "node", found.node, identity.node)
        claimed = Claimed(found.incarnation, found.boot_epoch, found.boot_ids)
    elif has_data:
        raise CorruptFile(path, "it is missing, but the directory holds data")
    elif not identity.fresh_incarnation:
        raise IdentityMissing(path)
    else:
        claimed = Claimed(identity.fresh_incarnation, 0)
    epoch = claimed.boot_epoch + 1
    boot_ids = claimed.boot_ids
    if identity.process:
        boot_ids = (*boot_ids, BootId(epoch, identity.process))
    claimed = Claimed(claimed.incarnation, epoch, boot_ids[-BOOT_IDS_KEPT:])
    _write(filesystem, directory, identity, claimed)
    return claimed


def create(filesystem: Filesystem, directory: str, identity: Identity) -> None:
    """Write the identity of a directory that has none and was not started yet (boot epoch 0)."""
    assert identity.fresh_incarnation, "a new directory needs an incarnation"
    assert not filesystem.exists(f"{directory}/{NODE_FILE}"), f"{directory} has an identity"
    _write(filesystem, directory, identity, Claimed(identity.fresh_incarnation, 0))


def renew(filesystem: Filesystem, directory: str, step: int) -> tuple[BootId, ...]:
    """Give the running process another boot id, durably: its last one plus ``step``. Return the
    latest boot ids, oldest first. Raises ``CorruptFile`` or ``UnknownFormat`` for an identity file
    that cannot be read, ``OSError`` if the disk fails."""
    found = read(filesystem, directory)
    assert found is not None and found.boot_ids, f"{directory} has no identity, or no boot id"
    assert step > 0, f"a step of {step}"
    boot_id = BootId(found.boot_epoch, found.boot_ids[-1].process + step)
    boot_ids = (*found.boot_ids, boot_id)[-BOOT_IDS_KEPT:]
    _write(filesystem, directory, Identity(found.cluster, found.node),
           Claimed(found.incarnation, found.boot_epoch, boot_ids))
    return boot_ids


def adopt(filesystem: Filesystem, directory: str, boot_id: BootId) -> None:
    """Add ``boot_id`` to the directory's boot ids, if it is durable (``BootId.is_durable``), and
    make the next boot epoch larger than its epoch.

    Raises ``CorruptFile`` or ``UnknownFormat`` for an identity file that cannot be read."""
    found = read(filesystem, directory)
    assert found is not None, f"{directory} has no identity"
    boot_ids = sorted({*found.boot_ids, boot_id}) if boot_id.is_durable else found.boot_ids
    epoch = max(found.boot_epoch, boot_id.boot_epoch)
    _write(filesystem, directory, Identity(found.cluster, found.node),
           Claimed(found.incarnation, epoch, tuple(boot_ids)[-BOOT_IDS_KEPT:]))


def read(filesystem: Filesystem, directory: str) -> Found | None:
    """Return the directory's identity; None = it has none. Raise ``UnknownFormat`` for a file of a
    later release, ``CorruptFile`` for a damaged one."""
    fields = read_signed(filesystem, directory, NODE_FILE)
    if fields is None:
        return None
    try:
        return Found(bytes.fromhex(fields["cluster_id"]), int(fields["node"]),
                     int(fields["incarnation"]), int(fields["boot_epoch"]),
                     tuple(_boot_id(*row) for row in fields.get("lives", ())))
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptFile(f"{directory}/{NODE_FILE}", f"malformed ({error!r})") from error


def write_signed(filesystem: Filesystem, directory: str, name: str, fields: dict) -> None:
    """Replace a JSON file of the directory, atomically and durably, by ``fields`` with format
    version and CRC."""
    signed = {"format_version": FORMAT_VERSION, **fields}
    signed["crc"] = _crc(signed)
    text = json.dumps(signed, indent=1, sort_keys=True) + "\n"
    replace_file(filesystem, directory, name, [text.encode()])


def read_signed(filesystem: Filesystem, directory: str, name: str) -> dict | None:
    """Return the fields of a file that ``write_signed`` wrote, after a check of its CRC; None =
    there is no such file. Raise ``UnknownFormat`` for a file of a later release, ``CorruptFile``
    for a damaged one."""
    path = f"{directory}/{name}"
    if not filesystem.exists(path):
        return None
    file = filesystem.open(path)
    try:
        data = file.read(_FILE_BYTES_MAX, 0)
    finally:
        file.close()
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:  # RecursionError: nested too deeply
        raise CorruptFile(path, f"not JSON ({error})") from error
    if not isinstance(fields, dict) or fields.pop("crc", None) != _crc(fields):
        raise CorruptFile(path, "its CRC does not match")
    version = fields.pop("format_version", None)
    if version not in FORMATS_READ:
        raise UnknownFormat(path, version, FORMAT_VERSION)
    return fields


def _write(filesystem: Filesystem, directory: str, identity: Identity, claimed: Claimed) -> None:
    write_signed(filesystem, directory, NODE_FILE, {
        "cluster_id": identity.cluster.hex(), "node": identity.node,
        "incarnation": claimed.incarnation, "boot_epoch": claimed.boot_epoch,
        "lives": [[boot_id.boot_epoch, f"{boot_id.process:016x}"] for boot_id in claimed.boot_ids]})


def _boot_id(boot_epoch: int, process: str) -> BootId:
    """Return the boot id in a row of the file. Raise ``TypeError`` or ``ValueError`` for a
    malformed row."""
    return BootId(int(boot_epoch), int(process, 16))


def _crc(fields: dict) -> int:
    return core.crc32c(json.dumps(fields, sort_keys=True).encode())
