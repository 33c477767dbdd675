"""Requests about topics, nodes and their settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from multiraft.kafka.apis import ApiKey
from multiraft.kafka.hot_messages import MetadataRequest
from multiraft.kafka.messages.alter_configs import AlterConfigsRequest
from multiraft.kafka.messages.create_partitions import CreatePartitionsRequest
from multiraft.kafka.messages.create_topics import CreateTopicsRequest
from multiraft.kafka.messages.delete_topics import DeleteTopicsRequest
from multiraft.kafka.messages.describe_cluster import DescribeClusterRequest
from multiraft.kafka.messages.describe_configs import DescribeConfigsRequest
from multiraft.kafka.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from multiraft.kafka.schema import ZERO_UUID
from tests.kafka_compare.server import Server

TIMEOUT_MS = 10_000
NO_SUCH_ID = b"?" * 16
#: Names that no topic may have, by what is wrong.
WRONG_NAMES = {"empty": "", "one point": ".", "two points": "..", "a blank": "bad name",
               "a slash": "a/b", "not ASCII": "t\u00f6pic", "250 characters": "n" * 250}
TOPIC, BROKER, LOGGER = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)


def topic(name: str, partitions: int = 1, factor: int = 1, **fields: Any) -> Any:
    """Return a topic of a request to create some. ``configs``: settings by name."""
    configs = [CreateTopicsRequest.CreatableTopicConfig(name=each, value=value)
               for each, value in fields.pop("configs", {}).items()]
    return CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=factor, configs=configs, **fields)


def creation(*topics: Any, **fields: Any) -> CreateTopicsRequest:
    """Return a request to create topics."""
    return CreateTopicsRequest(topics=list(topics), timeout_ms=TIMEOUT_MS, **fields)


def assigned(*brokers: int, partition: int = 0) -> Any:
    """Return the replicas of a partition that a request chooses."""
    return CreateTopicsRequest.CreatableReplicaAssignment(partition_index=partition,
                                                          broker_ids=list(brokers))


def create_topics(server: Server) -> None:
    """Create topics, with right and with wrong values."""
    key = ApiKey.CREATE_TOPICS

    def one(label: str, created: Any, **fields: Any) -> None:
        server.ask(f"create: {label}", key, creation(created, **fields))

    server.ask_each("create", key, lambda version: creation(topic(f"created-{version}", 2)))
    server.ask_each("create, only checked", key, lambda version: creation(
        topic(f"checked-{version}", 2), validate_only=True))
    server.ask_each("create one that exists", key, lambda version: creation(
        topic(f"created-{version}", 2)))
    # Default values are known from version 4 on.
    server.ask_each("create with default values", key, lambda version: creation(
        topic(f"default-{version}", -1, -1)), since=4)
    for number in (0, -2, 2_147_483_647):
        one(f"{number} partitions", topic("refused", number))
    for number in (0, -2, 2, 32_767):
        one(f"replication factor {number}", topic("refused", 1, number))
    for label, name in WRONG_NAMES.items():
        one(f"a name with {label}", topic(name))
    one("the name of an internal topic", topic("__consumer_offsets"))
    one("249 characters", topic("n" * 249))
    one("names with a point", topic("with.point"))
    one("a name that differs by a point", topic("with_point"))
    one("an unknown setting", topic("refused", configs={"no.such.setting": "1"}))
    one("a wrong value of a setting", topic("refused", configs={"retention.ms": "soon"}))
    one("a value outside of its range", topic("refused", configs={"segment.bytes": "-1"}))
    one("a setting without a value", topic("refused", configs={"retention.ms": None}))
    one("settings", topic("settings", configs={
        "cleanup.policy": "compact,delete", "retention.ms": "1000", "max.message.bytes": "5000"}))
    for side in ("before", "after"):
        one(f"a limit of times {side} the present", topic(f"limit-{side}", configs={
            f"message.timestamp.{side}.max.ms": "86400000"}))
    one("replicas", topic("assigned", -1, -1, assignments=[assigned(1)]))
    one("replicas and a number of partitions", topic("refused", 1, 1, assignments=[assigned(1)]))
    one("replicas on a node that does not exist", topic("refused", -1, -1,
                                                        assignments=[assigned(77)]))
    one("replicas without the first partition", topic("refused", -1, -1, assignments=[
        assigned(1, partition=1)]))
    one("no replicas", topic("refused", -1, -1, assignments=[assigned()]))
    for label, wrong in {"a wrong name": topic("bad name"), "a name that exists": topic("settings"),
                         "0 partitions": topic("refused", 0),
                         "replication factor 7": topic("refused", 1, 7)}.items():
        one(f"only checked, {label}", wrong, validate_only=True)
    server.ask("create: a name twice", key, creation(topic("twice"), topic("twice"),
                                                     topic("beside")))
    server.ask("create: none", key, creation())


def create_partitions(server: Server) -> None:
    """Add partitions to topics that ``create_topics`` has created."""
    key = ApiKey.CREATE_PARTITIONS

    def grown(name: str, count: int, assignments: Sequence[Sequence[int]] | None = None) -> Any:
        assigned = CreatePartitionsRequest.CreatePartitionsAssignment
        return CreatePartitionsRequest.CreatePartitionsTopic(
            name=name, count=count, assignments=None if assignments is None else [
                assigned(broker_ids=list(brokers)) for brokers in assignments])

    def request(*topics: Any, **fields: Any) -> CreatePartitionsRequest:
        return CreatePartitionsRequest(topics=list(topics), timeout_ms=TIMEOUT_MS, **fields)

    server.ask_each("add partitions, only checked", key, lambda version: request(
        grown(f"created-{version + 2}", 3), validate_only=True))
    server.ask_each("add partitions", key, lambda version: request(
        grown(f"created-{version + 2}", 3)))
    server.ask_each("add partitions that are there", key, lambda version: request(
        grown(f"created-{version + 2}", 3)))
    server.ask_each("add partitions to a topic that does not exist", key, request(
        grown("never-created", 3)))
    for count in (2, 1, 0, -1, 2_147_483_647):
        for only in (True, False):
            server.ask(f"add partitions: {count}{', only checked' if only else ''}", key, request(
                grown("created-2", count), validate_only=only))
    for label, name in WRONG_NAMES.items():
        server.ask(f"add partitions: a name with {label}", key, request(grown(name, 3)))
    server.ask("add partitions: a topic twice", key, request(
        grown("created-2", 4), grown("created-2", 5), grown("created-3", 4)))
    for label, assignments in {"replicas": [[1]], "replicas on a node that does not exist": [[77]],
                               "replicas of too few partitions": [], "no replicas": [[]]}.items():
        server.ask(f"add partitions: {label}", key, request(grown("created-4", 4, assignments)))
    server.ask("add partitions: replicas, only checked", key, request(
        grown("created-5", 4, [[1]]), validate_only=True))
    server.ask("add partitions: replicas for a topic that does not exist", key, request(
        grown("never-created", 4, [[1]])))
    server.ask("add partitions: none", key, request())
    for timeout in (0, -1):
        server.ask(f"add partitions within {timeout} ms", key, CreatePartitionsRequest(
            topics=[grown("never-created", 3)], timeout_ms=timeout))
    server.ask("metadata after partitions were added", ApiKey.METADATA, MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=f"created-{number}")
                for number in range(2, 6)]))


def delete_topics(server: Server) -> None:
    """Delete topics by name and by id."""
    key = ApiKey.DELETE_TOPICS
    state = DeleteTopicsRequest.DeleteTopicState

    def request(version: int, *names: str) -> DeleteTopicsRequest:
        return DeleteTopicsRequest(topic_names=list(names) if version < 6 else [], topics=[
            state(name=each) for each in names] if version >= 6 else [], timeout_ms=TIMEOUT_MS)

    names = [f"created-{version}" for version in range(2, 8)]
    server.learn(*names, "default-4", "default-5", "default-6", "beside")
    server.ask_each("delete", key, lambda version: request(version, f"created-{version + 1}"))
    server.ask_each("delete one that does not exist", key, lambda version: request(
        version, "never-created"))
    server.ask_each("delete twice in a request", key, lambda version: request(
        version, "default-4", "default-4"), since=6)
    for label, name in WRONG_NAMES.items():
        server.ask(f"delete: a name with {label}", key, request(6, name))

    def by(label: str, *states: Any) -> None:
        server.ask(f"delete: {label}", key, DeleteTopicsRequest(topics=list(states),
                                                                timeout_ms=TIMEOUT_MS))

    by("by id", state(topic_id=server.ids["beside"]))
    by("by an id that does not exist", state(topic_id=NO_SUCH_ID))
    by("by name and id", state(name="default-5", topic_id=server.ids["default-5"]))
    by("by nothing", state())
    by("the same topic by name and by id", state(name="default-6"),
       state(topic_id=server.ids["default-6"]))
    by("none")
    for timeout in (0, -1):
        server.ask(f"delete within {timeout} ms", key, DeleteTopicsRequest(
            topics=[state(name="never-created")], timeout_ms=timeout))


def metadata(server: Server) -> None:
    """Ask for metadata of topics and for the cluster."""
    key, named = ApiKey.METADATA, MetadataRequest.MetadataRequestTopic

    def request(*names: str | None, **fields: Any) -> MetadataRequest:
        return MetadataRequest(topics=[named(name=name) for name in names], **fields)

    server.ask_each("metadata of a topic", key, request("log", "twice-read"))
    server.ask_each("metadata of a topic twice", key, request("log", "log"))
    server.ask_each("metadata of a topic that does not exist", key, lambda version: request(
        "never-created", allow_auto_topic_creation=version < 4))
    server.ask("metadata, topics may be created", key, request("never-created"))
    server.ask_each("metadata of no topic", key, request(), since=1)
    for label, name in WRONG_NAMES.items():
        server.ask(f"metadata of a name with {label}", key, request(name))
    server.ask_each("metadata by id", key, MetadataRequest(
        topics=[named(name=None, topic_id=server.ids["log"])]), since=12)
    server.ask_each("metadata by an id that does not exist", key, MetadataRequest(
        topics=[named(name=None, topic_id=NO_SUCH_ID)]), since=12)
    server.ask("metadata by name and id", key, MetadataRequest(
        topics=[named(name="log", topic_id=server.ids["log"])]))
    server.ask("metadata without name and id", key, MetadataRequest(
        topics=[named(name=None, topic_id=ZERO_UUID)]))
    server.ask_each("metadata with permitted operations", key, lambda version: request(
        "log", include_topic_authorized_operations=True,
        include_cluster_authorized_operations=version <= 10), since=8)

    cluster = ApiKey.DESCRIBE_CLUSTER
    server.ask_each("describe the cluster", cluster, DescribeClusterRequest())
    server.ask("describe the cluster with permitted operations", cluster,
               DescribeClusterRequest(include_cluster_authorized_operations=True))
    for kind in (0, 2, 3):
        server.ask(f"describe the cluster, endpoints {kind}", cluster,
                   DescribeClusterRequest(endpoint_type=kind))


# ---- settings ----------------------------------------------------------------------------------

Operation = tuple[str, int, str | None]
#: Settings that are compared one by one: those that clients and tools read.
SETTINGS_READ = ("cleanup.policy", "compression.type", "max.message.bytes", "min.insync.replicas",
                 "message.timestamp.type", "retention.bytes", "retention.ms", "segment.bytes",
                 "delete.retention.ms", "min.cleanable.dirty.ratio",
                 "unclean.leader.election.enable", "message.timestamp.before.max.ms",
                 "message.timestamp.after.max.ms")
BROKER_SETTINGS = ("message.max.bytes", "num.partitions", "auto.create.topics.enable", "node.id",
                   "default.replication.factor")


def describing(kind: int, name: str, names: Sequence[str] | None, **fields: Any
               ) -> DescribeConfigsRequest:
    """Return a request for settings of one resource."""
    return DescribeConfigsRequest(resources=[DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name,
        configuration_keys=list(names) if names is not None else None)], **fields)


def altering(kind: int, name: str, *operations: Operation, **fields: Any
             ) -> IncrementalAlterConfigsRequest:
    """Return a request that changes single settings."""
    request = IncrementalAlterConfigsRequest
    return request(resources=[request.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[
            request.AlterableConfig(name=each, config_operation=operation, value=value)
            for each, operation, value in operations])], **fields)


def replacing(kind: int, name: str, settings: dict[str, str | None], **fields: Any
              ) -> AlterConfigsRequest:
    """Return a request that replaces all settings."""
    request = AlterConfigsRequest
    return request(resources=[request.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=[
            request.AlterableConfig(name=each, value=value)
            for each, value in settings.items()])], **fields)


def settings(server: Server) -> None:
    """Describe and change settings of topics and of a broker."""
    describe, alter = ApiKey.DESCRIBE_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS
    server.ask_each("describe settings", describe, describing(TOPIC, "settings", SETTINGS_READ))
    server.ask("describe settings with what they hide", describe, describing(
        TOPIC, "settings", ("retention.ms", "cleanup.policy"), include_synonyms=True))
    server.ask("describe an unknown setting", describe, describing(TOPIC, "settings", ("none",)))
    server.ask("describe no setting", describe, describing(TOPIC, "settings", ()))
    server.ask("describe settings of a topic that does not exist", describe,
               describing(TOPIC, "never-created", SETTINGS_READ))
    for label, name in WRONG_NAMES.items():
        server.ask(f"describe settings of a name with {label}", describe,
                   describing(TOPIC, name, SETTINGS_READ))
    server.ask("describe settings of a broker", describe, describing(BROKER, "1", BROKER_SETTINGS))
    for name in ("77", "one"):
        server.ask(f"describe settings of broker {name}", describe,
                   describing(BROKER, name, BROKER_SETTINGS))
    for kind in (0, 3, 99):
        server.ask(f"describe settings of a resource of kind {kind}", describe,
                   describing(kind, "1", None))

    server.ask_each("set", alter, altering(TOPIC, "settings", ("retention.ms", SET, "2000")))
    cases: dict[str, tuple[Operation, ...]] = {
        "set an unknown name": (("none", SET, "1"),),
        "set a wrong value": (("retention.ms", SET, "soon"),),
        "set a value outside of its range": (("retention.ms", SET, "-2"),),
        "set no value": (("retention.ms", SET, None),),
        "set an empty value": (("retention.ms", SET, ""),),
        "set the same twice": (("retention.ms", SET, "1"), ("retention.ms", SET, "2")),
        "set one right and one wrong": (("retention.ms", SET, "7"), ("none", SET, "1")),
        "delete a setting": (("max.message.bytes", DELETE, None),),
        "delete a setting that is not set": (("segment.ms", DELETE, None),),
        "delete an unknown setting": (("none", DELETE, None),),
        "append to a list": (("cleanup.policy", APPEND, "compact"),),
        "remove from a list": (("cleanup.policy", SUBTRACT, "compact"),),
        "remove the last of a list": (("cleanup.policy", SUBTRACT, "delete"),),
        "append a wrong value": (("cleanup.policy", APPEND, "burn"),),
        "append to a number": (("retention.ms", APPEND, "1"),),
        "remove from a number": (("retention.ms", SUBTRACT, "1"),),
        "an unknown operation": (("retention.ms", 9, "1"),),
        "nothing": (),
    }
    for label, operations in cases.items():
        server.ask(f"change: {label}", alter, altering(TOPIC, "settings", *operations))
    server.ask("change: only checked", alter, altering(
        TOPIC, "settings", ("retention.ms", SET, "99"), validate_only=True))
    server.ask("change: a topic that does not exist", alter, altering(
        TOPIC, "never-created", ("retention.ms", SET, "99")))
    for label, name in WRONG_NAMES.items():
        server.ask(f"change: a name with {label}", alter, altering(
            TOPIC, name, ("retention.ms", SET, "99")))
    one = altering(TOPIC, "settings", ("retention.ms", SET, "3000"))
    server.ask("change: a topic twice", alter, IncrementalAlterConfigsRequest(
        resources=one.resources * 2))
    for kind in (0, 3, 99):
        server.ask(f"change: a resource of kind {kind}", alter, altering(
            kind, "1", ("retention.ms", SET, "99")))
    server.ask("change: a broker that does not exist", alter, altering(
        BROKER, "77", ("log.retention.ms", SET, "99")))
    server.ask("change: a read-only setting of a broker", alter, altering(
        BROKER, "1", ("node.id", SET, "99")))
    server.ask("settings after the changes", describe,
               describing(TOPIC, "settings", SETTINGS_READ))


def replacements(server: Server) -> None:
    """Replace all settings of a topic."""
    describe, replace = ApiKey.DESCRIBE_CONFIGS, ApiKey.ALTER_CONFIGS
    server.ask_each("replace", replace, replacing(TOPIC, "settings", {"segment.bytes": "2000000"}))
    server.ask("replace: an unknown name", replace, replacing(TOPIC, "settings", {"none": "1"}))
    server.ask("replace: no value", replace, replacing(TOPIC, "settings", {"retention.ms": None}))
    server.ask("replace: a wrong value", replace, replacing(TOPIC, "settings",
                                                            {"retention.ms": "soon"}))
    server.ask("replace: only checked", replace, replacing(
        TOPIC, "settings", {"retention.ms": "5"}, validate_only=True))
    server.ask("replace: a topic that does not exist", replace, replacing(
        TOPIC, "never-created", {"retention.ms": "5"}))
    server.ask("settings after all were replaced", describe,
               describing(TOPIC, "settings", SETTINGS_READ))
