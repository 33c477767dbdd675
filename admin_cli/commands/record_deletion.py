"""`multiraft topic delete-records`: the records below an offset or a time, or all of them."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import click

from admin_cli import connection
from admin_cli.console.help_pages import HelpfulCommand
from admin_cli.console.options import Time, json_option, servers_option, topic_argument
from admin_cli.console.output import note, plural, print_json, print_table
from admin_cli.failures import Ambiguous, CommandFailed
from admin_cli.session import Session
from admin_cli.values.numbers import COUNT_MAX, PARTITION, Whole
from admin_cli.values.text import printable
from admin_cli.values.times import FORMS, At
from multiraft.wire.errors import AmbiguousOutcome

#: Partitions that the question names.
PARTITIONS_NAMED = 4


class Deletion(NamedTuple):
    """Offsets of one partition that are deleted: ``start`` to ``before``, exclusive."""

    partition: int
    start: int
    before: int


@click.command("delete-records", cls=HelpfulCommand)
@topic_argument
@click.option("--before", type=Whole(0, COUNT_MAX), metavar="OFFSET",
              help="Delete the records below this offset.")
@click.option("--before-time", type=Time(), metavar="TIME",
              help=f"Delete the records before the first one at or after this time: {FORMS}.")
@click.option("--all", "-a", "every", is_flag=True, help="Delete all records.")
@click.option("--partition", "-p", "partitions", type=PARTITION, multiple=True,
              help="Only of this partition; may be repeated.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
@servers_option
@click.pass_obj
def delete_records(session: Session, topic: str, before: int | None, before_time: At | None,
                   every: bool, partitions: tuple[int, ...], yes: bool, as_json: bool) -> None:
    """Delete the oldest records of TOPIC permanently, in each partition.

    One of --before, --before-time and --all is needed. Offsets are not used again. Asks first when
    standard input is a terminal; otherwise it deletes without asking, as with --yes. Nothing is
    deleted if an offset is beyond the end of a partition. With --before-time, a partition without
    a record at or after the time loses all records.
    """
    if (before is not None) + (before_time is not None) + every != 1:
        raise click.UsageError("give one of --before OFFSET, --before-time TIME and --all.")
    if connection.is_internal(topic):
        raise CommandFailed(f"{topic} is an internal topic: nodes append to it, and its records "
                            "are removed by its retention only.",
                            f"`multiraft topic describe {topic} --settings` shows its retention.")
    with connection.open_session(session) as client:
        ranges = connection.offsets(client, topic)
        for partition in partitions:
            connection.require_partition(topic, len(ranges), partition)
        chosen = {number: ranges[number] for number in dict.fromkeys(partitions or ranges)}
        found = _deletions(client, topic, chosen, before, before_time)
        asks = not yes and sys.stdin.isatty() and _deletes(found)
        if asks and not click.confirm(_question(topic, found), err=True):
            raise CommandFailed("nothing was deleted.")
        outcomes = client.delete_records(topic, {row.partition: row.before for row in found})
    _report(topic, found, outcomes, as_json)


def _deletions(client: Any, topic: str, ranges: dict[int, tuple[int, int]], before: int | None,
               before_time: At | None) -> list[Deletion]:
    """Return what is deleted of each partition.  Raises ``CommandFailed`` for an offset beyond the
    end of a partition."""
    at = connection.offsets_at(client, topic, before_time) if before_time is not None else {}
    found = []
    for partition, (start, end) in ranges.items():
        offset = before if before is not None else at.get(partition)
        if offset is None:
            offset = end
        if offset > end:
            raise CommandFailed(
                f"offset {offset} is beyond the end of partition {partition} of {topic}, which "
                f"{connection.offsets_in_words(start, end)}; nothing was deleted.",
                f"`multiraft topic offsets {topic}` shows the offsets; --all deletes all records.")
        found.append(Deletion(partition, start, max(start, offset)))
    return found


def _deletes(found: list[Deletion]) -> bool:
    """Return True if at least one record is deleted."""
    return any(row.before > row.start for row in found)


def _question(topic: str, found: list[Deletion]) -> str:
    concerned = [row for row in found if row.before > row.start]
    named = ", ".join(f"{row.start} to {row.before - 1} of partition {row.partition}"
                      for row in concerned[:PARTITIONS_NAMED])
    if len(concerned) > PARTITIONS_NAMED:
        named += f", and of {plural(len(concerned) - PARTITIONS_NAMED, 'more partition')}"
    count = plural(sum(row.before - row.start for row in concerned), "offset")
    return printable(f"Delete the records of {count} of topic {topic}"
                     f"{': ' if named else ''}{named}?")


def _report(topic: str, found: list[Deletion], outcomes: Any, as_json: bool) -> None:
    """Print the outcome of each partition.  Raises ``CommandFailed`` if one was not deleted, and
    ``Ambiguous`` if that is not known."""
    rows = [(row.partition, outcomes[row.partition]) for row in found]
    if as_json:
        print_json({"name": topic, "partitions": [
            {"partition": partition, "start_offset": outcome.start_offset,
             "error": str(outcome.error) if outcome.error is not None else None}
            for partition, outcome in rows]})
    else:
        print_table(("partition", "start_offset"),
                    [(partition, outcome.start_offset) for partition, outcome in rows])
    failed = [(partition, outcome.error) for partition, outcome in rows
              if outcome.error is not None]
    if not failed:
        note(f"Deleted the records of topic {topic} below these offsets."
             if _deletes(found) else
             f"Nothing to delete: topic {topic} has no records below "
             f"{'that offset' if len(found) == 1 else 'those offsets'}.")
        return
    what = "; ".join(f"partition {partition}: {error}"
                     for partition, error in failed[:PARTITIONS_NAMED])
    text = f"{plural(len(failed), 'partition')} of {topic} still may have the records. {what}"
    again = "The same command may be run again: it deletes nothing twice."
    if any(isinstance(error, AmbiguousOutcome) for _, error in failed):
        raise Ambiguous(text, again)
    raise CommandFailed(text, again)
