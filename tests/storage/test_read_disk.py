"""Reading past the page cache: the same bytes as ever, from any place, on any file system."""

import errno
import os
from pathlib import Path

import pytest

from multiraft.storage.filesystem import RealFilesystem

SIZE = 3 * 4096 + 700
PLACES = [(0, 1), (0, 4096), (1, 4096), (4095, 2), (4096, 4096), (5000, 8000), (0, SIZE),
          (0, SIZE + 5000), (SIZE - 1, 100), (SIZE, 100), (SIZE + 9000, 100), (17, 0)]


def file_of(path):
    """A file whose bytes are on the disk."""
    path.write_bytes(os.urandom(SIZE))
    descriptor = os.open(path, os.O_RDWR)
    os.fsync(descriptor)
    os.close(descriptor)
    return path


@pytest.fixture
def path(tmp_path):
    return file_of(tmp_path / "file")


def refuses_direct(monkeypatch, number: int) -> None:
    """A file system that has no reads past the page cache."""
    real = os.open

    def refusing(path, flags, *rest):
        if flags & os.O_DIRECT:
            raise OSError(number, os.strerror(number), path)
        return real(path, flags, *rest)

    monkeypatch.setattr(os, "open", refusing)


@pytest.mark.parametrize("direct", [True, False])
def test_the_bytes_are_those_of_the_file(path, direct, monkeypatch):
    whole = path.read_bytes()
    if not direct:
        refuses_direct(monkeypatch, errno.EINVAL)
    for position, length in PLACES:
        assert bytes(RealFilesystem().read_disk(str(path), length, position)) == whole[
            position:position + length], (position, length)


def resident_after(path, look) -> bool:
    """True if the page cache has a file after the read that it did not have before.  Each call uses
    a file of its own, because the check makes the system read it."""
    file = RealFilesystem().open(str(file_of(path)))
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    look(str(path))
    resident = file.read_resident(SIZE, 0) is not None
    file.close()
    return resident


def test_what_was_read_is_not_kept_in_memory(tmp_path):
    if resident_after(tmp_path / "untouched", lambda name: None):
        pytest.skip("the page cache of this file system cannot be emptied")
    assert not resident_after(tmp_path / "read past it",
                              lambda name: RealFilesystem().read_disk(name, SIZE, 0))
    assert resident_after(tmp_path / "read", lambda name: Path(name).read_bytes())


def test_a_disk_that_fails_is_not_asked_another_way(path, monkeypatch):
    refuses_direct(monkeypatch, errno.EIO)
    with pytest.raises(OSError) as raised:
        RealFilesystem().read_disk(str(path), 10, 0)
    assert raised.value.errno == errno.EIO


def test_a_file_that_is_not_there_is_an_error(path):
    with pytest.raises(FileNotFoundError):
        RealFilesystem().read_disk(f"{path}.gone", 10, 0)
