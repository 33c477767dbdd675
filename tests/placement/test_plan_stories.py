"""Golden plans: the history of a cluster of six nodes, move by move.

``MULTIRAFT_REWRITE=1`` writes them anew; read the difference before you commit it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from placement.cluster import DEAD, NodeRow
from placement.describe import describe_plan
from placement.planner import make_plan
from placement.policy import (
    DISK,
    EGRESS,
    GROUP_INGRESS,
    LEADERS,
    Band,
    Options,
    Policy,
)
from placement.verify import verify
from tests.placement.clusters import MIB, cluster, grown, nodes, with_state

TESTDATA = Path(__file__).parent / "testdata"
SIX = cluster(nodes(6, racks=3), 12, [MIB // 2 + 5000 * number for number in range(120)])
HOT = cluster(nodes(6, racks=3), 12, [MIB // 2] * 120 + [40 * MIB])
POLICY = Policy(bands=(Band(DISK, 100), Band(EGRESS, 100), Band(LEADERS, 100, 2),
                       Band(GROUP_INGRESS, 300)), cool_down_ms=0)

STORIES = {
    "add_node": (grown(SIX, NodeRow(7, "r0")), Options("node", 7)),
    "dead_node": (with_state(SIX, 4, DEAD), Options("repair")),
    "drain": (SIX, Options("drain", drain=(2,))),
    "hot_partition": (HOT, Options()),
    "last_rack": (SIX, Options("drain", drain=(1, 4))),
}


@pytest.mark.parametrize("name", STORIES)
def test_story(name):
    before, options = STORIES[name]
    made = make_plan(before, POLICY, options)
    assert verify(made, before, before.taken_ms) == ()
    path = TESTDATA / f"plan_{name}.txt"
    told = describe_plan(made) + "\n"
    if os.environ.get("MULTIRAFT_REWRITE"):
        path.write_text(told)
    assert told == path.read_text()
