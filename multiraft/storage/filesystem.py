"""The seam between storage and the operating system: every effect on a disk goes through here.

Contract.  A ``Filesystem`` names files by path; a ``File`` is an open one.  All calls block.
``RealFilesystem`` is the operating system; the deterministic simulator brings one that loses
unsynced writes, tears them, fails and fills up, and tests bring one that crashes at a chosen call.

What survives a power loss (the simulator holds us to exactly this):

- Bytes given to ``write`` or cut by ``truncate`` are durable once a later ``sync`` of the same file
  (or ``write`` with ``sync=True``) has returned.  Before that, any subset of the written 512-byte
  sectors may be on disk, in any order, and the size may be the old or the new one.
- ``create``, ``rename`` and ``remove`` are durable once ``sync_directory`` of the directory has
  returned.  Before that each may or may not have happened.  ``rename`` replaces atomically.
- A ``sync`` that failed says nothing about the bytes: it is never retried, the node stops.

Errors are ``OSError`` as the system raised them; only ``lock`` has one of its own.
"""

from __future__ import annotations

import builtins
import ctypes
import errno
import fcntl
import os
from collections.abc import Sequence
from typing import ClassVar, Protocol

from multiraft import core
from multiraft.storage.errors import DirectoryInUse

Buffer = bytes | bytearray | memoryview

#: Linux's, which Python's ``posix_fallocate`` is not: that one changes the size.
_KEEP_SIZE = 1
_fallocate = ctypes.CDLL(None, use_errno=True).fallocate64
_fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
#: What ``st_blocks`` counts, whatever the file system's blocks are.
_STAT_BLOCK_BYTES = 512
#: Reads that pass the page cache by begin and end at multiples of this on any disk.
_BLOCK_BYTES = 4096
#: What ``RWF_NOWAIT`` says of bytes that are not in memory, and file systems that cannot tell.
_NOT_RESIDENT = (errno.EAGAIN, errno.EOPNOTSUPP, errno.EINVAL)


class File(Protocol):
    """An open file.  Positions are explicit: there is no cursor, so threads may share one."""

    path: str

    def read(self, length: int, position: int) -> bytes:
        """Read bytes from ``position`` on; fewer than ``length`` only at the end of the file."""
        ...

    def read_resident(self, length: int, position: int) -> bytearray | None:
        """Read exactly ``length`` bytes from ``position`` on, without waiting for the disk; None
        when the page cache does not have all of them, the file ends before, or the system cannot
        tell."""
        ...

    def read_ahead(self, length: int, position: int) -> None:
        """Have the system read bytes into the page cache, without waiting for them."""
        ...

    def write(self, buffers: Sequence[Buffer], position: int, sync: bool) -> int:
        """Write all buffers, gathered, at ``position`` (extending the file, zeros between), and
        then ``sync`` when asked.  Return the number of bytes written, always all of them."""
        ...

    def sync(self) -> None:
        """Make everything written so far durable, the size included."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to ``size`` bytes, or extend it with zeros; durable after the next
        ``sync``."""
        ...

    def size(self) -> int: ...

    def allocated(self) -> int:
        """Return the bytes of the file's blocks, reserved or written."""
        ...

    def preallocate(self, size: int) -> None:
        """Allocate blocks for the first ``size`` bytes, so that writing them cannot fail for lack
        of space; the readable content does not change.

        Do nothing where the system cannot. Raises ``OSError``, also when the disk has too little
        space."""
        ...

    def fileno(self) -> int:
        """Return the descriptor, for a native writer; a simulated file has none and raises
        ``OSError``."""
        ...

    def close(self) -> None:
        """Release the descriptor; no durability is implied.  A second call does nothing."""
        ...


class Lock(Protocol):
    """Exclusive lock on a file, held until it is closed or the process ends."""

    def close(self) -> None: ...


class ReadableFile(Protocol):
    """The part of a ``File`` that reads."""

    def read(self, length: int, position: int) -> bytes: ...

    def close(self) -> None: ...


class ReadableFiles(Protocol):
    """The part of a ``Filesystem`` that reads whole files."""

    def size(self, path: str) -> int: ...

    def open(self, path: str) -> ReadableFile: ...


class Filesystem(Protocol):
    """A tree of directories and files."""

    def make_directory(self, path: str) -> None:
        """Create the directory, parents included, and make the names durable; do nothing when it
        exists."""
        ...

    def sync_directory(self, path: str) -> None: ...

    def list(self, path: str) -> list[str]:
        """Return the names of the files in a directory, sorted."""
        ...

    def non_files(self, path: str) -> builtins.list[str]:
        """Return the names in a directory that are no files, sorted: directories, links, pipes,
        sockets."""
        ...

    def exists(self, path: str) -> bool:
        """Return True if the path exists, also as a directory or a link that leads nowhere. Raise
        ``OSError`` when the system cannot tell: a file without access rights is not missing."""
        ...

    def size(self, path: str) -> int: ...

    def create(self, path: str) -> File:
        """Create an empty file for reading and writing.  Raise ``FileExistsError`` when there is
        one."""
        ...

    def open(self, path: str) -> File:
        """Open a file for reading and writing.  Raise ``FileNotFoundError`` when there is none."""
        ...

    def read_disk(self, path: str, length: int, position: int) -> Buffer:
        """Read durable bytes of a file from the disk, not from the page cache, which says nothing
        about the disk. Fewer than ``length`` are returned only at the end of the file.

        The page cache is used where the file system has no other way."""
        ...

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def lock(self, path: str) -> Lock:
        """Lock a file exclusively, created if necessary, without waiting. Raises ``DirectoryInUse``
        if another process holds it."""
        ...


