"""Index files of each known version at a start; those that are not of their segment; and segments
whose index is too large for one."""

from __future__ import annotations

import contextlib

import pytest

from multiraft import core
from multiraft.codec import layout, reference
from multiraft.storage import segment_seal
from multiraft.storage.block_index import file_codec
from multiraft.storage.block_index.blocks import FileIdentity
from multiraft.storage.errors import IndexTooLarge
from multiraft.storage.journal.journal import Segment, SegmentHeader
from multiraft.storage.journal.segment_index import SegmentIndex
from multiraft.storage.journal.segment_scan import scan_segment
from multiraft.storage.segment_seal import SealJob
from multiraft.types import Entry, EntryKind
from tests.storage import index_version_5
from tests.storage.damage import DIRECTORY, long_journal
from tests.storage.model import comparable, observed
from tests.storage.world import batch, open_store, seal


def indexes_of(files: dict[str, bytes]) -> dict[str, bytes]:
    return {path: data for path, data in files.items() if path.endswith(".index")}


def in_version(path: str, data: bytes, version: int) -> bytes:
    if version == file_codec.BLOCK_INDEX_VERSION:
        return data
    return index_version_5.file(file_codec.decode(path, data), version)


@pytest.mark.parametrize("with_checkpoint", [False, True])
@pytest.mark.parametrize("version", [4, 5, 6])
def test_each_known_version_saves_the_scan_and_says_the_same(version, with_checkpoint):
    disk, model = long_journal(with_checkpoint)
    files = disk.files()
    written = indexes_of(files)
    assert {data[:12] for data in written.values()} == {b"MRINDEX\x01\x06\0\0\0"}
    earlier = {path: in_version(path, data, version) for path, data in written.items()}
    found = disk.restored({**files, **earlier})
    store = open_store(found.filesystem, DIRECTORY)
    assert store.recovered.indexed_segments == len(written)
    assert not store.recovered.unindexed and not store.damage
    assert observed(store) == comparable(model.state(len(model.items)))
    store.close()
    assert indexes_of(found.files()) == earlier, "a file that can be read stays"


def test_versions_may_stand_beside_each_other():
    disk, model = long_journal(with_checkpoint=False)
    files = disk.files()
    written = indexes_of(files)
    mixed = {path: in_version(path, data, 5 + number % 2)
             for number, (path, data) in enumerate(sorted(written.items()))}
    assert len(mixed) >= 2
    store = open_store(disk.restored({**files, **mixed}).filesystem, DIRECTORY)
    assert store.recovered.indexed_segments == len(written)
    assert observed(store) == comparable(model.state(len(model.items)))
    store.close()


def of_identity(path: str, data: bytes, **changed) -> bytes:
    identity = file_codec.parse_header(path, data).identity._replace(**changed)
    index = file_codec.decode(path, data)
    index.start, index.seed = identity.start, identity.seed
    return b"".join(file_codec.encode(index, identity.cluster, identity.node))


@pytest.mark.parametrize("field,value", [("cluster", bytes(16)), ("node", 77), ("start", 0),
                                         ("seed", 1)])
def test_an_index_file_of_another_segment_is_made_anew(field, value):
    disk, model = long_journal(with_checkpoint=False)
    files = disk.files()
    path = sorted(indexes_of(files))[1]
    foreign = of_identity(path, files[path], **{field: value})
    assert foreign != files[path]
    broken = disk.restored({**files, path: foreign})
    store = open_store(broken.filesystem, DIRECTORY)
    assert [segment.path.replace(".segment", ".index")
            for segment in store.recovered.unindexed] == [path]
    assert observed(store) == comparable(model.state(len(model.items)))
    assert seal(store) == 1
    store.close()
    assert broken.read(path) == files[path]


def test_an_index_that_is_too_large_is_not_written_and_its_segment_is_scanned(monkeypatch):
    disk, model = long_journal(with_checkpoint=False)
    files = disk.files()
    indexes = indexes_of(files)
    bare = disk.restored({path: data for path, data in files.items() if path not in indexes})
    store = open_store(bare.filesystem, DIRECTORY)
    monkeypatch.setattr(file_codec, "ENVELOPE_BYTES_LIMIT", 10)
    jobs = 0
    while (job := store.seal_job()) is not None:
        job.execute()
        store.sealed(job)
        assert isinstance(job.too_large, IndexTooLarge) and job.too_large.limit == 10
        jobs += 1
    assert jobs == len(indexes) and not store.damage
    store.close()
    assert not indexes_of(bare.files())
    store = open_store(bare.filesystem, DIRECTORY)
    assert len(store.recovered.unindexed) == len(indexes) and not store.damage
    assert observed(store) == comparable(model.state(len(model.items)))
    store.close()


# ---- single segments -----------------------------------------------------------------------------

CLUSTER, NODE, START, SEED = bytes(range(16)), 3, 1 << 20, 9


