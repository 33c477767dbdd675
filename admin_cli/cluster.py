"""`multiraft cluster` and `multiraft group`: nodes, groups, who leads."""

from __future__ import annotations

import click

from admin_cli import cluster_facts, connection
from admin_cli.failures import CommandFailed, NotFound
from admin_cli.main import HelpfulGroup
from admin_cli.options import json_option, servers_option
from admin_cli.output import clear_screen, note, print_json, print_table
from admin_cli.session import Session
from admin_cli.status_view import print_group, print_status


@click.group(cls=HelpfulGroup)
def cluster() -> None:
    """The nodes and what they lead."""


@cluster.command()
@click.option("--watch", is_flag=True, help="Show it again and again, until Ctrl-C.")
@click.option("--interval", type=click.FloatRange(min=0.1), default=2.0, show_default=True,
              metavar="SECONDS", help="The pause between two looks of --watch.")
@json_option
@servers_option
@click.pass_obj
def status(session: Session, watch: bool, interval: float, as_json: bool) -> None:
    """Show the nodes, the groups each leads, and groups in need.

    A group without a leader takes no appends. An under-replicated group has a member on a node
    that is not up, or one that lacks much: it works as long as a majority of its members does. A
    node is ready when every replica on it has caught up.

    With --watch and --json, each look is one line.
    """
    if watch:
        _watch(session, interval, as_json)
    else:
        _show(_asked(session), as_json)


def _asked(session: Session) -> dict:
    with connection.open_session(session) as client:
        return cluster_facts.cluster_status(client)


def _show(answer: dict, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        print_status(answer)


def _watch(session: Session, interval: float, as_json: bool) -> None:
    """Look until interrupted; a cluster that does not answer now may do so at the next look."""
    while True:
        answer, problem = None, None
        try:
            answer = _asked(session)
        except CommandFailed as error:
            problem = error
        if as_json:
            if answer is not None:
                print_json(answer, one_line=True)
        else:
            clear_screen()
            click.echo(f"every {interval:g} s, Ctrl-C ends it\n")
            if answer is not None:
                print_status(answer)
        if problem is not None:
            problem.show()
        session.pause(interval)


@click.group(cls=HelpfulGroup)
def group() -> None:
    """The Raft groups and who leads them."""


@group.command("list")
@json_option
@servers_option
@click.pass_obj
def list_(session: Session, as_json: bool) -> None:
    """List the groups; group 0 is the metadata group."""
    with connection.open_session(session) as client:
        rows = connection.groups(client)
    if as_json:
        print_json({"groups": [row._asdict() for row in rows]})
        return
    print_table(("group", "leader", "term", "voters", "learners"),
                [(row.group, row.leader, row.term, ", ".join(map(str, row.voters)),
                  ", ".join(map(str, row.learners)) or None) for row in rows])


@group.command()
@click.argument("group_id", metavar="GROUP", type=click.IntRange(min=0))
@json_option
@servers_option
@click.pass_obj
def describe(session: Session, group_id: int, as_json: bool) -> None:
    """Show GROUP: its leader, its configuration, and each replica.

    Each member that is up tells of its own replica, the leader also of what the others lack.
    """
    with connection.open_session(session) as client:
        answer = cluster_facts.group_description(client, group_id)
    if as_json:
        print_json(answer)
    else:
        print_group(answer)


@group.command()
@click.argument("group_id", metavar="GROUP", type=click.IntRange(min=0))
@click.argument("node", metavar="[NODE]", type=click.IntRange(min=1), required=False)
@click.option("--to", type=click.IntRange(min=1), help="The same as NODE.")
@json_option
@servers_option
@click.pass_obj
def transfer(session: Session, group_id: int, node: int | None, to: int | None,
             as_json: bool) -> None:
    """Hand the leadership of GROUP to NODE (default: whichever member is furthest).

    Moves no data; appends to the group pause for the time of one round trip.
    """
    if node is not None and to is not None and node != to:
        raise click.UsageError(f"NODE says {node} and --to says {to}.")
    with connection.open_session(session) as client:
        rows = {row.group: row for row in connection.groups(client)}
        if group_id not in rows:
            raise NotFound(f"there is no group {group_id}; they are numbered 0 to {max(rows)}.",
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
