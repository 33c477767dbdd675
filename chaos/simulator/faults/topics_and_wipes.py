"""Faults that end nodes and topics permanently, and replace them.

Contract.  A strike that finds no target is not counted.
"""

from __future__ import annotations

from chaos.simulator.faults.injector import Injector
from chaos.simulator.faults.registry import fault


@fault("wipe")
def wipe(injector: Injector) -> bool:
    """Wipe the directory of a random node permanently; a new node replaces it. Return False when no
    node may be lost."""
    nodes = [node for _, node in sorted(injector.world.nodes.items())
             if injector.world.replacements.may_wipe(node)]
    if nodes:
        injector.world.replacements.wipe(injector.rng.choice(nodes))
    return bool(nodes)
@fault("older-copy")
def older_copy(injector: Injector) -> bool:
    """Replace a directory by an older copy of itself and start it repeatedly, or start such a copy
    beside the original. Return False without a usable copy."""
    return injector.world.restored_copies.strike()
@fault("topic-create")
def topic_create(injector: Injector) -> bool:
    """Request the creation of a topic; return False when there is the maximum of them."""
    return injector.world.topics.create()
@fault("topic-delete")
def topic_delete(injector: Injector) -> bool:
    """Request the deletion of a random topic while clients append to it; return False when there is
    none."""
    return bool(injector.world.topics.delete())
@fault("topic-recreate")
def topic_recreate(injector: Injector) -> bool:
    """Request the deletion of a random topic, and the creation of another one of its name at once;
    Return False when there is none."""
    return injector.world.topics.recreate()
@fault("topic-grow")
def topic_grow(injector: Injector) -> bool:
    """Request more partitions for a random topic while clients append to it and read it; return
    False when there is none that may grow."""
    return injector.world.topics.grow()
@fault("topic-settings")
def topic_settings(injector: Injector) -> bool:
    """Request other settings of a random topic, or of the cluster, while clients append."""
    return injector.world.topics.alter()
@fault("retention")
def retention(injector: Injector) -> bool:
    """Request other limits of retention of a random topic, or of the cluster, while clients append
    and read."""
    return injector.world.topics.alter_retention()
@fault("delete-records")
def delete_records(injector: Injector) -> bool:
    """Have a client delete records of partitions of a random group."""
    injector.world.deletions.strike()
    return True
