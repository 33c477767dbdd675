"""`multiraft produce`: lines become records.

Contract.  A line is a record, without its newline; the last one may lack it.  Input is read in
blocks, so a pipe of any length needs a bounded amount of memory, and an open batch is sent when the
input pauses.  At any end (end of input, Ctrl-C, an error) the last line tells the number of
acknowledged and of ambiguous records.
"""

from __future__ import annotations

import io
import os
import select
import stat
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple

import click

from admin_cli import connection
from admin_cli.connection import Appender, RecordRefused, sentence
from admin_cli.failures import Ambiguous, CommandFailed, reason
from admin_cli.help_pages import HelpfulCommand
from admin_cli.numbers import PARTITION
from admin_cli.options import (
    ACKS,
    ACKS_ALIASES,
    COMPRESSIONS,
    Word,
    json_option,
    servers_option,
    topic_argument,
)
from admin_cli.output import note, plural, print_json, progress_bar
from admin_cli.session import Session
from admin_cli.streams import ReaderGone, StreamFailed
from multiraft.client.blocking import VALUE_BYTES_MAX

#: Input that is read at once: a few batches.
BLOCK_BYTES = 1 << 20
#: The longest record that nodes take, with one batch for itself.
LINE_BYTES_MAX = VALUE_BYTES_MAX
#: Input that pauses this long is typed or slow: the open batch is sent.
PAUSE_S = 0.01
LINES_BEFORE = "The lines before it were sent."
#: Time to wait for sent records after Ctrl-C, in seconds.
INTERRUPTED_FLUSH_S = 5.0


class InputError(CommandFailed):
    """A line that cannot be a record."""


class Lines(NamedTuple):
    """Some lines of the input; ``first`` is the number of the first one, from 1."""

    first: int
    values: list[bytes]
    bytes_read: int


@click.command(cls=HelpfulCommand)
@topic_argument
@click.option("--file", "-f", "source", type=click.File("rb"), default="-", metavar="F",
              help="File to read. [default: standard input]")
@click.option("--acks", type=Word(ACKS, ACKS_ALIASES), default="commit", show_default=True,
              help="commit: a majority has it on disk. leader: the leader has it. none: no answer.")
@click.option("--key-separator", metavar="S",
              help="Text before the first S of a line is the record's key.")
@click.option("--partition", "-p", type=PARTITION,
              help="Append to this partition. [default: by the key, or spread]")
@click.option("--compression", type=Word(COMPRESSIONS), default="none", show_default=True)
@json_option
@servers_option
@click.pass_obj
def produce(session: Session, topic: str, source: BinaryIO, acks: str, key_separator: str | None,
            partition: int | None, compression: str, as_json: bool) -> None:
    """Append records to TOPIC: a line is a record.

    Retries neither duplicate nor reorder records. The outcome of a record is ambiguous when no
    answer came in time: it may or may not have been appended.
    """
    separator = None if key_separator is None else os.fsencode(key_separator)
    if separator == b"":
        raise click.UsageError("--key-separator is empty.")
    appender, problem = None, None
    try:
        with connection.open_session(session) as client:
            connection.require_partition(topic, connection.partitions(client, topic), partition)
            with connection.appender(client, topic, partition, acks, compression) as appender:
                _pump(source, separator, appender, session)
    except (KeyboardInterrupt, CommandFailed) as error:
        if appender is None:
            raise
        problem = error
    _conclude(topic, acks, appender, problem, as_json)


def _pump(source: BinaryIO, separator: bytes | None, appender: Appender,
          session: Session) -> None:
    """Append all of the input, up to the first failure, and wait for the outcomes however reading
    ends. Raises ``CommandFailed``, ``KeyboardInterrupt``."""
    try:
        with progress_bar() as progress:
            bar = progress.add_task("bytes", total=_size(source))
            for lines in read_lines(source, appender.flush):
                _append(lines, separator, appender, session)
                progress.advance(bar, lines.bytes_read)
                if appender.problem is not None:
                    break
            appender.flush()
    except CommandFailed:
        appender.flush()
        raise
    except KeyboardInterrupt:
        appender.flush_within(INTERRUPTED_FLUSH_S)
        raise


def _append(lines: Lines, separator: bytes | None, appender: Appender, session: Session) -> None:
    """Hand lines over to the appender, up to the first that cannot be a record. Raises
    ``InputError`` for that one."""
    keys, values, problem = _split(lines, separator)
    try:
        appender.append(keys, values)
    except RecordRefused as refused:
        number, value = lines.first + refused.position, values[refused.position]
        why = connection.explain(refused.error, session.servers())
        raise InputError(f"line {number:,}, of {plural(len(value), 'byte')}, was refused: "
                         f"{why.message}", why.do or LINES_BEFORE, why.exit_code) from refused
    if problem is not None:
        raise problem


