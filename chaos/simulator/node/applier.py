"""Committed entries of one boot, applied to what they change."""

from __future__ import annotations

from collections.abc import Sequence

from chaos.simulator.node.applied_waits import AppliedWaits
from chaos.simulator.node.env import NodeEnv
from chaos.simulator.node.fail_points import FailPoints
from chaos.simulator.node.metadata_replica import MetadataReplica
from chaos.simulator.node.sessions import Sessions
from multiraft.raft.multi_raft import MultiRaft
from multiraft.types import METADATA_GROUP


class Applier:
    """Application of committed entries."""

    def __init__(self, env: NodeEnv, fail_points: FailPoints, raft: MultiRaft,
                 metadata: MetadataReplica, sessions: Sessions, waits: AppliedWaits):
        self._node = env.node
        self._state_checker = env.state_checker
        self._fail_points = fail_points
        self._raft = raft
        self._metadata = metadata
        self._sessions = sessions
        self._waits = waits

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
