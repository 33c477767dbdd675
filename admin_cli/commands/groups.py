"""`multiraft group`: leaders and members of groups, moves of a replica, forced recovery.

Contract.  One request starts a change of members, and the cluster completes it by itself.  The
commands here poll until it is complete; running an interrupted command again finishes the change.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import click

from admin_cli import connection
from admin_cli.commands.pool import pool
from admin_cli.console.command_group import HelpfulGroup
from admin_cli.console.options import json_option, servers_option, wide_option
from admin_cli.console.output import note, plural, print_json, print_table, progress_bar, say
from admin_cli.failures import (
    CommandFailed,
    ExitCode,
    NotFound,
    Unreachable,
    told_if_interrupted,
)
from admin_cli.session import Session
from admin_cli.status import cluster_facts
from admin_cli.status.node_lookup import POLL_INTERVAL_S
from admin_cli.status.status_view import print_group
from admin_cli.values.numbers import DATA_GROUP, GROUP, NODE

#: Time without progress (no catch-up, no commit) after which the command stops waiting.
PROGRESS_TIMEOUT_S = 60.0


@click.group(cls=HelpfulGroup)
def group() -> None:
    """Show and change Raft groups: their leaders, members and number."""


group.add_command(pool)


@group.command("list")
@json_option
@servers_option
@click.pass_obj
def list_(session: Session, as_json: bool) -> None:
    """List the Raft groups; group 0 is the metadata group.

    They are no consumer groups: each consumer keeps its own offsets.
    """
    with connection.open_session(session) as client:
        rows, pool_size = connection.groups(client), client.pool_status().pool_size
    if as_json:
        print_json({"groups": [row._asdict() for row in rows], "pool_size": pool_size})
        return
    print_table(("group", "leader", "term", "voters", "learners"),
                [(row.group, row.leader, row.term, ", ".join(map(str, row.voters)),
                  ", ".join(map(str, row.learners)) or None) for row in rows])
    if sys.stdout.isatty():
        note("These are Raft groups, no consumer groups: each consumer keeps its own offsets.")
    if rows and rows[-1].group > pool_size:
        note(f"Groups {pool_size + 1} to {rows[-1].group} are new: topics do not use them yet "
             f"(`multiraft group pool show`).")


@group.command()
@click.argument("group_id", metavar="GROUP", type=GROUP)
@wide_option
@json_option
@servers_option
@click.pass_obj
def describe(session: Session, group_id: int, wide: bool, as_json: bool) -> None:
    """Show GROUP: its leader, its configuration, and each replica.

    Each member that is up reports its own replica, the leader also the lag of the others.
    """
    with connection.open_session(session) as client:
        answer = cluster_facts.group_description(client, group_id)
    if as_json:
        print_json(answer)
    else:
        print_group(answer, wide)


@group.command()
@click.argument("group_id", metavar="GROUP", type=GROUP)
@click.argument("node", metavar="[NODE]", type=NODE, required=False)
@click.option("--to", type=NODE, help="The same as NODE.")
@json_option
@servers_option
@click.pass_obj
def transfer(session: Session, group_id: int, node: int | None, to: int | None,
             as_json: bool) -> None:
    """Transfer the leadership of GROUP to NODE (default: the member with the longest log).

    Moves no data; appends to the group pause for the time of one round trip.
    """
    if node is not None and to is not None and node != to:
        raise click.UsageError(f"NODE is {node} and --to is {to}: name one of them.")
    with connection.open_session(session) as client:
        rows = {row.group: row for row in connection.groups(client)}
        if group_id not in rows:
            raise NotFound(f"there is no group {group_id}; groups are numbered 0 to {max(rows)}.",
                           "`multiraft group list` shows them.")
        target = node or to or 0
        if target and target not in rows[group_id].voters:
            voters = ", ".join(map(str, rows[group_id].voters))
            raise NotFound(f"node {target} is not a voter of group {group_id}.",
                           f"Its voters are {voters}.")
        leader, term = connection.group_transfer(client, group_id, target)
    if as_json:
        print_json({"group": group_id, "leader": leader, "term": term})
    else:
        note(f"Group {group_id} is led by node {leader}.")


@group.command()
@click.argument("group_id", metavar="GROUP", type=GROUP)
@click.option("--add-learner", "add", multiple=True, type=NODE, metavar="NODE",
              help="Add this node as a learner: it receives all entries and has no vote.")
@click.option("--promote", multiple=True, type=NODE, metavar="NODE",
              help="Make this learner a voter; it must have caught up.")
@click.option("--demote", multiple=True, type=NODE, metavar="NODE",
              help="Make this voter a learner.")
@click.option("--remove", multiple=True, type=NODE, metavar="NODE",
              help="Remove this member and delete its replica.")
@json_option
@servers_option
@click.pass_obj
def members(session: Session, group_id: int, add: tuple[int, ...], promote: tuple[int, ...],
            demote: tuple[int, ...], remove: tuple[int, ...], as_json: bool) -> None:
    """Show the members of GROUP, or change them.

    All flags together are one change: voters change through a joint configuration in which both
    majorities decide.  The command waits until it is complete.
    """
    with connection.open_session(session) as client:
        found = _members(client, group_id)
        if add or promote or demote or remove:
            voters, learners = changed(found, add, promote, demote, remove)
            found = change_members(client, found, voters, learners)
    _show(found, as_json)


def changed(found: Any, add: tuple[int, ...], promote: tuple[int, ...], demote: tuple[int, ...],
            remove: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return voters and learners of group ``found`` after the change; nothing is sent. Raises
    ``CommandFailed`` for an impossible change."""
    for nodes, known, what in ((promote, found.learners, "a learner"),
                               (demote, found.voters, "a voter"),
                               (remove, found.voters + found.learners, "a member")):
        for node in nodes:
            if node not in known:
                raise CommandFailed(f"node {node} is not {what} of group {found.group}.",
                                    f"`multiraft group members {found.group}` shows them.")
    voters = [node for node in (*found.voters, *promote) if node not in (*demote, *remove)]
    learners = [node for node in (*found.learners, *demote, *add)
                if node not in (*voters, *remove)]
    return tuple(dict.fromkeys(voters)), tuple(sorted({*learners}))


