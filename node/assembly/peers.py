"""Connections to other nodes, by class, and the requests that travel on them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

from multiraft.liveness.store_liveness import StoreLiveness
from multiraft.wire.messages import BootIdRow, Hello
from node.address import Address
from node.assembly.env import NodeEnv
from node.assembly.metadata import MetadataParts
from node.assembly.storage import StorageParts
from node.cluster.metadata_client import MetadataRequests
from node.cluster.passed_on import TURN_TIMEOUT_S, PassedOnRequests
from node.cluster.peer_requests import Handlers, PeerAsker, PeerRequests
from node.peers.admission import Admission
from node.peers.append_links import PeerLink, Peers
from node.peers.bulk_channel import Bulk
from node.peers.handshake import Introduction
from node.peers.lease_events import LeaseEvents
from node.peers.liveness_thread import LivenessThread
from node.request_errors import request_error

#: (peer) -> the introduction that begins a connection to the peer.
Introduce = Callable[[int], Introduction]


@dataclass(frozen=True, slots=True)
class PeerParts:
    """Append, bulk and liveness connections; requests to nodes and to the metadata leader."""

    introduce: Callable[[str], Introduce]  # by class of connection
    links: Peers
    bulk: Bulk
    #: Requests have bulk connections of their own, so that no snapshot delays them.
    control: Bulk
    #: So have those of clients, so that they do not delay requests of the cluster itself.
    passed_on: Bulk
    #: And reads of other nodes: when the client of a read leaves, its connection is closed, and no
    #: repair or snapshot may be on it.
    reads: Bulk
    liveness: LivenessThread
    lease_events: LeaseEvents
    #: Request of another node -> its handler here; parts that are built later add theirs.
    handlers: Handlers
    requests: PeerRequests
    metadata_requests: MetadataRequests
    passed_on_requests: PassedOnRequests


def build_peers(env: NodeEnv, storage: StorageParts, metadata: MetadataParts) -> PeerParts:
    """Build the connections; none is opened before the node runs."""
    config, core, limits = env.config, env.core, env.config.limits
    frame_bytes_max = config.raft.frame_bytes_max
    introduce = functools.partial(_introductions, env, metadata.admission)
    links = Peers(env.store, core, frame_bytes_max, env.loop.request,
                  storage.damage_found.notify, env.poller)
    bulk, control, passed_on, reads = (
        Bulk(links.dial, introduce("bulk"), frame_bytes_max, limits.repair_bytes_per_second,
             turn_timeout_s)
        for turn_timeout_s in (math.inf, math.inf, TURN_TIMEOUT_S, TURN_TIMEOUT_S))
    liveness = LivenessThread(
        StoreLiveness(config.node.id, env.store.boot_epoch, config.raft.lease_ms,
                 config.raft.heartbeat_interval_ms),
        introduce("liveness"), limits.loop_stall_ms_max, limits.disk_stall_ms_max, storage.gather,
        env.space)
    lease_events = LeaseEvents(core, liveness, storage.gather, env.loop.request, storage.probe_file,
                               limits.disk_probe_interval_ms, env.log)
    handlers: Handlers = {}
    requests = PeerRequests(
        control, handlers,
        functools.partial(request_error, leader_detail=metadata.directory.leader_detail),
        bulk.handlers)
    passed_on_requests = PassedOnRequests(
        MetadataRequests(core, handlers, PeerAsker(passed_on)), limits.passed_on_requests_max)
    return PeerParts(introduce, links, bulk, control, passed_on, reads, liveness, lease_events,
                     handlers, requests, MetadataRequests(core, handlers, requests),
                     passed_on_requests)


def make_link(env: NodeEnv, admission: Admission, introduce: Introduce, peer: int,
              where: Address) -> PeerLink:
    """Return the append connection to a peer, which is not dialled yet."""
    return PeerLink(peer, where.host, where.port, introduce,
                    env.config.limits.peer_send_buffer_bytes_max, admission, env.log)


def _introductions(env: NodeEnv, admission: Admission, connection: str) -> Introduce:
    """Return the maker of introductions for connections of one class. An introduction names this
    node, its boot id, and the earlier boot id that the peer asked for."""
    hello = Hello(connection, env.config.cluster_id, env.config.node.id, env.store.boot_epoch,
                  incarnation=env.store.incarnation)

    def begin(peer: int) -> Introduction:
        after = admission.after(peer)
        return Introduction(env.security, hello._replace(
            process=admission.number(peer),
            after=BootIdRow(*after) if after is not None else None), peer)
    return begin
