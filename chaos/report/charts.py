"""The charts of a report, each as one SVG with a time axis in seconds.

Contract.  Pure: series in, text out.  Every chart shows the faults as shades behind it, in the
colours of the first one, and the phases as dashed lines.  All charts of one width have their time
axis at the same place, so that a reader can look straight down from a fault to its effect.  Each
chart is drawn for a wide and for a narrow screen.  Numerous elements (bars of single operations)
are drawn as an image inside the SVG, so a page stays small.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from typing import NamedTuple

import matplotlib
import numpy
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from chaos.history import FAIL, INFO, OK
from chaos.report.lanes import Lanes
from chaos.report.series import OUTCOMES, UNASKED, FaultInterval, OperationColumns, Series
from chaos.report.words import OUTCOME_MEANINGS, OUTCOME_WORDS

matplotlib.use("svg")

ROW_IN = 0.24
#: Height of the time axis below a chart, of a title above it, and of a line of phase names.
AXIS_IN, TITLE_IN, PHASE_IN = 0.3, 0.28, 0.14
#: Width of a letter of a label.
LETTER_PT = 5.0
PT_PER_IN = 72
#: Number of time intervals in aggregated charts.
BUCKETS = 240
BUCKET_S_MIN = 0.5
OUTCOME_COLOURS = {UNASKED: "#9aa5b1", OK: "#2a7f4f", FAIL: "#d98a00", INFO: "#c0272d"}
#: Order in which outcomes are drawn: rare ones last.
DRAWN = (UNASKED, OK, FAIL, INFO)
FAULT_COLOURS = ("#5b8fd6", "#c46fb4", "#e0894a", "#6fae5f", "#8b78c9", "#c9a227", "#4fb3b8",
                 "#d0605e", "#7d8fa3", "#a9764f", "#3f6f9f", "#b0b63a", "#9c4f6e", "#5f9f86",
                 "#8a8a8a", "#44558f")
NODE_COLOURS = ("#4878cf", "#ee854a", "#6acc64", "#956cb4", "#8c613c", "#dc7ec0", "#82c6e2",
                "#d5bb67", "#797979")
STYLE = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
         "grid.color": "#e4e7eb", "grid.linewidth": 0.6, "axes.axisbelow": True,
         "axes.edgecolor": "#9aa5b1", "svg.fonttype": "none", "font.family": "sans-serif",
         "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left",
         "legend.frameon": False, "legend.fontsize": 8.5}


class Screen(NamedTuple):
    """Width of a chart, and of the room for names at its left and its right, in inches."""

    name: str
    width_in: float
    left_in: float
    right_in: float
    ticks: int
    legend_columns: int

    @property
    def axis_in(self) -> float:
        """Return the width of the time axis."""
        return self.width_in - self.left_in - self.right_in


WIDE = Screen("wide", 13.2, 1.55, 0.2, 10, 8)
NARROW = Screen("narrow", 5.4, 1.45, 0.12, 4, 2)


class Canvas:
    """Time axis, faults and phases that all charts of one run share."""

    def __init__(self, series: Series, screen: Screen = WIDE):
        self.series = series
        self.screen = screen
        self.kinds = sorted({fault.kind for fault in series.faults})
        self.end_s = max(series.duration_s, 1.0)

    def colour(self, kind: str) -> str:
        """Return the colour of a kind of fault."""
        return FAULT_COLOURS[self.kinds.index(kind) % len(FAULT_COLOURS)]

    def buckets(self) -> numpy.ndarray:
        """Return the edges of the time intervals."""
        width = max(BUCKET_S_MIN, self.end_s / BUCKETS)
        return numpy.arange(0.0, self.end_s + width, width)

    def seen_until_s(self, fault: FaultInterval) -> float:
        """Return the end of a fault in a chart: a momentary fault has some width."""
        return max(fault.end_s, fault.begin_s + self.end_s / 800)

    def dress(self, axes: Axes, label: bool) -> None:
        """Draw shades, phases and the time axis."""
        for fault in self.series.faults:
            axes.axvspan(fault.begin_s, self.seen_until_s(fault), color=self.colour(fault.kind),
                         alpha=0.16, linewidth=0)
        for _, at_s in self.series.phases:
            axes.axvline(at_s, color="#52606d", linewidth=0.8, linestyle=(0, (4, 3)))
        if label:
            for name, at_s, line in self.phase_labels():
                left = self._fits_right_of(name, at_s)
                axes.annotate(name, (at_s, 1.0), xycoords=("data", "axes fraction"),
                              xytext=(3 if left else -3, 3 + PHASE_IN * PT_PER_IN * line),
                              textcoords="offset points", ha="left" if left else "right",
                              fontsize=8, color="#52606d")
        axes.set_xlim(0, self.end_s)
        axes.xaxis.set_major_locator(MaxNLocator(self.screen.ticks))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} s"))

    @property
    def per_letter_s(self) -> float:
        """Return the seconds that a letter of a label covers."""
        return self.end_s * LETTER_PT / (self.screen.axis_in * PT_PER_IN)

    def _fits_right_of(self, name: str, at_s: float) -> bool:
        return at_s + (len(name) + 1) * self.per_letter_s <= self.end_s

    def phase_labels(self) -> list[tuple[str, float, int]]:
        """Return (name, second, line above the chart): on the lowest line where it covers no
        other."""
        placed: list[tuple[str, float, int]] = []
        taken: list[list[tuple[float, float]]] = []  # by line, from and to
        for name, at_s in sorted(self.series.phases, key=lambda phase: phase[1]):
            width_s = (len(name) + 1) * self.per_letter_s
            begin_s = at_s if self._fits_right_of(name, at_s) else at_s - width_s
            line = next((line for line, others in enumerate(taken)
                         if all(end_s <= begin_s or begin_s + width_s <= other_s
                                for other_s, end_s in others)), len(taken))
            if line == len(taken):
                taken.append([])
            taken[line].append((begin_s, begin_s + width_s))
            placed.append((name, at_s, line))
        return placed

    @property
    def phase_lines(self) -> int:
        """Return the number of lines that the names of phases take."""
        return max((line for _, _, line in self.phase_labels()), default=0) + 1

    def figure(self, row_in: float, rows: int = 1, top_in: float = TITLE_IN,
               legend_lines: int = 0) -> tuple[Figure, list[Axes]]:
        """Return a figure with ``rows`` charts above each other, each ``row_in`` high with its time
        axis at the place of all others, ``top_in`` above each and ``legend_lines`` above all."""
        legend_in = 0.22 * legend_lines
        height_in = legend_in + rows * (top_in + row_in) + AXIS_IN
        screen = self.screen
        figure = Figure(figsize=(screen.width_in, height_in))
        axes = figure.subplots(rows, 1, sharex=True, squeeze=False)[:, 0]
        figure.subplots_adjust(
            left=screen.left_in / screen.width_in, right=1 - screen.right_in / screen.width_in,
            bottom=AXIS_IN / height_in, top=1 - (legend_in + top_in) / height_in,
            hspace=top_in / row_in)
        return figure, list(axes)

    def svg_of(self, figure: Figure, name: str) -> str:
        """Return the figure as an element that can stand in a page beside others."""
        return svg_of(figure, f"{name} {self.screen.name}")

    def legend(self, figure: Figure, axes: Axes, labels: int) -> None:
        """Draw a legend of so many labels of ``axes`` in the top right corner, one or more lines.
        """
        figure.legend(*axes.get_legend_handles_labels(), loc="upper right",
                      bbox_to_anchor=(1 - self.screen.right_in / self.screen.width_in, 1.0),
                      ncols=min(labels, self.screen.legend_columns), borderaxespad=0.2,
                      handlelength=1.4, columnspacing=1.2)

    def legend_lines(self, labels: int) -> int:
        """Return the number of lines of such a legend."""
        return -(-labels // self.screen.legend_columns)


def svg_of(figure: Figure, name: str) -> str:
    """Return the figure as an element that can stand in a page beside others."""
    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg"):]
    return re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', 'width="100%"', svg, count=1)


def draw(series: Series, leadership: list[list[int]], screen: Screen = WIDE) -> dict[str, str]:
    """Draw all charts for a screen, by name."""
    canvas = Canvas(series, screen)
    with matplotlib.rc_context(STYLE):
        return {"faults": faults(canvas), "timeline": timeline(canvas), "rates": rates(canvas),
                "latency": latency(canvas), "leadership": led(canvas, leadership)}


def faults(canvas: Canvas) -> str:
    """Draw one row per kind of fault, and the legend of all shades."""
    kinds = canvas.kinds
    figure, (axes,) = canvas.figure(ROW_IN * 1.25 * max(1, len(kinds)),
                                    top_in=0.08 + PHASE_IN * canvas.phase_lines)
    canvas.dress(axes, label=True)
    free_until = {kind: -1.0 for kind in kinds}
    per_letter_s = canvas.per_letter_s
    for fault in canvas.series.faults:
        row = kinds.index(fault.kind)
        axes.barh(row, canvas.seen_until_s(fault) - fault.begin_s, left=fault.begin_s,
                  height=0.72, color=canvas.colour(fault.kind), linewidth=0)
        text = ranges(filter(None, fault.nodes)) or ("all" if fault.end_s > fault.begin_s else "")
        if fault.begin_s >= free_until[fault.kind]:
            axes.text(fault.begin_s + per_letter_s / 2, row, text, fontsize=8, va="center",
                      color="#111827", clip_on=True)
            free_until[fault.kind] = fault.begin_s + (len(text) + 1) * per_letter_s
    axes.set_yticks(range(len(kinds)), kinds)
    axes.set_ylim(len(kinds) - 0.4 if kinds else 0.6, -0.6)
    axes.grid(axis="y", visible=False)
    return canvas.svg_of(figure, "faults")


def ranges(nodes: Iterable[int]) -> str:
    """Return node ids as text; three and more in a row as the first and the last of them."""
    runs: list[list[int]] = []
    for node in sorted(nodes):
        if runs and node == runs[-1][-1] + 1:
            runs[-1].append(node)
        else:
            runs.append([node])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run))
                     for run in runs)


def timeline(canvas: Canvas) -> str:
    """Draw every operation as a bar from invocation to completion."""
    columns, names = canvas.series.columns, canvas.series.names
    lanes = Lanes(columns, len(names))
    words = outcome_words(canvas.series)
    figure, (axes,) = canvas.figure(0.35 + ROW_IN * 0.42 * lanes.total + 0.1 * len(names),
                                    top_in=0.06, legend_lines=canvas.legend_lines(len(words)))
    canvas.dress(axes, label=False)
    least_s = canvas.end_s / 1600
    for outcome in DRAWN:
        mask = columns.outcome == OUTCOMES.index(outcome)
        begins, rows = columns.begin_s[mask], lanes.row[mask]
        ends = numpy.maximum(columns.end_s[mask], begins + least_s)
        lines = numpy.stack([numpy.column_stack([begins, rows]),
                             numpy.column_stack([ends, rows])], axis=1)
        axes.add_collection(LineCollection(
            lines, colors=OUTCOME_COLOURS[outcome], linewidths=2.6 if outcome == OK else 3.4,
            alpha=0.55 if outcome == OK else 0.95, rasterized=True, capstyle="butt"))
    for begin, _ in lanes.blocks[1:]:
        axes.axhline(begin - 0.75, color="#cbd2d9", linewidth=0.7)
    axes.set_yticks([(begin + end) / 2 for begin, end in lanes.blocks], names)
    axes.set_ylim(lanes.total + 0.3 * len(names), -1)
    axes.grid(axis="y", visible=False)
    _legend(canvas, figure, axes, words)
    figure.set_dpi(110)
    return canvas.svg_of(figure, "timeline")


def rates(canvas: Canvas) -> str:
    """Draw outcomes per second, one chart per family of operations; "" when there is none."""
    families = families_of(canvas.series.names)
    if not families:
        return ""
    words = outcome_words(canvas.series)
    figure, charts = canvas.figure(1.05, len(families),
                                   legend_lines=canvas.legend_lines(len(words)))
    edges = canvas.buckets()
    width = edges[1] - edges[0]
    for axes, (title, members) in zip(charts, families, strict=True):
        canvas.dress(axes, label=False)
        columns = canvas.series.columns.where(members)
        bottom = numpy.zeros(len(edges) - 1)
        for outcome in DRAWN:
            chosen = columns.outcome == OUTCOMES.index(outcome)
            counts, _ = numpy.histogram(columns.end_s[chosen], edges)
            axes.bar(edges[:-1], counts / width, width, bottom, align="edge",
                     color=OUTCOME_COLOURS[outcome], linewidth=0)
            bottom += counts / width
        axes.set_title(title)
        axes.set_ylabel("per second")
        axes.yaxis.set_major_locator(MaxNLocator(4))
    _legend(canvas, figure, charts[0], words)
    return canvas.svg_of(figure, "rates")


def latency(canvas: Canvas) -> str:
    """Draw p50, p99 and maximum of successful operations that took some time, on a logarithmic
    scale; "" when there are only operations on topics: the run ended while they were created."""
    columns = canvas.series.columns
    families = [(title, members) for title, members in families_of(canvas.series.names)
                if title != "topics" and latencies_ms(columns.where(members)).any()]
    if not families:
        return ""
    figure, charts = canvas.figure(1.3, len(families), legend_lines=canvas.legend_lines(3))
    edges = canvas.buckets()
    middle = (edges[:-1] + edges[1:]) / 2
    for axes, (title, members) in zip(charts, families, strict=True):
        canvas.dress(axes, label=False)
        columns = canvas.series.columns.where(members)
        good = columns.outcome == OUTCOMES.index(OK)
        rows = spread(columns.end_s[good], (columns.end_s - columns.begin_s)[good] * 1000, edges)
        for label, values, colour in zip(("median", "p99", "maximum"), rows,
                                         ("#1f4e79", "#4a90d9", "#b9c4d0"), strict=True):
            axes.plot(middle, values, label=label, color=colour, linewidth=1.2, marker=".",
                      markersize=2.5)
        axes.set_yscale("log")
        axes.set_title(f"{title}: time until done")
        axes.yaxis.set_major_formatter(FuncFormatter(milliseconds))
        axes.yaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    canvas.legend(figure, charts[0], 3)
    return canvas.svg_of(figure, "latency")


def led(canvas: Canvas, leadership: list[list[int]]) -> str:
    """Draw the number of groups that each node leads."""
    times, by_node = counts_of(leadership)
    nodes = sorted(node for node in by_node if node)
    labelled = len(nodes) + (0 in by_node)
    figure, (axes,) = canvas.figure(1.8, top_in=0.06, legend_lines=canvas.legend_lines(labelled))
    canvas.dress(axes, label=False)
    if times:
        steps = [*times, canvas.end_s]
        rows = [[*by_node[node], by_node[node][-1]] for node in (*nodes, 0) if node in by_node]
        colours = [NODE_COLOURS[(node - 1) % len(NODE_COLOURS)] for node in nodes]
        colours += ["#222222"] if 0 in by_node else []
        labels = [f"node {node}" for node in nodes] + (["no leader known"] if 0 in by_node else [])
        axes.stackplot(steps, rows, step="post", colors=colours, labels=labels, alpha=0.85,
                       linewidth=0)
        canvas.legend(figure, axes, len(labels))
    axes.set_ylabel("groups led")
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    return canvas.svg_of(figure, "leadership")


def outcome_words(series: Series) -> dict[str, str]:
    """Return the words of the outcomes that a legend explains; that of operations which ask for no
    answer only if there are any."""
    asked = {outcome: f"{word} ({OUTCOME_MEANINGS[outcome]})"
             for outcome, word in OUTCOME_WORDS.items()}
    if not (series.columns.outcome == OUTCOMES.index(UNASKED)).any():
        del asked[UNASKED]
    return asked


def _legend(canvas: Canvas, figure: Figure, axes: Axes, words: dict[str, str]) -> None:
    for outcome, word in words.items():
        axes.plot([], [], color=OUTCOME_COLOURS[outcome], linewidth=5, label=word)
    canvas.legend(figure, axes, len(words))


def milliseconds(value: float, _position: int = 0) -> str:
    """Return a time with its unit."""
    if value >= 1000:
        return f"{value / 1000:g} s"
    return f"{value:g} ms" if value >= 1 else f"{value * 1000:g} µs"


def families_of(names: list[str]) -> list[tuple[str, list[int]]]:
    """Return the families of operations that share a chart: appends, reads, polls, offsets and the
    rest."""
    families: dict[str, list[int]] = {}
    words = {"append": "appends", "read": "reads", "poll": "polls", "offsets": "end offsets"}
    for at, name in enumerate(names):
        if name != "assign":  # an assignment is local and asks no node
            families.setdefault(words.get(name.split(" ")[0], "topics"), []).append(at)
    order = [*words.values(), "topics"]
    return sorted(families.items(), key=lambda family: order.index(family[0]))


def spread(at_s: numpy.ndarray, values: numpy.ndarray, edges: numpy.ndarray,
           ) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    """Return median, 99th percentile and maximum per time interval; nothing for an empty one."""
    rows = numpy.full((3, len(edges) - 1), numpy.nan)
    order = numpy.argsort(at_s, kind="stable")
    cuts = numpy.searchsorted(at_s[order], edges)
    for piece, (first, last) in enumerate(zip(cuts, cuts[1:])):
        if first < last:
            part = values[order[first:last]]
            rows[:, piece] = [*numpy.percentile(part, (50, 99)), part.max()]
    return rows[0], rows[1], rows[2]


def counts_of(leadership: list[list[int]]) -> tuple[list[float], dict[int, list[int]]]:
    """Return (seconds, node -> number of groups that it leads at each of them) from changes of
    leaders; node 0 = no leader is known."""
    leader: dict[int, int] = {}
    nodes = sorted({row[3] for row in leadership})
    times: list[float] = []
    by_node: dict[int, list[int]] = {node: [] for node in nodes}
    for time_us, group, _term, node in leadership:
        leader[group] = node
        if times and times[-1] == time_us / 1e6:
            for counts in by_node.values():
                counts.pop()
            times.pop()
        times.append(time_us / 1e6)
        led_now = list(leader.values())
        for each, counts in by_node.items():
            counts.append(led_now.count(each))
    return times, by_node


def latencies_ms(columns: OperationColumns) -> numpy.ndarray:
    """Return the latencies of successful operations, in milliseconds."""
    good = columns.outcome == OUTCOMES.index(OK)
    return (columns.end_s[good] - columns.begin_s[good]) * 1000
