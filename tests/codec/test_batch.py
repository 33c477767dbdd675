"""RecordBatch v2: what is encoded, what is refused, what comes out again."""

import struct

import pytest

from multiraft import _core
from multiraft.codec import layout
from multiraft.codec.values import BatchHeader, Record
from multiraft.errors import BatchTooLarge, CorruptBatch, InvalidBatch, RecordTooLarge
from multiraft.types import BatchInfo

NOW_MS = 1_700_000_000_000


def build(twin, *values, **fields) -> bytearray:
    builder = twin.BatchBuilder(1 << 20)
    assert builder.extend(NOW_MS, values or (b"one", b"two")) == len(values or (1, 2))
    return builder.build(**fields)


def changed(batch, form: str, at: int, number: int) -> bytearray:
    """``batch`` with one field replaced and the CRC made right again."""
    batch = bytearray(batch)
    struct.pack_into(form, batch, at, number)
    return resealed(batch)


def resealed(batch: bytearray) -> bytearray:
    crc = _core.crc32c(memoryview(batch)[layout.BATCH_ATTRIBUTES_AT:])
    struct.pack_into(">I", batch, layout.BATCH_CRC_AT, crc)
    return batch


def with_block(block: bytes, count: int = 1, base_timestamp_ms: int = NOW_MS) -> bytearray:
    """An intact batch around any records block."""
    header = struct.pack(">qiibIhiqqqhii", 0, layout.BATCH_HEADER_BYTES + len(block) - 12, -1, 2,
                         0, 0, count - 1, base_timestamp_ms, base_timestamp_ms, -1, -1, -1, count)
    return resealed(bytearray(header + block))


# ---- Golden bytes ------------------------------------------------------------------------------

def test_golden_plain_batch_is_what_the_builder_makes(twin, golden):
    builder = twin.BatchBuilder(4096)
    assert builder.append(NOW_MS, b"LGA", b'{"flight":1545}', [("carrier", b"UA"), ("tail", None)])
    assert builder.append(NOW_MS + 1000, None, b"")
    assert builder.append(NOW_MS - 1, b"", None)
    assert builder.build(1000, 7, 41) == golden("batch_plain.hex")
    assert builder.count == 3
    assert builder.size == len(golden("batch_plain.hex"))


def test_golden_plain_batch_decodes(twin, golden):
    batch = golden("batch_plain.hex")
    assert twin.check_batch(batch) == BatchInfo(3, 1000, 7, 41, NOW_MS + 1000, 0)
    assert twin.decode_records(twin.verify_batch(batch), batch[61:]) == [
        Record(0, NOW_MS, b"LGA", b'{"flight":1545}', (("carrier", b"UA"), ("tail", None))),
        Record(1, NOW_MS + 1000, None, b"", ()),
        Record(2, NOW_MS - 1, b"", None, ())]


def test_golden_compressed_batch(twin, golden):
    batch = golden("batch_gzip.hex")
    builder = twin.BatchBuilder(4096)
    assert builder.extend(NOW_MS, [b"a" * 64] * 2) == 2
    assert builder.build(codec=layout.CODEC_GZIP, block=batch[61:]) == batch
    assert twin.check_batch(batch).codec == layout.CODEC_GZIP
    records = twin.decode_records(twin.verify_batch(batch), builder.records_block())
    assert [record.value for record in records] == [b"a" * 64] * 2


# ---- The builder -------------------------------------------------------------------------------

def test_size_is_the_length_of_the_batch(twin):
    builder = twin.BatchBuilder(1 << 16)
    assert (builder.count, builder.size) == (0, layout.BATCH_HEADER_BYTES)
    for length in (0, 1, 63, 64, 8191, 8192):
        builder.append(NOW_MS + length, b"k" * length, b"v" * length, [("name", b"x" * length)])
        assert builder.size == len(builder.build())


def test_a_full_builder_takes_nothing_and_changes_nothing(twin):
    builder = twin.BatchBuilder(200)
    taken = builder.extend(NOW_MS, [b"x" * 40] * 5)
    before = builder.build()
    assert taken == builder.count == 2
    assert builder.append(NOW_MS + 5, None, b"x" * 40) is False
    assert builder.build() == before
    assert len(before) <= 200


