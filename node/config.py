"""The configuration file ``node.toml`` as frozen values, which are parsed and validated once.

Contract. ``load(path)`` raises ``BadConfig`` with the file, the key and the expected value. Limits
state their reasons; limits that depend on each other are checked here.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from multiraft.errors import ConfigError
from multiraft.raft.config import RaftConfig
from multiraft.storage.config import StorageConfig
from multiraft.storage.settings import RELAXED, StorageSettings
from multiraft.wire.messages import PARTITIONS_MAX
from node import topic_defaults
from node.address import Address, parse_address
from node.errors import BadConfig
from node.limits import Limits
from node.security_config import SecurityConfig, require_kafka_protection, require_protection
from placement import POOL_SIZE_MAX


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """The table [http]: the port of metrics and health (``observability/http.py``), and its
    limits."""

    #: Address of metrics and health, ``host:port``; empty = not served. Requests are not
    #: authenticated: use this machine, or an address of a trusted network.
    address: str = "127.0.0.1:9301"
    #: Connections of scrapers, probes and a few people; more are closed at once.
    connections_max: int = 64
    #: A request that is not complete by then ends its connection, so that slow ones cannot use up
    #: all connections.
    request_timeout_ms: int = 5_000
    #: A connection kept open between two requests: longer than usual scrape intervals.
    idle_timeout_ms: int = 75_000
    #: A client that does not read the answer for so long is disconnected.
    write_timeout_ms: int = 10_000
    #: All of a request's head; scrapers send a few hundred bytes.
    head_bytes_max: int = 8_192
    #: ``/healthz`` reports loop or disk as stuck after this. Much more than the time that ends
    #: leases: a caller may kill the process, which helps only when nothing else does.
    stall_ms_max: int = 10_000
    #: ``/readyz`` reports a replica as caught up that lacks at most so many entries: as many are in
    #: flight at any moment under load.
    lag_entries_max: int = 256

    def validate(self) -> "HttpConfig":
        """Return this table. Raises ``BadConfig`` for a malformed address, or a limit that would
        admit no request."""
        self.listen_address()
        for name in ("connections_max", "request_timeout_ms", "write_timeout_ms",
                     "head_bytes_max", "stall_ms_max"):
            if not getattr(self, name):
                raise BadConfig(f"http.{name} must be above 0")
        return self

    def listen_address(self) -> Address | None:
        """Return the address to listen at; None = HTTP is off."""
        return parse_address(self.address, "http.address") if self.address else None


@dataclass(frozen=True, slots=True)
class MetricsConfig:
    """The table [metrics]: publication of loads in the topic ``__metrics``
    (``observability/load_publisher.py``)."""

    #: Publish loads. On all nodes of a cluster or none: plans need complete loads.
    publish: bool = True
    #: A window: loads of a minute are smooth enough to plan from, and an idle node's record a
    #: minute is nothing.
    interval_ms: int = 60_000
    #: Partitions with a row of their own in one window, at some 150 bytes of memory and 25 bytes of
    #: log each; the load of others is in the sums of their groups.
    partitions_max: int = 20_000
    #: The default of the topic's ``retention.ms``. Older records can no longer be read: a day is
    #: enough for a pipeline that was down.
    retention_ms: int = 86_400_000
    #: Capacity of this node's network, in and out; 0 = not known.
    ingress_bytes_per_second: int = 0
    egress_bytes_per_second: int = 0

    def validate(self) -> "MetricsConfig":
        """Return this table. Raises ``BadConfig`` for a value outside its range."""
        for name, least, most in (("interval_ms", 1_000, 3_600_000),
                                  ("partitions_max", 1, 1 << 20),
                                  ("retention_ms", 2 * self.interval_ms, 1 << 40)):
            if not least <= getattr(self, name) <= most:
                raise BadConfig(f"metrics.{name}={getattr(self, name)} must be from {least} to "
                                f"{most}")
        return self


#: Least memory of one compaction by key: with less, its passes over a partition would be countless.
COMPACTION_MEMORY_MIN = 1 << 20


@dataclass(frozen=True, slots=True)
class CompactionConfig:
    """The table [compaction]: compaction by key, of topics with ``cleanup.policy=compact``."""

    #: Order compactions in the partitions that this node leads. Those that other leaders ordered
    #: are carried out in any case: replicas must not differ.
    enabled: bool = True
    #: Memory for the keys of one compaction. With less, records are read more often; the result is
    #: the same.
    memory_bytes: int = 128 << 20

    def validate(self) -> "CompactionConfig":
        """Return this table. Raises ``BadConfig`` for too little memory."""
        if self.memory_bytes < COMPACTION_MEMORY_MIN:
            raise BadConfig(f"compaction.memory_bytes={self.memory_bytes} must be at least "
                            f"{COMPACTION_MEMORY_MIN}")
        return self


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """The table [kafka]: the port of Kafka's clients, which has the TLS of the client port."""

    #: Address to listen at for Kafka's clients, ``host:port``; empty = not served.
    address: str = ""
    #: Address that Kafka's clients receive, ``host:port``, where it is another one: of a proxy,
    #: or if ``address`` is a wildcard. All nodes know it. Empty = ``address``.
    advertised_address: str = ""
    #: Create a topic when a Kafka client names one that does not exist. Off: a mistyped name is an
    #: error, and not a topic.
    auto_create_topics: bool = False
    #: Partitions of a topic that is created in this way.
    num_partitions: int = 1

    def validate(self) -> "KafkaConfig":
        """Return this table. Raises ``BadConfig`` for a malformed address, one that is advertised
        without a port to listen at, or a number of partitions that no topic can have."""
        self.listen_address()
        self.advertised()
        if self.advertised_address and not self.address:
            raise BadConfig("kafka.advertised_address needs kafka.address: name the 'host:port' to "
                            "listen at, or remove kafka.advertised_address")
        if not 1 <= self.num_partitions <= PARTITIONS_MAX:
            raise BadConfig(f"kafka.num_partitions={self.num_partitions} must be from 1 to "
                            f"{PARTITIONS_MAX}")
        return self

    def listen_address(self) -> Address | None:
        """Return the address to listen at; None = Kafka's clients are not served."""
        return parse_address(self.address, "kafka.address") if self.address else None

    def advertised(self) -> Address | None:
        """Return the address that Kafka's clients receive; None = they are not served."""
        if not self.advertised_address:
            return self.listen_address()
        return parse_address(self.advertised_address, "kafka.advertised_address")


