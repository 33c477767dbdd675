"""Faults that end or stop a process: power loss, kill, pause, and crashes at a chosen moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.simulator.faults.injector import Fault, Injector
from chaos.simulator.node.node import RECOVERY_US

if TYPE_CHECKING:
    from chaos.simulator.node.node import SimulatedNode

#: A crash midway happens within so many effects; a round has 5 to 50.
MIDWAY_EFFECTS_MAX = 40


def power_loss(injector: Injector) -> None:
    """Take the power of a random node, which starts again after a while; uncounted when it was not
    alive."""
    if not injector.crash(injector.draw_node(), power=True):
        injector.uncount("power-loss")


def kill(injector: Injector) -> None:
    """Kill the process of a random node, which starts again after a while; uncounted when it was
    not alive."""
    if not injector.crash(injector.draw_node(), power=False):
        injector.uncount("kill")


def crash_in_write(injector: Injector) -> None:
    """Crash a random node during its next disk operation.  Counted when it happens."""
    injector.uncount("crash-in-write")
    node, power = injector.draw_node(), injector.rng.random() < 0.5
    node.fail_points.arm_disk_action(lambda: _crash_in_write(injector, node, power))


def _crash_in_write(injector: Injector, node: SimulatedNode, power: bool) -> None:
    """Crash a node, by a power loss or a kill, and count the fault if the node was alive."""
    injector.world.faults["crash-in-write"] += injector.crash(node, power)


def double_crash(injector: Injector) -> None:
    """Crash a random node during a disk operation, and take its power early in the next boot.

    Recovery must have made the result of the first crash durable.  Counted when it happens.
    """
    injector.uncount("double-crash")
    node, power = injector.draw_node(), injector.rng.random() < 0.3
    node.fail_points.arm_disk_action(lambda: _crash_twice(injector, node, power))


def _crash_twice(injector: Injector, node: SimulatedNode, power: bool) -> None:
    """Crash a node, start it again, and take its power early in that boot; no-op after the end of
    the faults."""
    if not injector.is_running:
        return
    injector.world.faults["double-crash"] += injector.crash(node, power)
    injector.world.queue.after(1000, injector.if_running, node.start)
    second_us = 1000 + RECOVERY_US + injector.rng.randrange(1, 3000)
    injector.world.queue.after(second_us, injector.if_running, injector.crash, node, True)


def crash_midway(injector: Injector) -> None:
    """Crash a random node between two effects of a round or of its next recovery.  Counted when it
    happens."""
    injector.uncount("crash-midway")
    node = injector.draw_node()
    effects = injector.rng.randrange(1, MIDWAY_EFFECTS_MAX)
    power = injector.rng.random() < 0.7
    injector.trace(node.node, f"crash after {effects} effects")
    injector.arm_crash(node, "crash-midway", effects, power)


def cluster_power(injector: Injector) -> None:
    """Take the power of all nodes at once; each is started again after a random time of its own.
    Uncounted when none was alive."""
    injector.trace(0, "power loss everywhere")
    if not any(node.alive for node in injector.world.nodes.values()):
        injector.uncount("cluster-power")
    for _, node in sorted(injector.world.nodes.items()):
        if node.alive:
            node.crash(power=True)
            injector.heal_later(node.start)


def pause(injector: Injector) -> None:
    """Stop the process of a random node for a while; uncounted when it is not alive or already
    paused."""
    node = injector.draw_node()
    if not node.alive or node.paused:
        injector.uncount("pause")
        return
    injector.trace(node.node, "pause")
    node.pause()
    injector.heal_later(node.resume)


FAULTS: dict[str, Fault] = {
    "power-loss": power_loss,
    "kill": kill,
    "crash-in-write": crash_in_write,
    "double-crash": double_crash,
    "crash-midway": crash_midway,
    "cluster-power": cluster_power,
    "pause": pause,
}
