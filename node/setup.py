"""The command ``node init``: gives a data directory its identity, as a node of a new cluster or by
joining one.

Contract. ``initialise`` writes ``known_nodes.json`` and then ``node.json``, which completes the
identity; errors of the configuration are raised before. ``identity_of`` is the first check of a
start. A directory without identity is refused with the way out, because its disk may merely not be
mounted (scenario S28f). The functions block; they run before there is a loop.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import multiraft
from multiraft.client import blocking
from multiraft.client.tls import TlsSettings
from multiraft.errors import MultiRaftError
from multiraft.storage import refusal_record
from multiraft.storage.checkpoint import checkpoint_names
from multiraft.storage.errors import StorageError
from multiraft.storage.filesystem import Filesystem
from multiraft.storage.identity import NODE_FILE, Found, Identity, create, read
from multiraft.storage.refusal_record import RefusalRecord
from multiraft.storage.store import JOURNAL_DIRECTORY
from multiraft.wire.errors import RequestError
from multiraft.wire.nodes import JoinClusterReply, NodeRow
from node import bootstrap
from node.config import NodeConfig
from node.errors import BadConfig, BadDirectory, NodeRefused
from node.metadata.state_machine import NodeRecord
from node.peers import registry
from node.peers.dialable import require_dialable, require_kafka_dialable, unreachable_hosts
from node.peers.registry import Facts

Connect = Callable[[Sequence[str]], Any]  # client addresses -> a blocking client


def initialise(filesystem: Filesystem, config: NodeConfig, servers: Sequence[str],
               connect: Connect) -> tuple[Found, bool]:
    """Give the data directory its identity, unless it has one, which is only checked. Return the
    identity, and True if it is new.

    ``servers``: client addresses of the cluster to join; without them the node belongs to a new
    cluster. Raises ``BadDirectory`` for a directory that cannot be this node's or be written,
    ``BadConfig`` if the cluster cannot be joined or begun, ``NodeRefused`` if it refuses the
    node."""
    directory = str(config.data_dir)
    found = _existing(filesystem, config)
    if found is not None:
        return found, False
    require_dialable([config.node, *config.members], servers)
    require_kafka_dialable(config.kafka)
    try:
        if filesystem.exists(directory) and _has_data(filesystem, directory):
            raise BadDirectory(f"{directory} holds data but no {NODE_FILE}: it is half a copy, or "
                               f"its identity was lost; a new node needs an empty directory")
        incarnation = secrets.randbits(63) or 1
        if servers:
            node, facts = _join(config, incarnation, servers, connect)
        else:
            node, facts = _begin(config)
        filesystem.make_directory(directory)
        registry.write(filesystem, directory, facts)
        create(filesystem, directory, Identity(facts.cluster, node, incarnation))
    except (StorageError, OSError) as error:
        raise BadDirectory(f"cannot prepare the data directory {directory}: {error}") from error
    return Found(facts.cluster, node, incarnation, 0), True


def identity_of(filesystem: Filesystem, config: NodeConfig) -> Found:
    """Return the identity of the data directory. Raises ``BadDirectory`` if it has none or is
    another node's, and ``NodeRefused`` for a directory that the cluster refused before."""
    found = _existing(filesystem, config)
    if found is None:
        raise BadDirectory(
            f"{config.data_dir} has no identity ({NODE_FILE} is missing). If this node has run "
            f"before, its disk is not mounted, or its data is lost: a wiped node can rejoin only "
            f"as a new one. A node of a new cluster needs `multiraft node init --config FILE` "
            f"once; one that joins, `multiraft node start --config FILE --join HOST:PORT`")
    record = refusal_record_of(filesystem, config)
    if record is not None:
        raise NodeRefused(
            f"{config.data_dir} was refused by the cluster at an earlier start and is not started "
            f"again: {record.reason}. If that is wrong: `multiraft node clear-refusal "
            f"--config "
            f"FILE`"
        )
    return found


def refusal_record_of(filesystem: Filesystem, config: NodeConfig) -> RefusalRecord | None:
    """Return the refusal that the data directory records; None = it records none. Raises
    ``BadDirectory`` if it cannot be read."""
    try:
        return refusal_record.read(filesystem, str(config.data_dir))
    except (StorageError, OSError) as error:
        raise BadDirectory(f"cannot read why node {config.node.id} was refused: {error}") from error


