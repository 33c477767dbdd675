"""The picture of a plan: load per node and group, before and after.

Contract.  Pure: a plan in, the bytes of an SVG or PNG out; the same plan gives the same SVG.  One
panel per resource of which there is any, with each node's share as a line across its bars, and one
with the groups.  Few bins are bars with names, many are a profile: bins in falling order.

Letters are drawn as shapes, so that the picture looks the same where no font is installed.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from admin_cli import plan_left, quantities
from admin_cli.output import plural
from placement.cluster import ALIVE
from placement.plan import NodeOutcome, Plan
from placement.policy import DISK, GROUP_INGRESS, LEADERS, NODE_RESOURCES

WIDTH_IN = 11.0
PANEL_IN = 2.5
HEAD_IN = 0.55
DPI = 120
#: Bins that still have a bar and a name each.
NODES_NAMED_MAX = 24
GROUPS_NAMED_MAX = 64
BEFORE, AFTER, SHARE = "#b4bfca", "#2f6db3", "#c0392b"
BAR = 0.38
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
STYLE: dict[Any, Any] = {
         "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
         "axes.grid.axis": "y", "grid.color": "#e4e7eb", "grid.linewidth": 0.6,
         "axes.axisbelow": True, "axes.edgecolor": "#9aa5b1", "svg.fonttype": "path",
         "axes.titlesize": 10, "axes.titleweight": "bold", "axes.titlelocation": "left",
         "legend.frameon": False, "legend.fontsize": 9, "font.family": "sans-serif"}


class Panel(NamedTuple):
    """One chart: bins with a load each, and their shares (0 = none), in ``unit``s of ``unit_size``.
    ``worst``: how far the worst bin is above the mean by weight."""

    title: str
    worst: str
    names: tuple[str, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    shares: tuple[int, ...]
    named_max: int
    unit: str
    unit_size: int

    @property
    def most(self) -> int:
        """Return the longest bar."""
        return max(1, *self.before, *self.after, *self.shares)


def drawn(made: Plan, kind: str) -> bytes:
    """Return the picture of a plan's loads as a file's content; ``kind`` is "svg" or "png"."""
    panels = [_of_nodes(made, position) for position in range(len(NODE_RESOURCES))]
    panels = [panel for panel in (*panels, _of_groups(made))
              if any(panel.before) or any(panel.after)]
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": made.plan_id}):
        figure = _figure(made, panels)
        out = io.BytesIO()
        if kind == "svg":
            FigureCanvasSVG(figure).print_svg(out, metadata={"Date": None, "Creator": None})
        else:
            figure.set_dpi(DPI)
            FigureCanvasAgg(figure).print_png(out)
    return out.getvalue()


def _of_nodes(made: Plan, position: int) -> Panel:
    resource = NODE_RESOURCES[position]
    return _panel(made, resource, f"{resource} per node",
                  tuple(map(_name, made.nodes)),
                  tuple((row.before[position], row.after[position], row.share[position])
                        for row in made.nodes), NODES_NAMED_MAX)


def _name(row: NodeOutcome) -> str:
    said = "" if row.state == ALIVE else f"\n{row.state}"
    if not row.replicas_before and row.replicas_after:
        said = "\nnew"
    return f"{row.node}{said}"


def _of_groups(made: Plan) -> Panel:
    mean = sum(row.after for row in made.groups) // max(1, len(made.groups))
    return _panel(made, GROUP_INGRESS, "appended per group",
                  tuple(str(row.group) for row in made.groups),
                  tuple((row.before, row.after, mean) for row in made.groups), GROUPS_NAMED_MAX)


def _panel(made: Plan, resource: str, title: str, names: tuple[str, ...],
           rows: Sequence[tuple[int, int, int]], named_max: int) -> Panel:
    worst = next((f"worst {plan_left.percent(row.before_ppm)} of the mean, then "
                  f"{plan_left.percent(row.after_ppm)}" for row in made.resources
                  if row.resource == resource and row.total), "")
    before, after, shares = zip(*rows, strict=True) if rows else ((), (), ())
    unit, unit_size = _unit(resource, max((0, *before, *after, *shares)))
    return Panel(f"{title}{unit and f', {unit}'}", worst, names, before, after, shares, named_max,
                 unit, unit_size)


def _unit(resource: str, most: int) -> tuple[str, int]:
    """Return (name, size) of the largest unit in which the longest bar is at least one."""
    if resource == LEADERS:
        return "", 1
    power = min(len(UNITS) - 1, max(0, most.bit_length() - 1) // 10)
    return UNITS[power] + ("" if resource == DISK else "/s"), 1 << 10 * power


# ---- drawing ------------------------------------------------------------------------------------

def _figure(made: Plan, panels: Sequence[Panel]) -> Figure:
    """Return a figure with two charts of nodes beside each other; the groups take a row of their
    own."""
    wide = [panel for panel in panels if panel.named_max == GROUPS_NAMED_MAX]
    narrow = [panel for panel in panels if panel.named_max != GROUPS_NAMED_MAX]
    rows = max(1, -(-len(narrow) // 2) + len(wide))
    height_in = PANEL_IN * rows + HEAD_IN
    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    engine = figure.get_layout_engine()
    assert isinstance(engine, ConstrainedLayoutEngine)
    engine.set(h_pad=0.1, w_pad=0.1, rect=(0, 0, 1, 1 - HEAD_IN / height_in))
    grid = figure.add_gridspec(rows, 2)
    for at, panel in enumerate(narrow):
        _chart(figure.add_subplot(grid[at // 2, at % 2]), panel)
    for at, panel in enumerate(wide, rows - len(wide)):
        _chart(figure.add_subplot(grid[at, :]), panel)
    _head(figure, made, height_in)
    return figure


def _head(figure: Figure, made: Plan, height_in: float) -> None:
    """Draw the title and the legend."""
    middle = 1 - HEAD_IN / 2 / height_in
    figure.text(0.012, middle, f"Plan {made.plan_id[:12]}, scope {made.options.scope}: "
                f"{plural(len(made.moves), 'move')}, {quantities.size(made.bytes)} to copy",
                fontsize=12, fontweight="bold", va="center")
    handles = [Patch(color=BEFORE, label="before"), Patch(color=AFTER, label="after, as planned"),
               Line2D([], [], color=SHARE, linewidth=1.6, label="share (groups: the mean)")]
    figure.legend(handles=handles, loc="center right", ncols=3, bbox_to_anchor=(0.995, middle))


def _chart(axes: Axes, panel: Panel) -> None:
    axes.set_title(panel.title)
    axes.set_title(panel.worst, loc="right", fontsize=8.5, fontweight="normal", color="#52606d")
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=(1, 2, 2.5, 5, 10),
                                             integer=panel.unit_size == 1))
    draw = _bars if len(panel.names) <= panel.named_max else _profile
    draw(axes, panel, *([value / panel.unit_size for value in values]
                        for values in (panel.before, panel.after, panel.shares)))
    axes.set_ylim(0, 1.08 * panel.most / panel.unit_size)


def _bars(axes: Axes, panel: Panel, before: list[float], after: list[float],
          shares: list[float]) -> None:
    places = range(len(panel.names))
    axes.bar([at - BAR / 2 for at in places], before, BAR, color=BEFORE)
    axes.bar([at + BAR / 2 for at in places], after, BAR, color=AFTER)
    marked = [(at, share) for at, share in zip(places, shares, strict=True) if share]
    axes.hlines([share for _, share in marked], [at - 0.46 for at, _ in marked],
                [at + 0.46 for at, _ in marked], color=SHARE, linewidth=1.6)
    axes.set_xticks(places, panel.names)
    axes.set_xlim(-0.7, max(2.5, len(panel.names) - 0.3))
    axes.tick_params(axis="x", length=0, labelsize=7 if len(panel.names) > 32 else 9)


def _profile(axes: Axes, panel: Panel, before: list[float], after: list[float],
             shares: list[float]) -> None:
    """Draw bins in falling order, sorted for each series: it shows the unevenness, not single bins.
    """
    for values, colour in ((before, BEFORE), (after, AFTER), ([*filter(None, shares)], SHARE)):
        axes.plot(range(1, len(values) + 1), sorted(values, reverse=True), color=colour,
                  linewidth=1.6, drawstyle="steps-mid")
    axes.set_xlim(1, len(panel.names))
    if len(panel.names) > GROUPS_NAMED_MAX:  # the full ones matter, and they are few
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda place, _: f"{place:.0f}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(f"{len(panel.names):,} of them in falling order")
