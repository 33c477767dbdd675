"""The comparison that judges Kafka's clients finds each kind of damage."""

from __future__ import annotations

import pytest

from tests.kafka_clients.records import Mismatch, Records, Row, in_sequence

HEADER = b"client"


def read_back(records: Records, count: int = 5) -> list[Row]:
    """Return new records as rows that a client has read."""
    return [Row(offset, 1, key, value, HEADER)
            for offset, (key, value) in enumerate(records.take(count))]


@pytest.fixture
def records() -> Records:
    """Return a series of records, of which one is null and one is empty."""
    return Records(7, is_text=False, has_null=True, header=HEADER)


def test_what_was_written_passes(records):
    rows = read_back(records)
    offsets = {row.key: row.offset for row in rows}
    records.check(rows, list(records.made.values()), may_repeat=False, offsets=offsets)
    in_sequence(rows, 0)


@pytest.mark.parametrize(("damage", "complaint"), [
    (lambda rows: rows[:-1], "lost"),
    (lambda rows: [*rows[:-1], rows[-1]._replace(value=b"other")], "nobody made"),
    (lambda rows: [row if row.value is not None else row._replace(value=b"") for row in rows],
     "nobody made"),
    (lambda rows: [*rows[:-1], rows[-1]._replace(header=None)], "nobody made"),
    (lambda rows: [*rows, rows[-1]], "twice"),
    (lambda rows: [rows[1], rows[0], *rows[2:]], "order"),
    (lambda rows: [*rows[:-1], rows[-1]._replace(offset=99)], "offset that the producer received"),
])
def test_damage_is_found(records, damage, complaint):
    rows = read_back(records)
    offsets = {row.key: row.offset for row in rows}
    with pytest.raises(Mismatch, match=complaint):
        records.check(damage(rows), list(records.made.values()), may_repeat=False, offsets=offsets)


def test_only_without_identities_a_record_may_be_there_twice(records):
    rows = read_back(records)
    records.check([*rows, rows[0]], list(records.made.values()), may_repeat=True, offsets={})


def test_a_gap_between_offsets_is_found(records):
    rows = read_back(records)
    with pytest.raises(Mismatch, match="not consecutive"):
        in_sequence([rows[0], *rows[2:]], 0)
