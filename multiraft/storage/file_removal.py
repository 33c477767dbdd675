"""Removal of large files: their names first, then their blocks in slices.

Contract.  ``unlink`` -> ``free``, once and again while ``has_blocks``; each blocks, on any thread.
The caller may wait between two calls.  A process that ends leaves the rest to the system, which
frees the blocks of files without a name.

Theory.  A file system frees all blocks of a file in one transaction of its journal, and syncs of
other files wait for that: 80 files of 64 MiB, unlinked one after the other, delayed one write in a
hundred by 35 to 45 ms, and by 3 ms in slices of 8 MiB (one disk, ext4, writes of 256 KiB).  RocksDB
deletes files in the same way, for the same reason (``bytes_max_delete_chunk`` of its
``SstFileManager``).

A read that began before the names were gone may meet the end of a file early.  So nothing may need
the files any longer, and a read that fails asks if that is so.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from multiraft.storage.filesystem import File, Filesystem

#: Bytes whose blocks one call frees.  It takes some 2 ms.
SLICE_BYTES = 8 << 20
#: Errors of a lack of file descriptors or memory, which pass.
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class FileRemoval:
    """Files of one directory that are removed together."""

    __slots__ = ("bytes", "_filesystem", "_directory", "_paths", "_unlinked")

    def __init__(self, filesystem: Filesystem, directory: str, paths: Sequence[str]):
        self.bytes = 0  # size of the files that were unlinked
        self._filesystem = filesystem
        self._directory = directory
        self._paths = paths
        self._unlinked: list[tuple[File, int]] = []  # with the bytes that are left

    @property
    def has_blocks(self) -> bool:
        """True if unlinked files still have blocks."""
        return bool(self._unlinked)

    def unlink(self) -> None:
        """Unlink the files that exist, and sync the directory: they do not come back.  Raises
        ``OSError``; then it may be called again."""
        try:
            for path in self._paths:
                if self._filesystem.exists(path):
                    self._unlink(path)
            self._filesystem.sync_directory(self._directory)
        except OSError:
            self._close()
            raise

    def _unlink(self, path: str) -> None:
        size = self._filesystem.size(path)
        file = self._opened(path) if size > SLICE_BYTES else None
        try:
            self._filesystem.remove(path)
        except OSError:
            if file is not None:
                file.close()
            raise
        self.bytes += size
        if file is not None:
            self._unlinked.append((file, size))

    def _opened(self, path: str) -> File | None:
        """Return the file, or None without a descriptor for it: all its blocks go at once then."""
        try:
            return self._filesystem.open(path)
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            return None

    def free(self) -> None:
        """Free the blocks of the next slice.  Do nothing if no file has any.  Raises ``OSError``;
        the system frees the blocks of all files then."""
        if not self._unlinked:
            return
        file, size = self._unlinked.pop()
        left = max(0, size - SLICE_BYTES)
        try:
            if left:
                file.truncate(left)
        except OSError:
            file.close()
            self._close()
            raise
        if left:
            self._unlinked.append((file, left))
        else:
            file.close()

    def _close(self) -> None:
        """Let the system free the blocks."""
        for file, _ in self._unlinked:
            file.close()
        self._unlinked = []
