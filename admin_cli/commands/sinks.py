"""`multiraft sink`: sinks, their transactions, and those that writers left open.

Contract.  Only `abort` changes anything.  It can be repeated and never reverts a committed
transaction: a writer that is still alive learns of the abort at its commit, and runs its batch
again.
"""

from __future__ import annotations

import click

from admin_cli import connection
from admin_cli.commands import blocks
from admin_cli.console.command_group import HelpfulGroup
from admin_cli.console.options import TEXT, Numbers, json_option, servers_option
from admin_cli.console.output import note, print_json, print_table
from admin_cli.failures import NotFound
from admin_cli.session import Session
from admin_cli.values import quantities
from multiraft.client import staging
from multiraft.client.blocking import Wait


@click.group(cls=HelpfulGroup)
def sink() -> None:
    """Show sinks and abort their open transactions."""


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
    print_table(("sink", "committed batch", "open batch", "transactions"),
                [(row.name, _batch(row.last_batch), _batch(row.open_batch), row.newest_transaction)
                 for row in rows])


@sink.command()
@click.argument("topics", nargs=-1, type=TEXT, metavar="[TOPIC]...")
@json_option
@servers_option
@click.pass_obj
def blocked(session: Session, topics: tuple[str, ...], as_json: bool) -> None:
    """Show the positions where readers of committed records stop, and the transactions that block
    them.

    Without TOPIC: wherever open transactions have staged.  With TOPIC all of it is read, which also
    finds batches of transactions that were never opened; that takes as long as reading it.
    """
    with connection.open_session(session) as client:
        client.catch_up()
        waits = blocks.of_topics(client, topics) if topics else blocks.of_open_transactions(client)
        held = [(wait, wait.transaction) for wait in waits if wait.transaction is not None]
        descriptions = staging.describe_transactions(client, [txn for _, txn in held])
    if as_json:
        print_json({"blocked": [_block(wait, descriptions[txn]) for wait, txn in held]})
    elif held:
        print_table(
            ("topic", "partition", "offset", "end_offset", "sink", "transaction", "batch", "open"),
            [(wait.topic, wait.partition, wait.offset, wait.end_offset,
              descriptions[txn].name or None, f"{txn.sink}/{txn.number}",
              _batch(descriptions[txn].batch), _age(descriptions[txn])) for wait, txn in held])
    else:
        note("No open transaction blocks readers.")


@sink.command()
@click.argument("name", required=False, type=TEXT)
@click.option("--run", "earlier_numbers", type=Numbers(), hidden=True)  # its earlier name
@click.option("--transaction", "numbers", type=Numbers(), metavar="SINK/NUMBER",
              help="Transaction by its numbers, as `sink blocked` shows them; it may be one that "
                   "was never opened.")
@json_option
@servers_option
@click.pass_obj
def abort(session: Session, name: str | None, numbers: tuple[int, int] | None,
          earlier_numbers: tuple[int, int] | None, as_json: bool) -> None:
    """Abort the open transaction of the sink NAME, or the transaction SINK/NUMBER.

    Readers of committed records wait at the first record that an open transaction has staged; when
    its writer is gone permanently, an abort unblocks them.  A writer that is alive loses the
    transaction, not the batch.
    """
    given = [each for each in (numbers, earlier_numbers) if each is not None]
    if (name is not None) + len(given) != 1:
        raise click.UsageError("Name a sink, or a transaction with --transaction: one of them.")
    if given:
        _abort_transaction(session, given[0], as_json)
        return
    with connection.open_session(session) as client:
        client.catch_up()
        row = next((row for row in staging.sinks(client) if row.name == name), None)
        if row is None:
            raise NotFound(f"there is no sink {name!r}.", "`multiraft sink list` shows them.")
        committed = row.open_batch < 0 or staging.abort_transaction(
            client, row.sink, row.newest_transaction
        )
    if as_json:
        print_json({"sink": name, "batch": row.open_batch if row.open_batch >= 0 else None,
                    "aborted": not committed})
    elif row.open_batch < 0:
        note(f"Nothing to do: no batch of {name} is open.")
    elif committed:
        note(f"Batch {row.open_batch} of {name} was committed just now; nothing was changed.")
    else:
        note(f"Batch {row.open_batch} of {name} is aborted: readers skip its staged records.")


def _abort_transaction(session: Session, numbers: tuple[int, int], as_json: bool) -> None:
    with connection.open_session(session) as client:
        committed = staging.abort_transaction(client, *numbers)
    shown = "{}/{}".format(*numbers)
    if as_json:
        print_json({"transaction": shown, "aborted": not committed})
    elif committed:
        note(f"Transaction {shown} is committed; nothing was changed.")
    else:
        note(f"Transaction {shown} is void: readers skip records that were staged under it.")


def _block(wait: Wait, description: staging.TransactionDescription) -> dict:
    return {"topic": wait.topic, "partition": wait.partition, "offset": wait.offset,
            "end_offset": wait.end_offset, "sink": description.name or None,
            "transaction": f"{description.sink}/{description.transaction}",
            "state": description.state,
            "batch": description.batch if description.batch >= 0 else None,
            "open_ms": description.open_ms if description.open_ms >= 0 else None,
            "reason": wait.reason}


def _age(description: staging.TransactionDescription) -> str:
    return quantities.span(description.open_ms) or "-" if description.open_ms >= 0 else "-"


def _batch(number: int) -> str:
    return str(number) if number >= 0 else "-"


def _as_json(row: staging.SinkRow) -> dict:
    return {"sink": row.name, "number": row.sink, "transactions": row.newest_transaction,
            "committed_batch": row.last_batch if row.last_batch >= 0 else None,
            "open_batch": row.open_batch if row.open_batch >= 0 else None}
