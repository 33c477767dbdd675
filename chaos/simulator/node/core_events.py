"""Events of consensus in one boot: what the other parts of the node do about them.

Contract.  Events come in the order in which consensus reports them, before anything else of their
``Ready`` is executed.
"""

from __future__ import annotations

from collections.abc import Sequence

from chaos.simulator.env.violations import Violation
from chaos.simulator.node.env import NodeEnv
from chaos.simulator.node.linearizable_reads import LinearizableReads
from chaos.simulator.node.moves import Moves
from chaos.simulator.node.repair import DamageRepair
from chaos.simulator.node.sessions import Sessions
from chaos.simulator.node.snapshots import SnapshotExchange
from multiraft.raft.ready import Event
from multiraft.raft.status import Role
from multiraft.storage.store import Store
from node.replicas.lifecycle import Replicas

#: Events of consensus that are written to the trace.
TRACED_EVENTS = frozenset({"role_changed", "log_truncated", "replica_quarantined", "unquiesced",
                           "quiesced", "member_changed", "message_dropped", "snapshot_needed",
                           "head_recovery_started", "head_recovered", "replica_repaired",
                           "configuration_changed", "replica_removed", "replica_requested"})


class CoreEvents:
    """Reactions of one boot."""

    def __init__(self, env: NodeEnv, store: Store, repair: DamageRepair, replicas: Replicas,
                 snapshots: SnapshotExchange, sessions: Sessions, reads: LinearizableReads,
                 moves: Moves):
        self._env = env
        self._store = store
        self._repair = repair
        self._replicas = replicas
        self._snapshots = snapshots
        self._sessions = sessions
        self._reads = reads
        self._moves = moves

    def handle(self, events: Sequence[Event]) -> None:
        """Count, trace and handle events. Raises ``Violation``."""
        for event in events:
            self._env.event_counts[event.kind] += 1
            self._handle(event)
            if event.kind in TRACED_EVENTS:
                self._env.trace_line(event.kind, " ".join(map(str, event.fields)), event.group)

    def _handle(self, event: Event) -> None:
        replica = self._env.state_checker.replica
        if event.kind == "replica_repaired":
            replica(self._env.node, event.group).repaired()
        elif event.kind == "replica_quarantined":
            self._quarantined(event)
        elif event.kind == "configuration_changed":
            replica(self._env.node, event.group).adopt(*event.fields)
        elif event.kind == "replica_requested":
            self._replicas.on_create_requested(event.group, *event.fields)
        elif event.kind == "snapshot_offered":
            self._snapshots.offered(event.fields[0])
        elif event.kind == "replica_removed":
            self._end_sessions(event.group)
            self._replicas.on_removed(event.group)
        elif event.kind == "role_changed":
            if event.fields[0] != Role.LEADER:
                self._end_sessions(event.group)
            self._moves.drive()

    def _quarantined(self, event: Event) -> None:
        node, group = self._env.node, event.group
        self._env.state_checker.replica(node, group).damaged = True
        if not self._repair.excuses_quarantine(group):
            raise Violation("NothingIsDamaged", f"n{node} g{group} quarantined itself: "
                            f"{event.fields[0]}")
        self._store.quarantine(group, event.fields[0])

    def _end_sessions(self, group: int) -> None:
        self._sessions.stepped_down(group)
        self._reads.ended(group)
