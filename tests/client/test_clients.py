"""Behaviour of both clients for an application, against nodes that follow a script."""

from __future__ import annotations

import contextlib

import pytest

from multiraft.client import (
    AmbiguousOutcome,
    BatchReceipt,
    BufferFull,
    NoNodeAnswered,
    OffsetRange,
    Record,
    RequestError,
)
from multiraft.client._network import NetworkLimits
from multiraft.client.ranges import offset_ranges
from multiraft.errors import ConfigError, RecordTooLarge
from multiraft.wire import errors, messages
from multiraft.wire.connection import ResponseEvent
from multiraft.wire.errors import Code, ErrorDetail
from tests.client.fake_cluster import silent_addresses, unused_addresses
from tests.client.scripts import once, produced, values_of

# ---- topics and cluster -----------------------------------------------------------------------


def test_topics_are_created_listed_described_and_deleted(client, cluster):
    for name in ("b", "a", "c", "d", "e"):
        client.create_topic(name, partitions=2)
    assert [topic.name for topic in client.list_topics()] == ["a", "b", "c", "d", "e"]
    described = client.describe_topic("a")
    assert (described.name, len(described.partitions)) == ("a", 2)
    assert [(part.partition, part.start_offset, part.end_offset)
            for part in described.partitions] == [(0, 0, 0), (1, 0, 0)]
    assert described.partitions[0].leader == cluster.leaders[described.partitions[0].group]
    client.delete_topic("a")
    with pytest.raises(errors.UnknownTopic, match="'a'"):
        client.describe_topic("a")
    with pytest.raises(errors.UnknownTopic, match="'a'"):
        client.delete_topic("a")


def test_a_topic_that_has_another_life_by_now_is_not_deleted(client, cluster):
    old = client.create_topic("a").incarnation
    client.delete_topic("a", old)
    client.create_topic("a")
    with pytest.raises(errors.UnknownTopic):
        client.delete_topic("a", old)
    client.delete_topic("a")
    assert not cluster.topics


def test_a_definite_refusal_is_its_own_type(client):
    client.create_topic("a")
    with pytest.raises(errors.TopicExists):
        client.create_topic("a")
    with pytest.raises(errors.UnknownTopic):
        client.delete_topic("zzz")


@pytest.mark.parametrize("verdict", ["cut-after", "ambiguous"])
def test_a_change_that_is_never_answered_is_ambiguous_and_no_refusal(client, cluster, monkeypatch,
                                                                    verdict):
    monkeypatch.setattr("multiraft.client._retries.OPERATION_TIMEOUT_MS", 300)
    cluster.script = lambda _node, event, _connection: (
        verdict if isinstance(event.request, messages.CreateTopic) else None)
    with pytest.raises(AmbiguousOutcome) as caught:
        client.create_topic("a")
    assert not isinstance(caught.value, RequestError)
    assert list(cluster.topics) == ["a"]


def test_a_lost_answer_to_a_question_is_asked_again(client, cluster):
    cluster.add_topic("a")
    cluster.script = once("list_topics", "cut")
    assert [topic.name for topic in client.list_topics()] == ["a"]


def test_a_retriable_refusal_is_repeated_where_the_hint_says(client, cluster):
    cluster.script = once("create_topic", lambda event: ResponseEvent(
        event.id, code=Code.NOT_LEADER,
        error=ErrorDetail("ask node 3", leader=3, leader_address=cluster.addresses[3])))
    client.create_topic("a")
    creates = [node for node, request in cluster.requests
               if isinstance(request, messages.CreateTopic)]
    assert creates[-1] == 3


def test_cluster_groups_and_nodes_are_shown(client, cluster):
    cluster.add_topic("a", partitions=4)
    status = client.cluster_status()
    assert [node.id for node in status.nodes] == [1, 2, 3]
    groups = client.group_list()
    assert [group.group for group in groups] == sorted(cluster.leaders)
    assert client.group_transfer(groups[0].group, 2).leader == 2
    assert client.node_status(cluster.addresses[2]).node == 2


