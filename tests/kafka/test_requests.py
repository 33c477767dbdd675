"""Frames of requests and responses: headers, versions, traps, bad lengths, records by reference.

Bytes are written down by hand here, field by field.
"""

from __future__ import annotations

import struct
import tracemalloc

import pytest

from multiraft.kafka import apis, requests
from multiraft.kafka.apis import APIS, DATA_APIS, GROUP_APIS, ApiKey
from multiraft.kafka.errors import KafkaFrameError, UnencodableMessage, UnsupportedVersion
from multiraft.kafka.hot_messages import (
    FetchResponse,
    ListOffsetsRequest,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
    RequestHeader,
)
from multiraft.kafka.messages.api_versions import ApiVersionsRequest
from multiraft.kafka.messages.create_topics import CreateTopicsRequest
from multiraft.kafka.messages.describe_groups import DescribeGroupsRequest
from multiraft.kafka.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from multiraft.kafka.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from multiraft.kafka.requests import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    encoded_message,
)
from multiraft.kafka.schema import ELEMENTS_MAX, GENERIC_ELEMENTS_MAX

TOPIC_ID = bytes(range(16))


def header(key: int, version: int, client_id: str | None = "c") -> RequestHeader:
    """Return the header of a request with correlation id 7."""
    return RequestHeader(request_api_key=key, request_api_version=version, correlation_id=7,
                         client_id=client_id)


def joined(buffers) -> bytes:
    """Return the bytes of a frame behind its length, which is checked."""
    data = b"".join(buffers)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    return data[4:]


def produce_9(records: bytes, tags: bytes = b"\0") -> bytes:
    """Return a flexible request of Produce with one partition."""
    return (b"\x00\x00" b"\x00\x09" b"\x00\x00\x00\x07" b"\x00\x01c" b"\x00"  # header, tags
            b"\x00" b"\xff\xff" b"\x00\x00\x03\xe8"  # no transactional id, acks -1, 1000 ms
            b"\x02" b"\x02t" b"\x02" b"\x00\x00\x00\x05"  # one topic, one partition
            + bytes([len(records) + 1]) + records + b"\x00" b"\x00" + tags)


def test_a_request_of_produce_is_decoded_with_records_as_a_view():
    frame = bytearray(produce_9(b"batch"))
    request = decode_request(frame, APIS)
    assert request.header == header(0, 9)
    assert (request.message.transactional_id, request.message.acks) == (None, -1)
    (topic,) = request.message.topic_data
    (partition,) = topic.partition_data
    assert (topic.name, topic.topic_id, partition.index) == ("t", bytes(16), 5)
    frame[frame.index(b"batch")] = ord("B")
    assert bytes(partition.records) == b"Batch"


def test_a_response_of_fetch_has_the_buffers_that_it_was_given():
    first, second = memoryview(b"first batch"), memoryview(b"second")
    partition = FetchResponse.PartitionData(partition_index=1, records=[first, second])
    response = FetchResponse(responses=[
        FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[partition, partition])])
    buffers = requests.encode_response(header(1, 16), response)
    assert [part for part in buffers if part is first] == [first, first]
    assert [part for part in buffers if part is second] == [second, second]
    (topic,) = decode_response(joined(buffers), header(1, 16)).responses
    assert [bytes(part) for each in topic.partitions for part in each.records] == \
        [b"first batchsecond"] * 2


def test_records_that_are_null_or_empty_take_no_buffer():
    partitions = [FetchResponse.PartitionData(records=each) for each in (None, [], [b""])]
    response = FetchResponse(responses=[
        FetchResponse.FetchableTopicResponse(partitions=partitions)])
    buffers = requests.encode_response(header(1, 12), response)
    assert len(buffers) == 1
    (topic,) = decode_response(joined(buffers), header(1, 12)).responses
    assert [each.records for each in topic.partitions] == [None, [], []]


