"""Figures: measurements with their targets, and how they are printed.

Contract.  A figure is judged on the median of its repetitions; the spread is printed beside it, so
that a reader sees how reliable the number is.  One JSON line per figure goes to standard output,
the table to standard error: ``make bench-first-light > figures.jsonl`` keeps both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import NamedTuple, Sequence

from rich.console import Console
from rich.table import Table

#: A table in a pipe has no width of its own.
TABLE_COLUMNS_MIN = 140


class Series(NamedTuple):
    """Repetitions of one measurement."""

    name: str
    unit: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def as_text(self) -> str:
        """Return median and spread as text."""
        return (f"{self.median:,.4g} {self.unit} "
                f"({min(self.values):,.4g} .. {max(self.values):,.4g})")


class Figure(NamedTuple):
    """A measurement against its target.  ``compared`` is the judged value: the median's ratio to
    the yardstick, or, without one, the median or the worst repetition itself."""

    name: str
    measured: Series
    yardstick: Series | None
    compared: float
    target: float
    at_least: bool  # the target is a lower bound; else an upper one

    @property
    def holds(self) -> bool:
        if self.at_least:
            return self.compared >= self.target
        return self.compared <= self.target

    def as_json(self) -> str:
        """Return one JSON line with every measured value, and whether the target holds."""
        line = {
            "figure": self.name, "holds": self.holds,
            "ratio" if self.yardstick else "judged": round(self.compared, 4),
            "target": f"{'>=' if self.at_least else '<='} {self.target}",
            "median": round(self.measured.median, 4), "unit": self.measured.unit,
            "values": [round(value, 4) for value in self.measured.values]}
        if self.yardstick:
            line |= {"yardstick": self.yardstick.name,
                     "yardstick_median": round(self.yardstick.median, 4),
                     "yardstick_values": [round(value, 4) for value in self.yardstick.values]}
        return json.dumps(line)


class Unmeasured(NamedTuple):
    """A figure that could not be measured, and the reason."""

    name: str
    reason: str

    def as_json(self) -> str:
        """Return one JSON line with the reason."""
        return json.dumps({"figure": self.name, "not_measured": self.reason})


def compare(name: str, measured: Series, yardstick: Series, target: float, *,
            at_least: bool) -> Figure:
    """Return a figure from two series; their medians are divided.  A yardstick of zero (an idle
    cluster that sends no frame at all) compares as 1 when the measurement is zero too."""
    below = yardstick.median
    ratio = measured.median / below if below else (1.0 if not measured.median else float("inf"))
    return Figure(name, measured, yardstick, ratio, target, at_least)


def bound(name: str, measured: Series, target: float, *, at_least: bool,
          worst: bool = False) -> Figure:
    """Return a figure in its own unit: its median is judged, or with ``worst`` the worst
    repetition."""
    judged = measured.median
    if worst:
        judged = min(measured.values) if at_least else max(measured.values)
    return Figure(name, measured, None, judged, target, at_least)


def say(text: str) -> None:
    """Print progress to standard error: a run takes minutes."""
    print(f"  {text}", file=sys.stderr, flush=True)


def add_picture_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--picture FILE`` to the options of a benchmark."""
    parser.add_argument("--picture", type=_svg, metavar="FILE",
                        help="draw the figures into this .svg file (needs matplotlib)")


def _svg(name: str) -> Path:
    path = Path(name)
    if path.suffix != ".svg" or not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{name} is no .svg file in a directory that exists")
    return path


def show(title: str, figures: Sequence[Figure | Unmeasured], remarks: Sequence[str],
         picture: Path | None = None) -> None:
    """Print JSON lines for programs and a table for people, and draw the figures into
    ``picture``."""
    for figure in figures:
        print(figure.as_json(), flush=True)
    table = Table(title=title)
    for column in ("figure", "measured (median, spread)", "yardstick (median, spread)", "judged",
                   "target", ""):
        table.add_column(column, overflow="fold")
    for figure in figures:
        if isinstance(figure, Unmeasured):
            table.add_row(figure.name, f"not measured: {figure.reason}")
            continue
        table.add_row(figure.name, figure.measured.as_text(),
                      f"{figure.yardstick.name}: {figure.yardstick.as_text()}"
                      if figure.yardstick else "",
                      f"{figure.compared:.3g}",
                      f"{'>=' if figure.at_least else '<='} {figure.target:g}",
                      "[green]holds[/]" if figure.holds else "[red]missed[/]")
    console = Console(stderr=True)
    console.width = max(console.width, TABLE_COLUMNS_MIN)
    console.print(table)
    for remark in remarks:
        console.print(remark)
    if picture is not None:
        from benchmarks import picture as pictures  # matplotlib is needed for this only

        pictures.draw(title, [json.loads(figure.as_json()) for figure in figures
                              if isinstance(figure, Figure)], picture)
        say(f"drawn: {picture}")