@dataclass(frozen=True, slots=True)
class Member:
    """One node of the initial cluster. Id 0: a node that joins, whose data directory knows its
    id."""

    id: int
    rack: str
    weight: float
    client_address: Address
    peer_address: Address


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """The configuration of one node.

    The part about the cluster counts for a new cluster only; afterwards ``peers/registry.py`` and
    the metadata are authoritative. A node that joins needs at most its id: empty, 0 and () = not in
    the file.
    """

    node: Member
    data_dir: Path
    cluster_id: bytes
    groups: int
    replication_factor: int
    members: tuple[Member, ...]
    #: (name, value) of the settings with which topics of a new cluster begin.
    topic_defaults: tuple[tuple[str, str], ...] = ()
    raft: RaftConfig = field(default_factory=RaftConfig)
    limits: Limits = field(default_factory=Limits)
    security: SecurityConfig = field(default_factory=SecurityConfig)
    storage: StorageSettings = field(default_factory=StorageSettings)
    http: HttpConfig = field(default_factory=HttpConfig)
    #: True if the file names no address for HTTP: then a port in use does not prevent the start.
    http_is_optional: bool = True
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    kafka: KafkaConfig = field(default_factory=KafkaConfig)
    compaction: CompactionConfig = field(default_factory=CompactionConfig)
    #: (old, new) of the keys that the file has under names of earlier releases.
    renamed_keys: tuple[tuple[str, str], ...] = ()


#: Table -> key of an earlier release, which is still read -> key.
RENAMED = {
    "limits": {
        "answer_timeout_ms": "write_timeout_ms",
        "bulk_bytes_per_second": "repair_bytes_per_second",
        "disk_probe_ms": "disk_probe_interval_ms",
        "half_closed_ms_max": "half_closed_timeout_ms",
        "metadata_entries_held_max": "metadata_catch_up_entries_max",
        "node_outbox_bytes_max": "node_send_buffer_bytes_max",
        "outbox_bytes_max": "connection_send_buffer_bytes_max",
        "peer_outbox_bytes_max": "peer_send_buffer_bytes_max",
        "producer_id_block": "producer_id_gap_max",
        "resident_read_bytes_max": "page_cache_read_bytes_max",
        "run_timeout_ms": "transaction_timeout_ms",
        "shutdown_ms_max": "shutdown_timeout_ms",
    },
    "raft": {
        "bystander_retry_ms": "non_candidate_retry_ms",
        "commands_per_round_max": "metadata_commands_per_round_max",
        "election_spread_ms": "election_jitter_ms",
        "liveness_interval_ms": "heartbeat_interval_ms",
        "members_may_forget": "accept_lost_entries",
        "reads_waiting_max": "pending_reads_max",
        "reexamine_groups_max": "liveness_checks_per_round_max",
    },
    "http": {"answer_timeout_ms": "write_timeout_ms"},
    "metrics": {
        "egress_capacity": "egress_bytes_per_second",
        "ingress_capacity": "ingress_bytes_per_second",
    },
}