@group.command()
@click.argument("group_id", metavar="GROUP", type=GROUP)
@click.option("--from", "source", required=True, type=NODE, metavar="NODE",
              help="Voter to replace.")
@click.option("--to", "target", required=True, type=NODE, metavar="NODE",
              help="Node that replaces it.")
@json_option
@servers_option
@click.pass_obj
def move(session: Session, group_id: int, source: int, target: int, as_json: bool) -> None:
    """Move a replica of GROUP from one node to another.

    The new node becomes a learner, catches up, and takes the old one's vote in one joint change;
    the old replica is deleted.  The group keeps serving.  If interrupted, run the command again to
    continue.
    """
    if source == target:
        raise click.UsageError(f"--from and --to are both {source}.")
    with connection.open_session(session) as client:
        _require_node(client, target)
        found = _members(client, group_id)
        if source not in found.voters + found.outgoing and target not in found.voters:
            raise CommandFailed(f"node {source} is not a voter of group {group_id}.",
                                f"`multiraft group members {group_id}` shows them.")
        with progress_bar(hidden=as_json) as bar, told_if_interrupted(
            f"Group {group_id} may be left with node {target} as a learner.\nContinue: multiraft "
            f"group move {group_id} --from {source} --to {target}"
        ):
            task = bar.add_task(f"group {group_id}", total=None)
            found = move_replica(client, found, source, target,
                          lambda text, have, total: bar.update(
                              task, description=text, completed=have, total=total))
    _show(found, as_json)


def move_replica(client: Any, found: Any, source: int, target: int,
                 say: Callable[[str, int, int], object]) -> Any:
    """Move a replica step by step, until the target votes, the source does not and no change is
    open; return the members then.

    ``say(text, have, total)`` is called with the progress. Raises ``Unreachable`` without
    progress for ``PROGRESS_TIMEOUT_S``."""
    progress, moved_s = None, time.monotonic()
    while target not in found.voters or source in found.voters + found.outgoing or found.is_open:
        have = next((row.match for row in found.rows if row.node == target), 0)
        say(f"node {target}: entry {have:,} of {found.last_index:,}", have, found.last_index)
        if not found.is_open:
            _next_step(client, found, source, target)
        if (found.index, have) != progress:
            progress, moved_s = (found.index, have), time.monotonic()
        elif time.monotonic() - moved_s > PROGRESS_TIMEOUT_S:
            raise Unreachable(
                f"group {found.group}: node {target} has {have:,} of {found.last_index:,} entries "
                "and makes no progress.", "Check that the node is up, then run the command again.")
        time.sleep(POLL_INTERVAL_S)
        found = _members(client, found.group)
    return found


def _next_step(client: Any, found: Any, source: int, target: int) -> None:
    """Start the next step of a move: add the learner, or exchange the votes. A refusal, which means
    that it is too early, is ignored."""
    voters = tuple(target if node == source else node for node in found.voters)
    if target in found.voters:
        voters = tuple(node for node in found.voters if node != source)
    learners = tuple(node for node in found.learners if node != target)
    if target not in found.voters + found.learners:
        voters, learners = found.voters, (*found.learners, target)
    connection.try_members(client, found, voters, learners)


