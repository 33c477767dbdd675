"""Transactional stream writes (``mode=transactional``): each batch becomes visible atomically.

Contract.  Readers of committed rows see a row of a batch if and only if the batch is committed, and
then once, however often Spark runs the batch and whichever processes die in between.  A repeated
batch may have its rows in another order, or other rows: the rows of one transaction of the batch
count, and of each of its tasks those of one attempt.

Theory.  The ledger of the cluster's metadata (``multiraft.client.staging``) keeps the last
committed batch of each sink.  Tasks open a transaction of the batch, with a nonce that the driver
gave to their writer, and stage their rows under it; ``commit`` is one entry of the ledger.  Spark
does not tell a Python task which attempt of its stage it belongs to, so Spark's attempt numbers may
occur twice in a transaction: each attempt asks the ledger for one.  Spark runs a batch again, with
the same number, until the commit is in its own log:

- killed before the commit was applied, the next execution opens a new transaction, which makes this
  one void; records that a late task of it stages, and its commit, change nothing;
- killed afterwards, the tasks of the next execution learn that the batch is committed and stage
  nothing;
- ``abort`` aborts a transaction unless it is committed: Spark calls it also for a committed one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from pyspark.sql.datasource import WriterCommitMessage

from multiraft.client import staging
from multiraft.client.blocking import Client
from multiraft.wire.errors import LimitExceeded, StaleTransaction
from pyspark_multiraft import planning
from pyspark_multiraft.failures import SourceError, explained
from pyspark_multiraft.options import WriteOptions


class Staged(WriterCommitMessage):
    """Result of a task: its transaction and attempt; ``committed``: the batch was committed
    before."""

    def __init__(self, txn: staging.Transaction, records: int):
        self.sink = txn.sink
        self.transaction = txn.number
        self.task = txn.task
        self.attempt = txn.attempt
        self.committed = txn.committed
        self.records = records


def sink_name(sink_id: str, query: str) -> str:
    """Return the sink of a query.  Its id comes from the checkpoint: with another checkpoint it is
    another query, whose batches count from 0, and must not be taken for repetitions."""
    return "/".join(part for part in (sink_id, query) if part)


def begin_transaction(
    client: Client, sink: str, batch: int, nonce: bytes, task: int
) -> staging.Transaction:
    """Open the sink's transaction of ``batch`` or join it, as an attempt of ``task`` of its own. If
    the batch is committed already, the result says so. Raises ``SourceError`` when the ledger
    refuses."""
    with _ledger(f"{sink!r}"):
        return staging.begin_transaction(client, sink, batch, nonce, task)


def stages_in(client: Client, txn: staging.Transaction, topic: str) -> None:
    """Register ``topic`` with the ledger, before the transaction's first row in it; not again
    later. Raises ``SourceError`` when the ledger refuses."""
    with _ledger(f"number {txn.sink}"):
        txn.stages_in(client, topic)


def commit(options: WriteOptions, messages: Sequence[WriterCommitMessage | None],
           batch: int) -> None:
    """Commit the transaction of these tasks; nothing if the batch was committed before. Raises
    ``SourceError`` when another transaction has replaced it, or a task sent no message."""
    done = [message for message in messages if isinstance(message, Staged)]
    txns = {(message.sink, message.transaction) for message in done}
    if len(done) != len(messages) or len(txns) > 1:
        raise SourceError(f"batch {batch} was written by tasks of {len(txns)} transactions, and "
                          f"{len(messages) - len(done)} tasks sent no message. Nothing of it is "
                          "visible; start the query again.")
    if not done or all(message.committed for message in done):
        return
    [(sink, txn)] = txns
    with explained(options.connection.servers), planning.open_client(options.connection) as client:
        with _ledger(f"number {sink}"):
            staging.commit_transaction(client, sink, txn, batch,
                               {message.task: message.attempt for message in done})


def abort(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Abort the transaction of these tasks, unless it is committed.  A transaction of which no task
    has ended is unknown here: the next transaction of the sink makes it void."""
    txns = {(message.sink, message.transaction) for message in messages
            if isinstance(message, Staged) and not message.committed}
    if not txns:
        return
    with explained(options.connection.servers), planning.open_client(options.connection) as client:
        for sink, txn in sorted(txns):
            staging.abort_transaction(client, sink, txn)


@contextlib.contextmanager
def _ledger(sink: str) -> Iterator[None]:
    """Turn the ledger's refusals into sentences with a remedy."""
    try:
        yield
    except StaleTransaction as error:
        raise SourceError(f"sink {sink}: {error}. If the query was started again, this is its "
                          "former execution, and nothing of that is visible. If its checkpoint was "
                          "put back to an older state, begin with a new one.") from None
    except LimitExceeded as error:
        raise SourceError(f"sink {sink}: {error}. Begin with a new checkpoint, or write to fewer "
                          "topics.") from None