def test_offsets_of_all_partitions(client, cluster):
    parts = cluster.add_topic("a", partitions=3)
    parts[1].next_offset = 7
    assert client.list_offsets("a") == {
        0: OffsetRange(0, 0), 1: OffsetRange(0, 7), 2: OffsetRange(0, 0)}


def test_when_nobody_answers_the_error_names_each_address(driver):
    impatient = NetworkLimits(unreachable_ms=100)
    with (unused_addresses(2) as addresses,
          driver.client(addresses, limits=impatient) as client):
        with pytest.raises(NoNodeAnswered) as caught:
            client.list_topics()
    assert set(caught.value.errors) == set(addresses)
    assert all("refused" in why for why in caught.value.errors.values()), caught.value


def test_one_living_node_among_the_addresses_is_enough(driver, cluster):
    cluster.add_topic("a")
    with (unused_addresses(1) as nobody,
          driver.client([*nobody, cluster.addresses[2]]) as client):
        assert [topic.name for topic in client.list_topics()] == ["a"]


def test_nobody_is_given_up_before_every_address_was_tried(driver, cluster):
    cluster.add_topic("a")
    for _ in range(5):
        with (unused_addresses(7) as nobody,
              driver.client([*nobody, cluster.addresses[2]],
                            limits=NetworkLimits(unreachable_ms=0)) as client):
            assert [topic.name for topic in client.list_topics()] == ["a"]


def test_nodes_that_hang_do_not_use_up_the_time_of_the_others(driver, cluster):
    cluster.add_topic("a")
    for _ in range(3):
        with (silent_addresses(7) as silent,
              driver.client([*silent, cluster.addresses[2]],
                            limits=NetworkLimits(connect_timeout_ms=100)) as client):
            assert [topic.name for topic in client.list_topics()] == ["a"]


@pytest.mark.parametrize("server", [
    "localhost", "host:", ":1", "h:99999", "h:x", "", "h:١", "[::1", "[::1:9101", "..:1", "a b:1",
    "h:" + "9" * 5000, "x" * 80 + ":1", "a\udcff:1", "http://127.0.0.1:1", "\u2028:1"])
def test_an_address_that_is_none_is_a_config_error(driver, server):
    with pytest.raises(ConfigError):
        driver.client([server])


@pytest.mark.parametrize("server", ["ü-.invalid:1", "☃☃.invalid:1"])
def test_a_name_that_no_resolver_can_be_asked_for_is_like_a_node_that_is_away(driver, cluster,
                                                                              server):
    """The names differ from resolver to resolver."""
    cluster.add_topic("a")
    with driver.client([server], limits=NetworkLimits(unreachable_ms=0)) as client:
        with pytest.raises(NoNodeAnswered, match="cannot connect"):
            client.list_topics()


def test_a_leader_whose_address_is_none_ends_nothing(client, cluster):
    """A node of an earlier release accepts any text as its address."""
    client.create_topic("a")
    cluster.script = once("list_topics", lambda event: ResponseEvent(
        event.id, None, Code.NOT_LEADER,
        ErrorDetail("elsewhere", leader=2, leader_address="..:1"), event.metadata_index))
    with pytest.raises(errors.InvalidRequest, match="'..:1'"):
        client.list_topics()
    assert [topic.name for topic in client.list_topics()] == ["a"]


@pytest.mark.parametrize("wrong", [1.5, float("nan"), 1 << 70, "soon", None])
def test_a_time_that_cannot_be_asked_for_is_refused_at_once(client, cluster, wrong):
    client.create_topic("a")
    with pytest.raises(errors.InvalidRequest):
        client.offsets_at("a", wrong)


def test_a_node_of_another_cluster_is_not_asked(driver, world, cluster):
    with driver.client(cluster.servers()) as client:
        client.list_topics()
        assert cluster.hellos[0].cluster is None
        client.node_status(cluster.addresses[1])
        client.node_status(cluster.addresses[2])
        assert any(hello.cluster for hello in cluster.hellos), "later hellos name the cluster"


