"""`multiraft cluster`: the nodes and the groups that they lead; defaults of settings."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable

import click

from admin_cli import connection
from admin_cli.console.command_group import HelpfulGroup
from admin_cli.console.options import Seconds, json_option, servers_option, wide_option
from admin_cli.console.output import note, plural, print_json, print_table, refreshed, say
from admin_cli.console.setting_options import change_options, require_changes
from admin_cli.failures import CommandFailed, ExitCode
from admin_cli.session import Session
from admin_cli.status import cluster_facts, setting_facts
from admin_cli.status.status_view import print_status
from admin_cli.values.numbers import DAY_S

#: Time for which --wait-healthy waits, unless told otherwise: a node that restarts has caught up by
#: then.
WAIT_S = 300.0
#: Interval at which --wait-healthy asks.
WAIT_INTERVAL_S = 1.0


@click.group(cls=HelpfulGroup)
def cluster() -> None:
    """Show the nodes and the groups that they lead; set the defaults of topics."""


@cluster.command()
@click.option("--check", is_flag=True,
              help=f"Exit with {int(ExitCode.UNHEALTHY)} unless the cluster is healthy.")
@click.option("--wait-healthy", is_flag=True,
              help="Wait until the cluster is healthy; what is waited for goes to standard error. "
                   f"Exit with {int(ExitCode.UNHEALTHY)} if it is not in time.")
@click.option("-e", "--exit-when-healthy", "exit_when_healthy", is_flag=True, hidden=True)
@click.option("--timeout", type=Seconds(0, DAY_S), metavar="SECONDS",
              help=f"Longest wait of --wait-healthy.  [default: {WAIT_S:g}]")
@click.option("--watch", "-w", is_flag=True, help="Refresh the output until Ctrl-C.")
@click.option("--interval", type=Seconds(0.1, DAY_S), default=2.0, show_default=True,
              metavar="SECONDS", help="Pause between two refreshes of --watch.")
@wide_option
@json_option
@servers_option
@click.pass_obj
def status(session: Session, check: bool, wait_healthy: bool, exit_when_healthy: bool,
           timeout: float | None, watch: bool, interval: float, wide: bool,
           as_json: bool) -> None:
    """Show the nodes, the groups that each leads, and unhealthy groups.

    A group without a leader accepts no appends.  An under-replicated group has a member on a node
    that is not up, or one with a large lag: it works as long as a majority of its members does.  A
    node is ready when every replica on it has caught up.  The cluster is healthy when nothing needs
    attention; each line that needs attention names the next command, if one helps.

    With --watch and --json, each refresh is one line.
    """
    wait = wait_healthy or exit_when_healthy
    if timeout is not None and not wait:
        raise click.UsageError("--timeout needs --wait-healthy.")
    if check and watch and not wait:
        raise click.UsageError("--check looks once; with --watch, use --wait-healthy.")
    deadline_s = time.monotonic() + (WAIT_S if timeout is None else timeout) if wait else None
    if watch:
        answer = _watch(session, interval, wide, as_json, deadline_s)
    elif deadline_s is not None:
        answer = _wait(session, deadline_s)
        _show(answer, wide, as_json)
    else:
        answer = _asked(session)
        _show(answer, wide, as_json)
    if answer["healthy"]:
        return
    if wait:
        raise CommandFailed(f"the cluster is not healthy in time: {_worst(answer)}.", "",
                            ExitCode.UNHEALTHY)
    if check:
        raise click.exceptions.Exit(int(ExitCode.UNHEALTHY))


def _asked(session: Session) -> dict:
    is_dev = session.servers().dev_directory is not None
    with connection.open_session(session) as client:
        return cluster_facts.cluster_status(client, is_dev)


def _show(answer: dict, wide: bool, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        print_status(answer, wide)


def _worst(answer: dict) -> str:
    """Return the worst problem in words, and the number of the others."""
    first, *others = answer["needs_attention"]
    more = f", and {plural(len(others), 'other problem')}" if others else ""
    return f"{first['text'].rstrip('.')}{more}"


def _until_healthy(session: Session, interval: float, deadline_s: float | None,
                   show: Callable[[dict | None, CommandFailed | None], object]) -> dict:
    """Ask every ``interval`` seconds, and pass each status, or the reason for which there is none,
    to ``show``. Return the first healthy status, or the last one at the deadline, which one
    question may outlast; None = ask until interrupted. Raises the last ``CommandFailed`` if the
    cluster does not answer at the deadline."""
    session.servers()  # without a cluster to ask there is nothing to wait for
    while True:
        answer, problem = None, None
        try:
            answer = _asked(session)
        except CommandFailed as error:
            problem = error
        show(answer, problem)
        pause_s = interval
        if deadline_s is not None:
            left_s = deadline_s - time.monotonic()
            if answer is not None and (answer["healthy"] or left_s <= 0):
                return answer
            if problem is not None and left_s <= 0:
                raise problem
            pause_s = min(interval, left_s)
        session.pause(pause_s)


def _wait(session: Session, deadline_s: float) -> dict:
    """Wait as `_until_healthy`, and print to standard error what is waited for when that changes.
    """
    begun_s, told = time.monotonic(), ""

    def show(answer: dict | None, problem: CommandFailed | None) -> None:
        nonlocal told
        if answer is not None and answer["healthy"]:
            return
        waits_for = str(problem) if answer is None else _worst(answer)
        if not told:
            note(f"Waiting at most {max(0.0, deadline_s - begun_s):.0f} s until the cluster is "
                 "healthy.")
        if waits_for != told:
            note(f"{time.monotonic() - begun_s:5.0f} s  {waits_for}")
        told = waits_for

    return _until_healthy(session, WAIT_INTERVAL_S, deadline_s, show)


def _watch(session: Session, interval: float, wide: bool, as_json: bool,
           deadline_s: float | None) -> dict:
    """Print the status every ``interval`` seconds; a cluster that does not answer is reported and
    asked again. Ends as `_until_healthy`."""
    if as_json:
        return _until_healthy(session, interval, deadline_s, _print_line)
    with refreshed() as show:
        return _until_healthy(session, interval, deadline_s, lambda answer, problem: show(
            functools.partial(_print_refresh, interval, answer, problem, wide)))


def _print_line(answer: dict | None, problem: CommandFailed | None) -> None:
    if answer is not None:
        print_json(answer, one_line=True)
    if problem is not None:
        problem.show()


def _print_refresh(interval: float, answer: dict | None, problem: CommandFailed | None,
                   wide: bool) -> None:
    say(f"refreshed every {interval:g} s; Ctrl-C to stop\n")
    if answer is not None:
        print_status(answer, wide)
    if problem is not None and sys.stdout.isatty():
        say("\n  ".join([f"Error: {problem.message}", *problem.do.splitlines()]))
    elif problem is not None:
        problem.show()


@cluster.command()
@change_options
@json_option
@servers_option
@click.pass_obj
def settings(session: Session, settings: dict[str, str], delete: tuple[str, ...], dry_run: bool,
             as_json: bool) -> None:
    """Show the defaults of the settings of topics, or change some of them.

    A default holds for each topic that does not set the value itself, also for those that exist.
    Internal topics, whose names begin with __, have no share in the defaults of max.message.bytes,
    cleanup.policy and retention. All changes are made, or none. Names and values: `multiraft help
    settings`.
    """
    changes = bool(settings or delete or dry_run)
    if changes:
        require_changes(settings, delete)
        if as_json:
            raise click.UsageError("--json shows the settings; leave out the changes.")
    with connection.open_session(session) as client:
        if changes:
            client.alter_settings("", settings, delete, dry_run)
            note("The changes would be accepted; nothing was changed." if dry_run
                 else "Defaults of the cluster changed.")
            return
        rows = client.describe_settings()
    if as_json:
        print_json({"settings": setting_facts.as_json(rows)})
        return
    print_table(setting_facts.COLUMNS, setting_facts.shown(rows))