@group.command()
@click.argument("group_id", metavar="GROUP", type=DATA_GROUP)
@click.option("--accept-data-loss", is_flag=True,
              help="Recover the group. Entries that only the lost replicas had are lost "
                   "permanently.")
@json_option
@servers_option
@click.pass_obj
def recover(session: Session, group_id: int, accept_data_loss: bool, as_json: bool) -> None:
    """Recover GROUP from one replica, when its majority is lost permanently.

    Without --accept-data-loss nothing is changed: the command shows the replicas that answer, which
    one it would take, and what may be lost, and exits with 1.  With it that replica becomes the
    only voter in a new incarnation of the group; add members with `group members`.  If the lost
    nodes come back, their replicas of this group are deleted.
    """
    with connection.open_session(session) as client:
        report = connection.recovery_report(client, group_id)
        if accept_data_loss and report["survivor"] is not None:
            report["incarnation"] = connection.recover(client, report)
    if as_json:
        print_json(report)
    else:
        _show_report(report)
    if report["survivor"] is None:
        raise CommandFailed(f"group {group_id} cannot be recovered: none of its replicas "
                            "answers.", "Start a node that has a replica of it.")
    if not accept_data_loss:
        raise CommandFailed("dry run: nothing was changed.",
                            "Start the missing nodes if that is possible. If they are lost "
                            "permanently, use --accept-data-loss.", ExitCode.FAILED)
    if not as_json:
        note(f"Group {group_id} was recovered from node {report['survivor']} in incarnation "
             f"{report['incarnation']}. Add members: multiraft group members {group_id} "
             "--add-learner NODE")


def _show_report(report: dict[str, Any]) -> None:
    print_table(("node", "replica", "last term", "last index", "committed there"),
                [(row["node"], row["state"], row["last_term"], row["last_index"], row["commit"])
                 for row in report["replicas"]])
    lost = ", ".join(map(str, report["missing"])) or "none"
    say(f"\nvoters that do not answer: {lost}")
    if report["has_majority"]:
        say("a majority of the voters answers: the group needs no recovery")
    if report["survivor"] is not None:
        say(f"the best replica is on node {report['survivor']}. Recovery loses the entries that "
            f"only the missing replicas have: all entries after index {report['last_index']:,}, "
            f"acknowledged or not, of any of the {plural(report['partitions'], 'partition')} of "
            "this group")


# -- parts -----------------------------------------------------------------------------------------


def _members(client: Any, group_id: int) -> Any:
    rows = {row.group for row in connection.groups(client)}
    if group_id not in rows:
        raise NotFound(f"there is no group {group_id}; groups are numbered 0 to {max(rows)}.",
                       "`multiraft group list` shows them.")
    return client.group_members(group_id)


def _require_node(client: Any, node: int) -> None:
    known = [row.id for row in client.cluster_status().nodes]
    if node not in known:
        raise NotFound(f"there is no node {node}.", f"There are {', '.join(map(str, known))}.")


def change_members(client: Any, found: Any, voters: tuple[int, ...],
                   learners: tuple[int, ...]) -> Any:
    """Make these the members, in one change, and wait for it; only wait if they are the members
    already. Return the members when no change is open. Raises ``Unreachable`` after
    ``PROGRESS_TIMEOUT_S``."""
    if ({*voters}, {*learners}) != ({*found.voters}, {*found.learners}):
        client.group_members(found.group, voters, learners, found.index)
    return _await_committed(client, found.group)


def _await_committed(client: Any, group_id: int) -> Any:
    """Wait until no change is open, and return the members. Raises ``Unreachable`` after
    ``PROGRESS_TIMEOUT_S``."""
    end_s = time.monotonic() + PROGRESS_TIMEOUT_S
    while (found := client.group_members(group_id)).is_open:
        if time.monotonic() > end_s:
            raise Unreachable(f"group {group_id}: the change at index {found.index} is not "
                              "committed yet.", "It completes by itself once a majority is up.")
        time.sleep(POLL_INTERVAL_S)
    return found


def _show(found: Any, as_json: bool) -> None:
    if as_json:
        print_json(connection.members_json(found))
        return
    has = {row.node: row for row in found.rows}
    print_table(("node", "member", "state", "entries", "of"), [
        (node, connection.kind_of(found, node),
         "leader" if node == found.leader else has[node].state if node in has else None,
         found.last_index if node == found.leader else has[node].match if node in has else None,
         found.last_index)
        for node in sorted({*found.voters, *found.learners, *found.outgoing})])
