"""Actions that the scheduler returns.

Contract.  Values without behaviour.  A ``StepTo`` becomes a command of the metadata group.  The
other actions become requests to the leader of a group, which refuses them when its configuration
differs from the one they were decided upon.
"""

from __future__ import annotations

from typing import NamedTuple

from node.metadata.move_phases import Phase


class StepTo(NamedTuple):
    """Record that a move enters ``phase``."""

    seq: int
    attempt: int
    phase: Phase
    reason: str = ""
    source: int = 0


class Change(NamedTuple):
    """Ask the leader of a group to make these nodes its members."""

    seq: int
    group: int
    leader: int
    voters: tuple[int, ...]
    learners: tuple[int, ...]
    expected_index: int


class Transfer(NamedTuple):
    """Ask the leader of a group to transfer leadership to ``to``."""

    seq: int
    group: int
    leader: int
    to: int


class Switch(NamedTuple):
    """Decide that a partition switches to ``to_group`` at ``epoch``."""

    seq: int
    partition: int
    epoch: int
    to_group: int


Action = StepTo | Change | Transfer | Switch


class Next(NamedTuple):
    """The decisions of one step.  ``waits``: move -> the reason why it makes no progress, or its
    present activity."""

    actions: list[Action]
    waits: dict[int, str]
