"""Bugs to plant in topics that get more partitions: their incarnations, and who learns of them."""

from __future__ import annotations

from chaos.planted.bug import Bug, Seeds, Tests

#: Faults that show a wrong addition: topics grow, are recreated, and their leaders change.
_GROWTH = ("topic-grow", "topic-grow", "topic-recreate", "switch", "kill", "transfer")
_CLIENT = "tests/client/test_added_partitions.py::"

BUGS = (
    Bug("added-partitions-have-incarnations-of-others", "node.metadata.topics",
        "GrownTopic.incarnation_of",
        "return run.incarnation + number - run.number",
        "return self.incarnation + number",
        "partitions that are added take the incarnations behind those of their topic, which the "
        "next topic has",
        Seeds(faults=_GROWTH)),
    Bug("incarnations-of-added-partitions-are-given-again", "node.metadata.state_machine",
        "MetadataState._add_partitions",
        "self._next_incarnation += count",
        "pass",
        "the next topic gets the incarnations of partitions that were added to another one",
        Seeds(faults=_GROWTH)),
    Bug("repeated-addition-is-refused", "node.metadata.state_machine",
        "MetadataState._add_partitions",
        "if any(addition.request_id == command.request_id for addition in topic.added):",
        "if False:",
        "a request whose answer was lost is refused when it is repeated, though it was carried out",
        Seeds(faults=_GROWTH)),
    Bug("added-partitions-are-lost-by-a-start", "node.metadata.state_machine",
        "MetadataState._fill",
        "topics = restored(snapshot, topics)",
        "pass",
        "a node that starts from a checkpoint takes other incarnations for those of added "
        "partitions",
        Seeds(faults=_GROWTH)),
    Bug("added-partition-is-read-from-its-end", "multiraft.client._consumer",
        "ConsumerState._add_readers",
        "reader = self._reader(part, EARLIEST)",
        "reader = self._reader(part, 'latest')",
        "a consumer misses the records that were appended to a new partition before it knew it",
        Tests((f"{_CLIENT}test_a_consumer_reads_an_added_partition_from_its_first_record",))),
    Bug("node-that-lags-behind-takes-partitions-away", "multiraft.client._metadata",
        "MetadataCache._learn",
        "len(old.partitions) <= len(topic.partitions)",
        "True",
        "a client forgets added partitions when a node that does not know them answers",
        Tests((f"{_CLIENT}test_an_answer_of_a_node_that_lags_behind_takes_no_partition_away",))),
)
