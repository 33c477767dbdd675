"""The picture of a benchmark: its figures as bars beside their yardsticks and targets.

Contract.  Drawn from the JSON lines that a benchmark prints, so ``python -m benchmarks.picture
figures.jsonl FILE`` draws a run again; the same lines give the same SVG.  Each figure has a row of
its own, because units differ: the median as a bar with its number, every repetition as a dot, the
yardstick as a bar below it, and the target as a line.  Needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

WIDTH_IN, LEFT_IN, RIGHT_IN = 7.2, 0.25, 0.95
ROW_IN, GAP_IN, HEAD_IN, FOOT_IN = 0.52, 0.5, 1.25, 0.2
OURS, YARDSTICK, TARGET, MISSED = "#2f6db3", "#b4bfca", "#c0392b", "#b06f00"
QUIET = "#52606d"
STYLE: dict[Any, Any] = {
    "font.size": 9.5, "font.family": "sans-serif", "svg.fonttype": "path",
    "axes.spines.top": False, "axes.spines.right": False, "axes.spines.bottom": False,
    "axes.edgecolor": "#9aa5b1", "legend.frameon": False, "legend.fontsize": 9,
    "svg.hashsalt": "benchmarks"}


def draw(title: str, lines: Sequence[dict[str, Any]], path: Path) -> None:
    """Write the picture of figures, as ``Figure.as_json`` has them, as an SVG.  Raises
    ``OSError``."""
    with matplotlib.rc_context(STYLE):
        height_in = HEAD_IN + FOOT_IN + max(1, len(lines)) * (ROW_IN + GAP_IN)
        figure = Figure(figsize=(WIDTH_IN, height_in))
        _head(figure, title, lines, height_in)
        rows = figure.subplots(max(1, len(lines)), 1, squeeze=False)[:, 0]
        figure.subplots_adjust(left=LEFT_IN / WIDTH_IN, right=1 - RIGHT_IN / WIDTH_IN,
                               top=1 - HEAD_IN / height_in, bottom=FOOT_IN / height_in,
                               hspace=GAP_IN / ROW_IN)
        for axes, line in zip(rows, lines, strict=False):
            _row(axes, line)
        if not lines:
            rows[0].set_axis_off()
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def _head(figure: Figure, title: str, lines: Sequence[dict[str, Any]], height_in: float) -> None:
    held = sum(line["holds"] for line in lines)
    figure.text(LEFT_IN / WIDTH_IN, 1 - 0.3 / height_in,
                f"{title}: {held} of {len(lines)} targets held", fontsize=14, fontweight="bold",
                va="center")
    handles = [Patch(color=OURS, label="measured, median"),
               Line2D([], [], color="#1f2933", marker="o", markersize=3.5, linestyle="",
                      label="one repetition"),
               Patch(color=YARDSTICK, label="yardstick"),
               Line2D([], [], color=TARGET, linewidth=1.8, label="target")]
    figure.legend(handles=handles, loc="center left", ncols=4, columnspacing=1.2,
                  bbox_to_anchor=((LEFT_IN - 0.1) / WIDTH_IN, 1 - 0.64 / height_in))


def _row(axes: Axes, line: dict[str, Any]) -> None:
    """Draw one figure: the measurement above its yardstick, both with their numbers."""
    median, unit = line["median"], line["unit"]
    bars = [(0, median, OURS, f"{_short(median)} {unit}")]
    if "yardstick" in line:
        below = line["yardstick_median"]
        bars.append((1, below, YARDSTICK, f"{_short(below)} {unit}"))
    target = target_of(line)
    most = max(*line["values"], *line.get("yardstick_values", ()), target or 0,
               *(value for _, value, _, _ in bars)) or 1
    for at, value, colour, text in bars:
        axes.barh(at, value, 0.72, color=colour, linewidth=0)
        axes.text(1.01, at, text, transform=axes.get_yaxis_transform(), fontsize=9, va="center",
                  color="#1f2933" if at == 0 else QUIET)
    for at, values in ((0, line["values"]), (1, line.get("yardstick_values", ()))):
        axes.plot(values, [at] * len(values), "o", color="#1f2933", markersize=2.6, alpha=0.75)
    if target is not None:
        axes.axvline(target, color=TARGET, linewidth=1.8)
    axes.set_xlim(0, 1.02 * most)
    axes.set_ylim(1.5 if len(bars) > 1 else 0.6, -0.5)
    axes.set_yticks([])
    axes.set_xticks([])
    axes.set_title(line["figure"], loc="left", fontsize=10, fontweight="bold", pad=4)
    axes.text(1 + RIGHT_IN / (WIDTH_IN - LEFT_IN - RIGHT_IN) - 0.01, 1.0, verdict_of(line),
              transform=axes.transAxes, fontsize=9, ha="right", va="bottom",
              color=QUIET if line["holds"] else MISSED)


def target_of(line: dict[str, Any]) -> float | None:
    """Return the target in the figure's unit: a ratio is of the yardstick's median. None when that
    is zero."""
    target = float(line["target"].split()[1])
    if "ratio" not in line:
        return target
    return target * line["yardstick_median"] if line["yardstick_median"] else None


def verdict_of(line: dict[str, Any]) -> str:
    """Return the judgement in words: ``0.93 x NATS, target at least 0.8: held``."""
    sign, target = line["target"].split()
    bound = f"target at {'least' if sign == '>=' else 'most'} {float(target):g}"
    told = "held" if line["holds"] else "missed"
    if "ratio" in line:
        return f"{line['ratio']:.3g} x {line['yardstick']}, {bound}: {told}"
    judged = "" if line["judged"] == line["median"] else f"judged {line['judged']:.3g}, "
    return f"{judged}{bound}: {told}"


def _short(value: float) -> str:
    """Return a number with three digits, thousands separated."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def main() -> int:
    """Draw the figures of a file of JSON lines; lines of other programs are skipped."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("figures", type=Path, help="what a benchmark printed to standard output")
    parser.add_argument("picture", type=Path, metavar="FILE", help="an .svg file")
    parser.add_argument("--title", help="default: the name of the first file")
    arguments = parser.parse_args()
    lines = [json.loads(line) for line in arguments.figures.read_text("utf-8").splitlines()
             if line.startswith('{"figure"')]
    lines = [line for line in lines if "not_measured" not in line]
    if not lines:
        print(f"{arguments.figures} has no figures of a benchmark.", file=sys.stderr)
        return 1
    draw(arguments.title or arguments.figures.stem, lines, arguments.picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