# ---- traps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [6, 99, 32767, -1])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0_with_all_keys(version):
    frame = struct.pack(">hhi", 18, version, 7) + b"whatever a later version has"
    with pytest.raises(UnsupportedVersion, match=f"API 18 version {version}") as raised:
        decode_request(frame, DATA_APIS)
    answer = joined(requests.unsupported_api_versions(raised.value.header, DATA_APIS))
    assert answer[:10] == b"\x00\x00\x00\x07" b"\x00\x23" + struct.pack(">i", len(DATA_APIS))
    rows = list(struct.iter_unpack(">hhh", answer[10:]))
    assert rows == [(key, *api.advertised) for key, api in DATA_APIS.items()]
    assert (0, 0, 13) in rows and (18, 0, 5) in rows


def test_the_answer_to_api_versions_never_has_tags_in_its_header():
    answer = joined(requests.encode_response(header(18, 3), requests.api_versions_response(
        {ApiKey.FETCH: APIS[ApiKey.FETCH]})))
    assert answer == (b"\x00\x00\x00\x07" b"\x00\x00"  # correlation id, no error
                      b"\x02" b"\x00\x01" b"\x00\x04" b"\x00\x11" b"\x00"  # one key
                      b"\x00\x00\x00\x00" b"\x00")  # throttle time, tags


def test_other_flexible_answers_have_tags_in_their_header():
    answer = joined(requests.encode_response(header(0, 9), ProduceResponse()))
    assert answer == b"\x00\x00\x00\x07" b"\x00" b"\x01" b"\x00\x00\x00\x00" b"\x00"
    answer = joined(requests.encode_response(header(0, 8), ProduceResponse()))
    assert answer == b"\x00\x00\x00\x07" b"\x00\x00\x00\x00" b"\x00\x00\x00\x00"


def test_the_client_id_is_not_compact_in_a_flexible_header():
    """Java's ApiVersions version 5 names the cluster and the node that it means (KIP-1242)."""
    frame = (b"\x00\x12\x00\x05\x00\x00\x00\x07" b"\x00\x01c" b"\x00"
             b"\x05java" b"\x064.4.0" b"\x00" b"\xff\xff\xff\xff" b"\x00")
    request = decode_request(frame, APIS)
    assert request.header == header(18, 5)
    assert request.message == ApiVersionsRequest(
        client_software_name="java", client_software_version="4.4.0", cluster_id=None, node_id=-1)
    assert joined(encode_request(request.header, request.message)) == frame


def test_a_client_without_an_id_is_accepted():
    frame = b"\x00\x12\x00\x00\x00\x00\x00\x07" b"\xff\xff"
    assert decode_request(frame, APIS).header == header(18, 0, None)


def test_the_names_of_the_leader_are_tagged_fields():
    """KIP-951: a partition's leader has tag 0, its node tag 0 of the response."""
    partition = ProduceResponse.PartitionProduceResponse(
        index=1, error_code=6, base_offset=-1,
        current_leader=ProduceResponse.LeaderIdAndEpoch(leader_id=2, leader_epoch=3))
    response = ProduceResponse(
        responses=[ProduceResponse.TopicProduceResponse(name="t", partition_responses=[partition])],
        node_endpoints=[ProduceResponse.NodeEndpoint(node_id=2, host="h", port=9, rack=None)])
    answer = joined(requests.encode_response(header(0, 10), response))
    assert answer == (
        b"\x00\x00\x00\x07" b"\x00" b"\x02\x02t\x02"
        b"\x00\x00\x00\x01" b"\x00\x06" + b"\xff" * 8 + b"\xff" * 8 + b"\xff" * 8
        + b"\x01" b"\x00"  # no record errors, no message
        b"\x01" b"\x00\x09" b"\x00\x00\x00\x02" b"\x00\x00\x00\x03" b"\x00"  # tag 0, 9 bytes
        b"\x00" b"\x00\x00\x00\x00"  # tags of the topic, throttle time
        b"\x01" b"\x00\x0d" b"\x02"  # tag 0 with 13 bytes, an array of one node
        b"\x00\x00\x00\x02" b"\x02h" b"\x00\x00\x00\x09" b"\x00" b"\x00")
    # A version without the fields leaves them out, so that one handler may always fill them in.
    (topic,) = decode_response(joined(requests.encode_response(header(0, 9), response)),
                               header(0, 9)).responses
    assert topic.partition_responses[0].current_leader == ProduceResponse.LeaderIdAndEpoch()


