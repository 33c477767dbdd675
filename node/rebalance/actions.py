"""What ``decide`` wants done.

Contract.  Values.  A ``StepTo`` is a command of the metadata group; the others are asked of the
leader of a group, which refuses what was decided upon another configuration.
"""

from __future__ import annotations

from typing import NamedTuple

from node.metadata.move_phases import Phase


class StepTo(NamedTuple):
    """Write down that a move goes to ``phase``."""

    seq: int
    attempt: int
    phase: Phase
    reason: str = ""
    source: int = 0


class Change(NamedTuple):
    """Ask the leader of a group to make these its members."""

    seq: int
    group: int
    leader: int
    voters: tuple[int, ...]
    learners: tuple[int, ...]
    expected_index: int


class Transfer(NamedTuple):
    """Ask the leader of a group to let ``to`` lead it."""

    seq: int
    group: int
    leader: int
    to: int


class Switch(NamedTuple):
    """Decide that a partition goes on in ``to_group`` at ``epoch``."""

    seq: int
    partition: int
    epoch: int
    to_group: int


Action = StepTo | Change | Transfer | Switch


class Next(NamedTuple):
    """What ``decide`` found.  ``waits``: move -> why it does not get on, or what it does."""

    actions: list[Action]
    waits: dict[int, str]
