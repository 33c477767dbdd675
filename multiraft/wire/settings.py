"""Requests and responses about the settings of topics, and the defaults of the cluster.

Contract.  As ``messages.py``, whose tables include ``REQUESTS`` and ``RESPONSES``.  Values are text
in both directions; ``multiraft.settings`` knows their types.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from multiraft.wire import schema
from multiraft.wire.description import TEXT_MAX
from multiraft.wire.schema import Malformed, Shape, list_of, nullable, row

#: Settings of a topic, or of the cluster: more than there are names.  Changes in one request, too.
SETTINGS_PER_TOPIC_MAX = 64
#: Characters of a setting's name; the longest that exists has 41.
SETTING_NAME_MAX = 100
#: Characters of a value; the longest are lists of replicas.
SETTING_VALUE_MAX = 1_024
#: Characters of the words that describe a setting.
WORDS_MAX = 60
#: Values that one setting has in topic, cluster and default.
SYNONYMS_MAX = 3


class SettingChange(NamedTuple):
    """The new value of a setting; None = the topic, or the cluster, no longer sets it."""

    name: str
    value: str | None


class AlterSettings(NamedTuple):
    """Request to change settings of a topic, all of them or none; "" = defaults of the cluster.
    ``incarnation``: of the topic, 0 = the present topic of that name.  ``dry_run``: only check."""

    topic: str
    changes: tuple[SettingChange, ...]
    incarnation: int = 0
    dry_run: bool = False


class DescribeSettings(NamedTuple):
    """Request for all settings of a topic; "" = defaults of the cluster."""

    topic: str = ""


class AlterSettingsReply(NamedTuple):
    pass


class SettingValue(NamedTuple):
    """A value and the place where it was set: ``topic``, ``cluster``, ``node`` or
    ``default``."""

    value: str
    source: str


class SettingRow(NamedTuple):
    """One setting: the value that holds, its source, the setting's effect in the answering node's
    release, its type, and all its values, the one that holds first."""

    name: str
    value: str
    source: str
    effect: str
    type: str
    values: tuple[SettingValue, ...]


class DescribeSettingsReply(NamedTuple):
    """``incarnation`` 0 = the defaults of the cluster."""

    incarnation: int
    settings: tuple[SettingRow, ...]


_u64 = schema.integer(0, schema.U64_MAX)
_name = schema.text(SETTING_NAME_MAX)
_value = schema.text(SETTING_VALUE_MAX)
_words = schema.text(WORDS_MAX)
#: Longer than a valid name, because the handler of the request answers UNKNOWN_TOPIC.
_topic = schema.text(TEXT_MAX)
_changes = list_of(row(SettingChange, _name, nullable(_value)), SETTINGS_PER_TOPIC_MAX)


def changes(value: Any) -> tuple[SettingChange, ...]:
    """Return a list of changes, each of another setting.  Raises ``Malformed``."""
    found: tuple[SettingChange, ...] = _changes(value)
    _check_names(change.name for change in found)
    return found


_pairs = list_of(row(SettingValue, _name, _value), SETTINGS_PER_TOPIC_MAX)


def pairs(value: Any) -> tuple[tuple[str, str], ...]:
    """Return a list of (name, value), each of another setting.  Raises ``Malformed``."""
    found = tuple((name, text) for name, text in _pairs(value))
    _check_names(name for name, _ in found)
    return found


def _check_names(names: Iterable[str]) -> None:
    seen = set()
    for name in names:
        if name in seen:
            raise Malformed(f"setting {name!r:.60} is named twice")
        seen.add(name)


#: op -> fields of its request.
REQUESTS: dict[str, Shape] = {
    "alter_settings": Shape(AlterSettings, {
        "topic": _topic, "changes": changes, "incarnation": _u64, "dry_run": schema.boolean}),
    "describe_settings": Shape(DescribeSettings, {"topic": _topic}),
}

#: op -> fields of its response.
RESPONSES: dict[str, Shape] = {
    "alter_settings": Shape(AlterSettingsReply, {}),
    "describe_settings": Shape(DescribeSettingsReply, {
        "incarnation": _u64,
        "settings": list_of(row(
            SettingRow, _name, _value, _words, _words, _words,
            list_of(row(SettingValue, _value, _words), SYNONYMS_MAX)), SETTINGS_PER_TOPIC_MAX)}),
}

Request = AlterSettings | DescribeSettings
Reply = AlterSettingsReply | DescribeSettingsReply
