"""`multiraft consume`: the records of a topic on standard output.

Contract.  Raw values, one per line, by default: the output is valid input of `produce`.  JSON is
one object per record and line; bytes that are not UTF-8 go into `key_base64`, `value_base64` and
`name_base64` (of a header), so that nothing is ever altered.  Records leave in whole batches; the
last one is cut at `--count`.  Waits of the reader, and records that it leaves unread, are reported
on standard error.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from admin_cli import connection
from admin_cli.failures import Incomplete
from admin_cli.help_pages import HelpfulCommand
from admin_cli.numbers import COUNT, PARTITION
from admin_cli.options import TEXT, Start, Word, json_option, servers_option, topic_argument
from admin_cli.output import note, plural, progress_bar
from admin_cli.session import Session
from admin_cli.times import FORMS, At
from admin_cli.waiting import report_waits
from multiraft.client.blocking import UnreadableBatch, Wait

Encode = Callable[[Any, Sequence[Any]], bytes]  # (batch, records) -> bytes to write


@click.command(cls=HelpfulCommand)
@topic_argument
@click.option("--partition", "-p", type=PARTITION, help="Only this partition.")
@click.option("--from", "start", type=Start(), default="earliest", show_default=True,
              metavar="earliest|latest|OFFSET|TIME",
              help=f"Start position. A time ({FORMS}) means the first record at or after it.")
@click.option("--until-end", "until_end", flag_value="end", default=None,
              help="Stop at the end as it was when the command started. The default, except with "
                   "--from latest.")
@click.option("--follow", "-f", "until_end", flag_value="follow",
              help="Wait for new records until Ctrl-C.")
@click.option("--count", "-n", type=COUNT, help="Stop after this many records.")
@click.option("--rack", type=TEXT, default="",
              help="Read from replicas in this rack, where they exist.")
@click.option("--isolation", type=Word(("read_committed", "read_uncommitted")),
              default="read_committed", show_default=True,
              help="read_uncommitted also shows records that a sink has staged and not committed.")
@click.option("--skip-unreadable", is_flag=True,
              help="Skip batches that cannot be decoded, with a note for each.")
@click.option("--format", "form", type=Word(("raw", "json")), default="raw", show_default=True,
              help="raw: the value and a newline. json: an object per line.")
@json_option
@servers_option
@click.pass_obj
def consume(session: Session, topic: str, partition: int | None, start: str | int | At,
            until_end: str | None, count: int | None, rack: str, isolation: str,
            skip_unreadable: bool, form: str, as_json: bool) -> None:
    """Write the records of TOPIC to standard output.

    Partitions are read concurrently: order holds within each. A read to the end that stops before
    it, because a transaction of a sink is open, exits with 6.
    """
    follow = until_end == "follow" or (until_end is None and start == "latest")
    encode = _json_lines if as_json or form == "json" else _raw_lines
    with connection.open_session(session) as client:
        rows = connection.partitions(client, topic)
        connection.require_partition(topic, rows, partition)
        if isinstance(start, int):
            if partition is None and len(rows) > 1:
                raise click.UsageError(f"--from {start} needs --partition: {topic} has "
                                       f"{plural(len(rows), 'partition')}.")
            connection.require_offset(topic, rows[partition or 0], start)
        batches = connection.batches(client, topic, partition, start, not follow, rack, isolation)
        expected = None if follow else _expected(rows, partition, start)
        opened = _skipping if skip_unreadable else _opened
        if _write(report_waits(batches), encode, count, expected, follow, opened):
            _require_all(batches.unread)


def _opened(batch: Any) -> Sequence[Any]:
    """Return the records of a batch."""
    return batch.records()


def _skipping(batch: Any) -> Sequence[Any]:
    """Return the records of a batch; if it cannot be decoded print a note and return none."""
    try:
        return batch.records()
    except UnreadableBatch as error:
        note(f"Skipped: {error}.")
        return ()


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


def _expected(rows: Sequence[connection.PartitionRow], partition: int | None,
              start: str | int | At) -> int | None:
    """Return the number of records to read now, for the progress bar; None when it is not known."""
    if isinstance(start, At):
        return None
    total = 0
    for row in rows:
        if partition not in (None, row.partition):
            continue
        if row.start_offset is None or row.end_offset is None:
            return None
        first = start if isinstance(start, int) else {
            "earliest": row.start_offset, "latest": row.end_offset}[start]
        total += max(0, row.end_offset - max(first, row.start_offset))
    return total


def _write(batches: Iterable[Any], encode: Encode, count: int | None, expected: int | None,
           flush_each: bool, opened: Callable[[Any], Sequence[Any]]) -> bool:
    """Write records until the batches or ``count`` records (None = no limit) are exhausted. Return
    True if the batches are. ``flush_each``: after each batch; ``opened`` decodes a batch."""
    out = sys.stdout.buffer
    left = count
    # Output and progress on one screen would overwrite each other.
    with progress_bar(hidden=sys.stdout.isatty()) as progress:
        bar = progress.add_task("records", total=count or expected)
        for batch in batches:
            records = opened(batch)
            if left is not None:
                records = records[:left]
                left -= len(records)
            out.write(encode(batch, records))
            progress.advance(bar, len(records))
            if flush_each:
                out.flush()  # a follower waits for each record
            if left == 0:
                break
    out.flush()
    return left != 0


def _raw_lines(_batch: Any, records: Sequence[Any]) -> bytes:
    return b"".join([line for record in records for line in (record.value or b"", b"\n")])


def _json_lines(batch: Any, records: Sequence[Any]) -> bytes:
    lines = []
    for record in records:
        row = {"partition": batch.partition, "offset": record.offset,
               "timestamp": record.timestamp_ms, **_text("key", record.key),
               **_text("value", record.value)}
        if record.headers:
            row["headers"] = [_text("value", value)
                              | _text("name", name.encode("utf-8", "surrogateescape"))
                              for name, value in record.headers]
        lines.append(json.dumps(row, ensure_ascii=False))
    return "".join(f"{line}\n" for line in lines).encode("utf-8")


def _text(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return ``{"key": text}``, or ``{"key_base64": ...}`` when the bytes are not UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode("ascii")}
