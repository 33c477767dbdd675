"""The demo's comparison must find the damage that it claims to exclude."""

from __future__ import annotations

import random

import pytest
from ledger import Ledger, checksum, digest, judge

RECORDS = [digest(b"flight-%d" % number, b"value-%d" % number) for number in range(100)]


def promised(records=RECORDS, unknown: range = range(0)) -> Ledger:
    """Return a ledger of which everything but ``unknown`` was acknowledged."""
    ledger = Ledger()
    for number, each in enumerate(records):
        batch = ledger.sent([each])
        if number not in unknown:
            ledger.acknowledged(batch)
    return ledger


def test_the_same_records_in_the_same_order_hold():
    verdict = judge(promised(), RECORDS)
    assert verdict.holds
    assert verdict.acknowledged == verdict.read == 100


def test_a_missing_record_is_counted():
    verdict = judge(promised(), RECORDS[:50] + RECORDS[51:])
    assert not verdict.holds
    assert (verdict.missing, verdict.doubled, verdict.out_of_order) == (1, 0, 0)


def test_a_missing_tail_is_counted():
    assert judge(promised(), RECORDS[:90]).missing == 10


def test_a_doubled_record_is_counted():
    verdict = judge(promised(), RECORDS[:51] + RECORDS[50:])
    assert not verdict.holds
    assert (verdict.missing, verdict.doubled, verdict.out_of_order) == (0, 1, 0)


def test_one_missing_and_one_doubled_do_not_cancel_out():
    verdict = judge(promised(), [*RECORDS[:98], RECORDS[97], RECORDS[99]])
    assert verdict.acknowledged == verdict.read
    assert (verdict.missing, verdict.doubled) == (1, 1)
    assert not verdict.holds


def test_two_swapped_records_are_out_of_order():
    swapped = [*RECORDS[:10], RECORDS[11], RECORDS[10], *RECORDS[12:]]
    verdict = judge(promised(), swapped)
    assert not verdict.holds
    assert (verdict.missing, verdict.doubled, verdict.out_of_order) == (0, 0, 1)


def test_a_record_that_nobody_sent_is_foreign():
    verdict = judge(promised(), [*RECORDS, digest(b"ghost", b"")])
    assert not verdict.holds
    assert verdict.foreign == 1


def test_a_record_of_unknown_outcome_may_be_there_or_not():
    ledger = promised(unknown=range(40, 42))
    assert judge(ledger, RECORDS).holds
    assert judge(ledger, RECORDS).unknown_found == 2
    assert judge(ledger, RECORDS[:40] + RECORDS[42:]).holds


@pytest.mark.parametrize("read", [
    [*RECORDS, RECORDS[40]],  # twice
    [*RECORDS[:40], *RECORDS[41:], RECORDS[40]],  # at the wrong place
], ids=["doubled", "displaced"])
def test_a_record_of_unknown_outcome_may_be_there_only_once_and_in_its_place(read):
    assert not judge(promised(unknown=range(40, 42)), read).holds


def test_acknowledging_twice_is_a_bug_of_the_demo():
    ledger = promised()
    with pytest.raises(AssertionError, match="twice"):
        ledger.acknowledged(range(3, 4))


def test_the_checksum_depends_on_the_order():
    shuffled = random.Random(1).sample(RECORDS, len(RECORDS))
    assert checksum(shuffled) != checksum(RECORDS)


def test_a_digest_keeps_key_and_value_apart():
    assert digest(b"ab", b"c") != digest(b"a", b"bc")
    assert digest(None, b"x") != digest(b"x", None)
