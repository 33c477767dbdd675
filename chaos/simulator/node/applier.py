"""Effects of a round on one boot beside disk and network: events, commits, reads and replies.

Contract.  The port of the product's driver (``node.loop.ready_driver.Applier``): ``observe`` comes
before ``apply``, ``answer`` at the end of a round.
"""

from __future__ import annotations

from collections.abc import Sequence

from chaos.simulator.node.applied_waits import AppliedWaits
from chaos.simulator.node.client_replies import ClientReplies
from chaos.simulator.node.core_events import CoreEvents
from chaos.simulator.node.env import NodeEnv
from chaos.simulator.node.fail_points import FailPoints
from chaos.simulator.node.linearizable_reads import LinearizableReads
from chaos.simulator.node.metadata_replica import MetadataReplica
from chaos.simulator.node.sessions import Sessions
from multiraft.raft.multi_raft import MultiRaft
from multiraft.raft.ready import ReadReady
from multiraft.types import METADATA_GROUP
from node.replicas.lifecycle import Replicas


class Applier:
    """Consumer of events, commits and confirmed reads."""

    def __init__(self, env: NodeEnv, fail_points: FailPoints, raft: MultiRaft,
                 metadata: MetadataReplica, sessions: Sessions, waits: AppliedWaits,
                 events: CoreEvents, reads: LinearizableReads, replies: ClientReplies,
                 replicas: Replicas):
        self._node = env.node
        self._state_checker = env.state_checker
        self._fail_points = fail_points
        self._raft = raft
        self._metadata = metadata
        self._sessions = sessions
        self._waits = waits
        self._reads = reads
        self._replies = replies
        self._replicas = replicas
        self.observe = events.handle

    def apply(self, committed: Sequence[tuple[int, int, int]]) -> None:
        """Apply (group, first, last) of each group, answer the clients, and tell the core. Raises
        ``UnreadableCommand`` and ``Violation``."""
        for group, first, last in committed:
            self._fail_points.effect()
            self._state_checker.committed(self._node, group, first, last)
            if group == METADATA_GROUP:
                self._metadata.apply(first, last)
            self._sessions.applied(group, first, last)
            self._raft.applied(group, last)
            self._waits.applied(group, last)

    def confirmed(self, reads: Sequence[ReadReady]) -> None:
        """Report the reads that are linearizable now, and answer them."""
        for read in reads:
            self._state_checker.confirmed(self._node, read.group, read.index, read.token)
            self._reads.answered(read.group)

    def durable(self) -> None:
        """Answer the clients with acks ``leader`` whose records have become durable."""
        self._fail_points.effect()
        self._sessions.written()

    def answer(self, _now_ms: int) -> None:
        """Create and remove replicas where that is due, and send the replies of this round."""
        if self._replicas.due:
            self._replicas.reconcile()
        self._replies.send()

    def stop(self) -> None:
        """Answer all open requests as ambiguous, and send the replies: the node is stopping."""
        for group in self._raft.status.groups():
            self._sessions.stepped_down(group)
            self._reads.ended(group)
        self._replies.send()

    @property
    def answers_wait(self) -> bool:
        """True if replies wait for the end of a round."""
        return self._replies.wait
