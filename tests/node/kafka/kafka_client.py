"""One connection of Kafka's protocol to a node in this process, without retries."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import trio

from multiraft.kafka.apis import ApiKey
from multiraft.kafka.connection import KafkaRequest
from multiraft.kafka.hot_messages import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    MetadataRequest,
    ProduceRequest,
    RequestHeader,
)
from multiraft.kafka.messages.create_topics import CreateTopicsRequest
from multiraft.kafka.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from multiraft.kafka.requests import decode_response, encode_request
from node.config import parse
from node.main import Node
from tests.node.harness import make_node, one_node_table, running
from tests.ports import free_port

VERSIONS = {ApiKey.PRODUCE: 13, ApiKey.FETCH: 17, ApiKey.LIST_OFFSETS: 10, ApiKey.METADATA: 13,
            ApiKey.FIND_COORDINATOR: 6, ApiKey.API_VERSIONS: 5, ApiKey.CREATE_TOPICS: 7,
            ApiKey.DELETE_TOPICS: 6, ApiKey.INIT_PRODUCER_ID: 4, ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
            ApiKey.DESCRIBE_CONFIGS: 4,
            ApiKey.ALTER_CONFIGS: 2, ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
            ApiKey.DESCRIBE_LOG_DIRS: 4, ApiKey.CREATE_PARTITIONS: 3,
            ApiKey.DESCRIBE_CLUSTER: 2, ApiKey.DELETE_RECORDS: 2, ApiKey.DESCRIBE_ACLS: 3}


@contextlib.asynccontextmanager
async def serving_kafka(directory: Path, kafka: dict | None = None,
                        **limits: int) -> AsyncIterator[Node]:
    """Run a node that leads all groups and serves Kafka's clients."""
    table = one_node_table(**limits)
    table["kafka"] = {"address": f"127.0.0.1:{free_port()}", **(kafka or {})}
    async with running(make_node(parse(table, directory))) as node:
        yield node
        assert not node.kafka.requests.counts.closed["unencodable"]


class KafkaClient:
    """A connection; a context manager that closes it."""

    def __init__(self, stream: trio.SocketStream):
        self.stream = stream
        self._received = b""
        self._sent: list[RequestHeader] = []  # without an answer yet
        self._next = 1

    @classmethod
    async def open(cls, node: Node) -> KafkaClient:
        """Connect."""
        address = node.config.kafka.listen_address()
        return cls(await trio.open_tcp_stream(address.host, address.port))

    async def __aenter__(self) -> KafkaClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stream.socket.close()

    async def begin(self, key: ApiKey, message: Any, version: int | None = None,
                    answered: bool = True) -> None:
        """Send a request."""
        header = RequestHeader(request_api_key=key, request_api_version=(
            VERSIONS[key] if version is None else version), correlation_id=self._next,
            client_id="test")
        self._next += 1
        if answered:
            self._sent.append(header)
        await self.stream.send_all(b"".join(map(bytes, encode_request(header, message))))

    async def answer(self) -> Any:
        """Return the response to the oldest request without one."""
        header = self._sent.pop(0)
        length = int.from_bytes(await self._take(4))
        return decode_response(await self._take(length), header)

    async def ask(self, key: ApiKey, message: Any, version: int | None = None) -> Any:
        """Send a request and return its response."""
        await self.begin(key, message, version)
        return await self.answer()

    async def _take(self, count: int) -> bytes:
        while len(self._received) < count:
            data = await self.stream.receive_some()
            if not data:
                raise EOFError("the node closed the connection")
            self._received += data
        taken, self._received = self._received[:count], self._received[count:]
        return taken

    # ---- requests --------------------------------------------------------------------------------

    async def create(self, name: str, partitions: int = 1, **fields: Any) -> Any:
        """Create a topic and return its result."""
        response = await self.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=[
            CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions,
                                               replication_factor=-1, **fields)]))
        return response.topics[0]

    async def produce(self, topic_id: bytes, *batches: Any, partition: int = 0, acks: int = -1,
                      **fields: Any) -> Any:
        """Append to a partition and return its result; None with acks=0."""
        request = ProduceRequest(acks=acks, timeout_ms=15_000, topic_data=[
            ProduceRequest.TopicProduceData(topic_id=topic_id, partition_data=[
                ProduceRequest.PartitionProduceData(
                    index=partition, records=b"".join(map(bytes, batches)))])], **fields)
        await self.begin(ApiKey.PRODUCE, request, answered=acks != 0)
        if acks == 0:
            return None
        return (await self.answer()).responses[0].partition_responses[0]

    async def fetch(self, topic_id: bytes, offset: int, wait_ms: int = 0, epoch: int = -1,
                    partition: int = 0) -> FetchResponse.PartitionData:
        """Read a partition and return its result."""
        return (await self.ask(ApiKey.FETCH, fetch_request(
            topic_id, offset, wait_ms, epoch, partition))).responses[0].partitions[0]

    async def offset(self, name: str, time: int, epoch: int = -1) -> Any:
        """Return the result of a ListOffsets of one partition."""
        response = await self.ask(ApiKey.LIST_OFFSETS, ListOffsetsRequest(topics=[
            ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[
                ListOffsetsRequest.ListOffsetsPartition(
                    partition_index=0, timestamp=time, current_leader_epoch=epoch)])]))
        return response.topics[0].partitions[0]

    async def epoch_end(self, name: str, leader_epoch: int, present: int = -1) -> Any:
        """Return the result of an OffsetForLeaderEpoch of one partition."""
        request = OffsetForLeaderEpochRequest
        response = await self.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, request(topics=[
            request.OffsetForLeaderTopic(topic=name, partitions=[request.OffsetForLeaderPartition(
                partition=0, leader_epoch=leader_epoch, current_leader_epoch=present)])]))
        return response.topics[0].partitions[0]

    async def metadata(self, *names: str, version: int | None = None, **fields: Any) -> Any:
        """Return the metadata of topics, of all without names."""
        return await self.ask(ApiKey.METADATA, MetadataRequest(topics=[
            MetadataRequest.MetadataRequestTopic(name=name) for name in names] or None,
            **fields), version)


def fetch_request(topic_id: bytes, offset: int, wait_ms: int = 0, epoch: int = -1,
                  partition: int = 0) -> FetchRequest:
    """Return a fetch of one partition."""
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, topics=[
        FetchRequest.FetchTopic(topic_id=topic_id, partitions=[FetchRequest.FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20,
            current_leader_epoch=epoch)])])


def joined(records: Any) -> bytes:
    """Return the records of a response as bytes."""
    return records if isinstance(records, bytes) else b"".join(map(bytes, records or ()))


def request(key: ApiKey, message: Any, version: int | None = None) -> KafkaRequest:
    """Return a request as a connection passes it on."""
    return KafkaRequest(RequestHeader(request_api_key=key, request_api_version=(
        VERSIONS[key] if version is None else version), correlation_id=1), message)
