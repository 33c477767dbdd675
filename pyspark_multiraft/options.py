"""Options of the data source, parsed and checked; names are those of Spark's Kafka source.

Contract.  Pure: text in, frozen values out.  Names are case-insensitive, as everywhere in Spark.
An unknown option is refused with the nearest name, not ignored: a misspelt option would change what
a job reads without notice.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import NamedTuple

from multiraft.client.ranges import ISOLATIONS
from pyspark_multiraft.failures import OptionError
from pyspark_multiraft.positions import (
    EARLIEST,
    LATEST,
    Position,
    parse_assignment,
    parse_offsets,
    parse_timestamps,
)

#: Options of reading and of writing; an error names the right side for an option of the other one.
CONNECTION = ("servers", "kafka.bootstrap.servers", "tls", "tlsCa", "tlsCertificate", "tlsKey",
              "tlsServerName", "clientId")
READ = ("subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets",
        "startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp",
        "endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy", "minPartitions",
        "splitBytes", "maxOffsetsPerTrigger", "maxBytesPerTrigger", "failOnDataLoss", "columns",
        "includeValue", "includeHeaders", "readPreference", "rack", "pushdown", "isolation",
        "skipUnreadable")
WRITE = ("topic", "mode", "sinkId", "compression", "includeHeaders", "deliveryTimeoutMs")
#: Options of Spark itself: the argument of load() and save(), and those of every stream.
SPARKS_OWN = ("path", "serialization.format", "checkpointlocation", "queryname", "outputmode")
#: Prefix of options in OPTIONS(...) of CREATE TABLE when the table is created; absent when the
#: table is read (seen with Spark 4.3).
OF_TABLE = "option."
#: Options of Spark's Kafka source that this one does not have, with the reason.
ELSEWHERE = {
    "minoffsetspertrigger": "a trigger interval does the same: .trigger(processingTime=...)",
    "maxtriggerdelay": "a trigger interval does the same: .trigger(processingTime=...)",
    "groupidprefix": "reading needs no consumer group",
    "kafka.group.id": "reading needs no consumer group",
    "kafkaconsumer.polltimeoutms": "the client retries by itself",
    "fetchoffset.numretries": "the client retries by itself",
    "fetchoffset.retryintervalms": "the client retries by itself",
    "maxrecordsperpartition": "use splitBytes or minPartitions",
}
COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers", "epoch")
DEFAULT_COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value")
#: Same as Spark's for files.  A task costs a Python worker some 40 ms whatever it reads.
SPLIT_BYTES = 128 << 20
BATCH, STREAM = "batch", "stream"
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")


class Connection(NamedTuple):
    """Servers and security settings of the cluster."""

    servers: tuple[str, ...]
    tls: tuple[str, str, str, str] | None  # the fields of ``TlsSettings``
    client_id: str


class Topics(NamedTuple):
    """Selection of topics: exactly one of these is set."""

    names: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def __str__(self) -> str:
        if self.pattern:
            return f"subscribePattern={self.pattern}"
        names = self.names or tuple(name for name, _ in self.assigned)
        return f"{'subscribe' if self.names else 'assign'}={','.join(names)}"


class ReadOptions(NamedTuple):
    """Options of a read."""

    connection: Connection
    topics: Topics
    starting: Position
    ending: Position
    columns: tuple[str, ...]
    split_bytes: int
    min_partitions: int
    offsets_per_trigger: int  # 0 = no limit
    bytes_per_trigger: int
    fail_on_data_loss: bool
    prefer: str
    rack: str
    pushdown: bool
    #: Start by time when no record is as late: "error" or "latest".
    late_start: str
    #: Isolation level: whether rows of uncommitted transactions are read.
    isolation: str
    #: True if batches that cannot be opened are left out.
    skip_unreadable: bool


class WriteOptions(NamedTuple):
    """Options of a write."""

    connection: Connection
    topic: str  # "" = the column ``topic`` names it
    mode: str
    sink_id: str
    compression: str
    delivery_timeout_ms: int


AT_LEAST_ONCE, IDEMPOTENT, TRANSACTIONAL = "at-least-once", "idempotent", "transactional"
MODES = (AT_LEAST_ONCE, IDEMPOTENT, TRANSACTIONAL)


class _Texts:
    """Options by lower-case name, with typed access."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...], other: tuple[str, ...],
                 side: str):
        self._values = {name.lower(): str(value) for name, value in options.items()}
        if any(name.startswith(OF_TABLE) for name in self._values):
            raise OptionError("Spark does not hand the options of a table on to a Python data "
                              "source when it is read. Use a view: CREATE TEMPORARY VIEW name "
                              "USING multiraft OPTIONS (...)")
        proper = {name.lower(): name for name in known}
        for name in self._values:
            if name not in proper and name not in SPARKS_OWN:
                raise OptionError(_unknown(name, known, other, side))

    def text(self, name: str, default: str = "") -> str:
        return self._values.get(name.lower(), default).strip()

    def has(self, name: str) -> bool:
        return name.lower() in self._values

    def boolean(self, name: str, default: bool) -> bool:
        text = self.text(name, str(default)).lower()
        if text not in _TRUE + _FALSE:
            raise OptionError(f"{name}={text!r} is neither true nor false.")
        return text in _TRUE

    def number(self, name: str, default: int, least: int = 1) -> int:
        text = self.text(name, str(default))
        if not (text.isascii() and text.isdecimal() and int(text) >= least or text == str(default)):
            raise OptionError(f"{name}={text!r} is not a whole number of at least {least}.")
        return int(text)

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        text = self.text(name, choices[0]).lower()
        if text not in choices:
            raise OptionError(f"{name}={text!r} does not exist. It is one of "
                              f"{', '.join(choices)}.")
        return text


