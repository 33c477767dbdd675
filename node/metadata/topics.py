"""Topics and their partitions as the metadata know them, and what a topic may be named."""

from __future__ import annotations

import re
from typing import NamedTuple

from multiraft.wire.messages import TOPIC_NAME_MAX
from node.metadata.placement_table import Chain, Switch

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,%d}" % TOPIC_NAME_MAX)


class Topic(NamedTuple):
    """One life of a topic.  Partition ``p`` has the incarnation ``incarnation + p``."""

    name: str
    id: bytes
    incarnation: int
    partitions: int
    pool_size: int


class Location(NamedTuple):
    """A partition, the group that takes its appends now, and those that did before.  ``switch``:
    where it is about to go on, None = nowhere else."""

    topic: Topic
    partition: int
    group: int
    epoch: int
    start_offset: int
    chain: Chain
    switch: Switch | None


def topic_name_fault(name: str) -> str:
    """Why ``name`` cannot be a topic's, empty when it can."""
    if name in (".", ".."):
        return f"a topic cannot be named {name!r}"
    if _TOPIC_NAME.fullmatch(name) is None:
        return f"topic name {name!r:.80} is not [A-Za-z0-9._-]{{1,{TOPIC_NAME_MAX}}}"
    return ""
