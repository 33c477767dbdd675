"""The port for Kafka's clients: handlers of its APIs, on top of those of the client port."""

from __future__ import annotations

from dataclasses import dataclass

from multiraft.codec.layout import BATCH_BYTES_MAX
from multiraft.kafka.apis import ApiKey
from multiraft.settings.values import Kind
from multiraft.wire.messages import DeleteRecords
from multiraft.wire.settings import DescribeSettings
from node.assembly.admin import AdminParts
from node.assembly.clients import ClientParts
from node.assembly.env import NodeEnv
from node.assembly.metadata import MetadataParts
from node.assembly.peers import PeerParts
from node.assembly.reads import ReadParts
from node.clients.awaited import ReadCalls
from node.clients.client_connection import ClientConnections
from node.clients.connection_reaper import ConnectionReaper
from node.clients.leader_epochs import LeaderEpochs
from node.clients.request_tasks import RequestTasks
from node.config import NodeConfig
from node.earlier_epochs.earlier_reads import EarlierReads
from node.earlier_epochs.served_reads import ServedReads
from node.kafka.cluster_requests import ClusterRequests
from node.kafka.coordinators import Coordinators, Identities
from node.kafka.describe_topics import TopicDescriptions
from node.kafka.fetch import FetchRequests
from node.kafka.leader_epochs import EpochRequests
from node.kafka.list_offsets import OffsetRequests
from node.kafka.log_dirs import LogDirRequests
from node.kafka.partition_requests import PartitionAdditions
from node.kafka.preferred_replicas import PreferredReplicas
from node.kafka.produce import ProduceRequests
from node.kafka.raised_epochs import RaisedEpochs
from node.kafka.record_deletion import RecordDeletions
from node.kafka.requests import Handler, KafkaRequests
from node.kafka.setting_requests import NodeSetting, SettingRequests
from node.kafka.staged_records import StagedRecords
from node.kafka.topic_requests import TopicChanges
from node.kafka.topic_view import TopicView
from node.loop.disk_space import total_bytes


@dataclass(frozen=True, slots=True)
class KafkaParts:
    """Sessions of Kafka's clients."""

    tasks: RequestTasks
    requests: KafkaRequests
    connections: ClientConnections
    connection_reaper: ConnectionReaper


