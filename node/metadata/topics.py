"""Topics and their partitions in the metadata, and the rule for names of topics."""

from __future__ import annotations

import re
from typing import NamedTuple

from multiraft.codec.layout import BATCH_BYTES_MAX
from multiraft.wire.messages import TOPIC_NAME_MAX
from node.metadata.placement_table import EpochHistory, Switch

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,%d}" % TOPIC_NAME_MAX)


class Topic(NamedTuple):
    """One incarnation of a topic.  Partition ``p`` has the incarnation ``incarnation + p``."""

    name: str
    id: bytes
    incarnation: int
    partitions: int
    pool_size: int


class Location(NamedTuple):
    """A partition, the group that takes its appends now, and its epoch history.  ``switch``: the
    pending switch to another group, None = none.  ``batch_bytes_max``: the largest batch that the
    settings of the topic accept.  ``has_append_time``: by them, the leader stamps the time at which
    it appends a batch.  ``is_compacted``: by them, records leave by their keys, so each has one."""

    topic: Topic
    partition: int
    group: int
    epoch: int
    start_offset: int
    epoch_history: EpochHistory
    switch: Switch | None
    batch_bytes_max: int = BATCH_BYTES_MAX
    has_append_time: bool = False
    is_compacted: bool = False


def topic_name_fault(name: str) -> str:
    """Return the reason why ``name`` is not a valid topic name; empty when it is."""
    if name in (".", ".."):
        return f"a topic cannot be named {name!r}"
    if _TOPIC_NAME.fullmatch(name) is None:
        return f"topic name {name!r:.80} is not [A-Za-z0-9._-]{{1,{TOPIC_NAME_MAX}}}"
    return ""
