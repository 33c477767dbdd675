"""The scenario: all requests of the comparison, in the order in which they are sent."""

from __future__ import annotations

from collections.abc import Callable

from multiraft.kafka.apis import ApiKey
from tests.e2e.world import wait_for
from tests.kafka_compare import appends, protocol, reads, topics
from tests.kafka_compare.records import TIME_MS, make_batch
from tests.kafka_compare.server import LATEST, Server


def records_to_delete(server: Server) -> None:
    """Append the records that are deleted later, one a batch, in the reverse order of time."""
    def is_appended(number: int) -> bool:
        appended = server.send(ApiKey.PRODUCE, appends.appending(
            server, LATEST[ApiKey.PRODUCE], "deleted-records",
            make_batch(b"%d" % number, time_ms=TIME_MS - number)))
        return not appended.responses[0].partition_responses[0].error_code

    for number in range(10):  # Kafka's broker leads a new partition a moment after it says so
        wait_for(lambda number=number: is_appended(number), f"record {number} is appended")


#: Later parts read what earlier ones have written.
PARTS: tuple[Callable[[Server], None], ...] = (
    appends.prepare, records_to_delete, topics.create_topics, topics.create_partitions,
    topics.metadata, appends.produce,
    appends.produce_wrong, appends.identities, reads.fetch, reads.epochs, reads.delete_records,
    reads.list_offsets, reads.log_dirs, topics.settings, topics.replacements,
    topics.delete_topics, protocol.versions,
    protocol.coordinators,
)
