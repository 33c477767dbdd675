"""The product's applier in one boot, with every effect reported to the state checker.

Contract.  ``JudgedApplier`` has the calls that a round makes; each is the product's.  Each
committed range is an effect of its own, so that a crash may strike between any two.
"""

from __future__ import annotations

from collections.abc import Sequence

from chaos.simulator.node.clients.judged_ports import JudgedCore
from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.machine.fail_points import FailPoints
from multiraft.raft.ready import Committed, Event, ReadReady
from node.loop.applier import Applier


class JudgedApplier:
    """Application of events, committed entries and confirmed reads."""

    def __init__(self, env: NodeEnv, fail_points: FailPoints, core: JudgedCore, applier: Applier):
        self.answer = applier.answer
        self._node = env.node
        self._state_checker = env.state_checker
        self._fail_points = fail_points
        self._core = core
        self._applier = applier

    @property
    def answers_wait(self) -> bool:
        """True if replies wait for the end of a round."""
        return self._applier.answers_wait

    def durable(self) -> None:
        """Answer the clients with acks ``leader`` whose records have become durable."""
        self._fail_points.effect()
        self._applier.durable()

    def stop(self) -> None:
        """Answer all open requests, and send the replies: the node is stopping."""
        self._core.stop()
        self._applier.stop()

    def observe(self, events: Sequence[Event]) -> None:
        """Process the events of a ``Ready``. Raises ``Violation``."""
        self._applier.observe(list(events))

    def apply(self, committed: Sequence[Committed]) -> None:
        """Apply committed ranges. Raises ``UnreadableCommand`` and ``Violation``."""
        for found in committed:
            self._fail_points.effect()
            self._state_checker.committed(self._node, *found)
            self._applier.apply([found])

    def confirmed(self, reads: Sequence[ReadReady]) -> None:
        """Check confirmed reads, and release them. Raises ``Violation``."""
        for read in reads:
            self._core.confirmed(read)
        self._applier.confirmed(list(reads))
