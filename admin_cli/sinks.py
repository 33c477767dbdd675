"""`multiraft sink`: sinks, their transactions (runs), and runs that writers left open.

Contract.  Only `abort` changes anything.  It can be repeated and never reverts a committed run: a
writer that is still alive learns of the abort at its commit, and runs its batch again.
"""

from __future__ import annotations

import click

from admin_cli import blocks, connection, quantities
from admin_cli.failures import NotFound
from admin_cli.options import TEXT, Numbers, json_option, servers_option
from admin_cli.output import note, print_json, print_table
from admin_cli.session import Session
from multiraft.client import staging
from multiraft.client.blocking import Wait


@click.group()
def sink() -> None:
    """Show sinks and abort their open runs."""


@sink.command("list")
@json_option
@servers_option
@click.pass_obj
def list_sinks(session: Session, as_json: bool) -> None:
    """List sinks, with the committed and the open batch of each."""
    with connection.open_session(session) as client:
        client.catch_up()
        rows = staging.sinks(client)
    if as_json:
        print_json({"sinks": [_as_json(row) for row in rows]})
        return
    print_table(("sink", "committed batch", "open batch", "runs"),
                [(row.name, _batch(row.last_batch), _batch(row.open_batch), row.newest_run)
                 for row in rows])


@sink.command()
@click.argument("topics", nargs=-1, type=TEXT, metavar="[TOPIC]...")
@json_option
@servers_option
@click.pass_obj
def blocked(session: Session, topics: tuple[str, ...], as_json: bool) -> None:
    """Show the positions where readers of committed records stop, and the runs that block them.

    Without TOPIC: wherever open runs have staged.  With TOPIC all of it is read, which also finds
    batches of runs that were never opened; that takes as long as reading it.
    """
    with connection.open_session(session) as client:
        client.catch_up()
        waits = blocks.of_topics(client, topics) if topics else blocks.of_open_runs(client)
        held = [(wait, wait.run) for wait in waits if wait.run is not None]
        facts = staging.run_facts(client, [run for _, run in held])
    if as_json:
        print_json({"blocked": [_block(wait, facts[run]) for wait, run in held]})
    elif held:
        print_table(("topic", "partition", "offset", "end_offset", "sink", "run", "batch", "open"),
                    [(wait.topic, wait.partition, wait.offset, wait.end_offset,
                      facts[run].name or None, f"{run.sink}/{run.run}",
                      _batch(facts[run].batch), _age(facts[run])) for wait, run in held])
    else:
        note("No open run blocks readers.")


@sink.command()
@click.argument("name", required=False, type=TEXT)
@click.option("--run", "numbers", type=Numbers(), metavar="SINK/RUN",
              help="Run by its numbers, as `sink blocked` shows them; it may be one that was never "
                   "opened.")
@json_option
@servers_option
@click.pass_obj
def abort(session: Session, name: str | None, numbers: tuple[int, int] | None,
          as_json: bool) -> None:
    """Abort the open run of the sink NAME, or the run SINK/RUN.

    Readers of committed records wait at the first record that an open run has staged; when its
    writer is gone permanently, an abort unblocks them.  A writer that is alive loses the run, not
    the batch.
    """
    if (name is None) == (numbers is None):
        raise click.UsageError("Name a sink, or a run with --run: one of them.")
    if numbers is not None:
        _abort_run(session, numbers, as_json)
        return
    with connection.open_session(session) as client:
        client.catch_up()
        row = next((row for row in staging.sinks(client) if row.name == name), None)
        if row is None:
            raise NotFound(f"there is no sink {name!r}.", "`multiraft sink list` shows them.")
        committed = row.open_batch < 0 or staging.abort_run(client, row.sink, row.newest_run)
    if as_json:
        print_json({"sink": name, "batch": row.open_batch if row.open_batch >= 0 else None,
                    "aborted": not committed})
    elif row.open_batch < 0:
        note(f"Nothing to do: no batch of {name} is open.")
    elif committed:
        note(f"Batch {row.open_batch} of {name} was committed just now; nothing was changed.")
    else:
        note(f"Batch {row.open_batch} of {name} is aborted: readers skip its staged records.")


def _abort_run(session: Session, numbers: tuple[int, int], as_json: bool) -> None:
    with connection.open_session(session) as client:
        committed = staging.abort_run(client, *numbers)
    shown = "{}/{}".format(*numbers)
    if as_json:
        print_json({"run": shown, "aborted": not committed})
    elif committed:
        note(f"Run {shown} is committed; nothing was changed.")
    else:
        note(f"Run {shown} is void: readers skip records that were staged under it.")


def _block(wait: Wait, fact: staging.RunFact) -> dict:
    return {"topic": wait.topic, "partition": wait.partition, "offset": wait.offset,
            "end_offset": wait.end_offset, "sink": fact.name or None,
            "run": f"{fact.sink}/{fact.run}", "state": fact.state,
            "batch": fact.batch if fact.batch >= 0 else None,
            "open_ms": fact.open_ms if fact.open_ms >= 0 else None, "reason": wait.reason}


def _age(fact: staging.RunFact) -> str:
    return quantities.span(fact.open_ms) or "-" if fact.open_ms >= 0 else "-"


def _batch(number: int) -> str:
    return str(number) if number >= 0 else "-"


def _as_json(row: staging.SinkRow) -> dict:
    return {"sink": row.name, "number": row.sink, "runs": row.newest_run,
            "committed_batch": row.last_batch if row.last_batch >= 0 else None,
            "open_batch": row.open_batch if row.open_batch >= 0 else None}
