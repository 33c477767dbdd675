"""Tables, JSON and progress.

Contract.  Answers go to standard output, progress and notes to standard error.  A table is drawn
for a terminal and printed as plain aligned columns otherwise, never cut to a width nobody has.
JSON is one line when piped, so that one answer is one line for `jq`, `grep` and logs.
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
    SpinnerColumn,
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
#: Between two values of a row that takes lines, and before lines that go on with one.
PAIR_GAP = "  "
INDENT = "  "


def console(err: bool = False) -> Console:
    """A console for the stream as it is *now* (tests and redirections replace ``sys.stdout``)."""
    stream = sys.stderr if err else sys.stdout
    # Its size is given: Rich takes COLUMNS and LINES for numbers that they may not be.
    size = shutil.get_terminal_size()
    return Console(file=stream, highlight=False, width=size.columns, height=size.lines)


def check_file(path: Path | None) -> None:
    """Raises ``CommandFailed`` for a file that cannot be written, before work is spent on what
    shall be in it; nothing is created."""
    if path is None:
        return
    if not path.parent.is_dir():
        raise CommandFailed(f"{path} cannot be written: there is no directory {path.parent}.",
                            "Make it, or name another file.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise CommandFailed(f"{path} cannot be written: permission denied.",
                            "Name a file that you may write.")


def read_file(path: Path, bytes_max: int) -> bytes:
    """What is in a file, up to one byte more than it may have: devices have no end.  Raises
    ``OSError``."""
    with open(path, "rb") as file:
        return file.read(bytes_max + 1)


def write_file(path: Path, content: bytes) -> None:
    """Raises ``CommandFailed`` when the file cannot be written."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise CommandFailed(f"{path} cannot be written: {error.strerror}.") from error


def say(text: str = "") -> None:
    """A line, or several, of an answer on standard output."""
    _write_text(f"{printable(text)}\n")


def _write_text(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def print_json(value: object, one_line: bool = False) -> None:
    """``value`` as JSON on standard output: indented for a person, one line for a program.  What
    the stream's encoding does not have is escaped, as JSON can be."""
    indent = 2 if sys.stdout.isatty() and not one_line else None
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        text = json.dumps(value, indent=indent)
    _write_text(f"{json_printable(text)}\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A header and rows; columns of numbers are right-aligned, ``None`` is a dash.

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
    """Columns of a table in ``room`` columns of a terminal, or None when it does not fit without
    cutting words.  Headers and prose are wrapped between words, other cells are not wrapped."""
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
    """Each row as lines of ``name value``, the first of which begins at the margin.  A line ends
    before a pair that does not fit; a pair that is wider than all ``room`` breaks between words."""
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
    """Of the terminal, or what COLUMNS says when that is a number above 0."""
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
    """A terminal is cleared, and what follows is shown from its top; a pipe gets a blank line."""
    _write_text("\x1b[H\x1b[2J" if sys.stdout.isatty() else "\n")


def note(text: str) -> None:
    """A sentence for the person at the terminal, on standard error."""
    click.echo(printable(text), err=True)


def progress_bar(hidden: bool = False) -> Progress:
    """A bar on standard error that shows nothing when that is not a terminal (or ``hidden``)."""
    err = console(err=True)
    return Progress(SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=30),
                    MofNCompleteColumn(), TimeElapsedColumn(), console=err,
                    disable=hidden or not err.is_terminal, transient=True)


def plural(count: int, noun: str) -> str:
    """``1 record``, ``2 records``, ``12,000 records``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
