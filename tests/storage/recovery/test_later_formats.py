"""Files of a later release are refused as a whole: not read, not cut, not set aside."""

from __future__ import annotations

import json
import struct

import pytest

from multiraft import core
from multiraft.codec import layout
from multiraft.storage.errors import UnknownEntry, UnknownFormat
from tests.storage.damage import DIRECTORY, FIRST, long_journal, small_journal
from tests.storage.world import checkpoint, open_store, seal

IDENTITY_FILE = f"{DIRECTORY}/node.json"
#: No kind of entry of this release.
LATER_KIND = 99


def later_segment(data: bytes) -> bytes:
    """The first segment of a format whose header says so, and is intact."""
    header = bytearray(data[:layout.SEGMENT_CRC_AT])
    struct.pack_into("<I", header, layout.SEGMENT_VERSION_AT, layout.FORMAT_VERSION + 1)
    return bytes(header) + struct.pack("<I", core.crc32c(header)) + data[len(header) + 4:]


def later_identity(data: bytes) -> bytes:
    fields = json.loads(data)
    del fields["crc"]
    fields["format_version"] += 1
    fields["crc"] = core.crc32c(json.dumps(fields, sort_keys=True).encode())
    return json.dumps(fields).encode()


def later_envelope(data: bytes) -> bytes:
    """A checkpoint of a later version: the envelope stays what it is."""
    body = bytearray(data[:-4])
    version, = struct.unpack_from("<I", body, 8)
    struct.pack_into("<I", body, 8, version + 1)
    return bytes(body) + struct.pack("<I", core.crc32c(body))


def last_entry(data: bytes) -> tuple[int, int]:
    """(byte behind the last entry of a segment, its CRC)."""
    seed, = struct.unpack_from("<I", data, layout.SEGMENT_SEED_AT)
    scan = core.scan_entries(data, layout.SEGMENT_HEADER_BYTES, seed)
    return scan.stopped_at, scan.last_crc


def entry_of(kind: int, prev_crc: int, payload: bytes = b"what the future knows") -> bytes:
    """An intact entry that follows another one."""
    length = layout.ENTRY_HEADER_BYTES + len(payload)
    header = bytearray(layout.ENTRY_HEADER_BYTES)
    struct.pack_into("<IIIBBH", header, 0, length, 0, prev_crc, kind, 0, 0)
    struct.pack_into("<IIQQ", header, 16, 1, 1, 9, 0)
    crc = core.crc32c(payload, core.crc32c(header[8:], core.crc32c(header[:4])))
    struct.pack_into("<I", header, layout.ENTRY_CRC_AT, crc)
    framed = bytes(header) + payload
    return framed + bytes(-len(framed) % layout.ENTRY_ALIGNMENT)


def with_entry(data: bytes, kind: int, prev_crc: int | None = None) -> bytes:
    """The segment with one more entry behind the last."""
    end, last_crc = last_entry(data)
    return data[:end] + entry_of(kind, last_crc if prev_crc is None else prev_crc)


def refused(files: dict[str, bytes], error: type[UnknownFormat], match: str) -> None:
    """Opening raises, twice, and changes nothing but the boot epoch."""
    disk, _, _ = small_journal()
    broken = disk.restored(files)
    for _ in range(2):
        with pytest.raises(error, match=match):
            open_store(broken.filesystem, DIRECTORY)
    left = broken.files()
    assert set(left) >= set(files)
    for path, data in files.items():
        assert left[path] == data or path == IDENTITY_FILE, f"{path} was changed"


def files_with_checkpoint() -> dict[str, bytes]:
    disk, _, _ = small_journal()
    store = open_store(disk.filesystem, DIRECTORY)
    checkpoint(store)
    seal(store)
    store.close()
    return disk.files()


def checkpoints(files: dict[str, bytes]) -> list[str]:
    return sorted(path for path in files if "/checkpoint-" in path)


def test_a_directory_of_a_later_format_is_refused():
    files = files_with_checkpoint()
    refused({**files, IDENTITY_FILE: later_identity(files[IDENTITY_FILE])}, UnknownFormat,
            r"node.json has format version 3, this program reads 2")


def test_a_segment_of_a_later_format_is_refused():
    files = small_journal()[0].files()
    refused({**files, FIRST: later_segment(files[FIRST])}, UnknownFormat,
            "segment has format version 2, this program reads 1")


def test_a_checkpoint_of_a_later_format_is_refused_although_an_older_one_is_there():
    files = files_with_checkpoint()
    newest = checkpoints(files)[-1]
    refused({**files, newest: later_envelope(files[newest])}, UnknownFormat,
            "has format version 5, this program reads 4")


def test_an_entry_of_a_later_kind_at_the_end_of_the_journal_is_no_torn_tail():
    files = small_journal()[0].files()
    refused({**files, FIRST: with_entry(files[FIRST], LATER_KIND)}, UnknownEntry,
            f"an intact entry of kind {LATER_KIND}, written by a later release")


def test_an_entry_of_a_later_kind_between_others_is_no_damage():
    files = small_journal()[0].files()
    data = with_entry(files[FIRST], LATER_KIND)
    crc, = struct.unpack_from("<I", data, last_entry(files[FIRST])[0] + layout.ENTRY_CRC_AT)
    refused({**files, FIRST: data + entry_of(2, crc, b"")}, UnknownEntry, "later release")


@pytest.mark.parametrize("how", ["a flipped byte", "another chain", "cut off"])
def test_what_only_looks_like_a_later_kind_is_a_torn_tail_as_ever(how):
    disk, _, _ = small_journal()
    files = disk.files()
    end, _ = last_entry(files[FIRST])
    data = bytearray(with_entry(files[FIRST], LATER_KIND,
                                prev_crc=1 if how == "another chain" else None))
    if how == "a flipped byte":
        data[end + layout.ENTRY_HEADER_BYTES] ^= 1
    if how == "cut off":
        del data[-layout.ENTRY_ALIGNMENT:]
    broken = disk.restored({**files, FIRST: bytes(data)})
    open_store(broken.filesystem, DIRECTORY).close()
    assert len(broken.files()[FIRST]) <= end, "the tail is gone"


def test_an_index_file_of_a_later_version_is_a_cache_and_made_anew():
    disk, _ = long_journal(with_checkpoint=False)
    files = disk.files()
    later = {path: later_envelope(data) for path, data in files.items() if path.endswith(".index")}
    assert later
    broken = disk.restored({**files, **later})
    store = open_store(broken.filesystem, DIRECTORY)
    assert not store.damage
    assert seal(store) == len(later)
    store.close()
    assert {path: broken.files()[path] for path in later} == {path: files[path] for path in later}