def test_a_list_is_as_new_as_the_metadata_s_leader(client, cluster):
    """A new client has seen no metadata index: a node that lags behind would answer it at once."""
    seen = []

    def script(node, event, connection):
        if isinstance(event.request, messages.ListTopics):
            seen.append(event.metadata_index)
        return None

    cluster.add_topic("a")
    cluster.script = script
    assert [topic.name for topic in client.list_topics()] == ["a"]
    assert seen == [cluster.metadata_index]


def test_newer_metadata_is_asked_for_by_index(client, cluster):
    client.create_topic("a")
    client.describe_topic("a")
    assert client.list_topics()


# ---- producing --------------------------------------------------------------------------------


def test_one_record_and_its_receipt(client, cluster):
    client.create_topic("a")
    with client.producer() as producer:
        delivery = producer.send_nowait(Record("a", b"v", b"k", headers=[("h", b"x")]))
        assert delivery.wait() == BatchReceipt("a", 0, 0, 1)
    (batch,) = client.consume("a", until_end=True)
    (record,) = batch
    assert (record.key, record.value, record.headers) == (b"k", b"v", (("h", b"x"),))


def test_many_values_arrive_in_order(client, cluster):
    client.create_topic("a")
    values = [b"%05d" % number for number in range(5_000)]
    with client.producer(batch_bytes=4096, linger_ms=0) as producer:
        deliveries = producer.send_many("a", values)
        assert sum(delivery.wait().count for delivery in deliveries) == 5_000
    assert cluster.topics["a"][0].values() == values


def test_leaving_the_block_flushes(client, cluster):
    client.create_topic("a")
    with client.producer(linger_ms=10_000) as producer:
        producer.send_nowait(Record("a", b"v"))
    assert cluster.topics["a"][0].values() == [b"v"]


def test_records_with_keys_go_where_murmur2_says_and_keep_their_order(client, cluster):
    client.create_topic("a", partitions=3)
    records = [Record("a", b"%d" % number, b"key%d" % (number % 7)) for number in range(300)]
    with client.producer(batch_bytes=500) as producer:
        producer.send_many("a", records)
    for key in range(7):
        places = [part.number for part in cluster.topics["a"]
                  if any(int(value) % 7 == key for value in part.values())]
        assert len(places) == 1
    for part in cluster.topics["a"]:
        for key in range(7):
            numbers = [int(value) for value in part.values() if int(value) % 7 == key]
            assert numbers == sorted(numbers)


def test_values_without_keys_are_spread_by_whole_batches(client, cluster):
    client.create_topic("a", partitions=3)
    with client.producer(batch_bytes=1000) as producer:
        producer.send_many("a", [bytes(90)] * 300)
    assert all(part.log for part in cluster.topics["a"])


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_comes_back_as_it_went_in(client, cluster, compression):
    client.create_topic("a")
    values = [b"abc" * number for number in range(300)]
    with client.producer(compression=compression) as producer:
        producer.send_many("a", values)
    assert values_of(client.consume("a", until_end=True)) == values
    stored = sum(len(data) for _, data in cluster.topics["a"][0].log)
    assert compression == "none" or stored < sum(map(len, values)) / 2


def test_a_topic_that_does_not_exist_is_said_so(client):
    with pytest.raises(errors.UnknownTopic, match="'nope'"), client.producer() as producer:
        producer.send_many("nope", [b"v"])
    with client.producer() as producer:
        delivery = producer.send_nowait(Record("nope", b"v"))
        with pytest.raises(errors.UnknownTopic):
            delivery.wait()


def test_records_sent_before_their_topic_is_known_are_batched_when_it_is(client, cluster):
    cluster.add_topic("a", partitions=2)
    with client.producer() as producer:
        deliveries = [producer.send_nowait(Record("a", b"%d" % number, partition=number % 2))
                      for number in range(10)]
        assert {delivery.wait().partition for delivery in deliveries} == {0, 1}
    assert cluster.topics["a"][0].values() == [b"0", b"2", b"4", b"6", b"8"]


