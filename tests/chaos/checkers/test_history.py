"""Histories are written and read back; records name their run and key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos import values
from chaos.history import (
    CORRUPT,
    FOREIGN,
    INVOKE,
    BadHistory,
    Event,
    key_of,
    read_history,
    topic_of,
    write_history,
)

KEY = key_of("orders", 12, 3)
EVENT = Event(1500, INVOKE, 1, 2, "append", {"key": KEY, "values": [1, 2], "acks": "commit"})


def test_a_history_is_read_as_it_was_written(tmp_path):
    events = [EVENT, Event(1600, "fault", -1, -1, "kill", {"on": True, "nodes": [2]})]
    write_history(tmp_path / "history.jsonl", events)
    assert list(read_history(tmp_path / "history.jsonl")) == events


def test_a_last_line_without_an_end_is_left_out(tmp_path):
    path = tmp_path / "history.jsonl"
    write_history(path, [EVENT, EVENT])
    path.write_text(path.read_text()[:-5])
    assert list(read_history(path)) == [EVENT]


@pytest.mark.parametrize("line", ["{", "[1]", '[1,"maybe",1,1,"append",{}]', "7"])
def test_a_line_that_is_no_event_is_named(tmp_path, line):
    path = tmp_path / "history.jsonl"
    write_history(path, [EVENT])
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(BadHistory, match="line 2"):
        list(read_history(path))


def test_a_history_of_an_earlier_version_has_the_names_of_this_one(tmp_path):
    """It called a transaction a run."""
    asked = {"sink": 1, "batch": 0, "winners": []}
    staged = {"key": KEY, "values": [1], "sink": 1, "task": 0, "attempt": 0}
    write_history(tmp_path / "history.jsonl", [
        Event(1, INVOKE, 1, 2, "commit_run", {**asked, "run": 7}),
        Event(2, "fail", 1, 2, "commit_run", {"error": "StaleRun", "text": "over"}),
        Event(3, INVOKE, 2, 2, "append", {**staged, "run": 7})])
    assert list(read_history(tmp_path / "history.jsonl")) == [
        Event(1, INVOKE, 1, 2, "commit_transaction", {**asked, "transaction": 7}),
        Event(2, "fail", 1, 2, "commit_transaction", {"error": "StaleTransaction", "text": "over"}),
        Event(3, INVOKE, 2, 2, "append", {**staged, "transaction": 7})]


def test_a_key_names_its_topic_s_life():
    assert topic_of(KEY) == "orders@12"


@given(st.integers(0, 2**31 - 1), st.integers(0, 2**32 - 1), st.integers(0, 300))
def test_a_record_gives_its_value_back(producer, number, padding):
    value = values.value_of(producer, number)
    record = values.encode(9, KEY, value, padding)
    assert len(record) == values.HEAD_BYTES + padding
    assert values.decode(9, KEY, record) == value
    assert values.producer_of(value) == producer


@given(st.integers(0, 8 * (values.HEAD_BYTES + 20) - 1))
def test_a_flipped_bit_makes_a_record_corrupt(bit):
    record = bytearray(values.encode(9, KEY, 4711, 20))
    record[bit // 8] ^= 1 << bit % 8
    assert values.decode(9, KEY, bytes(record)) == CORRUPT
    assert values.parse(bytes(record)) is None


@pytest.mark.parametrize("length", [0, 1, values.HEAD_BYTES - 1, values.HEAD_BYTES + 3])
def test_a_cut_record_is_corrupt(length):
    assert values.decode(9, KEY, values.encode(9, KEY, 1, 20)[:length]) == CORRUPT


def test_a_record_of_another_key_or_run_is_foreign():
    record = values.encode(9, KEY, 4711)
    assert values.decode(9, key_of("orders", 13, 3), record) == FOREIGN
    assert values.decode(8, KEY, record) == FOREIGN
    assert values.parse(record) == (9, values.crc_of_key(KEY), 4711)
