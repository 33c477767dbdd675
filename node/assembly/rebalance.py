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
    publishing: LoadPublisher


def build_rebalance(env: NodeEnv, storage: StorageParts, metadata: MetadataParts,
                    peers: PeerParts, reads: ReadParts, admin: AdminParts,
                    clients: ClientParts) -> RebalanceParts:
    """Build these parts, and add their handlers to those of ``admin`` and ``peers``."""
    core, store, request_round = env.core, env.store, env.loop.request
    producing, fetching, surveying = clients.producing, reads.fetching, admin.surveying
    looking = PlanParticipant(core, store, metadata.log, surveying, env.space,
                      RecentLatency(producing.latencies["commit"]), fetching.led_bytes,
                      request_round, env.turns.take)
    plans = Plans(core, metadata.log, looking, peers.requests, request_round, env.turns.take,
                  env.log)
    admin.handlers.update(plans.handlers)
    peers.handlers.update(plans.peer_handlers)
    publishing = LoadPublisher(
        env.config, reads.counts, core=core, store=store, metadata_log=metadata.log,
        directory=metadata.directory, producing=producing, fetching=fetching, disk=storage.disk,
        surveying=surveying, bulk=peers.control, request_round=request_round, log=env.log)
    peers.bulk.handlers.update(publishing.handlers)
    return RebalanceParts(plans, publishing)
