"""Verbs of the golden scripts about members of a group and linearizable reads."""

from __future__ import annotations

from multiraft.errors import ProposalError
from multiraft.raft import describe
from multiraft.raft.log_state import NullLogState
from multiraft.types import Configuration
from tests.datadriven import Command


def nodes_of(command: Command, name: str) -> tuple[int, ...]:
    """The option ``name=n1,n2`` as (1, 2)."""
    return tuple(int(word[1:]) for word in command.options.get(name, "").split(",") if word)


class MemberVerbs:
    """Part of ``Interaction``."""

    def do_change(self, command: Command) -> None:
        """change n1 g1 voters=n1,n2 [learners=n4]: n1 begins to make these the members."""
        node = self.nodes[command.node()]
        try:
            proposed = node.core.change_members(command.group(), nodes_of(command, "voters"),
                                                nodes_of(command, "learners"))
        except ProposalError as error:
            self.lines.append(f"refused: {type(error).__name__}: {error}")
        else:
            self.lines.append(f"n{node.id} g{command.group()} accepts {proposed.index}"
                              f"@{proposed.term}")
        self.drain(node)

    def do_join(self, command: Command) -> None:
        """join n4 g1 [incarnation=1]: an empty replica, as a node makes it when it is wanted."""
        node, group = self.nodes[command.node()], command.group()
        node.store.create_group(group, 1, Configuration(()))
        node.tails.pop(group, None)
        node.core.add_group(group, 1, node.store.created(group), NullLogState())
        self.drain(node)

    def do_read(self, command: Command) -> None:
        """read n1 g1 a b: linearizable reads with these names."""
        node = self.nodes[command.node()]
        for token in command.arguments[2:]:
            try:
                node.core.read_index(command.group(), token)
            except ProposalError as error:
                self.lines.append(f"refused: {type(error).__name__}: {error}")
        self.drain(node)

    def do_reincarnate(self, command: Command) -> None:
        """reincarnate n1 g1 incarnation=2 voters=n1: forced recovery from that replica."""
        node = self.nodes[command.node()]
        node.core.repair.reincarnate(command.group(), command.number("incarnation", 2),
                                     Configuration(nodes_of(command, "voters")))
        self.drain(node)

    def do_configuration(self, command: Command) -> list[str]:
        """configuration [n1] g1: who counts, as the replicas see it."""
        nodes = [int(word[1:]) for word in command.arguments if word[0] == "n"]
        group = next(int(word[1:]) for word in command.arguments if word[0] == "g")
        lines = []
        for node in self.alive():
            if group in node.core.status.groups() and (not nodes or node.id in nodes):
                status = node.core.status.of(group)
                lines.append(f"n{node.id} {describe.configuration(status.configuration)} "
                             f"(at {status.configuration_index})")
        return lines

    def do_remove_member(self, command: Command) -> None:
        """remove-member n3 g1: that node removes its replica, as after a notice; the tombstone is
        written."""
        node = self.nodes[command.node()]
        node.core.remove_group(command.group())
        self.drain(node)
