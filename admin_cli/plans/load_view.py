"""Loads of nodes and groups before and after a plan: bars for the terminal, and a picture.

Contract.  ``show`` prints; ``draw`` writes a file.  Both are functions of the plan, which contains
the loads, and send no requests.  The picture needs matplotlib, which only the extras ``pictures``,
``demo`` and ``chaos`` install, and is drawn by ``plan_picture``; it is imported on use.
"""

from __future__ import annotations

from pathlib import Path

import click

from admin_cli import extras
from admin_cli.console.output import note, plural, print_table, say, write_file
from admin_cli.plans import plan_words
from placement.plan import GroupOutcome, NodeOutcome, Plan
from placement.policy import GROUP_INGRESS, LEADERS, NODE_RESOURCES

BAR_CELLS = 14
#: Rows of a drawing; the rest is counted only.
NODES_SHOWN_MAX = 32
GROUPS_SHOWN_MAX = 16
KINDS = (".svg", ".png")

TITLES = dict(zip(NODE_RESOURCES, ("bytes on disk", "appended, all replicas",
                                   "sent by leaders", "groups led"), strict=True))


def _picture_path(context: click.Context, _parameter: click.Parameter,
                  value: Path | None) -> Path | None:
    if value is not None and value.suffix not in KINDS:
        raise click.UsageError(f"--picture writes {' or '.join(KINDS)} files, and {value} is "
                               f"neither.")
    if value is not None and not context.resilient_parsing and not can_draw():
        raise extras.missing("pictures", "matplotlib")
    return value


picture_option = click.option(
    "--picture", "picture", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    callback=_picture_path, help="Draw loads before and after into this .svg or .png file.")


# ---- bars ---------------------------------------------------------------------------------------

def show(made: Plan) -> None:
    """Print a table of the nodes, then bars of each resource whose load is balanced, every node
    before and after, then the groups. Loads below their floors have no bars."""
    leads = NODE_RESOURCES.index(LEADERS)
    judged = [row.resource for row in plan_words.judged(made)]
    say()
    print_table(("node", "rack", "state", "weight", "replicas", "leaders"),
                [(row.node, row.rack or None, row.state, row.weight,
                  _step(row.replicas_before, row.replicas_after),
                  _step(row.before[leads], row.after[leads]))
                 for row in made.nodes[:NODES_SHOWN_MAX]])
    _rest(len(made.nodes) - NODES_SHOWN_MAX, "node")
    for position, resource in enumerate(NODE_RESOURCES):
        if resource in judged:
            _show_nodes(made.nodes, position, resource)
    if GROUP_INGRESS in judged:
        _show_groups(made.groups)


def _step(before: int, after: int) -> str:
    return f"{before:,}" if before == after else f"{before:,} -> {after:,}"


def _show_nodes(rows: tuple[NodeOutcome, ...], position: int, resource: str) -> None:
    """Print the bars of nodes; those furthest from their share come first when not all fit."""
    if len(rows) > NODES_SHOWN_MAX:
        far = sorted(rows, key=lambda row: (-abs(row.before[position] - row.share[position]),
                                            row.node))[:NODES_SHOWN_MAX]
        shown = sorted(far)
    else:
        shown = list(rows)
    most = max(max(row.before[position], row.after[position], row.share[position])
               for row in rows)
    mark = "is its share" if resource == LEADERS else "and 100 % are its share"
    say(f"\n{resource} per node: {TITLES[resource]}; | {mark}")
    print_table(("node", "before", "", "after", ""), [
        (row.node, bar(row.before[position], most, row.share[position] or None),
         _amount(resource, row, row.before[position], position),
         bar(row.after[position], most, row.share[position] or None),
         _amount(resource, row, row.after[position], position)) for row in shown])
    _rest(len(rows) - len(shown), "node")


def _amount(resource: str, row: NodeOutcome, value: int, position: int) -> str:
    """Return a load and how many per cent of the node's share it is; a number of leaders alone,
    because shares of whole ones are rounded."""
    share = row.share[position]
    if resource == LEADERS:
        return f"{value:,}"
    of_share = f", {value * 100 // share} %" if share else ""
    return f"{plan_words.amount(resource, value)}{of_share}"


def bar(value: int, most: int, mark: int | None = None) -> str:
    """Return ``value`` of ``most`` as ``BAR_CELLS`` cells, with a line at ``mark``; a value above 0
    has at least one cell."""
    filled = 0 if most <= 0 else round(BAR_CELLS * value / most)
    cells = ["#"] * max(filled, value > 0)
    cells += ["."] * (BAR_CELLS - len(cells))
    if mark is not None and most > 0:
        cells.insert(min(BAR_CELLS, round(BAR_CELLS * mark / most)), "|")
    return "".join(cells)


def _show_groups(rows: tuple[GroupOutcome, ...]) -> None:
    """Print the bars of the groups with appends, the fullest first."""
    by_load = sorted((row for row in rows if row.before or row.after),
                     key=lambda row: (-max(row.before, row.after), row.group))
    shown = by_load[:GROUPS_SHOWN_MAX]
    if not shown:
        return
    mean = sum(row.before for row in rows) // len(rows)
    most = max(mean, by_load[0].before, by_load[0].after)
    say(f"\nappended per group, the fullest first; | is the mean of "
        f"{plural(len(rows), 'group')}")
    print_table(("group", "before", "", "after", ""), [
        (row.group, bar(row.before, most, mean), plan_words.amount(GROUP_INGRESS, row.before),
         bar(row.after, most, mean), plan_words.amount(GROUP_INGRESS, row.after))
        for row in shown])
    _rest(len(by_load) - len(shown), "group")
    if idle := len(rows) - len(by_load):
        say(f"{plural(idle, 'group')} without appends")


def _rest(count: int, noun: str) -> None:
    if count > 0:
        say(f"... and {plural(count, noun)} more")


# ---- the picture --------------------------------------------------------------------------------

def draw(made: Plan, path: Path) -> None:
    """Write the picture of a plan's loads into ``path``, and print a note with its name. Raises
    ``CommandFailed`` without the drawing library, and when the file cannot be written."""
    write(made, path)
    note(f"Drawn: {path}")


def can_draw() -> bool:
    """Return True if the drawing library is installed."""
    return extras.is_installed("matplotlib")


def write(made: Plan, path: Path) -> None:
    """Write the picture of a plan's loads in the format of the name of ``path``. Raises
    ``CommandFailed`` without the drawing library, and when the file cannot be written."""
    if not can_draw():
        raise extras.missing("pictures", "matplotlib")
    from admin_cli.plans import plan_picture

    write_file(path, plan_picture.drawn(made, path.suffix[1:]))
