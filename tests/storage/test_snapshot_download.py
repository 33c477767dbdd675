"""Snapshot downloads: a prefix of the appended bytes, or nothing, after any damage of the file."""

from __future__ import annotations

import pytest

from chaos.simulator.disk.filesystem import SimulatedFilesystem
from multiraft.storage.snapshot_download import PARTIAL_FILE, PartialSnapshot, SnapshotDownload

DIRECTORY = "/node"
PATH = f"{DIRECTORY}/{PARTIAL_FILE}"
CHUNKS = (b"first chunk", b"2nd", b"and the third one")
DATA = b"".join(CHUNKS)
#: The file, once: magic, version, index 7, term 3, total 40, the image's CRC, and two chunks.
GOLDEN = bytes.fromhex(
    "4d52504152540001" "01000000" "00000000" "0700000000000000" "0300000000000000"
    "2800000000000000" "efbeadde" "e431c09d"
    "0b000000" "5d2f82cd" "6669727374206368756e6b"
    "03000000" "5778a90f" "326e64")


def started() -> SimulatedFilesystem:
    filesystem = SimulatedFilesystem()
    filesystem.make_directory(DIRECTORY)
    return filesystem


def partial(filesystem: SimulatedFilesystem, bytes_max: int = 1 << 20) -> SnapshotDownload:
    return SnapshotDownload(filesystem, DIRECTORY, bytes_max)


def written(chunks=CHUNKS, total: int = 40) -> SimulatedFilesystem:
    filesystem = started()
    image = partial(filesystem)
    image.begin(PartialSnapshot(7, 3, total, 0xDEADBEEF, bytearray(chunks[0])))
    for chunk in chunks[1:]:
        image.append(chunk)
    return filesystem


def contents(filesystem: SimulatedFilesystem) -> bytes:
    file = filesystem.open(PATH)
    return file.read(file.size(), 0)


def with_contents(data: bytes) -> SimulatedFilesystem:
    filesystem = started()
    filesystem.create(PATH).write([data], 0, False)
    return filesystem


def test_its_bytes_are_these():
    assert contents(written(CHUNKS[:2])).hex(" ", 4) == GOLDEN.hex(" ", 4)
    assert partial(with_contents(GOLDEN)).load() == PartialSnapshot(7, 3, 40, 0xDEADBEEF,
                                                            bytearray(b"first chunk2nd"))


def test_what_was_appended_is_there_and_goes_on():
    filesystem = written(CHUNKS[:2])
    again = partial(filesystem)
    assert again.load().data == DATA[:14]
    again.append(CHUNKS[2])
    assert partial(filesystem).load() == PartialSnapshot(7, 3, 40, 0xDEADBEEF, bytearray(DATA))


def test_a_new_snapshot_takes_the_place_of_the_old_one():
    filesystem = written()
    partial(filesystem).begin(PartialSnapshot(9, 4, 10, 5, bytearray(b"x")))
    assert partial(filesystem).load() == PartialSnapshot(9, 4, 10, 5, bytearray(b"x"))


def test_a_file_that_was_torn_is_a_prefix_and_goes_on():
    whole = contents(written())
    for length in range(len(whole)):
        filesystem = with_contents(whole[:length])
        again = partial(filesystem)
        arrived = again.load()
        if arrived is None:
            assert not filesystem.exists(PATH)
            continue
        assert DATA.startswith(arrived.data)
        again.append(DATA[len(arrived.data):])
        assert partial(filesystem).load().data == DATA


def test_no_flipped_byte_is_taken_for_the_snapshot():
    whole = contents(written())
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x20
        arrived = partial(with_contents(bytes(damaged))).load()
        if arrived is not None:
            assert (arrived.index, arrived.term, arrived.crc) == (7, 3, 0xDEADBEEF)
            assert DATA.startswith(arrived.data) and arrived.data != DATA


@pytest.mark.parametrize("total, bytes_max, found", [(40, 40, True), (40, 39, False)])
def test_a_snapshot_above_the_bound_is_refused(total, bytes_max, found):
    filesystem = written(total=total)
    assert (partial(filesystem, bytes_max).load() is not None) == found == filesystem.exists(PATH)


def test_more_than_was_announced_is_not_taken():
    assert partial(written(total=20)).load().data == DATA[:14]


def test_without_a_file_nothing_is_kept_and_removing_twice_is_removing_once():
    filesystem = started()
    image = partial(filesystem)
    assert image.load() is None
    image.append(b"nobody began")
    image.remove()
    image.remove()
    assert not filesystem.exists(PATH)