def facts_of(filesystem: Filesystem, config: NodeConfig) -> Facts:
    """Return the facts about the other nodes from the data directory; for a directory of an earlier
    release, from the configuration. Raises ``BadDirectory`` if they cannot be read, or neither has
    them."""
    try:
        facts = registry.read(filesystem, str(config.data_dir))
    except (StorageError, OSError) as error:
        raise BadDirectory(f"cannot read what node {config.node.id} knows of the others: "
                           f"{error}") from error
    if facts is not None:
        return facts
    if not config.members:
        raise BadDirectory(f"{config.data_dir}/{registry.KNOWN_NODES_FILE} is missing, and "
                           f"[cluster] does not name the other nodes")
    return bootstrap.initial_facts(config)


def resolved(config: NodeConfig, found: Found) -> NodeConfig:
    """Return the configuration with the cluster and node id of the data directory."""
    return replace(config, cluster_id=found.cluster, node=replace(config.node, id=found.node))


def connect(servers: Sequence[str]) -> blocking.Client:
    """Return a client of the cluster to join; TLS as the environment sets it for all clients."""
    given = [os.environ.get(f"MULTIRAFT_TLS_{name}", "")
             for name in ("CA", "CERT", "KEY", "SERVER_NAME")]
    tls = TlsSettings(*given) if any(given) or os.environ.get("MULTIRAFT_TLS") else None
    return blocking.Client(servers, client_id="multiraft-node-init", tls=tls)


def check_addresses(config: NodeConfig, facts: Facts, log: logging.Logger) -> None:
    """Log a warning for each address of the node that other machines cannot connect to. Raises
    ``BadConfig`` if the configuration changed to such an address, or tells one to Kafka's clients.
    """
    require_kafka_dialable(config.kafka)  # no earlier release had one that would be kept
    hosts = unreachable_hosts(config.node)
    known = facts.nodes.get(config.node.id)
    had = (known.client_address, known.peer_address) if known is not None else None
    if hosts and had != (str(config.node.client_address), str(config.node.peer_address)):
        require_dialable([config.node])
    for host in hosts:
        log.warning("unreachable_address_configured", extra={"host": host})


def _existing(filesystem: Filesystem, config: NodeConfig) -> Found | None:
    directory = str(config.data_dir)
    try:
        found = read(filesystem, directory)
    except (StorageError, OSError) as error:
        raise BadDirectory(f"cannot open the data directory {directory}: {error}") from error
    if found is not None:
        if config.cluster_id not in (b"", found.cluster):
            raise BadDirectory(f"{directory} belongs to cluster {found.cluster.hex()}, the "
                               f"configuration names cluster {config.cluster_id.hex()}")
        if config.node.id not in (0, found.node):
            raise BadDirectory(f"{directory} belongs to node {found.node}, the configuration names "
                               f"node {config.node.id}")
    return found


def _has_data(filesystem: Filesystem, directory: str) -> bool:
    journal = f"{directory}/{JOURNAL_DIRECTORY}"
    return bool(checkpoint_names(filesystem, directory)
                or filesystem.exists(journal) and filesystem.list(journal))


def _begin(config: NodeConfig) -> tuple[int, Facts]:
    """Return id and facts of an initial node of a new cluster. Raises ``BadConfig`` if [cluster]
    names no initial nodes, or the cluster's replicas cannot be placed on them."""
    if not config.members:
        raise BadConfig("[cluster] does not say which nodes the new cluster begins with; a node "
                        "that joins a cluster needs --join HOST:PORT")
    facts = bootstrap.initial_facts(config)
    bootstrap.plan_of(facts)  # raises if the replicas cannot be placed
    return config.node.id, facts


def _join(config: NodeConfig, incarnation: int, servers: Sequence[str],
          connect: Connect) -> tuple[int, Facts]:
    """Register this node with the cluster at ``servers``. Return the id and facts that it assigns.
    Raises ``NodeRefused`` if it refuses or is another cluster, ``BadConfig`` if it cannot be
    asked."""
    record = bootstrap.record_of(config.node, incarnation, 0, multiraft.__version__,
                                 kafka=config.kafka)
    try:
        with connect(servers) as client:
            reply: JoinClusterReply = client.join_cluster(NodeRow(*record))
    except RequestError as error:
        raise NodeRefused(f"the cluster at {', '.join(servers)} does not take this node: "
                          f"{error}") from error
    except (MultiRaftError, OSError) as error:
        raise BadConfig(f"cannot join the cluster at {', '.join(servers)}: {error}") from error
    if config.cluster_id not in (b"", reply.cluster):
        raise NodeRefused(f"the cluster at {', '.join(servers)} is {reply.cluster.hex()}, the "
                          f"configuration names cluster {config.cluster_id.hex()}")
    return reply.node, registry.of_joined(
        reply.cluster, reply.groups, reply.replication_factor,
        [NodeRecord(*row) for row in reply.nodes], reply.removed, reply.version)
