"""The registry of settings: Kafka's topic settings by name, and ``retention.records``.

Contract.  ``SETTINGS`` has one row per name.  ``read_value`` returns the canonical text of a value
and raises ``InvalidSetting`` with the reason: an unknown name, with the name that was probably
meant; a value outside of its type; a value that promises something which this system does not do.
The registry is code of the release, so only the node that proposes a change consults it; replicas
store names and values as text.

Theory.  Tools that were written for Kafka set what they know, and expect to read it back.  A
setting belongs to one of three classes.  ``IMPLEMENTED``: the system does what the value says, now
or in a later release (``carried_out.py``).  ``INERT``: the value tunes a mechanism of Kafka that
does not exist here; it is stored and changes nothing.  ``FIXED``: the value is a promise about
records, and only the promise that is kept in any case is accepted.
"""

from __future__ import annotations

import difflib
import enum
from typing import NamedTuple

from multiraft.codec.layout import BATCH_BYTES_MAX, BATCH_HEADER_BYTES
from multiraft.errors import MultiRaftError
from multiraft.settings.carried_out import CARRIED_OUT
from multiraft.settings.values import (
    BOOLEAN,
    INT_MAX,
    LONG_MAX,
    InvalidValue,
    Kind,
    Type,
    pattern,
    ratio,
    whole,
    word,
    words,
)

#: Limit of a topic's batches, in bytes, header included.
BATCH_BYTES = "max.message.bytes"
#: Clock of the timestamps in a topic, and its value for the clock of the leader.
TIMESTAMP_TYPE = "message.timestamp.type"
LOG_APPEND_TIME = "LogAppendTime"
#: How records leave a topic, and its value for: the newest record of each key stays.
CLEANUP_POLICY = "cleanup.policy"
COMPACT = "compact"
#: The one setting whose fixed value depends on the cluster: a majority of the replicas.
MIN_INSYNC_REPLICAS = "min.insync.replicas"

#: Similarity from which a known name is suggested for an unknown one.
_SIMILARITY = 0.6


class InvalidSetting(MultiRaftError):
    """A setting that is refused: its name, its value, or its contradiction to another setting.
    ``name`` is the setting's."""

    def __init__(self, name: str, reason: str):
        super().__init__(f"{name:.100}: {reason}")
        self.name = name


class Role(enum.Enum):
    """Class of a setting; see the docstring of the module."""

    IMPLEMENTED = "implemented"
    INERT = "inert"
    FIXED = "fixed"


class Effect(enum.Enum):
    """Effect of a setting in this release, in the words of descriptions."""

    IN_EFFECT = "in effect"
    STORED = "stored, not carried out by this release"
    NO_EFFECT = "no effect"
    FIXED = "fixed"


class Setting(NamedTuple):
    """One setting.  ``default``: its value where neither topic nor cluster sets it.
    ``broker_name``: the name of its default in Kafka's brokers, "" = Kafka has none.  ``text``: its
    meaning here; of a fixed one the reason why it is fixed."""

    name: str
    type: Type
    default: str
    role: Role
    broker_name: str
    text: str

    @property
    def effect(self) -> Effect:
        """Effect of the setting in this release."""
        if self.role is Role.INERT:
            return Effect.NO_EFFECT
        if self.role is Role.FIXED:
            return Effect.FIXED
        return Effect.IN_EFFECT if self.name in CARRIED_OUT else Effect.STORED


_LONG = whole(0, LONG_MAX)
_UNLIMITED = whole(-1, LONG_MAX, words="-1 = unlimited, 0 .. 2^63 - 1")
_LEVEL = whole(-(1 << 17), 22, Kind.INT)
#: Replicas as Kafka's tools for reassignments name them: ``partition:broker``, or all of them.
_REPLICAS = pattern(r"(|\*|[0-9]+:[0-9]+(,[0-9]+:[0-9]+)*)",
                    "*, or pairs partition:broker with commas", Kind.LIST)
_FOREVER = str(LONG_MAX)


def _implemented(name: str, type_: Type, default: str, broker_name: str, text: str) -> Setting:
    return Setting(name, type_, default, Role.IMPLEMENTED, broker_name, text)


def _inert(name: str, type_: Type, default: str, broker_name: str, text: str) -> Setting:
    return Setting(name, type_, default, Role.INERT, broker_name, text)


def _fixed(name: str, type_: Type, value: str, broker_name: str, text: str) -> Setting:
    return Setting(name, type_, value, Role.FIXED, broker_name, text)


