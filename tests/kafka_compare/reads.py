"""Requests that read records, and for offsets, epochs and directories."""

from __future__ import annotations

from typing import Any

from multiraft.kafka.apis import ApiKey
from multiraft.kafka.hot_messages import FetchRequest, ListOffsetsRequest
from multiraft.kafka.messages.delete_records import DeleteRecordsRequest
from multiraft.kafka.messages.describe_log_dirs import DescribeLogDirsRequest
from multiraft.kafka.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from tests.kafka_compare.records import TIME_MS
from tests.kafka_compare.server import LATEST, Server
from tests.kafka_compare.topics import NO_SUCH_ID, WRONG_NAMES

IDS_SINCE = 13
#: Wait of a fetch that has nothing to read, in milliseconds.
WAIT_MS = 100


def reading(server: Server, version: int, name: str, offset: int, partition: int = 0,
            **fields: Any) -> FetchRequest:
    """Return a fetch of a partition.  Fields of the partition begin with ``part_``."""
    topic_id = fields.pop("topic_id", server.ids.get(name, NO_SUCH_ID))
    named = {"topic_id": topic_id} if version >= IDS_SINCE else {"topic": name}
    of_part = {each.removeprefix("part_"): fields.pop(each) for each in list(fields)
               if each.startswith("part_")}
    part = FetchRequest.FetchPartition(**{"partition": partition, "fetch_offset": offset,
                                          "partition_max_bytes": 1 << 20, **of_part})
    return FetchRequest(**{"max_wait_ms": WAIT_MS, "min_bytes": 1, "max_bytes": 1 << 20, **fields},
                        topics=[FetchRequest.FetchTopic(**named, partitions=[part])])


def fetch(server: Server) -> None:
    """Read records from right and wrong places."""
    key, last = ApiKey.FETCH, LATEST[ApiKey.FETCH]

    def one(label: str, name: str = "log", offset: int = 0, **fields: Any) -> None:
        server.ask(f"fetch: {label}", key, reading(server, last, name, offset, **fields))

    server.ask_each("fetch", key, lambda version: reading(server, version, "log", 0))
    server.ask_each("fetch what is committed", key, lambda version: reading(
        server, version, "log", 20, isolation_level=1))
    for name in ("compressed", "stamped", "identities", "acks", "compacted"):
        one(f"topic {name}", name)
    one("from the middle of a batch", offset=3)
    one("at the end", offset=24)
    one("behind the end", offset=25)
    one("far behind the end", offset=1 << 40)
    one("offset -1", offset=-1)
    one("offset -2", offset=-2)
    one("an empty partition", partition=1)
    for partition in (2, -1):
        one(f"partition {partition}", partition=partition)
    server.ask_each("fetch of a topic that does not exist", key, lambda version: reading(
        server, version, "never-created", 0))
    for label, name in WRONG_NAMES.items():
        server.ask(f"fetch: a name with {label}", key, reading(server, 12, name, 0), 12)
    one("the id zero", topic_id=bytes(16))
    one("1 byte", max_bytes=1)
    one("1 byte of the partition", part_partition_max_bytes=1)
    one("0 bytes", max_bytes=0)
    one("0 bytes of the partition", part_partition_max_bytes=0)
    one("-1 bytes", max_bytes=-1)
    one("-1 bytes of the partition", part_partition_max_bytes=-1)
    one("150 bytes of the partition", part_partition_max_bytes=150)
    one("more bytes than there are", min_bytes=1 << 19)
    one("no wait for more bytes than there are", min_bytes=1 << 19, max_wait_ms=0)
    one("a negative wait", max_wait_ms=-1, min_bytes=1 << 19)
    one("a later leader epoch", part_current_leader_epoch=1_000_000)
    one("leader epoch -1", part_current_leader_epoch=-1)
    one("leader epoch -2", part_current_leader_epoch=-2)
    one("isolation level 2", isolation_level=2)
    one("isolation level -1", isolation_level=-1)
    one("epoch of the last record unknown", part_last_fetched_epoch=1_000_000, offset=2)
    one("a session that does not exist", session_id=77, session_epoch=1)
    one("session epoch -1 of a session that does not exist", session_id=77, session_epoch=-1)
    one("session epoch 5 without a session", session_epoch=5)
    one("a new session", session_epoch=0)
    one("a rack", rack_id="elsewhere")
    both = reading(server, last, "log", 20)
    both.topics[0].partitions.append(FetchRequest.FetchPartition(
        partition=1, fetch_offset=5, partition_max_bytes=100))
    server.ask("fetch: partitions with different results", key, both)
    twice = reading(server, last, "log", 20)
    twice.topics[0].partitions *= 2
    server.ask("fetch: a partition twice", key, twice)
    server.ask("fetch: no topic", key, FetchRequest(max_wait_ms=0, min_bytes=0))
    for replica in (1, 5):
        server.ask(f"fetch: as replica {replica}", key,
                   reading(server, 12, "log", 22, replica_id=replica), 12)
    server.ask("fetch: as a debugging client", key,
               reading(server, 12, "log", 22, replica_id=-2), 12)


def offsets_asked(name: str, *times: int, **fields: Any) -> ListOffsetsRequest:
    """Return a request for offsets at times of partition 0."""
    of_part = {each.removeprefix("part_"): fields.pop(each) for each in list(fields)
               if each.startswith("part_")}
    return ListOffsetsRequest(**{"replica_id": -1, **fields}, topics=[
        ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[
            ListOffsetsRequest.ListOffsetsPartition(**{"partition_index": 0, "timestamp": each,
                                                       **of_part}) for each in times])])


