"""`multiraft consume`: the records of topics on standard output.

Contract.  Raw values, one per line, by default: the output is valid input of `produce`.  JSON is
one object per record and line, and loses nothing (``record_json.py``).  Records leave in whole
batches; the last one is cut at `--count` or at the end of a range.  Waits of the reader, and
records that it leaves unread, are reported on standard error.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import click

from admin_cli import connection, leaderless
from admin_cli.console.options import (
    TEXT,
    Duration,
    OffsetSpan,
    Start,
    Word,
    json_option,
    servers_option,
)
from admin_cli.console.output import note, plural, record_bar
from admin_cli.failures import CommandFailed, Incomplete, NotFound, Unreachable
from admin_cli.records import unavailable, waiting
from admin_cli.records.continuation import Position, command_lines
from admin_cli.records.foreign_flags import CONSUME_HINTS, TranslatedCommand, topic_argument
from admin_cli.records.format_output import record_writer
from admin_cli.records.format_text import FormatError
from admin_cli.records.readers import NO_RESET, Part, Readers, ReadSettings
from admin_cli.records.record_json import json_line
from admin_cli.records.waiting import report_waits
from admin_cli.session import Session
from admin_cli.values.numbers import COUNT, PARTITION, shown
from admin_cli.values.spans import END, Span
from admin_cli.values.spans import FORMS as SPAN_FORMS
from admin_cli.values.times import FORMS, At
from multiraft.client.blocking import Gap, UnreadableBatch, Wait
from multiraft.client.texts import duration
from multiraft.wire import errors as wire

Encode = Callable[[Any, Sequence[Any]], bytes]  # (batch, records) -> bytes to write
Rows = dict[str, list[connection.PartitionRow]]  # by topic

#: Values of ``--offset-reset``, and words of Kafka's earlier consumers for them.
OFFSET_RESETS = ("earliest", "latest", NO_RESET)
RESET_ALIASES = {"smallest": "earliest", "largest": "latest", "beginning": "earliest",
                 "end": "latest", "error": NO_RESET}
RAW, JSON, FOLLOW = "raw", "json", "follow"
#: In front of the line to continue with.
CONTINUE = "Continue:"
#: Time in which leaders have to tell their offsets, without --timeout, and the pause in between.
OFFSETS_TIMEOUT_MS = 30_000
OFFSETS_PAUSE_S = 0.5


class OutputForm(click.ParamType):
    """``raw``, ``json`` or a format with verbs, as the function that writes records."""

    name = "format"

    def convert(self, value: Any, param: click.Parameter | None,
                ctx: click.Context | None) -> str | Encode:
        if not isinstance(value, str) or value in (RAW, JSON, FOLLOW):
            return value
        if "%" not in value:
            self.fail(f"{shown(value)} is not raw, json or a format with verbs, such as "
                      r"'%k %v\n'; to follow a topic: --follow.", param, ctx)
        try:
            return record_writer(value)
        except FormatError as error:
            self.fail(f"{shown(value)}, {error}", param, ctx)


class _Choice(NamedTuple):
    """The records to read: flags that choose topics, partitions and offsets."""

    topics: tuple[str, ...]
    is_regex: bool
    partition: int | None
    start: str | int | At | dict[int, int]
    span: Span | None


EXAMPLES = r"""
Examples:
  multiraft consume greetings --follow
  multiraft consume greetings -o -5                the last five of each partition
  multiraft consume greetings -f '%p %o %k %v\n'
  multiraft consume greetings --from 0=17,1=4      continue where a reader stopped
