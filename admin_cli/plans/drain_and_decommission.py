"""`multiraft node drain`, `undrain`, `maintenance` and `decommission`: states that the
operator wants of a node.

Contract.  The cluster stores the wanted state, and every later plan respects it.  The plan that it
requires is an ordinary plan: it is shown, and applied only with `--yes`.  When that plan is
refused, the wanted state is not stored; and a state whose plan would have to wait for another plan
is refused.  Running a command again continues it.  Exit codes as of `multiraft rebalance`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import click

from admin_cli import connection
from admin_cli.console.options import BytesPerSecond, servers_option
from admin_cli.console.output import note, plural
from admin_cli.console.streams import outlived_reader
from admin_cli.failures import CommandFailed, Interrupted, told_if_interrupted
from admin_cli.plans import plan_input, plan_view, rebalance
from admin_cli.session import Session
from admin_cli.status.node_lookup import await_records, require_known
from admin_cli.values.numbers import NODE
from multiraft.errors import MultiRaftError
from multiraft.wire import errors as wire_errors
from multiraft.wire import plans as wire
from placement.plan import Plan
from placement.policy import LEADERS, NODE_RESOURCES, SCOPE_DRAIN, SCOPE_LEADERS, Options

node_argument = click.argument("node_id", metavar="NODE", type=NODE)
throttle_option = click.option("--throttle", type=BytesPerSecond(), default=None, metavar="RATE",
                               help="Bytes per second and node, such as 50MiB.")
yes_option = click.option("--yes", is_flag=True, help="Apply the plan. Without it: dry run.")
wait_option = click.option("--wait", is_flag=True, help="Wait until the plan has ended.")

#: Wanted state of a node -> continuation of its plan when the command was interrupted.
_CONTINUES = {
    wire.DRAINING: """Node {node} is still being drained by the cluster.
Watch it: multiraft rebalance status --watch
Stop it:  multiraft rebalance cancel, then multiraft node undrain {node}""",
    wire.MAINTENANCE: """The leaders of node {node} are still being moved by the cluster.
