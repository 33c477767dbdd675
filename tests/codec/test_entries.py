"""Entries: framing, what a peer's frame may not be, and what a recovery scan makes of a lane."""

import struct

import pytest

from multiraft import _core
from multiraft.codec import layout
from multiraft.errors import CorruptEntry
from multiraft.types import LAST_INDEXED_KIND, BatchInfo, Entry, EntryKind

SEED = 0xCAFEF00D


def data_entry(twin, index: int, *values: bytes) -> Entry:
    builder = twin.BatchBuilder(1 << 20)
    builder.extend(1_700_000_000_000, values or (b"v" * 50,))
    batch = builder.build()
    twin.stamp_batch(batch, 40 + index, 6)
    return Entry(EntryKind.DATA, 3, 1, 5, index, 9, 40 + index, batch, twin.batch_info(batch))


def lane_of(twin, entries, prev_crc: int = SEED, durable: int = 0) -> bytearray:
    buffers, _, total, _ = twin.frame_entries(entries, prev_crc, durable)
    lane = bytearray(b"".join(buffers))
    assert len(lane) == total
    return lane


def three(twin) -> list[Entry]:
    return [Entry(EntryKind.NOOP, 3, 1, 5, 1), data_entry(twin, 2),
            Entry(EntryKind.METADATA, 0, 1, 5, 3, payload=b"command of the metadata group")]


def resealed(lane: bytearray, at: int = 0) -> bytearray:
    """The entry at ``at`` with its CRC made right again."""
    header = lane[at:at + 64]
    length, = struct.unpack_from("<I", header)
    payload = lane[at + 64:at + length]
    covered = payload[:21] if header[layout.ENTRY_KIND_AT] == EntryKind.DATA else payload
    crc = _core.crc32c(covered, _core.crc32c(header[8:], _core.crc32c(header[:4])))
    struct.pack_into("<I", lane, at + layout.ENTRY_CRC_AT, crc)
    return lane


# ---- Framing -----------------------------------------------------------------------------------

def test_golden_entries(twin, golden):
    batch = bytearray(golden("batch_plain.hex"))
    twin.stamp_batch(batch, 41, 6)
    entries = [Entry(EntryKind.NOOP, 3, 1, 5, 1),
               Entry(EntryKind.DATA, 3, 1, 5, 2, 9, 41, batch, twin.batch_info(batch)),
               Entry(EntryKind.HARD_STATE, 3, 1, 6, 0, payload=bytes((2, 0, 0, 0)))]
    buffers, starts, total, last_crc = twin.frame_entries(entries, SEED, 4096)
    assert b"".join(buffers) == golden("entries.hex")
    assert (starts, total, last_crc) == ([0, 64, 248], 320, 0x13AC973E)
    assert twin.parse_entries(golden("entries.hex")) == entries
    scan = twin.scan_entries(golden("entries.hex"), 0, SEED)
    assert [entry.at for entry in scan.entries] == starts
    assert scan[1:] == (320, "end", last_crc)


def test_each_entry_has_three_buffers_that_stand_alone(twin):
    entries = three(twin)
    buffers, starts, total, _ = twin.frame_entries(entries, SEED, 0)
    assert len(buffers) == 3 * len(entries)
    ends = [*starts[1:], total]
    for number, entry in enumerate(entries):
        header, payload, padding = buffers[3 * number:3 * number + 3]
        assert payload is entry.payload
        assert len(header) + len(payload) + len(padding) == ends[number] - starts[number]
        assert twin.parse_entries(b"".join((header, payload, padding))) == [entry]


def test_headers_share_one_allocation(twin):
    if twin is not _core:
        return  # the reference is for reading, not for speed
    buffers, *_ = twin.frame_entries(three(twin), SEED, 0)
    assert len({id(header.obj) for header in buffers[::3]}) == 1


def test_a_frame_continues_the_chain_of_the_one_before(twin):
    entries = three(twin)
    first, starts, total, crc = twin.frame_entries(entries[:1], SEED, 0)
    second, *_ = twin.frame_entries(entries[1:], crc, 0)
    together, *_ = twin.frame_entries(entries, SEED, 0)
    assert b"".join([*first, *second]) == b"".join(together)


def test_no_entries_are_no_bytes(twin):
    assert twin.frame_entries([], 7, 9) == ([], [], 0, 7)
    assert twin.parse_entries(b"") == []


