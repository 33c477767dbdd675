"""APIs of Kafka that are supported, and their versions.

Contract.  ``APIS`` has each API with the versions that requests are decoded in and the first
version that is advertised.  ``DATA_APIS`` and ``GROUP_APIS`` are tables that a listener passes to
``decode_request`` and to ``api_versions_response``: what it answers and what it advertises.

Which versions.  The last version is what clients of 2026 use and what has a meaning here; the first
one is Kafka 4's.  Three differ, because of clients:

- Produce is advertised from 0 and served from 3, as by Kafka (KAFKA-18659): librdkafka 2.0 sends
  uncompressed batches if version 0 is missing.
- Fetch ends at 17: 18 has a field for brokers.  InitProducerId ends at 4: 5 and 6 are for
  transactions.
- OffsetCommit and OffsetFetch end at 9: 10 has topic ids, which come with KIP-848.

APIs of transactions, quotas, telemetry, share groups and streams groups are absent.  Clients cope
with that: they refuse the feature themselves.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

from multiraft.kafka.messages.table import REQUESTS
from multiraft.kafka.schema import Versions


class ApiKey(enum.IntEnum):
    """Key of an API, as in the header of its requests."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_ACLS = 29
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    DESCRIBE_TOPIC_PARTITIONS = 75


class Api(NamedTuple):
    """Versions of one API."""

    served: Versions
    advertised_min: int

    @property
    def advertised(self) -> Versions:
        """Versions that the answer to ApiVersions states."""
        return self.advertised_min, self.served[1]


#: Key -> versions, as a listener serves and advertises them.
ApiTable = Mapping[int, Api]

_LAST_VERSIONS = {
    ApiKey.PRODUCE: 13, ApiKey.FETCH: 17, ApiKey.LIST_OFFSETS: 10, ApiKey.METADATA: 13,
    ApiKey.OFFSET_COMMIT: 9, ApiKey.OFFSET_FETCH: 9, ApiKey.FIND_COORDINATOR: 6,
    ApiKey.JOIN_GROUP: 9, ApiKey.HEARTBEAT: 4, ApiKey.LEAVE_GROUP: 5, ApiKey.SYNC_GROUP: 5,
    ApiKey.DESCRIBE_GROUPS: 6, ApiKey.LIST_GROUPS: 5, ApiKey.API_VERSIONS: 5,
    ApiKey.CREATE_TOPICS: 7, ApiKey.DELETE_TOPICS: 6, ApiKey.DELETE_RECORDS: 2,
    ApiKey.INIT_PRODUCER_ID: 4, ApiKey.OFFSET_FOR_LEADER_EPOCH: 4, ApiKey.DESCRIBE_ACLS: 3,
    ApiKey.DESCRIBE_CONFIGS: 4, ApiKey.ALTER_CONFIGS: 2, ApiKey.DESCRIBE_LOG_DIRS: 4,
    ApiKey.CREATE_PARTITIONS: 3, ApiKey.DELETE_GROUPS: 2, ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.OFFSET_DELETE: 0, ApiKey.DESCRIBE_CLUSTER: 2, ApiKey.DESCRIBE_TOPIC_PARTITIONS: 0,
}
_ADVERTISED_MIN = {ApiKey.PRODUCE: 0}


def _api(key: ApiKey, last: int) -> Api:
    first = REQUESTS[key].versions[0]
    assert first <= last <= REQUESTS[key].versions[1], f"{key.name}: {first} to {last}"
    return Api((first, last), _ADVERTISED_MIN.get(key, first))


#: All APIs with their versions, in the order of keys.
APIS: dict[int, Api] = {key: _api(key, last) for key, last in sorted(_LAST_VERSIONS.items())}

#: Keys of the APIs of consumer groups.  FindCoordinator is not among them: it is also where
#: transactions are refused.
_GROUP_KEYS = (
    ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP, ApiKey.SYNC_GROUP, ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS,
    ApiKey.DELETE_GROUPS, ApiKey.OFFSET_DELETE)
GROUP_APIS: dict[int, Api] = {key: APIS[key] for key in _GROUP_KEYS}
#: APIs of records, topics and the cluster.
DATA_APIS: dict[int, Api] = {key: api for key, api in APIS.items() if key not in GROUP_APIS}
