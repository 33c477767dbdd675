"""`multiraft sink`: writers whose batches become visible at once, and the runs that they left open.

Contract.  Nothing changes but by `abort`, which can be repeated and never takes back what is
committed: a writer that lives is told at its commit, and runs its batch again.
"""

from __future__ import annotations

import click

from admin_cli import connection
from admin_cli.failures import NotFound
from admin_cli.options import TEXT, json_option, servers_option
from admin_cli.output import note, print_json, print_table
from admin_cli.session import Session
from multiraft.client import staging


@click.group()
def sink() -> None:
    """Writers whose batches become visible at once."""


@sink.command("list")
@json_option
@servers_option
@click.pass_obj
def list_sinks(session: Session, as_json: bool) -> None:
    """List sinks: what is committed, and which batch is open."""
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
@click.argument("name", type=TEXT)
@json_option
@servers_option
@click.pass_obj
def abort(session: Session, name: str, as_json: bool) -> None:
    """Give up the open run of the sink NAME.

    Readers of committed records stand before what an open run has staged; when its writer is gone
    for good, this lets them go on. A writer that lives loses the run, not the batch.
    """
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
        note(f"Batch {row.open_batch} of {name} is given up: readers leave out what it staged.")


def _batch(number: int) -> str:
    return str(number) if number >= 0 else "-"


def _as_json(row: staging.SinkRow) -> dict:
    return {"sink": row.name, "number": row.sink, "runs": row.newest_run,
            "committed_batch": row.last_batch if row.last_batch >= 0 else None,
            "open_batch": row.open_batch if row.open_batch >= 0 else None}
