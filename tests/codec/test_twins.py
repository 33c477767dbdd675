"""The compiled twin does what the reference does: on what is right, on what is almost right, and on
any bytes at all; same value, or same exception type with the same message."""

import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from multiraft import _core
from multiraft.codec import layout
from multiraft.codec import reference as _reference
from multiraft.errors import MultiRaftError
from multiraft.types import BatchInfo, Entry, EntryKind

bounded = settings(max_examples=150, deadline=None, derandomize=True)
thorough = settings(bounded, max_examples=400)

I64_MIN, I64_MAX = -(1 << 63), (1 << 63) - 1
HEADER_BYTES = layout.BATCH_HEADER_BYTES


def outcome(function, *arguments):
    """Return the result of a call or its error, for comparison."""
    try:
        value = function(*arguments)
    except (MultiRaftError, ValueError, TypeError, OverflowError, BufferError) as error:
        return type(error), str(error)
    return value


def agree(name: str, *arguments):
    """Call both; the common outcome."""
    reference = outcome(getattr(_reference, name), *arguments)
    compiled = outcome(getattr(_core, name), *arguments)
    assert compiled == reference, name
    return reference


# ---- What is fed in ----------------------------------------------------------------------------

blobs = st.one_of(st.binary(max_size=40), st.integers(0, 300).map(bytes))
fields = st.one_of(st.none(), blobs)
names = st.text(max_size=8)
timestamps = st.one_of(st.integers(-1, 200), st.integers(0, (1 << 62) - 1),
                       st.just(1_700_000_000_000))
records = st.tuples(timestamps, fields, fields,
                    st.lists(st.tuples(names, fields), max_size=3))
producers = st.one_of(st.just((-1, -1, -1)), st.tuples(
    st.integers(0, I64_MAX), st.integers(0, 32767), st.integers(0, (1 << 31) - 1)))


def builder_of(twin, batch_records, bytes_max: int = 1 << 16):
    builder = twin.BatchBuilder(bytes_max)
    for record in batch_records:
        builder.append(*record)
    return builder


@st.composite
def batches(draw):
    """An intact batch that a producer may send."""
    builder = builder_of(_core, draw(st.lists(records, min_size=1, max_size=6)))
    return builder.build(*draw(producers))


def varint(number: int) -> bytes:
    """Zigzag varint of any size, written down once more."""
    number = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while number > 127:
        out.append(number % 128 + 128)
        number //= 128
    return bytes([*out, number])


#: Pieces that a records block is made of, right and wrong ones.
pieces = st.one_of(
    st.integers(-3, 20).map(varint), st.sampled_from([1 << 31, -(1 << 31), (1 << 31) - 1, 1 << 32,
                                                      I64_MAX, I64_MIN, 1025]).map(varint),
    st.binary(max_size=4), st.just(b"\x80" * 4), st.just(b"\xff" * 9 + b"\x01"))


@st.composite
def almost_records(draw):
    """Records whose own length is right (mostly) and whose inside is not."""
    block = b""
    for _ in range(draw(st.integers(0, 3))):
        body = b"".join(draw(st.lists(pieces, max_size=9)))
        block += varint(len(body) + draw(st.sampled_from([0, 0, 0, 0, 1, -1]))) + body
    return block


@st.composite
def flipped(draw, source):
    """Bytes of ``source`` with up to three bits flipped, perhaps cut, perhaps with a tail."""
    data = bytearray(draw(source))
    for _ in range(draw(st.integers(0, 3))):
        if data:
            at = draw(st.integers(0, len(data) - 1))
            data[at] ^= 1 << draw(st.integers(0, 7))
    if draw(st.booleans()):
        del data[draw(st.integers(0, len(data))):]
    return data + draw(st.one_of(st.just(b""), st.binary(max_size=16)))


def resealed(batch: bytearray) -> bytearray:
    if len(batch) >= HEADER_BYTES:
        struct.pack_into(">i", batch, layout.BATCH_LENGTH_AT, len(batch) - 12)
        crc = _core.crc32c(memoryview(batch)[layout.BATCH_ATTRIBUTES_AT:])
        struct.pack_into(">I", batch, layout.BATCH_CRC_AT, crc)
    return batch