def test_a_record_that_exactly_fits_is_taken(twin):
    exact = layout.BATCH_HEADER_BYTES + 7 + 40
    assert twin.BatchBuilder(exact).append(NOW_MS, None, b"x" * 40)
    with pytest.raises(RecordTooLarge, match=f"47 bytes exceeds bytes_max={exact - 1}"):
        twin.BatchBuilder(exact - 1).append(NOW_MS, None, b"x" * 40)


def test_a_record_that_never_fits_is_an_error_also_when_others_are_there(twin):
    builder = twin.BatchBuilder(200)
    builder.append(NOW_MS, None, b"small")
    with pytest.raises(RecordTooLarge):
        builder.append(NOW_MS, None, b"x" * 200)
    assert builder.count == 1


def test_extend_continues_where_it_stopped(twin):
    values = [bytes([number]) * 30 for number in range(20)]
    builder, batches, at = twin.BatchBuilder(300), [], 0
    while at < len(values):
        at = builder.extend(NOW_MS, values, at)
        batches.append(builder.build())
        builder.clear()
    found = [record.value for batch in batches
             for record in twin.decode_records(twin.verify_batch(batch), batch[61:])]
    assert found == values
    assert len(batches) > 2


@pytest.mark.parametrize("bad, error", [(b"x" * 400, RecordTooLarge), ("text", TypeError),
                                        (None, TypeError)])
def test_extend_stops_before_a_value_it_cannot_take_and_raises_when_it_comes_first(
        twin, bad, error):
    builder = twin.BatchBuilder(300)
    assert builder.extend(NOW_MS, [b"a", b"b", bad, b"c"]) == 2
    with pytest.raises(error):
        builder.extend(NOW_MS, [b"a", b"b", bad, b"c"], 2)
    assert builder.count == 2


@pytest.mark.parametrize("start, expected", [(2, 2), (5, 5)])
def test_extend_from_the_end_adds_nothing(twin, start, expected):
    builder = twin.BatchBuilder(300)
    assert builder.extend(NOW_MS, [b"a", b"b"], start) == expected
    assert builder.count == 0


def test_a_cleared_builder_starts_again(twin):
    builder = twin.BatchBuilder(300)
    builder.append(5, b"k", b"v")
    builder.clear()
    assert (builder.count, builder.size) == (0, 61)
    builder.append(NOW_MS, None, b"v")
    assert twin.batch_header(builder.build()).base_timestamp_ms == NOW_MS


def test_build_may_be_repeated_with_other_producer_fields(twin):
    builder = twin.BatchBuilder(300)
    builder.append(NOW_MS, None, b"v")
    first, second = builder.build(), builder.build(9, 2, 77)
    assert twin.check_batch(first)[1:4] == (-1, -1, -1)
    assert twin.check_batch(second)[1:4] == (9, 2, 77)
    assert first[61:] == second[61:]


@pytest.mark.parametrize("arguments", [
    (NOW_MS, "key", b""), (NOW_MS, b"", "value"), (NOW_MS, bytearray(b"key"), b""),
    (1.5, b"", b""), (NOW_MS, b"", b"", [("a",)]), (NOW_MS, b"", b"", [(b"a", b"")]),
    (NOW_MS, b"", b"", [("a", "b")]), (NOW_MS, b"", b"", ["ab"]), (NOW_MS, b"", b"", 3)])
def test_append_refuses_wrong_types_and_changes_nothing(twin, arguments):
    builder = twin.BatchBuilder(300)
    with pytest.raises(TypeError):
        builder.append(*arguments)
    assert (builder.count, builder.size) == (0, 61)


@pytest.mark.parametrize("timestamp_ms", [-2, 1 << 62, 1 << 80, -(1 << 80)])
def test_append_refuses_timestamps_out_of_range(twin, timestamp_ms):
    with pytest.raises(ValueError, match="timestamp_ms"):
        twin.BatchBuilder(300).append(timestamp_ms, None, b"")


