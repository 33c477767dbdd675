"""Faults of groups: changes of members, and transfers of leadership."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.faults import LEADERS, MEMBERS
from chaos.simulator.faults.injector import Injector, is_active
from chaos.simulator.faults.network import CLOG_US
from chaos.simulator.faults.registry import fault

if TYPE_CHECKING:
    from chaos.simulator.node.node import SimulatedNode


def _leads_any(node: SimulatedNode) -> bool:
    """True if the node leads a group, so that it can transfer leadership or change members."""
    return is_active(node) and bool(node.view.led_groups())


@fault(MEMBERS.kind)
def members(injector: Injector) -> bool:
    """Change members of groups that a random node leads: add learners, promote them, remove voters.
    Return False when it leads none."""
    node = injector.draw_node()
    leads = _leads_any(node)
    if is_active(node):
        node.boot.membership.change_some(injector.rng)
    return leads
@fault("return")
def return_voter(injector: Injector) -> bool:
    """Let a random node remove a voter and add it again as fast as it can, while that voter's old
    messages are under way. Return False when the node leads no group."""
    number, peer = injector.rng.sample(sorted(injector.world.nodes), 2)
    node = injector.world.nodes[number]
    leads = _leads_any(node)
    if node.alive:
        injector.trace(peer, f"removed and added again by n{number}")
        injector.world.network.clog([(peer, number)], CLOG_US)
        injector.unclog_later([(peer, number)])
    if is_active(node):
        node.boot.membership.return_some(peer, injector.rng)
    return leads
@fault(LEADERS.kind)
def transfer(injector: Injector) -> bool:
    """Let a random node transfer or resign the leadership of a group that it leads. Return False
    when it leads none."""
    node = injector.draw_node()
    leads = _leads_any(node)
    if is_active(node):
        node.boot.leadership.transfer_some(injector.rng)
    return leads
