"""One simulated node: the life of its process, over all its boots.

Contract.  ``SimulatedNode`` starts, crashes, pauses and resumes a process.  Each boot has parts of
its own (``boot.Boot``), which recovery builds anew; process, disk, damage, known peers and fail
points outlive it.

Theory.  A killed node keeps only its page cache.  A node that lost power keeps only what was
synced.
"""

from __future__ import annotations

import errno
import random
from typing import TYPE_CHECKING

from chaos.simulator.disk.filesystem import PowerLoss, SimulatedFilesystem
from chaos.simulator.env.clock import SkewedClock
from chaos.simulator.env.violations import Violation
from chaos.simulator.node.boot import Boot, NodeParts, Recovery
from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.machine.fail_points import FailPoints
from chaos.simulator.node.machine.page_cache import survives_power_loss
from chaos.simulator.node.machine.process import ProcessScheduler
from chaos.simulator.node.machine.round_queue import Channel, RoundQueue
from chaos.simulator.node.machine.simulated_disk import SimulatedDisk
from chaos.simulator.node.metadata.metadata_replica import UnreadableCommand
from chaos.simulator.node.peers.peers import PeerTable
from chaos.simulator.node.replicas.damage import DiskDamage
from chaos.simulator.node.view import NodeView
from multiraft.liveness import peer_identity
from multiraft.storage.disk_space import is_full
from multiraft.types import METADATA_GROUP

if TYPE_CHECKING:
    from chaos.simulator.ports import ClusterPort

#: Time until a process notices that a peer's process has ended.
HANG_UP_US = 100
#: Time from a peer's start to an append connection with it.
CONNECT_US = 2_000
#: Duration of recovery, which reads the disk.
RECOVERY_US = 20_000
#: At every other start, the last messages from before it arrive again within this time.
REPEAT_US = 500_000
#: Range of the delay after which a process that ended by itself is started again.
RESTART_US = (100_000, 2_000_000)


