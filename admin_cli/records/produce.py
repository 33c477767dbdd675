"""`multiraft produce`: lines, JSON or formatted input become records.

Contract.  A line is a record by default, without its newline; the last one may lack it.  An open
batch is sent when the input pauses.  At any end (end of input, Ctrl-C, an error) the last line
tells the number of acknowledged and of ambiguous records.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

import click

from admin_cli import connection, leaderless
from admin_cli.connection import sentence
from admin_cli.console.options import (
    ACKS,
    ACKS_ALIASES,
    COMPRESSIONS,
    TEXT,
    BatchBytes,
    Duration,
    Word,
    json_option,
    servers_option,
)
from admin_cli.console.output import note, plural, print_json, record_bar
from admin_cli.console.streams import ReaderGone, StreamFailed
from admin_cli.failures import Ambiguous, CommandFailed
from admin_cli.records import unavailable
from admin_cli.records.appender import (
    DELIVERY_TIMEOUT_MS,
    Appender,
    RecordRefused,
    Settings,
    appender,
)
from admin_cli.records.foreign_flags import PRODUCE_HINTS, ProduceCommand, topic_argument
from admin_cli.records.format_input import Header, InputFormat
from admin_cli.records.format_text import FormatError, literal
from admin_cli.records.record_source import (
    LINES_BEFORE,
    RECORDS_BEFORE,
    InputError,
    Lines,
    Rows,
    read_format,
    read_json,
    read_lines,
)
from admin_cli.session import Session
from admin_cli.values.numbers import PARTITION, shown
from multiraft.client.blocking import Record
from multiraft.wire import errors as wire

#: Time to wait for sent records after Ctrl-C, in seconds.
INTERRUPTED_FLUSH_S = 5.0
#: Headers of one command line.
HEADER_FLAGS_MAX = 1_000
RAW, JSON = "raw", "json"
#: Remedy for records without a key, which topics with compaction refuse.
GIVE_KEYS = ("Give each record a key: --key for all, --key-separator for one in each line, "
             '"key" in JSON, %k in a format.')


class HeaderPair(click.ParamType):
    """``NAME=VALUE``, or ``NAME:VALUE`` as in rpk and nats, as ``(name, value)``.  The name ends at
    the first ``=`` or ``:``."""

    name = "header"

    def convert(self, value: Any, param: click.Parameter | None,
                ctx: click.Context | None) -> Header:
        if isinstance(value, tuple):
            return value
        if found := re.search("[=:]", value):
            return (TEXT.convert(value[:found.start()], param, ctx),
                    os.fsencode(value[found.end():]))
        self.fail(f"{shown(value)} is not NAME=VALUE.", param, ctx)


class Separator(click.ParamType):
    r"""Bytes that end a key, with the escapes of a format: ``\t``."""

    name = "separator"

    def convert(self, value: Any, param: click.Parameter | None,
                ctx: click.Context | None) -> bytes:
        if isinstance(value, bytes):
            return value
        try:
            return literal(value)
        except FormatError as error:
            self.fail(f"{shown(value)}, {error}", param, ctx)


class InputForm(click.ParamType):
    """``raw``, ``json`` or a format with verbs, as an ``InputFormat``."""

    name = "format"

    def convert(self, value: Any, param: click.Parameter | None,
                ctx: click.Context | None) -> str | InputFormat:
        if isinstance(value, InputFormat) or value in (RAW, JSON):
            return value
        try:
            return InputFormat(value)
        except FormatError as error:
            self.fail(f"{shown(value)}, {error}", param, ctx)


class Shape(NamedTuple):
    """Parts of a record that flags give; a key of the input comes before ``key``."""

    topic: str
    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    separator: bytes | None = None
    null_if_empty: bool = False
    spread: bool = False

    @property
    def is_plain(self) -> bool:
        """True if a record is its value alone."""
        return self == Shape(self.topic)

    def of_lines(self, lines: Lines) -> tuple[list[Record], InputError | None]:
        """Return the records of the lines up to the first without the separator, and the error of
        that line (None = none)."""
        records: list[Record] = []
        for number, line in enumerate(lines.values, lines.first):
            key, value = self.key, line
            if self.separator is not None:
                key, found, value = line.partition(self.separator)
                if not found:
                    return records, InputError(
                        f"line {number:,} has no {os.fsdecode(self.separator)!r}, the key "
                        "separator.", LINES_BEFORE)
            records.append(self._record(key, value, None, None, ()))
        return records, None

    def of_rows(self, rows: Rows) -> list[Record]:
        """Return the records of the rows."""
        return [self._record(self.key if row.key is None else row.key, row.value, row.partition,
                             row.timestamp_ms, row.headers) for row in rows.rows]

    def _record(self, key: bytes | None, value: bytes | None, partition: int | None,
                timestamp_ms: int | None, headers: tuple[Header, ...]) -> Record:
        if self.partition is not None or self.spread:
            partition = self.partition
        return Record(self.topic, None if self.null_if_empty and not value else value, key,
                      partition, timestamp_ms, (*headers, *self.headers))


#: Property of kafka-console-producer -> what to do instead, as the end of a sentence.
PROPERTY_HINTS = {
    "parse.headers": r"a header is read with --format '%h{%k:%v\t}%v\n', and added to each record "
                     "with --header",
    "headers.delimiter": r"headers end as the format says: --format '%h{%k:%v\t}%v\n'",
    "headers.separator": r"several headers are counted: --format '%H %h{%k:%v,}%v\n'",
    "headers.key.separator": r"names of headers end as the format says: --format '%h{%k:%v\t}%v\n'",
    "null.marker": "null is written as null with --from-json, and as an empty value with "
                   "--tombstone",
    "ignore.error": "a bad line ends the command",
}


def _property_separator(properties: Sequence[str]) -> str | None:
    """Return the key separator that properties of kafka-console-producer ask for; None without
    ``parse.key``."""
    values = {"parse.key": "false", "key.separator": "\t"}
    for text in properties:
        name, found, value = text.partition("=")
        if name in PROPERTY_HINTS:
            raise click.UsageError(f"There is no property {name}: {PROPERTY_HINTS[name]}.")
        if not found or name not in values:
            raise click.UsageError(f"{shown(text)} is no property that is known here; there are "
                                   "parse.key=true and key.separator=S.")
        values[name] = value
    return values["key.separator"] if values["parse.key"].lower() == "true" else None


EXAMPLES = r"""
Examples:
  echo hello | multiraft produce greetings
  multiraft produce greetings -k UA -H source=radar --file lines.txt
  multiraft produce greetings -f '%k %v\n'
  multiraft consume a --json | multiraft produce b --from-json