Watch it: multiraft rebalance status --watch
Stop it:  multiraft rebalance cancel, then multiraft node undrain {node}""",
}
#: Continuation of a decommission that was interrupted.
_NOT_REMOVED = """Node {node} is still being drained by the cluster, and is not removed yet.
Watch it:    multiraft rebalance status --watch
Continue it: multiraft node decommission {node} --yes
Stop it:     multiraft rebalance cancel, then multiraft node undrain {node}"""

#: Wanted state of a node -> the scope of the plan that it requires.
_SCOPES = {wire.DRAINING: SCOPE_DRAIN, wire.MAINTENANCE: SCOPE_LEADERS}
#: Groups that a refusal names.
_NAMED_MAX = 8


@click.command(cls=rebalance.PlanCommand)
@node_argument
@throttle_option
@yes_option
@wait_option
@servers_option
@click.pass_obj
def drain(session: Session, node_id: int, throttle: int | None, yes: bool, wait: bool) -> None:
    """Move all replicas away from NODE, which receives no new ones until `node undrain`."""
    with connection.open_session(session) as client:
        if not _empty(client, session, node_id, throttle, yes, wait):
            note(f"Nothing to do: node {node_id} is drained and empty, and receives no replicas "
                 f"until `multiraft node undrain {node_id}`.")
            raise click.exceptions.Exit(int(rebalance.PlanExit.NOTHING_TO_DO))


def _empty(client: Any, session: Session, node_id: int, throttle: int | None, yes: bool,
           wait: bool, removes: bool = False) -> bool:
    """Plan the drain of a node and show the plan; ``yes`` applies it, ``wait`` waits for its end.
    Return False when there was nothing to do. ``removes``: the node is removed afterwards.

    A drain that is impossible ends the command, and stores no wanted state."""
    require_known(client, node_id)
    desired = wire.DesiredState(node_id, wire.DRAINING)
    if _resume_own_plan(client, session, desired, throttle, yes and wait):
        return True
    made = rebalance.make(client, Options(SCOPE_DRAIN, 0, (node_id,), 0,
                                          throttle or Options().copy_rate),
                          rebalance.read_policy(None), plan_input.WINDOW_S / 4, session)
    _show(made, yes)
    if made.infeasible:
        rebalance.end_of(made, shown=True)
    plan_input.check_throttle(made, throttle, None)
    if not made.moves and _desired_state_of(client, node_id) == desired.state:
        return False
    if not yes:
        note("Dry run: nothing was changed. Use --yes to apply.")
    elif made.moves:
        _carry_out(client, session, desired, made, throttle, wait)
    else:
        _set_state(client, desired)
        note(f"Node {node_id} is empty." if removes else
             f"Node {node_id} is empty, and receives no replicas until `multiraft node undrain "
             f"{node_id}`.")
    return True


def _show(made: Plan, yes: bool) -> None:
    """Show the plan; a reader that closes the pipe (`| head`) does not stop a plan that is to be
    applied."""
    with outlived_reader() if yes else contextlib.nullcontext():
        plan_view.show_plan(made)


def _desired_state_of(client: Any, node_id: int) -> str:
    """Return the state that the operator wants of a node; ``ALIVE`` without one."""
    return connection.desired_states(client).get(node_id, wire.ALIVE)


def _resume_own_plan(
    client: Any, session: Session, desired: wire.DesiredState, throttle: int | None, wait: bool
) -> bool:
    """Return True, after a report, if the plan of this very state is under way; ``wait`` waits for
    its end. Return False if a plan has to be made.

    A new plan would be refused, because the present one has moved what it was made from."""
    status = client.plan_request(wire.PlanStatus())
    if (
        status.state not in rebalance.EXCLUSIVE_STATES
        or status.scope != _SCOPES[desired.state]
        or _desired_state_of(client, desired.node) != desired.state
        or not _is_unfinished(client, desired)
    ):
        return False
    doing = "being drained" if desired.state == wire.DRAINING else "transferring its leaderships"
    note(f"Node {desired.node} is {doing} already, by plan {status.plan_id[:12]}, which is "
         f"{status.state}. Follow it: multiraft rebalance status --watch")
    if throttle is not None:
        note("Its throttle is unchanged. To change it: multiraft rebalance throttle RATE")
    if wait:
        rebalance.finish(client, session, status.plan_id,
                         _CONTINUES[desired.state].format(node=desired.node))
    return True


def _is_unfinished(client: Any, desired: wire.DesiredState) -> bool:
    """Return True if the node has replicas or leaderships that it should not have. Being a learner
    of group 0 does not count: every node is one."""
    found = client.node_describe(desired.node)
    if desired.state == wire.MAINTENANCE:
        return bool(found.leader_of)
    return bool(found.voter_of) or any(found.learner_of)


def _set_state(client: Any, desired: wire.DesiredState) -> None:
    """Store a wanted state that needs no moves; print a note if a plan is under way."""
    status = client.plan_request(wire.PlanStatus())
    client.plan_request(wire.SetNodeState(*desired))
    if status.state in rebalance.EXCLUSIVE_STATES:
        note(f"Plan {status.plan_id[:12]} is still running; its remaining moves to node "
             f"{desired.node} are skipped.")


def _carry_out(
    client: Any,
    session: Session,
    desired: wire.DesiredState,
    made: Plan,
    throttle: int | None,
    wait: bool,
) -> None:
    state = _begin(client, desired, made, throttle)
    note(f"Plan {made.plan_id[:12]} is {state}. Watch it: multiraft rebalance status --watch")
    if wait:
        rebalance.finish(client, session, made.plan_id,
                         _CONTINUES[desired.state].format(node=desired.node))


def _begin(client: Any, desired: wire.DesiredState, made: Plan, throttle: int | None) -> str:
    """Store the wanted state and submit the plan; return the plan's state.

    The state comes first, so that no other plan brings to the node what this plan takes away; a
    refusal restores the previous one.  A plan under way respects a wanted state at once: it skips
    its remaining moves to the node and undoes copies.  So a command that would have to wait for it
    is refused before.  A plan that starts between the check and the state, within milliseconds, has
    moved nothing yet; it may skip moves to this node nevertheless, which is reported.
    """
    rebalance.check_alone(client)
    before = _desired_state_of(client, desired.node)
    client.plan_request(wire.SetNodeState(*desired))
    try:
        return rebalance.begin(client, made, throttle)
    except (CommandFailed, MultiRaftError, OSError) as error:
        refused = isinstance(error, CommandFailed) or (
            isinstance(error, wire_errors.RequestError) and not error.retriable)
        overtaken = isinstance(error, wire_errors.PlanActive)
        previous = wire.DesiredState(desired.node, before)
        if not (refused and _restore_state(client, previous, overtaken)):
            note(f"Node {desired.node} is marked as {desired.state}. Run the command again to "
                 f"continue, or undo it: multiraft node undrain {desired.node}")
        raise


def _restore_state(client: Any, before: wire.DesiredState, overtaken: bool) -> bool:
    """Restore the previous wanted state; return True on success.  ``overtaken``: by a plan that may
    have seen the new state meanwhile."""
    try:
        client.plan_request(wire.SetNodeState(*before))
    except (MultiRaftError, OSError):
        return False
    if overtaken:
        note(f"Another plan started at the same time: node {before.node} is {before.state}, as "
             "before, but that plan may have skipped moves to it. `multiraft rebalance status` "
             "shows them; plan again after it.")
    else:
        note(f"Nothing was changed: node {before.node} is {before.state}, as before.")
    return True


@click.command(cls=rebalance.PlanCommand)
@node_argument
@servers_option
@click.pass_obj
def undrain(session: Session, node_id: int) -> None:
    """Return NODE to service (undo drain or maintenance).

    Moves nothing: `multiraft rebalance plan` shows the moves that fill NODE again.  A plan that
    drains the node continues until `multiraft rebalance cancel`.
    """
    with connection.open_session(session) as client:
        require_known(client, node_id)
        status = client.plan_request(wire.PlanStatus())
        client.catch_up()
        before = _desired_state_of(client, node_id)
        client.plan_request(wire.SetNodeState(node_id, wire.ALIVE))
    if before == wire.ALIVE:
        note(f"Nothing to do: node {node_id} was neither draining nor in maintenance.")
        raise click.exceptions.Exit(int(rebalance.PlanExit.NOTHING_TO_DO))
    note(f"Node {node_id} is back in service. To move leaders and replicas to it: multiraft "
         "rebalance plan --yes")
    if status.state in rebalance.EXCLUSIVE_STATES:
        note(f"Plan {status.plan_id[:12]}, scope {status.scope}, is still running and still moves "
             f"leaders or replicas away from node {node_id}. To stop it: multiraft rebalance "
             "cancel")


@click.command(cls=rebalance.PlanCommand)
@node_argument
@yes_option
@wait_option
@servers_option
@click.pass_obj
def maintenance(session: Session, node_id: int, yes: bool, wait: bool) -> None:
    """Move the leaders away from NODE; its replicas stay, and it leads no groups until `node
    undrain`."""
    with connection.open_session(session) as client:
        require_known(client, node_id)
        desired = wire.DesiredState(node_id, wire.MAINTENANCE)
        if _resume_own_plan(client, session, desired, None, yes and wait):
            return
        made = rebalance.make(client, Options(SCOPE_LEADERS), rebalance.read_policy(None),
                              plan_input.WINDOW_S / 4, session, dict([desired]))
        _show(made, yes)
        _check_transferable(client, node_id, made)
        if not made.moves and _desired_state_of(client, node_id) == desired.state:
            note(f"Nothing to do: node {node_id} is in maintenance and leads no groups.")
            raise click.exceptions.Exit(int(rebalance.PlanExit.NOTHING_TO_DO))
        if not yes:
            note("Dry run: nothing was changed. Use --yes to apply.")
        elif made.moves:
            _carry_out(client, session, desired, made, None, wait)
        else:
            _set_state(client, desired)
            note(f"Node {node_id} leads no groups, and receives neither leaders nor replicas until "
                 f"`multiraft node undrain {node_id}`.")


def _check_transferable(client: Any, node_id: int, made: Plan) -> None:
    """Return unless the node would remain the leader of groups because none of their other voters
    may lead them: their appends would stop with it. Raises ``PlanEnded`` then."""
    after = next(row.after for row in made.nodes if row.node == node_id)
    if not after[NODE_RESOURCES.index(LEADERS)]:
        return
    desired_states = connection.desired_states(client)
    others = {row.group: {*row.voters} - {node_id} for row in client.group_list()
              if row.leader == node_id}
    stuck = [group for group, voters in others.items() if desired_states.keys() >= voters]
    if not stuck:
        return  # a change is in progress, or there is more than one plan may move
    named = ", ".join(map(str, stuck[:_NAMED_MAX])) + (", ..." if len(stuck) > _NAMED_MAX else "")
    aside = sorted(set().union(*(others[group] for group in stuck)))
    why = ", ".join(
        f"node {node} is {connection.STATE_WORDS[desired_states[node]]}" for node in aside
    )
    raise rebalance.PlanEnded(
        f"node {node_id} leads {plural(len(stuck), 'group')} ({named}) that no other node can "
        f"lead: {why or 'their only replica is there'}. Nothing was changed.",
        "Return one of those nodes to service first: multiraft node undrain "
        f"{aside[0]}" if aside else
        f"To move its replicas to other nodes: multiraft node drain {node_id}",
        rebalance.PlanExit.INFEASIBLE)


@click.command(cls=rebalance.PlanCommand)
@node_argument
@throttle_option
@yes_option
@servers_option
@click.pass_obj
def decommission(session: Session, node_id: int, throttle: int | None, yes: bool) -> None:
    """Drain NODE, wait, and remove it; its id is never used again.

    The node stops by itself at the end.  If interrupted, run the command again to continue.
    """
    with _ending_removal(node_id), connection.open_session(session) as client:
        status = client.plan_request(wire.PlanStatus())
        if yes and status.scope == SCOPE_DRAIN and status.state in rebalance.EXCLUSIVE_STATES:
            rebalance.finish(client, session, status.plan_id)
        _empty(client, session, node_id, throttle, yes, wait=True, removes=True)
        if not yes:
            return
        with told_if_interrupted(f"Node {node_id} is drained, and is not removed yet.\n"
                                 f"Continue: multiraft node decommission {node_id} --yes"):
            await_records(client, node_id, set())
        left = client.node_describe(node_id)
        if any(left.voter_of) or 0 in left.voter_of:
            raise CommandFailed(f"node {node_id} still has replicas of groups "
                                f"{list(left.voter_of)}.", "Run the command again.")
        client.remove_node(node_id)
    note(f"Node {node_id} was removed.")


@contextlib.contextmanager
def _ending_removal(node_id: int) -> Iterator[None]:
    """Let an interrupted wait for the drain say that the node is not removed, and how to continue.
    """
    try:
        yield
    except Interrupted as error:
        raise Interrupted(_NOT_REMOVED.format(node=node_id)) from error