def _unknown(name: str, known: tuple[str, ...], other: tuple[str, ...], side: str) -> str:
    if name in ELSEWHERE:
        return f"the option {name!r} does not exist here: {ELSEWHERE[name]}."
    if name in [each.lower() for each in other]:
        return f"the option {name!r} does not belong to {side}. Remove it."
    if name.startswith("kafka."):
        return (f"the option {name!r} configures Kafka's own client, which is not used. Remove it; "
                "servers and TLS have options of their own.")
    near = difflib.get_close_matches(name, [each.lower() for each in known], 1)
    proper = {each.lower(): each for each in known}
    hint = f"Did you mean {proper[near[0]]!r}?" if near else f"There are: {', '.join(known)}."
    return f"the option {name!r} does not exist. {hint}"


def parse_columns(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that the options request; other values are not checked. Raises
    ``OptionError`` for an unknown option or column."""
    return _columns(_Texts(options, CONNECTION + READ, WRITE, "reading"))


def parse_read(options: Mapping[str, str], kind: str = BATCH) -> ReadOptions:
    """Return the options of a read; ``kind`` BATCH or STREAM decides about defaults and
    contradictions. Raises ``OptionError`` for an unknown option, a wrong value or a
    contradiction."""
    texts = _Texts(options, CONNECTION + READ, WRITE, "reading")
    starting = _position(texts, "starting", EARLIEST if kind == BATCH else LATEST)
    ending = _position(texts, "ending", LATEST)
    if ending == EARLIEST:
        raise OptionError("endingOffsets='earliest' would read nothing. Use 'latest' or offsets.")
    if kind == BATCH and starting == LATEST:
        raise OptionError("startingOffsets='latest' would read nothing in a batch. Use 'earliest' "
                          "or offsets.")
    if kind == STREAM and ending != LATEST:
        raise OptionError("a stream has no end: endingOffsets and endingTimestamp belong to batch "
                          "reads. Remove them, or use .trigger(availableNow=True).")
    prefer = texts.choice("readPreference", ("leader", "nearest"))
    return ReadOptions(
        _connection(texts), _topics(texts), starting, ending, _columns(texts),
        texts.number("splitBytes", SPLIT_BYTES), texts.number("minPartitions", 0),
        texts.number("maxOffsetsPerTrigger", 0), texts.number("maxBytesPerTrigger", 0),
        texts.boolean("failOnDataLoss", True), prefer, texts.text("rack"),
        texts.boolean("pushdown", False),
        texts.choice("startingOffsetsByTimestampStrategy", ("error", "latest")),
        texts.choice("isolation", ISOLATIONS), texts.boolean("skipUnreadable", False))


def parse_write(options: Mapping[str, str]) -> WriteOptions:
    """Return the options of a write. Raises ``OptionError`` for an unknown option, a wrong value or
    a contradiction."""
    texts = _Texts(options, CONNECTION + WRITE, READ, "writing")
    mode = texts.choice("mode", MODES)
    if texts.has("sinkId") and mode == AT_LEAST_ONCE:
        raise OptionError("sinkId names a writer whose batches may be repeated: it goes together "
                          "with mode=idempotent or mode=transactional.")
    return WriteOptions(
        _connection(texts), texts.text("topic"), mode, texts.text("sinkId"),
        texts.choice("compression", ("none", "gzip", "lz4", "zstd", "snappy")),
        texts.number("deliveryTimeoutMs", 120_000))


def _connection(texts: _Texts) -> Connection:
    text = texts.text("servers") or texts.text("kafka.bootstrap.servers")
    servers = tuple(part.strip() for part in text.split(",") if part.strip())
    if not servers:
        raise OptionError("no cluster is named. Set the option 'servers' to client addresses of "
                          "nodes: host:port[,host:port...].")
    for address in servers:
        host, colon, port = address.rpartition(":")
        if not (host and colon and port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
            raise OptionError(f"{address!r} in the option 'servers' is not host:port.")
    files = tuple(texts.text(name) for name in ("tlsCa", "tlsCertificate", "tlsKey",
                                                "tlsServerName"))
    tls = files if any(files) or texts.boolean("tls", False) else None
    return Connection(servers, tls, texts.text("clientId", "spark"))


def _topics(texts: _Texts) -> Topics:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if texts.text(name)]
    if len(given) != 1:
        said = " and ".join(given) if given else "none of them"
        raise OptionError(f"exactly one of subscribe, subscribePattern and assign says which "
                          f"topics are read; there is {said}.")
    text = texts.text(given[0])
    if given[0] == "assign":
        return Topics(assigned=parse_assignment(text))
    if given[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"subscribePattern={text!r} is no regular expression: {error}."
                              ) from error
        return Topics(pattern=text)
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise OptionError(f"subscribe={text!r} names no topic.")
    return Topics(names=names)


def _position(texts: _Texts, side: str, default: Position) -> Position:
    """Return the position that the option of ``side`` ("starting" or "ending") names; ``default``
    if none is given. Raises ``OptionError`` for a wrong value, and for more than one such
    option."""
    by_offset, at, by_time = f"{side}Offsets", f"{side}Timestamp", f"{side}OffsetsByTimestamp"
    given = [name for name in (by_offset, at, by_time) if texts.has(name)]
    if len(given) > 1:
        raise OptionError(f"{' and '.join(given)} contradict each other. Keep one of them.")
    if not given:
        return default
    text = texts.text(given[0])
    if given[0] == by_offset:
        return parse_offsets(by_offset, text, is_end=side == "ending")
    if given[0] == at:
        return Position(timestamp_ms=texts.number(at, -1, least=0))
    return parse_timestamps(by_time, text)


def _columns(texts: _Texts) -> tuple[str, ...]:
    """Return the columns of the table, in the requested order. Raises ``OptionError`` for an
    unknown or repeated column, or a contradiction."""
    if texts.has("columns"):
        clash = [name for name in ("includeValue", "includeHeaders") if texts.has(name)]
        if clash:
            raise OptionError(f"columns and {clash[0]} contradict each other. Keep one of them.")
        names = tuple(part.strip().lower() for part in texts.text("columns").split(","))
        wrong = [name for name in names if name not in COLUMNS]
        if wrong or len(set(names)) < len(names):
            raise OptionError(f"columns={','.join(names)!r}: each of {', '.join(COLUMNS)} may be "
                              "named once, nothing else.")
        return names
    names = list(DEFAULT_COLUMNS)
    if not texts.boolean("includeValue", True):
        names.remove("value")
    if texts.boolean("includeHeaders", False):
        names.append("headers")
    return tuple(names)
