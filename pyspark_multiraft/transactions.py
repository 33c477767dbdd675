"""Stream writes whose batches become visible at once: ``mode=transactional``.

Contract.  A row of a batch is seen by readers of committed rows when and only when the batch is,
and then once, however often Spark runs the batch and whatever dies in between.  Rows need not come
again in the same order, nor be the same: the rows of one run count, and of each of its tasks those
of one attempt.

Theory.  The ledger of the cluster's metadata (``multiraft.client.staging``) knows of each sink its
last committed batch.  Tasks open a run of the batch, with a nonce that their writer was made with
on the driver, and stage their rows under it; ``commit`` is one entry of the ledger.  Spark does not
tell a Python task which attempt of its stage it belongs to, so its numbers of attempts may come
twice in a run: each attempt asks the ledger for one.  Spark runs a batch again, with the same
number, until the commit is in its own log:

- killed before the commit was taken, the next run opens a new one, which makes this one void; what
  a late task of it stages, and its commit, change nothing;
- killed afterwards, the next run's tasks hear that the batch is committed and stage nothing;
- ``abort`` gives a run up unless it is committed: Spark calls it also for one that is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from pyspark.sql.datasource import WriterCommitMessage

from multiraft.client import staging
from multiraft.client.blocking import Client
from multiraft.wire.errors import LimitExceeded, StaleRun
from pyspark_multiraft import planning
from pyspark_multiraft.failures import SourceError, explained
from pyspark_multiraft.options import WriteOptions


class Staged(WriterCommitMessage):
    """What a task has staged, and in which run; ``committed``: its batch was committed before."""

    def __init__(self, run: staging.Run, records: int):
        self.sink = run.sink
        self.run = run.number
        self.task = run.task
        self.attempt = run.attempt
        self.committed = run.committed
        self.records = records


def sink_name(sink_id: str, query: str) -> str:
    """The sink of a query.  Its id is that of its checkpoint: with another one it is another query,
    whose batches count from 0, and must not be taken for repetitions."""
    return "/".join(part for part in (sink_id, query) if part)


def open_run(client: Client, sink: str, batch: int, nonce: bytes, task: int) -> staging.Run:
    """The run that a task stages in, as an attempt of its own.  Raises ``SourceError`` when it may
    not."""
    with _ledger(f"{sink!r}"):
        return staging.open_run(client, sink, batch, nonce, task)


def stages_in(client: Client, run: staging.Run, topic: str) -> None:
    """Name a topic to the ledger before the first row.  Raises ``SourceError``."""
    with _ledger(f"number {run.sink}"):
        run.stages_in(client, topic)


def commit(options: WriteOptions, messages: Sequence[WriterCommitMessage | None],
           batch: int) -> None:
    """Commit the run of these tasks.  Raises ``SourceError`` when another one has taken over."""
    done = [message for message in messages if isinstance(message, Staged)]
    runs = {(message.sink, message.run) for message in done}
    if len(done) != len(messages) or len(runs) > 1:
        raise SourceError(f"batch {batch} was written by tasks of {len(runs)} runs, and "
                          f"{len(messages) - len(done)} tasks said nothing. Nothing of it is "
                          "visible; start the query again.")
    if not done or all(message.committed for message in done):
        return
    [(sink, run)] = runs
    with explained(options.connection.servers), planning.open_client(options.connection) as client:
        with _ledger(f"number {sink}"):
            staging.commit_run(client, sink, run, batch,
                               {message.task: message.attempt for message in done})


def abort(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Give up what the tasks have staged, unless it is committed.  A run of which no task has ended
    is not known here: the next one of the sink makes it void."""
    runs = {(message.sink, message.run) for message in messages
            if isinstance(message, Staged) and not message.committed}
    if not runs:
        return
    with explained(options.connection.servers), planning.open_client(options.connection) as client:
        for sink, run in sorted(runs):
            staging.abort_run(client, sink, run)


@contextlib.contextmanager
def _ledger(sink: str) -> Iterator[None]:
    """What the ledger refuses, as what to do about it."""
    try:
        yield
    except StaleRun as error:
        raise SourceError(f"sink {sink}: {error}. If the query was started again, this is its "
                          "former run, and nothing of that is visible. If its checkpoint was put "
                          "back to an older state, begin with a new one.") from None
    except LimitExceeded as error:
        raise SourceError(f"sink {sink}: {error}. Begin with a new checkpoint, or write to fewer "
                          "topics.") from None