def test_timestamps_at_both_ends_of_the_range_survive(twin):
    builder = twin.BatchBuilder(300)
    assert builder.append(-1, None, None)
    assert builder.append((1 << 62) - 1, None, None)
    batch = builder.build()
    records = twin.decode_records(twin.batch_header(batch), batch[61:])
    assert [record.timestamp_ms for record in records] == [-1, (1 << 62) - 1]


def test_header_names_that_are_not_utf8_survive(twin):
    builder = twin.BatchBuilder(300)
    name = b"\xff\xfe".decode("utf-8", "surrogateescape")
    builder.append(NOW_MS, None, None, [(name, b"1"), ("gr\u00fc\u00dfe", None)])
    batch = builder.build()
    [record] = twin.decode_records(twin.batch_header(batch), batch[61:])
    assert record.headers == ((name, b"1"), ("gr\u00fc\u00dfe", None))


def test_too_many_headers_are_refused(twin):
    builder = twin.BatchBuilder(1 << 16)
    assert builder.append(NOW_MS, None, None, [("", None)] * layout.RECORD_HEADERS_MAX)
    with pytest.raises(RecordTooLarge, match="1025 headers exceeds RECORD_HEADERS_MAX=1024"):
        builder.append(NOW_MS, None, None, [("", None)] * (layout.RECORD_HEADERS_MAX + 1))


@pytest.mark.parametrize("bytes_max", [0, 61, -5, layout.BATCH_BYTES_MAX + 1, 1 << 80])
def test_builder_refuses_a_limit_out_of_range(twin, bytes_max):
    with pytest.raises(ValueError, match="bytes_max"):
        twin.BatchBuilder(bytes_max)


@pytest.mark.parametrize("fields", [
    {"producer_id": -2}, {"producer_id": 1 << 63}, {"producer_epoch": 1 << 15},
    {"producer_epoch": -2}, {"base_sequence": 1 << 31}, {"base_sequence": -2},
    {"codec": 5, "block": b""}, {"codec": -1, "block": b""}, {"codec": 1}, {"block": b"x"}])
def test_build_refuses_fields_out_of_range(twin, fields):
    builder = twin.BatchBuilder(300)
    builder.append(NOW_MS, None, b"v")
    with pytest.raises(ValueError):
        builder.build(**fields)


def test_an_empty_batch_cannot_be_built(twin):
    with pytest.raises(ValueError, match="empty"):
        twin.BatchBuilder(300).build()


def test_a_block_that_grew_over_the_limit_is_refused(twin):
    builder = twin.BatchBuilder(300)
    builder.append(NOW_MS, None, b"v")
    with pytest.raises(BatchTooLarge, match=f"BATCH_BYTES_MAX={layout.BATCH_BYTES_MAX}"):
        builder.build(codec=4, block=bytes(layout.BATCH_BYTES_MAX - 60))


# ---- What a leader accepts ---------------------------------------------------------------------

def test_check_batch_accepts_what_producers_send(twin):
    assert twin.check_batch(build(twin)).count == 2
    # Sarama leaves sequence and leader epoch 0 without a producer id.
    other = changed(changed(build(twin), ">i", 53, 0), ">i", 12, 0)
    assert twin.check_batch(other).producer_id == -1


