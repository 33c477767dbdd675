"""What a plan says in the terminal about what it leaves as it is."""

from __future__ import annotations

import pytest

from admin_cli import plan_view
from placement import plan as plans
from placement.planner import make_plan
from placement.policy import Band, Options, Policy
from tests.placement.clusters import MIB, STRICT, cluster, nodes

FAR = plans.ResourceOutcome("disk", 50, 900, 2_000_000, 2_000_000, 1_000_000, "mean", 1_000_000,
                            0, 300)


def left(made: plans.Plan, row: plans.ResourceOutcome, floor: int, *loads: int) -> list[str]:
    carriers = tuple(plans.NodeOutcome(number, "r", 100, "alive", (load, 0, 0, 0), (load, 0, 0, 0),
                                    (300, 0, 0, 0), bool(load), bool(load))
                  for number, load in enumerate(loads, 1))
    return [*plan_view.left_as_it_is(made._replace(
        resources=(row,), nodes=carriers, policy=Policy((Band("disk", 50, floor),)),
        options=Options()))]


@pytest.mark.parametrize("row, floor, loads, said", [
    (FAR, 600, (600, 300, 300), ["no node has more than 600 B"]),
    (FAR, 599, (600, 300, 300), []),  # what was left out has a reason of its own
    (FAR._replace(after_ppm=1_050_000), 600, (315, 300, 285), []),
    (FAR._replace(bound="largest", bound_ppm=1_950_000), 0, (600, 300, 300),
     ["one group alone is 195.0 % of a node's share"]),
    (FAR, 600, (600, 300, 0), ["no node has more than 600 B", "1 node (3)"])])
def test_a_plan_says_why_something_stays_out_of_balance(row, floor, loads, said):
    found = left(make_plan(cluster(nodes(3), 4, [MIB] * 8), STRICT), row, floor, *loads)
    assert len(found) == len(said)
    assert all(part in text for part, text in zip(said, found, strict=True))
