"""`multiraft topic add-partitions`: more partitions for a topic."""

from __future__ import annotations

import sys
from typing import Any

import click

from admin_cli import connection
from admin_cli.console.help_pages import HelpfulCommand
from admin_cli.console.options import json_option, servers_option, topic_argument
from admin_cli.console.output import note, plural, print_json
from admin_cli.failures import CommandFailed
from admin_cli.session import Session
from admin_cli.values.numbers import PARTITIONS
from admin_cli.values.text import printable

#: Setting that says what removes records, and its word for compaction by key.
CLEANUP_POLICY, COMPACT = "cleanup.policy", "compact"

KEYS = ("Records with a key go to other partitions from then on: the order of the records of one "
        "key does not hold across the change.")
COMPACTED = ("is compacted by key, within each partition: a key whose records go to another "
             "partition keeps its last one in the former partition too, and a deletion in the new "
             "one does not remove it. A reader of the whole topic sees both.")


@click.command("add-partitions", cls=HelpfulCommand)
@topic_argument
@click.option("--to", "--partitions", "-p", "to", type=PARTITIONS, metavar="N",
              help="Number of partitions that the topic has then.")
@click.option("--num", "-n", "more", type=PARTITIONS, metavar="N",
              help="Number of partitions to add.")
@click.option("--force", is_flag=True, help="Also to a topic that is compacted by key.")
@click.option("--dry-run", is_flag=True, help="Only check; nothing is changed.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
@servers_option
@click.pass_obj
def add_partitions(session: Session, topic: str, to: int | None, more: int | None, force: bool,
                   dry_run: bool, yes: bool, as_json: bool) -> None:
    """Add partitions to TOPIC. They cannot be taken away again.

    One of --to and --num is needed. Records with a key go to other partitions from then on. Asks
    first when standard input is a terminal; otherwise it adds without asking, as with --yes.
    Producers and consumers of the whole topic use the new partitions within a minute, Kafka's
    clients when they next ask for metadata; consumers read them from the beginning. A topic whose
    cleanup.policy has compact needs --force.
    """
    if (to is None) == (more is None):
        raise click.UsageError("give one of --to N and --num N.")
    if connection.is_internal(topic):
        raise CommandFailed(f"{topic} is an internal topic: the number of its partitions is that "
                            "of the nodes; nothing was changed.")
    with connection.open_session(session) as client:
        before = len(client.topic_metadata(topic).partitions)
        wanted = to if to is not None else before + (more or 0)
        _require_more(topic, before, wanted)
        if _is_compacted(client, topic) and not force:
            raise CommandFailed(f"topic {topic} {COMPACTED} Nothing was changed.",
                                "To add partitions nevertheless: --force")
        asks = not yes and not dry_run and sys.stdin.isatty()
        question = f"{KEYS} Add {plural(wanted - before, 'partition')} to topic {topic}, which " \
                   f"has {before:,}?"
        if asks and not click.confirm(printable(question), err=True):
            raise CommandFailed("nothing was changed.")
        after = len(client.add_partitions(topic, wanted, dry_run=dry_run).partitions)
    _report(topic, before, wanted if dry_run else after, dry_run, as_json)


def _require_more(topic: str, before: int, wanted: int) -> None:
    """Return if so many partitions are more than a topic has. Raises ``CommandFailed``."""
    if wanted == before:
        raise CommandFailed(f"topic {topic} has {plural(before, 'partition')} already; nothing was "
                            "changed.")
    if wanted < before:
        raise CommandFailed(f"topic {topic} has {plural(before, 'partition')}, and partitions "
                            "cannot be taken away; nothing was changed.",
                            f"Create another topic with {wanted:,}, and copy the records.")


def _is_compacted(client: Any, topic: str) -> bool:
    """Return True if the settings of a topic compact it by key."""
    values = {row.name: row.value for row in client.describe_settings(topic)}
    return COMPACT in (values.get(CLEANUP_POLICY) or "").split(",")


def _report(topic: str, before: int, after: int, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json({"name": topic, "partitions_before": before, "partitions": after,
                    "dry_run": dry_run})
    if dry_run:
        note(f"Topic {topic}: {plural(after - before, 'partition')} would be added to "
             f"{before:,}; nothing was changed.")
        return
    note(f"Topic {topic} has {plural(after, 'partition')} now, {before:,} before. {KEYS}")