def _split(lines: Lines, separator: bytes | None,
           ) -> tuple[list[bytes] | None, list[bytes], InputError | None]:
    """Return keys and values of the lines up to the first without the separator, and the error of
    that line (None = none). Keys are None when lines are not split."""
    if separator is None:
        return None, lines.values, None
    keys: list[bytes] = []
    values: list[bytes] = []
    for number, line in enumerate(lines.values, lines.first):
        key, found, value = line.partition(separator)
        if not found:
            return keys, values, InputError(f"line {number:,} has no {os.fsdecode(separator)!r}, "
                                            f"the key separator.", LINES_BEFORE)
        keys.append(key)
        values.append(value)
    return keys, values, None


def _conclude(topic: str, acks: str, appender: Appender,
              problem: KeyboardInterrupt | CommandFailed | None, as_json: bool) -> None:
    """Print the counts. Then raise ``problem``, or a failure for records that are ambiguous or
    refused; ambiguous ones determine the exit code first."""
    failed = _failure(topic, appender)
    if isinstance(failed, Ambiguous) and isinstance(problem, CommandFailed):
        problem.show()
        ending: KeyboardInterrupt | CommandFailed | None = failed
    else:
        ending = problem or failed
    try:
        if as_json:
            print_json({"topic": topic, "records": appender.sent,
                        "acknowledged": appender.acknowledged, "ambiguous": appender.ambiguous,
                        "refused": appender.refused})
        else:
            note(_summary(topic, acks, appender))
    except (StreamFailed, ReaderGone) as lost:
        if ending is None:
            raise
        lost.show()
    if ending is not None:
        raise ending


def _failure(topic: str, appender: Appender) -> CommandFailed | None:
    """Return the failure for records that were refused or are ambiguous; None = all were
    acknowledged."""
    problem = appender.problem
    if appender.refused:
        assert problem is not None
        return CommandFailed(f"{plural(appender.refused, 'record')} refused: "
                             f"{sentence(problem)}",
                             "Acknowledged records are safe; input after the refusal was not read.")
    if appender.ambiguous:
        assert problem is not None
        return Ambiguous(f"{plural(appender.ambiguous, 'record')} may or may not have been "
                         f"appended: {sentence(problem)}",
                         "Check the end of the topic before you repeat them: multiraft topic "
                         f"describe {topic}")
    return None


def _summary(topic: str, acks: str, appender: Appender) -> str:
    if acks == "none":
        return f"{topic}: {plural(appender.sent, 'record')} sent, none confirmed (--acks none)."
    parts = [f"{plural(appender.acknowledged, 'record')} acknowledged"]
    parts += [f"{count} {how}" for count, how in ((appender.ambiguous, "ambiguous"),
                                                  (appender.refused, "refused")) if count]
    return f"{topic}: {', '.join(parts)} ({acks})."


def read_lines(source: BinaryIO, pause: Callable[[], object]) -> Iterator[Lines]:
    """Yield the input in blocks of whole lines; call ``pause`` before waiting for slow input.

    Raises ``InputError`` for a line over ``LINE_BYTES_MAX`` and for input that cannot be read,
    after all lines before it were yielded.
    """
    # read1 returns the available bytes, even if they are few
    read = getattr(source, "read1", source.read)
    rest, number = b"", 1
    while True:
        if not _has_input(source):
            pause()
        try:
            block = read(BLOCK_BYTES)
        except OSError as error:
            raise InputError(f"{source.name} cannot be read: {reason(error)}.",
                             LINES_BEFORE) from error
        if not block:
            break
        *values, rest = (rest + block).split(b"\n")
        yield Lines(number, values, len(block))
        number += len(values)
        if len(rest) > LINE_BYTES_MAX:
            raise InputError(f"line {number:,} is longer than {LINE_BYTES_MAX} bytes, the most "
                             f"that a record may have.",
                             f"A record is a line; is this a binary file? {LINES_BEFORE}")
    if rest:
        yield Lines(number, [rest], 0)


def _has_input(source: BinaryIO) -> bool:
    """Return True if reading would return within ``PAUSE_S``; True also for sources without a
    descriptor."""
    try:
        descriptor = source.fileno()
    except (io.UnsupportedOperation, AttributeError):
        return True
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    return bool(waiting.poll(1_000 * PAUSE_S))


def _size(source: BinaryIO) -> int | None:
    """Return the bytes of a regular file, for the progress bar; None for a pipe."""
    try:
        status = os.fstat(source.fileno())
    except (io.UnsupportedOperation, AttributeError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
