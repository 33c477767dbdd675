"""The scan of workers over rows of groups: the rule of ``placement``, for any batches."""

from __future__ import annotations

import random

import pytest

from placement.shed import Item, by_load, by_urgency, shed_candidates
from placement.switches import SKIPPED_PER_GROUP, Relief

pa = pytest.importorskip("pyarrow")
loads = pytest.importorskip("spark.loads")

#: group -> (load, incarnation, may be moved)
GROUPS = {3: [(90, 1, True), (70, 2, False), (40, 3, True), (40, 4, True), (9, 5, True),
              (2, 6, True), (0, 7, True)],
          4: [(500, 11, True)],
          9: [(60 - place, 20 + place, place % 3 > 0) for place in range(30)]}
WANTED = Relief({3: 45, 4: 10}, {9: 200}, 85, {3: 20})
EXCESS = {**WANTED.excess, **WANTED.passed_on}
KNOWN = frozenset({4, 21})


def rows():
    found = [(group, *row) for group, of_group in GROUPS.items() for row in of_group]
    names = ("group", "ingress", "incarnation", "may_move")
    types = (pa.int32(), pa.int64(), pa.int64(), pa.bool_())
    return pa.record_batch([pa.array(column, type_) for column, type_
                            in zip(zip(*found), types)], names)


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_what_a_group_sheds_does_not_depend_on_batches_and_their_order(size):
    whole = rows()
    batches = [whole.slice(start, size) for start in range(0, whole.num_rows, size)]
    random.Random(size).shuffle(batches)
    found = list(loads.scan(WANTED, KNOWN)([*batches, whole.slice(0, 0)]))
    wanted = []
    for group, of_group in GROUPS.items():
        fresh = [row for row in of_group if row[1] not in KNOWN]
        told = [Item(load, incarnation) for load, incarnation, _ in fresh[:SKIPPED_PER_GROUP]]
        items = sorted((Item(load, incarnation) for load, incarnation, may_move in fresh
                        if may_move and load <= WANTED.cap), key=by_load)
        leaving = shed_candidates(items, EXCESS[group], WANTED.cap)
        urgency = {item: urgent for urgent, item
                   in by_urgency(leaving, WANTED.urgent.get(group, 0))}
        wanted += [(item.id, item.load, urgency.get(item, 0))
                   for item in sorted({*leaving, *told})]
    assert [tuple(row[name] for name in loads.SHED_COLUMNS)
            for batch in found for row in batch.to_pylist()] == wanted
    assert sum(urgency > 0 for *_, urgency in wanted) == 1
