"""Differences from Kafka 4.4 that are expected, with the row of ``docs/kafka.md`` that says why.

Contract.  Patterns are those of ``fnmatch``; a bracket in a path is written as ``?``.  The first
row that fits expects a difference.  A row that fits none is an error of the list.
"""

from __future__ import annotations

from tests.kafka_compare.comparison import Known

#: First field of the rows of the page.
SETTINGS = "Settings of topics and nodes"
TIMES = "Limits of the times of records"
LARGE = "Batches above 1 MiB"
MANY = "More partitions than a topic may have"
POINTS = "Topics whose names differ by a point and an underscore"
REPLICAS = "Replicas that a creation chooses"
CHECKED = "A creation that is only checked"
CONTENT = "What is in compressed records"
WRONG_BATCHES = "Numbers of errors of wrong batches"
ATTRIBUTES = "Attributes of batches that are not the producer's"
BEHIND = "Bytes behind a batch"
TWICE = "A partition, or a topic to delete, that a request names twice"
BESIDE_ERRORS = "Log start beside an error, time of a repeated batch"
IDENTITIES = "Identities and sequences of producers"
NO_TIME = "No time to wait"
SESSIONS = "Fetch sessions"
WHOLE = "The last batch of a fetch"
OUTSIDE = "Values that no client sends"
LAST_EPOCH = "Epoch of the last record in a fetch"
FOLLOWERS = "Fetches as a replica"
EMPTY = "Leader epoch at the begin of an empty partition"
LARGEST = "The largest time (-3) after a deletion"
COMPACTED = "Deletion of records of a compacted topic"
UNKNOWN_SETTINGS = "Taking back a setting that does not exist"
NO_POLICY = "No cleanup policy"
OPERATIONS = "Permitted operations"
APIS = "APIs, versions and features"
SOFTWARE = "Names of clients"
COORDINATORS = "Coordinators"


def _rows(reason: str, *patterns: tuple[str, str]) -> tuple[Known, ...]:
    return tuple(Known(label, path, reason) for label, path in patterns)


KNOWN: tuple[Known, ...] = (
    *_rows(CHECKED, ("create, only checked", "*.topic_id"), ("create, only checked", "*.configs*")),
    *_rows(TIMES, ("create: a limit of times *", "*.error_code"),
           ("produce: the largest time", "*.error_code")),
    *_rows(REPLICAS, ("create: replicas", "*.error_code"),
           ("create: replicas and a number of partitions", "*.error_code"),
           ("add partitions: replicas", "*.error_code"),
           ("add partitions: replicas on a node that does not exist", "*.error_code"),
           ("add partitions: replicas of too few partitions", "*.error_code"),
           ("add partitions: no replicas", "*.error_code"),
           ("add partitions: replicas, only checked", "*.error_code"),
           # The one that Kafka made with the replicas of a request.
           ("metadata after partitions were added", "topics?created-4?.partitions?3?")),
    *_rows(MANY, ("create: 2147483647 partitions", "*.error_code")),
    *_rows(POINTS, ("create: a name that differs by a point", "*.error_code")),
    *_rows(NO_POLICY, ("change: remove the last of a list", "*.error_code"),
           ("settings after the changes", "*.configs?cleanup.policy?.value")),
    *_rows(SETTINGS, ("create*", "*.configs?*"), ("describe*setting*", "*.configs?*"),
           ("settings after *", "*.configs?*")),
    *_rows(OPERATIONS, ("*permitted operations", "cluster_authorized_operations")),
    *_rows(ATTRIBUTES, ("produce the time of the broker *", "*.error_code"),
           ("produce: unknown attributes", "*.error_code")),
    *_rows(OUTSIDE, ("metadata without name and id", "error_code"),
           ("metadata with a negative count", ""), ("produce: no records", ""),
           ("fetch: -1 bytes*", "*.error_code"), ("fetch: leader epoch -2", "*.error_code"),
           ("fetch: isolation level *", "error_code"), ("offsets at isolation level 2", "*"),
           ("change: an unknown operation", "*.error_code")),
    *_rows(BEHIND, ("produce: a batch and *", "*.error_code")),
    *_rows(WRONG_BATCHES, ("produce: format *", "*.error_code"),
           ("produce: a count *", "*.error_code"),
           ("produce: a record that ends early", "*.error_code"),
           ("produce: bytes behind the records", "*.error_code"),
           ("produce: compression *", "*.error_code")),
    *_rows(CONTENT, ("produce: * that cannot be decompressed", "*.error_code"),
           ("keys: * that cannot be decompressed", "*.error_code")),
    *_rows(LARGE, ("produce: a batch above the limit of Kafka", "*.error_code")),
    *_rows(NO_TIME, ("add partitions within * ms", "*.error_code"),
           ("produce: a negative time to wait", "*.error_code"),
           ("delete within *", "*.error_code")),
    *_rows(TWICE, ("produce: a partition twice", "*"), ("fetch: a partition twice", "*"),
           ("offsets of a partition twice", "*"), ("delete records: a partition twice", "*"),
           ("delete twice in a request", "*"), ("delete: the same topic by name and by id", "*")),
    *_rows(BESIDE_ERRORS, ("produce*", "*.log_start_offset"), ("keys*", "*.log_start_offset"),
           ("idempotent*", "*.log_start_offset"), ("idempotent*", "*.log_append_time_ms")),
    *_rows(IDENTITIES, ("identity*", "*"), ("idempotent*", "*.error_code"),
           ("fetch: topic identities", "*"), ("offsets of identities at *", "*")),
    *_rows(SESSIONS, ("fetch: a session that does not exist", "error_code"),
           ("fetch: session epoch 5 without a session", "error_code"),
           ("fetch: a new session", "session_id")),
    *_rows(WHOLE, ("fetch: 150 bytes of the partition", "*.records")),
    *_rows(LAST_EPOCH, ("fetch: epoch of the last record unknown", "*.error_code")),
    *_rows(FOLLOWERS, ("fetch: as replica *", "*.error_code")),
    *_rows(EMPTY, ("offsets at -[24] of an empty partition", "*.leader_epoch")),
    *_rows(LARGEST, ("offsets at -3 after a deletion", "*")),
    *_rows(COMPACTED, ("delete records: a compacted topic", "*.error_code"),
           ("offsets of compacted at *", "*")),
    *_rows(UNKNOWN_SETTINGS, ("change: delete an unknown setting", "*.error_code")),
    *_rows(SOFTWARE, ("versions for a client *", "error_code")),
    *_rows(APIS, ("versions", "*"), ("versions: this node", "*")),
    *_rows(COORDINATORS, ("coordinator of a *", "*")),
)
