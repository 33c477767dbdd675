"""What the nemesis makes of a group's members.

Contract.  A pure function of the random stream and the present configuration: voters and learners
to ask for, never nobody.  Groups wander over all nodes, about as many voters as they began with, so
that nodes leave a group and come back to it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from multiraft.types import Configuration


def draw_members(rng: random.Random, present: Configuration, nodes: Sequence[int],
                 factor: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(voters, learners) to change to."""
    voters, learners = list(present.voters), list(present.learners)
    outsiders = [node for node in sorted(nodes) if node not in present.members()]
    kinds = ["add"] * 3 * bool(outsiders) + ["promote", "swap", "swap", "drop"] * bool(learners)
    if len(voters) >= factor or (len(voters) > 1 and rng.random() < 0.2):
        kinds += ["remove", "demote"]
    kind = rng.choice(kinds or ["demote"])
    if kind == "add":
        learners.append(rng.choice(outsiders))
    elif kind == "promote":
        voters += learners
        learners = []
    elif kind == "swap":
        voters[rng.randrange(len(voters))] = learners.pop(rng.randrange(len(learners)))
    elif kind == "drop":
        learners.pop(rng.randrange(len(learners)))
    elif kind == "remove":
        del voters[rng.randrange(len(voters))]
    else:
        learners.append(voters.pop(rng.randrange(len(voters))))
    return tuple(voters), tuple(learners)
