"""Plans that are checked when they are made, and their figures."""

from __future__ import annotations

from placement.outcome import planned
from placement.plan import LeaderTransfer, ReplicaChange
from placement.planner import make_plan
from placement.policy import Options
from placement.verify import verify
from tests.placement.clusters import STRICT

ALL = Options()


def checked_plan(before, policy=STRICT, options=ALL):
    """A plan that keeps every invariant, and leaves nothing to do when it is converged."""
    made = make_plan(before, policy, options)
    assert verify(made, before, before.taken_ms) == ()
    if made.converged:
        assert make_plan(planned(before, made), policy, options).is_empty
    return made


def figures(made, resource):
    """The plan's row of figures of a resource; None = it has none."""
    return next((row for row in made.resources if row.resource == resource), None)


def changes_of_leaders(made):
    """The nodes that lead a group before and after, for each group that another node leads."""
    found = [(move.from_node, move.to_node) if isinstance(move, LeaderTransfer) else
             (move.from_leader, move.to_leader) for move in made.moves
             if isinstance(move, (LeaderTransfer, ReplicaChange))]
    return [each for each in found if 0 not in each and each[0] != each[1]]
