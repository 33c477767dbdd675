"""Conclusions of the benchmark of moves, from the records read back and from the times measured."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from benchmarks.bench_moves import FULL, Moved, imbalance, judged
from benchmarks.numbered import NUMBER_BYTES, Damage, Taken, percentile_ms, read_back
from benchmarks.processes import BenchmarkError
from placement.cluster import GroupRow, NodeRow
from tests.placement.clusters import snapshot


class Log:
    """A client whose topic holds batches of these numbers: (partition, numbers)."""

    def __init__(self, *batches):
        self._batches = batches

    def consume(self, _topic, **_how):
        for partition, numbers in self._batches:
            records = [SimpleNamespace(value=number.to_bytes(NUMBER_BYTES, "big") + b"...")
                       for number in numbers]
            yield SimpleNamespace(partition=partition, records=lambda records=records: records)


@pytest.mark.parametrize(("batches", "damage"), [
    ([(0, (0, 2)), (1, (1,)), (0, (3,))], Damage(0, 0, 0)),
    ([(0, (0, 2)), (0, (3,))], Damage(1, 0, 0)),
    ([(0, (0, 2)), (1, (1,)), (0, (2, 3))], Damage(0, 1, 1)),
    ([(0, (0, 3)), (1, (1,)), (0, (2,))], Damage(0, 0, 1)),
    ([(0, (0, 2)), (1, (1, 2)), (0, (3,))], Damage(0, 1, 0))])
def test_what_is_missing_doubled_or_out_of_order_is_seen(batches, damage):
    assert read_back(Log(*batches), "t", 4) == damage


def test_a_percentile_is_of_the_span_and_of_enough():
    taken = tuple(Taken(given, 0.001 * given) for given in range(1000))
    assert percentile_ms(taken, 0.99, 100, 300) == pytest.approx(298)
    with pytest.raises(BenchmarkError, match="only 50 appends"):
        percentile_ms(taken, 0.99, 0, 50)


def test_the_worst_node_may_be_an_empty_one():
    rows = [GroupRow(group, 1, 1, (1, 2, 3), 1, bytes=100, ingress=10) for group in range(4)]
    before = snapshot([NodeRow(node) for node in range(1, 5)], rows, factor=3)
    assert imbalance(before) == {"disk": 100.0, "ingress": 100.0, "egress": 300.0}


BALANCED = {"disk": 2.0, "ingress": 3.0, "egress": 4.0}


def moved(**changed) -> Moved:
    """Return a growth within its targets, with some fields changed."""
    return Moved(20.0, FULL.part, (10.0, 10.0), BALANCED, (8, 8, 8, 8),
                 5.0, 9.0, 6.0, 10.0, 19.0, 12.0, (), Damage(0, 0, 0), 24, 1 << 28, 20.0,
                 ())._replace(**changed)


@pytest.mark.parametrize(("changed", "missed"), [
    ({}, 0), *(({"imbalance": {**BALANCED, name: 5.1}}, 1) for name in BALANCED),
    ({"during_ms": 10.1}, 1), ({"load_during_ms": 20.1}, 1), ({"failures": ("TimedOut",)}, 1),
    ({"damage": Damage(0, 1, 0)}, 1)])
def test_each_target_can_be_missed(changed, missed):
    assert sum(not figure.holds for figure in judged([moved(**changed)])) == missed


def test_one_harmed_record_in_any_repetition_is_one_too_many():
    found = judged([moved(), moved(damage=Damage(1, 0, 0)), moved()])
    assert [figure.holds for figure in found].count(False) == 1
