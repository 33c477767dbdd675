"""What a simulated node does about a disk that fails, fills up or hangs, and a clock that is off.

Contract.  Part of ``node.SimulatedNode``, and as the real node does it: a write or a sync that
failed ends the process, and nothing is tried again; records are refused while there is no room;
a node whose disk owes an answer for too long vouches for nothing (``leases``).

Invariants.  A node's clock never goes back in one of its lives.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from chaos.simulator.disk.disk_worker import PROBE, PROBE_FILE
from chaos.simulator.disk.filesystem import SimulatedFilesystem
from chaos.simulator.env.violations import Violation
from chaos.simulator.node.failpoints import Armed
from chaos.simulator.oracle.model import is_majority
from multiraft.storage.disk_space import DiskSpaceGuard, is_full
from multiraft.storage.errors import CorruptFile
from multiraft.storage.store import Store
from multiraft.types import Entry, EntryKind

if TYPE_CHECKING:
    from chaos.simulator.env.event_queue import EventQueue

#: How often the room is looked at.
LOOK_US = 500_000
RESERVE_FILE = "/data/reserve"
#: A process that ended by itself is started again after so long.
RESTART_US = (100_000, 2_000_000)


class SimulatedReserve:
    """A file that holds room and nothing else."""

    def __init__(self, filesystem: SimulatedFilesystem, bytes_wanted: int):
        self._filesystem = filesystem
        self._bytes_wanted = bytes_wanted

    @property
    def held_bytes(self) -> int:
        """What it holds now: nothing when a loss of power has undone that it was removed."""
        if not self._filesystem.exists(RESERVE_FILE):
            return 0
        return self._filesystem.open(RESERVE_FILE).allocated()

    def take(self) -> bool:
        """Take all of it, or nothing."""
        exists = self._filesystem.exists(RESERVE_FILE)
        file = (self._filesystem.open if exists else self._filesystem.create)(RESERVE_FILE)
        try:
            file.reserve(self._bytes_wanted)
        except OSError as error:
            if not is_full(error):
                raise
            self._filesystem.remove(RESERVE_FILE)
            return False
        return True

    def give_back(self) -> None:
        """Hold nothing any more."""
        self._filesystem.remove(RESERVE_FILE)


class Clock:
    """A node's own time: it may run fast or slow, and jump ahead."""

    __slots__ = ("rate", "_queue", "_here_us", "_there_us")

    def __init__(self, queue: EventQueue):
        self.rate = 1.0
        self._queue = queue
        self._here_us = self._there_us = queue.now_us

    @property
    def now_ms(self) -> int:
        """Milliseconds of this clock."""
        if self.rate == 1.0:
            return (self._here_us + self._queue.now_us - self._there_us) // 1000
        return int(self._here_us + (self._queue.now_us - self._there_us) * self.rate) // 1000

    def until_us(self, deadline_ms: int) -> int:
        """Microseconds of the world until this clock shows ``deadline_ms``."""
        now_us = self._here_us + (self._queue.now_us - self._there_us) * self.rate
        return max(0, int((deadline_ms * 1000 - now_us) / self.rate) + (self.rate != 1.0))

    def drift(self, rate: float, jump_us: int = 0) -> None:
        """From now on at this rate, after a jump ahead."""
        passed_us = (self._queue.now_us - self._there_us) * self.rate
        self._here_us += int(passed_us) + jump_us
        self._there_us = self._queue.now_us
        self.rate = rate


