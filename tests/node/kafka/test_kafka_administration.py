"""Settings, records to delete and the cluster, asked for in Kafka's protocol at a real node."""

from multiraft.kafka.apis import ApiKey
from multiraft.kafka.messages.alter_configs import AlterConfigsRequest
from multiraft.kafka.messages.delete_records import DeleteRecordsRequest
from multiraft.kafka.messages.describe_acls import DescribeAclsRequest
from multiraft.kafka.messages.describe_cluster import DescribeClusterRequest
from multiraft.kafka.messages.describe_configs import DescribeConfigsRequest
from multiraft.kafka.messages.describe_log_dirs import DescribeLogDirsRequest
from multiraft.kafka.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from tests.node.harness import batch, in_trio
from tests.node.kafka.kafka_client import KafkaClient, serving_kafka

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
OF_TOPIC, DEFAULT = 1, 5


async def described(client, kind, name, *keys):
    """Return the result of a description, and its settings by name."""
    response = await client.ask(ApiKey.DESCRIBE_CONFIGS, DescribeConfigsRequest(
        resources=[DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)],
        include_synonyms=True, include_documentation=True))
    result = response.results[0]
    return result, {each.name: each for each in result.configs}


async def altered(client, name, *changes, kind=TOPIC, validate_only=False):
    """Change settings by (name, operation, value), and return the result."""
    request = IncrementalAlterConfigsRequest
    response = await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request(
        resources=[request.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=[
                request.AlterableConfig(name=key, config_operation=operation, value=value)
                for key, operation, value in changes])], validate_only=validate_only))
    return response.responses[0]


