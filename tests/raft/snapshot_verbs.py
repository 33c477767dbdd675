"""Verbs of the interaction scripts about compaction and snapshots."""

from __future__ import annotations

from multiraft.raft.messages import SnapshotOffer
from tests.datadriven import Command


class SnapshotVerbs:
    """Mixed into ``Interaction``."""

    def do_compact(self, command: Command) -> list[str]:
        """compact n1 g1 first=4: storage forgets the entries before; they are applied."""
        node, group = self.nodes[command.node()], command.group()
        first = command.number("first", 1)
        node.store.save_applied(group, node.core.status.of(group).applied_index)
        node.store.compact(group, first)
        node.core.compacted(group, first)
        return ["ok"]

    def do_offer(self, command: Command) -> None:
        """offer from=n1 to=n3 g1 first=4 term=1: a late offer arrives."""
        self.arrive(command.optional_node("from"), command.optional_node("to"),
                    SnapshotOffer(command.group(0), 1, command.number("term", 1),
                                  command.number("first", 1)))

    def do_image(self, command: Command) -> list[str]:
        """image n1 g1: what n1 has applied is taken down, for an ``install`` that comes later."""
        node, group = self.nodes[command.node()], command.group()
        node.images[group] = node.core.snapshot_point(group)
        bounds = node.images[group][0]
        return [f"n{node.id} g{group} image at {bounds.last_index}@{bounds.prev_term}"]

    def do_begin(self, command: Command) -> list[str] | None:
        """begin n3 g1 n1: the driver of n3 has fetched the ``image`` of n1, and begins to make it
        durable; ``install n3 g1 n1 image`` ends that."""
        node, group = self.nodes[command.node()], command.group()
        bounds, _, _ = self.nodes[int(command.arguments[2].removeprefix("n"))].images[group]
        begun = node.core.begin_install(group, bounds.last_index, bounds.prev_term)
        self.drain(node)
        return None if begun else ["not now"]

    def do_install(self, command: Command) -> list[str] | None:
        """install n3 g1 n1 [image]: the driver of n3 fetches what n1 has applied, or had applied
        when it took its ``image``, and installs it."""
        node, group = self.nodes[command.node()], command.group()
        source = self.nodes[int(command.arguments[2].removeprefix("n"))]
        if "image" in command.arguments:
            bounds, index, configuration = source.images[group]
        else:
            bounds, index, configuration = source.core.snapshot_point(group)
        if not (node.core.status.is_installing(group)
                or node.core.may_install(group, bounds.last_index, bounds.prev_term)):
            return ["not now"]
        node.store.install(group, bounds, index, configuration)
        node.core.install_snapshot(group, bounds, index, configuration, node.tails[group])
        self.drain(node)
        return None