class SimulatedNode:
    """One node over all its boots."""

    def __init__(self, node: int, cluster: ClusterPort, voters: dict[int, tuple[int, ...]],
                 rng: random.Random):
        self.node = node
        self.env = NodeEnv(node, rng, cluster.queue, SkewedClock(cluster.queue), cluster.trace,
                           cluster.network, cluster.state_checker, cluster.parameters,
                           cluster.faults, cluster.event_counts)
        self.process = ProcessScheduler(cluster.queue, (PowerLoss, UnreadableCommand),
                                        self._on_fatal)
        self.disk = SimulatedDisk(self.env, self)
        self.damage = DiskDamage(self.disk)
        self.peers = PeerTable(self.env, cluster, self._is_connected)
        self.fail_points = FailPoints(rng, self.process, self.disk, self.crash)
        self.boot: Boot | None = None  # None = down, or recovering
        self.view = NodeView(node, lambda: self.boot)
        self._cluster = cluster
        self._rounds = RoundQueue(self.process, cluster.parameters.round_us)
        own = {group: members for group, members in voters.items() if node in members}
        self._recovery = Recovery(
            self.env, cluster, self,
            NodeParts(self.process, self.disk, self.damage, self.peers, self.fail_points), own)
        self._recovery_waits = False  # until a hung disk is released
        self._repeats = random.Random(f"{cluster.parameters.seed}/repeats {node}")

    # ---- state -----------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """True if the process runs, perhaps paused or still recovering."""
        return self.process.is_alive

    @property
    def paused(self) -> bool:
        """True if the process is stopped."""
        return self.process.is_paused

    @property
    def is_up(self) -> bool:
        """True if the node has recovered and accepts connections."""
        return self.boot is not None

    @property
    def is_whole(self) -> bool:
        """True if no damage is left on this node. A node that was damaged must be up, a scrub must
        have read its journal, and no replica may be under repair or quarantined."""
        return not self.damage.rotten or (self.boot is not None and self.boot.repair.is_whole)

    @property
    def has_recovered(self) -> bool:
        """True if the node is whole, and has started since its latest damage.

        From then on all of its copies and votes count.
        """
        return self.is_whole and not self.damage.unread

    # ---- start, crash, pause ---------------------------------------------------------------

    def start(self) -> None:
        """Start the process, which recovers after ``RECOVERY_US`` and is up then, unless its disk,
        its identity or its peers refuse it. No-op when it runs already."""
        if self.alive:
            return
        env = self.env
        self.process.begin()
        self._rounds = RoundQueue(self.process, env.parameters.round_us)
        self._recovery_waits = False
        env.trace_line("start")
        if env.faulty and self._repeats.random() < 0.5:
            env.network.repeat(self.node, self._repeats, REPEAT_US)
        self.fail_points.strike_in_files()
        self.process.later(RECOVERY_US, self._recover)

    def _recover(self) -> None:
        if self.disk.hangs:
            self._recovery_waits = True
            return
        boot = self._recovery.run(self._rounds, self._report_step)
        if boot is not None:
            self.boot = boot
            boot.begin()

    def _report_step(self, what: str) -> None:
        self._cluster.nemesis.count_step(self, what)

    def crash(self, power: bool) -> None:
        """End this boot and tell the peers; no-op when the process is down. With ``power`` the page
        cache is lost, unless the node keeps it (``page_cache.survives_power_loss``)."""
        if not self.alive:
            return
        env = self.env
        power = power and not survives_power_loss(env, self._cluster)
        if power and env.parameters.spares_power:
            env.state_checker.power_lost(self.node)
            env.event_counts["relaxed power loss"] += 1
        self.process.end()
        self.boot, self._recovery_waits = None, False
        env.counters.crashes += 1
        self.fail_points.disarm_crash()
        env.trace_line("crash", "power" if power else "process")
        self.disk.crash(power, env.rng)
        for peer in self.peers.peers:
            self._cluster.everyone[peer].peer_down(self.node)

    def stop(self) -> bool:
        """Begin to stop the process in order, and return True. False = it is down, recovering or
        paused."""
        if self.boot is None or self.paused:
            return False
        self.env.trace_line("stop")
        self.process.later(0, self.boot.stop.begin)
        return True

    def stopped(self) -> None:
        """End the process, which has stopped in order."""
        self.env.event_counts["stopped in order"] += 1
        self.crash(False)
        self.restart_soon()

    def pause(self) -> None:
        """Stop the process; it receives everything after ``resume``."""
        self.process.pause()

    def resume(self) -> None:
        """Continue a paused process; no-op otherwise. Reads that waited are started first, then
        everything that it missed is scheduled for now, in order."""
        if self.paused:
            self.env.trace_line("resume")
            self.process.resume(self._start_waiting_reads)

    def _start_waiting_reads(self) -> None:
        if self.boot is not None:
            self.boot.start_waiting_reads()

    # ---- the process ends by itself --------------------------------------------------------

    def _on_fatal(self, error: Exception) -> None:
        if isinstance(error, UnreadableCommand):
            # The next recovery finds the damage of the committed command.
            self.env.trace_line("unreadable", str(error), METADATA_GROUP)
            self.crash(False)
            self.restart_soon()
        else:
            self.fail_points.crash_as_armed()

    def disk_failed(self, error: OSError) -> None:
        """End the process after a disk error, and schedule its start. The state of the page cache
        is unknown, so it is lost with the power or kept, at random.

        Raises errors that no fault injects, and ``Violation`` when space was lacking although the
        reserve was not released."""
        env = self.env
        if error.errno not in (errno.EIO, errno.ENOSPC):
            raise error  # no fault injects this error
        if is_full(error) and self.disk.reserve().held_bytes:
            raise Violation("FullDiskGoesOn", f"n{self.node} ends for lack of room, its reserve "
                            f"is untouched: {error}")
        env.event_counts["stopped by a full disk" if is_full(error) else "stopped by its disk"] += 1
        env.trace_line("disk", error.strerror or "failed")
        self.crash(env.rng.random() < 0.5)
        self.restart_soon()

    def restart_soon(self) -> None:
        """Start the process after a while, as its supervisor would; after the faults not if it is
        lost or stays down.

        An error from before the end of the faults may be noticed after it."""
        self.env.queue.after(self.env.rng.randrange(*RESTART_US), self._start_again)

    def _start_again(self) -> None:
        if self.env.faulty or not (self.peers.is_lost
                                   or self._cluster.minority.keeps_off(self.node)):
            self.start()

    def identity_lost(self) -> None:
        """End this node, which a new one replaces: without its identity file, the directory counts
        as empty."""
        self.env.event_counts["identity lost"] += 1
        self._cluster.replacements.wipe(self)

    def keep_copy(self) -> None:
        """Let the nemesis copy the disk before the store is opened."""
        self._cluster.restored_copies.keep(self)

    # ---- disk and clock --------------------------------------------------------------------

    def disk_released(self) -> None:
        """Continue the operation or the recovery that waited for a hung disk."""
        if self.boot is not None:
            self.boot.worker.operations.release()
        if self._recovery_waits:
            self._recovery_waits = False
            self.process.later(0, self._recover)

    def disk_filled(self) -> None:
        """Check the free disk space at once; no-op while the node is down."""
        if self.boot is not None:
            self.boot.space.check()

    def clock_changed(self) -> None:
        """Compute all deadlines again; no-op while the node is down."""
        if self.boot is not None:
            self.boot.clock_changed()

    def lose_directory(self, incarnation: int) -> None:
        """Empty the disk for good.  The next start initialises a new directory with this
        incarnation under the old node id, which the peers must refuse."""
        self.peers.is_lost, self.peers.is_registered = True, False
        self.peers.incarnation = incarnation
        self.disk.replace(SimulatedFilesystem())

    def put_back(self, older: SimulatedFilesystem) -> None:
        """Replace the disk for good by ``older``, a copy of it from some boots ago, which the peers
        must refuse."""
        self.peers.is_lost = self.peers.is_copy = True
        self.disk.replace(older)

    # ---- peers -----------------------------------------------------------------------------

    def add_peer(self, peer: int, incarnation: int) -> None:
        """Add a registered node, and the incarnation of its directory, as a peer; connect both ways
        if this node is up."""
        self.peers.add(peer, incarnation)
        if self.boot is not None:
            self.boot.liveness.add(peer)
            self.peer_up(peer)
            self._cluster.everyone[peer].peer_up(self.node)

    def remove_peer(self, peer: int) -> None:
        """Remove a peer permanently: its connection ends, and its hellos are refused."""
        self.peers.remove(peer)
        if self.boot is not None:
            self.boot.remove_peer(peer)

    def reconnect(self, peer: int) -> None:
        """Break the append connection to a peer, and connect again if the peer is up."""
        self.process.later(0, self._disconnect, peer)
        if self._cluster.everyone[peer].is_up:
            self.process.later(0, self._connect, peer)

    def peer_down(self, peer: int) -> None:
        """Schedule the end of the connection to a peer whose process has ended."""
        self.process.later(HANG_UP_US, self._disconnect, peer)

    def peer_up(self, peer: int) -> None:
        """Schedule a connection to a peer that has started; none is made if the peer is down by
        then or refuses this node."""
        self.process.later(CONNECT_US, self._connect, peer)

    def _disconnect(self, peer: int) -> None:
        if self.boot is not None:
            self.boot.connections.disconnect(peer)

    def _connect(self, peer: int) -> None:
        if self.boot is not None:
            self.boot.connections.connect(peer)

    def _is_connected(self, peer: int, boot_id: peer_identity.BootId) -> bool:
        return self.boot is not None and self.boot.connections.is_alive(peer, boot_id)

    # ---- frames ----------------------------------------------------------------------------

    def receive_peer(self, sender: int, frame: tuple) -> None:
        """Queue a frame with messages of consensus for the next round; dropped while the process is
        down, taken after ``resume`` while it is paused."""
        self._arrived(Channel.PEER, sender, frame)

    def receive_bulk(self, sender: int, frame: tuple) -> None:
        """Queue a frame with requests and replies of the bulk connection, as ``receive_peer``."""
        self._arrived(Channel.BULK, sender, frame)

    def receive_request(self, sender: int, frame: tuple) -> None:
        """Queue a frame with requests of a client, as ``receive_peer``."""
        self._arrived(Channel.CLIENT, sender, frame)

    def _arrived(self, channel: Channel, sender: int, frame: tuple) -> None:
        if self.process.is_paused:
            self.process.run(self._arrived, channel, sender, frame)
        elif self.process.is_alive:
            self._rounds.put(channel, sender, frame)

    def receive_liveness(self, sender: int, frame: tuple) -> None:
        """Receive a frame of the liveness thread, which answers at once, without the round loop. A
        paused node answers after ``resume``, one that is down never."""
        self.process.run(self._liveness_arrived, sender, frame)

    def _liveness_arrived(self, sender: int, frame: tuple) -> None:
        if self.boot is not None:
            for item in frame:
                self.boot.liveness.receive(self.env.now_ms, sender, item)