entries = st.builds(
    Entry, st.sampled_from(EntryKind), st.integers(0, (1 << 32) - 1),
    st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 64) - 1),
    st.integers(0, (1 << 64) - 1), st.integers(I64_MIN, I64_MAX), st.one_of(blobs, batches()))


@st.composite
def lanes(draw):
    """Framed entries, perhaps with something in front of them or between two chains."""
    lane = bytearray(8 * draw(st.integers(0, 2)))
    for _ in range(draw(st.integers(1, 2))):
        framed = _core.frame_entries(draw(st.lists(entries, max_size=3)), 7, 99)
        lane += b"".join(framed[0])
    return lane


def entry_resealed(lane: bytearray, at: int) -> bytearray:
    """``lane`` with the CRC of the header at ``at`` made right, if there is one."""
    header = lane[at:at + 64]
    if len(header) == 64:
        length, = struct.unpack_from("<I", header)
        covered = lane[at + 64:at + max(64, length)]
        if header[layout.ENTRY_KIND_AT] == EntryKind.DATA:
            covered = covered[:21]
        crc = _core.crc32c(covered, _core.crc32c(header[8:], _core.crc32c(header[:4])))
        struct.pack_into("<I", lane, at + layout.ENTRY_CRC_AT, crc)
    return lane


# ---- Hashes ------------------------------------------------------------------------------------

@bounded
@given(st.binary(max_size=600), st.integers(0, (1 << 32) - 1))
def test_hashes_agree(data, value):
    agree("crc32c", data, value)
    agree("murmur2", data)


@bounded
@given(st.integers(-1, 1 << 64), st.integers(-1, 1 << 31))
def test_jump_hash_agrees(key, buckets):
    agree("jump_hash", key, buckets)


@bounded
@given(st.integers(-1, 1 << 64), st.integers(0, 20), st.integers(0, 1 << 31),
       st.integers(-1, 1 << 64))
def test_default_groups_agree(first, count, pool_size, seed):
    agree("default_groups", first, count, pool_size, seed)


# ---- Batches -----------------------------------------------------------------------------------

@bounded
@given(st.lists(records, max_size=12), st.integers(62, 400), producers)
def test_builders_agree_record_by_record(batch_records, bytes_max, producer):
    twins = [twin.BatchBuilder(bytes_max) for twin in (_reference, _core)]
    for record in batch_records:
        outcomes = [outcome(builder.append, *record) for builder in twins]
        assert outcomes[0] == outcomes[1]
        assert twins[0].size == twins[1].size
        assert twins[0].count == twins[1].count
    assert twins[0].records_block() == twins[1].records_block()
    assert outcome(twins[0].build, *producer) == outcome(twins[1].build, *producer)


@bounded
@given(st.integers(-1, 1 << 61), st.lists(blobs, max_size=12), st.integers(0, 13),
       st.integers(62, 700), st.lists(records, max_size=1))
def test_extend_agrees(timestamp_ms, values, start, bytes_max, before):
    twins = [twin.BatchBuilder(bytes_max) for twin in (_reference, _core)]
    for builder in twins:
        for record in before:
            outcome(builder.append, *record)
    assert (outcome(twins[0].extend, timestamp_ms, values, start)
            == outcome(twins[1].extend, timestamp_ms, values, start))
    assert twins[0].records_block() == twins[1].records_block()
    assert twins[0].count == twins[1].count


ANYTHING = st.one_of(st.none(), st.integers(), st.floats(), st.text(max_size=3),
                     st.binary(max_size=3), st.lists(st.none(), max_size=2),
                     st.tuples(st.text(max_size=2), st.none()))


@bounded
@given(ANYTHING, ANYTHING, ANYTHING, st.one_of(ANYTHING, st.lists(ANYTHING, max_size=2)))
def test_wrong_arguments_are_refused_alike(timestamp_ms, key, value, headers):
    outcomes = []
    for twin in (_reference, _core):
        builder = twin.BatchBuilder(1000)
        result = outcome(builder.append, timestamp_ms, key, value, headers)
        outcomes.append((result if result is True else result[0], builder.records_block()))
    assert outcomes[0] == outcomes[1]


