"""Operations on the settings of topics, and on the defaults of the cluster.

Contract.  As ``_operations.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from multiraft.client._client import ClientCore
from multiraft.client._operations import catch_up, topic_metadata
from multiraft.client._retries import ask
from multiraft.client._steps import Operation
from multiraft.client.texts import setting_text
from multiraft.wire.errors import UnknownTopic
from multiraft.wire.settings import AlterSettings, DescribeSettings, SettingChange, SettingRow


def alter_settings(core: ClientCore, topic: str, settings: Mapping[str, str | int | float],
                   delete: Sequence[str] = (), dry_run: bool = False) -> Operation[None]:
    """Change settings of a topic, all of them or none; ``topic`` "" = defaults of the cluster.

    ``settings``: name -> new value; ``delete``: names that the topic no longer sets, so that the
    default of the cluster holds; ``dry_run``: only check.  A repetition by this call, after a lost
    answer, sets the same values again.  Raises ``InvalidSetting`` with the reason,
    ``UnknownTopic``, ``LimitExceeded`` with limit and value, and ``AmbiguousOutcome`` when no
    answer came in 10 s."""
    changes = (*(SettingChange(name, setting_text(value)) for name, value in settings.items()),
               *(SettingChange(name, None) for name in delete))
    incarnation = 0
    if topic:
        # The incarnation is named, so that no repetition changes the next topic of that name.
        yield from catch_up(core)
        incarnation = (yield from topic_metadata(core, topic)).incarnation
    yield from ask(core, AlterSettings(topic, changes, incarnation, dry_run))


def describe_settings(core: ClientCore, topic: str = "") -> Operation[list[SettingRow]]:
    """Return all settings of a topic, by name; "" = defaults of the cluster.  Each has its value,
    the source of the value and its effect.  Sources: ``topic``, ``cluster``, ``node`` (the
    configuration of the node that answers, of topics that nodes make), ``default``.  Raises
    ``UnknownTopic``."""
    yield from catch_up(core)
    try:
        reply = yield from ask(core, DescribeSettings(topic))
    except UnknownTopic as error:
        error.about(topic)
        raise
    return list(reply.settings)
