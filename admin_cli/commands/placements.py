"""`multiraft placement`: the groups of partitions, with reasons, and a switch to another group.

Contract.  One request starts a switch, and the cluster completes it by itself.  The command polls
until the switch is complete; interrupting the command does not stop the switch.
"""

from __future__ import annotations

import time
from typing import Any

import click

from admin_cli import connection
from admin_cli.console.command_group import HelpfulGroup
from admin_cli.console.options import json_option, servers_option, topic_argument
from admin_cli.console.output import note, plural, print_json, print_table
from admin_cli.failures import Unreachable, told_if_interrupted
from admin_cli.plans.whatif import whatif
from admin_cli.session import Session
from admin_cli.status.placement_facts import placements
from admin_cli.values.numbers import DATA_GROUP, PARTITION

#: Interval at which a switch is polled.
POLL_INTERVAL_S = 0.05
#: Time after which the command stops waiting for a switch.
PROGRESS_TIMEOUT_S = 60.0

_partition = click.argument("partition", type=PARTITION)


@click.group(cls=HelpfulGroup)
def placement() -> None:
    """Show and explain the groups of partitions; switch one to another group."""


placement.add_command(whatif)


@placement.command()
@topic_argument
@click.argument("partition", type=PARTITION, required=False)
@json_option
@servers_option
@click.pass_obj
def explain(session: Session, topic: str, partition: int | None, as_json: bool) -> None:
    """Show which groups hold which offsets of TOPIC [PARTITION], and why.

    A partition that was switched has a row for each group that holds a part of it; the last one
    takes the appends. A row goes when all records of its part are deleted.
    """
    with connection.open_session(session) as client:
        found = placements(client, topic, partition)
        hashed_over, pool_size = client.topic_pool_size(topic), client.pool_status().pool_size
    if as_json:
        print_json({"topic": topic, "pool_size": hashed_over, "partitions": found})
        return
    print_table(("partition", "epoch", "group", "leader", "from", "to", "why"),
                [(row["partition"], link["epoch"], link["group"], link["leader"],
                  link["start_offset"], link["end_offset"], link["reason"])
                 for row in found for link in row["links"]])
    if hashed_over != pool_size:
        note(f"The topic was created when the pool had {plural(hashed_over, 'group')}, and is "
             f"placed over these; the pool has {plural(pool_size, 'group')} now. `multiraft "
             "rebalance plan` moves the excess.")
    for row in found:
        if row["switch"] is not None:
            switch = row["switch"]
            note(f"Partition {row['partition']} is being switched to group {switch['to_group']} "
                 f"(epoch {switch['epoch']}, {switch['step']}): {switch['waits_for']}.")


@placement.command()
@topic_argument
@_partition
@click.option("--to-group", type=DATA_GROUP, required=True, metavar="GROUP",
              help="Group to switch to.")
@click.option("--no-wait", is_flag=True, help="Return once the switch is decided.")
@json_option
@servers_option
@click.pass_obj
def switch(session: Session, topic: str, partition: int, to_group: int, no_wait: bool,
           as_json: bool) -> None:
    """Switch PARTITION of TOPIC to another group.

    Existing records stay where they are and are read from there; new records go to the new group.
    Appends pause for a moment and lose nothing.  Once it is decided, only another switch reverts
    it.
    """
    with connection.open_session(session) as client:
        before = placements(client, topic, partition)[0]
        epoch = before["epoch"] + 1
        client.switch_partition(before["incarnation"], epoch, to_group)
        with told_if_interrupted("The switch is decided, and the cluster completes it by itself.\n"
                                 "Show its progress: multiraft placement explain "
                                 f"{topic} {partition}"):
            found = before if no_wait else _wait(client, topic, partition, epoch)
    link = found["links"][-1]
    if as_json:
        print_json({"topic": topic, "partition": partition, "epoch": epoch, "to_group": to_group,
                    "published": not no_wait,
                    "start_offset": None if no_wait else link["start_offset"]})
    elif no_wait:
        note(f"Decided: {topic}/{partition} switches to group {to_group} at epoch {epoch}. Show "
             f"its progress: multiraft placement explain {topic} {partition}")
    else:
        note(f"{topic}/{partition} is now in group {to_group} at epoch {epoch}, from offset "
             f"{link['start_offset']}; lower offsets stay in their groups.")


def _wait(client: Any, topic: str, partition: int, epoch: int) -> dict:
    """Wait until the switch to ``epoch`` is published, and return the placement. Raises
    ``Unreachable`` after ``PROGRESS_TIMEOUT_S``."""
    deadline = time.monotonic() + PROGRESS_TIMEOUT_S
    while True:
        found = placements(client, topic, partition)[0]
        if found["epoch"] >= epoch:
            return found
        if time.monotonic() >= deadline:
            raise Unreachable(
                f"{topic}/{partition} is not in its new group after {PROGRESS_TIMEOUT_S:.0f} s: "
                f"{found['switch']['waits_for']}.",
                "The switch continues by itself. Show its progress: multiraft placement explain")
        time.sleep(POLL_INTERVAL_S)