_ROWS = (
    _implemented(CLEANUP_POLICY, words(COMPACT, "delete"), "delete", "log.cleanup.policy",
                 "Which records are removed: `delete`, those beyond the limits of retention; "
                 "`compact`, those whose key has a newer record (docs/compaction.md). With "
                 "`compact`, records without a key are refused; those that are there already "
                 "stay. With `compact` alone, `retention.ms`, `retention.bytes` and "
                 "`retention.records` do not hold."),
    _inert("compression.gzip.level", whole(-1, 9, Kind.INT), "-1", "compression.gzip.level",
           "Nodes never compress: producers choose the level."),
    _inert("compression.lz4.level", whole(1, 17, Kind.INT), "9", "compression.lz4.level",
           "Nodes never compress: producers choose the level."),
    _fixed("compression.type", word("producer", "uncompressed", "zstd", "lz4", "snappy", "gzip"),
           "producer", "compression.type",
           "batches are stored and served as their producers compressed them"),
    _inert("compression.zstd.level", _LEVEL, "3", "compression.zstd.level",
           "Nodes never compress: producers choose the level."),
    _implemented("delete.retention.ms", _LONG, "86400000", "log.cleaner.delete.retention.ms",
                 "Time for which compaction keeps a record without a value, milliseconds."),
    _inert("file.delete.delay.ms", _LONG, "60000", "log.segment.delete.delay.ms",
           "Files belong to all topics of a node and are deleted when no reader has them."),
    _inert("flush.messages", whole(1, LONG_MAX), _FOREVER, "log.flush.interval.messages",
           "Nodes sync records before they acknowledge them, or as `storage.durability` of "
           "`node.toml` says."),
    _inert("flush.ms", _LONG, _FOREVER, "log.flush.interval.ms",
           "Nodes sync records before they acknowledge them, or as `storage.durability` of "
           "`node.toml` says."),
    _inert("follower.replication.throttled.replicas", _REPLICAS, "", "",
           "Plans have a throttle of their own (`multiraft rebalance throttle`)."),
    _inert("index.interval.bytes", whole(0, INT_MAX, Kind.INT), "4096",
           "log.index.interval.bytes", "The index has its own form."),
    _inert("leader.replication.throttled.replicas", _REPLICAS, "", "",
           "Plans have a throttle of their own (`multiraft rebalance throttle`)."),
    _inert("local.retention.bytes", whole(-2, LONG_MAX), "-2", "log.local.retention.bytes",
           "There is no tiered storage: all records are local."),
    _inert("local.retention.ms", whole(-2, LONG_MAX), "-2", "log.local.retention.ms",
           "There is no tiered storage: all records are local."),
    _implemented("max.compaction.lag.ms", whole(1, LONG_MAX), _FOREVER,
                 "log.cleaner.max.compaction.lag.ms",
                 "Longest time until a record may be compacted, milliseconds."),
    _implemented(BATCH_BYTES, whole(BATCH_HEADER_BYTES + 1, BATCH_BYTES_MAX, Kind.INT),
                 str(BATCH_BYTES_MAX), "message.max.bytes",
                 "Largest batch that is accepted, in bytes as sent, header included. The default "
                 "of the cluster does not hold for internal topics."),
    _fixed("message.downconversion.enable", BOOLEAN, "false", "log.message.downconversion.enable",
           "batches are served in the format in which they were stored"),
    _inert("message.format.version", pattern(r"(0\.11|[1-9][0-9]?\.[0-9]{1,2})[0-9A-Za-z.-]{0,16}",
                                             "a version from 0.11 on: the format here"),
           "3.0-IV1", "log.message.format.version", "There is one format of batches."),
    _fixed("message.timestamp.after.max.ms", _LONG, _FOREVER,
           "log.message.timestamp.after.max.ms",
           "records are accepted with any timestamp of their producers"),
    _fixed("message.timestamp.before.max.ms", _LONG, _FOREVER,
           "log.message.timestamp.before.max.ms",
           "records are accepted with any timestamp of their producers"),
    _fixed("message.timestamp.difference.max.ms", _LONG, _FOREVER,
           "log.message.timestamp.difference.max.ms",
           "records are accepted with any timestamp of their producers"),
    _implemented(TIMESTAMP_TYPE, word("CreateTime", LOG_APPEND_TIME), "CreateTime",
                 "log.message.timestamp.type",
                 "Clock of the timestamps: `CreateTime`, the producer's; `LogAppendTime`, the "
                 "leader's when it appends a batch, the same for all its records. A change holds "
                 "for later appends. Times need not rise from batch to batch: each leader has its "
                 "own clock."),
    _implemented("min.cleanable.dirty.ratio", ratio(), "0.5", "log.cleaner.min.cleanable.ratio",
                 "Share of records without compaction from which a partition is compacted."),
    _implemented("min.compaction.lag.ms", _LONG, "0", "log.cleaner.min.compaction.lag.ms",
                 "Shortest time for which a record is not compacted, milliseconds."),
    _fixed(MIN_INSYNC_REPLICAS, whole(1, INT_MAX, Kind.INT), "majority", "min.insync.replicas",
           "an append with acks=commit (Kafka: acks=all) is acknowledged by a majority of the "
           "replicas, never by fewer or more"),
    _inert("preallocate", BOOLEAN, "false", "log.preallocate",
           "Files belong to all topics of a node."),
    _inert("remote.log.copy.disable", BOOLEAN, "false", "", "There is no tiered storage."),
    _inert("remote.log.delete.on.disable", BOOLEAN, "false", "", "There is no tiered storage."),
    _fixed("remote.storage.enable", BOOLEAN, "false", "", "there is no tiered storage"),
    _implemented("retention.bytes", _UNLIMITED, "-1", "log.retention.bytes",
                 "Bytes of a partition above which its oldest records are removed; at least so "
                 "many stay."),
    _implemented("retention.ms", _UNLIMITED, "-1", "log.retention.ms",
                 "Age above which records are removed, milliseconds since they were appended, by "
                 "the clocks of the nodes. Kafka's default is 7 days; here nothing is removed "
                 "unless asked for."),
    _implemented("retention.records", _UNLIMITED, "-1", "",
                 "Number of records of a partition above which its oldest are removed; at least so "
                 "many stay. Kafka has no such setting."),
    _inert("segment.bytes", whole(14, INT_MAX, Kind.INT), "1073741824", "log.segment.bytes",
           "Segments belong to all topics of a node, and have 64 MiB."),
    _inert("segment.index.bytes", whole(4, INT_MAX, Kind.INT), "10485760",
           "log.index.size.max.bytes", "The index has its own form."),
    _inert("segment.jitter.ms", _LONG, "0", "log.roll.jitter.ms",
           "Segments belong to all topics of a node."),
    _inert("segment.ms", whole(1, LONG_MAX), "604800000", "log.roll.ms",
           "Segments belong to all topics of a node."),
    _fixed("unclean.leader.election.enable", BOOLEAN, "false", "unclean.leader.election.enable",
           "a leader is elected by a majority only; an operator may recover a group by force "
           "(`multiraft group recover`)"),
)

