"""Requests of Kafka's protocol on raw connections: the answers of one node, which clients hide.

Contract.  Each request opens a connection, which is closed after the answer.  ``NotSent``: there
was no connection.  ``NoAnswer``: there was no answer.  The error of a partition is raised as
``Refused`` or ``OffsetOutOfRange``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import trio

from chaos.workloads.kafka_client import Refused
from chaos.workloads.session import CONNECT_TIMEOUT_S, NoAnswer, NotSent
from chaos.workloads.workload_context import PartitionRef
from multiraft.kafka.apis import ApiKey
from multiraft.kafka.error_codes import ErrorCode
from multiraft.kafka.errors import KafkaFrameError
from multiraft.kafka.hot_messages import (
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    RequestHeader,
)
from multiraft.kafka.requests import decode_response, encode_request
from multiraft.wire.errors import OffsetOutOfRange

#: The last version that names topics by their names: an incarnation is known by its topic.
FETCH_VERSION = 12
METADATA_VERSION, OFFSETS_VERSION = 9, 7
#: The time that stands for the end of a partition.
LATEST = -1
TIMEOUT_S = 3.0
BYTES_MAX = 32 << 10
#: A batch may be larger than what was asked for; no answer is as long as this.
FRAME_BYTES_MAX = 4 << 20
ISOLATION = {"read_uncommitted": 0, "read_committed": 1}


class Fetched(NamedTuple):
    """The answer about one partition."""

    records: memoryview
    log_start: int
    high_watermark: int


async def fetch(address: str | None, place: PartitionRef, offset: int, isolation: str) -> Fetched:
    """Fetch a partition once from the node at ``address``, None = it is no longer a member. Raises
    as the module says."""
    response = await ask(address, ApiKey.FETCH, FETCH_VERSION, FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=BYTES_MAX, isolation_level=ISOLATION[isolation],
        topics=[FetchRequest.FetchTopic(topic=place.topic, partitions=[FetchRequest.FetchPartition(
            partition=place.partition, fetch_offset=offset, partition_max_bytes=BYTES_MAX)])]))
    return _fetched(response)


async def end(address: str | None, place: PartitionRef) -> int:
    """Return the end of a partition that the node at ``address`` names.  Raises as the module
    says."""
    response = await ask(address, ApiKey.LIST_OFFSETS, OFFSETS_VERSION, ListOffsetsRequest(topics=[
        ListOffsetsRequest.ListOffsetsTopic(name=place.topic, partitions=[
            ListOffsetsRequest.ListOffsetsPartition(partition_index=place.partition,
                                                    timestamp=LATEST)])]))
    part = response.topics[0].partitions[0]
    if part.error_code:
        raise Refused(ErrorCode(part.error_code).name)
    return part.offset


async def leaders(address: str | None, names: Iterable[str]) -> dict[tuple[str, int], int]:
    """Return the leader of each partition of some topics that the node at ``address`` names, -1 =
    it names none.  Raises as the module says."""
    response = await ask(address, ApiKey.METADATA, METADATA_VERSION, MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names]))
    return {(topic.name, part.partition_index): part.leader_id
            for topic in response.topics for part in topic.partitions}


async def ask(address: str | None, key: ApiKey, version: int, message: Any) -> Any:
    """Send one request to a node and return its response.  Raises ``NotSent`` or ``NoAnswer``."""
    if address is None:
        raise NotSent("the node is no longer a member")
    host, _, port = address.rpartition(":")
    try:
        with trio.fail_after(CONNECT_TIMEOUT_S):
            stream = await trio.open_tcp_stream(host, int(port))
    except (OSError, trio.TooSlowError) as error:
        raise NotSent(f"{address}: {error or 'no connection in time'}") from error
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=1,
                           client_id="multiraft-chaos")
    try:
        with trio.fail_after(TIMEOUT_S):
            await stream.send_all(b"".join(map(bytes, encode_request(header, message))))
            length = int.from_bytes(await _take(stream, 4))
            if length > FRAME_BYTES_MAX:
                raise EOFError(f"an answer of {length} bytes")
            return decode_response(await _take(stream, length), header)
    except (OSError, EOFError, trio.BrokenResourceError, trio.TooSlowError,
            KafkaFrameError) as error:
        raise NoAnswer(f"{address}: {error or type(error).__name__}") from error
    finally:
        stream.socket.close()


async def _take(stream: trio.SocketStream, count: int) -> bytes:
    taken = bytearray()
    while len(taken) < count:
        data = await stream.receive_some(count - len(taken))
        if not data:
            raise EOFError("the node closed the connection")
        taken += data
    return bytes(taken)


def _fetched(response: Any) -> Fetched:
    """Return the only partition of a response.  Raises the exception of its error."""
    error = response.error_code
    if not error:
        part = response.responses[0].partitions[0]
        error = part.error_code
    if error == ErrorCode.OFFSET_OUT_OF_RANGE:
        raise OffsetOutOfRange("by a fetch")
    if error:
        raise Refused(ErrorCode(error).name)
    records = part.records
    joined = records if isinstance(records, (bytes, memoryview)) else b"".join(records or ())
    return Fetched(memoryview(joined), part.log_start_offset, part.high_watermark)
