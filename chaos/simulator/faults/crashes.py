"""Faults that end or stop a process: power loss, kill, pause, and crashes at a chosen moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.faults import KILL, PAUSE, POWER_LOSS, STOP
from chaos.simulator.faults.injector import Injector
from chaos.simulator.faults.registry import fault
from chaos.simulator.node.node import RECOVERY_US

if TYPE_CHECKING:
    from chaos.simulator.node.node import SimulatedNode

#: A crash midway happens within so many effects; a round has 5 to 50.
MIDWAY_EFFECTS_MAX = 40


@fault(POWER_LOSS.kind)
def power_loss(injector: Injector) -> bool:
    """Take the power of a random node, which starts again after a while. Return False when it was
    not alive."""
    return injector.crash(injector.draw_node(), power=True)
@fault(KILL.kind)
def kill(injector: Injector) -> bool:
    """Kill the process of a random node, which starts again after a while; return False when it was
    not alive."""
    return injector.crash(injector.draw_node(), power=False)
@fault(STOP.kind)
def stop(injector: Injector) -> bool:
    """Stop the process of a random node in order; its supervisor starts it again. Return False when
    it does not serve or is paused."""
    return injector.draw_node().stop()


@fault("crash-in-write")
def crash_in_write(injector: Injector) -> bool:
    """Crash a random node during its next disk operation.  Counted when it happens."""
    node, power = injector.draw_node(), injector.rng.random() < 0.5
    node.fail_points.arm_disk_action(lambda: _crash_in_write(injector, node, power))
    return False


def _crash_in_write(injector: Injector, node: SimulatedNode, power: bool) -> None:
    """Crash a node, by a power loss or a kill, and count the fault if the node was alive."""
    injector.world.faults["crash-in-write"] += injector.crash(node, power)


@fault("double-crash")
def double_crash(injector: Injector) -> bool:
    """Crash a random node during a disk operation, and take its power early in the next boot.

    Recovery must have made the result of the first crash durable.  Counted when it happens.
    """
    node, power = injector.draw_node(), injector.rng.random() < 0.3
    node.fail_points.arm_disk_action(lambda: _crash_twice(injector, node, power))
    return False


def _crash_twice(injector: Injector, node: SimulatedNode, power: bool) -> None:
    """Crash a node, start it again, and take its power early in that boot; no-op after the end of
    the faults."""
    if not injector.is_running:
        return
    injector.world.faults["double-crash"] += injector.crash(node, power)
    injector.world.queue.after(1000, injector.if_running, node.start)
    second_us = 1000 + RECOVERY_US + injector.rng.randrange(1, 3000)
    injector.world.queue.after(second_us, injector.if_running, injector.crash, node, True)


@fault("crash-midway")
def crash_midway(injector: Injector) -> bool:
    """Crash a random node between two effects of a round or of its next recovery.  Counted when it
    happens."""
    node = injector.draw_node()
    effects = injector.rng.randrange(1, MIDWAY_EFFECTS_MAX)
    power = injector.rng.random() < 0.7
    injector.trace(node.node, f"crash after {effects} effects")
    injector.arm_crash(node, "crash-midway", effects, power)
    return False
@fault("cluster-power")
def cluster_power(injector: Injector) -> bool:
    """Take the power of all nodes at once; each is started again after a random time of its own.
    Return False when none was alive."""
    injector.trace(0, "power loss everywhere")
    alive = [node for _, node in sorted(injector.world.nodes.items()) if node.alive]
    for node in alive:
        node.crash(power=True)
        injector.heal_later(node.start)
    return bool(alive)
@fault(PAUSE.kind)
def pause(injector: Injector) -> bool:
    """Stop the process of a random node for a while; return False when it is not alive or already
    paused."""
    node = injector.draw_node()
    if not node.alive or node.paused:
        return False
    injector.trace(node.node, "pause")
    node.pause()
    injector.heal_later(node.resume)
    return True