@pytest.mark.parametrize("form, at, number, error, words", [
    (">b", layout.BATCH_MAGIC_AT, 1, InvalidBatch, "magic 1"),
    (">q", layout.BATCH_BASE_OFFSET_AT, 7, InvalidBatch, "base offset 7"),
    (">h", layout.BATCH_ATTRIBUTES_AT, 0x08, InvalidBatch, "0x0008"),
    (">h", layout.BATCH_ATTRIBUTES_AT, 0x10, InvalidBatch, "no transaction of a sink"),
    (">h", layout.BATCH_ATTRIBUTES_AT, 0x20, InvalidBatch, "0x0020"),
    (">h", layout.BATCH_ATTRIBUTES_AT, -32768, InvalidBatch, "0x8000"),
    (">h", layout.BATCH_ATTRIBUTES_AT, 5, InvalidBatch, "codec 5"),
    (">i", layout.BATCH_RECORDS_COUNT_AT, 0, InvalidBatch, "count 0"),
    (">i", layout.BATCH_RECORDS_COUNT_AT, -1, InvalidBatch, "count -1"),
    (">i", layout.BATCH_RECORDS_COUNT_AT, 3, InvalidBatch, "last offset delta 1"),
    (">i", layout.BATCH_RECORDS_COUNT_AT, (1 << 20) + 1, BatchTooLarge, "1048577 records"),
    (">i", layout.BATCH_LAST_OFFSET_DELTA_AT, 2, InvalidBatch, "last offset delta 2"),
    (">i", layout.BATCH_LAST_OFFSET_DELTA_AT, -(1 << 31), InvalidBatch, "last offset delta"),
    (">q", layout.BATCH_PRODUCER_ID_AT, -2, InvalidBatch, "producer id -2"),
    (">q", layout.BATCH_PRODUCER_ID_AT, 5, InvalidBatch, "epoch -1 and sequence -1"),
    (">i", layout.BATCH_LENGTH_AT, 1, CorruptBatch, "13 bytes, outside"),
    (">i", layout.BATCH_LENGTH_AT, -1, CorruptBatch, "field -1"),
    (">i", layout.BATCH_LENGTH_AT, (1 << 31) - 1, CorruptBatch, "2147483659 bytes, outside"),
    (">i", layout.BATCH_LENGTH_AT, 66, CorruptBatch, "gives 78 bytes, buffer has 81")])
def test_check_batch_refuses_a_field(twin, form, at, number, error, words):
    with pytest.raises(error, match=words):
        twin.check_batch(changed(build(twin), form, at, number))


def test_check_batch_refuses_count_and_delta_that_agree_but_lie(twin):
    for count in (1, 3):
        batch = changed(build(twin), ">i", layout.BATCH_RECORDS_COUNT_AT, count)
        batch = changed(batch, ">i", layout.BATCH_LAST_OFFSET_DELTA_AT, count - 1)
        with pytest.raises(CorruptBatch):
            twin.check_batch(batch)


def test_a_flipped_bit_anywhere_below_the_crc_is_found(twin):
    batch = build(twin)
    for at in range(layout.BATCH_CRC_AT, len(batch)):
        broken = bytearray(batch)
        broken[at] ^= 1 << at % 8
        for check in (twin.check_batch, twin.verify_batch, twin.split_batches):
            with pytest.raises(CorruptBatch, match="CRC"):
                check(broken)


def test_check_batch_refuses_a_batch_over_the_limit_before_looking_into_it(twin):
    with pytest.raises(BatchTooLarge, match=f"{layout.BATCH_BYTES_MAX + 1} bytes"):
        twin.check_batch(bytes(layout.BATCH_BYTES_MAX + 1))


def test_large_batches_are_checked_without_the_interpreters_lock():
    """Over a MiB the compiled twin releases it: another path through the same checks."""
    builder = _core.BatchBuilder(4 << 20)
    assert builder.extend(NOW_MS, [bytes([n]) * 700_000 for n in range(3)]) == 3
    batch = builder.build()
    assert _core.crc32c(batch) == _core._crc32c_portable(batch)
    assert _core.check_batch(batch) == BatchInfo(3, -1, -1, -1, NOW_MS, 0)
    assert _core.split_batches(batch + batch) == [batch, batch]
    batch[-1] = 2  # one header, of which nothing is there
    with pytest.raises(CorruptBatch, match="CRC"):
        _core.check_batch(batch)
    with pytest.raises(CorruptBatch, match="reaches past its end"):
        _core.check_batch(resealed(batch))


def test_every_cut_of_a_batch_is_refused(twin):
    batch = build(twin)
    for length in range(len(batch)):
        with pytest.raises(CorruptBatch):
            twin.check_batch(memoryview(batch)[:length])
    with pytest.raises(CorruptBatch):
        twin.check_batch(bytes(batch) + b"\0")


