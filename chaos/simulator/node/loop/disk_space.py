"""Free disk space of one boot: checked now and then; records are refused while the disk is full."""

from __future__ import annotations

from collections.abc import Sequence

from chaos.simulator.disk.disk_worker import PROBE, PROBE_FILE
from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.machine.process import ProcessScheduler
from chaos.simulator.node.machine.round_queue import RoundQueue
from chaos.simulator.node.machine.simulated_disk import SimulatedDisk
from chaos.simulator.node.replicas.leadership import Leadership
from multiraft.storage.disk_space import DiskSpaceGuard, is_full
from multiraft.storage.store import Store
from multiraft.types import Entry, EntryKind

#: Interval at which free disk space is checked.
CHECK_US = 500_000


def make_space_guard(env: NodeEnv, disk: SimulatedDisk, store: Store) -> DiskSpaceGuard:
    """Return the disk space guard of a boot, after its first check."""
    faults = disk.filesystem.faults
    guard = DiskSpaceGuard(disk.reserve(), env.parameters.disk.reserved_bytes,
                           lambda: faults.free_bytes, store)
    guard.check()
    return guard


def make_probe(disk: SimulatedDisk, guard: DiskSpaceGuard) -> None:
    """Create the probe block with its disk space, so that its write is never refused.

    On a full disk the reserve is released. Raises ``OSError`` (ENOSPC) when there was no reserve
    either.
    """
    filesystem = disk.filesystem
    exists = filesystem.exists(PROBE_FILE)
    file = filesystem.open(PROBE_FILE) if exists else filesystem.create(PROBE_FILE)
    try:
        file.preallocate(len(PROBE))
    except OSError as error:
        if not is_full(error) or not guard.release_reserve():
            raise
        file.preallocate(len(PROBE))


class DiskSpace:
    """Checks of one boot, and what follows from them."""

    def __init__(self, env: NodeEnv, process: ProcessScheduler, rounds: RoundQueue,
                 guard: DiskSpaceGuard, leadership: Leadership):
        self.guard = guard
        self._env = env
        self._process = process
        self._rounds = rounds
        self._leadership = leadership

    def check(self) -> None:
        """Check the free disk space; on a full disk, hand the groups led here over."""
        was_full = self.guard.full
        self.guard.check()
        if was_full != self.guard.full:
            self._env.event_counts["disk full" if self.guard.full else "room again"] += 1
            self._env.trace_line("disk_space", "full" if self.guard.full else "available")
        if self.guard.full:
            self._process.later(0, self._leadership.shed)
        else:
            self._leadership.end_shedding()
        self._rounds.request()

    def watch(self) -> None:
        """Check the disk space now and then, until this boot ends."""
        self.check()
        self._process.later(CHECK_US, self.watch)

    def drops(self, entries: Sequence[Entry]) -> bool:
        """True if an append is to be dropped because it carries records and the disk is full;
        counts it as refused then.

        Dropping an append is always safe.
        """
        if not self.guard.full or all(entry.kind != EntryKind.DATA for entry in entries):
            return False
        self.guard.refused += 1
        return True
