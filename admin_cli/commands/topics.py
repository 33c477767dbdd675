"""`multiraft topic`: create, list, describe, alter, offsets, delete, delete-records,
add-partitions."""

from __future__ import annotations

import sys
from typing import Any

import click
from click.core import ParameterSource

from admin_cli import connection
from admin_cli.commands.added_partitions import add_partitions
from admin_cli.commands.record_deletion import delete_records
from admin_cli.console.command_group import HelpfulGroup
from admin_cli.console.options import (
    TEXT,
    Time,
    json_option,
    servers_option,
    topic_argument,
    topics_argument,
    wide_option,
)
from admin_cli.console.output import note, plural, print_json, print_table, say
from admin_cli.console.setting_options import change_options, create_option, require_changes
from admin_cli.failures import CommandFailed, NotFound
from admin_cli.session import Session
from admin_cli.status import setting_facts, topic_facts, topic_sizes
from admin_cli.values.numbers import NODE, PARTITIONS
from admin_cli.values.text import printable
from admin_cli.values.times import FORMS, At


@click.group(cls=HelpfulGroup)
def topic() -> None:
    """Create, list, describe, alter and delete topics; show the offsets of their records."""


topic.add_command(delete_records)
topic.add_command(add_partitions)


@topic.command()
@click.argument("names", metavar="TOPIC...", type=TEXT, nargs=-1, required=True)
@click.option("--partitions", "-p", type=PARTITIONS, default=1, show_default=True,
              help="Number of partitions, which can grow; order holds within each.")
@click.option("--replication-factor", "-r", "--replicas", type=NODE,
              help="Must equal that of the pool of groups, which is the default.")
@click.option("--if-not-exists", is_flag=True, help="Succeed if the topic exists already.")
@create_option
@servers_option
@click.pass_obj
def create(session: Session, names: tuple[str, ...], partitions: int,
           replication_factor: int | None, if_not_exists: bool, settings: dict[str, str]) -> None:
    """Create each TOPIC. The first one that is refused ends the command.

    Settings have the names that Kafka gives them: `multiraft help settings`.
    """
    with connection.open_session(session) as client:
        for name in names:
            made = connection.create_topic(client, name, partitions, replication_factor,
                                           if_not_exists, settings)
            note(f"Created topic {name} with {plural(partitions, 'partition')}." if made
                 else f"Topic {name} exists already{_difference(client, name, partitions)}; "
                      "nothing was changed.")


def _difference(client: Any, name: str, partitions: int) -> str:
    """Return how an existing topic differs from one with ``partitions``, as the end of a clause;
    empty if it does not, or only the default was asked for."""
    has = len(client.topic_metadata(name).partitions)
    asked = click.get_current_context().get_parameter_source("partitions")
    if has == partitions or asked is ParameterSource.DEFAULT:
        return ""
    return (f" with {plural(has, 'partition')}, not {partitions:,}: "
            "`multiraft topic add-partitions` adds some")


@topic.command("list")
@click.option("--all", "-a", "every", is_flag=True,
              help="Show internal topics too, whose names begin with __.")
@click.option("--internal", "-i", "every_aliases", is_flag=True, hidden=True)
@click.option("--sizes", "with_sizes", is_flag=True,
              help="Show records and bytes of each topic, and its largest partition.")
@click.option("--sort", type=click.Choice(("name", "size")), default="name", show_default=True,
              help="Order: by name, or the largest first, which shows sizes.")
@json_option
@servers_option
@click.pass_obj
def list_(session: Session, every: bool, every_aliases: bool, with_sizes: bool, sort: str,
          as_json: bool) -> None:
    """List the topics, and the replicas of each partition.

    JSON has internal topics always. Sizes are asked from the leaders of all groups, now: records
    are the offsets from log start to end, bytes those of one replica as stored. >= is before a
    lower bound: a node did not answer, or a leader does not know the bytes of a partition whose
    log start was moved by an earlier release; ? if it knows none.
    """
    with connection.open_session(session) as client:
        topics = connection.topics(client)
        replicas = client.cluster_status().replication_factor
        sizes = topic_sizes.of_topics(client) if with_sizes or sort == "size" else None
    if sizes is not None and sort == "size":
        topics.sort(key=lambda row: topic_sizes.sort_key(_total(sizes, row.name)), reverse=True)
    rows = [row for row in topics if every or every_aliases or not connection.is_internal(row.name)]
    hidden = len(topics) - len(rows)
    if as_json:
        _print_topics_json(topics, replicas, sizes)
        return
    if not rows:
        note("There are no topics. Create one: multiraft topic create NAME")
    elif sizes is None:
        print_table(("topic", "partitions", "replicas"), [(*row, replicas) for row in rows])
    else:
        print_table(topic_sizes.COLUMNS, [
            (*row, replicas, *topic_sizes.shown(_total(sizes, row.name), not sizes.missing))
            for row in rows])
        note(f"Sizes of {sizes.asked:%Y-%m-%d %H:%M:%S} UTC, as the leaders told them.")
        for why in sizes.missing:
            note(f"Sizes are lower bounds: {why}")
    if hidden and sys.stderr.isatty():
        note(f"{plural(hidden, 'internal topic')} not shown: --all")


