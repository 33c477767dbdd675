"""The peer port, links to the nodes that are known, and this node's registration."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import multiraft
from node import bootstrap
from node.assembly.driver import DriverParts
from node.assembly.env import NodeEnv
from node.assembly.metadata import MetadataParts
from node.assembly.peers import PeerParts, make_link
from node.assembly.replicas import ReplicaParts
from node.clock import wall_ms
from node.cluster.registration import Registration
from node.data_directory import renew_boot_id
from node.peers.boot_id_renewal import Renewal
from node.peers.link_manager import LinkManager
from node.peers.listener import PeerListener


@dataclass(frozen=True, slots=True)
class MembershipParts:
    """The peer port, links to peers, and registration with the cluster."""

    peer_listener: PeerListener
    link_manager: LinkManager
    registration: Registration
    renewal: Renewal


def build_membership(env: NodeEnv, metadata: MetadataParts, peers: PeerParts,
                     replicas: ReplicaParts, driver: DriverParts) -> MembershipParts:
    """Build the peer port and the registration, and connect to the known peers. From now on links,
    then switches, follow the metadata."""
    config, store, log = env.config, env.store, env.log
    known, admission = metadata.known, metadata.admission
    listener = PeerListener(
        env.core, driver.rounds.request, peers.liveness, env.security, config.node.id,
        store.boot_epoch, known, config.raft.frame_bytes_max, config.limits.hello_timeout_ms,
        env.poller, log, peers.bulk, env.space, lambda: env.life.http_port)
    link = functools.partial(make_link, env, admission, peers.introduce("append"))
    link_manager = LinkManager(known, peers.links, peers.liveness, link, listener.end, log)
    metadata.log.state_changed.subscribe(link_manager.follow)
    metadata.log.state_changed.subscribe(lambda _state: replicas.partition_switcher.check())
    link_manager.changed()
    record = bootstrap.record_of(config.node, store.incarnation, store.boot_epoch,
                                 multiraft.__version__, wall_ms(), config.kafka)
    registration = Registration(peers.metadata_requests, peers.requests, known, record, admission,
                                link_manager, log)
    renewal = Renewal(admission, known, lambda: store.durable_position,
                      functools.partial(renew_boot_id, config), peers.links.dial,
                      peers.introduce("bulk"), log)
    return MembershipParts(listener, link_manager, registration, renewal)
