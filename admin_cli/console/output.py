"""Tables, JSON and progress.

Contract.  Answers go to standard output, progress and notes to standard error.  A table is drawn
for a terminal and printed as plain aligned columns otherwise, never cut to a width.  JSON is one
line when piped, so that one answer is one line for `jq`, `grep` and logs.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import click
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleDimensions
from rich.live import Live
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
from admin_cli.values.text import in_one_line, json_printable, printable

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


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]],
                drop: Sequence[str] = (), wide: bool = False) -> None:
    """Print a header and rows; columns of numbers are right-aligned, ``None`` is a dash.

    On a terminal that is too narrow, the columns named in ``drop`` are left out, the first one
    first, until the others fit, and a last line names them; the command must have ``--wide``. With
    ``wide`` no column is left out and no cell is wrapped, whatever the width. Without ``drop``, and
    when that is not enough, columns of prose and headers are wrapped between words; when that is
    not enough each row becomes lines of names and values. No word and no address is cut.
    """
    rows = [list(row) for row in rows]
    numeric = [bool(rows) and all(isinstance(row[position], (int, float, type(None)))
                                  for row in rows) for position in range(len(columns))]
    cells = [["-" if cell is None else in_one_line(str(cell)) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        _print_aligned([list(columns), *cells], numeric)
        return
    if wide:
        _print_drawn(columns, cells, numeric, _full_widths(columns, cells))
        return
    kept = kept_columns(columns, cells, terminal_columns(), drop)
    names, numeric = [columns[at] for at in kept], [numeric[at] for at in kept]
    cells = [[row[at] for at in kept] for row in cells]
    widths = table_widths(names, cells, terminal_columns())
    if widths is None:
        _write_text("".join(f"{line}\n" for line in
                            row_lines(names, cells, terminal_columns())))
    else:
        _print_drawn(names, cells, numeric, widths)
    left_out = [name for name in columns if name and name not in names]
    if left_out:
        _write_text(f"(--wide also shows: {', '.join(left_out)})\n")


def _print_drawn(columns: Sequence[str], cells: Sequence[Sequence[str]], numeric: Sequence[bool],
                 widths: Sequence[int]) -> None:
    """Draw a table whose columns have these widths."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold",
                  show_edge=False)
    for name, right, width in zip(columns, numeric, widths, strict=True):
        table.add_column(name, justify="right" if right else "left", width=width)
    for row in cells:
        table.add_row(*map(Text, row))
    screen = console()
    screen.width = max(screen.width, _columns_of(widths))
    screen.print(table)


def kept_columns(columns: Sequence[str], cells: Sequence[Sequence[str]], room: int,
                 drop: Sequence[str]) -> list[int]:
    """Return the positions of the columns that are shown in ``room`` columns of a terminal: those
    left when names of ``drop`` are removed, in order, until the table fits. All positions when it
    never fits, because lines of names and values have room for all."""
    for count in range(len(drop) + 1):
        kept = [at for at, name in enumerate(columns) if name not in drop[:count]]
        widths = _full_widths([columns[at] for at in kept],
                              [[row[at] for at in kept] for row in cells], PROSE_COLUMNS)
        if _columns_of(widths) <= room:
            return kept
    return list(range(len(columns)))


def _full_widths(columns: Sequence[str], cells: Sequence[Sequence[str]],
                 prose: int | None = None) -> list[int]:
    """Return the widths of columns whose headers and cells are not wrapped; with ``prose``, cells
    of prose are wrapped to so many columns, or to their longest word."""
    widths = []
    for position, name in enumerate(columns):
        texts = [row[position] for row in cells]
        longest = max(map(cell_len, texts), default=0)
        if prose is not None and longest > prose:
            longest = max(prose, _longest_word(texts))
        widths.append(max(longest, cell_len(name)))
    return widths


def _columns_of(widths: Sequence[int]) -> int:
    """Return the columns of a terminal that a table with these widths takes."""
    return sum(widths) + TABLE_GAP * (len(widths) - 1)


def table_widths(columns: Sequence[str], cells: Sequence[Sequence[str]],
                 room: int) -> list[int] | None:
    """Return the widths of a table in ``room`` columns of a terminal, or None when it does not fit
    without cutting words.  Prose is wrapped between words, then headers are; other cells are not
    wrapped."""
    widths = _full_widths(columns, cells)
    prose = _full_widths(columns, cells, PROSE_COLUMNS)
    least = []
    for position, name in enumerate(columns):
        texts = [row[position] for row in cells]
        longest = max(map(cell_len, texts), default=0)
        least.append(max(_longest_word(texts) if longest > PROSE_COLUMNS else longest,
                         _longest_word([name])))
    for bounds in (prose, least):
        while (over := _columns_of(widths) - room) > 0:
            position = max(range(len(widths)), key=lambda at: widths[at] - bounds[at])
            spare = widths[position] - bounds[position]
            if spare <= 0:
                break
            widths[position] -= min(over, spare)
        else:
            return widths
    return None


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


@contextlib.contextmanager
def refreshed() -> Iterator[Callable[[Callable[[], object]], None]]:
    """Yield a function that runs its argument and shows what that prints, in the place of what the
    call before has shown.

    A terminal's other screen is used and only what differs is seen to change; lines that it has no
    space for are counted, and lines too long are cut. At the end, also at Ctrl-C, the terminal is
    as before, and the last output follows in full. A pipe gets all outputs with an empty line
    before each."""
    screen = console()
    if not screen.is_terminal or screen.is_dumb_terminal:
        def append(draw: Callable[[], object]) -> None:
            _write_text("\n")
            draw()

        yield append
        return
    last = ""
    with Live(console=screen, screen=True, auto_refresh=False, redirect_stdout=False,
              redirect_stderr=False) as live:
        def replace(draw: Callable[[], object]) -> None:
            nonlocal last
            last = _drawn(draw)
            screen.size = ConsoleDimensions(*shutil.get_terminal_size())
            shown = "\n".join(_first_lines(last.splitlines(), screen.height))
            live.update(Text.from_ansi(shown, no_wrap=True, overflow="crop"), refresh=True)

        try:
            yield replace
        finally:
            live.stop()
            _write_text(last)


class _TerminalText(io.TextIOWrapper):
    """Text that is collected for a terminal."""

    def isatty(self) -> bool:
        return True


def _drawn(draw: Callable[[], object]) -> str:
    """Return what ``draw`` prints to standard output, as for a terminal."""
    encoding, collected = sys.stdout.encoding or "ascii", io.BytesIO()
    with contextlib.redirect_stdout(_TerminalText(collected, encoding, "backslashreplace")) as text:
        draw()
        text.flush()
    return collected.getvalue().decode(encoding)


def _first_lines(lines: list[str], room: int) -> list[str]:
    """Return the lines if there is ``room`` for all, else the first of them and how many follow."""
    if len(lines) <= room:
        return lines
    shown = max(room - 1, 0)
    return [*lines[:shown], f"... and {plural(len(lines) - shown, 'line')} more"]


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