def test_tagged_fields_of_later_versions_are_skipped():
    tags = b"\x02" b"\x00\x03abc" b"\xff\x01\x00"  # tag 0 with 3 bytes, tag 255 with none
    assert decode_request(produce_9(b"b", tags), APIS).message == \
        decode_request(produce_9(b"b"), APIS).message


def test_bytes_behind_a_request_are_ignored():
    assert decode_request(produce_9(b"b") + b"more", APIS).message == \
        decode_request(produce_9(b"b"), APIS).message


def test_topics_are_named_by_id_from_produce_13_on():
    data = ProduceRequest.TopicProduceData(name="", topic_id=TOPIC_ID, partition_data=[])
    frame = joined(encode_request(header(0, 13), ProduceRequest(topic_data=[data])))
    assert TOPIC_ID in frame
    (topic,) = decode_request(frame, APIS).message.topic_data
    assert (topic.name, topic.topic_id) == ("", TOPIC_ID)


def test_all_topics_are_null_in_metadata_and_an_empty_list_in_version_0():
    assert decode_request(b"\x00\x03\x00\x01\x00\x00\x00\x07\xff\xff" b"\xff\xff\xff\xff",
                          APIS).message.topics is None
    assert decode_request(b"\x00\x03\x00\x00\x00\x00\x00\x07\xff\xff" b"\x00\x00\x00\x00",
                          APIS).message == MetadataRequest(topics=[])
    with pytest.raises(KafkaFrameError, match="MetadataRequest.topics, byte 10: null where"):
        decode_request(b"\x00\x03\x00\x00\x00\x00\x00\x07\xff\xff" b"\xff\xff\xff\xff", APIS)
    with pytest.raises(UnencodableMessage, match="MetadataRequest.topics: None"):
        encode_request(header(3, 0), MetadataRequest(topics=None))


def test_operations_that_were_not_asked_for_have_their_own_number():
    answer = joined(requests.encode_response(header(3, 8), MetadataResponse()))
    assert answer[-4:] == b"\x80\x00\x00\x00"


def test_offset_fetch_has_groups_from_version_8_on():
    frame = joined(encode_request(header(9, 8), OffsetFetchRequest(
        groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group_id="g", topics=None)])))
    assert decode_request(frame, APIS).message.groups[0].topics is None
    with pytest.raises(UnencodableMessage, match="OffsetFetchResponse.groups: version 7"):
        requests.encode_response(header(9, 7), OffsetFetchResponse(
            groups=[OffsetFetchResponse.OffsetFetchResponseGroup(group_id="g")]))


def test_a_struct_that_may_be_null_has_a_byte_before_it():
    cursor = DescribeTopicPartitionsRequest.Cursor(topic_name="t", partition_index=3)
    for given, tail in ((None, b"\xff\x00"), (cursor, b"\x01\x02t\x00\x00\x00\x03\x00\x00")):
        message = DescribeTopicPartitionsRequest(cursor=given)
        frame = joined(encode_request(header(75, 0), message))
        assert frame.endswith(b"\x01" b"\x00\x00\x07\xd0" + tail)
        assert decode_request(frame, APIS).message == message


def test_list_offsets_asks_for_a_timestamp_in_the_record_of_its_version():
    frame = (b"\x00\x02\x00\x01\x00\x00\x00\x07\xff\xff" b"\xff\xff\xff\xff"  # replica -1
             b"\x00\x00\x00\x01" b"\x00\x01t" b"\x00\x00\x00\x01"
             b"\x00\x00\x00\x00" b"\xff\xff\xff\xff\xff\xff\xff\xfe")
    assert decode_request(frame, APIS).message == ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[
            ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-2)])])


# ---- versions ------------------------------------------------------------------------------------