def test_a_full_buffer_says_its_limit(client, cluster):
    client.create_topic("a")
    cluster.script = lambda node, event, connection: (
        "drop" if isinstance(event.request, messages.Produce) else None)
    with pytest.raises(BufferFull) as caught:
        with client.producer(batch_bytes=1000, buffer_bytes_max=5000) as producer:
            for _ in range(100):
                producer.send_nowait(Record("a", bytes(100)))
    assert caught.value.limit == 5000 and caught.value.value > 4000


def test_send_many_waits_for_room(client, cluster):
    client.create_topic("a")
    with client.producer(batch_bytes=1000, buffer_bytes_max=3000) as producer:
        producer.send_many("a", [bytes(100)] * 200)
    assert cluster.topics["a"][0].next_offset == 200


def test_a_record_that_fits_no_batch_is_refused_alone(client, cluster):
    client.create_topic("a")
    with client.producer(batch_bytes=1000) as producer:
        producer.send_many("a", [b"before"])
        with pytest.raises(RecordTooLarge):
            producer.send_many("a", [bytes(9 << 20)])
        with pytest.raises(TypeError):
            producer.send_many("a", ["text"])
        producer.send_many("a", [b"after"])
    assert cluster.topics["a"][0].values() == [b"before", b"after"]


def test_a_partition_that_does_not_exist_is_refused(client, cluster):
    client.create_topic("a")
    with client.producer() as producer:
        producer.send_many("a", [b"x"])
        with pytest.raises(errors.UnknownPartition, match="0..0"):
            producer.send_nowait(Record("a", b"v", partition=1))


def test_acks_none_reports_no_offset(client, cluster):
    client.create_topic("a")
    with client.producer(acks="none") as producer:
        assert producer.send_nowait(Record("a", b"v")).wait().base_offset == -1
    assert next(iter(client.consume("a"))).records()[0].value == b"v"


@pytest.mark.parametrize("wrong", [
    {"acks": "all"}, {"compression": "rar"}, {"batch_bytes": 10}, {"in_flight_max": 6},
    {"in_flight_max": 0}, {"linger_ms": -1}, {"buffer_bytes_max": 1000}, {"suspect_ms": 0}])
