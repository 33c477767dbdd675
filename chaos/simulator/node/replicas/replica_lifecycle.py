"""Life cycle of the replicas of one boot: created and removed by the product's steps.

Contract.  When a replica is created, added at a start or removed is decided in
``node/replicas/lifecycle.py``.  This module reports creations to the state checker.

Simplified.  No group is recovered by force, and the pool does not grow.
"""

from __future__ import annotations

from chaos.simulator.env.violations import Violation
from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.machine.event_log import TraceLog
from chaos.simulator.node.machine.round_queue import RoundQueue
from chaos.simulator.node.metadata.metadata_replica import MetadataReplica
from chaos.simulator.node.replicas.repair import DamageRepair
from multiraft.raft.log_reader import GroupRestored
from multiraft.raft.multi_raft import MultiRaft
from multiraft.storage.store import Store
from multiraft.types import Configuration
from node.metadata.state_machine import MetadataState
from node.replicas.lifecycle import Replicas


class ReplicaStore:
    """Store as the life cycle sees it: the state checker hears of each new replica."""

    def __init__(self, env: NodeEnv, store: Store):
        self.groups = store.groups
        self.partition_states = store.partition_states
        self.repair = store.repair
        self.is_removed = store.is_removed
        self.tombstone = store.tombstone
        self._env = env
        self._store = store

    def create_group(self, group: int, incarnation: int, configuration: Configuration,
                     is_new: bool = False) -> GroupRestored:
        """Create an empty replica. Raises ``Violation`` if the node's earlier one is not gone."""
        restored = self._store.create_group(group, incarnation, configuration, is_new)
        self._env.state_checker.created(self._env.node, group, restored)
        return restored


class AppliedMetadata:
    """Metadata as applied on this node."""

    def __init__(self, metadata: MetadataReplica):
        self._metadata = metadata

    @property
    def state(self) -> MetadataState:
        return self._metadata.state

    def begin_anew(self) -> None:
        """Raise ``Violation``: no group is recovered by force."""
        raise Violation("NoForcedRecovery", "a replica of another incarnation was created")


def replicas_of(env: NodeEnv, rounds: RoundQueue, raft: MultiRaft, store: Store,
                metadata: MetadataReplica, repair: DamageRepair) -> Replicas:
    """Return the life cycle of this boot's replicas, which ``load`` adds to the core."""
    def created(group: int) -> None:
        repair.coordinator.on_replica_created(group)
        repair.request()

    replicas = Replicas(raft, ReplicaStore(env, store), AppliedMetadata(metadata),
                        env.parameters.groups, rounds.request, TraceLog(env), created=created,
                        removed=repair.coordinator.groups.discard)
    metadata.watch(replicas.reload)
    return replicas
