"""Faults of groups: changes of members, and transfers of leadership."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.simulator.faults.injector import Fault, Injector, is_active
from chaos.simulator.faults.network import CLOG_US

if TYPE_CHECKING:
    from chaos.simulator.node.node import SimulatedNode


def _leads_any(node: SimulatedNode) -> bool:
    """True if the node leads a group, so that it can transfer leadership or change members."""
    return is_active(node) and bool(node.view.led_groups())


def members(injector: Injector) -> None:
    """Change members of groups that a random node leads: add learners, promote them, remove voters.
    Uncounted when it leads none."""
    node = injector.draw_node()
    if not _leads_any(node):
        injector.uncount("members")
    if is_active(node):
        node.boot.membership.change_some(injector.rng)


def return_voter(injector: Injector) -> None:
    """Let a random node remove a voter and add it again as fast as it can, while that voter's old
    messages are under way. Uncounted when the node leads no group."""
    node, peer = injector.rng.sample(sorted(injector.world.nodes), 2)
    if not _leads_any(injector.world.nodes[node]):
        injector.uncount("return")
    if injector.world.nodes[node].alive:
        injector.trace(peer, f"removed and added again by n{node}")
        injector.world.network.clog([(peer, node)], CLOG_US)
        injector.unclog_later([(peer, node)])
        if is_active(injector.world.nodes[node]):
            injector.world.nodes[node].boot.membership.return_some(peer, injector.rng)


def transfer(injector: Injector) -> None:
    """Let a random node transfer or resign the leadership of a group that it leads. Uncounted when
    it leads none."""
    node = injector.draw_node()
    if not _leads_any(node):
        injector.uncount("transfer")
    if is_active(node):
        node.boot.leadership.transfer_some(injector.rng)


FAULTS: dict[str, Fault] = {
    "members": members,
    "return": return_voter,
    "transfer": transfer,
}
