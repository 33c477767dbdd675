"""`multiraft node drain|undrain|maintenance|decommission`: what the operator wants of a node.

Contract.  The wish is kept by the cluster and every later plan goes by it; what follows from it is
a plan like any other, which is shown, and carried out only with `--yes`.  Run again, each goes on
where it was.  Exit codes as of `multiraft rebalance`.
"""

from __future__ import annotations

from typing import Any

import click

from admin_cli import connection, plan_input, plan_view, rebalance
from admin_cli.failures import CommandFailed
from admin_cli.nodes import await_records, require_known
from admin_cli.options import BytesPerSecond, servers_option
from admin_cli.output import note
from admin_cli.session import Session
from multiraft.wire import plans as wire
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
    client.plan_request(wire.SetNodeState(node_id, wire.DRAINING))
    if not made.moves:
        note(f"Node {node_id} is empty, and gets nothing new until `multiraft node undrain "
             f"{node_id}`.")
        return
    _carry_out(client, session, made, throttle, wait)


def _carry_out(client: Any, session: Session, made: Any, throttle: int | None,
               wait: bool) -> None:
    state = rebalance.begin(client, made, throttle)
    note(f"Plan {made.plan_id[:12]} is {state}. Watch it: multiraft rebalance status --watch")
    if wait:
        rebalance.finish(client, session, made.plan_id)


@click.command(cls=rebalance.PlanCommand)
@node_argument
@servers_option
@click.pass_obj
def undrain(session: Session, node_id: int) -> None:
    """NODE is like any other again: the end of `node drain` and `node maintenance`.

    Moves nothing: `multiraft rebalance plan` shows what it may take back.
    """
    with connection.open_session(session) as client:
        require_known(client, node_id)
        client.plan_request(wire.SetNodeState(node_id, wire.ALIVE))
    note(f"Node {node_id} takes leaders and replicas again. To give it some: multiraft rebalance "
         f"plan")


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
        if yes:
            client.plan_request(wire.SetNodeState(node_id, wire.MAINTENANCE))
        intents = None if yes else {node_id: wire.MAINTENANCE}
        made = rebalance.make(client, Options(SCOPE_LEADERS), rebalance.read_policy(None),
                              plan_input.WINDOW_S / 4, session, intents)
        plan_view.show_plan(made)
        if not yes:
            note("Nothing was changed. To do it, say --yes.")
        elif made.moves:
            _carry_out(client, session, made, None, wait)
        else:
            note(f"Node {node_id} leads nothing that another node could lead.")


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
