"""Forced recovery of the metadata group, on the data directory of a node that does not run.

Contract. ``inspect`` describes the replica and changes nothing. ``recover`` makes the replica the
only voter of a new incarnation, durably, and writes a checkpoint. One directory cannot show that
the majority of the group is really lost; the operator has to know it (docs/decisions/0007).

Theory. Incarnations and ids that the lost commands allocated are in use: other groups hold records
of topics, and states of producers, that the recovered metadata do not know. A new partition with
the incarnation of such a topic would begin with its records. A producer with the id of another
would have its first batches taken for duplicates. Therefore as many of both as may have been
allocated are used up, by ordinary commands, which all nodes of all releases apply alike and which
change no other state. As many metadata indexes are used up too, because a client that has seen a
lost index asks nodes to wait for it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import NamedTuple

from multiraft.errors import QueueFull
from multiraft.raft.context import RandomSource
from multiraft.raft.multi_raft import MultiRaft
from multiraft.storage.store import Store
from multiraft.types import METADATA_GROUP, Configuration, EntryKind
from node.config import NodeConfig
from node.errors import BadDirectory
from node.metadata.commands import PARTITIONS_PER_TOPIC_MAX, PRODUCER_IDS_PER_BLOCK_MAX
from node.metadata.state_machine import (
    FIRST_GROUP_INCARNATION,
    AllocateProducerIds,
    Command,
    CreateTopic,
    DeleteTopic,
    encode_command,
)

#: Topics of the largest size that are created and deleted, to use up incarnations: a node applies
#: each in 0.2 s.
TOPICS_USED_UP = 2
#: Blocks of producer ids that are used up. Each is an entry, so as many indexes are used up too.
BLOCKS_USED_UP = 4096


class Replica(NamedTuple):
    """The metadata replica of this node, as an operator compares it with others."""

    last_term: int
    last_index: int
    applied: int
    voters: tuple[int, ...]
    incarnation: int
    quarantined: str


def inspect(store: Store) -> Replica:
    """Return the description of the replica. Raises ``BadDirectory`` if there is none."""
    restored = store.groups.get(METADATA_GROUP)
    if restored is None:
        raise BadDirectory("there is no replica of the metadata group in this directory")
    configuration = [restored.configuration, *[after for _, after in restored.changes]][-1]
    last_term = restored.term_runs[-1][1] if restored.term_runs else restored.bounds.prev_term
    return Replica(last_term, restored.bounds.last_index, restored.applied, configuration.voters,
                   restored.incarnation or FIRST_GROUP_INCARNATION, restored.quarantined)


#: Output without the flag.
NOT_ACCEPTED = ("dry run: nothing was changed. If the majority of these voters is lost "
                "permanently, use --accept-data-loss")


def told(replica: Replica) -> str:
    """Return the replica in one line, for people who compare it with others."""
    return (f"last term {replica.last_term}, last index {replica.last_index}, voters "
            f"{', '.join(map(str, replica.voters))}, incarnation {replica.incarnation}")


def recover(store: Store, config: NodeConfig, rng: RandomSource) -> int:
    """Make this replica the only voter of the metadata group's next incarnation, durably, and
    return that incarnation. Raises ``BadDirectory`` for a missing or damaged replica, ``OSError``
    if the disk fails."""
    replica = inspect(store)
    if replica.quarantined:
        raise BadDirectory(f"the replica is damaged: {replica.quarantined}")
    node = config.node.id
    core = MultiRaft(node, config.raft, store, rng, 0)
    core.add_group(METADATA_GROUP, FIRST_GROUP_INCARNATION, store.groups[METADATA_GROUP],
                   store.partition_states[METADATA_GROUP])
    core.repair.reincarnate(METADATA_GROUP, replica.incarnation + 1, Configuration((node,)))
    _write(core, store)
    job = store.checkpoint_job({}, store.extra)
    job.execute()
    store.checkpointed(job)
    _use_up(core, store)  # after the checkpoint, which would need the state that follows
    return replica.incarnation + 1


def _use_up(core: MultiRaft, store: Store) -> None:
    """Elect this node as leader of the new incarnation, and append the commands that use up
    producer ids and topic incarnations, which lost entries may have granted. The next start applies
    them."""
    while not core.status.is_leader(METADATA_GROUP):
        deadline_ms = core.next_deadline_ms()
        assert deadline_ms is not None
        core.tick(deadline_ms)
        _write(core, store)
    for command in map(encode_command, _commands()):
        try:
            core.propose(METADATA_GROUP, EntryKind.METADATA, command)
        except QueueFull:  # the only voter commits what it writes
            _write(core, store)
            core.propose(METADATA_GROUP, EntryKind.METADATA, command)
    _write(core, store)


def _commands() -> Iterator[Command]:
    for _ in range(BLOCKS_USED_UP):
        yield AllocateProducerIds(PRODUCER_IDS_PER_BLOCK_MAX)
    for _ in range(TOPICS_USED_UP):
        topic_id = uuid.uuid4()
        name = f"__recovered-{topic_id.hex}"
        yield CreateTopic(name, topic_id.bytes, PARTITIONS_PER_TOPIC_MAX)
        yield DeleteTopic(name, topic_id.bytes)


def _write(core: MultiRaft, store: Store) -> None:
    """Write everything that the core has to write, and report it as durable and committed, until
    nothing is left. Raises ``OSError`` if a write or sync fails."""
    while ready := core.ready():
        if ready.writes is not None:
            staged = store.stage(ready.writes)
            staged.execute()
            store.finish(staged)
            core.written(ready.writes.sequence)
        for group, _, last in ready.committed:
            core.applied(group, last)