"""


@click.command(cls=TranslatedCommand, hints=CONSUME_HINTS, epilog=f"\b{EXAMPLES}")
@topic_argument("topics", several=True)
@click.option("--regex", "-r", is_flag=True,
              help="TOPIC is a regular expression: read every topic whose name it matches.")
@click.option("--partition", "-p", type=PARTITION, metavar="P", help="Only this partition.")
@click.option("--from", "start", type=Start(), default="earliest", show_default=True,
              metavar="earliest|latest|OFFSET|TIME|P=OFFSET,...",
              help=f"Start position. A time ({FORMS}) means the first record at or after it; "
                   "0=17,1=4 is an offset for each of some partitions.")
@click.option("--offset", "-o", "span", type=OffsetSpan(), metavar="OFFSETS",
              help=f"Start, and the end if there is one, as in rpk: {SPAN_FORMS}.")
@click.option("--until-end", "until_end", flag_value="end", default=None,
              help="Stop at the end as it was when the command started. The default, except with "
                   "--from latest.")
@click.option("--follow", "until_end", flag_value=FOLLOW,
              help="Wait for new records until Ctrl-C.")
@click.option("--count", "-n", type=COUNT, metavar="N", help="Stop after this many records.")
@click.option("--format", "-f", "form", metavar="FORMAT", type=OutputForm(), default=RAW,
              is_flag=False, flag_value=FOLLOW, show_default=True,
              help=r"raw: the value and a newline. json: an object per line. Or verbs, such as "
                   r"'%t %p %o %k %v\n'.")
@click.option("--timeout", type=Duration(), metavar="TIME",
              help="Give up when a partition cannot be read for this long. [default: 30s]")
@click.option("--rack", type=TEXT, default="",
              help="Read from replicas in this rack, where they exist.")
@click.option("--isolation", type=Word(("read_committed", "read_uncommitted")),
              default="read_committed", show_default=True,
              help="read_uncommitted also shows records that a sink has staged and not committed.")
@click.option("--offset-reset", type=Word(OFFSET_RESETS, RESET_ALIASES), default=NO_RESET,
              show_default=True,
              help="Where to read on when records were deleted before they were read, with a note "
                   "for each gap; none: fail.")
@click.option("--skip-unreadable", is_flag=True,
              help="Skip batches that cannot be decoded, with a note for each.")
@click.option("--quiet", "-q", is_flag=True, help="No progress bar, and no notes about waits.")
@click.option("-e", "until_end", flag_value="end", hidden=True)
@click.option("--from-beginning", is_flag=True, hidden=True)
@click.option("--max-messages", "-c", "--num", "count_alias", type=COUNT, hidden=True)
@json_option
@servers_option
@click.pass_obj
def consume(session: Session, topics: tuple[str, ...], regex: bool, partition: int | None,
            start: str | int | At | dict[int, int], span: Span | None, until_end: str | None,
            count: int | None, form: str | Encode, timeout: int | None, rack: str, isolation: str,
            offset_reset: str, skip_unreadable: bool, quiet: bool, from_beginning: bool,
            count_alias: int | None, as_json: bool) -> None:
    """Write the records of each TOPIC to standard output.

    Partitions are read concurrently: order holds within each. A read to the end that stops before
    it, because a transaction of a sink is open or records were deleted, exits with 6.
    """
    tails = form == FOLLOW  # -f without a format, as in `tail -f`
    if tails:
        form, until_end = RAW, FOLLOW
    if as_json and not isinstance(form, str):
        raise click.UsageError("--json and --format exclude each other.")
    choice = _choice(topics, regex, partition, start, span, from_beginning)
    follow = until_end == FOLLOW or (until_end is None and _begins_at_end(choice))
    encode = _encoder(JSON if as_json else form, len(topics) > 1 or regex)
    settings = ReadSettings(rack, isolation, timeout, offset_reset)
    with connection.open_session(session) as client:
        reading = _Reading(client, session, settings)
        try:
            rows = reading.rows(choice, quiet)
            readers = Readers(client, reading.parts(choice, rows), follow, settings,
                              reading.begin_by_ms, functools.partial(_note_gap, offset_reset))
            is_counted = not follow and offset_reset != "latest"
            expected = _expected(rows, choice, readers) if is_counted else None
            batches = report_waits(readers, reading.explain) if not quiet else readers
            writing = _Writing(encode, count or count_alias, readers.ends,
                               _skipping if skip_unreadable else _opened)
            try:
                ended = writing.run(batches, expected, follow, quiet)
            except KeyboardInterrupt:
                until_end = "--follow" if follow else "--until-end" if until_end else ""
                _say_how_to_continue(writing, readers, rows, choice.partition, until_end,
                                     ("form",) if tails else ())
                raise
        except wire.UnknownTopic:
            raise  # `open_session` names the topic that was probably meant
        except wire.RequestError as error:
            raise reading.failure(error) from error
        if ended:
            _require_all(readers.unread)


def _choice(topics: tuple[str, ...], regex: bool, partition: int | None,
            start: str | int | At | dict[int, int], span: Span | None,
            from_beginning: bool) -> _Choice:
    """Return the choice of records.  Flags that contradict each other are usage errors."""
    if span is not None and start != "earliest":
        raise click.UsageError("--from and --offset exclude each other.")
    if from_beginning and (span is not None or start != "earliest"):
        raise click.UsageError("--from-beginning excludes --from and --offset.")
    if isinstance(start, dict) and (partition is not None or len(topics) > 1 or regex):
        raise click.UsageError("--from PARTITION=OFFSET,... is for one topic, without --partition.")
    return _Choice(topics, regex, partition, start, span)


def _begins_at_end(choice: _Choice) -> bool:
    if choice.span is not None:
        return choice.span == Span(END, None)
    return choice.start == "latest"


def _encoder(form: str | Encode, with_topic: bool) -> Encode:
    """Return the function that writes records; ``with_topic``: JSON names the topic."""
    if form == JSON:
        return lambda batch, records: "".join(
            [f"{json_line(batch, record, with_topic)}\n" for record in records]).encode("utf-8")
    return _raw_lines if isinstance(form, str) else form


def _raw_lines(_batch: Any, records: Sequence[Any]) -> bytes:
    return b"".join([line for record in records for line in (record.value or b"", b"\n")])


class _Reading:
    """Questions about the topics to read, and the explanation when no leader answers."""

    def __init__(self, client: Any, session: Session, settings: ReadSettings):
        self._client = client
        self._session = session
        self._is_reset = settings.is_reset
        self._timeout_ms = settings.timeout_ms or OFFSETS_TIMEOUT_MS
        self._give_up_ms = waiting.now_ms() + self._timeout_ms
        #: Time by which something is read, of ``now_ms``; None = without --timeout.
        self.begin_by_ms = None if settings.timeout_ms is None else self._give_up_ms
        self._held: list[unavailable.Partition] = []  # the partitions to read, with their groups
        self._told: list[str] = []  # the reasons that were printed last

    def rows(self, choice: _Choice, quiet: bool) -> Rows:
        """Return the partitions of the topics, by topic.  Names groups without a leader at once.
        When offsets are needed, waits until all leaders have told them.  Raises ``NotFound``,
        ``Unreachable``."""
        names = self._names(choice)
        while True:
            rows = {name: connection.partitions(self._client, name) for name in names}
            missing = []
            self._held = []
            for name in names:
                connection.require_partition(name, len(rows[name]), choice.partition)
                for row in _wanted(rows[name], choice):
                    self._held.append(unavailable.Partition(name, row.partition, row.group))
                    if row.end_offset is None:
                        missing.append(self._held[-1])
            reasons = unavailable.explain(self._client, missing) if missing else []
            if reasons and reasons != self._told and not quiet:
                self._told = reasons
                note(f"waiting: {'; '.join(reasons)}")
            if not missing or choice.span is None:
                return rows
            if waiting.now_ms() >= self._give_up_ms:
                raise self._unreachable(f"no leader has told the offsets of {missing[0]} for "
                                        f"{duration(self._timeout_ms)}.", reasons)
            self._session.pause(OFFSETS_PAUSE_S)

    def _names(self, choice: _Choice) -> list[str]:
        """Return the topics to read, each once."""
        if not choice.is_regex:
            return [*dict.fromkeys(choice.topics)]
        patterns = [_pattern(text) for text in choice.topics]
        names = [row.name for row in connection.topics(self._client)]
        found = [name for name in names
                 if any(pattern.search(name) for pattern in patterns)
                 and (not connection.is_internal(name)
                      or any(connection.INTERNAL_PREFIX in text for text in choice.topics))]
        if not found:
            raise NotFound(f"no topic has a name that {' or '.join(map(shown, choice.topics))} "
                           "matches.", "`multiraft topic list` shows the topics.")
        return found

    def parts(self, choice: _Choice, rows: Rows) -> list[Part]:
        """Return the parts to read: whole topics, or single partitions where each has a start or an
        end of its own."""
        if choice.span is not None:
            return self._of_span(choice, rows, choice.span)
        if isinstance(choice.start, dict):
            (name, known), = rows.items()
            return [_of_offsets(name, known, choice.start, self._is_reset)]
        parts = []
        for name, known in rows.items():
            if isinstance(choice.start, int):
                if choice.partition is None and len(known) > 1:
                    raise click.UsageError(
                        f"--from {choice.start} needs --partition: {name} has "
                        f"{plural(len(known), 'partition')}. An offset for each of them is --from "
                        f"0={choice.start},1={choice.start}.")
                connection.require_offset(name, known[choice.partition or 0], choice.start,
                                          self._is_reset)
            parts.append(Part(name, choice.partition, choice.start,
                              partitions=len(_wanted(known, choice))))
        return parts

    def _of_span(self, choice: _Choice, rows: Rows, span: Span) -> list[Part]:
        """Return the topics, or the partitions if each has an end of its own, with the offsets that
        the span has in each partition."""
        parts: list[Part] = []
        for name, known in rows.items():
            found = {at: connection.offsets_at(self._client, name, at) for at in span.times}
            wanted, firsts, ends = _wanted(known, choice), {}, {}
            for row in wanted:
                assert row.start_offset is not None and row.end_offset is not None
                first, end = span.resolve(row.start_offset, row.end_offset,
                                          {at: found[at][row.partition] for at in found})
                if len(wanted) == 1:
                    connection.require_offset(name, row, first, self._is_reset)
                else:  # some partitions may lack an offset that others have
                    first = min(max(first, row.start_offset), row.end_offset)
                firsts[row.partition] = first
                ends[row.partition] = end
            if span.end is None and choice.partition is None:
                parts.append(Part(name, None, firsts, partitions=len(known)))
            else:
                parts += [Part(name, partition, first, ends[partition])
                          for partition, first in firsts.items()]
        return parts

    def explain(self, waits: Sequence[Wait]) -> list[str]:
        """Return new sentences about groups without a leader, for waits that an operator can end.
        """
        named = {(wait.topic, wait.partition) for wait in waits if wait.transaction is None}
        suspects = [part for part in self._held if (part.topic, part.partition) in named]
        reasons = unavailable.explain(self._client, suspects) if suspects else []
        if reasons == self._told:
            return []
        self._told = reasons
        return reasons

    def failure(self, error: wire.RequestError) -> CommandFailed:
        """Return the failure for an error of a consumer.  Groups without a leader are the reason if
        there are some."""
        servers = self._session.servers()
        plain = connection.explain(error, servers)
        if not (error.retriable or isinstance(error, wire.TimedOut)) or not self._held:
            return plain
        reasons = unavailable.explain(self._client, self._held)
        if not reasons:
            return plain
        if error.partition is None:
            return self._unreachable(plain.message, reasons)
        return self._unreachable(f"{error.topic}/{error.partition} was not read for "
                                 f"{duration(self._timeout_ms)}.", reasons)

    def _unreachable(self, what: str, reasons: Sequence[str]) -> CommandFailed:
        return Unreachable(what, "\n".join([*reasons,
                                            leaderless.remedy(self._session.servers())]))


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        raise click.UsageError(f"{shown(text)} is no regular expression: {error}.") from error


def _wanted(rows: Sequence[connection.PartitionRow],
            choice: _Choice) -> list[connection.PartitionRow]:
    return [row for row in rows if choice.partition in (None, row.partition)]


def _of_offsets(name: str, rows: Sequence[connection.PartitionRow],
                starts: dict[int, int], is_reset: bool) -> Part:
    """Return the topic from an offset of each partition on; one that is not named is read from its
    first record.  Raises ``NotFound`` and ``CommandFailed`` for those that do not exist."""
    for partition, offset in starts.items():
        connection.require_partition(name, len(rows), partition)
        connection.require_offset(name, rows[partition], offset, is_reset)
    return Part(name, None, starts, partitions=len(rows))


def _expected(rows: Rows, choice: _Choice, readers: Readers) -> int | None:
    """Return the number of records to read now, for the progress bar; None when it is not known."""
    if choice.span is not None or isinstance(choice.start, At):
        return None
    total = 0
    for known in rows.values():
        for row in _wanted(known, choice):
            if row.start_offset is None or row.end_offset is None:
                return None
            total += max(0, row.end_offset - _first(row, choice.start))
    return total


def _first(row: connection.PartitionRow, start: str | int | At | dict[int, int]) -> int:
    assert row.start_offset is not None and row.end_offset is not None
    if start == "latest":
        return row.end_offset
    if isinstance(start, dict):
        start = start.get(row.partition, 0)
    return max(start, row.start_offset) if isinstance(start, int) else row.start_offset


def _opened(batch: Any) -> Sequence[Any]:
    """Return the records of a batch."""
    return batch.records()


def _note_gap(offset_reset: str, gap: Gap) -> None:
    """Print a note about records that were deleted before they were read."""
    where = "there" if offset_reset == "earliest" else "at the end"
    note(f"Passed over: {gap}. Reading continues {where}.")


def _skipping(batch: Any) -> Sequence[Any]:
    """Return the records of a batch; if it cannot be decoded print a note and return none."""
    try:
        return batch.records()
    except UnreadableBatch as error:
        note(f"Skipped: {error}.")
        return ()


class _Writing:
    """Writes records up to a count (None = no limit) and to the ends of partitions, and keeps the
    offsets that come next.  ``opened`` decodes a batch."""

    def __init__(self, encode: Encode, count: int | None,
                 ends: dict[tuple[str, int | None], int], opened: Callable[[Any], Sequence[Any]]):
        self._encode = encode
        self.left = count  # records that are still to be written; None = no limit
        self._ends = ends
        self._opened = opened
        #: (topic, partition) -> offset of the first record that is not written.
        self.next_offsets: dict[tuple[str, int], int] = {}

    def run(self, batches: Iterable[Any], expected: int | None, flush_each: bool,
            quiet: bool) -> bool:
        """Write records until the batches or the count are exhausted.  Return True if the batches
        are.  ``flush_each``: after each batch, also if the output is no terminal."""
        out, is_seen = sys.stdout.buffer, sys.stdout.isatty()
        written = 0
        # Output and progress on one screen would overwrite each other.
        hidden = quiet or is_seen
        total = expected if self.left is None else self.left
        with record_bar(hidden, total) as progress:
            bar = progress.add_task("", total=total)
            for batch in batches:
                place = batch.topic, batch.partition
                self.next_offsets.setdefault(place, batch.base_offset)
                records = self._cut(batch, self._opened(batch))
                out.write(self._encode(batch, records))
                if flush_each or is_seen:
                    out.flush()  # the next batch may have to be waited for
                if records:
                    self.next_offsets[place] = records[-1].offset + 1
                written += len(records)
                progress.update(bar, completed=written)
                if self.left == 0:
                    break
        out.flush()
        return self.left != 0

    def _cut(self, batch: Any, records: Sequence[Any]) -> Sequence[Any]:
        end = self._ends.get((batch.topic, batch.partition)) if self._ends else None
        if end is not None:
            records = [record for record in records if record.offset < end]
        if self.left is not None:
            records = records[:self.left]
            self.left -= len(records)
        return records


def _say_how_to_continue(writing: _Writing, readers: Readers, rows: Rows, partition: int | None,
                         until_end: str, without: Sequence[str]) -> None:
    """Print the command that continues after Ctrl-C, for one topic of not too many partitions;
    ``without`` names parameters that it leaves out."""
    if len(rows) != 1 or writing.left == 0:
        return
    (topic, known), = rows.items()
    offsets = {}
    for row in known:
        if partition in (None, row.partition):
            place = topic, row.partition
            offset = writing.next_offsets.get(place, readers.position(*place))
            if offset is None:
                return
            offsets[row.partition] = offset
    ends = {number: readers.ends[topic, number] for number in offsets
            if (topic, number) in readers.ends}
    lines = command_lines(click.get_current_context(), Position(
        topic, offsets, ends, partition, writing.left, until_end), without)
    for number, line in enumerate(lines):
        note(f"{CONTINUE if not number else ' ' * len(CONTINUE)} {line}")


def _require_all(unread: Sequence[Wait]) -> None:
    """Raise ``Incomplete``, which names the position where reading stopped; return if nothing is
    unread."""
    if not unread:
        return
    more = (f" The same holds for {plural(len(unread) - 1, 'other partition')}."
            if len(unread) > 1 else "")
    first = unread[0]
    raise Incomplete(
        f"{first.topic}/{first.partition} was read to offset {first.offset}, its end is "
        f"{first.end_offset}: the record at {first.offset} was {first.reason}.{more}",
        f"Show the open transactions:         multiraft sink blocked {first.topic}\n"
        "Abort a transaction without writer: multiraft sink abort NAME\n"
        "Read uncommitted records:           --isolation read_uncommitted")
