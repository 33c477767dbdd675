"""Parts that serve readers: fetch, list offsets, corruption reports."""

from __future__ import annotations

from dataclasses import dataclass

import trio

from node.assembly.env import NodeEnv
from node.assembly.metadata import MetadataParts
from node.assembly.storage import StorageParts
from node.clients.corruption_reports import CorruptionReports
from node.clients.fetch import FetchHandler
from node.clients.list_offsets import Offsets
from node.clients.load_counts import LoadCounts
from node.clients.log_starts import LogStarts
from node.clients.metadata_wait import MetadataWaiter
from node.clients.read_index import ReadIndexRequests
from node.clients.read_view import ReadView
from node.loop.background import Background
from node.loop.block_reads import BlockReads
from node.loop.steps import StepRunner


@dataclass(frozen=True, slots=True)
class ReadParts:
    """Fetch, list offsets, and the confirmations and tasks that both wait for."""

    counts: LoadCounts | None  # of appends as well; None = no loads are published
    read_view: ReadView
    background: Background
    read_index_requests: ReadIndexRequests
    fetch_handler: FetchHandler
    offsets: Offsets
    corruption_reports: CorruptionReports
    log_starts: LogStarts
    blocks: BlockReads


def build_reads(env: NodeEnv, storage: StorageParts, metadata: MetadataParts) -> ReadParts:
    """Build the handlers of fetches and list offsets, and what both wait for. Fetches that wait for
    a group are evaluated again when a partition leaves the group."""
    core, store, request_round = env.core, env.store, env.loop.request
    limits, metrics = env.config.limits, env.config.metrics
    damaged = storage.damage_found.notify
    counts = LoadCounts(metrics.partitions_max) if metrics.publish else None
    log_starts = LogStarts(store.partition_states)
    read_view = ReadView(core, store.partition_states, metadata.directory, log_starts)
    background = Background(limits)
    read_index_requests = ReadIndexRequests(core, store.partition_states, request_round)
    later = StepRunner(env.turns, request_round)
    metadata_waiter = MetadataWaiter(metadata.log, metadata.directory, background, request_round)
    fetch_handler = FetchHandler(
        read_view,
        store,
        limits,
        read_index_requests,
        metadata_waiter,
        background,
        request_round,
        damaged,
        later,
        env.turns,
        counts,
    )
    metadata.log.partition_left.subscribe(fetch_handler.committed)
    offsets = Offsets(read_view, store, read_index_requests, metadata_waiter, background, damaged,
                      later)
    corruption_reports = CorruptionReports(read_view, store, background, damaged, request_round)
    return ReadParts(
        counts, read_view, background, read_index_requests, fetch_handler, offsets,
        corruption_reports, log_starts, BlockReads(store, trio.to_thread.run_sync, damaged)
    )
