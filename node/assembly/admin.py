"""Parts that handle administrative requests: topics, nodes, placements, the pool, transactions."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from node.admin.node_requests import NodeAdmin
from node.admin.placement_requests import PlacementAdmin
from node.admin.pool_requests import Pool
from node.admin.requests import Admin
from node.admin.setting_requests import SettingAdmin
from node.admin.size_requests import SizeAdmin
from node.admin.transaction_requests import SinkAdmin
from node.assembly.env import NodeEnv
from node.assembly.metadata import MetadataParts
from node.assembly.peers import PeerParts
from node.assembly.reads import ReadParts
from node.assembly.retention import settings_of_node
from node.assembly.storage import StorageParts
from node.loop.leadership_notifier import LeadershipNotifier
from node.observability.group_health import GroupHealthScan, measure_space


@dataclass(frozen=True, slots=True)
class AdminParts:
    """Handlers of administrative requests, and the group health scan that some of them answer
    from."""

    roles: LeadershipNotifier
    group_health: GroupHealthScan
    pool: Pool
    sinks: SinkAdmin
    #: Request of a client -> its handler; parts that are built later add theirs.
    handlers: dict
    requests: Admin
    sizes: SizeAdmin


def build_admin(env: NodeEnv, storage: StorageParts, metadata: MetadataParts, peers: PeerParts,
                reads: ReadParts) -> AdminParts:
    """Build the handlers of administrative requests, and add the handlers of requests from other
    nodes to ``peers``."""
    config, core, log, turns = env.config, env.core, metadata.log, env.turns
    nodes = NodeAdmin(core, log, metadata.known, config.node.id, storage.scrub,
                      storage.cleaner, turns)
    placements = PlacementAdmin(core, env.store.partition_states, log, turns)
    pool = Pool(core, log, config.limits.groups_max, env.log, turns)
    sinks = SinkAdmin(
        core, log, reads.read_index_requests, config.limits.transaction_timeout_ms, env.log, turns
    )
    sizes = SizeAdmin(core, env.store.partition_states, log, turns)
    settings = SettingAdmin(log, settings_of_node(config))
    handlers: dict = {}
    for part in (nodes, placements, pool, settings, sinks, sizes):
        handlers.update(part.handlers)
    for part in (nodes, placements, sinks):
        peers.handlers.update(part.peer_handlers)
    roles = LeadershipNotifier()
    group_health = GroupHealthScan(core, env.store, log, config.http.lag_entries_max,
                                   functools.partial(measure_space, str(config.data_dir)),
                                   lambda: env.space.full)
    requests = Admin(core, env.store, log, metadata.directory, config, metadata.known, handlers,
                     env.loop.request, roles, turns)
    peers.handlers.update(requests.peer_handlers)
    return AdminParts(roles, group_health, pool, sinks, handlers, requests, sizes)
