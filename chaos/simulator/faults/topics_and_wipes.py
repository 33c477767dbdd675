"""Faults that end nodes and topics permanently, and replace them.

Contract.  A strike that finds no target is not counted.
"""

from __future__ import annotations

from chaos.simulator.faults.injector import Fault, Injector


def wipe(injector: Injector) -> None:
    """Wipe the directory of a random node permanently; a new node replaces it. Uncounted when no
    node may be lost."""
    nodes = [node for _, node in sorted(injector.world.nodes.items())
             if injector.world.replacements.may_wipe(node)]
    if nodes:
        injector.world.replacements.wipe(injector.rng.choice(nodes))
    else:
        injector.uncount("wipe")


def older_copy(injector: Injector) -> None:
    """Replace a directory by an older copy of itself and start it repeatedly, or start such a copy
    beside the original. Uncounted without a usable copy."""
    if not injector.world.restored_copies.strike():
        injector.uncount("older-copy")


def topic_create(injector: Injector) -> None:
    """Request the creation of a topic; uncounted when there is the maximum of them."""
    if not injector.world.topics.create():
        injector.uncount("topic-create")


def topic_delete(injector: Injector) -> None:
    """Request the deletion of a random topic while clients append to it; uncounted when there is
    none."""
    if not injector.world.topics.delete():
        injector.uncount("topic-delete")


def topic_recreate(injector: Injector) -> None:
    """Request the deletion of a random topic, and the creation of another one of its name at once;
    uncounted when there is none."""
    if not injector.world.topics.recreate():
        injector.uncount("topic-recreate")


FAULTS: dict[str, Fault] = {
    "wipe": wipe,
    "older-copy": older_copy,
    "topic-create": topic_create,
    "topic-delete": topic_delete,
    "topic-recreate": topic_recreate,
}
