"""The comparison of ways of placing, on small sizes: its measures, its rivals, its verdict."""

from __future__ import annotations

import pytest

from benchmarks import placement
from benchmarks.placement import (
    BAND,
    FACTOR,
    Row,
    Size,
    drawn,
    drift_part,
    groups_part,
    judged,
    node_rows,
    nodes_part,
)
from benchmarks.placement_rivals import OF_GROUPS, OF_NODES

TINY = Size(nodes=10, groups=64, partitions=2000, bins=16, items=2000)


@pytest.mark.parametrize("way", OF_NODES)
def test_every_way_keeps_racks_apart(way):
    nodes = node_rows(10, 5, (100, 300))
    rack_of = {node.id: node.rack for node in nodes}
    for voters in OF_NODES[way](nodes, drawn("lognormal 2", 40, 1), FACTOR, BAND):
        assert len({rack_of[node] for node in voters}) == FACTOR


@pytest.mark.parametrize("way", OF_GROUPS)
def test_every_way_places_everything_in_the_pool(way):
    placed = OF_GROUPS[way](drawn("zipf 1.0", 300, 1), 8, BAND)
    assert len(placed) == 300 and {*placed} <= set(range(1, 9))


def test_the_planner_is_within_the_band_and_moves_what_it_must():
    rows = groups_part("uniform", TINY, 0)
    rows += nodes_part("replicas", node_rows(10, 5, (100,)), (), "lognormal 2", TINY, 0)
    ours = [row for row in rows if row.way == "planner"]
    assert all(row.gap <= 1.5 * BAND and row.moved >= row.least > 0 for row in ours)
    for row in rows:
        if row.way == "lpt":
            assert row.moved > 5 * ours[0].moved
        if row.way == "hash":
            assert row.moved == 0


def test_drift_judges_later_windows():
    rows = drift_part(TINY._replace(items=500, bins=8), 0)
    assert all(len(row.worst) == placement.WINDOWS for row in rows)
    again = next(row for row in rows if (row.way, row.planned) == ("planner", "each window"))
    once = next(row for row in rows if (row.way, row.planned) == ("planner", "once"))
    assert again.worst[0] == once.worst[0] and again.moved >= once.moved
    assert max(again.worst) <= max(once.worst)


def test_a_missed_target_is_said():
    rows = [Row(part, loads, "planner", 1.03, 1.0, 0.2, 0.1, 0.0)
            for part in ("partitions", "replicas") for loads in placement.TARGETED]
    assert not any(figure.holds for figure in judged(rows))
    good = [row._replace(worst=1.02, moved=0.1) for row in rows]
    assert all(figure.holds for figure in judged(good))
