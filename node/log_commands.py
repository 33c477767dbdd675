"""``multiraft log ...``: offline inspection of data directories, found by the CLI through its entry
point."""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

#: Exit code: damage that no crash explains.
EXIT_DAMAGED = 1
#: Exit code: the path is no data directory and no file of one.
EXIT_NOT_OURS = 2

#: Maxima of the fields in an entry's header.
GROUP_MAX, INCARNATION_MAX, POSITION_MAX = (1 << 32) - 1, (1 << 64) - 1, (1 << 63) - 1


class _Whole(click.IntRange):
    """An integer in ASCII digits; click alone accepts everything that ``int`` does."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, str) and not re.fullmatch("[+-]?[0-9]{1,25}", value):
            self.fail(f"{value[:40]!r} is not a whole number.", param, ctx)
        return super().convert(value, param, ctx)


_COLUMNS = ("position", "kind", "group", "term", "index", "partition", "offset", "bytes", "note")
#: Values of a group in a checkpoint that are too long for people.
_JSON_ONLY = ("record_terms", "missing")
_WIDTHS = (14, 14, 6, 6, 10, 18, 12, 9, 0)


@click.group("log")
def log_group() -> None:
    """Inspect the files of a data directory."""


@log_group.command("inspect", short_help="Show entries of a data directory or of one file.")
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--group", type=_Whole(0, GROUP_MAX), help="Entries of this group only.")
@click.option("--partition", type=_Whole(0, INCARNATION_MAX),
              help="Entries of this partition incarnation only.")
@click.option("--from", "from_position", type=_Whole(0, POSITION_MAX), default=0,
              metavar="POSITION", help="Begin at this journal offset.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@click.option("--payload", is_flag=True, help="With --json: each entry's payload, as base64, and "
              "the partitions of checkpoints.")
@click.option("--verify", is_flag=True, help="Read everything, print problems only.")
def inspect(path: Path, group: int | None, partition: int | None, from_position: int,
            as_json: bool, payload: bool, verify: bool) -> None:
    """Show the entries of PATH: a data directory (of a running node too, or a copy), a segment, a
    checkpoint, a cold segment or an index file. Positions in a cold segment are bytes of the file.

    Nothing is written and no lock is taken. A place that cannot be read is called a torn tail when
    nothing proves that it ever was durable (a start cuts it off), else corruption.

    A stray file is one that the node did not write: a start ignores it, and it is no damage.

    Exit codes: 0 no damage, 1 damage, 2 PATH is no data directory and no file of one.
    """
    from multiraft.storage import (
        inspect as inspection,  # imported here, so that other commands of the CLI start fast
    )

    try:
        files = inspection.files_of(path)
    except inspection.NotADataDirectory as error:
        click.echo(f"multiraft log: {error}", err=True)
        sys.exit(EXIT_NOT_OURS)
    printer = _Printer(as_json)
    strays = inspection.strays_of(path)
    printer.strays(strays)
    durable = inspection.durable_watermark(files)
    damaged = 0
    for kind, file in files:
        found = inspection.summary(kind, file)
        damaged += bool(found.problem)
        if not verify or found.problem:
            printer.file(found)
        if kind == inspection.SEGMENT or kind == inspection.COLD and not found.problem:
            shown = (inspection.rows(file, durable, payload and as_json)
                     if kind == inspection.SEGMENT
                     else inspection.cold_rows(file, payload and as_json))
            rows = [row for row in shown
                    if row.position >= from_position and _wanted(row, group, partition)]
            damaged += sum(map(inspection.is_damaged, rows))
            printer.entries(row for row in rows if row.problem or not verify)
        elif kind == inspection.CHECKPOINT and not verify and not found.problem:
            printer.groups(inspection.group_rows(file))
            if payload and as_json:
                printer.partitions(inspection.partition_rows(file))
        elif kind in (inspection.INDEX, inspection.COLD_INDEX) and verify and not found.problem:
            problem = (inspection.verify_index(file) if kind == inspection.INDEX
                       else inspection.verify_cold_index(file))
            damaged += bool(problem)
            if problem:
                printer.file(found._replace(problem=problem))
    if not as_json:
        click.echo(f"{len(files)} files, durable up to journal offset {durable}, "
                   f"{damaged or 'no'} damaged ranges"
                   + (f", {len(strays)} stray files" if strays else ""))
    sys.exit(EXIT_DAMAGED if damaged else 0)


def _wanted(row: Any, group: int | None, partition: int | None) -> bool:
    """Return True if the row matches the group and partition to show, None = all. Unreadable places
    may belong to any group, and always match."""
    return not row.kind or ((group is None or row.group == group)
                            and (partition is None or row.partition == partition))


class _Printer:
    """The output: aligned columns for people, or one JSON object per line for programs."""

    def __init__(self, as_json: bool):
        self._as_json = as_json

    def file(self, found: Any) -> None:
        if self._as_json:
            click.echo(json.dumps({"file": found.kind, **found._asdict()}))
            return
        facts = ", ".join(f"{name} {value}" for name, value in found.facts.items())
        click.echo(f"\n{found.kind} {found.path}, {found.size} bytes"
                   + (f", {facts}" if facts else "")
                   + (f"\n  PROBLEM: {found.problem}" if found.problem else ""))

    def strays(self, found: Sequence) -> None:
        """Print the files that the node did not write."""
        for stray in found:
            if self._as_json:
                click.echo(json.dumps({"file": "stray", **stray._asdict()}))
            else:
                click.echo(f"\nstray {stray.path}\n  ignored: {stray.why}")

    def entries(self, rows: Iterable) -> None:
        header = False
        for row in rows:
            if self._as_json:
                click.echo(json.dumps(_entry(row)))
                continue
            if not header:
                _line(_COLUMNS)
                header = True
            _line((row.position, row.kind or "?", row.group if row.group >= 0 else "?", row.term,
                   row.index, row.partition or "-",
                   row.base_offset if row.base_offset >= 0 else "-", row.length,
                   "; ".join(filter(None, (row.problem, row.text)))))

    def groups(self, rows: Sequence[dict]) -> None:
        for row in rows:
            if self._as_json:
                click.echo(json.dumps({"checkpoint_group": row["group"], **row}))
                continue
            click.echo("  " + ", ".join(f"{name} {value}" for name, value in row.items()
                                        if value not in ("", []) and name not in _JSON_ONLY))

    def partitions(self, rows: Iterable[dict]) -> None:
        for row in rows:
            click.echo(json.dumps({"checkpoint_partition": row["partition"], **row}))


def _entry(row: Any) -> dict[str, object]:
    """Return the JSON object of a row, with its payload if it was read."""
    found = {"entry": row.kind or None, **row._asdict()}
    payload = found.pop("payload")
    if payload:
        found["payload"] = base64.b64encode(payload).decode()
    return found


def _line(cells: Sequence[object]) -> None:
    click.echo("  " + " ".join(f"{cell!s:<{width}}" for cell, width
                               in zip(cells, _WIDTHS, strict=True)).rstrip())
