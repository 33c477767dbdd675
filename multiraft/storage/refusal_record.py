"""Permanent record that a peer refused this data directory: ``refused.json``.

Contract.  ``write`` returns when the record is durable.  A start calls ``read`` before it changes
anything of the directory, and does not start a directory with a record.  ``clear`` removes the
record.  Before that it makes the boot id that the peer remembers one of the directory's own, so
that the peer admits the next start.

Theory.  A refused start increments the boot epoch like any other.  Without the record, the evidence
against the next start would be weaker than that against the first.
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft.codec import shapes
from multiraft.liveness.peer_identity import NO_BOOT_ID, BootId
from multiraft.storage.errors import CorruptFile
from multiraft.storage.filesystem import Filesystem
from multiraft.storage.identity import adopt, read_signed, write_signed

REFUSED_FILE = "refused.json"

_SHAPE = {"reason": shapes.TEXT, "boot_epoch": shapes.UINT, "process": shapes.UINT,
          "refused_ms": shapes.UINT}


class RefusalRecord(NamedTuple):
    """Reason of a refusal.

    ``boot_id``: that of a peer's memory which the directory has not had, (0, 0) = another reason;
    ``refused_ms``: milliseconds since 1970."""

    reason: str
    boot_id: BootId = NO_BOOT_ID
    refused_ms: int = 0


def write(filesystem: Filesystem, directory: str, record: RefusalRecord) -> None:
    """Record the refusal; blocks until that is durable.  Raises ``OSError``."""
    write_signed(
        filesystem,
        directory,
        REFUSED_FILE,
        {
            "reason": record.reason,
            "boot_epoch": record.boot_id.boot_epoch,
            "process": record.boot_id.process,
            "refused_ms": record.refused_ms,
        },
    )


def read(filesystem: Filesystem, directory: str) -> RefusalRecord | None:
    """Return the record of the directory; None = it has none. Raises ``CorruptFile`` for a damaged
    record, ``UnknownFormat`` for one of a later release."""
    fields = read_signed(filesystem, directory, REFUSED_FILE)
    if fields is None:
        return None
    try:
        shapes.check(fields, _SHAPE)
    except ValueError as error:
        raise CorruptFile(f"{directory}/{REFUSED_FILE}", f"malformed ({error!r})") from error
    return RefusalRecord(fields["reason"], BootId(fields["boot_epoch"], fields["process"]),
                         fields["refused_ms"])


def clear(filesystem: Filesystem, directory: str, record: RefusalRecord) -> None:
    """Adopt the record's boot id and remove the record, so that the directory can start. After a
    crash in between it is still refused. Raises as ``identity.adopt``, and ``OSError``."""
    if record.boot_id != NO_BOOT_ID:
        adopt(filesystem, directory, record.boot_id)
    filesystem.remove(f"{directory}/{REFUSED_FILE}")
    filesystem.sync_directory(directory)
