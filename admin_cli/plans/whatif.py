"""`multiraft placement whatif`: the effect of a change of the cluster; nothing is changed.

Contract.  The cluster is measured as for a plan, the change is simulated (``placement.whatif``),
and the plan that would follow is shown.  Nothing is stored, and the cluster receives only queries.
Exit codes as of `multiraft rebalance`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from admin_cli import connection
from admin_cli.console.options import TEXT, json_option, servers_option
from admin_cli.console.output import note, plural, print_json, print_table, say
from admin_cli.failures import CommandFailed
from admin_cli.plans import load_view, plan_input, plan_view, rebalance
from admin_cli.session import Session
from admin_cli.status.placement_facts import topic_groups
from admin_cli.values import quantities
from admin_cli.values.numbers import DATA_GROUP, NODE, NODE_ID_MAX, WINDOW, shown
from placement import outcome
from placement.cluster import DEAD, NodeRow, Snapshot
from placement.errors import PlacementError
from placement.plan import Plan, TopicSwitch
from placement.planner import make_plan
from placement.policy import Options
from placement.topology import WEIGHT_DEFAULT, WEIGHT_MAX
from placement.whatif import Change, Place, drained, hypothetical, places

#: Partitions of a named topic shown unless all are asked for.
SHOWN_MAX = 20


class JoiningNode(click.ParamType):
    """A node that does not exist yet: ``5,rack=r2,weight=200,disk=2TiB``."""

    name = "node"

    def convert(self, value: object, param: click.Parameter | None,
                ctx: click.Context | None) -> NodeRow:
        """Return the row of the node that ``value`` describes, for click; anything else is a usage
        error."""
        if isinstance(value, NodeRow):
            return value
        number, *fields = str(value).split(",")
        told = dict(field.partition("=")[::2] for field in fields)
        try:
            if told.keys() - {"rack", "weight", "disk"} or not all(told.values()) \
                    or len(told) != len(fields):
                raise ValueError
            return NodeRow(_whole(number, NODE_ID_MAX), told.get("rack", ""),
                           _whole(told.get("weight", str(WEIGHT_DEFAULT)), WEIGHT_MAX),
                           disk_capacity=quantities.parse_size(told.get("disk", "0")))
        except ValueError:
            self.fail(f"{shown(str(value))} is no node: write 5, or "
                      f"5,rack=r2,weight=200,disk=2TiB, each once and with a value.", param, ctx)


def _whole(text: str, most: int) -> int:
    """Return the whole number that ``text`` names. Raises ``ValueError`` for other text, and for a
    number above ``most``."""
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(most))
            and int(text) <= most):
        raise ValueError
    return int(text)


class _Simulated(NamedTuple):
    """The values that are shown."""

    before: Snapshot
    start: Snapshot  # right after the change
    made: Plan
    after: Snapshot  # after the plan
    topics: dict[str, list[tuple[int, Place, Place]]]  # partition, before, after


@click.command(cls=rebalance.PlanCommand)
@click.argument("topics", nargs=-1, type=TEXT, metavar="[TOPIC]...")
@click.option("--join", "joins", type=JoiningNode(), multiple=True, metavar="NODE",
              help="Add this node: its id, optionally with ,rack=R ,weight=W ,disk=SIZE.")
@click.option("--leave", "leaves", type=NODE, multiple=True, metavar="NODE",
              help="Drain this node.")
@click.option("--lose", "lost", type=NODE, multiple=True, metavar="NODE",
              help="Lose this node and its disk.")
@click.option("--pool", "pool_size", type=DATA_GROUP, default=None, metavar="N",
              help="Grow the pool to N groups.")
@click.option("--window", type=WINDOW, default=plan_input.WINDOW_S,
              metavar="SECONDS", help="Time over which loads are measured.")
@click.option("--policy", "policy", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Bands, limits and exclusions as JSON; omitted keys have their defaults.")
@click.option("--all", "all_moves", is_flag=True, help="Show every move and partition.")
@load_view.picture_option
@json_option
@servers_option
@click.pass_obj
def whatif(session: Session, topics: tuple[str, ...], joins: tuple[NodeRow, ...],
           leaves: tuple[int, ...], lost: tuple[int, ...], pool_size: int | None, window: float,
           policy: Path | None, all_moves: bool, picture: Path | None, as_json: bool) -> None:
    """Show the effect if nodes joined, left or were lost, or the pool grew.

    Changes nothing.  It shows the plan that `rebalance plan` would make then, with the present
    loads: the leaders and loads of nodes, the bytes copied and the partitions switched.  Of each
    TOPIC it shows the new places of its partitions.
    """
    change = Change(joins, leaves, lost, pool_size or 0)
    if change == Change():
        raise click.UsageError("name a change: --join, --leave, --lose or --pool.")
    with connection.open_session(session) as client:
        found = _simulate(client, session, change, topics, rebalance.read_policy(policy), window)
    if as_json:
        print_json(_as_json(found, change))
    else:
        _show(found, change, all_moves)
    if picture is not None:
        load_view.draw(found.made, picture)
    if found.made.infeasible:
        first = found.made.infeasible[0]
        raise rebalance.PlanEnded(f"not all of it could be done. {first.cause}: {first.text}.",
                                  first.way_out, rebalance.PlanExit.INFEASIBLE)
    rebalance.end_of(found.made)


def _simulate(client: Any, session: Session, change: Change, topics: tuple[str, ...],
             policy: Any, window_s: float) -> _Simulated:
    """Measure the cluster for ``window_s`` seconds, and return the simulated change with its plan.
    Raises ``CommandFailed`` for an impossible one."""
    groups = {topic: topic_groups(client, topic) for topic in topics}
    now_ms = time.time_ns() // 1_000_000
    switched = {group for rows in groups.values() for _, group in rows.values()}
    try:
        gathered = plan_input.collect(client, now_ms, bool(change.lost), window_s, switched,
                                      session.pause)
    except PlacementError as error:
        raise CommandFailed(f"nothing can be said of the cluster: {error}.") from error
    before = gathered.snapshot
    dead = [row.id for row in before.nodes if row.state == DEAD and row.id not in change.lost]
    if dead:
        raise CommandFailed(f"node {', '.join(map(str, dead))} is not up.", "Start it, or name it "
                            "with --lose too: what it holds counts as lost.")
    change = change._replace(joins=tuple(_with_disk(row, gathered.disk_total)
                                          for row in change.joins))
    try:
        start = hypothetical(before, change)
        made = make_plan(start, policy, drained(change, Options()))
        after = outcome.planned(start, made)
    except PlacementError as error:
        raise CommandFailed(f"the change is not possible: {error}.") from error
    found = {}
    for topic, rows in groups.items():
        by_incarnation = places(start, made, after, {incarnation: group for incarnation, group
                                                     in rows.values()})
        found[topic] = [(partition, *by_incarnation[incarnation])
                        for partition, (incarnation, _) in sorted(rows.items())]
    return _Simulated(before, start, made, after, found)


def _with_disk(row: NodeRow, totals: Mapping[int, int]) -> NodeRow:
    """Return the node with a disk: one without a size is as large as the smallest disk of the
    cluster, and empty."""
    if row.disk_capacity:
        return row
    return row._replace(disk_capacity=min(totals.values(), default=0))


# ---- what is shown ------------------------------------------------------------------------------

def _show(found: _Simulated, change: Change, all_moves: bool) -> None:
    say(f"What if: {'; '.join(_in_words(found.before, change))}? Nothing is changed.\n")
    plan_view.show_plan(found.made, all_moves)
    load_view.show(found.made)
    if change.pool_size:
        switched = _switches(found.made)
        but = f", but for {plural(switched, 'partition')}" if switched else ""
        say(f"\nNew topics: over {plural(found.start.pool_size, 'group')} instead of "
            f"{found.before.pool_size:,}. Topics that exist stay in their groups{but}.")
    for topic, rows in found.topics.items():
        _show_topic(topic, rows, all_moves)


def _in_words(before: Snapshot, change: Change) -> list[str]:
    words = [f"node {row.id} joins" + (f" in rack {row.rack}" if row.rack else "") +
             (f" with weight {row.weight}" if row.weight != WEIGHT_DEFAULT else "")
             for row in change.joins]
    words += [f"node {node} leaves" for node in change.leaves]
    words += [f"node {node} is lost" for node in change.lost]
    if change.pool_size:
        words.append(f"the pool grows from {before.pool_size:,} to {change.pool_size:,} groups")
    return words


def _switches(made: Plan) -> int:
    return sum(isinstance(move, TopicSwitch) for move in made.moves)


def _show_topic(topic: str, rows: list[tuple[int, Place, Place]], every: bool) -> None:
    other = [row for row in rows if row[1] != row[2]]
    led = sum(before.leader != after.leader for _, before, after in other)
    gone = sum(before.group != after.group for _, before, after in other)
    say(f"\n{topic} ({plural(len(rows), 'partition')}): {gone:,} would switch to another group, "
        f"{led:,} would be led by another node")
    shown = rows if every else other[:SHOWN_MAX]
    if shown:
        print_table(("partition", "group", "leader", "replicas"),
                    [(partition, _step(before.group, after.group),
                      _step(before.leader or None, after.leader or None),
                      _step(" ".join(map(str, before.voters)), " ".join(map(str, after.voters))))
                     for partition, before, after in shown])
    if len(shown) < len(other):
        note(f"... and {len(other) - len(shown):,} more (--all shows them)")


def _step(before: object, after: object) -> str:
    return str(before) if before == after else f"{before or '-'} -> {after or '-'}"


def _as_json(found: _Simulated, change: Change) -> dict[str, Any]:
    return {"change": {"joins": [row.id for row in change.joins], "leaves": list(change.leaves),
                       "lost": list(change.lost)},
            "pool_size": {"before": found.before.pool_size, "after": found.start.pool_size},
            "partitions_switched": _switches(found.made),
            **plan_view.plan_json(found.made),
            "topics": {topic: [{"partition": partition, "before": before._asdict(),
                                "after": after._asdict()} for partition, before, after in rows]
                       for topic, rows in found.topics.items()}}