def test_the_largest_entry_is_framed_and_one_byte_more_is_refused(twin):
    if twin is not _core:
        return  # 8 MiB of CRC in Python take seconds; test_twins compares the message
    largest = layout.ENTRY_BYTES_MAX - layout.ENTRY_HEADER_BYTES
    lane = lane_of(twin, [Entry(EntryKind.METADATA, 0, 1, 1, 1, payload=bytes(largest))])
    assert len(twin.parse_entries(lane)[0].payload) == largest


def test_an_entry_over_the_limit_is_refused(twin):
    payload = bytes(layout.ENTRY_BYTES_MAX - layout.ENTRY_HEADER_BYTES + 1)
    with pytest.raises(ValueError, match=f"ENTRY_BYTES_MAX={layout.ENTRY_BYTES_MAX}"):
        twin.frame_entries([Entry(EntryKind.METADATA, 0, 1, 1, 1, payload=payload)], 0, 0)


@pytest.mark.parametrize("field, number", [
    ("group", -1), ("group", 1 << 32), ("incarnation", 1 << 32), ("term", -1), ("term", 1 << 64),
    ("index", 1 << 64), ("partition", -1), ("base_offset", 1 << 63), ("kind", 256)])
def test_a_field_that_does_not_fit_is_refused(twin, field, number):
    entry = Entry(EntryKind.NOOP, 1, 1, 1, 1)
    setattr(entry, field, number)
    with pytest.raises((OverflowError, ValueError)):
        twin.frame_entries([entry], 0, 0)


@pytest.mark.parametrize("prev_crc, durable", [(-1, 0), (1 << 32, 0), (0, -1), (0, 1 << 64)])
def test_a_chain_or_durable_mark_that_does_not_fit_is_refused(twin, prev_crc, durable):
    with pytest.raises(OverflowError):
        twin.frame_entries([], prev_crc, durable)


def test_fields_at_the_ends_of_their_ranges_survive(twin):
    entry = Entry(EntryKind.GAP, (1 << 32) - 1, (1 << 32) - 1, (1 << 64) - 1, (1 << 64) - 1,
                  (1 << 64) - 1, (1 << 63) - 1, b"")
    lane = lane_of(twin, [entry], (1 << 32) - 1, (1 << 64) - 1)
    assert twin.parse_entries(lane) == [entry]
    [scanned] = twin.scan_entries(lane, 0, (1 << 32) - 1).entries
    assert scanned.durable == (1 << 64) - 1


# ---- Frames of peers ---------------------------------------------------------------------------

def test_parsed_payloads_are_views_and_data_has_its_batch(twin):
    lane = lane_of(twin, three(twin))
    noop, data, command = twin.parse_entries(lane)
    assert data.batch == BatchInfo(1, -1, -1, -1, 1_700_000_000_000, 0)
    assert noop.batch is None and command.batch is None
    assert isinstance(noop.kind, EntryKind)
    lane[-8] ^= 1  # the last bytes are the command's; the view sees it
    assert bytes(command.payload) != b"command of the metadata group"


def test_parsing_ignores_the_senders_chain_and_durable_mark(twin):
    assert twin.parse_entries(lane_of(twin, three(twin), 1, 2)) == three(twin)


def test_a_flipped_bit_anywhere_is_found(twin):
    lane = lane_of(twin, three(twin))
    scan = twin.scan_entries(lane, 0, SEED)
    for entry in scan.entries:
        for at in range(entry.at, entry.at + entry.length):
            broken = bytearray(lane)
            broken[at] ^= 1 << at % 8
            with pytest.raises(CorruptEntry, match=f"entry at byte {entry.at} |at byte "
                                                   f"{entry.at}:"):
                twin.parse_entries(broken)


def test_every_cut_of_a_frame_is_refused(twin):
    lane = lane_of(twin, three(twin))
    whole = {entry.at for entry in twin.scan_entries(lane, 0, SEED).entries}
    for length in set(range(len(lane))) - whole:
        with pytest.raises(CorruptEntry):
            twin.parse_entries(memoryview(lane)[:length])


