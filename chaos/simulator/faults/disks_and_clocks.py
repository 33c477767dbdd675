"""Faults of disks and clocks: damage, slowness, errors, lack of space, drift."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.faults import (
    BIT_ROT,
    CLOCKS,
    FAILED_SYNC,
    FAILED_WRITE,
    FULL_DISK,
    HUNG_DISK,
    SLOW_DISK,
)
from chaos.simulator.faults.injector import Injector, is_active
from chaos.simulator.faults.registry import fault

if TYPE_CHECKING:
    from chaos.simulator.node.node import SimulatedNode

#: Slowdown of a slow disk.
SLOW_DISK_FACTOR = 50
#: A disk error strikes one of the next operations, at most so many.
ERROR_OPERATIONS_MAX = 12
#: Errors of a wall clock in milliseconds.  Nodes trust a clock up to a minute from the others.
TRUSTED_SHIFT_MS = 25_000
CLOCK_SHIFTS_MS = (0, 0, TRUSTED_SHIFT_MS, -TRUSTED_SHIFT_MS, 3_600_000, -3_600_000)
#: Range of the rate of a node's clock, and maximum of its jump ahead.
CLOCK_RATES = (0.9, 1.1)
CLOCK_JUMP_US_MAX = 5_000_000


@fault(BIT_ROT.kind)
def bit_rot(injector: Injector) -> bool:
    """Flip a durable bit of a random node, as the atlas permits; a scrub or a restart finds it.
    Return False when no flip is permitted."""
    node, atlas = injector.draw_node(), injector.world.atlas
    atlas.refresh()
    rot = atlas.choose(node.node, node.damage.durable_places()) if is_active(node) else None
    if rot is None:
        return False
    atlas.note(node.node, rot)
    injector.trace(node.node, f"rot of {rot.place} at {rot.byte}")
    node.damage.rot(rot.place.path, rot.byte, injector.rng.randrange(8))
    _find_damage(injector, node)
    return True


def _find_damage(injector: Injector, node: SimulatedNode) -> None:
    """Crash the node, which starts again later and finds the damage, or schedule a scrub, at
    random."""
    if injector.rng.random() < 0.5:
        injector.crash(node, power=injector.rng.random() < 0.5)
    else:
        node.boot.repair.scrub_soon()


@fault("misdirected")
def misdirected(injector: Injector) -> bool:
    """Turn a durable write of a random node into one that went to another position or file, as the
    atlas permits. Return False when none is permitted.

    Its own place holds none of it, and the bytes in the other place are overwritten. A scrub or a
    restart finds the damage.
    """
    node, atlas = injector.draw_node(), injector.world.atlas
    atlas.refresh()
    write = atlas.misdirect(node.node, node.damage.durable_places()) if is_active(node) else None
    if write is None:
        return False
    atlas.note_lost(node.node)
    injector.trace(node.node, f"{write.place} went to {write.to_path} at {write.to}")
    node.damage.misdirect(write)
    _find_damage(injector, node)
    return True
@fault("rot-beside")
def rot_beside(injector: Injector) -> bool:
    """Flip a bit of an index file of a random node, then restart or scrub that node. No damage may
    be reported, because the file is a cache. Return False without such a file.

    A node with damaged segments may lose the only record of a log's end by it, and need head
    recovery again. It is left alone unless the atlas allows that (one node at a time).
    """
    node, atlas = injector.draw_node(), injector.world.atlas
    files = node.damage.index_files() if is_active(node) else {}
    if not files or (node.damage.rotten and not atlas.may_lose(node.node)):
        return False
    if node.damage.rotten:
        atlas.note_lost(node.node)
    path = injector.rng.choice(sorted(files))
    at = injector.rng.randrange(len(files[path]))
    injector.trace(node.node, f"rot of {path} at {at}")
    node.damage.rot_beside(path, at, injector.rng.randrange(8))
    _find_damage(injector, node)
    return True
@fault(SLOW_DISK.kind)
def disk_slow(injector: Injector) -> bool:
    """Slow the disk of a random node down, by ``SLOW_DISK_FACTOR``, for a while."""
    node = injector.draw_node()
    injector.trace(node.node, "slow disk")
    node.disk.slow_down(SLOW_DISK_FACTOR)
    injector.heal_later(lambda: node.disk.slow_down(1))
    return True
@fault(HUNG_DISK.kind)
def disk_hung(injector: Injector) -> bool:
    """Complete no disk operation of a random node for a while; its network continues to work."""
    node = injector.draw_node()
    injector.trace(node.node, "hung disk")
    node.disk.hang()
    injector.heal_later(node.disk.release)
    return True
@fault(FAILED_WRITE.kind)
def eio_write(injector: Injector) -> bool:
    """Fail one of the next writes of a random node.  Counted when the write fails
    (disk/faults.py)."""
    node, writes = injector.draw_node(), injector.rng.randrange(1, ERROR_OPERATIONS_MAX)
    injector.trace(node.node, f"write {writes} fails")
    node.disk.arm_write_error(writes)
    return False
@fault(FAILED_SYNC.kind)
def eio_sync(injector: Injector) -> bool:
    """Fail one of the next file syncs of a random node.  Counted when the sync fails."""
    node, syncs = injector.draw_node(), injector.rng.randrange(1, ERROR_OPERATIONS_MAX)
    injector.trace(node.node, f"sync {syncs} fails")
    node.disk.arm_sync_error(syncs)
    return False
@fault(FULL_DISK.kind)
def disk_full(injector: Injector) -> bool:
    """Take nearly all disk space of a random node for a while, like another program.

    None is left, or little more than the limit below which the node refuses records.
    """
    node = injector.draw_node()
    left = int(injector.rng.random() ** 2 * injector.world.parameters.disk.reserved_bytes / 2)
    injector.trace(node.node, f"{left} bytes of room left")
    node.disk.fill(left)
    injector.heal_later(node.disk.free)
    return True
@fault(CLOCKS.kind)
def clock_drift(injector: Injector) -> bool:
    """Run the clock of a random node fast or slow until its next drift, some after a jump ahead."""
    node, rate = injector.draw_node(), injector.rng.uniform(*CLOCK_RATES)
    jump_us = injector.rng.randrange(CLOCK_JUMP_US_MAX) if injector.rng.random() < 0.3 else 0
    injector.trace(node.node, f"clock at {rate:.3f}, {jump_us / 1e6:.3f} s ahead")
    node.env.clock.drift(rate, jump_us)
    node.clock_changed()
    return True
@fault("clock-shift")
def clock_shift(injector: Injector) -> bool:
    """Set the wall clock of a random node right or wrong, until its next shift."""
    node, shift_ms = injector.draw_node(), injector.rng.choice(CLOCK_SHIFTS_MS)
    injector.trace(node.node, f"wall clock wrong by {shift_ms / 1e3:.0f} s")
    node.env.clock.shift_ms = shift_ms
    return True
