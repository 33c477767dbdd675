"""The counters of a node, for metrics and for the request ``node_status``."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from multiraft.kafka.apis import ApiKey
from multiraft.kafka.connection import KafkaConnection
from multiraft.kafka.error_codes import ErrorCode
from node.assembly.admin import AdminParts
from node.assembly.clients import ClientParts
from node.assembly.compaction import CompactionParts
from node.assembly.driver import DriverParts
from node.assembly.env import NodeEnv
from node.assembly.kafka import KafkaParts
from node.assembly.metadata import MetadataParts
from node.assembly.peers import PeerParts
from node.assembly.reads import ReadParts
from node.assembly.rebalance import RebalanceParts
from node.assembly.replicas import ReplicaParts
from node.assembly.retention import RetentionParts
from node.assembly.storage import StorageParts
from node.clients.listener import ConnectionCounts
from node.observability.kafka_port import KafkaPort
from node.observability.largest_topics import LargestTopics
from node.observability.node_status import NodeStatusRequests
from node.observability.statistics import CountingParts, Statistics


@dataclass(frozen=True, slots=True)
class StatusParts:
    """Counters of the client port, and the statistics of all parts."""

    client_connections: ConnectionCounts
    statistics: Statistics
    largest_topics: LargestTopics


def build_status(env: NodeEnv, storage: StorageParts, metadata: MetadataParts, peers: PeerParts,
                 reads: ReadParts, admin: AdminParts, clients: ClientParts,
                 replicas: ReplicaParts, rebalance: RebalanceParts,
                 driver: DriverParts, retention: RetentionParts,
                 key_compaction: CompactionParts, kafka: KafkaParts) -> StatusParts:
    """Gather the parts that keep counters, and answer ``node_status`` from their counters."""
    connections = ConnectionCounts()
    largest_topics = LargestTopics(
        lambda: metadata.log.state, admin.sizes.topic_size,
        lambda: (clients.produce_handler.batches, metadata.log.state.version,
                 env.core.status.leading_version))
    statistics = Statistics(
        CountingParts(
            life=env.life,
            store=env.store,
            core=env.core,
            applier=driver.applier,
            watchdog=driver.watchdog,
            produce_handler=clients.produce_handler,
            fetch_handler=reads.fetch_handler,
            disk=storage.gather,
            rounds=driver.rounds,
            peers=peers.links,
            liveness=peers.liveness,
            bulk=peers.bulk,
            checkpoints=replicas.checkpoints,
            repairs=replicas.repairs,
            scrub=storage.scrub,
            remover=storage.remover,
            cleaner=storage.cleaner.cleaner,
            compaction=replicas.compaction,
            space=env.space,
            snapshots=replicas.snapshots,
            record_copies=replicas.record_copies,
            replicas=replicas.replicas,
            metadata_log=metadata.log,
            partition_switcher=replicas.partition_switcher,
            retention=retention.passes,
            key_compaction=key_compaction.passes,
            clocks=retention.clocks,
            load_publisher=rebalance.load_publisher,
            sessions=clients.sessions,
            client_connections=clients.connections,
            lease_events=peers.lease_events,
            connections=connections,
            known=metadata.known,
            security=env.security,
            largest_topics=largest_topics,
            kafka=functools.partial(kafka_port, kafka, peers),
        )
    )
    status = NodeStatusRequests(env.config.node.id, statistics, admin.group_health)
    admin.handlers.update(status.handlers)
    return StatusParts(connections, statistics, largest_topics)


def kafka_port(kafka: KafkaParts, peers: PeerParts) -> KafkaPort:
    """Return the counters of the port for Kafka's clients, with the names of APIs and errors.
    O(connections)."""
    counts, connections = kafka.requests.counts, kafka.connections
    open_streams = [connection.session.stream for connection in connections.open]
    streams = [stream for stream in open_streams if isinstance(stream, KafkaConnection)]
    known = sum(counts.closed.values())
    return KafkaPort(
        {ApiKey(key).name: counts.requests.get(key, 0) for key in sorted(kafka.requests.apis)},
        {ErrorCode(error).name: count for error, count in sorted(counts.errors.items())},
        {**counts.closed, "other": max(0, connections.closed_by_error - known)},
        counts.received_bytes, counts.sent_bytes, connections.accepted, len(streams),
        sum(stream.held for stream in streams), sum(stream.held_bytes for stream in streams),
        kafka.tasks.in_progress, peers.passed_on_requests.in_progress)
