"""Moves of one boot: the drivers of switches and plans, in a run with topics."""

from __future__ import annotations

from chaos.simulator.node.metadata.metadata_replica import MetadataReplica
from chaos.simulator.node.rebalance.move_services import MoveServices
from chaos.simulator.node.rebalance.plan_controller import NodePlans
from chaos.simulator.node.replicas.partition_switch import PartitionSwitches
from multiraft.raft.multi_raft import MultiRaft
from multiraft.storage.store import Store


class Moves:
    """Drivers of one boot; none before ``start``."""

    def __init__(self, services: MoveServices, metadata: MetadataReplica, raft: MultiRaft,
                 store: Store):
        self.services = services
        self.switches: PartitionSwitches | None = None
        self.plans: NodePlans | None = None
        self._raft = raft
        self._store = store
        metadata.watch(self.drive)

    def start(self, others: dict) -> None:
        """Start the drivers, after recovery. ``others``: more handlers of requests, by type."""
        self.switches = PartitionSwitches(self.services, self._raft, self._store)
        self.plans = NodePlans(self.services, self._raft, self._store)
        self.services.serve({**self.switches.handlers, **self.plans.handlers, **others})
        self.drive()

    def drive(self) -> None:
        """Drive pending switches, after metadata were applied or a role changed; no-op before
        ``start``."""
        if self.switches is not None:
            self.switches.check()

    def notify(self) -> None:
        """Drive pending switches after the role of a replica has changed."""
        self.drive()

    def will_hand_back(self, group: int, node: int) -> bool:
        """True if this node would hand ``group``, if it led the group, back to its preferred leader
        ``node``, which restarted lately."""
        return self.plans is not None and self.plans.leadership_return.will_hand_back(group, node)
