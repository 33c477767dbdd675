"""`multiraft node`: the nodes of a cluster; and, from the server's package, one of them.

Contract.  The commands that ask a cluster are here; those that work on a node's own files (`init`,
`start`) come from the entry point of the same name and stand beside them.
"""

from __future__ import annotations

import importlib.metadata
from datetime import datetime, timezone
from typing import Any

import click

from admin_cli import connection
from admin_cli.failures import CommandFailed
from admin_cli.main import ENTRY_POINT_GROUP, HelpfulGroup, load_plugin
from admin_cli.options import json_option, servers_option
from admin_cli.output import note, print_json, print_table
from admin_cli.session import Session


class NodeGroup(HelpfulGroup):
    """Our subcommands and those of the server's package."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        server = self._server()
        return sorted({*super().list_commands(ctx),
                       *(server.list_commands(ctx) if server is not None else ())})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        server = self._server()
        return None if server is None else server.get_command(ctx, cmd_name)

    @staticmethod
    def _server() -> click.Group | None:
        """The server's commands; None where it is not installed."""
        points = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP, name="node")
        for point in points:
            command = load_plugin(point)
            if isinstance(command, click.Group):
                return command
        return None


@click.group(cls=NodeGroup)
def node() -> None:
    """The nodes of a cluster; run one."""


def _shown(row: Any) -> dict[str, Any]:
    """One node as in the JSON: the keys stay."""
    about = row.node
    since = (datetime.fromtimestamp(about.started_ms / 1000, timezone.utc).isoformat(
        timespec="seconds") if about.started_ms else None)
    return {"id": about.id, "state": row.state, "client_address": about.client_address,
            "peer_address": about.peer_address, "rack": about.rack, "weight": about.weight / 100,
            "incarnation": f"{about.incarnation:016x}" if about.incarnation else None,
            "boot_epoch": about.boot_epoch, "version": about.version or None, "since": since,
            "replicas": row.replicas, "leads": row.leads}


@node.command("list")
@json_option
@servers_option
@click.pass_obj
def list_(session: Session, as_json: bool) -> None:
    """List the nodes, as the node that answers sees them."""
    with connection.open_session(session) as client:
        connection.catch_up(client)
        answer = client.node_list()
    rows = [_shown(row) for row in answer.nodes]
    if as_json:
        print_json({"nodes": rows, "removed": list(answer.removed)})
        return
    print_table(("node", "state", "replicas", "leads", "rack", "version", "since",
                 "client address"),
                [(row["id"], row["state"], row["replicas"], row["leads"], row["rack"],
                  row["version"], row["since"], row["client_address"]) for row in rows])


@node.command()
@click.argument("node_id", metavar="NODE", type=click.IntRange(min=1))
@json_option
@servers_option
@click.pass_obj
def describe(session: Session, node_id: int, as_json: bool) -> None:
    """Show one node and its groups."""
    with connection.open_session(session) as client:
        connection.catch_up(client)
        answer = client.node_describe(node_id)
    groups = {"voter_of": list(answer.voter_of), "learner_of": list(answer.learner_of),
              "leader_of": list(answer.leader_of)}
    if as_json:
        print_json({**_shown(answer.node), **groups})
        return
    facts = {name.replace("_", " "): value for name, value in _shown(answer.node).items()}
    facts |= {name.replace("_", " "): ", ".join(map(str, found)) or None
              for name, found in groups.items()}
    print_table(("what", "value"), facts.items())


@node.command()
@click.argument("node_id", metavar="NODE", type=click.IntRange(min=1))
@json_option
@servers_option
@click.pass_obj
def remove(session: Session, node_id: int, as_json: bool) -> None:
    """Forget NODE for ever: its id is never used again.

    Refused while a group has a replica there: `node replace` moves them. A node that still runs
    ends by itself.
    """
    with connection.open_session(session) as client:
        client.remove_node(node_id)
    if as_json:
        print_json({"removed": node_id})
    else:
        note(f"Removed node {node_id}.")


def require_known(client: Any, node_id: int) -> None:
    """Raises ``CommandFailed`` when there is no such node."""
    known = [row.node.id for row in client.node_list().nodes]
    if node_id not in known:
        raise CommandFailed(f"there is no node {node_id}.",
                            f"Its nodes are {', '.join(map(str, known))}.")
