"""Verbs of the golden scripts about the health of a replica."""

from __future__ import annotations

from multiraft.raft.messages import HeadRecoveryGrant
from tests.datadriven import Command


class HealthVerbs:
    """Mixed into ``Interaction``."""

    def do_quarantine(self, command: Command) -> None:
        """quarantine n1 g1 why: the replica is damaged."""
        node = self.nodes[command.node()]
        node.core.repair.quarantine(command.group(), " ".join(command.arguments[2:]))
        self.drain(node)

    def do_recover_head(self, command: Command) -> None:
        """recover-head n1 g1: the replica follows, and asks its leader for a barrier."""
        node = self.nodes[command.node()]
        node.core.repair.begin_head_recovery(command.group())
        self.drain(node)

    def do_repaired(self, command: Command) -> None:
        """repaired n1 g1: the store has recorded that nothing is missing."""
        node = self.nodes[command.node()]
        node.core.repair.repaired(command.group())
        self.drain(node)

    def do_grant(self, command: Command) -> None:
        """grant from=n1 to=n3 g1 index=4 [term=1] [nonce=7]: a grant arrives; without ``nonce`` it
        names the recovery that is under way."""
        to, group = command.optional_node("to"), command.group(0)
        health = self.nodes[to].core._groups[group].health
        self.arrive(command.optional_node("from"), to, HeadRecoveryGrant(
            group, 1, command.number("term", 1), command.number("nonce", health.nonce),
            command.number("index", 1)))

    def do_health(self, command: Command) -> list[str]:
        """health n1 g1: state, reason and barrier."""
        health = self.nodes[command.node()].core._groups[command.group()].health
        why = f": {health.why}" if health.why else ""
        barrier = f", barrier {health.barrier.index}@{health.barrier.term}" \
            if health.barrier.index else ""
        return [f"{health.state.name.lower()}{why}{barrier}"]
