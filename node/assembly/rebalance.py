"""Parts that execute rebalance plans, and that publish the loads from which plans are computed."""

from __future__ import annotations

from dataclasses import dataclass

from node.assembly.admin import AdminParts
from node.assembly.clients import ClientParts
from node.assembly.env import NodeEnv
from node.assembly.metadata import MetadataParts
from node.assembly.peers import PeerParts
from node.assembly.reads import ReadParts
from node.assembly.storage import StorageParts
from node.observability.load_publisher import LoadPublisher
from node.rebalance.latency import RecentLatency
from node.rebalance.participant import PlanParticipant
from node.rebalance.service import Plans


@dataclass(frozen=True, slots=True)
class RebalanceParts:
    """Execution of plans, and publication of loads."""

    plans: Plans
    load_publisher: LoadPublisher


def build_rebalance(env: NodeEnv, storage: StorageParts, metadata: MetadataParts,
                    peers: PeerParts, reads: ReadParts, admin: AdminParts,
                    clients: ClientParts) -> RebalanceParts:
    """Build the execution of plans and the publication of loads, and add their handlers to those of
    ``admin`` and ``peers``."""
    core, store, request_round = env.core, env.store, env.loop.request
    produce_handler, fetch_handler, group_health = (
        clients.produce_handler,
        reads.fetch_handler,
        admin.group_health,
    )
    participant = PlanParticipant(core, store, metadata.log, group_health, env.space,
                      RecentLatency(produce_handler.latencies["commit"]), fetch_handler.led_bytes,
                      request_round, env.turns.take)
    plans = Plans(core, metadata.log, participant, peers.requests, request_round, env.turns.take,
                  env.log)
    admin.handlers.update(plans.handlers)
    peers.handlers.update(plans.peer_handlers)
    load_publisher = LoadPublisher(
        env.config,
        reads.counts,
        core=core,
        store=store,
        metadata_log=metadata.log,
        directory=metadata.directory,
        produce_handler=produce_handler,
        fetch_handler=fetch_handler,
        disk=storage.gather,
        group_health=group_health,
        bulk=peers.control,
        request_round=request_round,
        log=env.log,
    )
    peers.bulk.handlers.update(load_publisher.handlers)
    return RebalanceParts(plans, load_publisher)
