"""Values that hold for a topic: its own, else the default of the cluster, or for a topic that nodes
make the one of the node's configuration, else the built-in one.

Contract.  ``resolve`` answers for one setting, ``values_of`` for all of them.  An internal topic
has no share in the cluster's defaults of ``max.message.bytes`` and of retention: nodes write into
it and read it, and limits that were meant for applications must not hinder them.

The numbers of ``Source`` are those of Kafka's ``ConfigSource``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

from multiraft.settings.registry import BATCH_BYTES, SETTINGS, Setting, default_of
from multiraft.settings.values import InvalidValue

#: Names of topics that nodes make for themselves begin so.
INTERNAL_PREFIX = "__"
#: Settings of which an internal topic has no share in the cluster's defaults.
_OWN_OF_INTERNAL = frozenset((BATCH_BYTES, "cleanup.policy", "retention.bytes", "retention.ms",
                              "retention.records"))


class Source(enum.IntEnum):
    """Place where a value was set, with the number of Kafka's ``ConfigSource``."""

    TOPIC = 1
    CLUSTER = 3
    NODE = 4
    DEFAULT = 5

    @property
    def word(self) -> str:
        """The source in the words of the protocol and the command line."""
        return self.name.lower()


class Synonym(NamedTuple):
    """A value that a setting has, or would have without the values before it."""

    value: str
    source: Source


class Defaults(NamedTuple):
    """Values of topics without settings of their own: the cluster's settings, its replication
    factor, and for topics that nodes make the settings in the node's configuration, by topic."""

    settings: Mapping[str, str]
    replication_factor: int
    of_node: Mapping[str, Mapping[str, str]] = {}


def is_internal(topic: str) -> bool:
    """Return True for the name of a topic that nodes make for themselves."""
    return topic.startswith(INTERNAL_PREFIX)


def resolve(setting: Setting, own: Mapping[str, str], defaults: Defaults,
            topic: str) -> tuple[Synonym, ...]:
    """Return the values of a setting, the one that holds first; the built-in default is the last.

    ``own``: the settings of the topic with the name ``topic``; "" = the cluster's defaults are
    asked for.  O(1)."""
    found = []
    if setting.name in own:
        found.append(Synonym(own[setting.name], Source.TOPIC))
    shared = not (setting.name in _OWN_OF_INTERNAL and is_internal(topic))
    if shared and setting.name in defaults.settings:
        found.append(Synonym(defaults.settings[setting.name], Source.CLUSTER))
    of_node = defaults.of_node.get(topic, {})
    if setting.name in of_node:
        found.append(Synonym(of_node[setting.name], Source.NODE))
    found.append(Synonym(default_of(setting, defaults.replication_factor), Source.DEFAULT))
    return tuple(found)


def values_of(own: Mapping[str, str], defaults: Defaults, topic: str) -> dict[str, str]:
    """Return name -> value that holds, of all settings.  A value that this release cannot read, set
    by a later one, counts as not set.  O(settings)."""
    return {name: next(value for value, _ in resolve(setting, own, defaults, topic)
                       if _is_readable(setting, value))
            for name, setting in SETTINGS.items()}


def _is_readable(setting: Setting, value: str) -> bool:
    try:
        setting.type.read(value)
    except InvalidValue:
        return False
    return True
