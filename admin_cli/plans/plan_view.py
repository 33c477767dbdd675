"""Plans and their progress as text and as JSON.

Contract.  Functions of values; they print and send no requests.  The keys of the JSON are stable.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import Any

from admin_cli.console.output import note, plural, print_table, say
from admin_cli.plans import plan_words
from admin_cli.plans.plan_left import remaining_imbalance, short_of_replicas, what_cut
from admin_cli.plans.plan_words import amount
from admin_cli.values import quantities
from multiraft.wire import plans as wire
from placement.plan import (
    Difference,
    LeaderTransfer,
    Move,
    Plan,
    ResourceOutcome,
    TopicSwitch,
)
from placement.policy import NODE_RESOURCES
from placement.verify import Fault

#: Moves shown unless all are asked for.
SHOWN_MAX = 20
#: Faults of a plan shown: one suffices to make another plan.
FAULTS_MAX = 5
#: Columns of sentences, on any terminal.
WIDTH = 79
#: Meaning of two columns, which are lower bounds.
BOUNDS_EXPLAINED = ("at best: no placement of these loads is closer to an even share.\n"
                    "at least: so much has to be moved by any plan that brings all into the band.")


def gap(row: ResourceOutcome) -> str:
    """Return the distance of the worst bin from the lower bound afterwards: ``+2.00 %``."""
    return f"{row.gap_ppm / 10_000:+.2f} %"


def excess_moved(row: ResourceOutcome) -> str:
    """Return the excess of moved bytes over the lower bound; a dash when the bound is 0."""
    return f"{100 * (row.moved / row.moved_bound - 1):+.2f} %" if row.moved_bound else "-"


def describe_move(move: Move) -> str:
    """Return a move in words: ``group 7: nodes 1 2 3 -> 2 3 4``."""
    if isinstance(move, LeaderTransfer):
        return f"group {move.group}: leader {_leader_step(move)}"
    if isinstance(move, TopicSwitch):
        return f"{move.topic}/{move.partition}: group {move.from_group} -> {move.to_group}"
    leader = f", leader {step}" if (step := _leader_step(move)) else ""
    return f"group {move.group}: nodes {_nodes_step(move)}{leader}"


def _leader_step(move: Move) -> str:
    """Return the leader before and after; empty if it stays."""
    if isinstance(move, LeaderTransfer):
        return f"{move.from_node} -> {move.to_node}"
    if isinstance(move, TopicSwitch) or not plan_words.changes_leader(move):
        return ""
    return f"{move.from_leader} -> {move.to_leader}"


def _nodes_step(move: Move) -> str:
    """Return the nodes with replicas before and after; empty if they stay."""
    if isinstance(move, (LeaderTransfer, TopicSwitch)):
        return ""
    return f"{' '.join(map(str, move.old_voters))} -> {' '.join(map(str, move.new_voters))}"


def describe_faults(made: Plan, faults: Sequence[Fault]) -> str:
    """Return the first ``FAULTS_MAX`` faults of a plan, a line each, and the number of the others.
    """
    moves = {move.move_id: move for move in made.moves}
    lines = [f"{fault.code}, {describe_move(moves[fault.move_id])}: {fault.text}"
             if fault.move_id in moves else f"{fault.code}: {fault.text}"
             for fault in faults[:FAULTS_MAX]]
    if len(faults) > FAULTS_MAX:
        lines.append(f"... and {len(faults) - FAULTS_MAX:,} more")
    return "\n".join(lines)


def show_plan(made: Plan, all_moves: bool = False) -> None:
    """Print the loads, the first moves of a plan with reasons (``all_moves``: all of them), and
    what is not moved or impossible."""
    say(_headline(made))
    for line in plan_words.reasons(made):
        say(textwrap.fill(line, WIDTH, initial_indent="  ", subsequent_indent="    "))
    judged = plan_words.judged(made)
    if judged:
        say("\nThe worst node, or group, above an even share by weight, and what is moved:")
        print_table(("load", "before", "after", "at best", "moved", "at least"),
                    [(row.resource, plan_words.above(row.before_ppm),
                      plan_words.above(row.after_ppm), plan_words.above(row.bound_ppm),
                      amount(row.resource, row.moved), amount(row.resource, row.moved_bound))
                     for row in judged])
        say(BOUNDS_EXPLAINED)
    small = plan_words.below_floors(made)
    if small and (made.moves or judged):
        say("\n" + textwrap.fill(small, WIDTH))
    if made.moves:
        say("\nThe moves in their order; those of one wave may be under way at once:")
        shown = made.moves if all_moves else made.moves[:SHOWN_MAX]
        _show_moves(shown)
        if len(shown) < len(made.moves):
            say(f"... and {plural(len(made.moves) - len(shown), 'move')} more (--all shows them)")
    show_remarks(made)


def _show_moves(moves: Sequence[Move]) -> None:
    """Print a table of moves. Columns that are empty for all of them are left out."""
    columns = ("wave", "partition", "group", "nodes", "leader", "copies", "why")
    rows = [(move.wave, *_subject(move), _nodes_step(move) or None, _leader_step(move) or None,
             str(quantities.size(move.bytes)) if move.bytes else None, plan_words.why(move))
            for move in moves]
    kept = [at for at in range(len(columns)) if any(row[at] is not None for row in rows)]
    print_table([columns[at] for at in kept], [[row[at] for at in kept] for row in rows])


def _subject(move: Move) -> tuple[str | None, int | str]:
    """Return the partition of a switch, and the group, of a switch before and after."""
    if isinstance(move, TopicSwitch):
        return f"{move.topic}/{move.partition}", f"{move.from_group} -> {move.to_group}"
    return None, move.group


def show_remarks(made: Plan) -> None:
    """Print notes on what the plan leaves, with reasons, and on what is impossible."""
    if made.moves and not made.converged:
        note(f"Incomplete, {what_cut(made)}: plan again when this plan is done.")
    for warning in made.warnings:
        note(f"Warning: {warning}")
    for left, count in Counter(row.reason for row in made.skipped).items():
        first = next(row for row in made.skipped if row.reason == left)
        example = " for example" if count > 1 else ""
        note(f"Not moved, {left} ({count:,}):{example} {first.text}")
    for why in (*short_of_replicas(made), *remaining_imbalance(made)):
        note(why)
    for row in made.infeasible:
        note(f"Infeasible, {row.cause}: {row.text}. Remedy: {row.way_out}.")


def _headline(made: Plan) -> str:
    """Return what the plan does, how long that takes, and its name."""
    name = f"Plan {made.plan_id[:12]}, scope {made.options.scope}"
    if not made.moves:
        return f"{plan_words.title(made)}. {name}"
    rate = (f" (copies at most {quantities.size(made.options.copy_rate)}/s per node)"
            if made.bytes else "")
    took = quantities.span(made.estimated_ms) if made.estimated_ms >= 1000 else "1 s"
    return f"{plan_words.title(made)}, about {took}{rate}\n{name}:"


def plan_json(made: Plan) -> dict[str, Any]:
    """Return the essence of a plan; the file has everything."""
    return {"plan_id": made.plan_id, "scope": made.options.scope, "moves": len(made.moves),
            "bytes": made.bytes, "estimated_ms": made.estimated_ms, "waves": made.waves,
            "converged": made.converged, "expires_ms": made.expires_ms,
            "resources": [{**row._asdict(), "gap_ppm": row.gap_ppm} for row in made.resources],
            "infeasible": [row._asdict() for row in made.infeasible],
            "skipped": [row._asdict() for row in made.skipped],
            "warnings": list(made.warnings),
            "nodes": [{**row._asdict(), **{side: dict(zip(NODE_RESOURCES, getattr(row, side),
                                                          strict=True))
                                           for side in ("before", "after", "share")}}
                      for row in made.nodes],
            "groups": [row._asdict() for row in made.groups]}


def show_difference(found: Difference) -> None:
    """Print the differences of a second plan."""
    rows = [("first only", describe_move(move)) for move in found.removed]
    rows += [("second only", describe_move(move)) for move in found.added]
    rows += [("both, changed", f"first: {describe_move(old)}; second: {describe_move(new)}")
             for old, new in found.changed]
    if rows:
        print_table(("plan", "move"), rows)
    else:
        say("The plans have the same moves.")


# ---- progress -----------------------------------------------------------------------------------

def status_json(status: wire.PlanStatusReply) -> dict[str, Any]:
    """Return the progress of a plan, as the JSON has it."""
    return {**status._asdict(), "limits": status.limits._asdict(),
            "phases": dict(status.phases),
            "moves": [{**row._asdict(), "old": list(row.old), "new": list(row.new)}
                      for row in status.moves],
            "nodes": [row._asdict() for row in status.nodes]}


def _state(status: wire.PlanStatusReply) -> str:
    """Return the state of a plan and its reason, once if the reason begins with the state."""
    state, reason = status.state, status.reason
    told = reason if reason.startswith(state) else f"{state} ({reason})" if reason else state
    if state == "cancelled" and dict(status.phases).get("done", 0) == status.moves_total:
        told += "; every move was already made"
    return told


def show_status(status: wire.PlanStatusReply) -> None:
    """Print the progress of a plan: state, moves, bytes and the waits of moves."""
    if not status.plan_id:
        say("no plan has been applied")
        return
    ended = sum(count for phase, count in status.phases
                if phase in ("done", "skipped", "failed", "cancelled"))
    say(f"plan {status.plan_id[:12]}, scope {status.scope}: {_state(status)}")
    say(f"moves: {ended:,} of {status.moves_total:,} ended: "
        + ", ".join(f"{count:,} {phase}" for phase, count in status.phases))
    if status.state == "running":
        say(f"ends in about {quantities.span(max(1_000, status.eta_ms))}" if status.eta_ms >= 0
            else "no estimate yet")
    if status.bytes_total:
        copied = (f"bytes: {quantities.size(status.bytes_done)} of "
                  f"{quantities.size(status.bytes_total)}")
        if status.state == "running":
            copied += (f", {quantities.size(status.rate)}/s (throttle "
                       f"{quantities.size(status.limits.throttle)}/s and node)")
        say(copied)
    if status.nodes:
        say("copying: " + "; ".join(
            f"node {row.node} receives {row.into}, sends {row.out}" for row in status.nodes))
    if status.moves:
        print_table(("move", "phase", "attempt", "copied", "of", "reason, and present wait"),
                    [(row.move_id, row.phase, row.attempt, quantities.size(row.bytes_done),
                      quantities.size(row.bytes_total), f"{row.reason}: {row.wait}")
                     for row in status.moves[:SHOWN_MAX]])
    if status.next_plan_id:
        say(f"then: repair plan {status.next_plan_id[:12]}")