@pytest.mark.parametrize("key,version", [(0, 0), (0, 2), (0, 14), (1, 3), (1, 18), (22, 5), (9, 10),
                                         (24, 0), (68, 0), (-1, 0), (3, -1)])
def test_other_versions_and_other_apis_are_not_supported(key, version):
    frame = struct.pack(">hhi", key, version, 7) + b"\xff\xff" + bytes(50)
    with pytest.raises(UnsupportedVersion) as raised:
        decode_request(frame, APIS)
    found = raised.value.header
    assert (found.request_api_key, found.request_api_version, found.correlation_id) == \
        (key, version, 7)


def test_what_is_not_advertised_is_not_served():
    frame = joined(encode_request(header(9, 8), OffsetFetchRequest()))
    decode_request(frame, GROUP_APIS)
    with pytest.raises(UnsupportedVersion):
        decode_request(frame, DATA_APIS)


def test_the_tables_together_have_all_apis():
    assert {**DATA_APIS, **GROUP_APIS} == APIS and not DATA_APIS.keys() & GROUP_APIS.keys()
    assert list(APIS) == sorted(ApiKey) == sorted(apis.REQUESTS)
    assert APIS[ApiKey.PRODUCE].served == (3, 13)
    assert APIS[ApiKey.PRODUCE].advertised == (0, 13), "KAFKA-18659: librdkafka needs version 0"
    assert APIS[ApiKey.FETCH].advertised == (4, 17)


# ---- bad lengths ---------------------------------------------------------------------------------


@pytest.mark.parametrize("length", range(len(produce_9(b"batch"))))
def test_a_request_that_is_cut_anywhere_is_refused(length):
    with pytest.raises(KafkaFrameError):
        decode_request(produce_9(b"batch")[:length], APIS)


#: A request of CreateTopics version 2 (generic codec) and of Metadata version 4 (compiled) up to
#: the number of topics.
BEFORE_TOPICS = {19: b"\x00\x13\x00\x02\x00\x00\x00\x07\xff\xff",
                 3: b"\x00\x03\x00\x04\x00\x00\x00\x07\xff\xff"}


@pytest.mark.parametrize("key", BEFORE_TOPICS)
@pytest.mark.parametrize("count", [0x7FFFFFFF, 100_000_000, 101])
def test_more_elements_than_bytes_are_refused_before_memory_is_taken(key, count):
    frame = BEFORE_TOPICS[key] + struct.pack(">i", count) + bytes(100)
    tracemalloc.start()
    try:
        with pytest.raises(KafkaFrameError, match=f"topics, byte 10: {count} elements in 100 b"):
            decode_request(frame, APIS)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("key", BEFORE_TOPICS)
def test_elements_of_all_arrays_together_are_bounded(key):
    name = b"\x00\x01t"
    topic = name if key == 3 else name + bytes(6) + b"\x00\x00\x00\x01" + bytes(8) + bytes(4)
    frame = BEFORE_TOPICS[key] + struct.pack(">i", 50) + 50 * topic + bytes(5)
    each = 1 if key == 3 else 2  # a topic, and an assignment in it
    decode_request(frame, APIS, elements_max=50 * each)
    with pytest.raises(KafkaFrameError, match="elements, the limit of the frame has"):
        decode_request(frame, APIS, elements_max=50 * each - 1)


def test_messages_of_the_generic_codec_may_have_fewer_elements():
    groups = ["g"] * GENERIC_ELEMENTS_MAX
    frame = joined(encode_request(header(15, 5), DescribeGroupsRequest(groups=groups)))
    assert decode_request(frame, APIS).message.groups == groups
    frame = joined(encode_request(header(15, 5), DescribeGroupsRequest(groups=[*groups, "g"])))
    with pytest.raises(KafkaFrameError, match="groups, byte .*: 16385 elements, the limit"):
        decode_request(frame, APIS)
    frame = joined(encode_request(header(3, 9), MetadataRequest(topics=[
        MetadataRequest.MetadataRequestTopic(name="t")] * ELEMENTS_MAX)))
    assert len(decode_request(frame, APIS).message.topics) == ELEMENTS_MAX