"""


@click.command(cls=ProduceCommand, hints=PRODUCE_HINTS, epilog=f"\b{EXAMPLES}")
@topic_argument("topic")
@click.option("--key", "-k", metavar="KEY", help="Key of each record that has none of its own.")
@click.option("--header", "-H", "headers", metavar="NAME=VALUE", multiple=True, type=HeaderPair(),
              help="Header of each record; can be repeated. The name ends at the first = or :.")
@click.option("--format", "-f", "form", metavar="FORMAT", type=InputForm(), default=RAW,
              help=r"Form of the input, such as '%k %v\n'. [default: a line is a value]")
@click.option("--from-json", is_flag=True,
              help="Read what `consume --json` writes: an object per line.")
@click.option("--file", "source", type=click.File("rb"), default="-", metavar="F",
              help="File to read. [default: standard input]")
@click.option("--key-separator", "-K", "separator", metavar="S", type=Separator(),
              help=r"Text before the first S of a line is the record's key; '\t' is a tab.")
@click.option("--partition", "-p", type=PARTITION, metavar="P",
              help="Append to this partition. [default: by the key, or spread]")
@click.option("--repartition", is_flag=True,
              help="Choose partitions by key, not those that the input names.")
@click.option("--tombstone", "-Z", is_flag=True, help="An empty value becomes null.")
@click.option("--acks", type=Word(ACKS, ACKS_ALIASES), default="commit", show_default=True,
              help="commit: a majority has it on disk. leader: the leader has it. none: no answer.")
@click.option("--compression", "-z", type=Word(COMPRESSIONS), default="none", show_default=True)
@click.option("--batch-bytes", type=BatchBytes(), metavar="SIZE",
              help="Records that share a batch. A larger record, up to 8 MiB, is a batch of its "
                   "own. [default: 256KiB]")
@click.option("--timeout", type=Duration(), metavar="TIME",
              help="Give a record up after this time. [default: 30s]")
@click.option("--delivery-timeout", "timeout_alias", type=Duration(), hidden=True)
@click.option("--max-message-bytes", "--batch-size", "batch_bytes_alias", type=BatchBytes(),
              hidden=True)
@click.option("--compression-codec", "compression_alias", type=Word(COMPRESSIONS), hidden=True)
@click.option("--request-required-acks", "acks_alias", type=Word(ACKS, ACKS_ALIASES), hidden=True)
@click.option("--property", "--reader-property", "properties", multiple=True, hidden=True)
@json_option
@servers_option
@click.pass_obj
def produce(session: Session, topic: str, key: str | None, headers: tuple[Header, ...],
            form: str | InputFormat, from_json: bool, source: BinaryIO, separator: bytes | None,
            partition: int | None, repartition: bool, tombstone: bool, acks: str, compression: str,
            batch_bytes: int | None, timeout: int | None, timeout_alias: int | None,
            batch_bytes_alias: int | None, compression_alias: str | None, acks_alias: str | None,
            properties: tuple[str, ...], as_json: bool) -> None:
    """Append records to TOPIC: a line is a record.

    Retries neither duplicate nor reorder records. The outcome of a record is ambiguous when no
    answer came in time: it may or may not have been appended.
    """
    of_properties = _property_separator(properties)
    if separator is None and of_properties is not None:
        separator = os.fsencode(of_properties)
    if from_json:
        if form != RAW:
            raise click.UsageError("--from-json and --format exclude each other.")
        form = JSON
    _require_shape(separator, key, form, partition, repartition)
    if len(headers) > HEADER_FLAGS_MAX:
        raise click.UsageError(f"There are {len(headers)} headers, the limit is "
                               f"{HEADER_FLAGS_MAX}.")
    shape = Shape(topic, None if key is None else os.fsencode(key), headers, partition, separator,
                  tombstone, repartition)
    settings = Settings(acks_alias or acks, compression_alias or compression,
                        timeout or timeout_alias or DELIVERY_TIMEOUT_MS,
                        batch_bytes or batch_bytes_alias)
    sink, problem = None, None
    try:
        with connection.open_session(session) as client:
            known = unavailable.partitions(client, topic)
            connection.require_partition(topic, len(known), partition)
            with appender(client, topic, settings) as sink:
                _pump(source, form, shape, sink, session)
    except (KeyboardInterrupt, CommandFailed) as error:
        if sink is None:
            raise
        problem = error
    _conclude(topic, settings, sink, problem, session, as_json)


def _require_shape(separator: bytes | None, key: str | None, form: str | InputFormat,
                   partition: int | None, repartition: bool) -> None:
    """Raise a usage error for flags that contradict each other."""
    if separator == b"":
        raise click.UsageError("--key-separator is empty.")
    if separator is not None and form != RAW:
        raise click.UsageError("--key-separator is for lines; a format names the key with %k.")
    if separator is not None and key is not None:
        raise click.UsageError("--key and --key-separator exclude each other.")
    if isinstance(form, InputFormat) and form.has_key and key is not None:
        raise click.UsageError("--key is given, and the format has %k: one of them.")
    if partition is not None and repartition:
        raise click.UsageError("--partition and --repartition exclude each other.")


class _RecordFailed(Exception):
    """The end of the input because a record has failed."""


def _chunks(source: BinaryIO, form: str | InputFormat,
            sink: Appender) -> Iterator[Lines | Rows]:
    """Yield the input, up to a pause in which a record fails: no more of it is awaited then."""
    def pause() -> None:
        sink.flush()
        if sink.problem is not None:
            raise _RecordFailed

    with contextlib.suppress(_RecordFailed):
        if form == RAW:
            yield from read_lines(source, pause)
        elif isinstance(form, InputFormat):
            yield from read_format(source, pause, form)
        else:
            yield from read_json(source, pause)


def _pump(source: BinaryIO, form: str | InputFormat, shape: Shape, sink: Appender,
          session: Session) -> None:
    """Append all of the input, up to the first failure, and wait for the outcomes however reading
    ends. Raises ``CommandFailed``, ``KeyboardInterrupt``."""
    is_typed = source.isatty()
    if is_typed:
        note(_invitation(form))
    try:
        # Progress would be drawn over the line that a person types.
        with record_bar(hidden=is_typed) as progress:
            bar = progress.add_task("", total=None)
            for chunk in _chunks(source, form, sink):
                _append(chunk, shape, sink, session)
                progress.update(bar, completed=sink.sent)
                if sink.problem is not None:
                    break
            sink.flush()
            sink.ask_reasons()
    except CommandFailed:
        sink.flush()
        sink.ask_reasons()
        raise
    except KeyboardInterrupt:
        sink.flush_within(INTERRUPTED_FLUSH_S)
        raise


def _invitation(form: str | InputFormat) -> str:
    if form == RAW:
        return "Type records, one per line; Ctrl-D ends."
    if form == JSON:
        return 'Type objects, one per line, such as {"value": "hello"}; Ctrl-D ends.'
    return "Type records in the format that was given; Ctrl-D ends."


def _append(chunk: Lines | Rows, shape: Shape, sink: Appender, session: Session) -> None:
    """Hand a part of the input over to the appender, up to the first record that cannot be one.
    Raises ``InputError`` for that one."""
    problem = None
    numbers: Sequence[int]
    values: Sequence[bytes | None]
    try:
        if isinstance(chunk, Lines) and shape.is_plain:
            numbers, values = range(chunk.first, chunk.first + len(chunk.values)), chunk.values
            sink.append(chunk.values)
            return
        if isinstance(chunk, Lines):
            records, problem = shape.of_lines(chunk)
            numbers = range(chunk.first, chunk.first + len(records))
        else:
            records, numbers = shape.of_rows(chunk), chunk.numbers
        values = [record.value for record in records]
        sink.append_records(records)
    except RecordRefused as refused:
        value = values[refused.position] or b""
        raise _refusal(numbers[refused.position], value, chunk, refused, session) from refused
    if problem is not None:
        raise problem


def _refusal(number: int, value: bytes, chunk: Lines | Rows, refused: RecordRefused,
             session: Session) -> InputError:
    """Return the error of a record that the client does not take."""
    why = connection.explain(refused.error, session.servers())
    unit = chunk.unit if isinstance(chunk, Rows) else "line"
    do = why.do or (LINES_BEFORE if unit == "line" else RECORDS_BEFORE)
    if isinstance(refused.error, wire.UnknownPartition) and isinstance(chunk, Rows):
        do = ("The input names the partition. Create the topic with as many partitions, or let "
              "keys decide: --repartition")
    return InputError(f"{unit} {number:,} ({plural(len(value), 'byte')}) was refused: "
                      f"{why.message}", do, why.exit_code)


def _conclude(topic: str, settings: Settings, sink: Appender,
              problem: KeyboardInterrupt | CommandFailed | None, session: Session,
              as_json: bool) -> None:
    """Print the counts. Then raise ``problem``, or a failure for records that are ambiguous or
    refused; ambiguous ones determine the exit code first."""
    failed = _failure(topic, settings, sink, session)
    if isinstance(failed, Ambiguous) and isinstance(problem, CommandFailed):
        problem.show()
        ending: KeyboardInterrupt | CommandFailed | None = failed
    else:
        ending = problem or failed
    try:
        if as_json:
            print_json({"topic": topic, "records": sink.sent,
                        "acknowledged": sink.acknowledged, "ambiguous": sink.ambiguous,
                        "refused": sink.refused})
        else:
            note(_summary(topic, settings.acks, sink))
    except (StreamFailed, ReaderGone) as lost:
        if ending is None:
            raise
        lost.show()
    if ending is not None:
        raise ending


def _failure(topic: str, settings: Settings, sink: Appender,
             session: Session) -> CommandFailed | None:
    """Return the failure for records that were refused or are ambiguous; None = all were
    acknowledged.  Groups without a leader are the reason if there are some."""
    problem = sink.problem
    if not (sink.refused or sink.ambiguous):
        return None
    assert problem is not None
    why, reasons = sentence(problem), list(sink.reasons)
    if reasons:
        why = f"no leader has acknowledged {_them(sink)} within {settings.waited}."
        reasons.append(leaderless.remedy(session.servers()))
    if sink.refused:
        if isinstance(problem, wire.RecordsWithoutKey):
            reasons.append(GIVE_KEYS)
        do = "Acknowledged records are safe; input after the refusal was not read."
        code = connection.explain(problem, session.servers()).exit_code
        return CommandFailed(f"{plural(sink.refused, 'record')} refused: {why}",
                             "\n".join([*reasons, do]), code)
    return Ambiguous(f"{plural(sink.ambiguous, 'record')} may or may not have been appended: "
                     f"{why}", "\n".join([
                         *reasons, "Check the end of the topic before you repeat "
                         f"{_them(sink)}: multiraft topic describe {topic}"]))


def _them(sink: Appender) -> str:
    return "it" if sink.refused + sink.ambiguous == 1 else "them"


def _summary(topic: str, acks: str, sink: Appender) -> str:
    if acks == "none":
        return f"{topic}: {plural(sink.sent, 'record')} sent, none confirmed (--acks none)."
    parts = [f"{plural(sink.acknowledged, 'record')} acknowledged"]
    parts += [f"{count} {how}" for count, how in ((sink.ambiguous, "ambiguous"),
                                                  (sink.refused, "refused")) if count]
    return f"{topic}: {', '.join(parts)} ({acks})."