RECORD = bytes.fromhex("0e 00 00 00 01 02 78 00".replace(" ", ""))  # null key, value "x"


@pytest.mark.parametrize("block, count, error, words", [
    ("", 1, CorruptBatch, "reaches past its end"),
    ("00", 1, CorruptBatch, "reaches past its end"),
    ("0e000000010278", 1, CorruptBatch, "length 7 does not fit the 6 bytes left"),
    ("01", 1, CorruptBatch, "length -1 does not fit"),
    ("feffffff0f", 1, CorruptBatch, "length 2147483647 does not fit"),
    ("ffffffff0f", 1, CorruptBatch, "length -2147483648 does not fit"),
    ("ffffffff1f", 1, CorruptBatch, "longer than 32 bits"),
    ("808080808000", 1, CorruptBatch, "longer than 32 bits"),
    ("0e000002010278" + "00", 1, InvalidBatch, "offset delta 1, expected 0"),
    ("0e000001010278" + "00", 1, InvalidBatch, "offset delta -1, expected 0"),
    ("0e000000030278" + "00", 1, CorruptBatch, "length -2 does not fit"),
    ("0e000000010678" + "00", 1, CorruptBatch, "length 3 does not fit"),
    ("0e000000010278" + "01", 1, CorruptBatch, "-1 headers"),
    ("1000000001027882" + "10", 1, CorruptBatch, "1025 headers"),
    ("100000000102780200", 1, CorruptBatch, "reaches past its end"),
    ("12000000010278020100", 1, CorruptBatch, "length -1 does not fit"),
    ("1000000001027800" + "00", 1, CorruptBatch, "1 bytes unused"),
    ("0e000000010278" + "00" + "00", 1, CorruptBatch, "1 bytes after the last record"),
    ("0e000000010278" + "00" + "0e000000010278" + "00", 2, InvalidBatch, "delta 0, expected 1")])
def test_check_batch_refuses_a_records_block(twin, block, count, error, words):
    with pytest.raises(error, match=words):
        twin.check_batch(with_block(bytes.fromhex(block), count))


def test_check_batch_refuses_a_timestamp_that_overflows(twin):
    for base, delta in ((1 << 62, "fe" + "ff" * 8 + "01"), (-(1 << 62), "ff" * 9 + "01")):
        block = bytes.fromhex("20" + "00" + delta + "00" + "01" + "0278" + "00")
        with pytest.raises(CorruptBatch, match="timestamp overflows"):
            twin.check_batch(with_block(block, 1, base))


@pytest.mark.parametrize("base_ms, delta, edge", [
    (-(1 << 62), "ff" * 8 + "7f", -(1 << 63)), ((1 << 62) - 1, "80" * 8 + "8001", (1 << 63) - 1)])
def test_timestamps_at_the_edge_of_64_bits_are_accepted(twin, base_ms, delta, edge):
    body = bytes.fromhex("00" + delta + "00" + "01" + "0278" + "00")
    batch = with_block(bytes([2 * len(body)]) + body, 1, base_ms)
    assert twin.check_batch(batch).count == 1
    [record] = twin.decode_records(twin.verify_batch(batch), batch[61:])
    assert record.timestamp_ms == edge


def test_as_many_headers_as_the_limit_says_are_accepted(twin):
    builder = twin.BatchBuilder(1 << 16)
    builder.append(NOW_MS, None, None, [("", None)] * layout.RECORD_HEADERS_MAX)
    batch = builder.build()
    assert twin.check_batch(batch).count == 1
    [record] = twin.decode_records(twin.verify_batch(batch), batch[61:])
    assert len(record.headers) == layout.RECORD_HEADERS_MAX


def test_varints_longer_than_needed_are_accepted(twin):
    block = bytes.fromhex("9480808000" + "00" + "8000" + "808000" + "01" + "0278" + "00")
    assert twin.check_batch(with_block(block)).count == 1


def test_a_compressed_block_is_not_looked_into(twin):
    batch = changed(with_block(b"not records"), ">h", layout.BATCH_ATTRIBUTES_AT, 4)
    assert twin.check_batch(batch).codec == layout.CODEC_ZSTD