def _total(sizes: topic_sizes.Sizes, name: str) -> topic_sizes.TopicTotal:
    return sizes.totals.get(name, topic_sizes.TopicTotal())


def _print_topics_json(topics: list[connection.TopicRow], replicas: int,
                       sizes: topic_sizes.Sizes | None) -> None:
    rows = [{**row._asdict(), "replication_factor": replicas,
             "internal": connection.is_internal(row.name),
             **({} if sizes is None else topic_sizes.as_json(_total(sizes, row.name)))}
            for row in topics]
    print_json({"topics": rows,
                **({} if sizes is None else {
                    "sizes_asked": sizes.asked.isoformat(timespec="seconds"),
                    "sizes_missing": list(sizes.missing)})})


@topic.command()
@topics_argument
@click.option("--settings", "-c", "--print-configs", "with_settings", is_flag=True,
              help="Show the settings instead: value, source, and effect in this release.")
@wide_option
@json_option
@servers_option
@click.pass_obj
def describe(session: Session, topics: tuple[str, ...], with_settings: bool, wide: bool,
             as_json: bool) -> None:
    """Show groups, leaders, replicas and offset ranges of the partitions of each TOPIC.

    end_offset is the offset that the next committed record gets; start_offset is the first one
    that exists. bytes are those of one replica, from start_offset on: >= is before a lower bound,
    ? if no leader knows them. epoch is the leader epoch. state: ok, under-replicated (a node with a
    replica is not up), no leader, or no majority: these two accept no appends.

    The source of a setting is the topic, the cluster (`multiraft cluster settings`), the node
    (node.toml of the one that answers, for topics that nodes make) or the default.
    """
    if with_settings:
        _describe_settings(session, topics, as_json)
        return
    with connection.open_session(session) as client:
        found = [(name, connection.partitions(client, name),
                  topic_sizes.of_partitions(client, name)) for name in topics]
        place = topic_facts.places(client)
    if as_json:
        answers = [{"name": name, "partitions": [
            topic_facts.as_json(row, place, sizes) for row in rows]} for name, rows, sizes in found]
        for answer in answers:
            print_json(answer, one_line=len(answers) > 1)
        return
    for number, (name, rows, sizes) in enumerate(found):
        if len(found) > 1:
            say(f"{number and chr(10) or ''}{name}")
        print_table(topic_facts.COLUMNS, [topic_facts.shown(row, place, sizes) for row in rows],
                    drop=("bytes",), wide=wide)


def _describe_settings(session: Session, topics: tuple[str, ...], as_json: bool) -> None:
    with connection.open_session(session) as client:
        found = [(name, client.describe_settings(name)) for name in topics]
    for number, (name, rows) in enumerate(found):
        if as_json:
            print_json({"name": name, "settings": setting_facts.as_json(rows)},
                       one_line=len(found) > 1)
            continue
        if len(found) > 1:
            say(f"{number and chr(10) or ''}{name}")
        print_table(setting_facts.COLUMNS, setting_facts.shown(rows))


@topic.command()
@topics_argument
@change_options
@servers_option
@click.pass_obj
def alter(session: Session, topics: tuple[str, ...], settings: dict[str, str],
          delete: tuple[str, ...], dry_run: bool) -> None:
    """Change settings of each TOPIC: all changes of a topic are made, or none.

    The first topic for which a change is refused ends the command. A setting that is deleted has
    the default of the cluster again. Changes hold at once. Names and values: `multiraft help
    settings`.
    """
    require_changes(settings, delete)
    with connection.open_session(session) as client:
        for name in dict.fromkeys(topics):
            client.alter_settings(name, settings, delete, dry_run)
            note(f"Topic {name}: " + ("the changes would be accepted; nothing was changed."
                                      if dry_run else "settings changed."))


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
@topics_argument
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@servers_option
@click.pass_obj
def delete(session: Session, topics: tuple[str, ...], yes: bool) -> None:
    """Delete each TOPIC and its records permanently.

    Asks first when standard input is a terminal; otherwise it deletes without asking, as with
    --yes. Nothing is deleted if one of the topics does not exist.
    """
    names = list(dict.fromkeys(topics))
    if not yes and sys.stdin.isatty():
        what = f"topic{'s' if len(names) > 1 else ''} {', '.join(names)}"
        if not click.confirm(f"Delete {printable(what)} and all records?", err=True):
            raise CommandFailed("nothing was deleted.")
    with connection.open_session(session) as client:
        if len(names) > 1:
            _require_topics(client, names)
        for name in names:
            client.delete_topic(name)
            note(f"Deleted topic {name}.")


def _require_topics(client: Any, names: list[str]) -> None:
    """Return if every topic exists. Raises ``NotFound`` that names those that do not."""
    known = {row.name: None for row in client.list_topics()}
    missing = [name for name in names if name not in known]
    if missing:
        raise NotFound(f"there is no topic {', '.join(missing)}; nothing was deleted.",
                       connection.topic_advice(missing, [*known]))