def test_settings_are_checked(client, wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        client.producer(**wrong)


# ---- producing through failures ----------------------------------------------------------------


@pytest.mark.parametrize("verdict", ["cut", "cut-after"])
def test_a_connection_cut_during_an_append_neither_loses_nor_doubles(client, cluster, verdict):
    client.create_topic("a")
    cluster.script = once("produce", verdict)
    with client.producer(suspect_ms=60_000) as producer:
        assert producer.send_nowait(Record("a", b"v")).wait().base_offset == 0
    assert cluster.topics["a"][0].values() == [b"v"]
    assert produced(cluster) == 2


def test_five_batches_in_flight_survive_a_cut_in_order(client, cluster):
    client.create_topic("a")
    cut = []

    def script(node, event, connection):
        if isinstance(event.request, messages.Produce):
            cut.append(1)
            return "cut-after" if len(cut) in (3, 6, 11) else None
        return None

    cluster.script = script
    values = [b"%04d" % number for number in range(600)]
    with client.producer(batch_bytes=300, linger_ms=0) as producer:
        producer.send_many("a", values)
    assert cluster.topics["a"][0].values() == values


def test_a_leader_change_in_flight_is_followed(client, world, cluster):
    client.create_topic("a")
    part = cluster.topics["a"][0]

    def script(node, event, connection):
        if isinstance(event.request, messages.Produce) and part.next_offset > 100:
            cluster.leaders[part.group] = cluster.leaders[part.group] % 3 + 1
            cluster.script = None
        return None

    cluster.script = script
    values = [b"%04d" % number for number in range(600)]
    with client.producer(batch_bytes=300, linger_ms=0) as producer:
        producer.send_many("a", values)
    assert part.values() == values


def test_a_killed_leader_is_replaced(client, world, cluster):
    client.create_topic("a")
    part = cluster.topics["a"][0]
    with client.producer() as producer:
        producer.send_nowait(Record("a", b"1")).wait()
        leader = cluster.leaders[part.group]
        world.call(cluster.close, leader)
        world.call(cluster.leaders.__setitem__, part.group, leader % 3 + 1)
        assert producer.send_nowait(Record("a", b"2")).wait().base_offset == 1
    assert part.values() == [b"1", b"2"]


def test_a_leader_that_hangs_is_left_for_the_next_one(client, cluster):
    client.create_topic("a")
    part = cluster.topics["a"][0]

    def script(node, event, connection):
        if not isinstance(event.request, messages.Produce):
            return None
        cluster.leaders[part.group], cluster.script = node % 3 + 1, None
        return "drop"

    cluster.script = script
    with client.producer(suspect_ms=50, request_timeout_ms=60_000) as producer:
        assert producer.send_nowait(Record("a", b"v")).wait().base_offset == 0
    assert part.values() == [b"v"]


def test_an_ambiguous_answer_is_resolved_by_repeating(client, cluster):
    client.create_topic("a")
    cluster.script = once("produce", lambda event: ResponseEvent(
        event.id, messages.ProduceReply(tuple(
            messages.ProduceResult(Code.AMBIGUOUS, -1, ErrorDetail("stepped down"))
            for _ in event.request.batches))))
    with client.producer() as producer:
        assert producer.send_nowait(Record("a", b"v")).wait().base_offset == 0
    assert cluster.topics["a"][0].values() == [b"v"]


def test_without_idempotence_a_lost_answer_is_ambiguous(client, cluster):
    client.create_topic("a")
    cluster.script = once("produce", "cut-after")
    with client.producer(idempotent=False) as producer:
        delivery = producer.send_nowait(Record("a", b"v"))
        with pytest.raises(AmbiguousOutcome) as caught:
            delivery.wait()
    assert not isinstance(caught.value, RequestError)
    assert produced(cluster) == 1


def test_no_answer_until_the_deadline_is_ambiguous(client, cluster):
    client.create_topic("a")
    cluster.script = lambda node, event, connection: (
        "drop" if isinstance(event.request, messages.Produce) else None)
    with client.producer(delivery_timeout_ms=300) as producer:
        with pytest.raises(AmbiguousOutcome, match="a/0 may or may not"):
            while not produced(cluster):
                with contextlib.suppress(errors.TimedOut):  # a slow machine did not send it in time
                    producer.send_nowait(Record("a", b"v")).wait()


def test_never_sent_until_the_deadline_is_definite(client, world, cluster):
    client.create_topic("a")
    with client.producer() as producer:
        producer.send_nowait(Record("a", b"1")).wait()
    with client.producer(delivery_timeout_ms=400) as producer:
        world.call(cluster.leaders.__setitem__, cluster.topics["a"][0].group, 0)
        with pytest.raises(errors.TimedOut, match="not delivered in 400 ms"):
            producer.send_nowait(Record("a", b"2")).wait()
    assert cluster.topics["a"][0].values() == [b"1"]


def test_a_definite_refusal_fails_its_batch_and_the_next_one_goes_on(client, cluster):
    client.create_topic("a")
    cluster.script = once("produce", lambda event: ResponseEvent(
        event.id, messages.ProduceReply(tuple(
            messages.ProduceResult(Code.INVALID_BATCH, -1, ErrorDetail("not like this"))
            for _ in event.request.batches))))
    with client.producer() as producer:
        with pytest.raises(errors.InvalidBatch, match="not like this"):
            producer.send_nowait(Record("a", b"1")).wait()
        assert producer.send_nowait(Record("a", b"2")).wait().base_offset == 0
    assert cluster.topics["a"][0].values() == [b"2"]


def test_a_fenced_producer_whose_identity_was_given_stops(client, cluster):
    client.create_topic("a")
    with client.producer(identity=(1 << 62, 0)) as producer:
        producer.send_nowait(Record("a", b"1")).wait()
        for window in cluster.topics["a"][0].windows.values():
            window.epoch += 1
        with pytest.raises(errors.ProducerFenced):
            producer.send_nowait(Record("a", b"2")).wait()
        with pytest.raises(errors.ProducerFenced):
            producer.send_nowait(Record("a", b"3"))


def test_a_producer_that_was_forgotten_goes_on_with_a_new_epoch(client, cluster):
    client.create_topic("a")
    with client.producer() as producer:
        producer.send_nowait(Record("a", b"1")).wait()
        cluster.topics["a"][0].windows.clear()
        assert producer.send_nowait(Record("a", b"2")).wait().base_offset == 1
    assert cluster.producers.bumped(1000) > 0


def test_a_topic_deleted_and_created_again_gets_nothing_meant_for_the_old_one(
        client, world, cluster):
    client.create_topic("a")
    with client.producer(delivery_timeout_ms=3000) as producer:
        producer.send_nowait(Record("a", b"old")).wait()
        world.call(cluster.topics.pop, "a")
        world.call(cluster.add_topic, "a")
        with pytest.raises(errors.UnknownPartition):
            producer.send_nowait(Record("a", b"meant for the old")).wait()
        producer.send_nowait(Record("a", b"new")).wait()
    assert cluster.topics["a"][0].values() == [b"new"]


def test_a_failure_nobody_waits_for_comes_out_of_the_flush(client, cluster):
    client.create_topic("a")
    cluster.script = once("produce", lambda event: ResponseEvent(
        event.id, code=Code.STORAGE_FULL, error=ErrorDetail("disk is full")))
    with client.producer() as producer:  # retriable: the second attempt works
        producer.send_nowait(Record("a", b"1"))
        producer.flush()
    cluster.script = once("produce", lambda event: ResponseEvent(
        event.id, code=Code.LIMIT_EXCEEDED, error=ErrorDetail("too much", limit=1, value=2)))
    with client.producer() as producer:
        producer.send_nowait(Record("a", b"2"))
        with pytest.raises(errors.LimitExceeded, match="too much"):
            producer.flush()


def test_an_exception_in_the_block_comes_out_unwrapped(driver, cluster):
    with pytest.raises(KeyError), driver.client(cluster.servers()) as client:
        with client.producer() as producer:
            producer.send_nowait(Record("a", b"v"))
            raise KeyError("mine")


def test_a_node_that_talks_nonsense_is_left_alone(client, world, cluster):
    client.create_topic("a")
    cluster.script = once("produce", lambda event: ResponseEvent(
        event.id, messages.ProduceReply(())))  # no result for the batch
    with client.producer() as producer:
        assert producer.send_nowait(Record("a", b"v")).wait().base_offset == 0


# ---- more partitions than one answer holds ------------------------------------------------------

def refusing_wide(partitions_max: int, cluster):
    """Return a script that refuses metadata of more partitions than that, as a node does."""

    def script(_node, event, _connection):
        if not isinstance(event.request, messages.Metadata):
            return None
        wanted = sum(len(cluster.topics.get(name, ())) for name in event.request.topics or ())
        if wanted <= partitions_max:
            return None
        return ResponseEvent(event.id, code=Code.LIMIT_EXCEEDED, error=ErrorDetail(
            "too many partitions", limit=partitions_max, value=wanted))

    return script


def test_records_for_many_wide_topics_arrive_though_their_metadata_need_several_answers(
        client, cluster):
    names = [f"wide-{number}" for number in range(9)]
    for name in names:
        cluster.add_topic(name, partitions=4)
    cluster.script = refusing_wide(4, cluster)
    with client.producer() as producer:
        deliveries = [producer.send_nowait(Record(name, b"v", partition=0)) for name in names]
        assert [delivery.wait().partition for delivery in deliveries] == [0] * 9


def test_offsets_of_many_wide_topics_are_asked_for_in_several_requests(client, cluster):
    names = [f"wide-{number}" for number in range(9)]
    for name in names:
        cluster.add_topic(name, partitions=4)
    cluster.script = refusing_wide(8, cluster)
    found = offset_ranges(client, names + names)
    assert list(found) == names
    assert all(len(ranges) == 4 for _, ranges in found.values())


def test_a_topic_that_does_not_fit_into_an_answer_by_itself_is_an_error(client, cluster):
    cluster.add_topic("wide", partitions=4)
    cluster.script = refusing_wide(3, cluster)
    with pytest.raises(errors.LimitExceeded):
        offset_ranges(client, ["wide"])

