"""Responses as paths and values, so that those of two servers can be compared.

Contract.  ``outcome_of`` returns a dict from paths such as ``topics[t].partitions[0].error_code``
to values.  Elements of arrays are named by what they describe, so that their order does not count.
What differs between any two servers has a word in place of its value: ids of topics and producers,
addresses, names of clusters, leader epochs, times and sizes.  Texts of errors are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from multiraft.kafka.messages.table import RESPONSES
from multiraft.kafka.schema import ZERO_UUID, Field, Kind, Struct, within
from tests.kafka_compare.records import describe

Outcome = dict[str, Any]

#: Fields that name an element of an array, the first one that it has.
_NAMES = ("name", "topic", "topic_name", "resource_name", "partition_index", "index", "partition",
          "node_id", "broker_id", "api_key", "log_dir")
#: Never compared: what a broker asks a client to wait, and texts.
_LEFT_OUT = ("throttle_time_ms", "error_message", "batch_index_error_message", "documentation")
#: Any value that is not negative is the same.
_POSITIVE = ("leader_epoch", "producer_id", "session_id", "log_append_time_ms", "port",
             "partition_size", "total_bytes", "usable_bytes")
#: Null and an empty array mean the same.
_NULL_OR_EMPTY = ("aborted_transactions",)
#: Any text is the same.
_TEXT = ("host", "cluster_id", "log_dir")


def outcome_of(key: int, version: int, response: Any, topics: Mapping[bytes, str]) -> Outcome:
    """Return the fields that a response has in a version.  ``topics``: names of topics by id."""
    return dict(_struct(RESPONSES[key].struct, version, response, "", topics))


def _struct(struct: Struct, version: int, value: Any, path: str, topics: Mapping[bytes, str]
            ) -> Iterator[tuple[str, Any]]:
    for each in struct.fields:
        known = within(version, each.versions) or within(version, each.tagged)
        if known and each.name not in _LEFT_OUT:
            yield from _field(each, version, getattr(value, each.name),
                              f"{path}.{each.name}" if path else each.name, topics)


def _field(found: Field, version: int, value: Any, path: str, topics: Mapping[bytes, str]
           ) -> Iterator[tuple[str, Any]]:
    if found.name in _NULL_OR_EMPTY and value is None:
        value = []
    if found.kind is Kind.RECORD_BUFFERS:
        data = value if isinstance(value, bytes) else b"".join(map(bytes, value or ()))
        yield path, describe(data)
    elif found.array and value is not None and found.struct is not None:
        yield f"{path}.count", len(value)
        for name, element in _named(value, topics):
            yield from _struct(found.struct, version, element, f"{path}[{name}]", topics)
    elif found.struct is not None and value is not None:
        yield from _struct(found.struct, version, value, path, topics)
    else:
        yield path, _plain(found, value, topics)


def _named(elements: list[Any], topics: Mapping[bytes, str]) -> Iterator[tuple[Any, Any]]:
    """Yield the elements of an array with different names."""
    seen: dict[str, int] = {}
    for number, element in enumerate(elements):
        name = next((str(getattr(element, each)) for each in _NAMES
                     if getattr(element, each, None) not in (None, "")), "")
        if getattr(element, "log_dir", None):
            name = ""
        topic_id = getattr(element, "topic_id", ZERO_UUID)
        name = name or (_topic(topic_id, topics) if topic_id != ZERO_UUID else str(number))
        seen[name] = seen.get(name, 0) + 1
        yield (name if seen[name] == 1 else f"{name} again {seen[name] - 1}"), element


def _topic(topic_id: bytes, topics: Mapping[bytes, str]) -> str:
    if topic_id == ZERO_UUID:
        return "no id"
    return f"id of {topics[topic_id]}" if topic_id in topics else "another id"


def _plain(found: Field, value: Any, topics: Mapping[bytes, str]) -> Any:
    if found.kind is Kind.UUID:
        return _topic(value, topics)
    if found.name in _TEXT and value:
        return "text"
    if found.name in _POSITIVE and isinstance(value, int) and value >= 0:
        return "0 or more" if found.name != "session_id" or value else 0
    return list(value) if found.array and value is not None else value