@bounded
@given(st.lists(records, min_size=1, max_size=6), producers, st.integers(0, 1 << 40))
def test_what_was_encoded_comes_out_again(batch_records, producer, base_offset):
    batch = builder_of(_core, batch_records).build(*producer)
    for twin in (_reference, _core):
        info = twin.check_batch(batch)
        assert info[:4] == (len(batch_records), *producer)
        twin.stamp_batch(batch, base_offset, 7)
        decoded = twin.decode_records(twin.verify_batch(batch), memoryview(batch)[HEADER_BYTES:])
        assert [record[1:4] for record in decoded] == [record[:3] for record in batch_records]
        assert [list(record.headers) for record in decoded] == [r[3] for r in batch_records]
        assert [r.offset for r in decoded] == [*range(base_offset, base_offset + len(decoded))]
        twin.stamp_batch(batch, 0, -1)


def agree_on_batch(data):
    agree("check_batch", data)
    agree("verify_batch", data)
    agree("batch_info", data)
    agree("split_batches", data)
    agree("staged_batches", [data])
    header = agree("batch_header", data)
    if isinstance(header, _reference.BatchHeader):
        agree("decode_records", header, memoryview(data)[HEADER_BYTES:])
        for offset in (header.base_offset, header.base_offset + 1):
            agree("find_record", header, memoryview(data)[HEADER_BYTES:], offset,
                  header.max_timestamp_ms)
        for most in (0, 1, layout.BATCH_RECORDS_MAX):
            agree("keyless_records", header, memoryview(data)[HEADER_BYTES:], most)


@bounded
@given(flipped(batches()))
def test_damaged_batches_get_the_same_answer(data):
    agree_on_batch(data)


@bounded
@given(flipped(batches()))
def test_damaged_batches_with_a_right_crc_get_the_same_answer(data):
    agree_on_batch(resealed(data))


@pytest.mark.parametrize(("attributes", "producer_id", "accepted"), [
    (0x10, 1 << 61, True), (0x10, (1 << 62) - 1, True), (0x14, 1 << 61, True),
    (0x10, (1 << 61) - 1, False), (0x10, 1 << 62, False), (0x10, 7, False), (0x10, -1, False),
    (0x15, 1 << 61, False), (0x30, 1 << 61, False), (0x18, 1 << 61, False),
    (0x00, 1 << 61, False), (0x00, (1 << 62) - 1, False), (0x00, (1 << 61) - 1, True),
    (0x00, 1 << 62, True)])
def test_a_transactional_batch_is_one_of_a_run(attributes, producer_id, accepted):
    batch = builder_of(_core, [(0, None, b"value", [])]).build(producer_id, 0, 0)
    struct.pack_into(">h", batch, layout.BATCH_ATTRIBUTES_AT, attributes)
    assert isinstance(agree("check_batch", resealed(batch)), BatchInfo) == accepted


@bounded
@given(st.binary(max_size=200))
@example(b"")
@example(b"\x7f" * 100)
@example(b"\xff" * 100)
@example(bytes(100))
def test_arbitrary_bytes_get_the_same_answer(data):
    agree_on_batch(data)
    agree("parse_entries", data)
    agree("scan_entries", data, 0, 0)
    agree("find_entry", data, 0)


@bounded
@given(st.lists(batches(), max_size=3), flipped(st.just(b"")))
def test_split_batches_agrees(parts, tail):
    payload = b"".join(parts)
    assert agree("split_batches", payload) == parts
    agree("split_batches", payload + tail)


@bounded
@given(st.lists(st.lists(batches(), max_size=3), max_size=3), flipped(st.just(b"")))
def test_staged_batches_agrees(buffers, tail):
    payload = [b"".join(parts) for parts in buffers]
    agree("staged_batches", payload)
    agree("staged_batches", [*payload, tail])


@thorough
@given(st.one_of(almost_records(), flipped(almost_records()), st.binary(max_size=40)),
       st.integers(-1, 4), st.one_of(st.integers(-2, 6), st.just((1 << 31) - 1)),
       st.sampled_from([0, 5, I64_MIN, I64_MAX]), st.sampled_from([0, I64_MIN, I64_MAX, 1 << 62]))
def test_any_records_block_gets_the_same_answer(block, count, last_delta, base_offset, base_ms):
    batch = bytearray(struct.pack(">qiibIhiqqqhii", 0, 0, -1, 2, 0, 0, count - 1, base_ms, base_ms,
                                  -1, -1, -1, count) + block)
    agree("check_batch", resealed(batch))
    header = _core.batch_header(batch)
    agree("decode_records",
          header._replace(base_offset=base_offset, last_offset_delta=last_delta), block)
    agree("keyless_records", header, block, 2)
    agree("keyless_records", header._replace(base_offset=base_offset), block, -1)


