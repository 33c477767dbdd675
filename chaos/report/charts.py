"""The charts of a report, each as one SVG with a time axis in seconds.

Contract.  Pure: series in, text out.  Every chart shows the faults as shades behind it, in the
colours of the first one, and the phases as dashed lines.  Numerous elements (bars of single
operations) are drawn as an image inside the SVG, so a page stays small.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable

import matplotlib
import numpy
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from chaos.history import FAIL, INFO, OK
from chaos.report.lanes import Lanes
from chaos.report.series import OUTCOMES, FaultInterval, OperationColumns, Series

matplotlib.use("svg")

WIDTH_IN, ROW_IN = 13.2, 0.24
#: Letters of labels that fit beside each other.
LETTERS = 210
#: Number of time intervals in aggregated charts.
BUCKETS = 240
BUCKET_S_MIN = 0.5
OUTCOME_COLOURS = {OK: "#2a7f4f", FAIL: "#d98a00", INFO: "#c0272d"}
OUTCOME_WORDS = {OK: "ok", FAIL: "fail (did not happen)", INFO: "info (ambiguous)"}
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


class Canvas:
    """Time axis, faults and phases that all charts of one run share."""

    def __init__(self, series: Series):
        self.series = series
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
                axes.annotate(name, (at_s, 1.0), xycoords=("data", "axes fraction"),
                              xytext=(3, 3 + 9 * line), textcoords="offset points", fontsize=8,
                              color="#52606d")
        axes.set_xlim(0, self.end_s)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} s"))

    @property
    def per_letter_s(self) -> float:
        """Return the seconds that a letter of a label covers."""
        return self.end_s / LETTERS

    def phase_labels(self) -> list[tuple[str, float, int]]:
        """Return (name, second, line above the chart): on the lowest line where it covers no
        other."""
        placed: list[tuple[str, float, int]] = []
        free_at_s: list[float] = []  # by line
        for name, at_s in sorted(self.series.phases, key=lambda phase: phase[1]):
            line = next((line for line, free_s in enumerate(free_at_s) if free_s <= at_s),
                        len(free_at_s))
            if line == len(free_at_s):
                free_at_s.append(0.0)
            free_at_s[line] = at_s + (len(name) + 1) * self.per_letter_s
            placed.append((name, at_s, line))
        return placed

    def figure(self, height_in: float, rows: int, **options) -> tuple[Figure, list[Axes]]:
        """Return a figure with ``rows`` charts above each other."""
        figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        axes = figure.subplots(rows, 1, sharex=True, squeeze=False, **options)[:, 0]
        return figure, list(axes)


def svg_of(figure: Figure, name: str) -> str:
    """Return the figure as an element that can stand in a page beside others."""
    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg"):]
    return re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', 'width="100%"', svg, count=1)


def draw(series: Series, leadership: list[list[int]]) -> dict[str, str]:
    """Draw all charts, by name."""
    canvas = Canvas(series)
    with matplotlib.rc_context(STYLE):
        return {"faults": faults(canvas), "timeline": timeline(canvas), "rates": rates(canvas),
                "latency": latency(canvas), "leadership": led(canvas, leadership)}


def faults(canvas: Canvas) -> str:
    """Draw one row per kind of fault, and the legend of all shades."""
    kinds = canvas.kinds
    figure, (axes,) = canvas.figure(0.75 + ROW_IN * 1.25 * max(1, len(kinds)), 1)
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
    return svg_of(figure, "faults")


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
    figure, (axes,) = canvas.figure(0.9 + ROW_IN * 0.42 * lanes.total + 0.1 * len(names), 1)
    canvas.dress(axes, label=False)
    least_s = canvas.end_s / 1600
    for at, outcome in enumerate(OUTCOMES):  # rare outcomes are drawn last
        mask = columns.outcome == at
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
    _legend(axes)
    figure.set_dpi(110)
    return svg_of(figure, "timeline")


def rates(canvas: Canvas) -> str:
    """Draw outcomes per second, one chart per family of operations; "" when there is none."""
    families = families_of(canvas.series.names)
    if not families:
        return ""
    figure, charts = canvas.figure(0.5 + 1.35 * len(families), len(families))
    edges = canvas.buckets()
    width = edges[1] - edges[0]
    for axes, (title, members) in zip(charts, families, strict=True):
        canvas.dress(axes, label=False)
        columns = canvas.series.columns.where(members)
        bottom = numpy.zeros(len(edges) - 1)
        for at, outcome in enumerate(OUTCOMES):
            counts, _ = numpy.histogram(columns.end_s[columns.outcome == at], edges)
            axes.bar(edges[:-1], counts / width, width, bottom, align="edge",
                     color=OUTCOME_COLOURS[outcome], linewidth=0)
            bottom += counts / width
        axes.set_title(title)
        axes.set_ylabel("per second")
        axes.yaxis.set_major_locator(MaxNLocator(4))
    _legend(charts[0])
    return svg_of(figure, "rates")


def latency(canvas: Canvas) -> str:
    """Draw p50, p99 and maximum of successful operations that took some time, on a logarithmic
    scale; "" when there are only operations on topics: the run ended while they were created."""
    columns = canvas.series.columns
    families = [(title, members) for title, members in families_of(canvas.series.names)
                if title != "topics" and latencies_ms(columns.where(members)).any()]
    if not families:
        return ""
    figure, charts = canvas.figure(0.5 + 1.6 * len(families), len(families))
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
        axes.set_title(f"{title}: time to ok")
        axes.yaxis.set_major_formatter(FuncFormatter(milliseconds))
        axes.yaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    charts[0].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3)
    return svg_of(figure, "latency")


def led(canvas: Canvas, leadership: list[list[int]]) -> str:
    """Draw the number of groups that each node leads."""
    times, by_node = counts_of(leadership)
    figure, (axes,) = canvas.figure(2.3, 1)
    canvas.dress(axes, label=False)
    if times:
        nodes = sorted(node for node in by_node if node)
        steps = [*times, canvas.end_s]
        rows = [[*by_node[node], by_node[node][-1]] for node in (*nodes, 0) if node in by_node]
        colours = [NODE_COLOURS[(node - 1) % len(NODE_COLOURS)] for node in nodes]
        colours += ["#222222"] if 0 in by_node else []
        labels = [f"node {node}" for node in nodes] + (["no leader"] if 0 in by_node else [])
        axes.stackplot(steps, rows, step="post", colors=colours, labels=labels, alpha=0.85,
                       linewidth=0)
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=len(labels))
    axes.set_ylabel("groups led")
    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    return svg_of(figure, "leadership")


def _legend(axes: Axes) -> None:
    for outcome in OUTCOMES:
        axes.plot([], [], color=OUTCOME_COLOURS[outcome], linewidth=5,
                  label=OUTCOME_WORDS[outcome])
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3)


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
    leaders; node 0 = no leader."""
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
