"""`multiraft cluster`: the nodes and the groups that they lead."""

from __future__ import annotations

import click

from admin_cli import cluster_facts, connection
from admin_cli.command_group import HelpfulGroup
from admin_cli.failures import CommandFailed
from admin_cli.numbers import DAY_S, Real
from admin_cli.options import json_option, servers_option
from admin_cli.output import clear_screen, print_json, say
from admin_cli.session import Session
from admin_cli.status_view import print_status


@click.group(cls=HelpfulGroup)
def cluster() -> None:
    """Show the nodes and the groups that they lead."""


@cluster.command()
@click.option("--watch", is_flag=True, help="Refresh the output until Ctrl-C.")
@click.option("--interval", type=Real(0.1, DAY_S), default=2.0, show_default=True,
              metavar="SECONDS", help="Pause between two refreshes of --watch.")
@json_option
@servers_option
@click.pass_obj
def status(session: Session, watch: bool, interval: float, as_json: bool) -> None:
    """Show the nodes, the groups that each leads, and unhealthy groups.

    A group without a leader accepts no appends.  An under-replicated group has a member on a node
    that is not up, or one with a large lag: it works as long as a majority of its members does.  A
    node is ready when every replica on it has caught up.

    With --watch and --json, each refresh is one line.
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
    """Print the status every ``interval`` seconds until interrupted; a cluster that does not answer
    is reported and asked again."""
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
            say(f"refreshed every {interval:g} s; Ctrl-C to stop\n")
            if answer is not None:
                print_status(answer)
        if problem is not None:
            problem.show()
        session.pause(interval)
