"""The scenario: all requests of the comparison, in the order in which they are sent."""

from __future__ import annotations

from collections.abc import Callable

from multiraft.kafka.apis import ApiKey
from tests.kafka_compare import appends, protocol, reads, topics
from tests.kafka_compare.records import TIME_MS, make_batch
from tests.kafka_compare.server import LATEST, Server


def records_to_delete(server: Server) -> None:
    """Append the records that are deleted later, one a batch, in the reverse order of time."""
    for number in range(10):
        appended = server.send(ApiKey.PRODUCE, appends.appending(
            server, LATEST[ApiKey.PRODUCE], "deleted-records",
            make_batch(b"%d" % number, time_ms=TIME_MS - number)))
        result = appended.responses[0].partition_responses[0]
        assert not result.error_code, result


#: Later parts read what earlier ones have written.
PARTS: tuple[Callable[[Server], None], ...] = (
    appends.prepare, records_to_delete, topics.create_topics, topics.metadata, appends.produce,
    appends.produce_wrong, appends.identities, reads.fetch, reads.epochs, reads.delete_records,
    reads.list_offsets, reads.log_dirs, topics.settings, topics.delete_topics, protocol.versions,
    protocol.coordinators,
)
