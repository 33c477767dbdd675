"""Costs of the codec of Kafka's messages: microseconds per call, beside the generic codec and two
other implementations.

    python -m benchmarks.bench_kafka_codec

Contract.  Prints a table; asserts nothing.  Each figure is processor time, the best of several
runs, because other work of the machine only adds to it.  A response is built and encoded, as a
handler does; kio and kafka-python encode a message that exists, so building it comes on top for
them.
"""

from __future__ import annotations

import importlib
import io
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from kio.serial import entity_reader, entity_writer
from rich.console import Console
from rich.table import Table

from benchmarks.bench_core import best_s
from multiraft.kafka import _codec, generic_decoder, generic_encoder
from multiraft.kafka.messages import fetch, metadata, produce
from multiraft.kafka.schema import ELEMENTS_MAX, Message

RECORDS_1K, RECORDS_10K, RECORDS_1M = bytes(1 << 10), bytes(10 << 10), bytes(1 << 20)
TOPIC_ID = bytes(range(16))
HEADER = bytes(8)


def produce_request(root: Any, partitions: int, records: bytes) -> Any:
    """Return a request of Produce for one topic."""
    return root(acks=-1, timeout_ms=30_000, topic_data=[root.TopicProduceData(
        name="flights", partition_data=[root.PartitionProduceData(index=index, records=records)
                                        for index in range(partitions)])])


def produce_response(root: Any, partitions: int) -> Any:
    """Return a response of Produce for one topic."""
    return root(responses=[root.TopicProduceResponse(name="flights", partition_responses=[
        root.PartitionProduceResponse(index=index, base_offset=1 << 40, log_start_offset=0)
        for index in range(partitions)])])


def fetch_request(root: Any, partitions: int) -> Any:
    """Return a request of Fetch for one topic."""
    return root(max_wait_ms=500, min_bytes=1, topics=[root.FetchTopic(
        topic_id=TOPIC_ID, partitions=[
            root.FetchPartition(partition=index, fetch_offset=1 << 40, partition_max_bytes=1 << 20)
            for index in range(partitions)])])


def fetch_response(root: Any, partitions: int, records: bytes) -> Any:
    """Return a response of Fetch for one topic."""
    return root(responses=[root.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[
        root.PartitionData(partition_index=index, high_watermark=1 << 40,
                           last_stable_offset=1 << 40, log_start_offset=0, records=[records])
        for index in range(partitions)])])


def metadata_response(root: Any, topics: int, partitions: int) -> Any:
    """Return a response of Metadata of three nodes."""
    return root(
        brokers=[root.MetadataResponseBroker(node_id=node, host="node.example.org", port=9092)
                 for node in (1, 2, 3)], cluster_id="cluster", controller_id=1,
        topics=[root.MetadataResponseTopic(
            name=f"topic-{topic}", topic_id=TOPIC_ID, partitions=[
                root.MetadataResponsePartition(
                    partition_index=index, leader_id=1, leader_epoch=1, replica_nodes=[1, 2, 3],
                    isr_nodes=[1, 2, 3]) for index in range(partitions)])
            for topic in range(topics)])


def others(message: Message, version: int, data: bytes) -> list[Callable[[], object]]:
    """Return the functions of kio and of kafka-python that decode a request, or encode the message
    that they decoded from a response."""
    kind = "request" if message.name.endswith("Request") else "response"
    api = message.name.removesuffix(kind.title()).lower()
    module = importlib.import_module(f"kio.schema.{api}.v{version}.{kind}")
    entity = getattr(module, message.name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        package = {"produce": "producer", "fetch": "consumer", "metadata": "metadata"}[api]
        theirs = getattr(importlib.import_module(f"kafka.protocol.{package}"), message.name)
    read, write = entity_reader(entity), entity_writer(entity)
    if kind == "request":
        return [lambda: read(data, 0), lambda: theirs.decode(data, version=version)]
    of_kio, of_kafka_python = read(data, 0)[0], theirs.decode(data, version=version)
    of_kafka_python._header = None
    return [lambda: write(io.BytesIO(), of_kio), lambda: of_kafka_python.encode(version=version)]


def add_row(table: Table, name: str, message: Message, version: int,
            make: Callable[[Any], Any]) -> None:
    """Add a row to the table: the compiled codec, the generic one, kio, kafka-python."""
    compiled, python = getattr(_codec, message.name), message.struct.make
    data = b"".join(generic_encoder.encode(message, make(python), version, b""))
    if message.name.endswith("Request"):
        ours = [lambda: _codec.decode(message.name, data, 0, version, ELEMENTS_MAX),
                lambda: generic_decoder.decode(message, data, 0, version, ELEMENTS_MAX)]
    else:
        ours = [lambda: _codec.encode(message.name, make(compiled), version, HEADER),
                lambda: generic_encoder.encode(message, make(python), version, HEADER)]
    table.add_row(name, *[f"{best_s(each, time.process_time) * 1e6:,.1f}"
                          for each in (*ours, *others(message, version, data))])


def main() -> None:
    """Print the table, when all figures are measured."""
    table = Table("microseconds", box=None)
    for column in ("compiled", "generic", "kio", "kafka-python"):
        table.add_column(column, justify="right")
    show = partial(add_row, table)
    request, response = produce.PRODUCE_REQUEST, produce.PRODUCE_RESPONSE
    show("Produce 9 request, 1 x 1 MiB, decode", request, 9,
         partial(produce_request, partitions=1, records=RECORDS_1M))
    show("Produce 9 request, 100 x 1 KiB, decode", request, 9,
         partial(produce_request, partitions=100, records=RECORDS_1K))
    for count in (1, 100):
        show(f"Produce 9 response, {count} partitions, build, encode", response, 9,
             partial(produce_response, partitions=count))
    for count in (1, 100):
        show(f"Fetch 16 request, {count} partitions, decode", fetch.FETCH_REQUEST, 16,
             partial(fetch_request, partitions=count))
    show("Fetch 16 response, 1 x 1 MiB, build, encode", fetch.FETCH_RESPONSE, 16,
         partial(fetch_response, partitions=1, records=RECORDS_1M))
    show("Fetch 16 response, 100 x 10 KiB, build, encode", fetch.FETCH_RESPONSE, 16,
         partial(fetch_response, partitions=100, records=RECORDS_10K))
    for count in (1, 12):
        show(f"Metadata 12 response, 1,000 x {count}, build, encode",
             metadata.METADATA_RESPONSE, 12,
             partial(metadata_response, topics=1000, partitions=count))
    Console().print(table)


if __name__ == "__main__":
    main()