class RealFile:
    """File of the operating system, by its descriptor."""

    __slots__ = ("path", "_descriptor")

    def __init__(self, path: str, descriptor: int):
        self.path = path
        self._descriptor = descriptor

    def read(self, length: int, position: int) -> bytes:
        parts = []
        while length > 0:
            part = os.pread(self._descriptor, length, position)
            if not part:
                break
            parts.append(part)
            length -= len(part)
            position += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_resident(self, length: int, position: int) -> bytearray | None:
        data = core.unset_memory(length)
        try:
            count = os.preadv(self._descriptor, [data], position, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno in _NOT_RESIDENT:
                return None
            raise
        return data if count == length else None

    def read_ahead(self, length: int, position: int) -> None:
        os.posix_fadvise(self._descriptor, position, length, os.POSIX_FADV_WILLNEED)

    def write(self, buffers: Sequence[Buffer], position: int, sync: bool) -> int:
        return core.append_gathered(self._descriptor, buffers, position, sync)

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def allocated(self) -> int:
        return os.fstat(self._descriptor).st_blocks * _STAT_BLOCK_BYTES

    def preallocate(self, size: int) -> None:
        if _fallocate(self._descriptor, _KEEP_SIZE, 0, size) != 0:
            number = ctypes.get_errno()
            if number not in (errno.EOPNOTSUPP, errno.ENOSYS):
                raise OSError(number, os.strerror(number), self.path)

    def fileno(self) -> int:
        if self._descriptor < 0:
            raise OSError(f"{self.path} is closed")
        return self._descriptor

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class RealLock:
    """A ``flock``; the file carries the holder's pid for the one who is refused."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int):
        self._descriptor = descriptor

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _block_memory(size: int) -> memoryview:
    """Return ``size`` bytes of undefined content that begin at a multiple of ``_BLOCK_BYTES``.

    They come from the allocator: a mapping of their own has each of its pages filled by the system,
    which takes longer than the read."""
    memory = core.unset_memory(size + _BLOCK_BYTES)
    skipped = -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % _BLOCK_BYTES
    return memoryview(memory)[skipped:skipped + size]


def _read_blocks(path: str, blocks: memoryview, position: int) -> int:
    """Fill ``blocks`` from a file, past the page cache; return the number of bytes read, less than
    all only at the file's end.  Raises ``OSError``; ``EINVAL`` when the file system has no such
    reads."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECT)
    try:
        count = 0
        while count < len(blocks) and count % _BLOCK_BYTES == 0:
            part = os.preadv(descriptor, [blocks[count:]], position + count)
            if not part:
                break
            count += part
        return count
    finally:
        os.close(descriptor)


class RealFilesystem:
    """Filesystem of the operating system. Symbolic links are not followed for files: a data
    directory holds its own data."""

    _FLAGS: ClassVar[int] = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW

    def make_directory(self, path: str) -> None:
        if os.path.isdir(path):
            return
        parent = os.path.dirname(os.path.abspath(path))
        self.make_directory(parent)
        os.mkdir(path, 0o750)
        self.sync_directory(parent)

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def list(self, path: str) -> list[str]:
        with os.scandir(path) as entries:
            return sorted(each.name for each in entries if each.is_file(follow_symlinks=False))

    def non_files(self, path: str) -> builtins.list[str]:
        with os.scandir(path) as entries:
            return sorted(each.name for each in entries if not each.is_file(follow_symlinks=False))

    def exists(self, path: str) -> bool:
        try:
            os.lstat(path)
        except FileNotFoundError:
            return False
        return True

    def size(self, path: str) -> int:
        return os.stat(path, follow_symlinks=False).st_size

    def create(self, path: str) -> RealFile:
        return RealFile(path, os.open(path, self._FLAGS | os.O_CREAT | os.O_EXCL, 0o640))

    def open(self, path: str) -> RealFile:
        return RealFile(path, os.open(path, self._FLAGS))

    def read_disk(self, path: str, length: int, position: int) -> Buffer:
        if length <= 0:
            return b""
        begin = position // _BLOCK_BYTES * _BLOCK_BYTES
        end = -(-(position + length) // _BLOCK_BYTES) * _BLOCK_BYTES
        blocks = _block_memory(end - begin)
        try:
            count = _read_blocks(path, blocks, begin)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            file = self.open(path)  # a file system that has no such reads
            try:
                return file.read(length, position)
            finally:
                file.close()
        return blocks[position - begin:min(count, position - begin + length)]

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def lock(self, path: str) -> RealLock:
        descriptor = os.open(path, self._FLAGS | os.O_CREAT, 0o640)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 20, 0).strip()
            os.close(descriptor)
            raise DirectoryInUse(path, int(holder) if holder.isdigit() else 0) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        return RealLock(descriptor)
