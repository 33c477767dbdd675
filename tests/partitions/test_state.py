"""Tail and applied state against a rebuild from the log, and idempotence sentence by sentence."""

from __future__ import annotations

import cbor2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multiraft.errors import (
    CodecError,
    CorruptEntry,
    OutOfOrderSequence,
    PartitionSealed,
    ProducerFenced,
    UnknownPartition,
)
from multiraft.partitions import state as tail_module
from multiraft.partitions.partition_state import NO_DETAILS, GroupState
from multiraft.partitions.producer_state import (
    BATCHES_PER_WINDOW,
    export_windows,
    extended,
    unexpired,
    window_batches,
)
from multiraft.partitions.records import (
    OPEN_STRUCT,
    SEAL_STRUCT,
    PartitionOpen,
    open_payload,
    parse_open,
    parse_seal,
    seal_payload,
)
from multiraft.partitions.retention_records import (
    UNKNOWN_BYTES,
    Compaction,
    LogStart,
    clock_payload,
    compact_payload,
    delete_payload,
    expire_payload,
    log_starts_payload,
)
from multiraft.partitions.state import PRODUCERS_PER_PARTITION_MAX, PartitionStates
from multiraft.types import BatchInfo, Entry, EntryKind

P = 7  # a partition incarnation


def info(count=1, producer=-1, epoch=0, sequence=0):
    if producer < 0:
        epoch = sequence = -1
    return BatchInfo(count, producer, epoch, sequence, 0, 0)


def entry(tail, kind, partition=0, base_offset=-1, payload=b"", batch=None):
    index = tail.last_index + 1
    return Entry(kind, tail.group, 1, 1, index, partition, base_offset, payload, batch)


def put(tail, batch, partition=P):
    """Admit and append a batch like a leader; return the batch's Admitted."""
    admitted = tail.validate_append(partition, batch)
    if not admitted.duplicate:
        data = entry(tail, EntryKind.DATA, partition, admitted.base_offset, b"", batch)
        assert tail.check_entry(data) == ""
        tail.append(data)
    return admitted


def put_at(tail, count, producer, sequence):
    """A batch at a sequence that no leader would admit first: as if many had gone before it."""
    batch = info(count, producer, sequence=sequence)
    tail.append(entry(tail, EntryKind.DATA, P, tail.next_offset(P), b"", batch))


def control(tail, kind, partition=P, base_offset=-1, payload=b""):
    made = entry(tail, kind, partition, base_offset, payload)
    assert tail.check_entry(made) == ""
    tail.append(made)


def seal(tail, partition=P, base_offset=-1):
    payload = seal_payload(tail.tail_state(partition).epoch)
    control(tail, EntryKind.PARTITION_SEAL, partition, base_offset, payload)


def opened(epoch=1, start=0, base=0):
    tail = PartitionStates(group=3)
    control(tail, EntryKind.PARTITION_OPEN, payload=open_payload(epoch, start, base))
    return tail


# ---- offsets ------------------------------------------------------------------------------------


def test_offsets_are_dense_and_count_records():
    tail = opened()
    assert [put(tail, info(count)).base_offset for count in (3, 1, 5)] == [0, 3, 4]
    assert tail.next_offset(P) == 9


def test_high_watermark_follows_apply_and_not_append():
    tail = opened()
    put(tail, info(3))
    put(tail, info(2))
    assert tail.applied(P) is None
    tail.apply(1)
    assert tail.applied(P).next_offset == 0
    tail.apply(2)
    assert (tail.applied(P).next_offset, tail.next_offset(P)) == (3, 5)


def test_a_partition_is_not_known_until_its_opening_is_applied():
    tail = PartitionStates(3)
    assert tail.applied(P) is None
    control(tail, EntryKind.PARTITION_OPEN, payload=open_payload(1))
    put(tail, info(4))
    assert tail.applied(P) is None and tail.epoch_of(P) == 1
    tail.apply(2)
    assert tail.applied(P)[:6] == (1, 0, 4, 0, False, 0)
    seal(tail)
    tail.apply(3)
    assert tail.applied(P).sealed
    assert tail.applied(99) is None and tail.epoch_of(99) == 0


def test_entries_without_partition_take_an_index_and_nothing_else():
    tail = opened()
    for kind in (EntryKind.NOOP, EntryKind.MEMBERSHIP, EntryKind.METADATA):
        control(tail, kind, partition=0)
    assert (tail.last_index, tail.next_offset(P)) == (4, 0)
    tail.apply(4)
    tail._check()


def test_a_batch_for_an_unopened_partition_is_refused():
    with pytest.raises(UnknownPartition, match="partition 9 is not open in group 3"):
        opened().validate_append(9, info())


# ---- verify -------------------------------------------------------------------------------------


def bad_entries(tail):
    batch = info(2)
    data = EntryKind.DATA
    yield "base offset 1 of partition 7, expected 0", entry(tail, data, P, 1, b"", batch)
    yield "which is not open", entry(tail, data, 8, 0, b"", batch)
    yield "without a batch", entry(tail, data, P, 0)
    yield "no place in a group's log", entry(tail, EntryKind.HARD_STATE)
    yield "no place in a group's log", entry(tail, 0)
    yield "a PARTITION_OPEN payload has", entry(tail, EntryKind.PARTITION_OPEN, 9, payload=b"x")
    yield "is at epoch 2, opened at 1", entry(tail, EntryKind.PARTITION_OPEN, P,
                                               payload=open_payload(1))
    yield "no partition incarnation", entry(tail, EntryKind.PARTITION_OPEN, 0,
                                            payload=open_payload(1))
    yield "its end is 0", entry(tail, EntryKind.LOG_START, P, 1)
    yield "its end is 0", entry(tail, EntryKind.PARTITION_SEAL, P, 5, seal_payload(2))
    yield "at epoch 2, sealed at 1", entry(tail, EntryKind.PARTITION_SEAL, P, -1, seal_payload(1))
    yield "at epoch 2, sealed at 3", entry(tail, EntryKind.PARTITION_SEAL, P, -1, seal_payload(3))
    yield "a PARTITION_SEAL payload has", entry(tail, EntryKind.PARTITION_SEAL, P)
    yield "which is not open", entry(tail, EntryKind.PARTITION_SEAL, 8, -1, seal_payload(1))
    late = entry(tail, EntryKind.NOOP)
    late.index += 1
    yield "does not follow", late


def test_a_follower_says_why_an_entry_contradicts_its_tail():
    tail = opened(epoch=2)
    for expected, made in bad_entries(tail):
        assert expected in tail.check_entry(made)
    assert tail.last_index == 1


def test_an_opening_behind_the_end_is_refused_and_one_at_the_end_continues():
    tail = opened(epoch=1)
    put(tail, info(4))
    seal(tail)
    behind = entry(tail, EntryKind.PARTITION_OPEN, P, payload=open_payload(2, 3))
    assert "ends at 4, opened at 3" in tail.check_entry(behind)
    control(tail, EntryKind.PARTITION_OPEN, payload=open_payload(3, 9, 40))
    assert put(tail, info()) == (9, 40, False, 0)
    tail.apply(tail.last_index)
    assert tail.applied(P).log_start == 0


def test_the_limit_of_partitions_is_stated(monkeypatch):
    monkeypatch.setattr(tail_module, "PARTITIONS_PER_GROUP_MAX", 1)
    tail = opened()
    more = entry(tail, EntryKind.PARTITION_OPEN, 8, payload=open_payload(1))
    assert "limit of 1" in tail.check_entry(more)


# ---- open, seal, log start ----------------------------------------------------------------------


def test_open_payload_is_packed_little_endian_and_comes_back():
    payload = open_payload(5, 1000, 7)
    assert payload.hex() == "01000000" "07000000" "0500000000000000" "e803000000000000"
    assert parse_open(memoryview(payload)) == PartitionOpen(5, 1000, 7)


@pytest.mark.parametrize("payload", [b"", b"\0" * 23, OPEN_STRUCT.pack(2, 0, 1, 0),
                                     OPEN_STRUCT.pack(1, 0, 1, 0) + bytes(8),
                                     OPEN_STRUCT.pack(3, 0, 1, 0) + bytes(8),
                                     OPEN_STRUCT.pack(2, 0, 1, 4) + b"\5" + bytes(7),
                                     OPEN_STRUCT.pack(2, 0, 1, 4) + b"\xff" * 8,
                                     OPEN_STRUCT.pack(1, 0, 1, -1),
                                     OPEN_STRUCT.pack(1, 1 << 31, 1, 0)])
def test_a_foreign_open_payload_is_refused(payload):
    with pytest.raises(CorruptEntry):
        parse_open(payload)


@pytest.mark.parametrize("payload", [b"", SEAL_STRUCT.pack(2, 1), SEAL_STRUCT.pack(1, 1) + b"x"])
def test_a_foreign_seal_payload_is_refused(payload):
    with pytest.raises(CorruptEntry):
        parse_seal(payload)


def test_opening_is_idempotent_per_epoch_even_after_the_seal():
    tail = opened(epoch=1)
    put(tail, info(2))
    control(tail, EntryKind.PARTITION_OPEN, payload=open_payload(1))
    assert tail.next_offset(P) == 2
    seal(tail)
    control(tail, EntryKind.PARTITION_OPEN, payload=open_payload(1))
    assert not tail.is_open(P)


def test_a_sealed_partition_takes_no_data_but_still_answers_retries():
    tail = opened()
    first = info(2, producer=5)
    put(tail, first)
    seal(tail, base_offset=2)
    with pytest.raises(PartitionSealed, match="offset 2"):
        tail.validate_append(P, info(2, producer=5, sequence=2))
    assert tail.validate_append(P, first) == (0, 0, True, 2)
    data = entry(tail, EntryKind.DATA, P, 2, b"", info())
    assert "is sealed at 2" in tail.check_entry(data)


def test_a_new_epoch_in_the_same_group_forgets_the_windows_and_truncate_restores_them():
    tail = opened()
    put(tail, info(1, producer=5))
    seal(tail)
    before = tail.windows(P), tail._windows[P]
    control(tail, EntryKind.PARTITION_OPEN, payload=open_payload(2, 1))
    put(tail, info(1, producer=5))
    tail.truncate(4)
    assert tail._windows[P] == before[1]
    assert not tail.is_open(P)
    tail._check()


def test_log_start_never_moves_back():
    tail = opened()
    put(tail, info(9))
    for start in (4, 2):
        control(tail, EntryKind.LOG_START, base_offset=start)
    tail.apply(tail.last_index)
    assert tail.applied(P).log_start == 4


# ---- idempotence --------------------------------------------------------------------------------


def test_a_retry_of_each_of_the_last_five_batches_gets_its_offset_and_index_before_any_commit():
    tail = opened()
    batches = [info(2, producer=5, sequence=2 * n) for n in range(6)]
    for batch in batches:
        put(tail, batch)
    for n, batch in enumerate(batches[1:], start=1):
        assert tail.validate_append(P, batch) == (2 * n, 0, True, n + 2)
    with pytest.raises(OutOfOrderSequence):
        tail.validate_append(P, batches[0])


def test_a_gap_in_sequences_is_refused_with_the_expected_one():
    tail = opened()
    put(tail, info(3, producer=5))
    with pytest.raises(OutOfOrderSequence, match="sent sequence 4 .* expected 3"):
        tail.validate_append(P, info(1, producer=5, sequence=4))


def test_a_retry_with_another_count_is_no_retry():
    tail = opened()
    put(tail, info(3, producer=5))
    with pytest.raises(OutOfOrderSequence):
        tail.validate_append(P, info(2, producer=5, sequence=0))


def test_several_batches_in_flight_are_judged_by_the_tail_and_undone_with_it():
    tail = opened()
    for sequence in range(3):
        put(tail, info(1, producer=5, sequence=sequence))
    tail.truncate(3)  # the second and third are gone
    with pytest.raises(OutOfOrderSequence):
        tail.validate_append(P, info(1, producer=5, sequence=2))
    assert put(tail, info(1, producer=5, sequence=1)) == (1, 0, False, 0)


def test_sequences_wrap_inside_a_batch_and_between_batches():
    tail = opened()
    last = 2**31 - 1
    put_at(tail, 2, producer=5, sequence=last)  # last, 0
    assert put(tail, info(1, producer=5, sequence=1)).base_offset == 2
    assert tail.validate_append(P, info(2, producer=5, sequence=last)).duplicate
    tail = opened()
    put_at(tail, 1, producer=5, sequence=last)
    assert put(tail, info(1, producer=5, sequence=0)) == (1, 0, False, 0)


def test_a_new_producer_epoch_starts_at_zero_and_fences_the_old_one():
    tail = opened()
    put(tail, info(3, producer=5, epoch=0))
    with pytest.raises(OutOfOrderSequence, match="epoch 1 .* not 0"):
        tail.validate_append(P, info(1, producer=5, epoch=1, sequence=3))
    put(tail, info(1, producer=5, epoch=1))
    with pytest.raises(ProducerFenced, match="epoch 0 was fenced by epoch 1"):
        tail.validate_append(P, info(3, producer=5, epoch=0))


def test_an_unknown_producer_starts_at_zero():
    tail = opened()
    with pytest.raises(OutOfOrderSequence, match="unknown .* sequence 1, not 0"):
        tail.validate_append(P, info(1, producer=5, sequence=1))
    assert put(tail, info(1, producer=5)) == (0, 0, False, 0)


def test_producers_and_partitions_do_not_see_each_other():
    tail = opened()
    control(tail, EntryKind.PARTITION_OPEN, partition=8, payload=open_payload(1))
    put(tail, info(1, producer=5))
    assert put(tail, info(1, producer=6)) == (1, 0, False, 0)
    assert put(tail, info(1, producer=5), partition=8) == (0, 0, False, 0)


def test_the_least_recently_used_producer_is_forgotten_and_comes_back_with_truncate():
    tail = opened()
    for producer in range(PRODUCERS_PER_PARTITION_MAX):
        put(tail, info(1, producer=producer))
    put(tail, info(1, producer=0, sequence=1))  # now 1 is the oldest
    first_gone = tail.last_index + 1
    put(tail, info(1, producer=99_999))
    assert 1 not in tail._windows[P] and 0 in tail._windows[P]
    with pytest.raises(OutOfOrderSequence, match="producer 1 is unknown"):
        tail.validate_append(P, info(1, producer=1, sequence=1))
    assert put(tail, info(1, producer=1, epoch=1)) == (1026, 0, False, 0)
    tail.truncate(first_gone)
    assert list(tail._windows[P]) == [*range(1, PRODUCERS_PER_PARTITION_MAX), 0]
    tail._check()


# ---- the model ----------------------------------------------------------------------------------

PARTITIONS = (1, 2, 3)


def view(tail):
    """Everything a leader decides by, the order of use included; producers that have expired are in
    memory or not."""
    known = {partition: list(unexpired(windows, tail.group_state.expired_below).items())
             for partition, windows in tail._windows.items()}
    return (tail.last_index, tail.group_state, tail._states,
            {partition: windows for partition, windows in known.items() if windows})


def rebuild(log, length):
    tail = PartitionStates(3)
    for made in log[:length]:
        tail.append(made)
    return tail


@st.composite
def some_carried(draw, end):
    """Return windows that another group may carry for a partition that ended there, with base
    offsets that differ."""
    offsets = draw(st.lists(st.integers(0, max(0, end - 1)), unique=True, max_size=min(end, 4)))
    windows = {}
    for producer, offset in zip(draw(st.permutations(range(5))), sorted(offsets), strict=False):
        windows[producer] = extended(None, info(1, producer), offset, 1)
    return export_windows(dict(list(windows.items())[:3]))


@st.composite
def some_rows(draw, tail):
    """Return the payload of a LOG_START of version 2 for some partitions."""
    rows = [LogStart(partition, draw(st.integers(0, 6)), draw(st.integers(UNKNOWN_BYTES, 9)))
            for partition in draw(st.lists(st.sampled_from(PARTITIONS), min_size=1, unique=True))]
    return log_starts_payload(rows)


def some_compaction(_tail):
    offsets = st.tuples(st.integers(1, 3), st.integers(0, 5), st.integers(0, 5))
    return offsets.filter(lambda each: each[1] >= each[2]).map(
        lambda each: compact_payload(Compaction(*each)))


#: Kind of an entry that decides retention -> strategy of its payload behind a tail.
RETENTION = {
    EntryKind.LOG_START: some_rows,
    EntryKind.CLOCK: lambda tail: st.integers(0, 9).map(
        lambda now: clock_payload(tail.group_state.clock_ms, now)),
    EntryKind.PARTITION_DELETE: lambda tail: st.tuples(
        st.integers(0, 9), st.lists(st.sampled_from((*PARTITIONS, 4)), min_size=1, unique=True)
    ).map(lambda drawn: delete_payload(*drawn)),
    EntryKind.COMPACT: some_compaction,
    EntryKind.PRODUCERS_EXPIRE: lambda tail: st.integers(0, tail.last_index + 1).map(
        expire_payload),
}


@st.composite
def candidate(draw, tail):
    """An entry that a leader with this tail might append; None = refused."""
    partition = draw(st.sampled_from(PARTITIONS))
    kind = draw(st.sampled_from([EntryKind.DATA] * 6 + [
        EntryKind.PARTITION_OPEN, EntryKind.PARTITION_OPEN, EntryKind.PARTITION_SEAL,
        EntryKind.LOG_START, EntryKind.NOOP, *RETENTION]))
    if kind in RETENTION and (kind != EntryKind.LOG_START or draw(st.booleans())):
        made = entry(tail, kind, partition if kind == EntryKind.COMPACT else 0,
                     payload=draw(RETENTION[kind](tail)))
    elif kind == EntryKind.DATA:
        if not tail.is_open(partition):
            return None
        producer = draw(st.integers(-1, 4))
        known = tail._window(partition, producer)
        sequence, epoch = 0, 0
        if known is not None:
            epoch, batches = window_batches(known)
            sequence = (batches[-1].last_sequence + 1) % 2**31
            if draw(st.integers(0, 4)) == 0:
                epoch, sequence = epoch + 1, 0
        batch = info(draw(st.integers(1, 3)), producer, epoch, sequence)
        made = entry(tail, kind, partition, tail.next_offset(partition),
                     bytes(draw(st.integers(0, 3))), batch)
    elif kind == EntryKind.PARTITION_OPEN:
        end = tail.next_offset(partition) if partition in tail.partitions() else 0
        start = end + draw(st.integers(0, 1))
        payload = open_payload(draw(st.integers(1, 4)), start)
        if draw(st.booleans()):
            payload = open_payload(draw(st.integers(1, 4)), start, draw(st.integers(0, 9)),
                                   draw(st.integers(0, start)), draw(some_carried(start)))
        made = entry(tail, kind, partition, payload=payload)
    elif kind == EntryKind.PARTITION_SEAL:
        made = entry(tail, kind, partition, -1, seal_payload(draw(st.integers(1, 4))))
    else:
        made = entry(tail, kind, partition,
                     draw(st.integers(0, 6)) if kind == EntryKind.LOG_START else -1)
    made.term = 1 + tail.last_index // 4  # of a few elections
    return made if tail.check_entry(made) == "" else None


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_any_detour_ends_in_the_state_of_a_rebuild(data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tail_module, "PRODUCERS_PER_PARTITION_MAX", 3)
        tail, log, applied = PartitionStates(3), [], 0
        for _ in range(data.draw(st.integers(1, 60), label="steps")):
            step = data.draw(st.sampled_from("aaaaaatpf"), label="step")
            if step == "a":
                made = data.draw(candidate(tail))
                if made is not None:
                    tail.append(made)
                    log.append(made)
            elif step == "t":
                first_gone = data.draw(st.integers(applied + 1, len(log) + 1), label="first gone")
                tail.truncate(first_gone)
                del log[first_gone - 1:]
            elif step == "f":
                tail.forget_expired()
            else:
                applied = data.draw(st.integers(applied, len(log)), label="applied")
                tail.apply(applied)
            tail._check()
        assert_equals_rebuild(tail, log, applied)


def assert_equals_rebuild(tail, log, applied):
    assert view(tail) == view(rebuild(log, len(log)))
    served = rebuild(log, applied)
    served.apply(applied)
    for partition in PARTITIONS:
        if partition in served.partitions():
            assert tail.applied(partition) == served.tail_state(partition)
        else:
            assert tail.applied(partition) is None
        assert list(tail.windows(partition).items()) == list(served.windows(partition).items())
    assert tail.applied_group_state == served.group_state
    snapshot = tail.snapshot()
    assert snapshot == served.snapshot()
    restored = PartitionStates.restore(cbor2.loads(cbor2.dumps(snapshot)))
    assert (restored.last_index, restored.applied_index) == (applied, applied)
    for made in log[applied:]:
        assert restored.check_entry(made) == ""
        restored.append(made)
    assert view(restored) == view(tail)
    restored._check()


# ---- snapshots ----------------------------------------------------------------------------------


def test_a_window_keeps_five_batches():
    tail = opened()
    for sequence in range(9):
        put(tail, info(1, producer=5, sequence=sequence))
    tail.apply(tail.last_index)
    epoch, batches = window_batches(tail.windows(P)[5])
    assert (epoch, len(batches)) == (0, BATCHES_PER_WINDOW)
    assert batches[-1] == (8, 8, 8, 10)


def test_a_snapshot_of_version_1_is_read():
    tail = opened()
    put(tail, info(2, producer=5))
    tail.apply(tail.last_index)
    old = tail.snapshot()
    old["version"] = 1
    old["partitions"] = [[*row[:6], row[11]] for row in old["partitions"]]
    read = PartitionStates.restore(old)
    assert read.applied(P) == tail.applied(P)._replace(live_bytes=UNKNOWN_BYTES, details=NO_DETAILS)
    assert read.windows(P) == tail.windows(P)


@pytest.mark.parametrize("records", [0, 2])
def test_a_snapshot_of_version_2_is_read_and_live_bytes_are_unknown(records):
    tail = opened()
    if records:
        put(tail, info(records, producer=5))
    tail.apply(tail.last_index)
    old = {key: value for key, value in tail.snapshot().items()
           if key in ("group", "applied", "partitions")}
    old["version"] = 2
    old["partitions"] = [[*row[:8], row[11]] for row in old["partitions"]]
    read = PartitionStates.restore(old)
    assert read.applied(P).live_bytes == (UNKNOWN_BYTES if records else 0)
    assert read.applied(P)[:7] == tail.applied(P)[:7]
    assert read.group_state == GroupState()
    assert PartitionStates.restore(read.snapshot()).snapshot() == read.snapshot()


@pytest.mark.parametrize("damage", [
    lambda s: s.pop("partitions"), lambda s: s.update(version=4),
    lambda s: s.update(partitions=[[1, 2]]), lambda s: s.update(partitions=3),
    lambda s: s.pop("clock"), lambda s: s.update(opens_from=-1),
    lambda s: s["partitions"][0].__setitem__(8, -2),
    lambda s: s["partitions"][0].__setitem__(9, [1, 2]),
    lambda s: s["partitions"][0].__setitem__(10, [[2, 0], [1, 5]]),
    lambda s: s["partitions"][0].__setitem__(10, [[1 << 31, 0]]),
    lambda s: s["partitions"][0].__setitem__(10, [[n + 1, n] for n in range(65)]),
    lambda s: s["partitions"][0].__setitem__(11, [[5, b"short"]]),
    lambda s: s["partitions"][0].__setitem__(11, [[5, 26]])])
def test_a_malformed_snapshot_is_a_typed_error(damage):
    tail = opened()
    tail.apply(1)
    snapshot = tail.snapshot()
    damage(snapshot)
    with pytest.raises(CodecError):
        PartitionStates.restore(snapshot)
