"""Which life of a node is let in: the judgement about a peer that says who it is.

Contract.  ``judge`` is a function of what the peer says and of what is known of it.  Who keeps
what is known, and makes durable what has to be, is the driver's business (``node/known_nodes.py``).

Theory.  A data directory that was wiped has forgotten what it voted and acknowledged, so its node
may not go on under the same id (scenario S28f): an id belongs to one incarnation for ever.  Of two
processes of one directory one lives: boot epochs are durable and grow, and the number of a process
tells apart two that started with the same epoch from a copy (docs/decisions/0008).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple


class Refusal(enum.Enum):
    """Why a peer is not let in."""

    REMOVED = enum.auto()  # its id was, for ever
    UNKNOWN = enum.auto()  # no such node is known, yet or at all
    OTHER_DIRECTORY = enum.auto()  # the id belongs to another incarnation
    STALE_LIFE = enum.auto()  # its directory has started since
    RUNS = enum.auto()  # the life before it is connected and well: perhaps a copy, perhaps early


class Introduction(NamedTuple):
    """What a peer says of itself."""

    node: int
    incarnation: int
    boot_epoch: int
    process: int


class Life(NamedTuple):
    """The newest life of a peer that was let in."""

    boot_epoch: int
    process: int


NO_LIFE = Life(0, 0)


class Known(NamedTuple):
    """What is known of a node.  ``incarnation`` 0 = not heard yet; ``boot_epoch``: the highest that
    was registered."""

    incarnation: int
    boot_epoch: int = 0
    life: Life = NO_LIFE


class Verdict(NamedTuple):
    """A refusal, in words."""

    refusal: Refusal
    text: str


def judge(said: Introduction, judging: int, known: Known | None, is_removed: bool,
          is_alive: Callable[[Life], bool]) -> Verdict | None:
    """Why node ``judging`` refuses who says so; None = it is let in.  ``is_alive`` tells whether a
    life is connected and supported right now."""
    node = said.node
    if is_removed:
        return Verdict(Refusal.REMOVED, f"node {node} was removed from the cluster for ever")
    if known is None or node == judging:
        return Verdict(Refusal.UNKNOWN, f"node {node} is no member of this cluster that node "
                       f"{judging} knows of")
    if not said.incarnation or known.incarnation not in (0, said.incarnation):
        return Verdict(Refusal.OTHER_DIRECTORY, f"node {node} is another data directory here: "
                       f"incarnation {known.incarnation:x}, not {said.incarnation:x}")
    return _judge_life(said, known, is_alive)


def _judge_life(said: Introduction, known: Known,
                is_alive: Callable[[Life], bool]) -> Verdict | None:
    node, life = said.node, known.life
    epoch = max(known.boot_epoch, life.boot_epoch)
    if said.boot_epoch < epoch:
        return Verdict(Refusal.STALE_LIFE, f"node {node} has started since, with boot epoch "
                       f"{epoch}; this is {said.boot_epoch}")
    if said.boot_epoch == life.boot_epoch and said.process != life.process:
        return Verdict(Refusal.STALE_LIFE, f"another process has started as node {node} with the "
                       f"same boot epoch {epoch}")
    if said.boot_epoch > life.boot_epoch and is_alive(life):
        return Verdict(Refusal.RUNS, f"node {node} runs already, with boot epoch "
                       f"{life.boot_epoch}; this is {said.boot_epoch}")
    return None
