"""`multiraft group pool`: the number of groups that topics are placed over, and its growth.

Contract.  Only `grow N --yes` changes anything.  One request starts a growth, and the cluster
completes it by itself, also after this command has ended; running it again shows the progress.
Exit codes as of `multiraft rebalance`.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

import click

from admin_cli import connection
from admin_cli.console.options import json_option, servers_option
from admin_cli.console.output import note, plural, print_json, print_table, progress_bar, say
from admin_cli.console.streams import outlived_reader
from admin_cli.failures import CommandFailed, told_if_interrupted
from admin_cli.plans import rebalance
from admin_cli.plans.rebalance import PlanEnded, PlanExit
from admin_cli.session import Session
from admin_cli.values.numbers import DATA_GROUP
from multiraft.wire import errors as wire
from multiraft.wire.pool import GrowPoolReply, PoolStatusReply

#: Interval at which a growth is polled.
POLL_INTERVAL_S = 0.2
#: Time after which the command stops waiting for leaders of new groups.
PROGRESS_TIMEOUT_S = 60.0


@click.group(cls=rebalance.RebalanceGroup)
def pool() -> None:
    """Show or grow the pool of groups that topics are placed over."""


@pool.command()
@json_option
@servers_option
@click.pass_obj
def show(session: Session, as_json: bool) -> None:
    """Show the number of groups in the pool, and the progress of its growth."""
    with connection.open_session(session) as client:
        client.catch_up()
        status = client.pool_status()
    if as_json:
        print_json(
            {
                "groups": status.pool_size,
                "growing_to": _growing_to(status),
                "new_groups_without_leader": status.groups_leaderless,
                "groups_max": status.groups_max,
            }
        )
        return
    say(f"{plural(status.pool_size, 'group')} in the pool; it may grow to "
        f"{status.groups_max:,}")
    if _growing_to(status):
        say(f"growing to {status.groups:,}: {_progress(status)}")


def _growing_to(status: PoolStatusReply) -> int | None:
    return status.groups if status.groups > status.pool_size else None


def _progress(status: PoolStatusReply) -> str:
    new = status.groups - status.pool_size
    if not status.groups_leaderless:
        return f"all {new:,} new groups have a leader; the metadata have to open them to topics"
    more = ", ..." if status.groups_leaderless > len(status.leaderless) else ""
    return (f"{new - status.groups_leaderless:,} of {new:,} new groups have a leader; without one: "
            f"{', '.join(map(str, status.leaderless))}{more}")


@pool.command()
@click.argument("groups", metavar="N", type=DATA_GROUP)
@click.option("--yes", is_flag=True, help="Apply the growth. Without it: dry run.")
@click.option("--no-wait", is_flag=True, help="Return once the growth is decided.")
@json_option
@servers_option
@click.pass_obj
def grow(session: Session, groups: int, yes: bool, no_wait: bool, as_json: bool) -> None:
    """Grow the pool to N groups.  Without --yes: dry run.

    New topics are placed over all N groups as soon as the new ones have leaders.  Topics that exist
    stay in their groups: `multiraft rebalance plan` switches the excess of old groups, and
    `multiraft placement switch` a partition that you name.  A pool never shrinks.
    """
    with connection.open_session(session) as client:
        client.catch_up()
        before = client.pool_status()
        if groups == before.pool_size and not _growing_to(before):
            note(f"Nothing to do: the pool has {plural(groups, 'group')}.")
            raise click.exceptions.Exit(int(PlanExit.NOTHING_TO_DO))
        told = _request_growth(client, groups, dry_run=not yes)
        if not as_json:
            # the command waits for the end
            with outlived_reader() if yes else contextlib.nullcontext():
                _show(told)
        if yes and not no_wait:
            with told_if_interrupted("The growth is decided, and the cluster completes it by "
                                     "itself; it cannot be stopped.\nShow its progress: multiraft "
                                     "group pool show"):
                _wait(client, session, groups, as_json)
    if as_json:
        print_json({**told._asdict(), "nodes": [row._asdict() for row in told.nodes],
                    "dry_run": not yes, "open": yes and not no_wait})
    elif not yes:
        note("Dry run: nothing was changed. Use --yes to apply.")
    elif no_wait:
        note(f"Decided: the pool grows to {groups:,} groups. Show its progress: multiraft group "
             "pool show")
    else:
        note(f"The pool has {groups:,} groups: new topics are placed over all of them.")


def _request_growth(client: Any, groups: int, dry_run: bool) -> GrowPoolReply:
    """Request the growth, and return what is decided or, with ``dry_run``, would be. Raises
    ``PlanEnded`` if it is above the limit or the pool cannot grow to that size."""
    try:
        return client.pool_grow(groups, dry_run)
    except wire.LimitExceeded as error:
        raise PlanEnded(f"{connection.sentence(error)}", "Ask for fewer, or raise "
                        "limits.groups_max in the configuration of every node.",
                        PlanExit.INFEASIBLE) from error
    except wire.InvalidRequest as error:
        raise PlanEnded(f"{connection.sentence(error)}", "Nothing was changed. Show the present "
                                                         "state: `multiraft group pool show` and "
                                                         "`multiraft cluster status`.",
                        PlanExit.INFEASIBLE) from error


def _show(told: GrowPoolReply) -> None:
    new = told.groups - told.pool_size
    say(f"pool: {told.pool_size:,} -> {plural(told.groups, 'group')} ({new:,} new, "
        f"{told.replication_factor} replicas each)\n")
    print_table(("node", "rack", "state", "replicas", "new", "leads of the new"),
                [(row.node, row.rack, row.state, row.replicas, row.new_replicas, row.new_leads)
                 for row in told.nodes])
    say(f"\nNew topics will be placed over all {told.groups:,} groups. Topics that exist stay "
        "where they are,\nand nothing is copied: `multiraft rebalance plan` switches the excess of "
        "old groups.")


def _wait(client: Any, session: Session, groups: int, quiet: bool) -> None:
    """Wait until new topics use the new groups. Raises ``CommandFailed`` when no group got a leader
    for ``PROGRESS_TIMEOUT_S``."""
    best, moved_s = None, time.monotonic()
    with progress_bar(hidden=quiet) as bar:
        task = bar.add_task("new groups with a leader", total=None)
        while (status := client.pool_status()).pool_size < groups:
            new = status.groups - status.pool_size
            bar.update(task, total=new, completed=new - status.groups_leaderless)
            if best is None or status.groups_leaderless < best:
                best, moved_s = status.groups_leaderless, time.monotonic()
            elif time.monotonic() - moved_s > PROGRESS_TIMEOUT_S:
                raise CommandFailed(
                    f"the pool is still growing to {groups:,} groups: {_progress(status)}.",
                    "The growth continues by itself once a majority of each group's nodes is up; "
                    "`multiraft group describe GROUP` shows the missing ones. Until then new "
                    "topics use the old groups.")
            session.pause(POLL_INTERVAL_S)
