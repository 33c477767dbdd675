"""Rebalancing of `make demo`: a plan for the skewed topics, carried out while flights stream in.

Contract.  `Rebalancing.run` makes a plan, submits it to the cluster and returns when it is
complete; it raises `CommandFailed` when it fails.  It uses the functions behind `multiraft
rebalance`: the cluster carries out all moves.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from screen import Screen

from admin_cli import connection
from admin_cli.development import dev_state
from admin_cli.failures import CommandFailed
from admin_cli.plans import load_view, plan_view, plan_words, rebalance
from admin_cli.session import Session
from multiraft.wire import plans as wire
from placement import plan as plans
from placement.policy import EGRESS, GROUP_INGRESS, LEADERS, Band, Options, Policy

#: Span of a measurement of loads, of which there are two: the stream is steady.
WINDOW_S = 1.0
#: Interval at which the plan's status is requested, and the limit of the wait.
LOOK_S = 0.1
PATIENCE_S = 60.0
#: Every node has every group here, so only leaders and partitions can move; and 3 MB/s are a load
#: in a demo.
POLICY = Policy(bands=(Band(EGRESS, 100), Band(LEADERS, 100), Band(GROUP_INGRESS, 500)),
                moves_max=wire.MOVES_MAX)


class Rebalancing:
    """The plan of the demo, and its outcome."""

    def __init__(self, directory: Path):
        place = dev_state.demo_directory(directory)
        self.picture = place / dev_state.PICTURE
        self.plan_file = place / dev_state.PLAN
        self.made: plans.Plan | None = None
        self.began = self.ended = 0.0  # monotonic seconds
        self.leads_before: dict[int, int] = {}
        self.leads_after: dict[int, int] = {}

    def forget(self) -> None:
        """Remove these files, also those of an earlier release, which lay beside the nodes: a
        cluster begins in an empty directory."""
        place = self.picture.parent
        for path in (self.picture, self.plan_file):
            path.unlink(missing_ok=True)
            (place.parent / path.name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it holds other files, or is not there
            place.rmdir()

    def run(self, client: Any, kept: int, screen: Screen,
            planner: Callable[[Policy], plans.Plan]) -> None:
        """Make and apply a plan, and wait for it; group ``kept`` keeps its leader.  Raises
        ``CommandFailed``."""
        self.leads_before = leads(client)
        screen.event(f"making a plan; leaders: {told(self.leads_before)}", "bold")
        policy = POLICY._replace(excluded_groups=(kept,))
        made = planner(policy)
        if not made.moves:
            raise CommandFailed("there is nothing to rebalance, though a leader was killed.",
                                "Run it again.")
        self.made = made
        self.plan_file.parent.mkdir(exist_ok=True)
        self.plan_file.write_bytes(plans.save(made))
        screen.event(f"plan {made.plan_id[:12]}: {described(made)}")
        for row in made.resources:
            if row.before_ppm != row.after_ppm:
                screen.event(f"  {row.resource}: {plan_words.worst(row)}")
        for move in made.moves:
            if move.kind == plans.TOPIC_SWITCH:
                screen.event(f"  {plan_view.describe_move(move)}")
        self.began = time.monotonic()
        rebalance.begin(client, made, None)
        self._wait(client, made.plan_id)
        self.ended = time.monotonic()
        self.leads_after = leads(client)
        screen.event(f"the plan is through after {self.ended - self.began:.1f} s; leaders: "
                     f"{told(self.leads_after)}", "green")

    def draw(self) -> None:
        """Write the picture of the plan.  Raises ``CommandFailed``."""
        load_view.write(self.made, self.picture)

    def _wait(self, client: Any, plan_id: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            status = client.plan_request(wire.PlanStatus())
            phases = dict(status.phases)
            if status.plan_id == plan_id and status.state == "done":
                if phases.keys() - {"done"}:
                    raise CommandFailed(f"of the plan's moves {phases} came about.",
                                        "`multiraft rebalance status` says why.")
                return
            if time.monotonic() > deadline:
                raise CommandFailed(f"the plan is {status.state} after {PATIENCE_S:.0f} s: "
                                    f"{phases}. {status.reason}")
            time.sleep(LOOK_S)


def measured(client: Any, policy: Policy) -> plans.Plan:
    """Return a plan from loads that are measured now.  Raises ``CommandFailed``."""
    return rebalance.make(client, Options(), policy, WINDOW_S, Session({}))


def leads(client: Any) -> dict[int, int]:
    """Return node -> number of groups that it leads."""
    rows = connection.groups(client)
    counts = Counter(row.leader for row in rows if row.leader is not None)
    return {node: counts[node] for node in sorted({each for row in rows for each in row.voters})}


def told(counts: dict[int, int]) -> str:
    """Return counts as text: ``node 1: 32, node 2: 1, node 3: 32``."""
    return ", ".join(f"node {node}: {count}" for node, count in counts.items())


def described(made: plans.Plan) -> str:
    """Return the number of moves by kind, as text."""
    kinds = Counter(move.kind for move in made.moves)
    return ", ".join(f"{kinds[kind]:,} {one if kinds[kind] == 1 else several}"
                     for kind, (one, several) in plan_words.KINDS.items() if kinds[kind])