def build_kafka(env: NodeEnv, metadata: MetadataParts, peers: PeerParts, reads: ReadParts,
                admin: AdminParts, clients: ClientParts) -> KafkaParts:
    """Build the port for Kafka's clients. Its sessions share limits, memory budget and handlers
    with those of the client port."""
    config, core, sessions, directory = env.config, env.core, clients.sessions, metadata.directory
    limits, request_round = config.limits, env.loop.request
    cluster_id = config.cluster_id.hex()
    tasks = RequestTasks(env.turns, request_round, directory.leader_detail)
    topics = TopicView(core, metadata.log, directory, reads.read_view, metadata.known)
    produce = ProduceRequests(clients.produce_handler, topics, RaisedEpochs(
        directory, peers.passed_on_requests, reads.background, env.log))
    calls = ReadCalls(env.turns, request_round)
    ServedReads(peers.bulk, calls, reads.fetch_handler, reads.offsets, directory.leader_detail)
    earlier_reads = EarlierReads(core, directory, reads.read_view, calls, reads.fetch_handler,
                                 reads.offsets, peers.reads)
    staged_records = StagedRecords(metadata.log)
    preferred_replicas = PreferredReplicas(core, directory, topics, config.node.rack)
    fetch = FetchRequests(reads.fetch_handler, calls, earlier_reads, preferred_replicas, topics,
                          sessions.budget, metadata.log, staged_records, tasks)
    leader_epochs = LeaderEpochs(core, env.store.partition_states, reads.read_view,
                                 reads.read_index_requests, env.turns)
    epochs = EpochRequests(leader_epochs, topics, tasks, env.turns)
    offsets = OffsetRequests(reads.offsets, reads.fetch_handler, calls, earlier_reads, topics,
                             leader_epochs, staged_records, tasks, reads.background, env.turns)
    described = TopicDescriptions(core, metadata.log, topics, cluster_id, config.kafka,
                                  limits.metadata_rows_max, tasks, peers.passed_on_requests,
                                  env.turns)
    changes = TopicChanges(metadata.log, topics, peers.passed_on_requests,
                           admin.handlers[DescribeSettings], config.kafka, limits,
                           lambda: metadata.known.facts.replication_factor, tasks, env.turns)
    additions = PartitionAdditions(metadata.log, peers.passed_on_requests, tasks, env.turns)
    settings = SettingRequests(admin.handlers[DescribeSettings], peers.passed_on_requests,
                               config.node.id, node_settings(
                                   config, metadata.known.facts.replication_factor), tasks)
    cluster = ClusterRequests(topics, cluster_id)
    deletions = RecordDeletions(admin.handlers[DeleteRecords], topics, tasks, env.turns)
    log_dirs = LogDirRequests(
        metadata.log, env.store.partition_states, str(config.data_dir),
        lambda: (total_bytes(config.data_dir), env.space.free), limits.metadata_rows_max, tasks,
        env.turns)
    identities = Identities(peers.passed_on_requests, tasks)
    coordinators = Coordinators()
    requests = KafkaRequests(sessions, {
        ApiKey.PRODUCE: Handler(produce.handle, produce.refuse),
        ApiKey.FETCH: Handler(fetch.handle, fetch.refuse),
        ApiKey.LIST_OFFSETS: Handler(offsets.handle, offsets.refuse),
        ApiKey.METADATA: Handler(described.handle, described.refuse),
        ApiKey.FIND_COORDINATOR: Handler(coordinators.handle, coordinators.refuse),
        ApiKey.CREATE_TOPICS: Handler(changes.create, changes.refuse_creation),
        ApiKey.DELETE_TOPICS: Handler(changes.delete, changes.refuse_deletion),
        ApiKey.DELETE_RECORDS: Handler(deletions.handle, deletions.refuse),
        ApiKey.INIT_PRODUCER_ID: Handler(identities.handle, identities.refuse),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: Handler(epochs.handle, epochs.refuse),
        ApiKey.DESCRIBE_ACLS: Handler(cluster.access_rules, cluster.refuse_rules),
        ApiKey.DESCRIBE_CONFIGS: Handler(settings.describe, settings.refuse_description),
        ApiKey.ALTER_CONFIGS: Handler(settings.replace, settings.refuse_replacement),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: Handler(settings.alter, settings.refuse_alteration),
        ApiKey.DESCRIBE_LOG_DIRS: Handler(log_dirs.handle, log_dirs.refuse),
        ApiKey.CREATE_PARTITIONS: Handler(additions.handle, additions.refuse),
        ApiKey.DESCRIBE_CLUSTER: Handler(cluster.describe, cluster.refuse_description),
    }, tasks, reads.fetch_handler, env.poller, cluster_id, config.node.id)
    connections = ClientConnections(sessions, requests, env.poller, env.turns, env.log,
                                    env.security, lambda: env.life.http_port, "kafka")
    reaper = ConnectionReaper(limits, lambda: connections.open,
                              lambda: bool(sessions.budget.waiting))
    return KafkaParts(tasks, requests, connections, reaper)


def node_settings(config: NodeConfig, replication_factor: int) -> tuple[NodeSetting, ...]:
    """Return what Kafka's tools are shown of a node's configuration, under Kafka's names."""
    kafka, node = config.kafka, config.node
    protocol = "SSL" if config.security.client_certificate else "PLAINTEXT"
    return (
        NodeSetting("advertised.listeners", f"{protocol}://{kafka.advertised() or ''}",
                    Kind.STRING),
        NodeSetting("auto.create.topics.enable", str(kafka.auto_create_topics).lower(),
                    Kind.BOOLEAN),
        NodeSetting("broker.rack", node.rack, Kind.STRING),
        NodeSetting("default.replication.factor", str(replication_factor), Kind.INT),
        NodeSetting("listeners", f"{protocol}://{kafka.address}", Kind.STRING),
        NodeSetting("log.dirs", str(config.data_dir), Kind.LIST),
        NodeSetting("message.max.bytes", str(BATCH_BYTES_MAX), Kind.INT),
        NodeSetting("node.id", str(node.id), Kind.INT),
        NodeSetting("num.partitions", str(kafka.num_partitions), Kind.INT),
    )
