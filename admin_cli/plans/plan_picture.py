"""The picture of a plan: load per node and group, before and after.

Contract.  Pure: a plan in, the bytes of an SVG or PNG out; the same plan gives the same SVG.  The
title says what the plan does.  The load of nodes that it improves most has the largest chart,
others that it changes have a small one, and those that it leaves alone are named.  Each node's
share is a line across its bars, and the mean of the groups a dotted one.  Few bins are bars with
names and numbers, many are a profile: bins in falling order.

Letters are drawn as shapes, so that the picture looks the same where no font is installed.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from admin_cli.console.output import plural
from admin_cli.plans import plan_words
from placement.cluster import ALIVE
from placement.plan import NodeOutcome, Plan, ResourceOutcome
from placement.policy import (
    DISK,
    EGRESS,
    GROUP_INGRESS,
    INGRESS,
    LEADERS,
    NODE_RESOURCES,
    REPLICAS,
)

#: Narrow, so that letters can still be read where a phone shows it.
WIDTH_IN = 7.2
MAIN_IN, PANEL_IN = 2.9, 2.1
HEAD_IN, FOOT_IN, FOOT_LINE_IN = 0.85, 0.12, 0.16
DPI = 150
#: Bins that still have a bar and a name each.
NODES_NAMED_MAX = 24
GROUPS_NAMED_MAX = 32
#: Nodes up to which two small charts are side by side.
NARROW_NODES_MAX = 5
#: Width of an axis of a chart as wide as the picture, or of half of it, and of a digit.
AXIS_PT, NARROW_AXIS_PT, DIGIT_PT = 455, 195, 5.6
#: Letters of a line at the foot.
FOOT_LETTERS = 100
BEFORE, AFTER, SHARE = "#b4bfca", "#2f6db3", "#c0392b"
QUIET = "#52606d"
BAR = 0.38
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
TITLES = {DISK: "Bytes on disk, per node", INGRESS: "Taken in by all replicas, per node",
          EGRESS: "Sent by leaders, per node", LEADERS: "Groups led, per node",
          REPLICAS: "Replicas, per node", GROUP_INGRESS: "Appended, per group"}
COUNTS = {LEADERS: "groups led", REPLICAS: "replicas"}
STYLE: dict[Any, Any] = {
         "font.size": 9.5, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
         "axes.grid.axis": "y", "grid.color": "#e4e7eb", "grid.linewidth": 0.6,
         "axes.axisbelow": True, "axes.edgecolor": "#9aa5b1", "svg.fonttype": "path",
         "axes.titlesize": 10.5, "axes.titleweight": "bold", "axes.titlelocation": "left",
         "axes.labelcolor": QUIET, "axes.labelsize": 9,
         "legend.frameon": False, "legend.fontsize": 9, "font.family": "sans-serif"}


class Panel(NamedTuple):
    """One chart: bins with a load each, and their shares (0 = none), in ``unit``s of ``unit_size``.
    ``worst``: how far the worst bin is above its share, in words; ``rest``: bins left out, as a
    part of the axis title."""

    resource: str
    worst: str
    names: tuple[str, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    shares: tuple[int, ...]
    named_max: int
    unit: str
    unit_size: int
    rest: str = ""

    @property
    def most(self) -> int:
        """Return the longest bar."""
        return max(1, *self.before, *self.after, *self.shares)

    @property
    def changes(self) -> bool:
        """True if the plan changes any of the loads."""
        return self.before != self.after


def drawn(made: Plan, kind: str) -> bytes:
    """Return the picture of a plan's loads as a file's content; ``kind`` is "svg" or "png"."""
    rows = sorted(plan_words.judged(made), key=lambda row: (row.resource == GROUP_INGRESS,
                                                            row.after_ppm - row.before_ppm))
    panels = [_of_groups(made, row) if row.resource == GROUP_INGRESS else _of_nodes(made, row)
              for row in rows]
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": made.plan_id}):
        figure = _figure(made, panels)
        out = io.BytesIO()
        if kind == "svg":
            FigureCanvasSVG(figure).print_svg(out, metadata={"Date": None, "Creator": None})
        else:
            figure.set_dpi(DPI)
            FigureCanvasAgg(figure).print_png(out)
    return out.getvalue()


def _of_nodes(made: Plan, row: ResourceOutcome) -> Panel:
    if row.resource == REPLICAS:
        weight = sum(each.weight for each in made.nodes if each.state == ALIVE)
        shares = [row.total * each.weight // max(1, weight) if each.state == ALIVE else 0
                  for each in made.nodes]
    else:
        position = NODE_RESOURCES.index(row.resource)
        shares = [each.share[position] for each in made.nodes]
    bins = [(_name(each), *loads, share) for each, loads, share
            in zip(made.nodes, plan_words.loads(made, row.resource), shares, strict=True)]
    return _panel(row, bins, NODES_NAMED_MAX)


def _name(row: NodeOutcome) -> str:
    said = "" if row.state == ALIVE else f"\n{row.state}"
    if not row.replicas_before and row.replicas_after:
        said = "\nnew"
    return f"{row.node}{said}"


def _of_groups(made: Plan, row: ResourceOutcome) -> Panel:
    """Return the groups with appends, the fullest first; the others are counted."""
    mean = sum(each.after for each in made.groups) // max(1, len(made.groups))
    busy = sorted((each for each in made.groups if each.before or each.after),
                  key=lambda each: (-max(each.before, each.after), each.group))
    idle = len(made.groups) - len(busy)
    panel = _panel(row, [(str(each.group), each.before, each.after, mean) for each in busy],
                   GROUPS_NAMED_MAX)
    return panel._replace(rest=f" ({plural(idle, 'group')} without appends left out)" if idle
                          else "")


def _panel(row: ResourceOutcome, bins: Sequence[tuple[str, int, int, int]],
           named_max: int) -> Panel:
    names, before, after, shares = zip(*bins, strict=True) if bins else ((), (), (), ())
    unit, unit_size = _unit(row.resource, max((0, *before, *after, *shares)))
    return Panel(row.resource, plan_words.worst(row), names, before, after, shares, named_max,
                 unit, unit_size)


def _unit(resource: str, most: int) -> tuple[str, int]:
    """Return (name, size) of the largest unit in which the longest bar is at least one."""
    if resource in COUNTS:
        return COUNTS[resource], 1
    power = min(len(UNITS) - 1, max(0, most.bit_length() - 1) // 10)
    return UNITS[power] + ("" if resource == DISK else "/s"), 1 << 10 * power


# ---- drawing ------------------------------------------------------------------------------------

def _figure(made: Plan, panels: Sequence[Panel]) -> Figure:
    """Return a figure: the first chart that changes is the largest, the others follow in rows of
    their own, or two to a row where a cluster has few nodes."""
    changed = [panel for panel in panels if panel.changes] or list(panels[:1])
    rows = _rows(changed[1:])
    heights = [MAIN_IN] * bool(changed) + [PANEL_IN] * len(rows)
    foot = _foot(made, panels, changed)
    foot_in = FOOT_IN + FOOT_LINE_IN * len(foot)
    height_in = sum(heights) + HEAD_IN + foot_in
    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    engine = figure.get_layout_engine()
    assert isinstance(engine, ConstrainedLayoutEngine)
    engine.set(h_pad=0.09, w_pad=0.09, rect=(0, foot_in / height_in, 1,
                                             1 - (HEAD_IN + foot_in) / height_in))
    if changed:
        grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
        _chart(figure.add_subplot(grid[0, :]), changed[0], AXIS_PT)
        _small_charts(figure, grid, rows)
    _head(figure, made, changed, height_in)
    figure.text(0.015, (foot_in - 0.05) / height_in, "\n".join(foot), fontsize=8, color=QUIET,
                va="top")
    return figure


def _foot(made: Plan, panels: Sequence[Panel], changed: Sequence[Panel]) -> list[str]:
    """Return the lines about loads without a chart: those that the plan leaves alone, and those
    that are too small."""
    same = [TITLES[panel.resource].split(",")[0].lower() for panel in panels
            if panel not in changed]
    told = [f"Not changed: {', '.join(same)}."] * bool(same) + [plan_words.below_floors(made)]
    return textwrap.wrap(" ".join(filter(None, told)), FOOT_LETTERS)


def _rows(panels: Sequence[Panel]) -> list[list[Panel]]:
    """Return the small charts in rows of one or, of few bars, two."""
    rows: list[list[Panel]] = []
    for panel in panels:
        narrow = len(panel.names) <= NARROW_NODES_MAX
        last = rows[-1] if rows else []
        if narrow and len(last) == 1 and len(last[0].names) <= NARROW_NODES_MAX:
            last.append(panel)
        else:
            rows.append([panel])
    return rows


def _small_charts(figure: Figure, grid: GridSpec, rows: Sequence[Sequence[Panel]]) -> None:
    for at, row in enumerate(rows, start=1):
        if len(row) == 1:
            _chart(figure.add_subplot(grid[at, :]), row[0], AXIS_PT)
        else:
            for column, panel in enumerate(row):
                _chart(figure.add_subplot(grid[at, column]), panel, NARROW_AXIS_PT)


def _head(figure: Figure, made: Plan, changed: Sequence[Panel], height_in: float) -> None:
    """Draw the title, the name of the plan, and the legend."""
    figure.text(0.015, 1 - 0.28 / height_in, plan_words.title(made), fontsize=15,
                fontweight="bold", va="center")
    figure.text(0.985, 1 - 0.28 / height_in,
                f"plan {made.plan_id[:12]}, scope {made.options.scope}", fontsize=8.5,
                color=QUIET, ha="right", va="center")
    handles = [Patch(color=BEFORE, label="before"), Patch(color=AFTER, label="after"),
               Line2D([], [], color=SHARE, linewidth=1.6, label="share")]
    if any(panel.resource == GROUP_INGRESS for panel in changed):
        handles.append(Line2D([], [], color=SHARE, linewidth=1.6, linestyle=":",
                              label="mean of the groups"))
    figure.legend(handles=handles, loc="center left", ncols=4,
                  bbox_to_anchor=(0.002, 1 - 0.62 / height_in))


def _chart(axes: Axes, panel: Panel, width_pt: int) -> None:
    axes.set_title(TITLES[panel.resource], pad=19)
    worst = panel.worst if width_pt == AXIS_PT else panel.worst.replace(" its share", "")
    axes.annotate(worst, (0, 1), (0, 5), xycoords="axes fraction", textcoords="offset points",
                  fontsize=9, color=QUIET, va="bottom").set_in_layout(False)
    axes.set_ylabel(panel.unit)
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=(1, 2, 2.5, 5, 10),
                                             integer=panel.unit_size == 1))
    series = [[value / panel.unit_size for value in values]
              for values in (panel.before, panel.after, panel.shares)]
    if len(panel.names) <= panel.named_max:
        _bars(axes, panel, *series)
        digits = max(len(_number(panel, value)) for value in (*panel.before, *panel.after))
        if 2 * len(panel.names) * (digits + 0.5) * DIGIT_PT <= width_pt:
            _numbers(axes, panel)
    else:
        _profile(axes, panel, *series)
    axes.set_ylim(0, 1.2 * panel.most / panel.unit_size)


def _bars(axes: Axes, panel: Panel, before: list[float], after: list[float],
          shares: list[float]) -> None:
    places = range(len(panel.names))
    axes.bar([at - BAR / 2 for at in places], before, BAR, color=BEFORE)
    axes.bar([at + BAR / 2 for at in places], after, BAR, color=AFTER)
    if panel.resource == GROUP_INGRESS:
        axes.axhline(shares[0], color=SHARE, linewidth=1.6, linestyle=":")
    else:
        marked = [(at, share) for at, share in zip(places, shares, strict=True) if share]
        axes.hlines([share for _, share in marked], [at - 0.46 for at, _ in marked],
                    [at + 0.46 for at, _ in marked], color=SHARE, linewidth=1.6)
    axes.set_xticks(places, panel.names)
    axes.set_xlim(-0.6, max(2.5, len(panel.names) - 0.4))
    axes.tick_params(axis="x", length=0, labelsize=9 if len(panel.names) <= 16 else 7)
    axes.set_xlabel(f"group, the fullest first{panel.rest}" if panel.resource == GROUP_INGRESS
                    else "node")


def _numbers(axes: Axes, panel: Panel) -> None:
    """Write the load of each bar above it."""
    for shift, values, colour in ((-BAR / 2, panel.before, QUIET), (BAR / 2, panel.after, AFTER)):
        for at, value in enumerate(values):
            load = value / panel.unit_size
            axes.annotate(_number(panel, value), (at + shift, load), (0, 2),
                          textcoords="offset points", ha="center", va="bottom",
                          fontsize=8.5, color=colour,
                          bbox={"boxstyle": "square,pad=0.05", "facecolor": "white",
                                "edgecolor": "none", "alpha": 0.75})


def _number(panel: Panel, value: int) -> str:
    return f"{value:,}" if panel.unit_size == 1 else f"{value / panel.unit_size:.3g}"


def _profile(axes: Axes, panel: Panel, before: list[float], after: list[float],
             shares: list[float]) -> None:
    """Draw bins in falling order, sorted for each series: it shows the unevenness, not single bins.
    """
    for values, colour in ((before, BEFORE), (after, AFTER), ([*filter(None, shares)], SHARE)):
        axes.plot(range(1, len(values) + 1), sorted(values, reverse=True), color=colour,
                  linewidth=1.6, drawstyle="steps-mid",
                  linestyle=":" if colour == SHARE and panel.resource == GROUP_INGRESS else "-")
    axes.set_xlim(1, len(panel.names))
    if len(panel.names) > 2 * GROUPS_NAMED_MAX:  # the full ones matter, and they are few
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda place, _: f"{place:.0f}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(f"{plural(len(panel.names), plan_words.bin_name(panel.resource))}, the fullest "
                    f"first{panel.rest}")