#: Name -> setting, by name.
SETTINGS: dict[str, Setting] = {row.name: row for row in _ROWS}

_BY_BROKER_NAME = {row.broker_name: row.name for row in _ROWS if row.broker_name}


def find(name: str) -> Setting:
    """Return the setting of that name.  Raises ``InvalidSetting`` for an unknown one, with the name
    that was probably meant."""
    setting = SETTINGS.get(name)
    if setting is None:
        raise InvalidSetting(name, f"there is no such setting{_suggestion(name)}")
    return setting


def _suggestion(name: str) -> str:
    """Return the advice for an unknown name, as the end of a sentence; "" = no name is similar."""
    if name in _BY_BROKER_NAME:
        return f"; topics and the cluster's defaults have {_BY_BROKER_NAME[name]}"
    # a bounded comparison: a hostile name may be as long as a message
    similar = difflib.get_close_matches(name[:100].lower().replace("_", "."), SETTINGS, 1,
                                        _SIMILARITY)
    return f"; did you mean {similar[0]}?" if similar else ""


def _unit_of(name: str) -> str:
    """Return the unit of a setting's values, as the end of a phrase; "" = none."""
    return {"ms": " (milliseconds)", "bytes": " (bytes)"}.get(name.rpartition(".")[2], "")


def majority(replication_factor: int) -> int:
    """Return the number of replicas that acknowledge an append."""
    return replication_factor // 2 + 1


def default_of(setting: Setting, replication_factor: int) -> str:
    """Return the value of a setting that neither topic nor cluster sets, in a cluster with that
    replication factor."""
    if setting.name == MIN_INSYNC_REPLICAS:
        return str(majority(replication_factor))
    return setting.default


def read_value(name: str, text: str, replication_factor: int) -> str:
    """Return the canonical text of a value of the setting ``name``, in a cluster with that
    replication factor.  Raises ``InvalidSetting`` with the reason of a refusal."""
    setting = find(name)
    try:
        value = setting.type.read(text)
    except InvalidValue as error:
        raise InvalidSetting(name, f"{error}{_unit_of(name)}, got {text!r:.60}") from error
    if setting.role is Role.FIXED:
        kept = default_of(setting, replication_factor)
        if value != kept:
            raise InvalidSetting(name, f"only {kept} is accepted, not {value}: {setting.text}")
    return value
