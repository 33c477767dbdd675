"""Settings of topics, and the defaults of the cluster, as the metadata hold them.

Contract.  A part of the metadata state machine: functions of state and command.  Names and values
are text.  The table checks only what no release changes: number, lengths, sum.  The proposer has
compared names and values with its registry (``multiraft.settings``); a replica that did so would
differ from a replica of another release.

Invariants.  A topic without settings has no row.  ``version`` of a row is the index of the command
that changed it last.  ``bytes`` is the sum over all names and values.

Theory.  The limit of a topic's batches and the type of its timestamps are asked for each batch, so
they are read once, when they are set, as is the policy.  A value that this release cannot read was
set by a node of a later one; the default holds here until this node is upgraded.
"""

from __future__ import annotations

from typing import NamedTuple

from multiraft.codec import shapes
from multiraft.codec.layout import BATCH_BYTES_MAX
from multiraft.settings.effective import is_internal
from multiraft.settings.registry import (
    BATCH_BYTES,
    LOG_APPEND_TIME,
    TIMESTAMP_TYPE,
    find,
)
from multiraft.settings.values import InvalidValue
from multiraft.wire.errors import Code
from multiraft.wire.settings import (
    SETTING_NAME_MAX,
    SETTING_VALUE_MAX,
    SETTINGS_PER_TOPIC_MAX,
    SettingChange,
)
from node.metadata.result import Result, over, refused

#: UTF-8 bytes of all names and values of a cluster: every node holds them in memory, and every
#: checkpoint contains them.  A million topics with two settings each have less.
SETTINGS_BYTES_MAX = 64 << 20

#: The setting that says whether records are compacted by key, and its word for it.
_POLICY, _COMPACT = "cleanup.policy", "compact"

#: Number of the row of the cluster's defaults; no topic has this incarnation.
CLUSTER = 0

_PAIRS = [(shapes.TEXT, shapes.TEXT)]
_SHAPE = {"settings": [(shapes.UINT, shapes.UINT, _PAIRS)]}

Pairs = tuple[tuple[str, str], ...]


class Settings(NamedTuple):
    """Settings of one topic, or of the cluster: (name, value) by name, and the index of the last
    change."""

    version: int
    pairs: Pairs


NONE = Settings(0, ())


