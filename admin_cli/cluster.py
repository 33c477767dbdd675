"""`multiraft cluster`: the nodes and what they lead."""

from __future__ import annotations

import click

from admin_cli import connection
from admin_cli.main import HelpfulGroup
from admin_cli.options import json_option, servers_option
from admin_cli.output import print_json, print_table
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
