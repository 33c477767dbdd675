"""Snapshot that is being received: its first bytes in a file, to resume after a restart.

    header   magic, version, reserved, index, term, total bytes, CRC of the whole snapshot; a CRC32C
    chunk    length, CRC32C of the length and the bytes; the bytes        ... one after the other

Contract.  ``begin`` names a snapshot, ``append`` adds its next bytes, ``load`` returns the bytes
that the file has after a restart: a prefix of exactly what was appended, or nothing.  ``remove``
ends it.  All calls block, and none syncs: bytes lost in a crash are fetched again.

Invariants.  ``load`` checks chunk by chunk, so a torn or damaged file costs the chunks from there
on and nothing else; it is cut there, and the download resumes there.  A header that names more than
``bytes_max``, or is of another release, holds no snapshot: a cache is not refused, it is made anew.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from multiraft import core
from multiraft.storage.filesystem import File, Filesystem

PARTIAL_FILE = "snapshot.partial"
_MAGIC = b"MRPART\x00\x01"
_VERSION = 1
#: magic, version, reserved, index, term, total, CRC of the snapshot
_HEAD = struct.Struct("<8sIIQQQI")
_CRC = struct.Struct("<I")
_CHUNK = struct.Struct("<II")
_LENGTH = struct.Struct("<I")
_HEAD_BYTES = _HEAD.size + _CRC.size


@dataclass(slots=True)
class PartialSnapshot:
    """Received bytes of a snapshot, which its index, term and CRC identify."""

    index: int
    term: int
    total: int
    crc: int
    data: bytearray


class SnapshotDownload:
    """File of the snapshot that is being received: at most one in a data directory."""

    def __init__(self, filesystem: Filesystem, directory: str, bytes_max: int):
        self._filesystem = filesystem
        self._path = f"{directory}/{PARTIAL_FILE}"
        self._bytes_max = bytes_max
        self._end = 0  # of what is intact in the file; 0 = there is none

    def begin(self, arrived: PartialSnapshot) -> None:
        """Replace the file by one of this snapshot, with its received part. Raise ``OSError`` if it
        cannot be written, and leave no file then."""
        self.remove()
        head = _HEAD.pack(_MAGIC, _VERSION, 0, arrived.index, arrived.term, arrived.total,
                          arrived.crc)
        file = self._filesystem.create(self._path)
        try:
            self._end = file.write([head, _CRC.pack(core.crc32c(head))], 0, False)
        except OSError:
            self.remove()
            raise
        finally:
            file.close()
        if arrived.data:
            self.append(arrived.data)

    def append(self, chunk: bytes | bytearray | memoryview) -> None:
        """Append received bytes; do nothing when there is no file. Raise ``OSError`` if they cannot
        be written, and leave no file then."""
        if not self._end:
            return
        crc = core.crc32c(chunk, core.crc32c(_LENGTH.pack(len(chunk))))
        try:
            file = self._filesystem.open(self._path)
            try:
                self._end += file.write([_CHUNK.pack(len(chunk), crc), chunk], self._end, False)
            finally:
                file.close()
        except OSError:
            self.remove()
            raise

    def load(self) -> PartialSnapshot | None:
        """Return the part of a snapshot that the file has intact, and cut the file behind it.
        Return None and remove the file if it has no intact part.  Raise ``OSError``."""
        if not self._filesystem.exists(self._path):
            return None
        file = self._filesystem.open(self._path)
        try:
            arrived = self._read(file)
            if arrived is not None:
                file.truncate(self._end)
        finally:
            file.close()
        if arrived is None:
            self.remove()
        return arrived

    def remove(self) -> None:
        """Remove the file, if there is one.  Raise ``OSError``."""
        self._end = 0
        if self._filesystem.exists(self._path):
            self._filesystem.remove(self._path)

    def _read(self, file: File) -> PartialSnapshot | None:
        head = file.read(_HEAD_BYTES, 0)
        if len(head) < _HEAD_BYTES or _CRC.unpack_from(head, _HEAD.size)[0] != core.crc32c(
                head[:_HEAD.size]):
            return None
        magic, version, _, index, term, total, crc = _HEAD.unpack_from(head)
        if magic != _MAGIC or version != _VERSION or total > self._bytes_max:
            return None
        arrived = PartialSnapshot(index, term, total, crc, bytearray())
        self._end = _HEAD_BYTES
        while (chunk := self._read_chunk(file, total - len(arrived.data))) is not None:
            arrived.data += chunk
            self._end += _CHUNK.size + len(chunk)
        return arrived if arrived.data else None

    def _read_chunk(self, file: File, length_max: int) -> bytes | None:
        head = file.read(_CHUNK.size, self._end)
        if len(head) < _CHUNK.size:
            return None
        length, crc = _CHUNK.unpack(head)
        if not 0 < length <= length_max:
            return None
        chunk = file.read(length, self._end + _CHUNK.size)
        intact = len(chunk) == length and core.crc32c(chunk, core.crc32c(head[:4])) == crc
        return chunk if intact else None
