"""Command that changes settings of a topic or defaults of the cluster.

Contract.  As ``commands.py``, whose tables include ``COMMANDS``.  Names and values are text: the
proposer has checked them against the registry of its release (``multiraft.settings``).
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft.wire import schema
from multiraft.wire import settings as wire
from multiraft.wire.description import TEXT_MAX
from multiraft.wire.schema import Shape, nullable
from multiraft.wire.settings import SettingChange

#: Bytes of a topic's id.
TOPIC_ID_BYTES = 16
#: Id in a command that changes defaults of the cluster.
NO_TOPIC_ID = bytes(TOPIC_ID_BYTES)


class AlterSettings(NamedTuple):
    """Change settings of the topic with this name and id, all of them or none; "" = defaults of the
    cluster.

    ``expected``: index of the last change of these settings, 0 = there are none; the command is
    refused if it is another one by now.  None = whatever the settings are."""

    topic: str
    topic_id: bytes
    changes: tuple[SettingChange, ...]
    expected: int | None = None


COMMANDS: dict[str, Shape] = {
    "alter_settings": Shape(AlterSettings, {
        "topic": schema.text(TEXT_MAX), "topic_id": schema.fixed_bytes(TOPIC_ID_BYTES),
        "changes": wire.changes, "expected": nullable(schema.integer(0, schema.U64_MAX))},
        sparse=("expected",)),
}
