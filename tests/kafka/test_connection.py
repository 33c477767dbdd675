"""The server's side of a connection: order of answers, held answers, ends, what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multiraft.kafka.apis import APIS, DATA_APIS, ApiKey
from multiraft.kafka.connection import (
    NO_ANSWER,
    KafkaConnection,
    KafkaRequest,
)
from multiraft.kafka.error_codes import ErrorCode
from multiraft.kafka.hot_messages import (
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    RequestHeader,
)
from multiraft.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from multiraft.kafka.requests import decode_response, encode_request
from multiraft.wire.connection import (
    NEED_DATA,
    PAUSED,
    ConnectionClosed,
    RequestEvent,
    ResponseEvent,
    State,
)
from multiraft.wire.errors import FrameTooLarge, LocalProtocolError, RemoteProtocolError
from multiraft.wire.frames import WireLimits

LIMITS = WireLimits(frame_bytes_max=1 << 20, in_flight_max=4)


def header(number: int, key: int = ApiKey.METADATA, version: int = 12) -> RequestHeader:
    return RequestHeader(request_api_key=key, request_api_version=version, correlation_id=number,
                         client_id="test")


def request(number: int) -> bytes:
    return b"".join(encode_request(header(number), MetadataRequest(topics=[])))


def produce(number: int, acks: int, records: bytes = b"r" * 100) -> bytes:
    partition = ProduceRequest.PartitionProduceData(index=0, records=records)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[partition])
    return b"".join(encode_request(
        header(number, ApiKey.PRODUCE, 9),
        ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[topic])))


def feed(connection: KafkaConnection, data: bytes) -> None:
    """Receive bytes that fit into the memory of one receive."""
    memory = connection.buffer_for_receive()
    memory[:len(data)] = data
    connection.received(len(data))


def events(connection: KafkaConnection) -> list:
    found = []
    while (event := connection.next_event()) not in (NEED_DATA, PAUSED):
        found.append(event)
    return found


def opened(*data: bytes, limits: WireLimits = LIMITS) -> KafkaConnection:
    connection = KafkaConnection(DATA_APIS, limits)
    for each in data:
        feed(connection, each)
    return connection


def metadata(cluster: str) -> MetadataResponse:
    return MetadataResponse(cluster_id=cluster)


def answers(buffers) -> list[tuple[int, str]]:
    """Return correlation id and cluster id of each answer in the bytes."""
    data, found = b"".join(buffers), []
    while data:
        size = int.from_bytes(data[:4], "big")
        frame, data = data[4:4 + size], data[4 + size:]
        number = int.from_bytes(frame[:4], "big")
        found.append((number, decode_response(frame, header(number)).cluster_id))
    return found


def test_a_request_is_an_event_and_its_answer_leaves_at_once():
    connection = opened(request(7))
    (event,) = events(connection)
    assert event == RequestEvent(0, KafkaRequest(header(7), MetadataRequest(topics=[])))
    assert connection.in_flight == 1
    assert answers(connection.send(ResponseEvent(event.id, metadata("a")))) == [(7, "a")]
    assert connection.in_flight == 0 and connection.held_bytes == 0


@given(st.permutations(range(4)))
def test_answers_leave_in_the_order_of_requests(order):
    connection = opened(*[request(10 + number) for number in range(4)])
    found = events(connection)
    assert connection.next_event() is PAUSED
    left, answered = [], set()
    for at in order:
        answered.add(at)
        sent = answers(connection.send(ResponseEvent(found[at].id, metadata(str(at)))))
        left += sent
        ready = next(count for count in range(5) if count not in answered)
        assert left == [(10 + at, str(at)) for at in range(ready)]
        assert connection.in_flight == 4 - ready
        assert bool(connection.held_bytes) == (len(answered) > ready)
    assert connection.next_event() is NEED_DATA


def test_held_answers_count_their_bytes():
    connection = opened(request(1), request(2), request(3))
    first, second, third = events(connection)
    assert connection.send(ResponseEvent(third.id, metadata("c"))) == []
    one = connection.held_bytes
    assert connection.send(ResponseEvent(second.id, metadata("b"))) == []
    assert connection.held_bytes == 2 * one > 0
    assert sum(map(len, connection.send(ResponseEvent(first.id, metadata("a"))))) == 3 * one
    assert connection.held_bytes == 0


def test_a_request_without_an_answer_has_no_place_in_the_order():
    connection = opened(request(1), produce(2, acks=0), request(3))
    first, second, third = events(connection)
    assert second.id == NO_ANSWER and second.request.message.acks == 0
    assert connection.in_flight == 2
    assert answers(connection.send(ResponseEvent(first.id, metadata("a")))) == [(1, "a")]
    assert answers(connection.send(ResponseEvent(third.id, metadata("c")))) == [(3, "c")]


def test_records_do_not_count_as_bytes_to_decode():
    small, large = opened(produce(1, -1, b"r")), opened(produce(1, -1, b"r" * 10_000))
    events(small)
    events(large)
    assert large.reader.header_bytes - small.reader.header_bytes <= 2  # of the length of records


def test_an_unknown_version_of_api_versions_is_answered_with_the_known_ones():
    data = b"".join(encode_request(header(5, ApiKey.API_VERSIONS, 4), ApiVersionsRequest(
        client_software_name="n", client_software_version="1")))
    later = data[:6] + b"\x00\x63" + data[8:]
    connection = opened(later, request(6))
    first, second = events(connection)
    assert first.request.message is None and second.request.message is not None
    buffers = connection.send(ResponseEvent(first.id, None))
    found = decode_response(b"".join(buffers)[4:], header(5, ApiKey.API_VERSIONS, 0))
    assert type(found) is ApiVersionsResponse
    assert found.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert {each.api_key for each in found.api_keys} == {*DATA_APIS}


@pytest.mark.parametrize("data", [
    b"".join(encode_request(header(1, ApiKey.METADATA, 12), MetadataRequest(topics=[])))[:6]
    + b"\x00\x63" + bytes(20),
    request(1)[:4] + b"\x03\xe8" + request(1)[6:],
    request(1)[:-1] + b"\x07",
], ids=["version", "api", "malformed"])
def test_a_request_that_is_not_supported_ends_the_connection(data):
    data = len(data[4:]).to_bytes(4, "big") + data[4:]
    connection = opened(request(9), data, request(2))
    first = connection.next_event()
    assert type(first) is RequestEvent
    for _ in range(2):
        with pytest.raises(RemoteProtocolError):
            connection.next_event()
    assert connection.state is State.BROKEN
    assert answers(connection.send(ResponseEvent(first.id, metadata("a")))) == [(9, "a")]


def test_a_frame_above_the_limit_is_refused_before_it_arrives():
    connection = opened(request(1), (LIMITS.frame_bytes_max + 1).to_bytes(4, "big"))
    assert type(connection.next_event()) is RequestEvent
    with pytest.raises(FrameTooLarge):
        connection.next_event()


def test_requests_are_answered_after_the_client_ended_its_side():
    connection = opened(request(1))
    connection.received(0)
    first, end = connection.next_event(), connection.next_event()
    assert end == ConnectionClosed() and connection.state is State.CLOSED
    assert answers(connection.send(ResponseEvent(first.id, metadata("a")))) == [(1, "a")]


def test_an_end_inside_a_frame_is_an_error():
    connection = opened(request(1)[:9])
    connection.received(0)
    with pytest.raises(RemoteProtocolError, match="inside a frame"):
        connection.next_event()


def test_a_request_is_answered_once():
    connection = opened(request(1), request(2))
    first, second = events(connection)
    connection.send(ResponseEvent(second.id, metadata("b")))
    for number in (second.id, 2, -1):
        with pytest.raises(LocalProtocolError):
            connection.send(ResponseEvent(number, metadata("b")))
    connection.send(ResponseEvent(first.id, metadata("a")))
    with pytest.raises(LocalProtocolError):
        connection.send(ResponseEvent(first.id, metadata("a")))


def test_an_answer_that_cannot_be_encoded_may_be_replaced():
    connection = opened(request(1))
    (event,) = events(connection)
    with pytest.raises(LocalProtocolError):
        connection.send(ResponseEvent(event.id, MetadataResponse(cluster_id="c" * 40_000)))
    assert answers(connection.send(ResponseEvent(event.id, metadata("a")))) == [(1, "a")]


def test_records_of_an_answer_are_not_copied():
    data = b"".join(encode_request(header(1, ApiKey.FETCH, 12), FetchRequest(topics=[])))
    connection = opened(data)
    (event,) = events(connection)
    records = memoryview(bytearray(b"batch" * 100))
    partition = FetchResponse.PartitionData(partition_index=0, records=[records])
    topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])
    buffers = connection.send(ResponseEvent(event.id, FetchResponse(responses=[topic])))
    assert any(each is records for each in buffers)


def test_tables_of_apis_are_a_choice_of_the_listener():
    only = {ApiKey.API_VERSIONS: APIS[ApiKey.API_VERSIONS]}
    connection = KafkaConnection(only, LIMITS)
    feed(connection, request(1))
    with pytest.raises(RemoteProtocolError, match="API 3 version 12 is not supported"):
        connection.next_event()