@pytest.mark.parametrize("at, form, number, words", [
    (layout.ENTRY_LENGTH_AT, "<I", 63, "length 63, outside"),
    (layout.ENTRY_LENGTH_AT, "<I", 0, "length 0, outside"),
    (layout.ENTRY_LENGTH_AT, "<I", (1 << 32) - 1, "length 4294967295, outside"),
    (layout.ENTRY_LENGTH_AT, "<I", 1 << 31, "length 2147483648, outside"),
    (layout.ENTRY_LENGTH_AT, "<I", 65, "reaches past the buffer's 64"),
    (layout.ENTRY_KIND_AT, "<B", 0, "kind 0, "),
    (layout.ENTRY_KIND_AT, "<B", 255, "kind 255, "),
    (layout.ENTRY_FLAGS_AT, "<B", 1, "flags 1, "),
    (layout.ENTRY_RESERVED_AT, "<H", 256, "reserved 256")])
def test_parse_refuses_a_header_that_means_nothing_here(twin, at, form, number, words):
    lane = lane_of(twin, [Entry(EntryKind.NOOP, 1, 1, 1, 1)])
    struct.pack_into(form, lane, at, number)
    with pytest.raises(CorruptEntry, match=words):
        twin.parse_entries(resealed(lane))


def test_parse_refuses_a_data_entry_without_a_batch(twin):
    for payload in (b"", b"x" * 21, b"x" * 100):
        lane = lane_of(twin, [Entry(EntryKind.DATA, 1, 1, 1, 1, payload=payload)])
        with pytest.raises(CorruptEntry, match="entry at byte 0: "):
            twin.parse_entries(lane)


# ---- Recovery ----------------------------------------------------------------------------------

def test_a_scan_tells_what_every_entry_is(twin):
    scan = twin.scan_entries(lane_of(twin, three(twin), SEED, 777), 0, SEED)
    assert [(e.kind, e.group, e.incarnation, e.term, e.index, e.partition, e.base_offset,
             e.durable, e.payload_intact) for e in scan.entries] == [
        (EntryKind.NOOP, 3, 1, 5, 1, 0, -1, 777, True),
        (EntryKind.DATA, 3, 1, 5, 2, 9, 42, 777, True),
        (EntryKind.METADATA, 0, 1, 5, 3, 0, -1, 777, True)]


def test_a_scan_starts_anywhere(twin):
    lane = bytes(24) + lane_of(twin, three(twin))
    assert len(twin.scan_entries(lane, 24, SEED).entries) == 3
    second = twin.scan_entries(lane, 24, SEED).entries[1]
    first_crc, = struct.unpack_from("<I", lane, 24 + layout.ENTRY_CRC_AT)
    assert twin.scan_entries(lane, second.at, first_crc).entries[0] == second


@pytest.mark.parametrize("tail, reason", [
    (b"", "end"), (bytes(63), "end"), (b"\xff" * 63, "end"), (bytes(64), "zeros"),
    (bytes(1000), "zeros"), (bytes(63) + b"\x01", "format"), (b"\xff" * 64, "format"),
    (b"\x40" + bytes(63), "crc"), (b"\x41" + bytes(63), "torn")])
def test_a_scan_says_why_it_stopped(twin, tail, reason):
    lane = lane_of(twin, three(twin))
    scan = twin.scan_entries(lane + tail, 0, SEED)
    assert len(scan.entries) == 3
    assert (scan.stopped_at, scan.reason) == (len(lane), reason)


def test_a_scan_of_a_cut_lane_stops_at_the_entry_that_is_not_whole(twin):
    lane = lane_of(twin, three(twin))
    entries = twin.scan_entries(lane, 0, SEED).entries
    for length in range(len(lane)):
        scan = twin.scan_entries(memoryview(lane)[:length], 0, SEED)
        whole = [entry for entry in entries if entry.at + entry.length <= length]
        assert scan.entries == whole
        assert scan.reason in ("end", "torn")
        assert scan.stopped_at % layout.ENTRY_ALIGNMENT == 0
        assert scan.stopped_at <= length + 7


def test_entries_of_another_chain_are_not_accepted(twin):
    lane = lane_of(twin, three(twin)) + lane_of(twin, three(twin), SEED)
    scan = twin.scan_entries(lane, 0, SEED)
    assert (len(scan.entries), scan.reason) == (3, "chain")
    assert twin.scan_entries(lane, 0, SEED + 1) == ([], 0, "chain", SEED + 1)
    assert twin.check_entries(lane, 0, SEED + 1) == (0, [], 0, "chain", SEED + 1, 0)


