"""Parts that write, check and repair this node's own files."""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass

import trio

from multiraft.storage.errors import IndexTooLarge
from multiraft.storage.repair.coordinator import RepairCoordinator
from multiraft.storage.settings import RELAXED
from node.assembly.env import NodeEnv
from node.clock import monotonic_ms
from node.loop.disk_worker import DiskWorker, open_probe
from node.loop.scrub import Scrub
from node.loop.write_gather import WriteGather
from node.removal.cleaner_task import CleanerTask
from node.removal.record_trim import RecordTrim
from node.removal.removal_task import report_removal
from node.removal.segment_remover import SegmentRemover
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
    remover: SegmentRemover
    cleaner: CleanerTask


def _report_too_large(log: logging.Logger, path: str, error: IndexTooLarge) -> None:
    """Log that a full segment stays without an index."""
    log.info("segment_index_omitted", extra={
        "path": path, "reason": error.what, "limit": error.limit, "value": error.value})


def build_storage(env: NodeEnv) -> StorageParts:
    """Build the disk worker, the probe, local repair and scrub. Raises ``DiskFailed`` when the disk
    has no room for the probe."""
    settings = env.config.storage
    flush_interval_ms = settings.flush_interval_ms if settings.durability == RELAXED else 0
    damage_found = Subscribers()
    disk = DiskWorker(env.store, env.loop.wrote, env.poller, env.space, flush_interval_ms,
                      functools.partial(_report_too_large, env.log), damage_found.notify)
    trim = RecordTrim(env.store)
    remover = SegmentRemover(env.store, trio.to_thread.run_sync, env.turns.take, monotonic_ms,
                             trio.sleep, env.space, functools.partial(report_removal, env.log))
    return StorageParts(
        disk, disk.gather, open_probe(env.config.data_dir, env.space),
        RepairCoordinator(env.config.node.id, env.store, env.core, disk.gather.write),
        damage_found,
        Scrub(env.store, disk.gather, damage_found.notify, env.config.data_dir, settings),
        trim, remover,
        CleanerTask(env.store, disk.gather, env.turns, env.space, damage_found.notify, env.log,
                    settings.cleaner_bytes_per_second, env.config.compaction.memory_bytes))