def list_offsets(server: Server) -> None:
    """Ask for offsets at numbers in place of times, and at times."""
    key = ApiKey.LIST_OFFSETS
    for number in range(-1, -8, -1):
        server.ask_each(f"offsets at {number}", key, offsets_asked("log", number))
        server.ask(f"offsets at {number} of an empty partition", key,
                   offsets_asked("log", number, part_partition_index=1))
        server.ask(f"offsets at {number} after a deletion", key,
                   offsets_asked("deleted-records", number))
    times = {"0": 0, "the first record": TIME_MS + 3000, "a record in a batch": TIME_MS + 4500,
             "between records": TIME_MS + 5200, "the last record": TIME_MS + 50_000,
             "behind the last record": TIME_MS + 50_001, "the largest": (1 << 63) - 1}
    for label, time_ms in times.items():
        server.ask_each(f"offsets at the time of {label}", key, offsets_asked("log", time_ms))
    for name in ("compressed", "identities", "compacted", "acks"):
        for number in (-1, -3, TIME_MS):
            server.ask(f"offsets of {name} at {number}", key, offsets_asked(name, number))
    server.ask_each("offsets of a topic that does not exist", key,
                    offsets_asked("never-created", -1))
    for label, name in WRONG_NAMES.items():
        server.ask(f"offsets: a name with {label}", key, offsets_asked(name, -1))
    for partition in (2, -1):
        server.ask(f"offsets of partition {partition}", key,
                   offsets_asked("log", -1, part_partition_index=partition))
    server.ask("offsets of a partition twice", key, offsets_asked("log", -1, -2))
    for level in (1, 2):
        server.ask(f"offsets at isolation level {level}", key,
                   offsets_asked("log", -1, isolation_level=level))
    for epoch in (1_000_000, -2):
        server.ask(f"offsets at leader epoch {epoch}", key,
                   offsets_asked("log", -1, part_current_leader_epoch=epoch))
    for replica in (-2, 0, 1, 5):
        server.ask(f"offsets as replica {replica}", key,
                   offsets_asked("log", -1, replica_id=replica))
    server.ask("offsets of no topic", key, ListOffsetsRequest(replica_id=-1))


def epochs(server: Server) -> None:
    """Ask for the ends of leader epochs."""
    key, request = ApiKey.OFFSET_FOR_LEADER_EPOCH, OffsetForLeaderEpochRequest

    def asked(name: str, epoch: int, partition: int = 0, current: int = -1) -> Any:
        return request(replica_id=-1, topics=[request.OffsetForLeaderTopic(
            topic=name, partitions=[request.OffsetForLeaderPartition(
                partition=partition, leader_epoch=epoch, current_leader_epoch=current)])])

    server.ask_each("end of a later leader epoch", key, asked("log", 1_000_000))
    server.ask("end of leader epoch -1", key, asked("log", -1))
    server.ask("end of a leader epoch, later present one", key,
               asked("log", 0, current=1_000_000))
    server.ask("end of a leader epoch of a topic that does not exist", key,
               asked("never-created", 0))
    server.ask("end of a leader epoch of a partition that does not exist", key,
               asked("log", 0, partition=9))


def delete_records(server: Server) -> None:
    """Delete records, with right and wrong offsets."""
    key, request = ApiKey.DELETE_RECORDS, DeleteRecordsRequest

    def asked(name: str, *offsets: int, partition: int = 0, timeout_ms: int = 10_000) -> Any:
        return request(timeout_ms=timeout_ms, topics=[request.DeleteRecordsTopic(
            name=name, partitions=[request.DeleteRecordsPartition(
                partition_index=partition, offset=each) for each in offsets])])

    def one(label: str, *offsets: int, name: str = "deleted-records", **fields: Any) -> None:
        server.ask(f"delete records: {label}", key, asked(name, *offsets, **fields))

    server.ask_each("delete records", key, lambda version: asked("deleted-records", 1 + version))
    one("below the start", 1)
    one("at the start", 3)
    one("behind the end", 1000)
    one("offset -2", -2)
    one("nothing within no time", 3, timeout_ms=0)
    one("a partition twice", 4, 5)
    one("another partition", 0, partition=1)
    one("a partition that does not exist", 1, partition=7)
    one("a topic that does not exist", 1, name="never-created")
    one("a compacted topic", 1, name="compacted")
    one("a wrong name", 1, name="bad name")
    one("all", -1)
    one("all, again", -1)
    server.ask("delete records: of no topic", key, request(timeout_ms=1000))
    server.ask("fetch: records that were deleted", ApiKey.FETCH,
               reading(server, LATEST[ApiKey.FETCH], "deleted-records", 0))
    server.ask("fetch: behind a deletion of all", ApiKey.FETCH,
               reading(server, LATEST[ApiKey.FETCH], "deleted-records", 10))


def log_dirs(server: Server) -> None:
    """Ask for directories and sizes of partitions."""
    key, request = ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest

    def asked(name: str, *partitions: int) -> Any:
        return request(topics=[request.DescribableLogDirTopic(
            topic=name, partitions=list(partitions))])

    server.ask_each("directories", key, asked("log", 0, 1))
    server.ask("directories of a topic that does not exist", key, asked("never-created", 0))
    server.ask("directories of a partition that does not exist", key, asked("log", 9))
    server.ask("directories of no topic", key, request(topics=[]))
