"""Sizes of answers before they are made.

Contract. ``expected_bytes`` returns what the answer to a request may take at most, as far as that
is more than the request itself: a session takes no further requests when the answers that are made
and those that may follow exceed its limit. A fetch takes what it may read, and one more batch of
the largest size, as in ``fetch_bytes_max``.
"""

from __future__ import annotations

from multiraft.codec.layout import BATCH_BYTES_MAX
from multiraft.kafka.apis import ApiKey
from multiraft.kafka.connection import KafkaRequest

#: Answers about all topics, which have no limit in bytes: 50,000 partitions with three replicas
#: take 2.5 MB, and as much again for the names of their topics.
ALL_TOPICS_BYTES = 5 << 20
_OF_ALL_TOPICS = (ApiKey.METADATA, ApiKey.DESCRIBE_LOG_DIRS, ApiKey.DESCRIBE_CONFIGS)


def expected_bytes(fetch_bytes_max: int, request: KafkaRequest) -> int:
    """Return the bytes that the answer to a request may have; 0 = about as many as the request.
    O(1)."""
    key = request.header.request_api_key
    if key == ApiKey.FETCH:
        return min(max(0, request.message.max_bytes), fetch_bytes_max) + BATCH_BYTES_MAX
    return ALL_TOPICS_BYTES if key in _OF_ALL_TOPICS else 0
