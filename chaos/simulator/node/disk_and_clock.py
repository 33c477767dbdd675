"""Reactions of a simulated node to disk faults and clock faults.

Contract.  Part of ``node.SimulatedNode``, as in the real node.  A write or sync that failed ends
the process, and is not retried.  Records are refused while the disk is full.  While a disk
operation takes too long, the node sends no liveness support (``multiraft.liveness``).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from chaos.simulator.disk.disk_worker import PROBE, PROBE_FILE
from chaos.simulator.disk.filesystem import SimulatedFilesystem
from chaos.simulator.env.violations import Violation
from chaos.simulator.node.failpoints import FailPoints
from chaos.simulator.oracle.model import is_majority
from multiraft.storage.disk_space import DiskSpaceGuard, is_full
from multiraft.storage.errors import CorruptFile
from multiraft.storage.store import Store
from multiraft.types import Entry, EntryKind

#: Interval at which free disk space is checked.
CHECK_US = 500_000
RESERVE_FILE = "/data/reserve"
#: Range of the delay after which a process that ended by itself is started again.
RESTART_US = (100_000, 2_000_000)


class SimulatedReserve:
    """File that reserves disk space and holds no data."""

    def __init__(self, filesystem: SimulatedFilesystem, bytes_wanted: int):
        self._filesystem = filesystem
        self._bytes_wanted = bytes_wanted

    @property
    def held_bytes(self) -> int:
        """Bytes that the file holds now.

        0 without the file, or when a power loss has undone its removal, which had freed the bytes.
        """
        if not self._filesystem.exists(RESERVE_FILE):
            return 0
        return self._filesystem.open(RESERVE_FILE).allocated()

    def allocate(self) -> bool:
        """Take all bytes of the reserve and return True; return False, with none taken, when they
        are not free."""
        exists = self._filesystem.exists(RESERVE_FILE)
        file = (self._filesystem.open if exists else self._filesystem.create)(RESERVE_FILE)
        try:
            file.preallocate(self._bytes_wanted)
        except OSError as error:
            if not is_full(error):
                raise
            self._filesystem.remove(RESERVE_FILE)
            return False
        return True

    def release(self) -> None:
        """Remove the file, which must exist; that frees its disk space."""
        self._filesystem.remove(RESERVE_FILE)


class DiskAndClock(FailPoints):
    """Part of ``SimulatedNode``: disk and clock faults."""

    # ---- slow and hung ---------------------------------------------------------------------

    def slow_disk(self, factor: int) -> None:
        """Slow the disk down by ``factor`` from now on, over all boots; 1 = no longer."""
        self._disk_factor = factor
        if self._disk is not None:
            self._disk.factor = factor

    def hang_disk(self) -> None:
        """Complete no write and no recovery from now on, over all boots, until ``release_disk``."""
        self.disk_hangs = True
        if self._disk is not None:
            self._disk.hangs = True

    def release_disk(self) -> None:
        """End the hang: operations and recovery that waited proceed."""
        self.disk_hangs = False
        if self._disk is not None:
            self._disk.release()
        if self._recovery_waits:
            self._recovery_waits = False
            self.later(0, self._recover)

    @property
    def disk_is_stalled(self) -> bool:
        """True if a disk operation takes too long, so that the node may send no liveness support.
        """
        return self._disk is not None and self._disk.is_stalled(self.clock.now_ms)

    def probe_disk(self) -> None:
        """Begin to write the probe block if it is due; the liveness thread calls this. No-op while
        the node is down."""
        if self._disk is not None:
            self._disk.probe()

    def clock_changed(self) -> None:
        """Compute all deadlines again, in the next round and in the liveness thread; no-op while
        the node is down."""
        if self._raft is not None:
            self._wake_ms = None
            self.request_round()
            self.later(0, self._liveness.reschedule)

    # ---- errors ----------------------------------------------------------------------------

    def arm_write_error(self, writes: int) -> None:
        """Fail the ``writes``-th next write, of this boot or of the next recovery."""
        self._filesystem.faults.writes_left = writes

    def arm_sync_error(self, syncs: int) -> None:
        """Fail the ``syncs``-th next sync of a file, of this boot or of the next recovery."""
        self._filesystem.faults.syncs_left = syncs

    def arm_directory_error(self, syncs: int) -> None:
        """Fail the ``syncs``-th next sync of a directory, of this boot or of the next recovery."""
        self._filesystem.faults.directory_syncs_left = syncs

    def _keeps_page_cache(self) -> bool:
        """True if the page cache survives a power loss (relaxed durability).

        Nodes lose unsynced records one at a time.  A node loses none while another node is down,
        damaged or being replaced, since that node's copies and vote do not count.  A node that is a
        majority by itself never loses any: members change, so a group may have one voter.
        """
        if not self._world.parameters.spares_power:
            return False
        if not self._world.replacements.is_done or not all(
                other.is_up and other.is_whole for other in self._world.nodes.values()
                if other is not self):
            return True
        replicas = [replica for group in self._world.state_checker.groups.values()
                    if (replica := group.replicas.get(self.node)) is not None]
        return any(is_majority(configuration, [self.node]) for replica in replicas
                   for configuration in (replica.configuration(), replica.group.configuration()))

    def disk_failed(self, error: OSError) -> None:
        """End the process after a disk error, and schedule its start. The state of the page cache
        is unknown, so it is lost with the power or kept, at random.

        Raises errors that no fault injects, and ``Violation`` when space was lacking although the
        reserve was not released."""
        if error.errno not in (errno.EIO, errno.ENOSPC):
            raise error  # no fault injects this error
        reserve = SimulatedReserve(self._filesystem, self._world.parameters.disk.reserved_bytes)
        if is_full(error) and reserve.held_bytes:
            raise Violation("FullDiskGoesOn", f"n{self.node} ends for lack of room, its reserve "
                            f"is untouched: {error}")
        self._event_counts[
            "stopped by a full disk" if is_full(error) else "stopped by its disk"
        ] += 1
        self._trace.line(self.node, -1, "disk", error.strerror or "failed")
        self.crash(self._rng.random() < 0.5)
        self._restart_soon()

    def _restart_soon(self) -> None:
        self._queue.after(self._rng.randrange(*RESTART_US), self._start_again)

    def _start_again(self) -> None:
        """Start the process, as its supervisor would; after the faults not if it is lost or stays
        down.

        An error from before the end of the faults may be noticed after it."""
        if self.faulty or not (self.is_lost or self._world.minority.keeps_off(self.node)):
            self.start()

    def _open_store(self, open_store: Callable[[], Store]) -> Store | None:
        """Open the store like a real start, and return it. None = the node could not start. Its
        disk failed and it is started again later, or its identity file is damaged and it is
        replaced.

        Without any free disk space the reserve is released first.
        """
        reserve = SimulatedReserve(self._filesystem, self._world.parameters.disk.reserved_bytes)
        try:
            try:
                return open_store()
            except OSError as error:
                if not is_full(error) or not reserve.held_bytes:
                    raise
                reserve.release()
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
        """Create the probe block with its disk space, so that its write is never refused, and
        return True. On a full disk the reserve is released. Return False when there was no reserve
        either; the process ends then."""
        exists = self._filesystem.exists(PROBE_FILE)
        file = self._filesystem.open(PROBE_FILE) if exists else self._filesystem.create(PROBE_FILE)
        try:
            file.preallocate(len(PROBE))
        except OSError as error:
            if not is_full(error):
                raise
            if not self._space_guard.release_reserve():
                self.disk_failed(error)
                return False
            file.preallocate(len(PROBE))
        return True

    # ---- disk space ------------------------------------------------------------------------

    def _make_space_guard(self, store: Store) -> DiskSpaceGuard:
        reserved_bytes = self._world.parameters.disk.reserved_bytes
        faults = self._filesystem.faults
        space_guard = DiskSpaceGuard(
            SimulatedReserve(self._filesystem, reserved_bytes),
            reserved_bytes,
            lambda: faults.free_bytes,
            store,
        )
        space_guard.check()
        return space_guard

    def fill_disk(self, left_bytes: int) -> None:
        """Take all disk space except ``left_bytes``, like another program, until ``free_disk``; the
        node checks its disk space at once."""
        faults = self._filesystem.faults
        faults.capacity_bytes = faults.used_bytes + left_bytes
        self._check_disk_space()

    def free_disk(self) -> None:
        """Free the disk space again, and disarm all disk errors; the node notices it at its next
        check."""
        self._filesystem.faults.heal()

    def _check_disk_space(self) -> None:
        if self._disk is None:
            return
        was_full = self._space_guard.full
        self._space_guard.check()
        if was_full != self._space_guard.full:
            self._event_counts["disk full" if self._space_guard.full else "room again"] += 1
            self._trace.line(self.node, -1, "disk_space",
                             "full" if self._space_guard.full else "available")
        if self._space_guard.full:
            self.later(0, self._shed_leadership)
        self.request_round()

    def _shed_leadership(self) -> None:
        """Transfer the groups led here to nodes that accept records, as the real node does, where
        there is such a node."""
        for group in self.led_groups():
            if self._raft.shed_leadership(group):
                self._event_counts["made way for records"] += 1
        self.request_round()

    @property
    def disk_is_full(self) -> bool:
        """True if this node refuses records for lack of disk space."""
        return self._space_guard.full

    def _watch_disk_space(self) -> None:
        """Check the disk space now and then, until this boot ends."""
        self._check_disk_space()
        self.later(CHECK_US, self._watch_disk_space)

    def _is_dropped_for_space(self, entries: Sequence[Entry]) -> bool:
        """True if an append is to be dropped because it carries records and the disk is full;
        counts it as refused then.

        Dropping an append is always safe.
        """
        if not self._space_guard.full or all(entry.kind != EntryKind.DATA for entry in entries):
            return False
        self._space_guard.refused += 1
        return True
