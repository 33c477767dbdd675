"""Bugs to plant in the port for Kafka's clients.

Runs of processes catch them, with clients of Kafka alone: native ones would see other answers.  A
failed append with acks=0 breaks no promise that a checker knows, so a test shows that bug.  When
librdkafka repeats a batch whose answer was lost depends on the machine: a test sends one again, in
front of the checkers.
"""

from __future__ import annotations

from chaos.planted.bug import Bug, ProcessRun, Tests

APPENDS, READS, TOPICS = "kafka-appends", "kafka-reads", "kafka-topics"
#: Seed of a rotation whose first turns have all of the nemeses of a proof.
SEED = 2


def _run(seconds: int, nemeses: tuple[str, ...], *anomalies: str,
         workloads: tuple[str, ...] = (APPENDS, READS)) -> ProcessRun:
    return ProcessRun(seconds, nemeses, SEED, workloads, anomalies)


BUGS = (
    Bug("kafka-acks-all-before-commit", "node.kafka.produce", "ProduceRequests._appended",
        "ACKS[message.acks]",
        "ACKS[abs(message.acks)]",
        "acks=all is acknowledged when the leader alone has the records",
        _run(30, ("alone",), "lost-write", "acks-contract", "inconsistent-offsets",
             "reassigned-offset")),
    Bug("kafka-base-offset-of-another-partition", "node.kafka.produce",
        "_ProduceAnswer._acknowledge",
        "response.base_offset = result.base_offset",
        "response.base_offset = getattr(_ProduceAnswer, 'before', 0)\n"
        "    _ProduceAnswer.before = result.base_offset",
        "an append is acknowledged with the offset of the one that the node answered before",
        _run(10, ("kill",), "reassigned-offset", "inconsistent-offsets")),
    Bug("kafka-base-offset-of-the-last-record", "node.kafka.produce", "_ProduceAnswer._acknowledge",
        "response.base_offset = result.base_offset",
        "response.base_offset = result.base_offset + int.from_bytes(\n"
        "        bytes(appending.batches[at][1][23:27]), 'big')",
        "records of a batch are acknowledged at offsets that are too high by its number of records",
        _run(10, ("kill",), "reassigned-offset", "inconsistent-offsets")),
    Bug("kafka-sequence-not-passed-on", "node.kafka.produce", "_Appending.add",
        "self.batches.append((incarnation, part.records))",
        "from multiraft import core\n"
        "    plain = bytearray(part.records)\n"
        "    plain[43:57] = b'\\xff' * 14\n"
        "    plain[17:21] = core.crc32c(memoryview(plain)[21:]).to_bytes(4, 'big')\n"
        "    self.batches.append((incarnation, memoryview(plain)))",
        "what an idempotent producer repeats is appended again",
        Tests(("tests/chaos/runs/test_kafka_repeats.py::"
               "test_a_batch_that_is_sent_again_keeps_its_offset",))),
    Bug("kafka-failed-append-without-acks-is-silent", "node.kafka.answers", "NoAnswer._close",
        "if not self.session.closed:",
        "if False:",
        "a producer with acks=0 does not learn that another node leads, and all its records are "
        "dropped",
        Tests(("tests/node/kafka/test_kafka_port.py::"
               "test_a_failed_append_without_acks_closes_the_connection",))),
    Bug("records-above-the-committed-end", "node.clients.fetch", "FetchHandler._read_range",
        "span.high_watermark)",
        "span.next_offset)",
        "a fetch returns records that are not committed, behind those that are",
        _run(30, ("alone",), "early-commit")),
    Bug("kafka-log-start-is-out-of-range", "node.kafka.fetch", "_Fetching.add",
        "elif part.fetch_offset < 0:",
        "elif part.fetch_offset <= self._topics.log_start(incarnation):",
        "a fetch from the log start is refused as out of range",
        _run(10, ("kill",), "read-then-lost")),
    Bug("kafka-fetch-mixes-partitions", "node.kafka.fetch", "_Fetching.add",
        "self._results.append(result)",
        "self._results.insert(0, result)",
        "the partitions of one fetch get each other's records",
        _run(10, ("kill",), "cross-group-leak", "read-then-lost", "inconsistent-offsets")),
    Bug("kafka-time-finds-the-batch", "node.kafka.record_search", "RecordSearch._in_batch",
        "return found if",
        "return Found(header.base_offset, found.time_ms) if",
        "the offset of a time is that of the first record of its batch",
        _run(10, ("kill",), "offset-for-time")),
    Bug("kafka-end-without-a-majority", "node.kafka.list_offsets", "OffsetRequests._asked",
        "tuple([offset_query for _, offset_query in asked])))",
        "tuple([offset_query for _, offset_query in asked]), False))",
        "a leader that no majority confirms names the end of a partition to Kafka's clients",
        _run(30, ("alone",), "stale-read")),
    Bug("kafka-earlier-batches-unchecked", "node.earlier_epochs.earlier_reads",
        "EarlierReads._read",
        "_check_batches(payload, part.offset, end)",
        "pass",
        "batches of another node are passed on although they are damaged, or others",
        Tests(("tests/node/earlier_epochs/test_earlier_reads.py::"
               "test_damaged_and_foreign_batches_are_not_passed_on",))),
    Bug("kafka-earlier-epoch-without-an-answer-is-empty", "node.earlier_epochs.earlier_reads",
        "EarlierReads.read",
        "return Records(FetchResult(part.incarnation, refused.code,",
        "return Records(FetchResult(part.incarnation, Code.OFFSET_OUT_OF_RANGE,",
        "a consumer skips an earlier epoch because the nodes with its records are down",
        Tests(("tests/node/earlier_epochs/test_earlier_reads.py::"
               "test_records_that_no_node_has_now_are_refused_for_a_while",))),
    Bug("kafka-metadata-name-the-first-replica", "node.kafka.describe_topics",
        "TopicDescriptions._members",
        "status.living_leader(group, configuration)",
        "replicas[0]",
        "metadata name a node as the leader that does not lead",
        _run(10, ("kill",), "kafka-port-stuck", workloads=(APPENDS,))),
    Bug("kafka-missing-keys-of-another-partition", "node.kafka.produce",
        "_ProduceAnswer._name_keyless",
        "self._appending.results[at].record_errors",
        "self._appending.results[0].record_errors",
        "a producer is told of records without a key in a batch that was appended",
        Tests(("tests/node/kafka/test_kafka_keys.py::"
               "test_the_errors_of_records_are_those_of_their_partition_and_bounded",))),
)
