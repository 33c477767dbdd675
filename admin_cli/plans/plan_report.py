"""The report of the planner: a page, a picture and the plan, in a directory.

Contract.  ``write`` makes the directory and puts three files into it: ``report.md``, ``loads.svg``
(when matplotlib is installed; the page says when it is not) and ``plan.json``.  The page has the
sources of the plan, the time of each step, loads before and after beside their lower bounds, the
reasons of moves, and the moves that were skipped with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from admin_cli import extras
from admin_cli.console.output import plural
from admin_cli.failures import CommandFailed
from admin_cli.plans import load_view, plan_left, plan_view, plan_words
from admin_cli.values import quantities
from placement import plan as plans
from placement.describe import iso

PAGE, PICTURE, PLAN = "report.md", "loads.svg", "plan.json"
#: Rows of the page: nodes furthest from their share, moves, and skipped moves; the plan has all.
NODES_MAX, MOVES_MAX, SKIPPED_MAX = 20, 40, 40


def write(made: Any, directory: Path) -> None:
    """Write page, picture and plan of ``spark.planning.Made`` into ``directory``, which is created.
    Raises ``CommandFailed``."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / PLAN).write_bytes(plans.save(made.plan))
        picture = load_view.can_draw()
        if picture:
            load_view.write(made.plan, directory / PICTURE)
        (directory / PAGE).write_text(page(made, picture), encoding="utf-8")
    except OSError as error:
        raise CommandFailed(f"{directory} cannot be written: {error.strerror}.") from error


def page(made: Any, picture: bool) -> str:
    """Return the page as Markdown; ``picture``: it shows the picture, otherwise how to get one."""
    plan = made.plan
    parts = [f"# {plan_words.title(plan)}", _head(made),
             f"![Load before and after]({PICTURE})" if picture else
             f"The picture needs matplotlib: `{extras.install_line('pictures')}`.",
             "## Balance", _balance(plan), "## Moves", _totals(plan), _reasons(plan),
             _moves(plan), "## Not moved", _skipped(plan), _infeasible(plan),
             "## Nodes furthest from their share", _nodes(plan), "## How it was made",
             _stages(made)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(made: Any) -> str:
    plan = made.plan
    lines = [f"- plan {plan.plan_id}",
             f"- cluster {plan.cluster_id}, snapshot of {iso(plan.created_ms)}, valid until "
             f"{iso(plan.expires_ms)}",
             f"- {plural(len(plan.nodes), 'node')}, {plural(len(plan.groups), 'group')}, "
             f"{plural(made.partitions, 'partition')}, of which {made.listed:,} were considered "
             f"one by one",
             f"- {plural(len(plan.moves), 'move')} in {plural(plan.waves, 'wave')}, "
             f"{quantities.size(plan.bytes)} to copy, about {quantities.span(plan.estimated_ms)}",
             "- converged: no further moves are needed" if plan.converged else
             f"- **incomplete**, {plan_left.what_cut(plan)}: plan again when this plan is done"]
    return "\n".join([*lines, *(f"- warning: {warning}" for warning in plan.warnings)])


def _balance(plan: plans.Plan) -> str:
    return "The worst node, or group, in per cent of an even share by weight.\n\n" + _table(
        ("load", "band", "worst before", "worst after", "lower bound", "from", "above the bound",
         "moved", "at least", "more than that"),
        [(row.resource, f"{row.band_permille / 10:g} %", plan_left.percent(row.before_ppm),
          plan_left.percent(row.after_ppm), plan_left.percent(row.bound_ppm), row.bound,
          plan_view.gap(row), plan_words.amount(row.resource, row.moved),
          plan_words.amount(row.resource, row.moved_bound), plan_view.excess_moved(row))
         for row in plan.resources])


def _totals(plan: plans.Plan) -> str:
    return _table(("kind", "moves", "copied"),
                  [(row.kind, f"{row.moves:,}", quantities.size(row.bytes))
                   for row in plan.totals])


def _reasons(plan: plans.Plan) -> str:
    counts = Counter((move.why.reason, move.why.resource) for move in plan.moves)
    return _table(("reason", "resource", "moves"),
                  [(reason, resource or "-", f"{count:,}")
                   for (reason, resource), count in sorted(counts.items())])


def _moves(plan: plans.Plan) -> str:
    rows = [(move.seq, move.wave, plan_view.describe_move(move), quantities.size(move.bytes),
             move.why.reason) for move in plan.moves[:MOVES_MAX]]
    return _table(("move", "wave", "what", "copies", "why"), rows) + _rest(
        len(plan.moves) - len(rows), "moves", f"`multiraft rebalance show --all {PLAN}`")


def _skipped(plan: plans.Plan) -> str:
    if not plan.skipped:
        return "None: every candidate is moved."
    counts = Counter(row.reason for row in plan.skipped)
    rows = [(row.reason, row.subject, plan_words.amount(row.resource, row.load), row.text)
            for row in plan.skipped[:SKIPPED_MAX]]
    said = ", ".join(f"{reason} {count:,}" for reason, count in sorted(counts.items()))
    return f"{said}\n\n" + _table(("reason", "what", "load", "text"), rows) + _rest(
        len(plan.skipped) - len(rows), "candidates", f"`{PLAN}`")


def _infeasible(plan: plans.Plan) -> str:
    return _table(("infeasible", "what", "text", "remedy"),
                  [(row.cause, row.subject, row.text, row.way_out) for row in plan.infeasible])


def _nodes(plan: plans.Plan) -> str:
    """Return a table of the ``NODES_MAX`` nodes that are furthest from their share in any resource,
    before or after."""

    def distance(row: plans.NodeOutcome) -> int:
        return max((abs(value - share) * 1_000_000 // share
                    for values in (row.before, row.after)
                    for value, share in zip(values, row.share, strict=True) if share), default=0)

    shown = sorted(plan.nodes, key=lambda row: (-distance(row), row.node))[:NODES_MAX]
    rows = [(row.node, row.rack or "-", row.state,
             *(_step(before, after, share) for before, after, share
               in zip(row.before, row.after, row.share, strict=True)),
             f"{row.replicas_before} -> {row.replicas_after}") for row in shown]
    return _table(("node", "rack", "state", "disk", "ingress", "egress", "leaders", "replicas"),
                  rows)


def _step(before: int, after: int, share: int) -> str:
    """Return a load before and after in per cent of the node's share; a dash without a share."""
    if not share:
        return "-"
    return f"{100 * before / share:.1f} -> {100 * after / share:.1f} %"


def _stages(made: Any) -> str:
    return _table(("step", "seconds", "result"),
                  [(stage.name, f"{stage.seconds:.1f}", stage.text) for stage in made.stages])


def _rest(count: int, noun: str, where: str) -> str:
    return f"\n\n... and {count:,} {noun} more: {where}" if count > 0 else ""


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table, with ``|`` in cells escaped, or an empty text when it has no
    rows."""
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    if not cells:
        return ""
    lines = [columns, ["---"] * len(columns), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
