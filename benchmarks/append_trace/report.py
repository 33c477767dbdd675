"""Table, causes and picture of traced appends.

Contract.  ``Report`` is computed from the paths alone.  The table has the mean of each part
among usual appends, the fifth around the median latency, and among the slowest percent.  The cause
of a slow append is the part that exceeds its usual length by most; of a wake-up, whether its thread
waited for a processor.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any, NamedTuple

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from benchmarks.append_trace.path import PARTS, WAKE_UPS, Path

#: Part of the appends that counts as slow, and as usual.
SLOW_PART, USUAL_PART = 0.01, 0.2
COLOURS = {"Python": "#2f6db3", "kernel": "#b06f00", "hand-over": "#7b4fa3", "disk": "#52606d"}
STYLE: dict[Any, Any] = {"font.size": 9.5, "font.family": "sans-serif", "svg.fonttype": "path",
                         "svg.hashsalt": "append-trace", "legend.frameon": False}


class Row(NamedTuple):
    """One part of the path, in microseconds."""

    part: str
    kind: str
    usual: float
    slow: float


class Cause(NamedTuple):
    """A part that most exceeds its usual length, in some of the slowest appends."""

    text: str
    appends: int
    excess_ms: float  # median of the excess


class Report:
    """Figures of traced appends.  ``paths`` must not be empty."""

    def __init__(self, paths: Sequence[Path], without: int = 0):
        self._paths = sorted(paths, key=lambda path: path.latency)
        self.without = without
        self.slow = self._paths[-max(1, round(len(self._paths) * SLOW_PART)):]
        aside = int(self.count * (1 - USUAL_PART) / 2)
        self.usual = self._paths[aside:self.count - aside]
        self._usual_parts = _means(self.usual)

    @property
    def count(self) -> int:
        """Return the number of appends."""
        return len(self._paths)

    def percentile_ms(self, part: float) -> float:
        """Return the latency that ``part`` (0 to 1) of the appends do not exceed."""
        return self._paths[min(self.count - 1, int(self.count * part))].latency / 1e6

    def rows(self) -> list[Row]:
        """Return the table, a row for each part."""
        return [Row(name, kind, usual / 1e3, slow / 1e3) for (name, kind), usual, slow
                in zip(PARTS, self._usual_parts, _means(self.slow), strict=True)]

    def causes(self) -> list[Cause]:
        """Return the causes of the slowest appends, the most frequent first."""
        found: dict[str, list[float]] = {}
        for path in self.slow:
            text, excess = self._cause(path)
            found.setdefault(text, []).append(excess / 1e6)
        return sorted((Cause(text, len(excesses), statistics.median(excesses))
                       for text, excesses in found.items()), key=lambda cause: -cause.appends)

    def _cause(self, path: Path) -> tuple[str, float]:
        excesses = [part - usual
                    for part, usual in zip(path.parts, self._usual_parts, strict=True)]
        worst = max(range(len(PARTS)), key=excesses.__getitem__)
        name, excess = PARTS[worst][0], excesses[worst]
        if worst in WAKE_UPS and path.runnable[worst] > excess / 2:
            name += ": waits for a processor"
        elif PARTS[worst][1] == "disk" and path.has_zeros:
            name += ": zeros ahead are written, too"
        elif PARTS[worst][1] == "Python" and path.collected > excess / 2:
            name += ": garbage collection"
        return name, excess

    def commits(self) -> Counter[int]:
        """Return through which node appends were committed: 0 = the leader's own disk was last."""
        return Counter(path.through for path in self._paths)

    def lines(self) -> list[str]:
        """Return the report as lines of text, at most 79 wide."""
        rows = self.rows()
        lines = [f"{self.count:,} appends of 1 KiB, one at a time: p50 "
                 f"{self.percentile_ms(0.5):.2f} ms, p99 {self.percentile_ms(0.99):.2f} ms, most "
                 f"{self.percentile_ms(1):.2f} ms", "",
                 f"{'microseconds':45}{'':11}{'usual':>9}{'slowest 1 %':>13}"]
        lines += [f"{row.part:45}{row.kind:11}{row.usual:9,.0f}{row.slow:13,.0f}" for row in rows]
        lines += [f"{'sum':56}{sum(row.usual for row in rows):9,.0f}"
                  f"{sum(row.slow for row in rows):13,.0f}", ""]
        own = self.commits()[0]
        lines += [f"The leader's own disk was last in {own / self.count:.0%} of the appends.", "",
                  f"What made the slowest {len(self.slow):,} slow, and by how much:"]
        lines += [f"  {cause.appends / len(self.slow):4.0%}  {cause.text}, "
                  f"{cause.excess_ms:.1f} ms more than usual" for cause in self.causes()]
        if self.without:
            lines.append(f"{self.without:,} appends are left out: their path has a gap.")
        return lines


def _means(paths: Sequence[Path]) -> list[float]:
    """Return the mean of each part, in nanoseconds."""
    return [statistics.fmean(lengths) for lengths in zip(*(path.parts for path in paths),
                                                         strict=True)]


def draw(report: Report, path: FilePath) -> None:
    """Write two bars, a usual append and a slow one, divided into their parts, as SVG.  Raises
    ``OSError``."""
    rows = report.rows()
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 0.62 + 0.34 * len(rows) + 0.9))
        figure.suptitle(f"One append of 1 KiB: {report.percentile_ms(0.5):.2f} ms, and where it "
                        "goes", x=0.02, ha="left", fontsize=13, fontweight="bold")
        axes = figure.subplots()
        figure.subplots_adjust(left=0.37, right=0.97, top=0.86, bottom=0.1)
        most = max(max(row.usual, row.slow) for row in rows)
        for at, row in enumerate(rows):
            axes.barh(at - 0.18, row.usual, 0.34, color=COLOURS[row.kind], linewidth=0)
            axes.barh(at + 0.18, row.slow, 0.34, color=COLOURS[row.kind], alpha=0.35, linewidth=0)
            axes.text(row.usual + most * 0.01, at - 0.18, f"{row.usual:,.0f}", va="center",
                      fontsize=8.5)
            axes.text(row.slow + most * 0.01, at + 0.18, f"{row.slow:,.0f}", va="center",
                      fontsize=8.5, color="#52606d")
        axes.set_yticks(range(len(rows)), [row.part for row in rows])
        axes.invert_yaxis()
        axes.set_xlim(0, most * 1.12)
        axes.set_xlabel("microseconds")
        for side in ("top", "right", "left"):
            axes.spines[side].set_visible(False)
        axes.tick_params(left=False)
        figure.legend(handles=[*(Patch(color=colour, label=kind)
                                 for kind, colour in COLOURS.items()),
                               Patch(color="#1f2933", label="usual"),
                               Patch(color="#1f2933", alpha=0.35, label="slowest 1 %")],
                      loc="upper left", bbox_to_anchor=(0.01, 0.945), ncols=6, fontsize=8.5,
                      columnspacing=1.0, handlelength=1.2)
        figure.savefig(path, format="svg", metadata={
            "Date": None, "Creator": None, "Format": None, "Type": None})