@bounded
@given(st.lists(records, min_size=1, max_size=12), st.integers(0, 12))
def test_records_without_a_key_agree_and_are_those_whose_key_is_null(batch_records, most):
    batch = builder_of(_core, batch_records).build()
    count, first = agree("keyless_records", _core.verify_batch(batch),
                         memoryview(batch)[HEADER_BYTES:], most)
    keyless = [at for at, record in enumerate(batch_records) if record[1] is None]
    assert (count, first) == (len(keyless), tuple(keyless[:most]))


@bounded
@given(flipped(batches()), st.integers(0, 3))
def test_keys_are_looked_for_in_what_a_leader_accepts_and_nothing_else(data, most):
    """The block of a compressed batch is checked as that of an uncompressed one is."""
    batch = resealed(data)
    checked = agree("check_batch", batch)
    header = outcome(_core.batch_header, batch)
    if isinstance(checked, _reference.BatchInfo) and checked.codec == layout.CODEC_NONE:
        assert agree("keyless_records", header, memoryview(batch)[HEADER_BYTES:], most)[0] >= 0


@bounded
@given(st.integers(-2, 1 << 63), st.integers(-2, 1 << 31), st.integers(60, 62))
def test_stamps_agree(base_offset, leader_epoch, length):
    twins = bytearray(length), bytearray(length)
    assert (outcome(_reference.stamp_batch, twins[0], base_offset, leader_epoch)
            == outcome(_core.stamp_batch, twins[1], base_offset, leader_epoch))
    assert twins[0] == twins[1]


@bounded
@given(st.integers(-2, 1 << 63), st.integers(-2, 1 << 15), st.integers(-2, 1 << 31),
       st.integers(0, 100))
@example(7, 3, 1000, HEADER_BYTES)
def test_stamps_of_producers_agree(producer_id, producer_epoch, base_sequence, length):
    twins = bytearray(length), bytearray(length)
    fields = producer_id, producer_epoch, base_sequence
    assert (outcome(_reference.stamp_producer, twins[0], *fields)
            == outcome(_core.stamp_producer, twins[1], *fields))
    assert twins[0] == twins[1]
    for twin in (_reference, _core):
        assert outcome(twin.stamp_producer, bytes(length), *fields)[0] is BufferError


@bounded
@given(st.lists(records, min_size=1, max_size=3), producers)
def test_a_batch_that_is_stamped_is_the_one_that_was_built_so(batch_records, producer):
    builder = builder_of(_core, batch_records)
    for twin in (_reference, _core):
        batch = builder.build()
        twin.stamp_producer(batch, *producer)
        assert batch == builder.build(*producer)


@bounded
@given(st.lists(records, min_size=1, max_size=3), st.integers(-2, 1 << 63), st.integers(0, 80),
       st.integers(-1, 3))
def test_stamps_of_append_times_agree(batch_records, timestamp_ms, cut, magic):
    batch = builder_of(_core, batch_records).build()
    if cut < len(batch) // 2:
        del batch[len(batch) - cut:]
    if magic >= 0 and len(batch) > layout.BATCH_MAGIC_AT:
        batch[layout.BATCH_MAGIC_AT] = magic
    twins = bytearray(batch), bytearray(batch)
    assert (outcome(_reference.stamp_append_time, twins[0], timestamp_ms)
            == outcome(_core.stamp_append_time, twins[1], timestamp_ms))
    assert twins[0] == twins[1]


@bounded
@given(st.lists(records, min_size=1, max_size=5), st.integers(0, I64_MAX))
def test_records_with_an_append_time_agree(batch_records, timestamp_ms):
    batch = builder_of(_core, batch_records).build()
    _core.stamp_append_time(batch, timestamp_ms)
    header = agree("verify_batch", batch)
    decoded = agree("decode_records", header, bytes(batch[HEADER_BYTES:]))
    assert [record.timestamp_ms for record in decoded] == [timestamp_ms] * len(batch_records)


# ---- Entries -----------------------------------------------------------------------------------

