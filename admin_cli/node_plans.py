"""`multiraft node drain|undrain|maintenance|decommission`: what the operator wants of a node.

Contract.  The wish is kept by the cluster and every later plan goes by it; what follows from it is
a plan like any other, which is shown, and carried out only with `--yes`.  Of a plan that is refused
no wish is kept.  Run again, each goes on where it was.  Exit codes as of `multiraft rebalance`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import click

from admin_cli import connection, plan_input, plan_view, rebalance
from admin_cli.failures import CommandFailed
from admin_cli.nodes import await_records, require_known
from admin_cli.options import BytesPerSecond, servers_option
from admin_cli.output import note
from admin_cli.session import Session
from multiraft.errors import MultiRaftError
from multiraft.wire import errors as wire_errors
from multiraft.wire import plans as wire
from placement.plan import Plan
from placement.policy import SCOPE_DRAIN, SCOPE_LEADERS, Options

node_argument = click.argument("node_id", metavar="NODE", type=click.IntRange(min=1))
throttle_option = click.option("--throttle", type=BytesPerSecond(), default=None, metavar="RATE",
                               help="Bytes per second and node, such as 50MiB.")
yes_option = click.option("--yes", is_flag=True, help="Do it. Without it, only show the plan.")
wait_option = click.option("--wait", is_flag=True, help="Come back when it is over.")


@click.command(cls=rebalance.PlanCommand)
@node_argument
@throttle_option
@yes_option
@wait_option
@servers_option
@click.pass_obj
def drain(session: Session, node_id: int, throttle: int | None, yes: bool, wait: bool) -> None:
    """Move everything away from NODE, which gets nothing new until `node undrain`."""
    with connection.open_session(session) as client:
        _empty(client, session, node_id, throttle, yes, wait)


def _empty(client: Any, session: Session, node_id: int, throttle: int | None, yes: bool,
           wait: bool) -> None:
    """Plan the drain of a node, and carry it out if that is wanted.  Nothing is written down of a
    drain that cannot be done."""
    require_known(client, node_id)
    made = rebalance.make(client, Options(SCOPE_DRAIN, 0, (node_id,), 0,
                                          throttle or Options().copy_rate),
                          rebalance.read_policy(None), plan_input.WINDOW_S / 4, session)
    plan_view.show_plan(made)
    if made.infeasible:
        rebalance.end_of(made)
    if not yes:
        note("Nothing was changed. To do it, say --yes.")
        return
    if not made.moves:
        client.plan_request(wire.SetNodeState(node_id, wire.DRAINING))
        note(f"Node {node_id} is empty, and gets nothing new until `multiraft node undrain "
             f"{node_id}`.")
        return
    _carry_out(client, session, _Wish(node_id, wire.DRAINING), made, throttle, wait)


class _Wish(NamedTuple):
    """What is wanted of a node."""

    node: int
    state: str


def _wanted_of(client: Any, node_id: int) -> str:
    """What is wanted of a node up to now."""
    return dict(client.plan_request(wire.PlacementFacts()).intents).get(node_id, wire.ALIVE)


def _carry_out(client: Any, session: Session, wish: _Wish, made: Plan, throttle: int | None,
               wait: bool) -> None:
    state = _begin(client, wish, made, throttle)
    note(f"Plan {made.plan_id[:12]} is {state}. Watch it: multiraft rebalance status --watch")
    if wait:
        rebalance.finish(client, session, made.plan_id)


def _begin(client: Any, wish: _Wish, made: Plan, throttle: int | None) -> str:
    """Write the wish down and hand the plan over; the plan's state.  The wish comes first, so that
    no other plan brings to the node what this one takes away; a refusal takes it back."""
    before = _wanted_of(client, wish.node)
    client.plan_request(wire.SetNodeState(*wish))
    try:
        return rebalance.begin(client, made, throttle)
    except (CommandFailed, MultiRaftError, OSError) as error:
        refused = isinstance(error, CommandFailed) or (
            isinstance(error, wire_errors.RequestError) and not error.retriable)
        if not (refused and _taken_back(client, _Wish(wish.node, before))):
            note(f"Node {wish.node} is marked as {wish.state}: run the command again to go on, or "
                 f"take it back with `multiraft node undrain {wish.node}`.")
        raise


def _taken_back(client: Any, before: _Wish) -> bool:
    """Whether the node is wanted as before again."""
    try:
        client.plan_request(wire.SetNodeState(*before))
    except (MultiRaftError, OSError):
        return False
    note(f"Nothing was changed: node {before.node} is {before.state}, as before.")
    return True


@click.command(cls=rebalance.PlanCommand)
@node_argument
@servers_option
@click.pass_obj
def undrain(session: Session, node_id: int) -> None:
    """NODE is like any other again: the end of `node drain` and `node maintenance`.

    Moves nothing: `multiraft rebalance plan` shows what it may take back. A plan that empties the
    node goes on until `multiraft rebalance cancel`.
    """
    with connection.open_session(session) as client:
        require_known(client, node_id)
        status = client.plan_request(wire.PlanStatus())
        client.plan_request(wire.SetNodeState(node_id, wire.ALIVE))
    note(f"Node {node_id} takes leaders and replicas again. To give it some: multiraft rebalance "
         f"plan")
    if status.state in ("running", "paused"):
        note(f"Plan {status.plan_id[:12]}, scope {status.scope}, goes on: what it was made to take "
             f"from node {node_id} it still takes. To end it: multiraft rebalance cancel")


@click.command(cls=rebalance.PlanCommand)
@node_argument
@yes_option
@wait_option
@servers_option
@click.pass_obj
def maintenance(session: Session, node_id: int, yes: bool, wait: bool) -> None:
    """Move the leaders away from NODE; its replicas stay, and it leads nothing until
    `node undrain`."""
    with connection.open_session(session) as client:
        require_known(client, node_id)
        wish = _Wish(node_id, wire.MAINTENANCE)
        made = rebalance.make(client, Options(SCOPE_LEADERS), rebalance.read_policy(None),
                              plan_input.WINDOW_S / 4, session, dict([wish]))
        plan_view.show_plan(made)
        if not yes:
            note("Nothing was changed. To do it, say --yes.")
        elif made.moves:
            _carry_out(client, session, wish, made, None, wait)
        else:
            before = _wanted_of(client, node_id)
            client.plan_request(wire.SetNodeState(*wish))
            note(f"Node {node_id} leads nothing that another node could lead.")
            if before == wish.state:
                raise click.exceptions.Exit(int(rebalance.PlanExit.NOTHING_TO_DO))


@click.command(cls=rebalance.PlanCommand)
@node_argument
@throttle_option
@yes_option
@servers_option
@click.pass_obj
def decommission(session: Session, node_id: int, throttle: int | None, yes: bool) -> None:
    """Drain NODE, wait, and forget it for ever: its id is never used again.

    The node may be stopped when this is over; it ends by itself. Interrupted, it goes on when the
    command is run again.
    """
    with connection.open_session(session) as client:
        status = client.plan_request(wire.PlanStatus())
        if yes and status.scope == SCOPE_DRAIN and status.state in ("running", "paused"):
            rebalance.finish(client, session, status.plan_id)
        _empty(client, session, node_id, throttle, yes, wait=True)
        if not yes:
            return
        await_records(client, node_id, set())
        left = client.node_describe(node_id)
        if any(left.voter_of) or 0 in left.voter_of:
            raise CommandFailed(f"node {node_id} still has replicas of groups "
                                f"{list(left.voter_of)}.", "Run the command again.")
        client.remove_node(node_id)
    note(f"Node {node_id} was emptied and removed.")


COMMANDS = (drain, undrain, maintenance, decommission)