@pytest.mark.parametrize("key,version", [(3, 9), (19, 5)])
def test_tagged_fields_count_as_elements(key, version):
    message = MetadataRequest(topics=[]) if key == 3 else CreateTopicsRequest()
    frame = joined(encode_request(header(key, version), message))
    assert frame[-1:] == b"\0"
    frame = frame[:-1] + b"\x03" + b"\x09\x00" * 3
    decode_request(frame, APIS, elements_max=3)
    with pytest.raises(KafkaFrameError, match="Request.tags, byte .*: 3 elements, the limit"):
        decode_request(frame, APIS, elements_max=2)


@pytest.mark.parametrize("piece,text", [
    (b"\xff\xfe", "a length of -2"), (b"\x00\x05", "5 bytes are needed, 4 are left"),
    (b"\xff\xff", "null where a value is needed"), (b"\x00\x02\xff\xff", "not UTF-8")])
@pytest.mark.parametrize("key", BEFORE_TOPICS)
def test_bad_lengths_of_text_are_refused_with_their_field(key, piece, text):
    frame = BEFORE_TOPICS[key] + b"\x00\x00\x00\x01" + piece + bytes(4)
    with pytest.raises(KafkaFrameError, match=f"Topic.name, byte 14: .*{text}|byte 16: {text}"):
        decode_request(frame, APIS)


def test_a_varint_without_end_and_a_tag_of_another_length_are_refused():
    with pytest.raises(KafkaFrameError, match="a varint of more than 5 bytes"):
        decode_request(produce_9(b"b", b"\xff" * 5 + b"\x01"), APIS)
    with pytest.raises(KafkaFrameError, match="100 bytes are needed, 1 are left"):
        decode_request(produce_9(b"b", b"\x01\x07\x64a"), APIS)
    answer = joined(requests.encode_response(header(1, 16), FetchResponse(
        node_endpoints=[FetchResponse.NodeEndpoint(host="h")])))
    wrong = answer.replace(b"\x01\x00\x0d\x02", b"\x01\x00\x0c\x02")
    assert wrong != answer
    with pytest.raises(KafkaFrameError, match="a tagged field of 12 bytes has content of 13"):
        decode_response(wrong, header(1, 16))


def test_an_answer_to_another_request_is_refused():
    with pytest.raises(KafkaFrameError, match="correlation_id, byte 0: 8 where 7 is expected"):
        decode_response(b"\x00\x00\x00\x08", header(3, 1))
    with pytest.raises(KafkaFrameError, match="ResponseHeader, byte 0: 4 bytes are needed, 3"):
        decode_response(bytes(3), header(3, 1))


def test_long_text_is_refused_in_both_directions():
    text = "x" * 0x8000
    with pytest.raises(UnencodableMessage, match="text of 32768 bytes, the limit is 32767"):
        encode_request(header(3, 9), MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=text)]))
    frame = (b"\x00\x03\x00\x09\x00\x00\x00\x07\xff\xff\x00" b"\x02" b"\x81\x80\x02" + text.encode()
             + bytes(9))
    with pytest.raises(KafkaFrameError, match="name, byte 12: text of 32768 bytes"):
        decode_request(frame, APIS)


def test_a_message_that_was_encoded_before_is_sent_as_if_it_were_encoded_now():
    first, last = APIS[ApiKey.METADATA].served
    for version in range(first, last + 1):
        response = MetadataResponse(brokers=[], topics=[], controller_id=7)
        sent = header(ApiKey.METADATA, version)
        encoded = encoded_message(ApiKey.METADATA, version, response)
        for _ in range(2):
            buffers = encode_response(sent, encoded)
            assert joined(buffers) == joined(encode_response(sent, response))
            assert buffers[1] is encoded.data
        with pytest.raises(AssertionError):
            encode_response(header(ApiKey.METADATA, (version + 1) % (last + 1)), encoded)