@bounded
@given(st.lists(entries, max_size=4), st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1))
def test_frames_agree_and_come_back(framed, prev_crc, durable):
    buffers, starts, total, last_crc = agree("frame_entries", framed, prev_crc, durable)
    lane = b"".join(buffers)
    scan = agree("scan_entries", lane, 0, prev_crc)
    assert [entry.at for entry in scan.entries] == starts
    assert scan[1:] == (total, "end", last_crc)
    checked = agree("check_entries", lane, 0, prev_crc)
    assert checked == (len(framed), [(entry.at, entry.length) for entry in scan.entries
                                     if not entry.payload_intact],
                       total, "end", last_crc, durable if framed else 0)
    for entry, scanned in zip(framed, scan.entries, strict=True):
        assert scanned[2:9] == (entry.kind, entry.group, entry.incarnation, entry.term,
                                entry.index, entry.partition, entry.base_offset)
        assert scanned.durable == durable
    agree("parse_entries", lane)
    pieces, at, crc = [], 0, prev_crc
    while (scan := agree("scan_entries", lane, at, crc, True, at + 1)).reason == "limit":
        assert len(scan.entries) == 1
        pieces, at, crc = pieces + scan.entries, scan.stopped_at, scan.last_crc
    assert [entry.at for entry in pieces + scan.entries] == starts


def agree_on_lane(lane, at: int, prev_crc: int):
    agree("parse_entries", lane)
    agree("parse_entries", memoryview(lane)[at:])
    agree("scan_entries", lane, at, prev_crc)
    agree("scan_entries", lane, at, prev_crc, False)
    agree("check_entries", lane, at, prev_crc)
    agree("find_entry", lane, at)


@thorough
@given(flipped(lanes()), st.integers(0, 80))
def test_damaged_lanes_get_the_same_answer(lane, at):
    agree_on_lane(lane, at, 7)


@thorough
@given(flipped(lanes()), st.sampled_from([0, 8, 16]))
def test_damaged_headers_with_a_right_crc_get_the_same_answer(lane, at):
    agree_on_lane(entry_resealed(lane, at), at, 7)


@pytest.mark.parametrize("name", ["group", "incarnation", "term", "index", "partition",
                                  "base_offset", "kind"])
@pytest.mark.parametrize("number", [-1, 256, 1 << 32, 1 << 63, 1 << 64, -(1 << 63) - 1])
def test_fields_out_of_range_are_refused_alike(name, number):
    entry = Entry(EntryKind.NOOP, 1, 1, 1, 1, payload=b"x")
    entry.__class__ = _Plain
    setattr(entry, name, number)
    agree("frame_entries", [entry], 0, 0)


