"""Reports of consensus events in one boot.

Contract.  The product's applier calls ``CoreEvents.report`` for each event, before its effects.
"""

from __future__ import annotations

from chaos.simulator.env.violations import Violation
from chaos.simulator.node.clients.judged_ports import JudgedCore
from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.replicas.repair import DamageRepair
from multiraft.raft.ready import Event
from multiraft.raft.status import Role

#: Events of consensus that are written to the trace.
TRACED_EVENTS = frozenset({"role_changed", "log_truncated", "replica_quarantined", "unquiesced",
                           "quiesced", "member_changed", "message_dropped", "snapshot_needed",
                           "snapshot_install_started",
                           "head_recovery_started", "head_recovered", "replica_repaired",
                           "configuration_changed", "replica_removed", "replica_requested"})


class CoreEvents:
    """Reports of one boot's events: counters, trace, state checker."""

    def __init__(self, env: NodeEnv, repair: DamageRepair, core: JudgedCore):
        self._env = env
        self._repair = repair
        self._core = core

    def report(self, event: Event) -> None:
        """Count, trace and judge an event. Raises ``Violation``."""
        self._env.event_counts[event.kind] += 1
        self._judge(event)
        if event.kind in TRACED_EVENTS:
            self._env.trace_line(event.kind, " ".join(map(str, event.fields)), event.group)

    def _judge(self, event: Event) -> None:
        node, group = self._env.node, event.group
        replica = self._env.state_checker.replica
        if event.kind == "replica_repaired":
            replica(node, group).repaired()
        elif event.kind == "replica_quarantined":
            replica(node, group).damaged = True
            if not self._repair.excuses_quarantine(group):
                raise Violation("NothingIsDamaged", f"n{node} g{group} quarantined itself: "
                                f"{event.fields[0]}")
        elif event.kind == "configuration_changed":
            replica(node, group).adopt(*event.fields)
        elif event.kind == "replica_removed" or (
                event.kind == "role_changed" and event.fields[0] != Role.LEADER):
            self._core.ended(group)
