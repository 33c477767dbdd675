"""`multiraft group pool`: how many groups topics are placed over, and more of them.

Contract.  Nothing changes without `grow N --yes`.  A growth is begun by one request and goes on by
itself, whatever becomes of this command; run again it looks how far it is.  Exit codes as of
`multiraft rebalance`.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

import click

from admin_cli import connection, rebalance
from admin_cli.failures import CommandFailed
from admin_cli.numbers import DATA_GROUP
from admin_cli.options import json_option, servers_option
from admin_cli.output import note, plural, print_json, print_table, progress_bar, say
from admin_cli.rebalance import PlanEnded, PlanExit
from admin_cli.session import Session
from admin_cli.streams import outlived_reader
from multiraft.wire import errors as wire
from multiraft.wire.pool import PoolGrowReply, PoolStatusReply

#: How often a growth that is under way is looked at.
LOOK_S = 0.2
#: New groups that have no leader after so long are left to themselves.
PATIENCE_S = 60.0


@click.group(cls=rebalance.RebalanceGroup)
def pool() -> None:
    """The pool of groups that topics are placed over."""


@pool.command()
@json_option
@servers_option
@click.pass_obj
def show(session: Session, as_json: bool) -> None:
    """Show how many groups the pool has, and how far its growth is."""
    with connection.open_session(session) as client:
        client.catch_up()
        status = client.pool_status()
    if as_json:
        print_json({"groups": status.pool_size, "growing_to": _growing_to(status),
                    "new_groups_without_leader": status.waiting, "groups_max": status.groups_max})
        return
    say(f"{plural(status.pool_size, 'group')} in the pool; it may grow to "
        f"{status.groups_max:,}")
    if _growing_to(status):
        say(f"growing to {status.groups:,}: {_progress(status)}")


def _growing_to(status: PoolStatusReply) -> int | None:
    return status.groups if status.groups > status.pool_size else None


def _progress(status: PoolStatusReply) -> str:
    new = status.groups - status.pool_size
    if not status.waiting:
        return f"all {new:,} new groups have a leader; the metadata have to open them to topics"
    more = ", ..." if status.waiting > len(status.named) else ""
    return (f"{new - status.waiting:,} of {new:,} new groups have a leader; without one: "
            f"{', '.join(map(str, status.named))}{more}")


@pool.command()
@click.argument("groups", metavar="N", type=DATA_GROUP)
@click.option("--yes", is_flag=True, help="Do it. Without it, only show what would happen.")
@click.option("--no-wait", is_flag=True, help="Return when it is decided.")
@json_option
@servers_option
@click.pass_obj
def grow(session: Session, groups: int, yes: bool, no_wait: bool, as_json: bool) -> None:
    """Let the pool grow to N groups. Without --yes it is only shown.

    New topics are placed over all N groups as soon as the new ones have leaders. Topics that exist
    stay in their groups: `multiraft rebalance plan` switches what is too much for those, and
    `multiraft placement switch` a partition that you name. A pool never shrinks.
    """
    with connection.open_session(session) as client:
        client.catch_up()
        before = client.pool_status()
        if groups == before.pool_size and not _growing_to(before):
            note(f"Nothing to do: the pool has {plural(groups, 'group')}.")
            raise click.exceptions.Exit(int(PlanExit.NOTHING_TO_DO))
        told = _asked(client, groups, dry_run=not yes)
        if not as_json:
            with outlived_reader() if yes else contextlib.nullcontext():  # it is waited for
                _show(told)
        if yes and not no_wait:
            _wait(client, session, groups, as_json)
    if as_json:
        print_json({**told._asdict(), "nodes": [row._asdict() for row in told.nodes],
                    "dry_run": not yes, "open": yes and not no_wait})
    elif not yes:
        note("Nothing was changed. To do it, say --yes.")
    elif no_wait:
        note(f"It is decided that the pool grows to {groups:,} groups; `multiraft group pool show` "
             f"shows how far it is.")
    else:
        note(f"The pool has {groups:,} groups: new topics are placed over all of them.")


def _asked(client: Any, groups: int, dry_run: bool) -> PoolGrowReply:
    """What is decided, or would be.  Raises ``PlanEnded`` when it cannot be."""
    try:
        return client.pool_grow(groups, dry_run)
    except wire.LimitExceeded as error:
        raise PlanEnded(f"{connection.sentence(error)}", "Ask for fewer, or raise "
                        "limits.groups_max in the configuration of every node.",
                        PlanExit.INFEASIBLE) from error
    except wire.InvalidRequest as error:
        raise PlanEnded(f"{connection.sentence(error)}", "Nothing was changed. `multiraft group "
                        "pool show` and `multiraft cluster status` show how things are.",
                        PlanExit.INFEASIBLE) from error


def _show(told: PoolGrowReply) -> None:
    new = told.groups - told.pool_size
    say(f"pool: {told.pool_size:,} -> {plural(told.groups, 'group')} ({new:,} new, "
        f"{told.replication_factor} replicas each)\n")
    print_table(("node", "rack", "state", "replicas", "new", "leads of the new"),
                [(row.node, row.rack, row.state, row.replicas, row.new_replicas, row.new_leads)
                 for row in told.nodes])
    say(f"\nNew topics will be placed over all {told.groups:,} groups. Topics that exist "
        f"stay where they are,\nand nothing is copied: `multiraft rebalance plan` switches "
        f"what is too much for old groups.")


def _wait(client: Any, session: Session, groups: int, quiet: bool) -> None:
    """Until new topics use the new groups.  Raises ``CommandFailed`` when that takes too long."""
    best, moved_s = None, time.monotonic()
    with progress_bar(hidden=quiet) as bar:
        task = bar.add_task("new groups with a leader", total=None)
        while (status := client.pool_status()).pool_size < groups:
            new = status.groups - status.pool_size
            bar.update(task, total=new, completed=new - status.waiting)
            if best is None or status.waiting < best:
                best, moved_s = status.waiting, time.monotonic()
            elif time.monotonic() - moved_s > PATIENCE_S:
                raise CommandFailed(
                    f"the pool is still growing to {groups:,} groups: {_progress(status)}.",
                    "It goes on by itself when a majority of each group's nodes is up; `multiraft "
                    "group describe GROUP` says who is missing. New topics use the old groups "
                    "meanwhile.")
            session.pause(LOOK_S)