class _Plain(Entry):
    """An entry that can be shown whatever its kind is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Entry"


def test_limits_are_refused_alike():
    too_large = bytes(layout.ENTRY_BYTES_MAX - layout.ENTRY_HEADER_BYTES + 1)
    agree("frame_entries", [Entry(EntryKind.METADATA, 0, 1, 1, 1, payload=too_large)], 0, 0)
    agree("check_batch", bytes(layout.BATCH_BYTES_MAX + 1))
    agree("split_batches", bytes(8) + struct.pack(">i", layout.BATCH_BYTES_MAX - 11) + bytes(99))


def test_buffers_of_other_shapes_are_taken_alike():
    batch = builder_of(_core, [(5, b"k", b"v", [])]).build()
    padded = bytes(batch) + bytes(-len(batch) % 8)
    for data in (batch, memoryview(b"??" + bytes(batch))[2:], memoryview(padded).cast("Q"),
                 memoryview(padded).cast("B", [2, len(padded) // 2]), memoryview(padded)[::-1]):
        for name in ("check_batch", "batch_info", "split_batches", "crc32c", "murmur2",
                     "parse_entries"):
            agree(name, data)


# ---- Indexes of segments -----------------------------------------------------------------------

@st.composite
def logs(draw):
    """Entries of a few groups in lane order, most of them the next of their group."""
    steps = draw(st.lists(st.tuples(
        st.integers(0, 2), st.sampled_from([*[EntryKind.DATA] * 4, EntryKind.NOOP,
                                            EntryKind.METADATA, EntryKind.CLOCK,
                                            EntryKind.PRODUCERS_EXPIRE, EntryKind.HARD_STATE]),
        st.integers(0, 2), st.integers(0, 1), st.binary(max_size=5)), max_size=12))
    odd = draw(st.one_of(st.none(), st.tuples(
        st.sampled_from([EntryKind.SUFFIX_DROP, EntryKind.LIFT, EntryKind.DATA, EntryKind.NOOP]),
        st.integers(1, 2), st.integers(0, 5), st.integers(0, 3))))
    framed, last, offsets = [], {}, {}
    for group, kind, partition, more_term, payload in steps:
        index, term = last.get(group, (4, 1))
        offset = offsets.get((group, partition), 0)
        batch = None
        if kind == EntryKind.DATA:
            count = len(payload) % 3 + 1
            builder = builder_of(_reference, [(len(payload) * 7 + at, None, payload, ())
                                              for at in range(count)])
            payload = builder.build()
            _reference.stamp_batch(payload, offset, 1)
            offsets[group, partition] = offset + count + more_term
        elif kind == EntryKind.HARD_STATE:
            payload = payload[:4]
        if kind != EntryKind.HARD_STATE:
            index, term = index + 1, term + more_term
            last[group] = index, term
        framed.append(Entry(kind, group, 1, term, index, partition, offset, bytes(payload), batch))
    if odd is not None:
        kind, incarnation, index, term = odd
        framed.append(Entry(kind, 0, incarnation, term, index, 0, 0, b"", None))
    return framed


def indexed(twin, lane, window: int, prev_crc: int, start: int = 1000):
    """Return the result of each window, and the rows of a segment that begins at ``start``."""
    indexer, at, outcomes = twin.SegmentIndexer(), 0, []
    while at < len(lane):
        taken = indexer.take(lane[at:at + window], 0, prev_crc, 1000 + at)
        outcomes.append(taken)
        if taken.reason not in ("end", "torn") or (not taken.stopped_at and window >= len(lane)):
            break
        window *= 1 if taken.stopped_at else 2
        at, prev_crc = at + taken.stopped_at, taken.last_crc
    packed = outcome(indexer.pack, prev_crc, start)
    return outcomes, packed, indexer.first_durable, indexer.highest_durable


@thorough
@given(logs(), st.sampled_from([64, 200, 1 << 16]), st.integers(0, (1 << 32) - 1),
       st.integers(0, (1 << 64) - 1), st.sampled_from([0, 936, 1000, 1200]), st.data())
def test_indexers_agree_on_what_is_plain_and_on_what_is_not(framed, window, prev_crc, durable,
                                                            start, data):
    buffers, _, _, _ = _reference.frame_entries(framed, prev_crc, durable)
    lane = bytearray(b"".join(buffers))
    if lane and data.draw(st.booleans(), "damaged"):
        at = data.draw(st.integers(0, len(lane) - 1), "at")
        lane[at] ^= 1 << data.draw(st.integers(0, 7), "bit")
    results = [indexed(twin, bytes(lane), window, prev_crc, start)
               for twin in (_reference, _core)]
    assert results[0][0] == results[1][0]
    if results[0][0] and results[0][0][-1].reason in ("end", "torn"):
        assert results[0] == results[1]


def test_indexers_agree_on_numbers_at_their_bounds():
    top = (1 << 64) - 1
    builder = builder_of(_reference, [(5, None, b"x", ())])
    batch = bytes(builder.build())
    for entry in (Entry(EntryKind.DATA, (1 << 32) - 1, (1 << 32) - 1, top, top, top, I64_MAX,
                        batch),
                  Entry(EntryKind.DATA, 1, 1, 1, 1, 1, I64_MAX - 1, batch),
                  Entry(EntryKind.NOOP, 1, 1, top, top)):
        follower = Entry(EntryKind.NOOP, entry.group, entry.incarnation, top, 0)
        for framed in ([entry], [entry, follower]):
            lane = b"".join(_reference.frame_entries(framed, 0, top)[0])
            results = [indexed(twin, lane, 1 << 16, 0) for twin in (_reference, _core)]
            assert results[0][0] == results[1][0]
            if results[0][0][-1].reason == "end":
                assert results[0] == results[1]


def test_indexers_refuse_what_is_no_place():
    for twin in (_reference, _core):
        indexer = twin.SegmentIndexer()
        assert outcome(indexer.take, b"", -1, 0, 0) == (ValueError, "at=-1 is negative")
        assert outcome(indexer.take, b"", 0, 1 << 32, 0)[0] is OverflowError
        assert indexer.pack(0, 0) == (0, 0, b"", [])
        assert (indexer.first_durable, indexer.highest_durable) == (-1, 0)
        assert outcome(indexer.pack, 1 << 32, 0)[0] is OverflowError


def test_indexers_refuse_numbers_that_do_not_fit_into_rows():
    too_large = OverflowError, "a number of the index does not fit into its row"
    for index, position, start, refused in [
            ((1 << 63) - 1, 1000, 1000, False), (1 << 63, 1000, 1000, True),
            (1, (1 << 32) + 999, 1000, False), (1, (1 << 32) + 1000, 1000, True),
            (1, 1000, 1001, True), (1, 0, (1 << 64) - 1, True)]:
        lane = b"".join(_reference.frame_entries([Entry(EntryKind.NOOP, 1, 1, 1, index)], 0, 0)[0])
        for twin in (_reference, _core):
            indexer = twin.SegmentIndexer()
            indexer.take(lane, 0, 0, position)
            assert (outcome(indexer.pack, 0, start) == too_large) is refused


# ---- Rows of index files -----------------------------------------------------------------------

def many_entries(count: int) -> bytes:
    """Entries of two groups with batches of a few partitions, with gaps now and then."""
    framed, offsets = [], {}
    for at in range(count):
        group, partition = at % 2, at % 7
        offset = offsets.get((group, partition), 0)
        batch = builder_of(_reference, [(at, None, b"x", ())] * (1 + at % 2)).build()
        _reference.stamp_batch(batch, offset, 1)
        offsets[group, partition] = offset + 1 + at % 2 + (at % 11 == 0)
        framed.append(Entry(EntryKind.DATA, group, 1, 1 + at // 90, 1 + at // 2, partition, offset,
                            bytes(batch), _reference.batch_info(batch)))
    return b"".join(_reference.frame_entries(framed, 0, 0)[0])


def packed_entries(count: int):
    indexer = _core.SegmentIndexer()
    assert indexer.take(many_entries(count), 0, 0, 64).reason == "end"
    return indexer.pack(7, 0)


def test_indexers_agree_on_rows_of_many_blocks():
    lane = many_entries(1100)
    results = [indexed(twin, lane, 1 << 20, 0) for twin in (_reference, _core)]
    assert results[0] == results[1]
    assert len(results[0][1].blocks) > 10 * layout.INDEX_BLOCK_BYTES


SMALL, LARGE = packed_entries(30), packed_entries(1100)


def columns_of(twin, packed) -> list:
    """Return what a twin reads of a packed index, and the first error instead of the rest."""
    block, found = layout.INDEX_BLOCK_BYTES, []
    entry_blocks = -(-packed.entries // 511)
    entries = outcome(twin.IndexRowReader, packed.blocks[:entry_blocks * block], 1,
                      layout.INDEX_ENTRIES, packed.entries, 7)
    batches = outcome(twin.IndexRowReader, packed.blocks[entry_blocks * block:], 1 + entry_blocks,
                      layout.INDEX_BATCHES, packed.batches, 7)
    for reader in (entries, batches):
        if isinstance(reader, tuple):
            return [reader]
    for _, _, known, partitions, rows, _ in packed.runs:
        found.append(outcome(entries.entries, known[2], known[0], 0))
        if isinstance(found[-1][0], type):
            return found
        last = known[0] + len(found[-1][0]) // 8 - 1
        found.append(outcome(batches.batches, partitions, rows, known[0], last))
        if isinstance(found[-1], tuple):
            return found
    return [*found, entries.count, batches.count]


def resigned(blocks: bytes) -> bytes:
    """Return blocks with right checksums."""
    found, size = [], layout.INDEX_BLOCK_BYTES
    for number in range(1, 1 + len(blocks) // size):
        body = blocks[(number - 1) * size + 4:number * size]
        crc = _core.crc32c(body, _core.crc32c(struct.pack("<I", number), 7))
        found.append(struct.pack("<I", crc) + body)
    return b"".join(found)


def test_readers_return_the_columns_that_were_packed():
    for packed in (SMALL, LARGE):
        found = columns_of(_core, packed)
        assert found == columns_of(_reference, packed)
        assert found[-2:] == [packed.entries, packed.batches]


def changed(data: bytes, at: int, number: int) -> bytes:
    at %= len(data)
    return data[:at] + bytes([number]) + data[at + 1:]


@thorough
@given(st.sampled_from(["blocks", "signed", "entries", "batches", "parts", "partitions", "rows",
                        "cut"]),
       st.integers(0, 1 << 14), st.integers(0, 255), st.sampled_from([0, 1]))
def test_readers_agree_on_what_contradicts(what, at, number, group):
    packed = SMALL
    run = [*packed.runs[group]]
    if what in ("blocks", "signed"):
        used = at % 2 * layout.INDEX_BLOCK_BYTES + at % 600
        blocks = changed(packed.blocks, used, number)
        packed = packed._replace(blocks=resigned(blocks) if what == "signed" else blocks)
    elif what in ("entries", "batches"):
        packed = packed._replace(**{what: number})
    elif what == "parts":
        run[2] = [*run[2][:2], changed(run[2][2], at, number), *run[2][3:]]
    elif what == "cut":
        slot = 3 + at % 2
        run[slot] = run[slot][:number]
    else:
        slot = 3 if what == "partitions" else 4
        run[slot] = changed(run[slot], at, number)
    packed = packed._replace(runs=[run if each == group else known
                                   for each, known in enumerate(packed.runs)])
    assert columns_of(_core, packed) == columns_of(_reference, packed)


def test_readers_refuse_blocks_of_no_kind():
    for twin in (_reference, _core):
        assert outcome(twin.IndexRowReader, b"", 1, 3, 0, 0) == (
            ValueError, "there are no blocks of kind 3")
        assert outcome(twin.IndexRowReader, b"", 1, 1, 0, 1 << 32)[0] is OverflowError
        assert outcome(twin.IndexRowReader, b"", 1, 1, 1 << 40, 0) == (
            ValueError, f"0 bytes of blocks for {1 << 40} rows of kind 1")


parts_of_files = st.lists(st.tuples(st.dictionaries(
    st.integers(0, 5), st.lists(st.tuples(st.integers(0, 1 << 60), st.integers(0, (1 << 44) - 1),
                                          st.integers(-9, 9)), max_size=3), max_size=4),
    st.sampled_from([0, 1, 7, (1 << 20) - 1])), max_size=4)


def packed_parts(parts: dict[int, list[tuple[int, int, int]]], end: int) -> tuple[bytes, bytes]:
    """Return partitions and rows as a summary has them."""
    return (b"".join(struct.pack("<QqI", partition, end + partition, len(rows))
                     for partition, rows in parts.items()),
            b"".join(struct.pack("<qQq", *row) for rows in parts.values() for row in rows))


@thorough
@given(parts_of_files)
def test_twins_join_the_same_rows(written):
    files = [(*packed_parts(parts, 100 * number), file)
             for number, (parts, file) in enumerate(written)]
    found = _core.join_index_rows(files)
    assert found == _reference.join_index_rows(files)
    assert [*found] == [*_reference.join_index_rows(files)]
    for partition, (rows, end) in found.items():
        own = [(first, place | file << 44, value) for parts, file in written
               for first, place, value in parts.get(partition, ())]
        known = [*struct.iter_unpack("<qQq", rows)]
        assert [row[:2] for row in known] == [row[:2] for row in own]
        assert [row[2] for row in known] == [max(row[2] for row in own[:at + 1])
                                             for at in range(len(own))]
        assert end == max(100 * number + partition for number, (parts, _) in enumerate(written)
                          if parts.get(partition))


@pytest.mark.parametrize(("file", "error"), [
    ((b"\0" * 19, b"", 0), ValueError),
    ((b"\0" * 20, b"\0" * 24, 0), ValueError),
    ((b"\0" * 19 + b"\xff", b"\0" * 24, 0), ValueError),
    ((b"", b"\0" * 23, 0), ValueError),
    ((b"", b"", 1 << 20), ValueError),
    ((b"", b"", -1), OverflowError),
])
def test_twins_refuse_rows_that_are_not_those_of_the_partitions(file, error):
    whole = (*packed_parts({1: [(0, 0, 0)]}, 0), 3)
    for files in ([file], [whole, file]):
        found = [outcome(twin.join_index_rows, files) for twin in (_reference, _core)]
        assert found[0] == found[1]
        assert found[0][0] is error
