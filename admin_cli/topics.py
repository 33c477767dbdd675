"""`multiraft topic`: create, list, describe, offsets, delete."""

from __future__ import annotations

import sys

import click

from admin_cli import connection
from admin_cli.command_group import HelpfulGroup
from admin_cli.failures import CommandFailed
from admin_cli.numbers import NODE, PARTITIONS
from admin_cli.options import TEXT, Time, json_option, servers_option, topic_argument
from admin_cli.output import note, plural, print_json, print_table
from admin_cli.session import Session
from admin_cli.times import FORMS, At


@click.group(cls=HelpfulGroup)
def topic() -> None:
    """Create, list, describe and delete topics; show the offsets of their records."""


@topic.command()
@click.argument("name", type=TEXT)
@click.option("--partitions", "-p", type=PARTITIONS, default=1, show_default=True,
              help="Number of partitions; order holds within each.")
@click.option("--replication-factor", type=NODE,
              help="Must equal that of the pool of groups, which is the default.")
@click.option("--if-not-exists", is_flag=True, help="Succeed if the topic exists already.")
@servers_option
@click.pass_obj
def create(session: Session, name: str, partitions: int, replication_factor: int | None,
           if_not_exists: bool) -> None:
    """Create the topic NAME."""
    with connection.open_session(session) as client:
        made = connection.create_topic(client, name, partitions, replication_factor,
                                       if_not_exists)
    note(f"Created topic {name} with {plural(partitions, 'partition')}." if made
         else f"Topic {name} exists already; nothing was changed.")


@topic.command("list")
@json_option
@servers_option
@click.pass_obj
def list_(session: Session, as_json: bool) -> None:
    """List the topics."""
    with connection.open_session(session) as client:
        topics = connection.topics(client)
    if as_json:
        print_json({"topics": [row._asdict() for row in topics]})
    elif topics:
        print_table(("topic", "partitions"), topics)
    else:
        note("There are no topics. Create one: multiraft topic create NAME")


@topic.command()
@topic_argument
@json_option
@servers_option
@click.pass_obj
def describe(session: Session, topic: str, as_json: bool) -> None:
    """Show groups, leaders and offset ranges of the partitions of TOPIC.

    end_offset is the offset that the next committed record gets; start_offset is the first one
    that exists.
    """
    with connection.open_session(session) as client:
        rows = connection.with_living_leaders(client, connection.partitions(client, topic))
    if as_json:
        print_json({"name": topic, "partitions": [row._asdict() for row in rows]})
        return
    print_table(("partition", "group", "leader", "start_offset", "end_offset"), rows)


@topic.command()
@topic_argument
@click.option("--at", type=Time(), metavar="TIME",
              help=f"The first record at or after this time instead: {FORMS}.")
@json_option
@servers_option
@click.pass_obj
def offsets(session: Session, topic: str, at: At | None, as_json: bool) -> None:
    """Show the offset range of each partition of TOPIC, or the offset of a time.

    Everything that was acknowledged before the command began is counted: a majority confirms each
    leader first.
    """
    with connection.open_session(session) as client:
        names: tuple[str, ...]
        rows: list[tuple[int | None, ...]]
        if at is None:
            names = ("partition", "start_offset", "end_offset")
            rows = [(number, *span) for number, span in connection.offsets(client, topic).items()]
        else:
            names = ("partition", "offset")
            rows = list(connection.offsets_at(client, topic, at).items())
    if as_json:
        moment = {} if at is None else {"timestamp": at.ms}
        print_json({"name": topic, **moment,
                    "partitions": [dict(zip(names, row, strict=True)) for row in rows]})
        return
    print_table(names, rows)


@topic.command()
@topic_argument
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@servers_option
@click.pass_obj
def delete(session: Session, topic: str, yes: bool) -> None:
    """Delete TOPIC and its records permanently."""
    if not yes and sys.stdin.isatty():
        if not click.confirm(f"Delete topic {topic} and all its records?", err=True):
            raise CommandFailed("nothing was deleted.")
    with connection.open_session(session) as client:
        client.delete_topic(topic)
    note(f"Deleted topic {topic}.")
