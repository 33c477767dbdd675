"""Small whole files: replaced atomically; as checkpoints have them, magic, version, body, CRC.

Contract.  ``write_envelope`` returns when the file is durable under its name; before that the name
holds what it held.  ``read_envelope`` returns the body exactly as written or raises.
"""

from __future__ import annotations

import struct

from multiraft import core
from multiraft.storage.config import ENVELOPE_BYTES_LIMIT
from multiraft.storage.errors import CorruptFile, UnknownFormat
from multiraft.storage.filesystem import Buffer, Filesystem, ReadableFiles
from multiraft.storage.strays import UNFINISHED, is_unfinished

#: magic, version, reserved, body length; a CRC32C of everything before it ends the file.
_HEAD = struct.Struct("<8sIIQ")
_CRC = struct.Struct("<I")


def write_envelope(filesystem: Filesystem, directory: str, name: str, magic: bytes, version: int,
                   body: bytes) -> int:
    """Write ``body`` with its magic, version and CRC as file ``name``, atomically and durably;
    return the size of the file.  Raises ``OSError``."""
    head = _HEAD.pack(magic, version, 0, len(body))
    crc = core.crc32c(body, core.crc32c(head))
    replace_file(filesystem, directory, name, [head, body, _CRC.pack(crc)])
    return _HEAD.size + len(body) + _CRC.size


def read_envelope(filesystem: ReadableFiles, path: str, magic: bytes, *versions: int) -> bytes:
    """Return the body of a file that ``write_envelope`` wrote.

    Raise ``CorruptFile`` if its size, magic, CRC or length is wrong, and ``UnknownFormat`` if its
    version is none of ``versions``."""
    return open_envelope(path, read_whole(filesystem, path), magic, *versions)


def read_whole(files: ReadableFiles, path: str) -> bytes:
    """Return the bytes of a file.  Raise ``CorruptFile`` if they are more than
    ``ENVELOPE_BYTES_LIMIT``, or fewer than the file's size says."""
    size = files.size(path)
    if size > ENVELOPE_BYTES_LIMIT:
        raise CorruptFile(path, f"its size is {size}, the limit is {ENVELOPE_BYTES_LIMIT}")
    file = files.open(path)
    try:
        data = file.read(size, 0)
    finally:
        file.close()
    if len(data) != size:
        raise CorruptFile(path, f"{len(data)} of {size} bytes could be read")
    return data


def open_envelope(path: str, data: bytes, magic: bytes, *versions: int) -> bytes:
    """Return the body in the bytes of the file ``path``.  Raise as ``read_envelope``."""
    size = len(data)
    if size < _HEAD.size + _CRC.size:
        raise CorruptFile(path, f"its size is {size}")
    view = memoryview(data)
    found_magic, found_version, _, length = _HEAD.unpack_from(view)
    if found_magic != magic:
        raise CorruptFile(path, f"its magic is {found_magic!r}")
    crc, = _CRC.unpack_from(view, size - _CRC.size)
    if core.crc32c(view[:-_CRC.size]) != crc:
        raise CorruptFile(path, "its CRC does not match")
    if found_version not in versions:
        raise UnknownFormat(path, found_version, versions[-1])
    if _HEAD.size + length + _CRC.size != size:
        raise CorruptFile(path, f"its body of {length} bytes does not fit its size {size}")
    return data[_HEAD.size:-_CRC.size]


def is_whole(data: Buffer) -> bool:
    """Return True if the bytes of an enveloped file, of any magic, match its checksum."""
    view = memoryview(data)
    return (len(view) >= _HEAD.size + _CRC.size
            and core.crc32c(view[:-_CRC.size]) == _CRC.unpack_from(view, len(view) - _CRC.size)[0])


def replace_file(filesystem: Filesystem, directory: str, name: str, buffers: list) -> None:
    """Replace file ``name`` by one that contains ``buffers``, atomically and durably.  Raises
    ``OSError``; then the name has its old contents, or the new ones that a crash may still take
    back."""
    unfinished = f"{directory}/{name}{UNFINISHED}"
    if filesystem.exists(unfinished):
        filesystem.remove(unfinished)
    file = filesystem.create(unfinished)
    try:
        file.write(buffers, 0, True)  # synced before the rename: the name never has fewer bytes
    except OSError:
        filesystem.remove(unfinished)  # a disk that is full gets its space back
        raise
    finally:
        file.close()
    filesystem.rename(unfinished, f"{directory}/{name}")
    # Without this a crash may bring the old file back, although its successor was reported durable.
    filesystem.sync_directory(directory)


def remove_unfinished(filesystem: Filesystem, directory: str) -> None:
    """Remove the temporary files that a crash left; files of other names stay."""
    for name in filesystem.list(directory):
        if is_unfinished(name):
            filesystem.remove(f"{directory}/{name}")