def test_a_damaged_data_payload_is_reported_and_the_chain_goes_on(twin):
    lane = lane_of(twin, three(twin))
    lane[64 + 64 + 100] ^= 4
    scan = twin.scan_entries(lane, 0, SEED)
    assert [entry.payload_intact for entry in scan.entries] == [True, False, True]
    assert scan.reason == "end"
    unverified = twin.scan_entries(lane, 0, SEED, verify_payload=False)
    assert [entry.payload_intact for entry in unverified.entries] == [True] * 3
    damaged = scan.entries[1]
    assert twin.check_entries(lane, 0, SEED) == (
        3, [(damaged.at, damaged.length)], scan.stopped_at, "end", scan.last_crc,
        scan.entries[2].durable)


def test_a_damaged_length_or_command_stops_the_scan(twin):
    lane = lane_of(twin, three(twin))
    for at in (0, len(lane) - 4):
        broken = bytearray(lane)
        broken[at] ^= 0x80
        assert twin.scan_entries(broken, 0, SEED).reason in ("crc", "torn")


def test_find_entry_finds_the_next_intact_one(twin):
    lane = lane_of(twin, three(twin))
    starts = [entry.at for entry in twin.scan_entries(lane, 0, SEED).entries]
    for at in range(len(lane) + 8):
        following = [start for start in starts if start >= at]
        assert twin.find_entry(lane, at) == (following[0] if following else -1)
    lane[starts[1] + 20] ^= 1
    assert twin.find_entry(lane, 1) == starts[2]


def test_find_entry_needs_the_header_of_data_not_its_payload(twin):
    lane = lane_of(twin, [data_entry(twin, 1, b"v" * 500)])
    assert twin.find_entry(lane[:85], 0) == 0
    assert twin.find_entry(lane[:84], 0) == -1


def test_find_entry_in_nothing(twin):
    for data in (b"", bytes(63), bytes(4096), b"\xff" * 4096):
        assert twin.find_entry(data, 0) == -1
        assert twin.find_entry(data, 1 << 70) == -1


@pytest.mark.parametrize("at", [-1, -(1 << 70)])
def test_a_negative_place_is_refused(twin, at):
    with pytest.raises(ValueError, match="is negative"):
        twin.find_entry(b"", at)
    with pytest.raises(ValueError, match="is negative"):
        twin.scan_entries(b"", at, 0)
    with pytest.raises(ValueError, match="is negative"):
        twin.check_entries(b"", at, 0)


# ---- Kinds of a group's log --------------------------------------------------------------------

def retention_entries() -> list[Entry]:
    """One entry of each kind that decides retention."""
    made = [
        (EntryKind.CLOCK, 0, "0068e5cf8b010000"),
        (EntryKind.LOG_START, 0, "0200000001000000" "0700000000000000" "2800000000000000"
         "8403000000000000"),
        (EntryKind.PARTITION_DELETE, 0, "01000000010000000c00000000000000" "0700000000000000"),
        (EntryKind.COMPACT, 7, "010000000200000028000000000000001e00000000000000"),
        (EntryKind.PRODUCERS_EXPIRE, 0, "010000001100000000000000"),
    ]
    return [Entry(kind, 3, 1, 5, 1 + at, partition, payload=bytes.fromhex(payload))
            for at, (kind, partition, payload) in enumerate(made)]


def test_golden_entries_that_decide_retention(twin, golden):
    buffers, starts, total, last_crc = twin.frame_entries(retention_entries(), SEED, 4096)
    assert b"".join(buffers) == golden("retention_entries.hex")
    assert twin.parse_entries(golden("retention_entries.hex")) == retention_entries()
    scan = twin.scan_entries(golden("retention_entries.hex"), 0, SEED)
    assert [entry.at for entry in scan.entries] == starts
    assert scan[1:] == (total, "end", last_crc)


@pytest.mark.parametrize("kind", [kind for kind in EntryKind if kind != EntryKind.DATA])
def test_an_index_has_the_kinds_of_a_group_s_log_and_no_others(twin, kind):
    lane = lane_of(twin, [Entry(kind, 3, 1, 5, 1)])
    indexer = twin.SegmentIndexer()
    taken = indexer.take(lane, 0, SEED, 0)
    if kind == EntryKind.HARD_STATE:
        assert taken.reason == "end"
    else:
        assert taken.reason == ("end" if kind <= LAST_INDEXED_KIND else "special")
        assert len(indexer.pack(0, 0).runs) == (kind <= LAST_INDEXED_KIND)
