"""A node's own disk: an ext4 file system in a file, with power loss, hangs, exhaustion and failure.

Contract.  ``LoopDisk`` is created, mounted and removed here; its faults begin and end in any order,
and every method may be called twice.  Needs root.

Theory.  ``FS_IOC_SHUTDOWN`` with NOLOGFLUSH ends a file system at one moment, as a power cut does:
synced data is in the file, unsynced data is lost, and every later write fails with EIO.  The next
mount replays the file system's journal.  ``FIFREEZE`` holds every writer in the kernel, in
uninterruptible sleep: not even SIGKILL ends it before the thaw, so the caller of ``freeze`` must
ensure that ``thaw`` is called.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from chaos.backends import host
from chaos.backends.backend import BackendError

#: linux/fs.h and ext4's own header.
_FS_IOC_SHUTDOWN, _NOLOGFLUSH = 0x8004587D, 2
_FIFREEZE, _FITHAW = 0xC0045877, 0xC0045878
#: The foreign file that takes all free space, beside the node's data directory.
BALLAST = "ballast"
#: A file system that is not in use is unmounted at once; its last writer may still be ending.
UNMOUNT_S = 20.0


class LoopDisk:
    """One file system, at ``mount``, in the file ``image``."""

    def __init__(self, image: Path, mount: Path):
        self.image = image
        self.mount = mount
        self.frozen = self.failed = False

    def create(self, size_bytes: int) -> None:
        """Create the file system in a file of ``size_bytes`` and mount it."""
        self.mount.mkdir(parents=True, exist_ok=True)
        self.image.parent.mkdir(parents=True, exist_ok=True)
        with self.image.open("wb") as file:
            file.truncate(size_bytes)
        # Nothing is reserved for root: a full disk is full for all users.
        host.run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard", str(self.image))
        self.attach()

    def attach(self) -> None:
        """Mount the file system.  The kernel may still cache blocks that the loop device had
        before: they are dropped first, or they would appear in this file system."""
        device = host.run("losetup", "--find", "--show", str(self.image)).strip()
        try:
            host.run("blockdev", "--flushbufs", device)
            host.run("mount", "-t", "ext4", "-o", "noatime", device, str(self.mount))
        finally:
            # takes effect as soon as the file system is unmounted
            host.run("losetup", "--detach", device)
        self.frozen = self.failed = False

    def detach(self) -> None:
        """Unmount the file system, and wait until the kernel has forgotten it: a mount before that
        would return the same failed file system. No-op when it is not mounted; raises
        ``BackendError`` when it is still in use after ``UNMOUNT_S``."""
        device = self.device_name()
        if not device:
            return
        said: list[str] = []

        def unmounted() -> bool:
            try:
                host.run("umount", str(self.mount))
            except BackendError as error:
                said[:] = [str(error)]
                return not host.is_mounted(self.mount)
            return True

        if not host.holds(unmounted, UNMOUNT_S):
            raise BackendError(f"the disk at {self.mount} cannot be unmounted: {said[0]}")
        if not host.holds(lambda: not Path("/sys/fs/ext4", device).exists(), UNMOUNT_S):
            raise BackendError(f"the file system of {device} is still in use: another mount "
                               f"namespace has a copy of it")

    def device_name(self) -> str:
        """Return the name of the disk's loop device; empty when it is not mounted."""
        number = self.device()
        return os.path.basename(os.readlink(f"/sys/dev/block/{number}")) if number else ""

    def device(self) -> str:
        """Return MAJOR:MINOR of the disk's loop device; empty when it is not mounted."""
        if not host.is_mounted(self.mount):
            return ""
        number = os.stat(self.mount).st_dev
        return f"{os.major(number)}:{os.minor(number)}"

    def shut_down(self) -> None:
        """Shut the file system down at this moment: unsynced writes are lost, later ones fail with
        EIO. ``remount`` ends that. Raises ``BackendError`` when the disk is not mounted."""
        self._require_mounted()
        self._control(_FS_IOC_SHUTDOWN, struct.pack("I", _NOLOGFLUSH))
        self.failed = True

    def remount(self) -> None:
        """Mount the disk again, as after power has returned.  No process may use the disk."""
        self.thaw()
        self.detach()
        self.attach()

    def freeze(self) -> None:
        """Block writes and syncs from now on; earlier writes are synced first. Does nothing when
        the disk is frozen already; raises ``BackendError`` when it is not mounted."""
        if not self.frozen:
            self._require_mounted()
            # before the call: an exception in between must not leave the disk frozen
            self.frozen = True
            self._control(_FIFREEZE, struct.pack("i", 0))

    def thaw(self) -> None:
        """Unblock writes and syncs; does nothing when the disk is not frozen."""
        thaw(self.mount)
        self.frozen = False

    def fill(self, leave_bytes: int = 0) -> None:
        """Fill the disk until ``leave_bytes`` are free.  Raises ``BackendError`` on a disk that
        fails or is not mounted."""
        self._require_mounted()
        try:
            self._fill(leave_bytes)
        except OSError as error:
            raise BackendError(f"{self.mount} cannot be filled: {error.strerror}") from error

    def _fill(self, leave_bytes: int) -> None:
        with open(self.mount / BALLAST, "ab") as file:
            step = self.free_bytes() - leave_bytes
            while step >= 4096:
                try:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, step)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    # some of the free blocks are needed for the list of the allocated ones
                    step //= 2
                else:
                    step = min(step, self.free_bytes() - leave_bytes)

    def free(self) -> None:
        """Remove the file that ``fill`` created, durably, if there is one. Otherwise a power loss
        in the next seconds would restore it, and the harness would not know that the disk is full.

        Raises ``BackendError`` on a disk that fails."""
        try:
            (self.mount / BALLAST).unlink(missing_ok=True)
            with opened(self.mount) as descriptor:
                os.fsync(descriptor)
        except OSError as error:
            raise BackendError(f"{self.mount} keeps its ballast: {error.strerror}") from error

    def free_bytes(self) -> int:
        """Return the free bytes of the disk."""
        found = os.statvfs(self.mount)
        return found.f_bavail * found.f_frsize

    def _require_mounted(self) -> None:
        """Raise ``BackendError`` unless the disk is mounted; otherwise the fault would hit the
        machine's file system below the mount point."""
        if not host.is_mounted(self.mount):
            raise BackendError(f"the disk at {self.mount} is not mounted")

    def _control(self, request: int, argument: bytes) -> None:
        try:
            control(self.mount, request, argument)
        except OSError as error:
            raise BackendError(f"ioctl {request:#x} on {self.mount}: {error.strerror}") from error


def control(directory: Path, request: int, argument: bytes) -> None:
    """Run an ioctl on a directory.  Raises ``OSError``."""
    with opened(directory) as descriptor:
        fcntl.ioctl(descriptor, request, argument)


@contextlib.contextmanager
def opened(directory: Path) -> Iterator[int]:
    """Open a directory as a descriptor that is closed at the end.  Raises ``OSError``."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def thaw(mount: Path) -> None:
    """Thaw the file system mounted at ``mount``, however often it was frozen; does nothing if none
    is mounted or it is not frozen."""
    if not host.is_mounted(mount):
        return
    with contextlib.suppress(OSError):  # EINVAL: it is not frozen
        while True:
            control(mount, _FITHAW, struct.pack("i", 0))