class Ailing(Armed):
    """Part of ``SimulatedNode``."""

    # ---- slow and hung ---------------------------------------------------------------------

    def slow_disk(self, factor: int) -> None:
        """From now on, over all lives."""
        self._disk_factor = factor
        if self._disk is not None:
            self._disk.factor = factor

    def hang_disk(self) -> None:
        """No write completes from now on, in whatever life."""
        self.disk_hangs = True
        if self._disk is not None:
            self._disk.hangs = True

    def release_disk(self) -> None:
        """What hung goes on."""
        self.disk_hangs = False
        if self._disk is not None:
            self._disk.release()
        if self._recovery_waits:
            self._recovery_waits = False
            self.later(0, self._recover)

    @property
    def disk_is_stalled(self) -> bool:
        """Whether the disk has owed an answer for too long: nothing may be vouched for."""
        return self._disk is not None and self._disk.is_stalled(self.clock.now_ms)

    def probe_disk(self) -> None:
        """Called by the liveness thread."""
        if self._disk is not None:
            self._disk.probe()

    def clock_changed(self) -> None:
        """Deadlines are somewhere else now."""
        if self._raft is not None:
            self._wake_ms = None
            self.request_round()
            self.later(0, self._liveness.reschedule)

    # ---- errors ----------------------------------------------------------------------------

    def arm_write_error(self, writes: int) -> None:
        """One of the next writes fails, of this life or of the next recovery."""
        self._filesystem.faults.writes_left = writes

    def arm_sync_error(self, syncs: int) -> None:
        """One of the next syncs fails, of this life or of the next recovery."""
        self._filesystem.faults.syncs_left = syncs

    def arm_directory_error(self, syncs: int) -> None:
        """The sync of a directory fails, of this life or of the next recovery."""
        self._filesystem.faults.directory_syncs_left = syncs

    def _is_spared(self) -> bool:
        """Whether the page cache outlives a loss of power: relaxed, one node loses it at a time,
        none while another one is damaged, whose copies and vote do not count, and none that is a
        majority by itself (members change: a group may have one voter)."""
        if not self._world.parameters.spares_power:
            return False
        if not self._world.wipes.is_done or not all(
                other.is_up and other.is_whole for other in self._world.nodes.values()
                if other is not self):
            return True
        replicas = [replica for group in self._world.witness.groups.values()
                    if (replica := group.replicas.get(self.node)) is not None]
        return any(is_majority(configuration, [self.node]) for replica in replicas
                   for configuration in (replica.configuration(), replica.group.configuration()))

    def disk_failed(self, error: OSError) -> None:
        """The process ends: what the page cache holds is anybody's guess, and it is kept or lost
        with the power."""
        if error.errno not in (errno.EIO, errno.ENOSPC):
            raise error  # nobody injected that
        reserve = SimulatedReserve(self._filesystem, self._world.parameters.disk.reserved_bytes)
        if is_full(error) and reserve.held_bytes:
            raise Violation("FullDiskGoesOn", f"n{self.node} ends for lack of room, its reserve "
                            f"is untouched: {error}")
        self._marks["stopped by a full disk" if is_full(error) else "stopped by its disk"] += 1
        self._trace.line(self.node, -1, "disk", error.strerror or "failed")
        self.crash(self._rng.random() < 0.5)
        self._restart_soon()

    def _restart_soon(self) -> None:
        self._queue.after(self._rng.randrange(*RESTART_US), self._start_again)

    def _start_again(self) -> None:
        """Whoever watches the process does, also when the faults are over: what had failed by then
        may be noticed later."""
        if self.faulty or not (self.is_lost or self._world.remainder.keeps_off(self.node)):
            self.start()

    def _open_store(self, open_store: Callable[[], Store]) -> Store | None:
        """As the real start: without any room the reserve makes some; None = it could not start."""
        reserve = SimulatedReserve(self._filesystem, self._world.parameters.disk.reserved_bytes)
        try:
            try:
                return open_store()
            except OSError as error:
                if not is_full(error) or not reserve.held_bytes:
                    raise
                reserve.give_back()
            return open_store()
        except OSError as error:
            if error.errno not in (errno.EIO, errno.ENOSPC):
                raise
            self.disk_failed(error)
            return None
        except CorruptFile:
            if not self.identity_is_rotten:
                raise
            self.identity_lost()
            return None

    def _make_probe(self) -> bool:
        """The block that is written when nothing else is, with its room: it is never refused.
        Whether there was a block for it; the process ends without."""
        exists = self._filesystem.exists(PROBE_FILE)
        file = self._filesystem.open(PROBE_FILE) if exists else self._filesystem.create(PROBE_FILE)
        try:
            file.reserve(len(PROBE))
        except OSError as error:
            if not is_full(error):
                raise
            if not self._room.exhausted():
                self.disk_failed(error)
                return False
            file.reserve(len(PROBE))
        return True

    # ---- room ------------------------------------------------------------------------------

    def _make_room(self, store: Store) -> DiskSpaceGuard:
        reserved_bytes = self._world.parameters.disk.reserved_bytes
        faults = self._filesystem.faults
        room = DiskSpaceGuard(SimulatedReserve(self._filesystem, reserved_bytes), reserved_bytes,
                    lambda: faults.free_bytes, store)
        room.look()
        return room

    def fill_disk(self, left_bytes: int) -> None:
        """Somebody else takes all of this disk but so many bytes."""
        faults = self._filesystem.faults
        faults.capacity_bytes = faults.used_bytes + left_bytes
        self._look_at_room()

    def free_disk(self) -> None:
        """There is room again."""
        self._filesystem.faults.heal()

    def _look_at_room(self) -> None:
        if self._disk is None:
            return
        was_full = self._room.full
        self._room.look()
        if was_full != self._room.full:
            self._marks["disk full" if self._room.full else "room again"] += 1
            self._trace.line(self.node, -1, "room", "none" if self._room.full else "again")
        if self._room.full:
            self.later(0, self._make_way)
        self.request_round()

    def _make_way(self) -> None:
        """As the real node: groups led here go to nodes that take records."""
        for group in self.led_groups():
            if self._raft.make_way(group):
                self._marks["made way for records"] += 1
        self.request_round()

    @property
    def disk_is_full(self) -> bool:
        """Whether records are refused here."""
        return self._room.full

    def _keep_looking(self) -> None:
        """As long as this life lasts."""
        self._look_at_room()
        self.later(LOOK_US, self._keep_looking)

    def _is_lost_for_room(self, entries: Sequence[Entry]) -> bool:
        """Whether an append is dropped, which is always safe: it carries records, and there is no
        room for them."""
        if not self._room.full or all(entry.kind != EntryKind.DATA for entry in entries):
            return False
        self._room.refused += 1
        return True
