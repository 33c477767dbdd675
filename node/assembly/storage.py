"""Parts that write, check and repair this node's own files."""

from __future__ import annotations

from dataclasses import dataclass

from multiraft.storage.repair.coordinator import RepairCoordinator
from multiraft.storage.settings import RELAXED
from node.assembly.env import NodeEnv
from node.loop.disk_worker import DiskWorker, open_probe
from node.loop.record_trim import RecordTrim
from node.loop.removal_task import RemovalTask
from node.loop.scrub import Scrub
from node.loop.write_gather import WriteGather
from node.subscribers import Subscribers


@dataclass(frozen=True, slots=True)
class StorageParts:
    """The disk worker and what it gathers, the probe of its disk, local repair and scrub."""

    disk: DiskWorker
    gather: WriteGather
    probe_file: int  # descriptor
    repairer: RepairCoordinator
    #: Notified with the error of each read that found a damaged entry or checkpoint.
    damage_found: Subscribers
    scrub: Scrub
    trim: RecordTrim
    removal: RemovalTask


def build_storage(env: NodeEnv) -> StorageParts:
    """Build the disk worker, the probe, local repair and scrub. Raises ``DiskFailed`` when the disk
    has no room for the probe."""
    settings = env.config.storage
    flush_interval_ms = settings.flush_interval_ms if settings.durability == RELAXED else 0
    disk = DiskWorker(env.store, env.loop.wrote, env.poller, env.space, flush_interval_ms)
    damage_found = Subscribers()
    trim = RecordTrim(env.store)
    return StorageParts(
        disk, disk.gather, open_probe(env.config.data_dir, env.space),
        RepairCoordinator(env.config.node.id, env.store, env.core, disk.gather.write),
        damage_found,
        Scrub(env.store, disk.gather, damage_found.notify, env.config.data_dir, settings),
        trim, RemovalTask(trim, env.turns.take))