class SettingsTable:
    """The settings of one replica's metadata."""

    __slots__ = ("bytes", "_rows", "_limits", "_stamped", "_compacted")

    def __init__(self) -> None:
        self.bytes = 0
        self._rows: dict[int, Settings] = {}  # incarnation of a topic, or CLUSTER -> its settings
        self._limits: dict[int, int] = {}  # the same -> limit of batches, where it is set
        #: The same -> True if leaders stamp the append time, where the type of timestamps is set.
        self._stamped: dict[int, bool] = {}
        #: The same -> True if records are compacted by key, where the policy is set.
        self._compacted: dict[int, bool] = {}

    def of(self, incarnation: int) -> Settings:
        """Return the settings of a topic, or of the cluster.  O(1)."""
        return self._rows.get(incarnation, NONE)

    def batch_bytes_max(self, incarnation: int, name: str) -> int:
        """Return the limit of batches, in bytes, of the topic with that incarnation and name.
        O(1)."""
        limit = self._limits.get(incarnation)
        if limit is None and not is_internal(name):
            limit = self._limits.get(CLUSTER)
        return BATCH_BYTES_MAX if limit is None else limit

    def has_append_time(self, incarnation: int) -> bool:
        """Return True if the batches of a topic get the time at which its leader appends them.
        O(1)."""
        own = self._stamped.get(incarnation)
        return self._stamped.get(CLUSTER, False) if own is None else own

    def is_compacted(self, incarnation: int, name: str) -> bool:
        """Return True if the records of the topic with that incarnation and name are compacted by
        key.  O(1)."""
        own = self._compacted.get(incarnation)
        if own is None and not is_internal(name):
            own = self._compacted.get(CLUSTER)
        return bool(own)

    # ---- commands -------------------------------------------------------------------------------

    def fault(self, incarnation: int, pairs: Pairs) -> Result | None:
        """Return the refusal of ``pairs`` as the new settings of a topic or of the cluster; None =
        they are within the limits.  O(settings of one topic)."""
        if len(pairs) > SETTINGS_PER_TOPIC_MAX:
            return over("settings of a topic", SETTINGS_PER_TOPIC_MAX, len(pairs))
        total = self.bytes - _bytes_of(self.of(incarnation).pairs) + _bytes_of(pairs)
        if total > SETTINGS_BYTES_MAX:
            return over("bytes of all settings", SETTINGS_BYTES_MAX, total)
        return None

    def alter(self, index: int, incarnation: int, changes: tuple[SettingChange, ...],
              expected: int | None) -> Result:
        """Change settings of a topic, or of the cluster, with the command at ``index``.  The value
        is True if some value is another one than before.  O(settings of one topic)."""
        before = self.of(incarnation)
        if expected is not None and expected != before.version:
            return refused(Code.STALE_METADATA, "other settings were changed meanwhile; try again",
                           value=before.version)
        values = dict(before.pairs)
        for name, value in changes:
            if value is None:
                values.pop(name, None)
            else:
                values[name] = value
        pairs = tuple(sorted(values.items()))
        if pairs == before.pairs:
            return Result(Code.OK, False)
        refusal = self.fault(incarnation, pairs)
        if refusal is None:
            self.put(index, incarnation, pairs)
        return refusal or Result(Code.OK, True)

    def put(self, index: int, incarnation: int, pairs: Pairs) -> None:
        """Replace the settings of a topic, or of the cluster, with the command at ``index``;
        ``pairs`` are sorted and within the limits."""
        self.forget(incarnation)
        if not pairs:
            return
        self._rows[incarnation] = Settings(index, pairs)
        self.bytes += _bytes_of(pairs)
        values = dict(pairs)
        if (limit := _readable(BATCH_BYTES, values)) is not None:
            self._limits[incarnation] = int(limit)
        if (kind := _readable(TIMESTAMP_TYPE, values)) is not None:
            self._stamped[incarnation] = kind == LOG_APPEND_TIME
        if (policy := _readable(_POLICY, values)) is not None:
            self._compacted[incarnation] = _COMPACT in policy.split(",")

    def forget(self, incarnation: int) -> None:
        """Remove the settings of a topic, which is deleted, or of the cluster."""
        self.bytes -= _bytes_of(self._rows.pop(incarnation, NONE).pairs)
        self._limits.pop(incarnation, None)
        self._stamped.pop(incarnation, None)
        self._compacted.pop(incarnation, None)

    # ---- checkpoints ----------------------------------------------------------------------------

    def snapshot(self) -> dict:
        """Return the table as values that CBOR can encode.  O(topics with settings)."""
        return {"settings": [(incarnation, *row) for incarnation, row
                             in sorted(self._rows.items())]}

    def fill(self, snapshot: dict) -> None:
        """Restore the table from a snapshot.  Raises ``KeyError``, ``TypeError`` or ``ValueError``
        when the snapshot is malformed, or exceeds a limit."""
        shapes.check(snapshot, _SHAPE, "settings")
        for incarnation, version, rows in snapshot["settings"]:
            pairs = tuple((name, value) for name, value in rows)
            if not _is_valid(pairs) or self.fault(incarnation, pairs) is not None:
                raise ValueError(f"settings of topic {incarnation}: {len(pairs)} of them, over a "
                                 f"limit or out of order")
            self.put(version, incarnation, pairs)

    def _check(self, topics: set[int]) -> None:
        """Assert every invariant; ``topics``: incarnations of those that exist.  O(settings)."""
        assert {*self._rows} <= topics | {CLUSTER}, "settings of a topic that does not exist"
        assert self.bytes == sum(_bytes_of(row.pairs) for row in self._rows.values())
        assert self.bytes <= SETTINGS_BYTES_MAX
        assert all(_is_valid(row.pairs) and row.version for row in self._rows.values())


def _bytes_of(pairs: Pairs) -> int:
    return sum(len(text.encode()) for pair in pairs for text in pair)


def _is_valid(pairs: Pairs) -> bool:
    names = [name for name, _ in pairs]
    return bool(pairs) and names == sorted(set(names)) and all(
        len(name) <= SETTING_NAME_MAX and len(value) <= SETTING_VALUE_MAX for name, value in pairs)


def _readable(name: str, values: dict[str, str]) -> str | None:
    """Return the value of a setting; None = it is not set, or this release cannot read it."""
    if name not in values:
        return None
    try:
        return find(name).type.read(values[name])
    except InvalidValue:
        return None
