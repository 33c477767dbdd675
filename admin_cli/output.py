"""Tables, JSON and progress.

Contract.  Answers go to standard output, progress and notes to standard error.  A table is drawn
for a terminal and printed as plain aligned columns otherwise, never cut to a width nobody has.
JSON is one line when piped, so that one answer is one line for `jq`, `grep` and logs.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
from rich import box
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


def console(err: bool = False) -> Console:
    """A console for the stream as it is *now* (tests and redirections replace ``sys.stdout``)."""
    stream = sys.stderr if err else sys.stdout
    return Console(file=stream, highlight=False)


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


def write_file(path: Path, content: bytes) -> None:
    """Raises ``CommandFailed`` when the file cannot be written."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise CommandFailed(f"{path} cannot be written: {error.strerror}.") from error


def print_json(value: object, one_line: bool = False) -> None:
    """``value`` as JSON on standard output: indented for a person, one line for a program."""
    indent = 2 if sys.stdout.isatty() and not one_line else None
    click.echo(json.dumps(value, indent=indent, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A header and rows; columns of numbers are right-aligned, ``None`` is a dash."""
    rows = [list(row) for row in rows]
    numeric = [bool(rows) and all(isinstance(row[position], (int, float, type(None)))
                                  for row in rows) for position in range(len(columns))]
    cells = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    out = console()
    if not out.is_terminal:
        _print_aligned([list(columns), *cells], numeric)
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)
    for name, right in zip(columns, numeric, strict=True):
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    out.print(table)


def _print_aligned(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> None:
    widths = [max(len(row[position]) for row in rows) for position in range(len(right))]
    for row in rows:
        padded = [cell.rjust(width) if at_right else cell.ljust(width)
                  for cell, width, at_right in zip(row, widths, right, strict=True)]
        click.echo("  ".join(padded).rstrip())


def clear_screen() -> None:
    """A terminal is cleared, and what follows is shown from its top; a pipe gets a blank line."""
    click.echo("\x1b[H\x1b[2J" if sys.stdout.isatty() else "", nl=not sys.stdout.isatty())


def note(text: str) -> None:
    """A sentence for the person at the terminal, on standard error."""
    click.echo(text, err=True)


def progress_bar(hidden: bool = False) -> Progress:
    """A bar on standard error that shows nothing when that is not a terminal (or ``hidden``)."""
    err = console(err=True)
    return Progress(SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=30),
                    MofNCompleteColumn(), TimeElapsedColumn(), console=err,
                    disable=hidden or not err.is_terminal, transient=True)


def plural(count: int, noun: str) -> str:
    """``1 record``, ``2 records``, ``12,000 records``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