@in_trio
async def test_settings_of_a_topic_are_changed_one_by_one(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        await client.create("t")
        _, before = await described(client, TOPIC, "t")
        assert before["retention.ms"].config_source == DEFAULT and len(before) > 20
        assert before["retention.ms"].documentation
        for operation in (SET, APPEND, SUBTRACT):
            refused = await altered(client, "t", ("cleanup.policy", operation, None))
            assert refused.error_code == 42 and "no value" in refused.error_message
        result = await altered(client, "t", ("retention.ms", SET, "1000"), validate_only=True)
        assert result.error_code == 0
        result = await altered(client, "t", ("retention.bytes", SET, "1000000"))
        assert result.error_code == 0
        _, after = await described(client, TOPIC, "t", "retention.ms", "retention.bytes")
        assert len(after) == 2 and after["retention.ms"].config_source == DEFAULT
        changed = after["retention.bytes"]
        assert (changed.value, changed.config_source) == ("1000000", OF_TOPIC)
        assert [(each.value, each.source) for each in changed.synonyms] == [
            ("1000000", OF_TOPIC), ("-1", DEFAULT)]
        await altered(client, "t", ("retention.bytes", DELETE, None))
        _, after = await described(client, TOPIC, "t", "retention.bytes")
        assert after["retention.bytes"].config_source == DEFAULT


@in_trio
async def test_a_list_is_added_to_and_removed_from(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        await client.create("t")
        name = "leader.replication.throttled.replicas"
        for operation, value, held in ((SET, "0:1", "0:1"), (APPEND, "1:1,0:1", "0:1,1:1"),
                                       (SUBTRACT, "0:1", "1:1")):
            assert (await altered(client, "t", (name, operation, value))).error_code == 0
            _, after = await described(client, TOPIC, "t", name)
            assert after[name].value == held
        refused = await altered(client, "t", ("retention.ms", APPEND, "1"))
        assert refused.error_code == 40 and "not a list" in refused.error_message
        assert (await altered(client, "t", (name, 9, "1"))).error_code == 40


@in_trio
async def test_the_older_request_takes_back_what_it_does_not_name(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        await client.create("t")
        await altered(client, "t", ("retention.ms", SET, "1000"), ("retention.bytes", SET, "9"))
        response = await client.ask(ApiKey.ALTER_CONFIGS, AlterConfigsRequest(resources=[
            AlterConfigsRequest.AlterConfigsResource(
                resource_type=TOPIC, resource_name="t", configs=[
                    AlterConfigsRequest.AlterableConfig(name="retention.ms", value="2000")])]))
        assert response.responses[0].error_code == 0
        _, after = await described(client, TOPIC, "t")
        assert after["retention.ms"].value == "2000"
        assert after["retention.bytes"].config_source == DEFAULT


@in_trio
async def test_a_topic_without_a_name_is_not_the_cluster_whose_defaults_hold_for_all(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        await client.create("t")
        assert (await altered(client, "", ("retention.ms", SET, "1000"))).error_code == 42
        response = await client.ask(ApiKey.ALTER_CONFIGS, AlterConfigsRequest(resources=[
            AlterConfigsRequest.AlterConfigsResource(
                resource_type=TOPIC, resource_name="", configs=[
                    AlterConfigsRequest.AlterableConfig(name="retention.ms", value="1000")])]))
        assert response.responses[0].error_code == 42
        assert (await described(client, TOPIC, ""))[0].error_code == 17
        _, after = await described(client, TOPIC, "t", "retention.ms")
        assert after["retention.ms"].config_source == DEFAULT


@in_trio
async def test_changes_that_cannot_be_made_are_refused_with_the_reason(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        await client.create("t")
        for change, error, says in (
                (("retention.msec", SET, "1"), 40, "retention.ms"),
                (("retention.ms", SET, "soon"), 40, "retention.ms"),
                (("unclean.leader.election.enable", SET, "true"), 40, "unclean")):
            refused = await altered(client, "t", change)
            assert refused.error_code == error and says in refused.error_message
        assert (await altered(client, "other", ("retention.ms", SET, "1"))).error_code == 3
        for name in ("bad name", "..", "n" * 250):
            assert (await altered(client, name, ("retention.ms", SET, "1"))).error_code == 17
            assert (await described(client, TOPIC, name))[0].error_code == 17
        # Limits of the native protocol, which the state machine relies on.
        for changes in ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
                        [("retention.ms", SET, "1" * 30_000)],
                        [(f"x{at}", DELETE, None) for at in range(1_000)]):
            assert (await altered(client, "t", *changes)).error_code == 42
        assert (await altered(client, "1", ("num.io.threads", SET, "1"),
                              kind=BROKER)).error_code == 42
        assert (await described(client, TOPIC, "other"))[0].error_code == 3
        assert (await described(client, 1, "t"))[0].error_code == 42
        assert (await described(client, BROKER, "2"))[0].error_code == 42


@in_trio
async def test_a_topic_that_a_request_names_twice_stays_as_it_is(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        await client.create("t")
        for key, message, fields in (
                (ApiKey.INCREMENTAL_ALTER_CONFIGS, IncrementalAlterConfigsRequest,
                 {"config_operation": SET}), (ApiKey.ALTER_CONFIGS, AlterConfigsRequest, {})):
            response = await client.ask(key, message(resources=[message.AlterConfigsResource(
                resource_type=TOPIC, resource_name="t", configs=[message.AlterableConfig(
                    name="retention.ms", value=value, **fields)]) for value in ("1", "2")]))
            assert [each.error_code for each in response.responses] == [42, 42]
        _, after = await described(client, TOPIC, "t", "retention.ms")
        assert after["retention.ms"].config_source == DEFAULT


@in_trio
async def test_a_setting_is_not_replaced_by_nothing(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        await client.create("t")
        await altered(client, "t", ("retention.ms", SET, "1000"))
        response = await client.ask(ApiKey.ALTER_CONFIGS, AlterConfigsRequest(resources=[
            AlterConfigsRequest.AlterConfigsResource(
                resource_type=TOPIC, resource_name="t", configs=[
                    AlterConfigsRequest.AlterableConfig(name="retention.ms", value=None)])]))
        assert response.responses[0].error_code == 42
        _, after = await described(client, TOPIC, "t", "retention.ms")
        assert after["retention.ms"].value == "1000"


@in_trio
async def test_a_node_shows_its_configuration(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        _, settings = await described(client, BROKER, "1")
        assert settings["node.id"].value == "1" and settings["node.id"].read_only
        assert settings["listeners"].value.endswith(str(node.config.kafka.listen_address()))


@in_trio
async def test_records_are_deleted_below_an_offset(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await client.create("t")
        for _ in range(4):
            await client.produce(topic.topic_id, batch(b"v"))
        rows = DeleteRecordsRequest.DeleteRecordsPartition
        for offset, low, error in ((2, 2, 0), (9, -1, 1), (-1, 4, 0), (-2, -1, 1)):
            response = await client.ask(ApiKey.DELETE_RECORDS, DeleteRecordsRequest(
                timeout_ms=10_000, topics=[DeleteRecordsRequest.DeleteRecordsTopic(
                    name="t", partitions=[rows(partition_index=0, offset=offset),
                                          rows(partition_index=1, offset=0),
                                          rows(partition_index=0, offset=offset)])]))
            found, absent, twice = response.topics[0].partitions
            assert (found.low_watermark, found.error_code) == (low, error)
            assert absent.error_code == 3
            assert twice.error_code == (42 if offset != -2 else 1)
        assert (await client.fetch(topic.topic_id, 0)).error_code == 1
        assert (await client.offset("t", -2)).offset == 4


@in_trio
async def test_the_cluster_is_described_and_has_no_access_rules(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        cluster = await client.ask(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(
            include_cluster_authorized_operations=True))
        assert cluster.cluster_id == node.config.cluster_id.hex() and cluster.controller_id == 1
        assert [each.broker_id for each in cluster.brokers] == [1]
        assert cluster.cluster_authorized_operations > 0
        assert (await client.ask(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(
            endpoint_type=2))).error_code == 114
        assert (await client.ask(ApiKey.DESCRIBE_CLUSTER, DescribeClusterRequest(
            endpoint_type=3))).error_code == 115
        assert (await client.ask(ApiKey.DESCRIBE_ACLS, DescribeAclsRequest())).error_code == 54


async def log_dir(client, topics, version=4):
    """Return the one directory of a node, and the sizes of its partitions."""
    asked = DescribeLogDirsRequest.DescribableLogDirTopic
    response = await client.ask(ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(
        topics=topics and [asked(topic=name, partitions=numbers) for name, numbers in topics]),
        version)
    found, = response.results
    return found, {(topic.name, each.partition_index): each.partition_size
                   for topic in found.topics for each in topic.partitions}


@in_trio
async def test_a_node_has_one_log_directory_with_the_sizes_of_its_partitions(tmp_path):
    async with serving_kafka(tmp_path) as node, await KafkaClient.open(node) as client:
        topic = await client.create("t", 2)
        await client.create("u")
        data = batch(b"v" * 1000)
        await client.produce(topic.topic_id, data)
        stored = (len(data) + 7) // 8 * 8
        found, sizes = await log_dir(client, None)
        assert sizes == {("t", 0): stored, ("t", 1): 0, ("u", 0): 0}
        _, settings = await described(client, BROKER, "1")
        assert found.log_dir == settings["log.dirs"].value and found.error_code == 0
        assert found.total_bytes >= found.usable_bytes > 0
        _, sizes = await log_dir(client, [("t", [0, 0, 5, -1]), ("other", [0])])
        assert sizes == {("t", 0): stored}
        found, sizes = await log_dir(client, None, 1)
        assert len(sizes) == 3 and found.total_bytes == -1
        states = node.store.partition_states
        group = node.metadata.directory.locate(node.metadata.log.state.topic("u").incarnation).group
        others = {each: states.pop(each) for each in [*states] if each != group}
        _, sizes = await log_dir(client, None)
        states.update(others)
        assert ("u", 0) in sizes


@in_trio
async def test_the_sizes_of_too_many_partitions_are_refused(tmp_path):
    limits = {"metadata_rows_max": 8, "partitions_per_topic_max": 8}
    async with serving_kafka(tmp_path, **limits) as node, await KafkaClient.open(node) as client:
        for name in "ab":
            await client.create(name, 5)
        for version in range(1, 5):
            found, sizes = await log_dir(client, None, version)
            assert found.error_code == 44 and not sizes
        _, sizes = await log_dir(client, [("a", [*range(5)])])
        assert len(sizes) == 5