def sealed_segment(entries: list[Entry]) -> tuple[SealJob, bytes]:
    """Return the job of a segment with these entries, and the segment's bytes."""
    disk, _ = long_journal(with_checkpoint=False)
    header = SegmentHeader(layout.FORMAT_VERSION, 0, START, CLUSTER, NODE, SEED)
    buffers, *_ = core.frame_entries(entries, SEED, START)
    data = header.pack() + b"".join(buffers)
    path = f"{DIRECTORY}/lane-0/{START:020d}.segment"
    with contextlib.closing(disk.filesystem.create(path)) as file:
        file.write([data], 0, True)
    segment = Segment(path, START, len(data), SEED)
    segment.end = START + len(data)
    return SealJob(disk.filesystem, segment), data


def test_a_number_that_fits_no_row_is_named_and_no_file_is_written():
    job, _ = sealed_segment([Entry(EntryKind.NOOP, 1, 1, 1, 1 << 63)])
    job.execute()
    assert job.too_large is not None and "index" in str(job.too_large)
    assert job.too_large.limit == (1 << 63) - 1 and not job.damage
    assert not job._filesystem.exists(job.segment.path.replace(".segment", ".index"))


def plain_entries(count: int) -> list[Entry]:
    """Entries of three groups, most of them batches of one of a few partitions."""
    entries, offsets = [], {}
    for at in range(count):
        group, partition, index, term = 9 - at % 3, 40 - at % 8, 5 + at // 3, 1 + at // 300
        if at % 10 == 9:
            entries.append(Entry(EntryKind.HARD_STATE, group, 1, term, 0, payload=bytes(4)))
            entries.append(Entry(EntryKind.NOOP, group, 1, term, index))
            continue
        offset = offsets.get((group, partition), at % 4)
        payload = batch(offset, [b"x"] * (1 + at % 5), at)
        offsets[group, partition] = offset + 1 + at % 5 + (at % 50 == 0)
        entries.append(Entry(EntryKind.DATA, group, 1, term, index, partition, offset,
                             bytes(payload), core.batch_info(payload)))
    return entries


@pytest.mark.parametrize("count", [1, 40, 3000])
def test_both_twins_pack_the_bytes_of_the_scanned_index(count, monkeypatch):
    job, data = sealed_segment(plain_entries(count))
    scanned = scan_segment(data, START, SEED, None).index
    expected = b"".join(file_codec.encode(scanned, CLUSTER, NODE))
    assert b"".join(job._packed(None)) == expected
    monkeypatch.setattr(segment_seal.core, "SegmentIndexer", reference.SegmentIndexer)
    assert b"".join(job._packed(None)) == expected
    index = file_codec.decode("index", expected)
    assert index_version_5.body(index) == index_version_5.body(scanned)
    monkeypatch.setattr(file_codec.core, "IndexRowReader", reference.IndexRowReader)
    assert index_version_5.body(file_codec.decode("index", expected)) == index_version_5.body(index)


def test_a_file_of_a_plain_segment_has_these_bytes():
    indexer = core.SegmentIndexer()
    payload = batch(4, [b"a", b"b", b"c"], 51)
    entries = [Entry(EntryKind.HARD_STATE, 2, 1, 6, 0, payload=b"\3\0\0\0"),
               Entry(EntryKind.DATA, 2, 1, 6, 7, 8, 4, bytes(payload), core.batch_info(payload)),
               Entry(EntryKind.NOOP, 1, 5, 2, 3)]
    lane = b"".join(core.frame_entries(entries, SEED, 0)[0])
    assert indexer.take(lane, 0, SEED, START + 64).reason == "end"
    identity = FileIdentity(CLUSTER, NODE, START, SEED)
    packed = indexer.pack(identity.crc(), START)
    head, blocks, summary = file_codec.encode_packed(
        packed, SegmentIndex(START, SEED, START + 64 + len(lane), 5, 0, 0), identity)
    assert head.hex() == (
        "4d52494e44455801" "06000000" "000102030405060708090a0b0c0d0e0f" "03000000"
        "0000100000000000" "09000000" "6001100000000000" "05000000" "0000000000000000"
        "0000000000000000" "0200000000000000" "0100000000000000" "9e00000000000000" "0f1e83a5"
        + bytes(layout.INDEX_BLOCK_BYTES - 104).hex() + "b29edf6c")
    entry_block = ("136cc3fe" "0100" "0200" "20010000" "40000000" "88000000" "98000000"
                   + bytes(layout.INDEX_BLOCK_BYTES - 24).hex())
    batch_block = ("d20d48a6" "0200" "0100" "0400000000000000" "3300000000000000"
                   "0700000000000000" "88000000" "98000000" "03000000"
                   + bytes(layout.INDEX_BLOCK_BYTES - 44).hex())
    assert blocks.hex() == entry_block + batch_block
    assert summary.hex() == (
        "82" "91" "010500" "85" "031840" "5818" "0300000000000000" "0100100000000000"
        "0000000000000000" "8103" "8102" "40" "40" "f6" "80" "00" "80" "00" "f6" "00" "f4" "f6"
        "820000" "820000"
        "91" "020100" "85" "071898" "5818" "0700000000000000" "0104100000000000"
        "0000000000000000" "8107" "8106" "54" "0800000000000000" "0700000000000000" "01000000"
        "5818" "0400000000000000" "0100200000000000" "3300000000000000"
        "820603" "80" "00" "80" "00" "f6" "00" "f4" "f6" "820000" "820000")
