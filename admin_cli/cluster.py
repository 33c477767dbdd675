"""`multiraft cluster` and `multiraft group`: nodes, groups, who leads."""

from __future__ import annotations

import click

from admin_cli import connection
from admin_cli.failures import NotFound
from admin_cli.main import HelpfulGroup
from admin_cli.options import json_option, servers_option
from admin_cli.output import note, print_json, print_table
from admin_cli.session import Session


@click.group(cls=HelpfulGroup)
def cluster() -> None:
    """The nodes and what they lead."""


@cluster.command()
@json_option
@servers_option
@click.pass_obj
def status(session: Session, as_json: bool) -> None:
    """Show the nodes, the groups each leads, and groups in need.

    A group without a leader takes no appends. An under-replicated group has a member on a node
    that is not up: it works as long as a majority of its members is.
    """
    with connection.open_session(session) as client:
        answer = connection.cluster_status(client)
    if as_json:
        print_json(answer)
        return
    print_table(("node", "state", "leads", "groups", "rack", "client address"),
                [(node["id"], node["state"], node["leads"], node["groups"], node["rack"],
                  node["client_address"]) for node in answer["nodes"]])
    leader = answer["metadata_leader"]
    facts = [f"{answer['groups']} groups in the pool, replication factor "
             f"{answer['replication_factor']}, {answer['topics']} topics with "
             f"{answer['partitions']} partitions",
             f"metadata group led by node {leader}" if leader else
             "the metadata group has no leader: topics cannot be created or deleted now",
             f"groups without a leader: {_some(answer['leaderless_groups'])}",
             f"under-replicated groups: {_some(answer['under_replicated_groups'])}"]
    click.echo("\n" + "\n".join(facts))


def _some(groups: list[int]) -> str:
    """The number of groups and the first few of them."""
    if not groups:
        return "none"
    shown = ", ".join(map(str, groups[:10]))
    return f"{len(groups)} ({shown}{', ...' if len(groups) > 10 else ''})"


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