#: Longest configuration, in characters: one with every node of a large cluster has some 100 KB, and
#: a device has no end.
CONFIG_CHARACTERS_MAX = 1 << 20


def load(path: Path) -> NodeConfig:
    """Return the configuration in a ``node.toml``. Raises ``BadConfig`` if it cannot be read, has
    an unknown key, or contradicts itself."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(CONFIG_CHARACTERS_MAX + 1)
        if len(text) > CONFIG_CHARACTERS_MAX:
            raise BadConfig(f"{path} has more than {CONFIG_CHARACTERS_MAX} characters, the limit")
        table = tomllib.loads(text)
    # ValueError also for a number of too many digits, and for bytes that are no UTF-8.
    except (OSError, ValueError, RecursionError) as error:
        raise BadConfig(f"cannot read {path}: {error}") from error
    try:
        return parse(table, path.parent)
    except (BadConfig, ConfigError) as error:
        raise BadConfig(f"{path}: {error}") from error


def parse(table: dict, relative_to: Path) -> NodeConfig:
    """Return the configuration in a parsed ``node.toml``. Raises ``BadConfig`` or ``ConfigError``
    for an unknown key, a wrong value or a contradiction."""
    known = {"node", "cluster", topic_defaults.TABLE, "raft", "limits", "storage", "security",
             "http", "metrics", "kafka", "compaction"}
    _no_others(table, known, "the file")
    table, renamed = _with_present_names(table)
    node_table = _table(table, "node")
    node = _member({key: value for key, value in node_table.items() if key != "data_dir"}, "node")
    cluster_id, groups, factor, members = _cluster(table, node)
    config = NodeConfig(
        node=node, data_dir=_data_dir(node_table, relative_to), cluster_id=cluster_id,
        groups=groups, replication_factor=factor, members=members,
        topic_defaults=topic_defaults.parse(table.get(topic_defaults.TABLE, {}), factor),
        raft=_section(RaftConfig, table.get("raft", {}), "raft").validate(),
        limits=_section(Limits, table.get("limits", {}), "limits").validate(),
        http=_section(HttpConfig, table.get("http", {}), "http").validate(),
        metrics=_section(MetricsConfig, table.get("metrics", {}), "metrics").validate(),
        kafka=_section(KafkaConfig, table.get("kafka", {}), "kafka").validate(),
        compaction=_section(CompactionConfig, table.get("compaction", {}),
                            "compaction").validate(),
        http_is_optional="address" not in table.get("http", {}),
        storage=_section(StorageSettings, table.get("storage", {}), "storage").validate(),
        security=_section(SecurityConfig, table.get("security", {}),
                          "security").validate().relative_to(relative_to),
        renamed_keys=renamed)
    if config.storage.durability == RELAXED:
        config = replace(config, raft=replace(config.raft, accept_lost_entries=True))
    config.limits.validate_with(config.raft, StorageConfig())
    _check_kafka_port(config)
    require_protection(config.security, node.client_address.host, node.peer_address.host)
    return config


def _check_kafka_port(config: NodeConfig) -> None:
    """Raise ``BadConfig`` if Kafka's clients have a port of something else, ``ConfigError`` if
    others reach their port unprotected."""
    address = config.kafka.listen_address()
    if address is None:
        return
    for name, other in (("node.client_address", config.node.client_address),
                        ("node.peer_address", config.node.peer_address),
                        ("http.address", config.http.listen_address())):
        if address == other:
            raise BadConfig(f"kafka.address and {name} are both {address}: name another port")
    require_kafka_protection(config.security, address.host)


def _with_present_names(table: dict) -> tuple[dict, tuple[tuple[str, str], ...]]:
    """Return the file's tables with present keys, and (old, new) of those that it has under earlier
    names. Raises ``BadConfig`` if it has a key under both names."""
    renamed = []
    for where, names in RENAMED.items():
        section = table.get(where)
        if not isinstance(section, dict):
            continue  # missing, or refused where it is parsed
        for old, new in names.items():
            if old in section and new in section:
                raise BadConfig(f"{where}.{old} is now {where}.{new}: remove the old key")
        renamed += [(f"{where}.{old}", f"{where}.{new}") for old, new in names.items()
                    if old in section]
        table = {**table, where: {names.get(key, key): value for key, value in section.items()}}
    return table, tuple(renamed)


def _cluster(table: dict, node: Member) -> tuple[bytes, int, int, tuple[Member, ...]]:
    """Return (cluster id, groups, replication factor, nodes) of [cluster]. Empty values: a node
    that joins has only the id or no table. Raises ``BadConfig`` for a wrong value or a
    contradiction."""
    if "cluster" not in table:
        return b"", 0, 0, ()
    cluster = _table(table, "cluster")
    _no_others(cluster, {"id", "groups", "replication_factor", "nodes"}, "cluster")
    if set(cluster) == {"id"}:
        return _cluster_id(cluster), 0, 0, ()
    members = tuple(sorted((_member(row, "cluster.nodes") for row in cluster.get("nodes", [])),
                           key=lambda member: member.id))
    _check_members(node, members)
    groups = _integer(cluster, "groups", 1, POOL_SIZE_MAX)
    factor = _integer(cluster, "replication_factor", 1, 7)
    if factor > len(members):
        raise BadConfig(f"cluster.replication_factor={factor} needs as many nodes, there are "
                        f"{len(members)}")
    return _cluster_id(cluster), groups, factor, members


def _check_members(node: Member, members: tuple[Member, ...]) -> None:
    ids = [member.id for member in members]
    if not node.id:
        raise BadConfig("node.id must say which of cluster.nodes this is")
    if len(set(ids)) != len(ids):
        raise BadConfig(f"cluster.nodes names a node id twice: {ids}")
    if node not in members:
        raise BadConfig(f"cluster.nodes has no row equal to [node] (id {node.id})")
    addresses = [str(a) for member in members for a in (member.client_address, member.peer_address)]
    if len(set(addresses)) != len(addresses):
        raise BadConfig(f"cluster.nodes uses an address twice: {sorted(addresses)}")


def _member(row: dict, where: str) -> Member:
    _no_others(row, {"id", "rack", "weight", "client_address", "peer_address"}, where)
    weight = row.get("weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0 < weight < 1e6:
        raise BadConfig(f"{where}.weight must be a positive number, not {weight!r}")
    rack = row.get("rack", "")
    if not isinstance(rack, str):
        raise BadConfig(f"{where}.rack must be text, not {rack!r}")
    id_ = 0 if where == "node" and "id" not in row else _integer(row, "id", 1, 2**31 - 1, where)
    client, peer = (parse_address(row.get(name), f"{where}.{name}")
                    for name in ("client_address", "peer_address"))
    return Member(id=id_, rack=rack, weight=float(weight), client_address=client,
                  peer_address=peer)


def _data_dir(table: dict, relative_to: Path) -> Path:
    value = table.get("data_dir")
    if not isinstance(value, str) or not value:
        raise BadConfig(f"node.data_dir must be a path, not {value!r}")
    return relative_to / value


def _cluster_id(cluster: dict) -> bytes:
    value: Any = cluster.get("id")
    try:
        cluster_id = bytes.fromhex(value.replace("-", ""))
    except (AttributeError, ValueError) as error:
        raise BadConfig(f"cluster.id must be 32 hex digits, not {value!r}") from error
    if len(cluster_id) != 16:
        raise BadConfig(f"cluster.id must be 32 hex digits, not {value!r}")
    return cluster_id


def _section(kind: type, table: dict, where: str) -> Any:
    """Return a ``kind``, a dataclass of numbers, texts and booleans, from a TOML table; missing
    keys have their defaults. Raises ``BadConfig`` for a value of the wrong type or out of range,
    and for unknown keys."""
    if not isinstance(table, dict):
        raise BadConfig(f"{where} must be a table, not {table!r}")
    defaults = {item.name: item.default for item in fields(kind)}
    _no_others(table, set(defaults), where)
    return kind(**{name: _value(table, name, defaults[name], where) for name in table})


def _value(table: dict, name: str, default: object, where: str) -> Any:
    """Return the value of ``name`` in a TOML table. Raises ``BadConfig`` if it is not of the type
    of ``default`` or out of range."""
    if isinstance(default, int) and not isinstance(default, bool):
        return _integer(table, name, 0, 2**40, where)
    if type(table[name]) is not type(default):
        expected = "true or false" if isinstance(default, bool) else "text"
        raise BadConfig(f"{where}.{name} must be {expected}, not {table[name]!r}")
    return table[name]


def _table(table: dict, name: str) -> dict:
    value = table.get(name)
    if not isinstance(value, dict):
        raise BadConfig(f"the table [{name}] is missing")
    return value


def _no_others(table: dict, known: set[str], where: str) -> None:
    others = sorted(set(table) - known)
    if others:
        raise BadConfig(f"{where} does not know {others[0]!r}; it knows {sorted(known)}")


def _integer(table: dict, name: str, least: int, most: int, where: str = "cluster") -> int:
    value = table.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadConfig(f"{where}.{name} must be a whole number from {least} to {most}, "
                        f"not {value!r}")
    return value
