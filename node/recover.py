"""Forced recovery of the metadata group, on the data directory of a node that does not run.

Contract.  ``inspect`` says what the replica has and changes nothing; ``recover`` makes it the only
voter of a new incarnation, durably, and writes a checkpoint.  Whether its majority is really lost
nobody can tell from one directory: that is for the operator to know (docs/decisions/0007).
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft.host import Chance
from multiraft.multiraft import MultiRaft
from multiraft.storage.store import Store
from multiraft.types import METADATA_GROUP, Configuration
from node.config import NodeConfig
from node.errors import BadDirectory
from node.metadata import FIRST_GROUP_INCARNATION


class Replica(NamedTuple):
    """What this node has of the metadata group."""

    last_term: int
    last_index: int
    applied: int
    voters: tuple[int, ...]
    incarnation: int
    quarantined: str


def inspect(store: Store) -> Replica:
    """Raises ``BadDirectory`` when there is none."""
    restored = store.groups.get(METADATA_GROUP)
    if restored is None:
        raise BadDirectory("there is no replica of the metadata group in this directory")
    configuration = [restored.configuration, *[after for _, after in restored.changes]][-1]
    last_term = restored.term_runs[-1][1] if restored.term_runs else restored.bounds.prev_term
    return Replica(last_term, restored.bounds.last_index, restored.applied, configuration.voters,
                   restored.incarnation or FIRST_GROUP_INCARNATION, restored.quarantined)


#: What to say when the flag is missing.
NOT_ACCEPTED = ("nothing was changed: say --accept-data-loss if the majority of these voters is "
                "lost for good")


def told(replica: Replica) -> str:
    """The replica in one line, for people who compare it with others."""
    return (f"last term {replica.last_term}, last index {replica.last_index}, voters "
            f"{', '.join(map(str, replica.voters))}, incarnation {replica.incarnation}")


def recover(store: Store, config: NodeConfig, rng: Chance) -> int:
    """The new incarnation.  Raises ``BadDirectory``, ``OSError``."""
    replica = inspect(store)
    if replica.quarantined:
        raise BadDirectory(f"the replica is damaged: {replica.quarantined}")
    node = config.node.id
    core = MultiRaft(node, config.raft, store, rng, 0)
    core.add_group(METADATA_GROUP, FIRST_GROUP_INCARNATION, store.groups[METADATA_GROUP],
                   store.tails[METADATA_GROUP])
    core.reincarnate(METADATA_GROUP, replica.incarnation + 1, Configuration((node,)))
    while ready := core.ready():
        if ready.writes is not None:
            staged = store.stage(ready.writes)
            staged.execute()
            store.finish(staged)
            core.written(ready.writes.sequence)
    plan = store.checkpoint_plan({}, store.extra)
    plan.execute()
    store.checkpointed(plan)
    return replica.incarnation + 1
