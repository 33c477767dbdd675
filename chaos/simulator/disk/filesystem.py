"""Simulated file system: synced bytes survive a crash, and the seed decides about all others.

Contract.  ``SimulatedFilesystem`` is a ``multiraft.storage.filesystem.Filesystem``.  A process sees
its own writes at once (``view``); they reach the disk (``disk``) at a sync.  ``power_loss``
discards the view: of each 512-byte sector with unsynced writes some version survives, in any order;
the size is the old or the new one; each unsynced create, rename and remove has happened or not.
``process_death`` keeps the page cache: the view survives and is still unsynced.  This exposes a
recovery that trusts bytes which it can read but does not sync.

A blocking call of the disk worker takes virtual time although it returns at once: between ``begin``
and ``complete`` operations are recorded in a journal.  A crash in that interval cuts the journal at
a random operation: those before the cut were issued (and their syncs hold), the others never
happened.  ``operations_to_crash`` counts operations down to a crash inside code that runs without
virtual time, such as recovery.  ``faults`` decides which operation fails (faults.py).

Theory.  ALICE (Pillai et al., OSDI 2014): crash states are what a prefix of system calls allows,
with the unsynced ones applied in any subset.  A sector is atomic: it holds all bytes of one of its
versions, never a mixture.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from posixpath import basename, dirname

from chaos.simulator.disk.faults import SECTOR_BYTES, DiskFaults, io_error
from multiraft.storage.errors import DirectoryInUse

Buffer = bytes | bytearray | memoryview

#: Unit of the page cache; smaller than a real one, because the files of a run are small.
PAGE_BYTES = 512


class PowerLoss(BaseException):
    """Crash of the node within a call, because no operation is left before it.

    It is no ``Exception``, so that no handler of the product survives a crash.
    """


class Inode:
    """Bytes of a file, as the process sees them and as the disk holds them."""

    __slots__ = ("view", "disk", "dirty", "cache", "blocks")

    def __init__(self) -> None:
        self.view = bytearray()
        self.disk = bytearray()
        #: Clean pages after a failed sync, which differ from the disk; None = no sync failed.
        self.cache: bytearray | None = None
        self.blocks = 0  # bytes of disk space that the file owns
        #: (position, bytes) of writes, (size, None) of truncations, since the last sync.
        self.dirty: list[tuple[int, bytes | None]] = []

    def flush(self) -> None:
        for position, data in self.dirty:
            _apply(self.disk, position, data)
            if self.cache is not None:
                _apply(self.cache, position, data)
        self.dirty.clear()

    def copied(self) -> Inode:
        """Return a copy of this file that holds the visible bytes durably."""
        copy = Inode()
        copy.view, copy.disk, copy.blocks = self.view[:], self.view[:], self.blocks
        return copy

    def fail(self, rng: random.Random) -> None:
        """Apply a failed sync: the disk keeps some version of each unsynced sector, drawn from
        ``rng``, and all pages count as clean."""
        if self.cache is None:
            self.cache = bytearray(self.disk)
        for position, data in self.dirty:
            _apply(self.cache, position, data)
        _tear(self.disk, self.dirty, rng)
        self.dirty.clear()

    def show(self) -> None:
        """Rebuild the view from the page cache: written bytes can be read, synced or not."""
        self.view = bytearray(self.disk if self.cache is None else self.cache)
        for position, data in self.dirty:
            _apply(self.view, position, data)

    def lose(self, rng: random.Random) -> None:
        """Apply a power loss: the disk keeps some version of each unsynced sector, and of the size,
        drawn from ``rng``. The view shows the disk then."""
        if self.dirty:
            _tear(self.disk, self.dirty, rng)
            self.dirty.clear()
        self.cache = None
        self.view = bytearray(self.disk)


def _apply(image: bytearray, position: int, data: bytes | None) -> None:
    if data is None:
        if position < len(image):
            del image[position:]
        else:
            image.extend(bytes(position - len(image)))
        return
    if position > len(image):
        image.extend(bytes(position - len(image)))
    image[position:position + len(data)] = data


def _tear(disk: bytearray, dirty: list[tuple[int, bytes | None]], rng: random.Random) -> None:
    """Apply to ``disk`` a part of the writes ``dirty``, chosen at random as a power loss would."""
    mode = rng.choice(("nothing", "everything", "prefix", "sectors", "sectors", "last_only"))
    if mode == "nothing":
        return
    versions = [bytearray(disk)]
    for position, data in dirty:
        image = bytearray(versions[-1])
        _apply(image, position, data)
        versions.append(image)
    if mode == "everything":
        disk[:] = versions[-1]
        return
    if mode == "prefix":
        disk[:] = versions[rng.randrange(len(versions))]
        return
    _mix_sectors(disk, versions, mode, rng)


def _mix_sectors(disk: bytearray, versions: list[bytearray], mode: str,
                 rng: random.Random) -> None:
    size = len(rng.choice((versions[0], versions[-1], versions[-1])))
    mixed = bytearray(size)
    for at in range(0, size, SECTOR_BYTES):
        end = min(at + SECTOR_BYTES, size)
        contents = [bytes(version[at:end]).ljust(end - at, b"\0") for version in versions]
        first, last = contents[0], contents[-1]
        if mode == "last_only":
            changed = first != last
            mixed[at:end] = last if changed and rng.random() < 0.3 else first
        else:
            mixed[at:end] = rng.choice(contents)
    disk[:] = mixed


class SimulatedFile:
    """Open file of one boot.  After a crash the handle raises EBADF."""

    __slots__ = ("path", "_filesystem", "_inode", "_boot", "_number")

    def __init__(self, filesystem: SimulatedFilesystem, path: str, inode: Inode):
        self.path = path
        self._filesystem = filesystem
        self._inode: Inode | None = inode
        self._boot = filesystem.boot
        self._number = 0  # of its descriptor; 0 = it was not asked for

    def _open_inode(self) -> Inode:
        if self._inode is None or self._boot != self._filesystem.boot:
            raise OSError(errno.EBADF, f"{self.path} is closed")
        return self._inode

    def read(self, length: int, position: int) -> bytes:
        return bytes(self._open_inode().view[position:position + length])

    def read_resident(self, length: int, position: int) -> bytearray | None:
        # One page in four is not resident, so that callers take the path of a cold read as well.
        return (None if position // PAGE_BYTES % 4 == 0
                else bytearray(self._open_inode().view[position:position + length]))

    def read_ahead(self, length: int, position: int) -> None:
        self._open_inode()

    def write(self, buffers: Sequence[Buffer], position: int, sync: bool) -> int:
        data = b"".join(buffers)
        inode, filesystem = self._open_inode(), self._filesystem
        if position + len(data) > inode.blocks:
            filesystem.take(inode, position + len(data), self.path)
        if filesystem.faults.writes_left:
            filesystem.fail_write(inode, position, data, self.path)
        filesystem.write(inode, position, data)
        if sync:
            self.sync()
        return len(data)

    def sync(self) -> None:
        inode, filesystem = self._open_inode(), self._filesystem
        if filesystem.faults.syncs_left:
            filesystem.fail_sync(inode, self.path)
        filesystem.sync(inode)

    def truncate(self, size: int) -> None:
        self._filesystem.write(self._open_inode(), size, None)

    def size(self) -> int:
        return len(self._open_inode().view)

    def allocated(self) -> int:
        return self._open_inode().blocks

    def preallocate(self, size: int) -> None:
        self._filesystem.take(self._open_inode(), size, self.path)

    def fileno(self) -> int:
        self._open_inode()
        if not self._number:
            self._number = self._filesystem.number_of(self)
        return self._number

    def close(self) -> None:
        self._inode = None
        if self._boot == self._filesystem.boot:
            self._filesystem.descriptors.pop(self._number, None)


class SimulatedLock:
    """Lock of a directory; it ends with its process."""

    __slots__ = ("_filesystem", "_path", "_boot")

    def __init__(self, filesystem: SimulatedFilesystem, path: str):
        self._filesystem = filesystem
        self._path = path
        self._boot = filesystem.boot

    def close(self) -> None:
        if self._boot == self._filesystem.boot:
            self._filesystem.locks.pop(self._path, None)


#: Directory operation: (directory, name, inode), inode None = the name is removed.
NameChange = tuple[str, str, Inode | None]


class SimulatedFilesystem:
    """Disk of one node."""

    def __init__(self) -> None:
        self.boot = 1
        self.operations_to_crash = -1  # operations left before PowerLoss; negative = none is armed
        self.syncs = 0
        self.bytes_written = 0
        self.locks: dict[str, int] = {}
        #: Open files of this boot whose number was asked for, by number.
        self.descriptors: dict[int, SimulatedFile] = {}
        self._descriptors_given = 0
        self.faults = DiskFaults()
        self._directories: dict[str, dict[str, Inode]] = {"/": {}}
        self._disk_names: dict[str, dict[str, Inode]] = {"/": {}}
        #: Unsynced changes of names, by directory; a rename is one item of two changes.
        self._dirty_names: dict[str, list[tuple[NameChange, ...]]] = {}
        #: directory -> names after a failed sync that are clean in the cache, but not on the disk.
        self._lost_names: dict[str, dict[str, Inode | None]] = {}
        self._journal: list[tuple[Callable[..., None], tuple]] | None = None
        self._unseen = False

    def copied(self) -> SimulatedFilesystem:
        """Return another disk that durably holds everything that can be read here now."""
        copy = SimulatedFilesystem()
        copy._directories = {path: {name: inode.copied() for name, inode in names.items()}
                             for path, names in self._directories.items()}
        copy._disk_names = {path: dict(names) for path, names in copy._directories.items()}
        return copy

    # ---- virtual time of the disk worker ---------------------------------------------------

    def begin(self, unseen: bool) -> None:
        """Begin a blocking call: its effects reach the disk only at ``complete``, in order.

        With ``unseen`` its bytes cannot be read before ``complete`` either, as when the writing
        thread has not yet reached its system call.
        """
        assert self._journal is None, "one disk operation is in flight at a time"
        self._journal = []
        self._unseen = unseen

    def complete(self) -> None:
        """End the blocking call: all its effects happen now."""
        assert self._journal is not None, "settle without begin"
        journal, self._journal = self._journal, None
        self._unseen = False
        for effect, arguments in journal:
            effect(*arguments)

    def _effect(self, effect: Callable[..., None], *arguments: object) -> None:
        if self.operations_to_crash >= 0:
            self.operations_to_crash -= 1
            if self.operations_to_crash < 0:
                raise PowerLoss
        if self._journal is None:
            effect(*arguments)
        else:
            self._journal.append((effect, arguments))

    # ---- crashes ---------------------------------------------------------------------------

    def power_loss(self, rng: random.Random) -> None:
        """Crash and lose the page cache: only bytes and names on the disk are left, and of unsynced
        ones those that ``rng`` draws. Open files and locks end."""
        self._cut_journal(rng)
        for directory, changes in self._dirty_names.items():
            names = self._disk_names[directory]
            keep = rng.choice((0.0, 0.5, 1.0))
            stop = rng.randrange(len(changes) + 1) if rng.random() < 0.5 else len(changes)
            for change in changes[:stop]:
                if rng.random() < keep:
                    _rename(names, change)
        self._dirty_names.clear()
        self._lost_names.clear()
        seen: dict[int, Inode] = {}
        for names in self._disk_names.values():
            for inode in names.values():
                if id(inode) not in seen:
                    seen[id(inode)] = inode
                    inode.lose(rng)
        self._directories = {path: dict(names) for path, names in self._disk_names.items()}
        self._reboot()

    def process_death(self, rng: random.Random) -> None:
        """Crash and keep the page cache: all written bytes can be read, and no more of them is
        synced. Of a call in flight some operations may never happen; open files and locks end."""
        self._cut_journal(rng)
        self._directories = {path: dict(names) for path, names in self._disk_names.items()}
        for directory, names in self._lost_names.items():
            _rename(self._directories[directory],
                    tuple((directory, name, inode) for name, inode in names.items()))
        for directory, changes in self._dirty_names.items():
            for change in changes:
                _rename(self._directories[directory], change)
        for names in self._directories.values():
            for inode in names.values():
                inode.show()
        self._reboot()

    def _cut_journal(self, rng: random.Random) -> None:
        journal, self._journal = self._journal, None
        if journal:
            for effect, arguments in journal[:rng.randrange(len(journal) + 1)]:
                effect(*arguments)

    def _reboot(self) -> None:
        self.boot += 1
        self.operations_to_crash = -1
        self._unseen = False
        self.locks.clear()
        self.descriptors.clear()
        files = {id(inode): inode for names in self._directories.values()
                 for inode in names.values()}
        self.faults.used_bytes = sum(inode.blocks for inode in files.values())

    # ---- bit rot ---------------------------------------------------------------------------

    def images(self, directory: str, suffix: str) -> dict[str, bytes]:
        """Return path -> durable bytes, of the files of a directory whose names end with
        ``suffix``.
        """
        return {f"{directory}/{name}": bytes(inode.disk)
                for name, inode in self._disk_names.get(directory, {}).items()
                if name.endswith(suffix)}

    def image(self, path: str) -> bytes:
        """Return the bytes of a file as a process sees them, without faults and without virtual
        time. Raises ``FileNotFoundError``."""
        return bytes(self._existing(path).view)

    def flip(self, path: str, at: int, bit: int) -> None:
        """Flip a bit (0 to 7) of byte ``at`` of a file on the disk; every reader of the file sees
        it, cached or not. A byte behind the end is left out."""
        inode = self._disk_names[dirname(path)][basename(path)]
        for image in (inode.disk, inode.view, inode.cache):
            if image is not None and at < len(image):
                image[at] ^= 1 << bit

    def overwrite(self, path: str, at: int, data: bytes) -> bytes:
        """Replace bytes on the disk and in the page cache, as far as the file reaches, and return
        the bytes that were on the disk."""
        inode = self._disk_names[dirname(path)][basename(path)]
        before = bytes(inode.disk[at:at + len(data)])
        for image in (inode.disk, inode.view, inode.cache):
            if image is not None:
                end = min(at + len(data), len(image))
                image[at:end] = data[:max(0, end - at)]
        return before

    # ---- effects ---------------------------------------------------------------------------

    def write(self, inode: Inode, position: int, data: bytes | None) -> None:
        """Write bytes to the page cache, unsynced, or with ``data`` None set the size to
        ``position``. Raises ``PowerLoss`` when no operation is left."""
        self._effect(inode.dirty.append, (position, data))
        if self._unseen:
            self._journal.append((_apply, (inode.view, position, data)))
        else:
            _apply(inode.view, position, data)
        self.bytes_written += len(data) if data is not None else 0

    def take(self, inode: Inode, size: int, path: str) -> None:
        """Reserve disk space for the first ``size`` bytes of the file, if it owns fewer.  Raises
        ``OSError`` (ENOSPC) when they are not free."""
        if size > inode.blocks:
            self.faults.take(size - inode.blocks, path)
            inode.blocks = size

    def fail_write(self, inode: Inode, position: int, data: bytes, path: str) -> None:
        """If the armed error strikes this write, write a part of ``data`` and raise ``OSError``
        (EIO); otherwise do nothing: the caller writes."""
        kept = self.faults.written_before_error(len(data))
        if kept is not None:
            self.write(inode, position, data[:kept])
            raise io_error(path)

    def fail_sync(self, inode: Inode, path: str) -> None:
        """If the armed error strikes this sync, apply a failed sync and raise ``OSError`` (EIO);
        otherwise do nothing: the caller syncs."""
        if self.faults.sync_fails():
            self._effect(Inode.fail, inode, self.faults.rng)
            raise io_error(path)

    def sync(self, inode: Inode) -> None:
        self.syncs += 1
        self._effect(Inode.flush, inode)

    def _change_names(self, directory: str, *changes: NameChange) -> None:
        self._effect(self._remember_names, directory, changes)
        for where, name, inode in changes:
            _rename(self._directories[where], ((where, name, inode),))

    def _remember_names(self, directory: str, changes: tuple[NameChange, ...]) -> None:
        self._dirty_names.setdefault(directory, []).append(changes)

    def _flush_names(self, directory: str) -> None:
        lost = self._lost_names.get(directory)
        for change in self._dirty_names.pop(directory, ()):
            _rename(self._disk_names[directory], change)
            if lost:
                for _, name, _ in change:
                    lost.pop(name, None)

    def _fail_names(self, directory: str) -> None:
        """Apply a failed sync of a directory: some names reach the disk, and all count as clean."""
        lost = self._lost_names.setdefault(directory, {})
        for change in self._dirty_names.pop(directory, ()):
            kept = self.faults.rng.random() < 0.5
            if kept:
                _rename(self._disk_names[directory], change)
            for _, name, inode in change:
                lost.pop(name, None)
                if not kept:
                    lost[name] = inode

    # ---- the Filesystem protocol -----------------------------------------------------------

    def make_directory(self, path: str) -> None:
        path = path.rstrip("/") or "/"
        if path in self._directories:
            return
        self.make_directory(dirname(path))
        self._effect(self._disk_names.setdefault, path, {})
        self._directories[path] = {}

    def sync_directory(self, path: str) -> None:
        self._names(path)
        path = path.rstrip("/") or "/"
        if self.faults.directory_syncs_left and self.faults.directory_sync_fails():
            self._effect(self._fail_names, path)
            raise io_error(path)
        self._effect(self._flush_names, path)

    def list(self, path: str) -> list[str]:
        return sorted(self._names(path.rstrip("/") or "/"))

    def non_files(self, path: str) -> list[str]:
        path = path.rstrip("/") or "/"
        return sorted(basename(other) for other in self._directories
                      if other != "/" and dirname(other) == path)

    def exists(self, path: str) -> bool:
        return path.rstrip("/") in self._directories or self._find(path) is not None

    def size(self, path: str) -> int:
        return len(self._existing(path).view)

    def create(self, path: str) -> SimulatedFile:
        if self._find(path) is not None:
            raise FileExistsError(errno.EEXIST, "exists", path)
        directory = dirname(path)
        self._names(directory)
        inode = Inode()
        self._change_names(directory, (directory, basename(path), inode))
        return SimulatedFile(self, path, inode)

    def open(self, path: str) -> SimulatedFile:
        return SimulatedFile(self, path, self._existing(path))

    def read_disk(self, path: str, length: int, position: int) -> bytes:
        return self.open(path).read(length, position)

    def rename(self, old: str, new: str) -> None:
        inode = self._existing(old)
        assert dirname(old) == dirname(new), f"rename across directories: {old} -> {new}"
        directory = dirname(old)
        replaced = self._find(new)
        if replaced is not None:
            self._give(replaced)
        self._change_names(directory, (directory, basename(old), None),
                           (directory, basename(new), inode))

    def remove(self, path: str) -> None:
        self._give(self._existing(path))
        self._change_names(dirname(path), (dirname(path), basename(path), None))

    def _give(self, inode: Inode) -> None:
        """Return the disk space of a file that has lost its name."""
        self.faults.used_bytes -= inode.blocks
        inode.blocks = 0

    def lock(self, path: str) -> SimulatedLock:
        if path in self.locks:
            raise DirectoryInUse(path)
        self.locks[path] = self.boot
        return SimulatedLock(self, path)

    def number_of(self, file: SimulatedFile) -> int:
        """Return a new descriptor of an open file."""
        self._descriptors_given += 1
        self.descriptors[self._descriptors_given] = file
        return self._descriptors_given

    # ---- lookups ---------------------------------------------------------------------------

    def _names(self, path: str) -> dict[str, Inode]:
        names = self._directories.get(path.rstrip("/") or "/")
        if names is None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        return names

    def _find(self, path: str) -> Inode | None:
        directory, name = _split(path)
        names = self._directories.get(directory)
        return names.get(name) if names is not None else None

    def _existing(self, path: str) -> Inode:
        inode = self._find(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return inode


@lru_cache(maxsize=4096)
def _split(path: str) -> tuple[str, str]:
    """Return (directory, name)."""
    return dirname(path), basename(path)


def _rename(names: dict[str, Inode], changes: tuple[NameChange, ...]) -> None:
    for _, name, inode in changes:
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode
