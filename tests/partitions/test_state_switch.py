"""Partition switch to another group: the carried state, across truncations and repeated
openings."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multiraft.errors import (
    CorruptEntry,
    OutOfOrderSequence,
    PartitionSealed,
    ProposalError,
    UnknownPartition,
)
from multiraft.partitions import state as tail_module
from multiraft.partitions.producer_state import export_windows, extended, import_windows
from multiraft.partitions.records import (
    LEADER_EPOCH_MAX,
    PartitionSeal,
    continue_payload,
    open_payload,
    parse_open,
    seal_payload,
)
from multiraft.partitions.state import PartitionStates
from multiraft.types import BatchInfo, Entry, EntryKind
from tests.partitions.test_state import P, control, entry, info, opened, put, seal


def moved(old, group=4, term=1):
    """Continue the partition in another group, with the contents of the applied seal of ``old``."""
    seal(old)
    old.apply(old.last_index)
    new = PartitionStates(group)
    payload = continue_payload(old.sealed(P), term)
    made = entry(new, EntryKind.PARTITION_OPEN, P, payload=payload)
    made.term = term
    assert new.check_entry(made) == ""
    new.append(made)
    return new


def test_only_an_applied_seal_says_where_a_partition_ended():
    tail = opened()
    put(tail, info(3))
    seal(tail)
    tail.apply(2)
    assert tail.sealed(P) is None and tail.sealed(99) is None
    tail.apply(3)
    assert tail.sealed(P) == PartitionSeal(1, 3, 0, 1, b"")


def test_offsets_go_on_in_the_next_group_and_what_is_below_the_log_start_stays_gone():
    tail = opened()
    put(tail, info(7))
    control(tail, EntryKind.LOG_START, base_offset=4)
    new = moved(tail)
    assert new.tail_state(P)[:6] == (2, 1, 7, 4, False, 7)
    assert put(new, info(2)).base_offset == 7


def test_a_retry_of_what_was_carried_is_answered_once_the_opening_is_committed():
    tail = opened()
    batches = [info(2, producer=5, sequence=2 * n) for n in range(6)]
    for batch in batches:
        put(tail, batch)
    new = moved(tail)
    for n, batch in enumerate(batches[1:], start=1):
        assert new.validate_append(P, batch) == (2 * n, 1, True, 1)
    with pytest.raises(OutOfOrderSequence):
        new.validate_append(P, batches[0])
    assert put(new, info(1, producer=5, sequence=12)) == (12, 1, False, 0)


def test_the_order_of_use_is_carried():
    tail = opened()
    for producer in (7, 3, 9, 1):
        put(tail, info(1, producer=producer))
    put(tail, info(1, producer=3, sequence=1))
    new = moved(tail)
    put(new, info(1, producer=8))
    assert list(new._windows[P]) == [7, 9, 1, 3, 8]
    first_gone = new.last_index + 1
    put(new, info(1, producer=9, sequence=1))
    new.truncate(first_gone)
    assert list(new._windows[P]) == [7, 9, 1, 3, 8]
    new._check()


@pytest.mark.parametrize("terms", [(9, 1), (1, 9), (4, 4)])
def test_stamped_leader_epochs_stay_above_all_earlier_ones(terms):
    before, after = terms
    tail = opened(base=40)
    made = entry(tail, EntryKind.PARTITION_SEAL, P, payload=seal_payload(1))
    made.term = before
    tail.append(made)
    tail.apply(tail.last_index)
    assert tail.sealed(P).leader_epoch == 40 + before
    payload = continue_payload(tail.sealed(P), after)
    assert parse_open(payload).leader_epoch_base + after > 40 + before


def test_leader_epochs_that_are_used_up_are_a_typed_refusal():
    with pytest.raises(ProposalError, match="limit of 2147483647"):
        continue_payload(PartitionSeal(1, 0, 0, LEADER_EPOCH_MAX, b""), 1)


def test_a_sealed_partition_judges_no_sequences():
    """Its producers continue in another group: a batch that is new to this group is not out of
    order."""
    tail = opened()
    put(tail, info(1, producer=5))
    seal(tail)
    for late in (info(1, producer=5, sequence=7), info(1, producer=6, sequence=3),
                 info(1, producer=5, epoch=3, sequence=2), info(1)):
        with pytest.raises(PartitionSealed):
            tail.validate_append(P, late)


def test_a_partition_that_comes_back_knows_what_happened_elsewhere_and_truncate_forgets_it():
    tail = opened()
    put(tail, info(1, producer=5))
    other = moved(tail)
    put(other, info(2, producer=5, sequence=1))
    put(other, info(1, producer=6))
    seal(other)
    other.apply(other.last_index)
    before = dict(tail._windows[P])
    control(tail, EntryKind.PARTITION_OPEN, payload=continue_payload(other.sealed(P), 1))
    assert tail.tail_state(P).epoch == 3 and tail.next_offset(P) == 4
    assert tail.validate_append(P, info(2, producer=5, sequence=1)).base_offset == 1
    assert tail.validate_append(P, info(1, producer=6)).base_offset == 3
    tail.truncate(tail.last_index)
    assert tail._windows[P] == before and not tail.is_open(P)
    tail._check()


@pytest.mark.parametrize("damage", [
    lambda data: data[:-1], lambda data: data + b"x", lambda data: data + data,
    lambda data: b"\xff" * 8 + data[8:], lambda data: data[:10] + b"\6" + data[11:],
    lambda data: data[:10] + b"\0" + data[11:]])
def test_damaged_carried_windows_are_refused(damage):
    window = extended(None, info(1, producer=5), 0, 1)
    data = export_windows({5: window})
    assert import_windows(data, 1) == {5: window}
    with pytest.raises(CorruptEntry):
        import_windows(damage(data), 1)
    tail = opened()
    payload = open_payload(2, 9, 0, 0, damage(data))
    opening = entry(tail, EntryKind.PARTITION_OPEN, P, -1, payload)
    assert "carried window" in tail.check_entry(opening)


def test_more_carried_windows_than_a_partition_may_have_are_refused(monkeypatch):
    monkeypatch.setattr(tail_module, "PRODUCERS_PER_PARTITION_MAX", 1)
    data = export_windows({producer: extended(None, info(1, producer=producer), producer, 1)
                           for producer in (1, 2)})
    tail = opened()
    made = entry(tail, EntryKind.PARTITION_OPEN, P, -1, open_payload(2, 9, 0, 0, data))
    assert "limit of 1" in tail.check_entry(made)


# ---- the model ----------------------------------------------------------------------------------

GROUPS = (1, 2, 3)
PRODUCERS = (5, 6)
IN_FLIGHT_MAX = 5


class Replicated:
    """A group's log as consensus keeps it: what is applied stays, what is above may be dropped when
    a leader of a later term takes over."""

    def __init__(self, group: int):
        self.tail = PartitionStates(group)
        self.log: list[Entry] = []
        self.term = 1

    def append(self, kind, payload=b"", base_offset=-1, batch=None) -> int:
        made = Entry(kind, self.tail.group, 1, self.term, self.tail.last_index + 1, P, base_offset,
                     payload, batch)
        assert self.tail.check_entry(made) == ""
        self.tail.append(made)
        self.log.append(made)
        return made.index

    def elect(self, terms: int, kept: int) -> None:
        first_gone = self.tail.applied_index + kept + 1
        if first_gone <= self.tail.last_index:
            self.tail.truncate(first_gone)
            del self.log[first_gone - 1:]
        self.term += terms


class Moving:
    """Producers that retry wherever they like, and a driver that may repeat or forget any step."""

    def __init__(self):
        self.groups = {group: Replicated(group) for group in GROUPS}
        self.chain = [(1, 1)]  # (epoch, group)
        self.switch: tuple[int, int] | None = None
        self.groups[1].append(EntryKind.PARTITION_OPEN, open_payload(1))
        self.seals: list[PartitionSeal] = []  # all that were ever read from applied state
        self.next_sequence = dict.fromkeys(PRODUCERS, 0)
        self.acknowledged: dict[tuple[int, int], int] = {}
        self.waiting: list[tuple[int, int, int, int, int]] = []  # group, index, term, key, offset
        self.stamps: dict[tuple[int, int], int] = {}  # (group, index) -> leader epoch

    def produce(self, group: int, producer: int, back: int) -> None:
        """A new batch, or the one that is ``back`` batches old, sent to some group."""
        sequence = max(0, self.next_sequence[producer] - back)
        unanswered = [number for number in range(self.next_sequence[producer])
                      if (producer, number) not in self.acknowledged]
        if sequence - min(unanswered, default=sequence) >= IN_FLIGHT_MAX:
            return  # what a client does not do
        batch = BatchInfo(1, producer, 0, sequence, 0, 0)
        there = self.groups[group]
        try:
            admitted = there.tail.validate_append(P, batch)
        except (UnknownPartition, PartitionSealed, OutOfOrderSequence):
            return
        index = admitted.index
        if not admitted.duplicate:
            index = there.append(EntryKind.DATA, b"", admitted.base_offset, batch)
            self.stamps[group, index] = admitted.leader_epoch_base + there.term
        self.next_sequence[producer] = max(self.next_sequence[producer], sequence + 1)
        self.waiting.append((group, index, there.log[index - 1].term, (producer, sequence),
                             admitted.base_offset))

    def commit(self, group: int, count: int) -> None:
        """Applied state moves on; what waited for it is acknowledged."""
        there = self.groups[group]
        there.tail.apply(min(there.tail.last_index, there.tail.applied_index + count))
        sealed = there.tail.sealed(P)
        if sealed is not None:
            self.seals.append(sealed)
        waiting, self.waiting = self.waiting, []
        for one in waiting:
            at, index, term, key, offset = one
            replica = self.groups[at]
            if index > replica.tail.applied_index:
                self.waiting.append(one)
            elif replica.log[index - 1].term == term:  # else truncated, unanswered
                assert self.acknowledged.setdefault(key, offset) == offset, "another offset"

    def drive(self, step: str, to: int) -> None:
        """Make one step of the driver, if the group's state allows it."""
        epoch, group = self.chain[-1]
        if step == "decide" and self.switch is None and to != group:
            self.switch = (epoch + 1, to)
        elif step == "seal" and self.switch is not None:
            tail = self.groups[group].tail
            if tail.is_open(P) and tail.epoch_of(P) == epoch:
                self.groups[group].append(EntryKind.PARTITION_SEAL, seal_payload(epoch))
        elif step == "publish" and self.switch is not None:
            state = self.groups[self.switch[1]].tail.applied(P)
            if state is not None and state.epoch == self.switch[0]:
                self.chain.append(self.switch)
                self.switch = None

    def open(self, which: int) -> None:
        """Open the partition with a seal, maybe an old one; the next leader compares epochs
        first."""
        if not self.seals or self.switch is None:
            return
        sealed = self.seals[which % len(self.seals)]
        there = self.groups[self.switch[1]]
        if sealed.epoch + 1 == self.switch[0] and there.tail.epoch_of(P) < self.switch[0]:
            there.append(EntryKind.PARTITION_OPEN, continue_payload(sealed, there.term))

    def check(self) -> None:
        """Everything that is committed anywhere, put together."""
        found = []
        for group, there in self.groups.items():
            there.tail._check()
            for made in there.log[:there.tail.applied_index]:
                if made.kind == EntryKind.DATA:
                    found.append((made.base_offset, self.stamps[group, made.index],
                                  made.batch.producer_id, made.batch.base_sequence))
        found.sort()
        assert [offset for offset, *_ in found] == list(range(len(found))), "holes or doubles"
        stamps = [read_round for _, read_round, *_ in found]
        assert stamps == sorted(stamps), "a leader epoch fell"
        for producer in PRODUCERS:
            sequences = [sequence for *_, who, sequence in found if who == producer]
            assert sequences == list(range(len(sequences))), "lost, doubled or out of order"
        places = {(who, sequence): offset for offset, _, who, sequence in found}
        for key, offset in self.acknowledged.items():
            assert places.get(key) == offset, "acknowledged, and not there"


STEPS = st.one_of(
    st.tuples(st.just("produce"), st.sampled_from(GROUPS), st.sampled_from(PRODUCERS),
              st.integers(0, 4)),
    st.tuples(st.just("produce"), st.sampled_from(GROUPS), st.sampled_from(PRODUCERS),
              st.just(0)),
    st.tuples(st.just("commit"), st.sampled_from(GROUPS), st.integers(1, 6)),
    st.tuples(st.just("elect"), st.sampled_from(GROUPS), st.integers(1, 3), st.integers(0, 3)),
    st.tuples(st.just("drive"), st.sampled_from(("decide", "seal", "publish")),
              st.sampled_from(GROUPS)),
    st.tuples(st.just("open"), st.integers(0, 9)))


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.lists(STEPS, min_size=20, max_size=120))
def test_nothing_is_lost_doubled_or_reordered_whatever_the_driver_and_the_leaders_do(steps):
    moving = Moving()
    for name, *arguments in steps:
        if name == "elect":
            moving.groups[arguments[0]].elect(*arguments[1:])
        else:
            getattr(moving, name)(*arguments)
    for group in GROUPS:
        moving.commit(group, 1 << 30)
    moving.check()


def test_the_model_moves_a_partition_with_batches_in_flight():
    """The steps above do reach what they are for."""
    moving = Moving()
    for group in (1, 2, 3, 1):
        for _ in range(3):
            moving.produce(group, 5, 0)
        moving.commit(group, 2)
        to = group % 3 + 1
        moving.drive("decide", to)
        moving.drive("seal", to)
        moving.produce(group, 5, 0)  # refused
        moving.commit(group, 1 << 30)
        moving.open(-1)
        moving.produce(to, 5, 1)  # a retry of what is in the group before
        moving.commit(to, 1 << 30)
        moving.drive("publish", to)
    moving.check()
    assert moving.chain == [(1, 1), (2, 2), (3, 3), (4, 1), (5, 2)]
    assert len(moving.acknowledged) == 12


@pytest.mark.parametrize("bug", ["windows lost", "open without the seal applied", "base too low"])
def test_the_model_finds_what_it_is_there_to_find(bug, monkeypatch):
    real = continue_payload

    def forgetful(sealed, term):
        if bug == "windows lost":
            return real(sealed._replace(windows=b""), term)
        return real(sealed._replace(leader_epoch=0), term)

    monkeypatch.setitem(globals(), "continue_payload", forgetful)
    moving = Moving()
    moving.groups[1].elect(5, 9)
    moving.produce(1, 5, 0)
    moving.drive("decide", 2)
    if bug == "open without the seal applied":
        moving.seals.append(PartitionSeal(1, 0, 0, 6, b""))
    else:
        moving.drive("seal", 2)
        moving.commit(1, 9)
    moving.open(0)
    with pytest.raises(AssertionError):
        moving.produce(2, 5, 1)
        for group in GROUPS:
            moving.commit(group, 9)
        moving.produce(2, 5, 0)
        moving.commit(2, 9)
        moving.check()
