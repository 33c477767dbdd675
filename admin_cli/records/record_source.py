"""Input of `produce` as records: lines, lines of JSON, or a format.

Contract.  Input is read in blocks, so a pipe of any length needs a bounded amount of memory.  What
stands before a mistake is yielded before ``InputError`` is raised; the error names the line or
record, counted from 1.
"""

from __future__ import annotations

import io
import select
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, NamedTuple

from admin_cli.failures import CommandFailed, reason
from admin_cli.records import record_json
from admin_cli.records.format_input import InputFormat, Row
from multiraft.client.blocking import VALUE_BYTES_MAX

#: Input that is read at once: a few batches.
BLOCK_BYTES = 1 << 20
#: The longest record that nodes take, with one batch for itself.
LINE_BYTES_MAX = VALUE_BYTES_MAX
#: The longest text of a record in JSON or a format: a byte becomes six characters (``\u0000``) at
#: most, and a key may stand beside the value.
TEXT_BYTES_MAX = 8 * VALUE_BYTES_MAX
#: Input that pauses this long is typed or slow: the open batch is sent.
PAUSE_S = 0.01
LINES_BEFORE = "The lines before it were sent."
RECORDS_BEFORE = "The records before it were sent."


class InputError(CommandFailed):
    """Input that cannot be a record."""


class Lines(NamedTuple):
    """Some lines of the input; ``first`` is the number of the first one, from 1."""

    first: int
    values: list[bytes]


class Rows(NamedTuple):
    """Some records of the input, each with a number: that of its line, or its own if ``unit`` is
    "record"."""

    numbers: Sequence[int]
    rows: list[Row]
    unit: str = "line"


Pause = Callable[[], object]  # called before slow input is awaited


def read_lines(source: BinaryIO, pause: Pause, bytes_max: int | None = None) -> Iterator[Lines]:
    """Yield the input in blocks of whole lines; call ``pause`` before waiting for slow input.

    Raises ``InputError`` for a line over ``bytes_max`` (None = ``LINE_BYTES_MAX``) and for input
    that cannot be read, after all lines before it were yielded.
    """
    limit = LINE_BYTES_MAX if bytes_max is None else bytes_max
    parts: list[bytes] = []  # of the last line, joined once: a line may come in many blocks
    size, number = 0, 1
    for block in _blocks(source, pause):
        first, *others = block.split(b"\n")
        parts.append(first)
        size += len(first)
        if others:
            values = [b"".join(parts), *others[:-1]]
            parts, size = [others[-1]], len(others[-1])
            yield Lines(number, values)
            number += len(values)
        if size > limit:
            raise InputError(f"line {number:,} is longer than {limit} bytes, the most that a "
                             f"record may have.",
                             f"A record is a line; is this a binary file? {LINES_BEFORE}")
    if size:
        yield Lines(number, [b"".join(parts)])


def read_json(source: BinaryIO, pause: Pause) -> Iterator[Rows]:
    """Yield the records of lines of JSON; empty lines are left out.  Raises ``InputError``."""
    for lines in read_lines(source, pause, TEXT_BYTES_MAX):
        numbers: list[int] = []
        rows: list[Row] = []
        for number, line in enumerate(lines.values, lines.first):
            if not line or line.isspace():
                continue
            try:
                rows.append(record_json.parse_line(line))
            except ValueError as error:
                yield Rows(numbers, rows)
                raise InputError(f"line {number:,} is no record: {error}.",
                                 LINES_BEFORE) from error
            numbers.append(number)
        yield Rows(numbers, rows)


def read_format(source: BinaryIO, pause: Pause, form: InputFormat) -> Iterator[Rows]:
    """Yield the records that a format finds in the input.  Raises ``InputError``."""
    rest, number = b"", 1
    for block in _blocks(source, pause):
        rows, rest, error = _take(form, rest + block, False)
        yield Rows(range(number, number + len(rows)), rows, "record")
        number += len(rows)
        if error is not None:
            raise _mismatch(number, error)
        if len(rest) > TEXT_BYTES_MAX:
            raise InputError(f"record {number:,} is longer than {TEXT_BYTES_MAX} bytes, more than "
                             "any record can be.", f"Does the format fit? {RECORDS_BEFORE}")
    rows, rest, error = _take(form, rest, True)
    yield Rows(range(number, number + len(rows)), rows, "record")
    if error is not None:
        raise _mismatch(number + len(rows), error)


def _take(form: InputFormat, data: bytes,
          ended: bool) -> tuple[list[Row], bytes, ValueError | None]:
    """Return the records in some data, the rest of it, and the error that ended the reading."""
    rows: list[Row] = []
    at = 0
    try:
        while at < len(data):
            found = form.read(data, at, ended)
            if found is None:
                break
            row, at = found
            rows.append(row)
    except ValueError as error:
        return rows, data[at:], error
    return rows, data[at:], None


def _mismatch(number: int, error: ValueError) -> InputError:
    return InputError(f"record {number:,} does not fit the format: {error}.", RECORDS_BEFORE)


def _blocks(source: BinaryIO, pause: Pause) -> Iterator[bytes]:
    """Yield the input as it comes.  Raises ``InputError`` when it cannot be read."""
    # read1 returns the available bytes, even if they are few
    read = getattr(source, "read1", source.read)
    while True:
        if not _has_input(source):
            pause()
        try:
            block = read(BLOCK_BYTES)
        except OSError as error:
            raise InputError(f"{source.name} cannot be read: {reason(error)}.",
                             "The records that were read before were sent.") from error
        if not block:
            return
        yield block


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
