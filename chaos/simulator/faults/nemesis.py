"""Nemesis of the simulator: random faults, each of which is healed after a while.

Contract.  ``start`` begins, ``stop`` ends and heals all faults.  Each kind of fault is one method
``cause_*``.  Faults overlap freely: safety holds under any of them, and liveness, which needs a
quorum, is checked only after ``stop``.  ``Simulation.faults`` counts the faults by kind.  A strike
that finds no target is not counted, and an armed fault is counted when it happens.

Elsewhere.  Kinds, rates and durations of a seed: parameters.py.  Loss, duplication and reordering
of single frames: network.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from chaos.simulator.clients.workload import CLIENT_BASE, READER_BASE
from chaos.simulator.env.network import Link
from chaos.simulator.faults.rebalance import Moves
from chaos.simulator.node.node import RECOVERY_US, SimulatedNode

if TYPE_CHECKING:
    from chaos.simulator.simulation import Simulation

#: A crash midway happens within so many effects; a round has 5 to 50.
MIDWAY_EFFECTS_MAX = 40
#: Slowdown of a slow disk.
SLOW_DISK_FACTOR = 50
#: Delay added to each frame of a clogged link.
CLOG_US = 300_000
#: A disk error strikes one of the next operations, at most so many.
ERROR_OPERATIONS_MAX = 12
#: Range of the rate of a node's clock, and maximum of its jump ahead.
CLOCK_RATES = (0.9, 1.1)
CLOCK_JUMP_US_MAX = 5_000_000
#: Channels between two nodes, each with connections of its own.
CHANNELS = ("append", "liveness", "bulk")


class Nemesis(Moves):
    """Draw a fault, cause it, and schedule its end."""

    def __init__(self, world: Simulation, rng: random.Random):
        self._world = world
        self._rng = rng
        self._running = False
        self._heals: dict[int, Callable[[], None]] = {}
        self._heal_count = 0

    def start(self) -> None:
        self._running = True
        if self._world.parameters.faults:
            self._schedule()

    def stop(self) -> None:
        """Cause no more faults, and heal the open ones in the order in which they began."""
        self._running = False
        for number in sorted(self._heals):
            self._heals.pop(number)()

    def _schedule(self) -> None:
        mean_us = self._world.parameters.fault_interval_ms * 1000
        self._world.queue.after(1 + int(self._rng.expovariate(1 / mean_us)), self._strike)

    def _strike(self) -> None:
        if not self._running:
            return
        kind = self._rng.choice(self._world.parameters.faults)
        self._world.faults[kind] += 1
        getattr(self, "cause_" + kind.replace("-", "_"))()
        self._schedule()

    def _lasting(self, heal: Callable[[], None]) -> None:
        """Heal a fault after a random time, or at ``stop`` if that is sooner."""
        self._heal_count += 1
        number = self._heal_count
        self._heals[number] = heal
        mean_us = self._world.parameters.fault_duration_ms * 1000
        self._world.queue.after(1 + int(self._rng.expovariate(1 / mean_us)), self._heal, number)

    def _heal(self, number: int) -> None:
        heal = self._heals.pop(number, None)
        if heal is not None:
            heal()

    def _node(self) -> SimulatedNode:
        return self._world.nodes[self._rng.choice(sorted(self._world.nodes))]

    def _not_done(self, kind: str) -> None:
        """Subtract a strike that found no target, or that is counted later."""
        self._world.faults[kind] -= 1

    def _say(self, node: int, text: str) -> None:
        self._world.trace.line(node, -1, "fault", text)

    # ---- nodes -----------------------------------------------------------------------------

    def cause_power_loss(self) -> None:
        if not self._crash(self._node(), power=True):
            self._not_done("power-loss")

    def cause_kill(self) -> None:
        if not self._crash(self._node(), power=False):
            self._not_done("kill")

    def _crash(self, node: SimulatedNode, power: bool) -> bool:
        """Crash a node; False if it was not alive."""
        if not node.alive:
            return False
        self._say(node.node, "power loss" if power else "kill")
        node.crash(power)
        self._lasting(node.start)
        return True

    def cause_crash_in_write(self) -> None:
        """Crash during the next disk operation.  Counted when it happens."""
        self._not_done("crash-in-write")
        node, power = self._node(), self._rng.random() < 0.5
        node.ambush(lambda: self._crash_in_write(node, power))

    def _crash_in_write(self, node: SimulatedNode, power: bool) -> None:
        self._world.faults["crash-in-write"] += self._crash(node, power)

    def cause_double_crash(self) -> None:
        """Crash during a write, and lose the power early in the next boot.

        Recovery must have made the result of the first crash durable.  Counted when it happens.
        """
        self._not_done("double-crash")
        node, power = self._node(), self._rng.random() < 0.3
        node.ambush(lambda: self._crash_twice(node, power))

    def _crash_twice(self, node: SimulatedNode, power: bool) -> None:
        if not self._running:
            return
        self._world.faults["double-crash"] += self._crash(node, power)
        self._world.queue.after(1000, self._if_running, node.start)
        second_us = 1000 + RECOVERY_US + self._rng.randrange(1, 3000)
        self._world.queue.after(second_us, self._if_running, self._crash, node, True)

    def _if_running(self, action: Callable[..., None], *arguments: object) -> None:
        if self._running:
            action(*arguments)

    def cause_crash_midway(self) -> None:
        """Crash between two effects of a round or of the next recovery.  Counted when it happens.
        """
        self._not_done("crash-midway")
        node = self._node()
        effects = self._rng.randrange(1, MIDWAY_EFFECTS_MAX)
        power = self._rng.random() < 0.7
        self._say(node.node, f"crash after {effects} effects")
        self._arm_crash(node, "crash-midway", effects, power)

    def _arm_crash(self, node: SimulatedNode, kind: str, effects: int, power: bool) -> None:
        """Arm a crash; the node is started again some time after it."""
        node.arm_crash(effects, power, lambda: self._struck(node, kind))

    def _struck(self, node: SimulatedNode, kind: str) -> None:
        self._world.faults[kind] += 1
        self._lasting(node.start)

    def cause_cluster_power(self) -> None:
        self._say(0, "power loss everywhere")
        if not any(node.alive for node in self._world.nodes.values()):
            self._not_done("cluster-power")
        for _, node in sorted(self._world.nodes.items()):
            if node.alive:
                node.crash(power=True)
                self._lasting(node.start)

    def cause_pause(self) -> None:
        node = self._node()
        if not node.alive or node.paused:
            self._not_done("pause")
            return
        self._say(node.node, "pause")
        node.pause()
        self._lasting(node.resume)

    @staticmethod
    def _acts(node: SimulatedNode) -> bool:
        """True if the node has recovered and is not paused."""
        return node.is_up and not node.paused

    def cause_bit_rot(self) -> None:
        """Flip a durable bit; a scrub or a restart finds it."""
        node, atlas = self._node(), self._world.atlas
        atlas.refresh()
        rot = atlas.choose(node.node, node.durable_places()) if self._acts(node) else None
        if rot is None:
            self._not_done("bit-rot")
            return
        atlas.note(node.node, rot)
        self._say(node.node, f"rot of {rot.place} at {rot.byte}")
        node.rot(rot.place.path, rot.byte, self._rng.randrange(8))
        self._find_damage(node)

    def _find_damage(self, node: SimulatedNode) -> None:
        """Restart the node or schedule a scrub, at random."""
        if self._rng.random() < 0.5:
            self._crash(node, power=self._rng.random() < 0.5)
        else:
            node.scrub_soon()

    def cause_misdirected(self) -> None:
        """Turn a durable write into one that went to another position or file.

        Its own place holds none of it, and the bytes in the other place are overwritten.
        """
        node, atlas = self._node(), self._world.atlas
        atlas.refresh()
        write = atlas.misdirect(node.node, node.durable_places()) if self._acts(node) else None
        if write is None:
            self._not_done("misdirected")
            return
        atlas.note_lost(node.node)
        self._say(node.node, f"{write.place} went to {write.to_path} at {write.to}")
        node.misdirect(write)
        self._find_damage(node)

    def cause_rot_beside(self) -> None:
        """Flip a bit of an index file, which is a cache: no damage may be reported for it.

        Where segments are damaged as well, the index file may be the only record of the end of a
        log.  Its node then has a recovering head again, which is allowed on one node at a time.
        """
        node, atlas = self._node(), self._world.atlas
        files = node.index_files() if self._acts(node) else {}
        if not files or (node.rotten and not atlas.may_lose(node.node)):
            self._not_done("rot-beside")
            return
        if node.rotten:
            atlas.note_lost(node.node)
        path = self._rng.choice(sorted(files))
        at = self._rng.randrange(len(files[path]))
        self._say(node.node, f"rot of {path} at {at}")
        node.rot_beside(path, at, self._rng.randrange(8))
        self._find_damage(node)

    def cause_disk_slow(self) -> None:
        node = self._node()
        self._say(node.node, "slow disk")
        node.slow_disk(SLOW_DISK_FACTOR)
        self._lasting(lambda: node.slow_disk(1))

    def cause_disk_hung(self) -> None:
        """Complete no disk operation for seconds; the network continues to work."""
        node = self._node()
        self._say(node.node, "hung disk")
        node.hang_disk()
        self._lasting(node.release_disk)

    def cause_eio_write(self) -> None:
        """Fail one of the next writes.  Counted when the write fails (disk/faults.py)."""
        self._not_done("eio-write")
        node, writes = self._node(), self._rng.randrange(1, ERROR_OPERATIONS_MAX)
        self._say(node.node, f"write {writes} fails")
        node.arm_write_error(writes)

    def cause_eio_sync(self) -> None:
        """Fail one of the next syncs.  Counted when the sync fails."""
        self._not_done("eio-sync")
        node, syncs = self._node(), self._rng.randrange(1, ERROR_OPERATIONS_MAX)
        self._say(node.node, f"sync {syncs} fails")
        node.arm_sync_error(syncs)

    def cause_disk_full(self) -> None:
        """Take nearly all disk space, like another program.

        None is left, or little more than the limit below which the node refuses records.
        """
        node = self._node()
        left = int(self._rng.random() ** 2 * self._world.parameters.disk.reserved_bytes / 2)
        self._say(node.node, f"{left} bytes of room left")
        node.fill_disk(left)
        self._lasting(node.free_disk)

    def cause_clock_drift(self) -> None:
        """Run a clock fast or slow until its next drift, some after a jump ahead."""
        node, rate = self._node(), self._rng.uniform(*CLOCK_RATES)
        jump_us = self._rng.randrange(CLOCK_JUMP_US_MAX) if self._rng.random() < 0.3 else 0
        self._say(node.node, f"clock at {rate:.3f}, {jump_us / 1e6:.3f} s ahead")
        node.clock.drift(rate, jump_us)
        node.clock_changed()

    # ---- network ---------------------------------------------------------------------------

    def _block(self, links: list[Link], text: str) -> None:
        self._say(0, text)
        self._world.network.block(links)
        self._lasting(lambda: self._world.network.unblock(links))

    def cause_partition_one(self) -> None:
        one = self._node().node
        others = [node for node in sorted(self._world.nodes) if node != one]
        self._block([link for other in others for link in ((one, other), (other, one))],
                    f"n{one} is cut off")

    def cause_partition_halves(self) -> None:
        nodes = sorted(self._world.nodes)
        self._rng.shuffle(nodes)
        cut = self._rng.randrange(1, len(nodes))
        left, right = nodes[:cut], nodes[cut:]
        self._block([link for a in left for b in right for link in ((a, b), (b, a))],
                    f"partition {sorted(left)} | {sorted(right)}")

    def cause_partition_one_way(self) -> None:
        nodes = sorted(self._world.nodes)
        sender, to = self._rng.sample(nodes, 2)
        links = [(sender, to)]
        if self._rng.random() < 0.5:
            links = [(sender, other) for other in nodes if other != sender]
        self._block(links, f"one way cut {links}")

    def cause_majorities_ring(self) -> None:
        """Let each node hear a majority, no two nodes the same one (Jepsen)."""
        ring = sorted(self._world.nodes)
        self._rng.shuffle(ring)
        heard = len(ring) // 2
        links = []
        for place, node in enumerate(ring):
            hears = {ring[(place + step) % len(ring)] for step in range(heard + 1)}
            links += [(other, node) for other in ring if other not in hears]
        self._block(links, f"majorities ring {ring}")

    def cause_bridge(self) -> None:
        """Partition the nodes into two halves, and one node that reaches both (Jepsen)."""
        nodes = sorted(self._world.nodes)
        self._rng.shuffle(nodes)
        half = len(nodes) // 2
        left, right = nodes[:half], nodes[half + 1:]
        self._block([link for a in left for b in right for link in ((a, b), (b, a))],
                    f"{sorted(left)} | {sorted(right)}, n{nodes[half]} sees both")

    def cause_client_cut(self) -> None:
        """Cut clients off from some nodes; the nodes still reach each other."""
        workload = self._world.parameters.workload
        clients = [CLIENT_BASE + number for number in range(workload.producers + 1)]
        clients += [READER_BASE + number for number in range(workload.readers)]
        nodes = sorted(self._world.nodes)
        cut = self._rng.sample(nodes, self._rng.randrange(1, len(nodes) + 1))
        ways = self._rng.choice(("requests", "answers", "both"))
        links = []
        if ways != "answers":
            links += [(client, node) for client in clients for node in cut]
        if ways != "requests":
            links += [(node, client) for client in clients for node in cut]
        self._block(links, f"{ways} between clients and {sorted(cut)} are lost")

    def cause_channel_cut(self) -> None:
        """Cut one channel between two nodes; their other channels work."""
        a, b = self._rng.sample(sorted(self._world.nodes), 2)
        channel = self._rng.choice(CHANNELS)
        links = [(a, b, channel)] + [(b, a, channel)] * (self._rng.random() < 0.5)
        self._block(links, f"{channel} cut {links}")

    def cause_isolate_leader(self) -> None:
        """Cut the leader of a hot group off from all nodes, but not from its clients.

        It appends entries that will be truncated, while the other voters elect a leader.
        """
        group = self._rng.choice(sorted(self._world.witness.groups)[:3])
        for number, node in sorted(self._world.nodes.items()):
            if node.leads(group):
                others = [other for other in sorted(self._world.nodes) if other != number]
                self._block([(number, other) for other in others]
                            + [(other, number) for other in others],
                            f"n{number} leads g{group} and is cut off")
                return
        self._not_done("isolate-leader")

    def cause_clog(self) -> None:
        """Make links slow together, and fast again one by one (swizzle-clog, FoundationDB)."""
        nodes = sorted(self._world.nodes)
        links = [(a, b) for a in nodes for b in nodes if a != b and self._rng.random() < 0.4]
        if not links:
            self._not_done("clog")
        self._say(0, f"clog {links}")
        self._world.network.clog(links, CLOG_US)
        for link in links:
            self._unclog_later([link])

    def _unclog_later(self, links: list[Link]) -> None:
        self._lasting(lambda: self._world.network.unclog(links))

    def cause_disconnect(self) -> None:
        """Break a connection and make it again at once; frames under way may be lost."""
        a, b = self._rng.sample(sorted(self._world.nodes), 2)
        if not (self._world.nodes[a].is_up or self._world.nodes[b].is_up):
            self._not_done("disconnect")
        self._say(0, f"disconnect n{a} n{b}")
        for node, peer in ((a, b), (b, a)):
            self._world.nodes[node].reconnect(peer)

    # ---- leadership ------------------------------------------------------------------------

    def cause_members(self) -> None:
        """Change members of groups: add learners, promote them, remove voters."""
        node = self._node()
        if not self._leads(node):
            self._not_done("members")
        if node.alive:
            node.change_some(self._rng)

    def cause_return(self) -> None:
        """Remove a voter and add it again as fast as its leader can, while its old messages are
        under way.
        """
        node, peer = self._rng.sample(sorted(self._world.nodes), 2)
        if not self._leads(self._world.nodes[node]):
            self._not_done("return")
        if self._world.nodes[node].alive:
            self._say(peer, f"removed and added again by n{node}")
            self._world.network.clog([(peer, node)], CLOG_US)
            self._unclog_later([(peer, node)])
            self._world.nodes[node].return_some(peer, self._rng)

    def cause_transfer(self) -> None:
        node = self._node()
        if not self._leads(node):
            self._not_done("transfer")
        if node.alive:
            node.transfer_some(self._rng)

    def _leads(self, node: SimulatedNode) -> bool:
        """True if the node leads a group, so that it can transfer leadership or change members."""
        return self._acts(node) and bool(node.led_groups())
