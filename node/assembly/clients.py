"""Parts that take appends, and the sessions of the client port."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import trio

from multiraft.codec.layout import BATCH_BYTES_MAX
from node.assembly.admin import AdminParts
from node.assembly.env import NodeEnv
from node.assembly.metadata import MetadataParts
from node.assembly.peers import PeerParts
from node.assembly.reads import ReadParts
from node.assembly.retention import RetentionParts
from node.clients.client_connection import ClientConnections
from node.clients.connection_reaper import ConnectionReaper
from node.clients.key_checks import THREADS_MAX, KeyChecks
from node.clients.native_requests import NativeRequests
from node.clients.pending_appends import PendingAppends
from node.clients.produce import ProduceHandler, acknowledged, ambiguous
from node.clients.session import Sessions
from node.clients.staged_batches import StagedBatches


@dataclass(frozen=True, slots=True)
class ClientParts:
    """Appends and sessions."""

    pending: PendingAppends
    produce_handler: ProduceHandler
    sessions: Sessions
    connections: ClientConnections
    connection_reaper: ConnectionReaper


def build_clients(env: NodeEnv, metadata: MetadataParts, peers: PeerParts, reads: ReadParts,
                  admin: AdminParts, retention: RetentionParts) -> ClientParts:
    """Build the handlers of appends and the sessions; ``reads`` and ``admin`` answer all other
    requests of a session."""
    config, limits, request_round = env.config, env.config.limits, env.loop.request
    pending = PendingAppends(ambiguous, acknowledged)
    staged = StagedBatches(metadata.log, peers.metadata_requests, reads.background, request_round)
    threads = trio.CapacityLimiter(THREADS_MAX)
    key_checks = KeyChecks(reads.background, partial(trio.to_thread.run_sync, limiter=threads),
                           env.turns.take, request_round, limits.node_bytes_in_flight_max)
    produce_handler = ProduceHandler(env.core, env.store.partition_states, metadata.directory,
                                     pending, limits.append_timeout_ms_max, staged, env.space,
                                     reads.counts, clocks=retention.clocks,
                                     retention=retention.passes, key_checks=key_checks)
    sessions = Sessions(directory=metadata.directory, limits=limits, request_round=request_round,
                        turns=env.turns)
    native = NativeRequests(
        sessions,
        produce_handler=produce_handler,
        fetch_handler=reads.fetch_handler,
        offsets=reads.offsets,
        corruption_reports=reads.corruption_reports,
        admin=admin.requests,
        batch_bytes_max=BATCH_BYTES_MAX,
        cluster_id=config.cluster_id,
        node=config.node.id,
        boot_epoch=env.store.boot_epoch,
        loop=env.poller,
    )
    connections = ClientConnections(sessions, native, env.poller, env.turns, env.log, env.security,
                                    lambda: env.life.http_port)
    connection_reaper = ConnectionReaper(
        limits, lambda: connections.open, lambda: bool(sessions.budget.waiting)
    )
    return ClientParts(pending, produce_handler, sessions, connections, connection_reaper)