# ---- Headers, stamps, views --------------------------------------------------------------------

def test_batch_header_reads_every_field_where_the_layout_says(twin):
    packed = struct.pack(">qiibIhiqqqhii", 1, 100, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
    assert twin.batch_header(b"??" + packed, 2) == BatchHeader(1, 112, *range(3, 14))
    # Offsets up to the last one, 7: compaction may have left fewer records than that.
    assert twin.batch_info(packed) == BatchInfo(8, 10, 11, 12, 9, 6)


@pytest.mark.parametrize("at", [1, 61, 10_000, 1 << 60])
def test_batch_header_refuses_a_place_with_too_few_bytes(twin, at):
    with pytest.raises(CorruptBatch, match="less than a batch header"):
        twin.batch_header(build(twin)[:61], at)


def test_batch_header_refuses_a_negative_place(twin):
    with pytest.raises(ValueError, match="at=-1"):
        twin.batch_header(build(twin), -1)


def test_a_stamp_changes_offset_and_epoch_and_nothing_else(twin):
    batch = build(twin, producer_id=3, producer_epoch=1, base_sequence=0)
    before = bytes(batch)
    twin.stamp_batch(memoryview(batch), (1 << 63) - 1, 77)
    header = twin.verify_batch(batch)
    assert (header.base_offset, header.leader_epoch) == ((1 << 63) - 1, 77)
    twin.stamp_batch(batch, 0, -1)
    assert batch == before


@pytest.mark.parametrize("data, offset, epoch, error", [
    (bytes(61), 0, 0, BufferError), (bytearray(60), 0, 0, CorruptBatch),
    (bytearray(61), -1, 0, ValueError), (bytearray(61), 1 << 63, 0, ValueError),
    (bytearray(61), 0, -2, ValueError), (bytearray(61), 0, 1 << 31, ValueError)])
def test_stamp_refuses(twin, data, offset, epoch, error):
    with pytest.raises(error):
        twin.stamp_batch(data, offset, epoch)
    assert not any(data)


def test_golden_batch_with_the_append_time(twin, golden):
    batch = bytearray(golden("batch_plain.hex"))
    twin.stamp_append_time(memoryview(batch), NOW_MS + 123_456)
    assert batch == golden("batch_append_time.hex")
    header = twin.verify_batch(batch)
    assert header.attributes == layout.ATTRIBUTE_LOG_APPEND_TIME
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (NOW_MS, NOW_MS + 123_456)
    assert twin.batch_info(batch).max_timestamp_ms == NOW_MS + 123_456


def test_each_record_of_a_batch_with_the_append_time_has_it(twin, golden):
    plain, stamped = golden("batch_plain.hex"), golden("batch_append_time.hex")
    records = twin.decode_records(twin.batch_header(stamped), stamped[61:])
    assert [record.timestamp_ms for record in records] == [NOW_MS + 123_456] * 3
    assert [record._replace(timestamp_ms=0) for record in records] == [
        record._replace(timestamp_ms=0)
        for record in twin.decode_records(twin.batch_header(plain), plain[61:])]


@pytest.mark.parametrize("length", [100, (1 << 20) + 100])
def test_an_append_time_may_be_replaced_and_keeps_codec_and_transaction(length):
    builder = _core.BatchBuilder(1 << 21)
    builder.append(NOW_MS, None, bytes(length))
    attributes = layout.ATTRIBUTE_TRANSACTIONAL | layout.CODEC_ZSTD
    batch = changed(builder.build(), ">h", layout.BATCH_ATTRIBUTES_AT, attributes)
    before = bytes(batch)
    for time_ms in (0, (1 << 63) - 1, 5):
        _core.stamp_append_time(batch, time_ms)
        header = _core.verify_batch(batch)
        assert header.attributes == attributes | layout.ATTRIBUTE_LOG_APPEND_TIME
        assert header.max_timestamp_ms == time_ms
    changed_at = {at for at in range(layout.BATCH_HEADER_BYTES) if batch[at] != before[at]}
    assert changed_at <= {*range(layout.BATCH_CRC_AT, layout.BATCH_CRC_AT + 4),
                          *range(layout.BATCH_ATTRIBUTES_AT, layout.BATCH_ATTRIBUTES_AT + 2),
                          *range(layout.BATCH_MAX_TIMESTAMP_AT, layout.BATCH_MAX_TIMESTAMP_AT + 8)}
    assert batch[layout.BATCH_HEADER_BYTES:] == before[layout.BATCH_HEADER_BYTES:]


def test_the_append_time_is_not_written_into_anything_else(twin):
    whole = build(twin)
    for data, time_ms, error, words in (
            (bytes(whole), 0, BufferError, "not writable"),
            (whole[:60], 0, CorruptBatch, "less than a batch header"),
            (whole[:-1], 0, CorruptBatch, "buffer has 80"),
            (whole + b"x", 0, CorruptBatch, "buffer has 82"),
            (changed(whole, ">b", layout.BATCH_MAGIC_AT, 1), 0, CorruptBatch, "magic 1"),
            (bytearray(whole), -1, ValueError, "timestamp_ms"),
            (bytearray(whole), 1 << 63, ValueError, "timestamp_ms")):
        before = bytes(data)
        with pytest.raises(error, match=words):
            twin.stamp_append_time(data, time_ms)
        assert data == before


def test_a_batch_with_the_append_time_is_read_and_not_taken_from_a_producer(twin, golden):
    batch = golden("batch_append_time.hex")
    assert [bytes(part) for part in twin.split_batches(batch * 2)] == [batch] * 2
    with pytest.raises(InvalidBatch, match="0x0008.*LogAppendTime"):
        twin.check_batch(batch)


def test_split_batches_cuts_views_without_copying(twin):
    batches = [build(twin, bytes([number])) for number in range(3)]
    payload = bytearray(b"".join(batches))
    views = twin.split_batches(memoryview(payload))
    assert views == batches
    payload[-1] ^= 1
    assert views[2] != batches[2]
    assert twin.split_batches(b"") == []


def test_split_batches_refuses_a_cut_payload(twin):
    payload = build(twin) + build(twin)
    with pytest.raises(CorruptBatch, match="buffer has 80"):
        twin.split_batches(payload[:-1])
    with pytest.raises(CorruptBatch, match="less than a batch header"):
        twin.split_batches(payload + b"\0" * 60)


def test_decode_places_records_after_the_base_offset(twin):
    batch = build(twin, b"a", b"b")
    twin.stamp_batch(batch, 1000, 1)
    records = twin.decode_records(twin.verify_batch(batch), memoryview(batch)[61:])
    assert [record.offset for record in records] == [1000, 1001]


def test_decode_accepts_the_holes_of_compaction_but_no_disorder(twin):
    header = twin.batch_header(with_block(b"", 2))._replace(last_offset_delta=9)
    first, third = bytearray(RECORD), bytearray(RECORD)
    first[3], third[3] = 1 << 1, 9 << 1
    records = twin.decode_records(header, first + third)
    assert [record.offset for record in records] == [1, 9]
    with pytest.raises(CorruptBatch, match="offset delta 1 is not above 9"):
        twin.decode_records(header, third + first)
    with pytest.raises(CorruptBatch, match="offset delta 1 is not above 1"):
        twin.decode_records(header, first + first)
    with pytest.raises(CorruptBatch, match="at most 8"):
        twin.decode_records(header._replace(last_offset_delta=8), first + third)


@pytest.mark.parametrize("fields", [
    {"count": -1}, {"count": (1 << 20) + 1}, {"base_offset": (1 << 63) - 1},
    {"base_timestamp_ms": (1 << 63) - 1}])
def test_decode_refuses_a_header_that_cannot_be(twin, fields):
    batch = build(twin, b"a", b"b")
    block = bytearray(batch[61:])
    block[2] = 2  # first record: timestamp delta 1
    with pytest.raises(CorruptBatch):
        twin.decode_records(twin.batch_header(batch)._replace(**fields), block)


def test_the_batches_of_transactions_are_found_by_their_producers(twin):
    plain, staged, other = (bytearray(build(twin)) for _ in range(3))
    twin.stamp_producer(staged, layout.STAGED_PRODUCER_MIN, 0, 0)
    twin.stamp_producer(other, layout.STAGED_PRODUCER_MAX, 0, 0)
    last = bytearray(build(twin))
    twin.stamp_producer(last, layout.STAGED_PRODUCER_MAX + 1, 0, 0)
    assert twin.staged_batches([bytes(plain + staged), b"", bytes(other), bytes(last)]) == [
        (0, len(plain)), (2, 0)]
    assert twin.staged_batches([]) == []
    with pytest.raises(CorruptBatch, match="buffer has"):
        twin.staged_batches([bytes(plain), bytes(staged[:-1])])


@pytest.mark.parametrize("offset, time_ms, found", [
    (100, 0, (100, 10)), (100, 11, (101, 30)), (100, 30, (101, 30)), (102, 11, (102, 20)),
    (102, 25, (103, 30)), (100, 31, (101, 30)), (102, 31, (103, 30)), (104, 0, (-1, -1)),
    (0, 15, (101, 30)), (1 << 62, 0, (-1, -1)), (-5, 0, (100, 10))])
def test_a_record_is_found_by_its_time(twin, offset, time_ms, found):
    builder = twin.BatchBuilder(1 << 16)
    for each in (10, 30, 20, 30):
        assert builder.append(each, b"k", b"v", [("h", b"x")])
    batch = bytearray(builder.build())
    twin.stamp_batch(batch, 100, 1)
    header, block = twin.batch_header(batch), memoryview(batch)[layout.BATCH_HEADER_BYTES:]
    assert twin.find_record(header, block, offset, time_ms) == found
    with pytest.raises(CorruptBatch):
        twin.find_record(header, block[:-1], offset, time_ms)


def test_all_records_of_a_batch_have_its_append_time(twin, golden):
    batch = golden("batch_append_time.hex")
    header, block = twin.batch_header(batch), memoryview(batch)[layout.BATCH_HEADER_BYTES:]
    first = header.base_offset, header.max_timestamp_ms
    assert twin.find_record(header, block, 0, header.max_timestamp_ms) == first


@pytest.mark.parametrize("keys, most, found", [
    ((b"a", b"b"), 5, (0, ())), ((b"", b"a"), 5, (0, ())), ((None,), 5, (1, (0,))),
    ((b"a", None, b"", None, None), 5, (3, (1, 3, 4))), ((b"a", None, None), 1, (2, (1,))),
    ((None, None), 0, (2, ()))])
def test_records_without_a_key_are_found_and_an_empty_key_is_one(twin, keys, most, found):
    builder = twin.BatchBuilder(1 << 16)
    for each in keys:
        assert builder.append(NOW_MS, each, b"v", [("h", None)])
    batch = builder.build()
    assert twin.keyless_records(twin.verify_batch(batch), batch[61:], most) == found


@pytest.mark.parametrize("block, error, text", [
    (RECORD[:-1], CorruptBatch, "does not fit"), (b"", CorruptBatch, "reaches past its end"),
    (RECORD + b"x", CorruptBatch, "1 bytes after the last record"),
    (RECORD[:3] + b"\2" + RECORD[4:], InvalidBatch, "offset delta 1, expected 0")])
def test_keys_of_records_that_cannot_be_read_are_an_error(twin, block, error, text):
    header = twin.batch_header(with_block(RECORD))
    with pytest.raises(error, match=text):
        twin.keyless_records(header, block, 5)


@pytest.mark.parametrize("fields, most, error", [
    ({"count": -1}, 1, CorruptBatch), ({"count": (1 << 20) + 1}, 1, CorruptBatch),
    ({}, -1, ValueError), ({}, (1 << 20) + 1, ValueError)])
def test_numbers_out_of_range_are_refused_before_keys_are_looked_for(twin, fields, most, error):
    header = twin.batch_header(with_block(RECORD))
    with pytest.raises(error):
        twin.keyless_records(header._replace(**fields), RECORD, most)
