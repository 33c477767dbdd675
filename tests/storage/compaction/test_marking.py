"""Marks of compaction by key: the records that survive are those of the definition."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multiraft import core
from multiraft.codec import layout
from multiraft.compression import compress, decompress
from multiraft.storage.compaction import marking as marking_module
from multiraft.storage.compaction.marking import Marking, Order
from multiraft.storage.compaction.partition_batches import PlacedBatch
from multiraft.storage.compaction.surviving_batches import rewritten
from multiraft.types import Entry, EntryKind

HEAD = layout.BATCH_HEADER_BYTES
AMPLE = 8 << 20
PLAIN, GZIP, STAGED, BROKEN = "plain", "gzip", "staged", "broken"


class Files(NamedTuple):
    group: int = 3
    partition: int = 7


class Log:
    """Batches of a partition in memory, read as those of files are."""

    files = Files()

    def __init__(self, payloads, up_to, numbers=None):
        self.bytes = 0
        self.up_to = up_to
        self.payloads = payloads
        self.numbers = numbers or [10 + 2 * at for at in range(len(payloads))]

    def first_end(self, begin, count):
        bases = [core.batch_header(each).base_offset for each in self.payloads]
        later = [base for base in bases if base > begin]
        return min(self.up_to, later[count - 1] if len(later) >= count else self.up_to)

    def oldest_first(self):
        for index, payload in zip(self.numbers, self.payloads, strict=True):
            header = core.batch_header(payload)
            end = end_of(payload)
            if end <= self.up_to:
                self.bytes += len(payload)
                yield PlacedBatch(header.base_offset, end, index, 0, len(payload)), payload

    def start_of(self, position):
        return position

    def newest_first(self):
        yield from reversed([*self.oldest_first()])


def batch_of(kind, records, base_offset):
    """Return a batch of (key, value) records of one kind."""
    builder = core.BatchBuilder(1 << 20)
    for at, (key, value) in enumerate(records):
        builder.append(1000 + at, key, value, [])
    data = bytearray(builder.build())
    if kind == GZIP:
        block = compress(layout.CODEC_GZIP, bytes(data[HEAD:]))
        data[HEAD:] = block
        data[layout.BATCH_ATTRIBUTES_AT + 1] |= layout.CODEC_GZIP
        data[layout.BATCH_LENGTH_AT:layout.BATCH_LENGTH_AT + 4] = (
            len(data) - layout.BATCH_LENGTH_OVERHEAD).to_bytes(4, "big")
    elif kind == STAGED:
        data[layout.BATCH_ATTRIBUTES_AT + 1] |= layout.ATTRIBUTE_TRANSACTIONAL
    elif kind == BROKEN:
        data[-1] ^= 0x7F
        data.append(1)
        data[layout.BATCH_LENGTH_AT:layout.BATCH_LENGTH_AT + 4] = (
            len(data) - layout.BATCH_LENGTH_OVERHEAD).to_bytes(4, "big")
    core.stamp_producer(data, -1, -1, -1)  # the CRC of what it is now
    core.stamp_batch(data, base_offset, 1)
    return data


def log_of(batches):
    """Return the payloads of (kind, records, offsets left out before it)."""
    payloads, offset = [], 0
    for kind, records, gap in batches:
        payloads.append(batch_of(kind, records, offset + gap))
        offset += gap + len(records)
    return payloads, offset


def decoded(payload):
    header = core.batch_header(payload)
    return core.decode_records(header, decompress(
        header.attributes & layout.ATTRIBUTE_CODEC_MASK, memoryview(payload)[HEAD:]))


def end_of(payload):
    header = core.batch_header(payload)
    return header.base_offset + header.last_offset_delta + 1


def kinds_of(payloads):
    found = []
    for payload in payloads:
        attributes = core.batch_header(payload).attributes
        try:
            decoded(payload)
        except marking_module.CorruptBatch:
            found.append(BROKEN)
        else:
            found.append(STAGED if attributes & layout.ATTRIBUTE_TRANSACTIONAL else
                         GZIP if attributes & layout.ATTRIBUTE_CODEC_MASK else PLAIN)
    return found


def survivors(payloads, order):
    """Return the payloads that the definition leaves, found in one walk along the offsets."""
    kinds, newest = kinds_of(payloads), {}
    below = [(at, payload) for at, payload in enumerate(payloads)
             if end_of(payload) <= order.up_to]
    for at, payload in below:
        if kinds[at] in (PLAIN, GZIP):
            newest.update({record.key: record.offset for record in decoded(payload)})
    older, all_stay, found = set(), False, []  # keys with an older record that stays
    for at, payload in enumerate(payloads):
        if (at, payload) not in below or kinds[at] in (STAGED, BROKEN):
            found.append(payload)
            all_stay |= kinds[at] == BROKEN and (at, payload) in below
            if kinds[at] == STAGED and (at, payload) in below:
                older |= {record.key for record in decoded(payload)}
            continue
        records, marks = decoded(payload), bytearray(64)
        superseded = set()
        for turn, record in enumerate(records):
            if record.key is None:
                continue
            if newest[record.key] != record.offset:
                superseded.add(record.key)
            elif not (record.value is None and record.offset < order.tombstones_below
                      and not all_stay and record.key not in older):
                continue
            marks[turn >> 2] |= 1 << (turn & 3) * 2
        block = decompress(core.batch_header(payload).attributes & layout.ATTRIBUTE_CODEC_MASK,
                           memoryview(payload)[HEAD:])
        count, size = core.surviving_records(core.batch_header(payload), block, marks, 0)
        if not count:
            continue
        if kinds[at] == GZIP and count < len(records) and HEAD + size > len(payload):
            found.append(payload)
            older |= superseded
        else:
            found.append(rewritten(payload, marks, 0, decompress))
    return found


def carried_out(payloads, order, memory_bytes=AMPLE, seed=0, parts=None):
    """Return the payloads after a compaction, in as many markings as memory needs."""
    begin, numbers = 0, [10 + 2 * at for at in range(len(payloads))]
    for turn in range(len(payloads) + 2):
        marking = Marking(Log(payloads, order.up_to, numbers), order, memory_bytes, decompress,
                          seed, begin)
        while not marking.is_done:
            marking.step()
        left = []
        for index, payload in zip(numbers, payloads, strict=True):
            entry = marking.result.compacted(Entry(EntryKind.DATA, 3, 1, 1, index, 7,
                                                   payload=payload))
            assert (entry is None) == marking.result.is_dropped(index)
            assert marking.result.is_changed(index) == (entry is None or entry.payload != payload)
            if entry is not None:
                left.append((index, entry.payload))
        numbers, payloads = [each[0] for each in left], [each[1] for each in left]
        if not marking.is_partial:
            if parts is not None:
                parts.append(turn + 1)
            return payloads
        assert marking.result.end_offset > begin
        begin = marking.result.end_offset
    raise AssertionError("no end")


keys = st.one_of(st.none(), st.integers(0, 4).map(lambda number: b"k%d" % number))
record_values = st.one_of(st.none(), st.sampled_from([b"", b"v", b"x" * 40, bytes(range(90))]))
some_batches = st.lists(st.tuples(
    st.sampled_from([PLAIN, PLAIN, GZIP, GZIP, STAGED, BROKEN]),
    st.lists(st.tuples(keys, record_values), min_size=1, max_size=6), st.integers(0, 2)),
    min_size=1, max_size=9)
bounded = settings(max_examples=300, deadline=None, derandomize=True)


@bounded
@given(some_batches, st.integers(0, 60), st.integers(0, 60), st.integers(0, 1 << 40))
def test_what_survives_is_what_the_definition_says(batches, up_to, tombstones_below, seed):
    payloads, end = log_of(batches)
    order = Order(1, min(up_to, end), min(tombstones_below, up_to, end))
    assert carried_out(payloads, order, seed=seed) == survivors(payloads, order)


@bounded
@given(some_batches, st.lists(st.integers(0, 60), min_size=4, max_size=4))
def test_a_compaction_may_be_skipped(batches, numbers):
    payloads, end = log_of(batches)
    up_to, later = sorted(min(each, end) for each in numbers[:2])
    below, below_later = sorted(min(each, end) for each in numbers[2:])
    first = Order(1, up_to, min(below, up_to))
    second = Order(2, later, min(below_later, later))
    assert carried_out(carried_out(payloads, first), second) == carried_out(payloads, second)


@settings(bounded, max_examples=60)
@given(some_batches, st.integers(0, 60), st.integers(0, 60))
def test_memory_changes_nothing(batches, up_to, tombstones_below):
    payloads, end = log_of(batches)
    order = Order(1, min(up_to, end), min(tombstones_below, up_to, end))
    scarce = 4 * marking_module.BATCH_BYTES * 2 * marking_module.MARKS_SHARE + (6 << 10)
    parts = []
    assert carried_out(payloads, order, scarce, parts=parts) == carried_out(payloads, order)


def test_little_memory_takes_several_markings_and_passes():
    payloads, end = log_of([(PLAIN, [(b"%d" % (number % 700), b"v") for number in
                                     range(at, at + 20)], 0) for at in range(0, 2000, 20)])
    order, parts = Order(1, end, 0), []
    left = carried_out(payloads, order, 7 << 10, parts=parts)
    assert left == survivors(payloads, order)
    assert parts[0] >= 3
    assert sorted(record.offset for payload in left for record in decoded(payload)) == [
        *range(1300, 2000)]


def test_a_tombstone_stays_while_an_older_record_is_kept_whole():
    noise = [(b"n%d" % at, bytes(40)) for at in range(60)]
    payloads, end = log_of([(GZIP, [(b"k", b"old"), *noise], 0), (PLAIN, [(b"k", None)], 0)])
    assert carried_out(payloads, Order(1, end, end)) == payloads
    without, end = log_of([(PLAIN, [(b"k", b"old"), *noise], 0), (PLAIN, [(b"k", None)], 0)])
    left = carried_out(without, Order(1, end, end))
    assert [record.key for payload in left for record in decoded(payload)] == [
        key for key, _ in noise]


def test_a_chain_of_batches_that_are_kept_whole_is_found():
    """A tombstone that stays makes its batch too large, which keeps an older record of the next."""
    wide = [(b"w%d" % at, bytes(60)) for at in range(9)]
    batches = [(GZIP, [(b"k0", b"old"), *wide], 0)]
    for at in range(6):
        batches.append((GZIP, [(b"k%d" % at, None), (b"k%d" % (at + 1), b"old"),
                               *[(b"%d.%d" % (at, key), bytes(60)) for key in range(9)]], 0))
    batches.append((PLAIN, [(b"k6", None)], 0))
    payloads, end = log_of(batches)
    order = Order(1, end, end)
    assert carried_out(payloads, order) == survivors(payloads, order) == payloads


def test_behind_the_last_round_all_tombstones_stay(monkeypatch):
    noise = [(b"n%d" % at, bytes(40)) for at in range(60)]
    payloads, end = log_of([(GZIP, [(b"k", b"old"), *noise], 0),
                            (PLAIN, [(b"k", None)], 0), (PLAIN, [(b"other", None)], 0)])
    order = Order(1, end, end)
    assert carried_out(payloads, order) == payloads[:2]
    monkeypatch.setattr(marking_module, "ROUNDS_MAX", 1)
    assert carried_out(payloads, order) == payloads


def test_a_batch_that_changed_since_is_an_error():
    payloads, end = log_of([(PLAIN, [(b"k", b"1"), (b"o", b"2")], 0), (PLAIN, [(b"k", b"3")], 0)])
    marking = Marking(Log(payloads, end), Order(4, end, 0), AMPLE, decompress)
    while not marking.is_done:
        marking.step()
    assert marking.result.generation == 4 and marking.result.dropped == []
    other = batch_of(PLAIN, [(b"k", b"1")], 0)
    with pytest.raises(marking_module.CorruptBatch, match="no record survives"):
        marking.result.compacted(Entry(EntryKind.DATA, 3, 1, 1, 10, 7, payload=other))
