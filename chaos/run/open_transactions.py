"""End of the transactions of sinks that their writers left open, by the request that an operator
would use.

Contract.  ``abort_open_transactions`` aborts the open transaction of every sink, recorded in the
history, and
returns when none is open; it returns an anomaly when that takes longer than
``BOUND_S``.

Theory.  Readers of committed records stop before an open transaction, as promised, so the final
reads cannot require that they reach the end.  That a transaction can always be aborted is a promise
too.
"""

from __future__ import annotations

import trio

from chaos.checkers.verdict import Anomaly
from chaos.workloads.sinks import abort
from chaos.workloads.workload_context import WorkloadContext
from multiraft.client import Client
from multiraft.errors import MultiRaftError
from multiraft.wire.sinks import SinkList, SinkRow

BOUND_S = 60.0
RETRY_S = 0.2


async def abort_open_transactions(context: WorkloadContext) -> list[Anomaly]:
    """Abort the open transaction of every sink, asking until none is open; return an empty list
    then. Return one anomaly when that takes longer than ``BOUND_S``."""
    said = "no node answers whether there is one"
    with trio.move_on_after(BOUND_S):
        async with context.client() as client:
            while True:
                try:
                    left = await open_transactions(client)
                except MultiRaftError as error:
                    said = f"{type(error).__name__}: {error}"
                else:
                    if not left:
                        return []
                    said = "; ".join(
                        f"transaction {row.newest_transaction} of {row.name} is open"
                        for row in left
                    )
                    for row in left:
                        await abort(context, client, row.sink, row.newest_transaction)
                await trio.sleep(RETRY_S)
    return [
        Anomaly(
            "A28",
            "transaction-stays-open",
            f"no transaction should be open {BOUND_S:.0f} s after it was aborted; {said}",
            "",
            (),
            context.recorder.now_us(),
        )
    ]


async def open_transactions(client: Client) -> list[SinkRow]:
    """Return the sinks with an open transaction, as a node answers that has applied all earlier
    decisions. Raises ``MultiRaftError``."""
    await client.catch_up()
    rows, more = [], True
    while more:
        reply = await client.sink_request(SinkList(rows[-1].sink if rows else 0))
        rows += reply.sinks
        more = reply.more
    return [row for row in rows if row.open_batch >= 0]
