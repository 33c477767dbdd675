"""Tables, JSON and progress.

Contract.  Answers go to standard output, progress and notes to standard error.  A table is drawn
for a terminal and printed as plain aligned columns otherwise, never cut to a width.  JSON is one
line when piped, so that one answer is one line for `jq`, `grep` and logs.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text

from admin_cli.failures import CommandFailed
from admin_cli.text import in_one_line, json_printable, printable

#: Cells that are longer are prose, and wrapped between words on a narrow terminal.
PROSE_COLUMNS = 24
#: Columns of the terminal between two columns of a table.
TABLE_GAP = 2
#: Space between two values of a row that takes several lines, and before its continuation lines.
PAIR_GAP = "  "
INDENT = "  "


def console(err: bool = False) -> Console:
    """Return a console for standard output or, with ``err``, standard error, as they are now (tests
    and redirections replace them)."""
    stream = sys.stderr if err else sys.stdout
    # Its size is passed: Rich would misread COLUMNS and LINES that are not numbers.
    size = shutil.get_terminal_size()
    return Console(file=stream, highlight=False, width=size.columns, height=size.lines)


def check_file(path: Path | None) -> None:
    """Return if ``path`` can be written (None always), before its content is computed; create
    nothing. Raises ``CommandFailed`` otherwise."""
    if path is None:
        return
    if not path.parent.is_dir():
        raise CommandFailed(f"{path} cannot be written: there is no directory {path.parent}.",
                            "Make it, or name another file.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise CommandFailed(f"{path} cannot be written: permission denied.",
                            "Name a file that you may write.")


def read_file(path: Path, bytes_max: int) -> bytes:
    """Return the content of a file, at most ``bytes_max`` + 1 bytes, because devices have no end.
    Raises ``OSError``."""
    with open(path, "rb") as file:
        return file.read(bytes_max + 1)


def write_file(path: Path, content: bytes) -> None:
    """Write a file.  Raises ``CommandFailed`` when it cannot be written."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise CommandFailed(f"{path} cannot be written: {error.strerror}.") from error


def say(text: str = "") -> None:
    """Print one or several lines of an answer to standard output, control characters escaped."""
    _write_text(f"{printable(text)}\n")


def _write_text(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def print_json(value: object, one_line: bool = False) -> None:
    """Print ``value`` as JSON to standard output: indented on a terminal, else one line.
    Characters that the stream's encoding lacks are escaped."""
    indent = 2 if sys.stdout.isatty() and not one_line else None
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        text = json.dumps(value, indent=indent)
    _write_text(f"{json_printable(text)}\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a header and rows; columns of numbers are right-aligned, ``None`` is a dash.

    On a terminal that is too narrow, columns of prose are wrapped between words; when that is not
    enough each row becomes lines of names and values.  No word and no address is cut.
    """
    rows = [list(row) for row in rows]
    numeric = [bool(rows) and all(isinstance(row[position], (int, float, type(None)))
                                  for row in rows) for position in range(len(columns))]
    cells = [["-" if cell is None else in_one_line(str(cell)) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        _print_aligned([list(columns), *cells], numeric)
        return
    widths = table_widths(columns, cells, terminal_columns())
    if widths is None:
        _write_text("".join(f"{line}\n" for line in
                            row_lines(columns, cells, terminal_columns())))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)
    for name, right, width in zip(columns, numeric, widths, strict=True):
        table.add_column(name, justify="right" if right else "left", width=width)
    for row in cells:
        table.add_row(*map(Text, row))
    console().print(table)


def table_widths(columns: Sequence[str], cells: Sequence[Sequence[str]],
                 room: int) -> list[int] | None:
    """Return the widths of a table in ``room`` columns of a terminal, or None when it does not fit
    without cutting words.  Headers and prose are wrapped between words, other cells are not
    wrapped."""
    least, widths = [], []
    for position, name in enumerate(columns):
        texts = [row[position] for row in cells]
        longest = max(map(cell_len, texts), default=0)
        wrapped = _longest_word(texts) if longest > PROSE_COLUMNS else longest
        least.append(max(wrapped, _longest_word([name])))
        widths.append(max(longest, cell_len(name)))
    room -= TABLE_GAP * (len(columns) - 1)
    while (over := sum(widths) - room) > 0:
        position = max(range(len(widths)), key=lambda at: widths[at] - least[at])
        if widths[position] == least[position]:
            return None
        widths[position] -= min(over, widths[position] - least[position])
    return widths


def _longest_word(texts: Iterable[str]) -> int:
    return max((cell_len(word) for text in texts for word in text.split()), default=0)


def row_lines(columns: Sequence[str], cells: Sequence[Sequence[str]], room: int) -> list[str]:
    """Return each row as lines of ``name value``, the first of which begins at the margin; empty
    cells are left out.

    A line ends before a pair that does not fit; a pair that is wider than ``room`` is broken
    between words."""
    lines = []
    for row in cells:
        line = ""
        for name, cell in zip(columns, row, strict=True):
            pair = f"{name} {cell}".strip()
            if not cell or not pair:
                continue
            joined = f"{line}{PAIR_GAP}{pair}" if line.strip() else f"{line}{pair}"
            if cell_len(joined) <= room:
                line = joined
                continue
            if line.strip():
                lines.append(line)
                line = INDENT
            *full, line = textwrap.wrap(pair, max(room, 1), initial_indent=line,
                                        subsequent_indent=2 * INDENT, break_long_words=False,
                                        break_on_hyphens=False)
            lines += full
        lines.append(line)
    return lines


def terminal_columns() -> int:
    """Return the terminal's columns, or COLUMNS when that is a number above 0."""
    return shutil.get_terminal_size().columns


def _print_aligned(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> None:
    widths = [max(len(row[position]) for row in rows) for position in range(len(right))]
    lines = []
    for row in rows:
        padded = [cell.rjust(width) if at_right else cell.ljust(width)
                  for cell, width, at_right in zip(row, widths, right, strict=True)]
        lines.append("  ".join(padded).rstrip())
    _write_text("".join(f"{line}\n" for line in lines))


def clear_screen() -> None:
    """Clear a terminal, so that output starts at its top; a pipe gets a blank line."""
    _write_text("\x1b[H\x1b[2J" if sys.stdout.isatty() else "\n")


def note(text: str) -> None:
    """Print a sentence to standard error, control characters escaped."""
    click.echo(printable(text), err=True)


def progress_bar(hidden: bool = False) -> Progress:
    """Return a bar on standard error that shows nothing when that is not a terminal (or
    ``hidden``)."""
    err = console(err=True)
    return Progress(SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=30),
                    MofNCompleteColumn(), TimeElapsedColumn(), console=err,
                    disable=hidden or not err.is_terminal, transient=True)


class _Rate(ProgressColumn):
    """Records per second of late."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s")


def record_bar(hidden: bool = False, total: int | None = None) -> Progress:
    """Return progress of records on standard error: their number, their rate, and a bar when the
    ``total`` is known. It shows nothing when that is not a terminal (or ``hidden``)."""
    err = console(err=True)
    bar = [] if total is None else [BarColumn(bar_width=30)]
    return Progress(SpinnerColumn(), *bar,
                    TextColumn("{task.completed:,} records" if total is None else
                               "{task.completed:,} of {task.total:,} records"),
                    _Rate(), TimeElapsedColumn(), console=err,
                    disable=hidden or not err.is_terminal, transient=True)


def plural(count: int, noun: str) -> str:
    """Return a counted noun: ``1 record``, ``2 records``, ``12,000 records``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
