"""Permanent mark of a data directory that a peer rejected: ``refused.json``.

Contract.  ``write`` returns when the mark is durable.  Who starts a node asks ``read`` before
anything of the directory is changed; a directory with a mark is not started.  ``clear`` takes the
mark away, and first makes the life that the directory was compared with one of its own, so that
the peer that named it lets the next one in.

Theory.  A refused start counts the boot epoch up as any other does.  Were the refusal not kept, the
evidence of the next one would be weaker than that of the first.
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft.codec import shapes
from multiraft.liveness.peer_identity import NO_LIFE, Life
from multiraft.storage.errors import CorruptFile
from multiraft.storage.filesystem import Filesystem
from multiraft.storage.identity import adopt, read_signed, write_signed

REFUSED_FILE = "refused.json"

_SHAPE = {"reason": shapes.TEXT, "boot_epoch": shapes.WHOLE, "process": shapes.WHOLE,
          "refused_ms": shapes.WHOLE}


class Mark(NamedTuple):
    """Why the directory was refused.  ``life``: what a peer remembers and the directory has not
    had, (0, 0) = nothing of the kind; ``refused_ms``: since 1970."""

    reason: str
    life: Life = NO_LIFE
    refused_ms: int = 0


def write(filesystem: Filesystem, directory: str, mark: Mark) -> None:
    """Mark the directory; blocks until that is durable.  Raises ``OSError``."""
    write_signed(filesystem, directory, REFUSED_FILE, {
        "reason": mark.reason, "boot_epoch": mark.life.boot_epoch, "process": mark.life.process,
        "refused_ms": mark.refused_ms})


def read(filesystem: Filesystem, directory: str) -> Mark | None:
    """Return the mark of the directory; None = it has none.  Raise ``CorruptFile``,
    ``UnknownFormat``."""
    fields = read_signed(filesystem, directory, REFUSED_FILE)
    if fields is None:
        return None
    try:
        shapes.check(fields, _SHAPE)
    except ValueError as error:
        raise CorruptFile(f"{directory}/{REFUSED_FILE}", f"malformed ({error!r})") from error
    return Mark(fields["reason"], Life(fields["boot_epoch"], fields["process"]),
                fields["refused_ms"])


def clear(filesystem: Filesystem, directory: str, mark: Mark) -> None:
    """Let the directory start again.  Stopped in the middle, it is still marked.  Raises
    ``CorruptFile``, ``UnknownFormat``, ``OSError``."""
    if mark.life != NO_LIFE:
        adopt(filesystem, directory, mark.life)
    filesystem.remove(f"{directory}/{REFUSED_FILE}")
    filesystem.sync_directory(directory)
