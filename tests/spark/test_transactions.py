"""``mode=transactional``: SIGKILL at every step of the commit protocol, and the rows that readers
see.

The promise: a reader of committed rows sees each row of a committed batch exactly once, and no row
of a batch that is not committed.
"""

from __future__ import annotations

import itertools
import multiprocessing
import pickle
import signal
from collections import Counter

import pytest

pytest.importorskip("pyspark", reason="needs the extra 'spark': pip install 'multiraft[spark]'")

from multiraft.client import staging  # noqa: E402
from multiraft.client.blocking import Record  # noqa: E402
from multiraft.wire.sinks import OPEN, BeginTransaction, BeginTransactionReply  # noqa: E402
from pyspark_multiraft import transactions  # noqa: E402
from pyspark_multiraft.failures import OptionError, SourceError  # noqa: E402
from pyspark_multiraft.options import parse_write  # noqa: E402
from pyspark_multiraft.writing import MultiRaftWriter  # noqa: E402
from tests.spark import transactional_driver as driver  # noqa: E402

#: Every step after which the process may die, in order; after "taken CommitTransaction" the commit
#: has taken effect and the driver has no answer, after "commit" the sink knows and Spark does not.
BEFORE = [
    "before BeginTransaction",
    "taken BeginTransaction",
    "part 1",
    "part 2",
    "part 3",
    "before CommitTransaction",
]
AFTER = ["taken CommitTransaction", "commit"]

_numbers = itertools.count()


@pytest.fixture(scope="module")
def processes():
    """Return processes that start with everything imported."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([driver.__name__])
    return context


class Bench:
    """One topic, one sink, and Spark."""

    def __init__(self, world, processes, directory):
        self._processes = processes
        name = f"rows-{next(_numbers)}"
        self.client = world.client()
        self.client.create_topic(name, 2)
        self.job = driver.Job(",".join(world.addresses), name, f"sink of {name}", 0, directory)

    def next_batch(self) -> None:
        self.job = self.job._replace(batch=self.job.batch + 1)

    def spawn(self, target, *args) -> int:
        """Run ``target`` in a process and return its exit code."""
        process = self._processes.Process(target=target, args=args)
        process.start()
        process.join()
        return process.exitcode

    def killed(self, step: str) -> None:
        assert self.spawn(driver.run_batch, self.job, step) == -signal.SIGKILL, step

    def ends(self) -> None:
        """Run the batch again, or for the first time, until it is in Spark's log."""
        assert self.spawn(driver.run_batch, self.job) == 0
        assert self.job.log.exists()

    def seen(self, **settings) -> Counter:
        """Return the rows that a new reader finds."""
        return Counter(record.value for batch in
                       self.client.consume(self.job.topic, until_end=True, **settings)
                       for record in batch.records())

    def expect(self, *batches: int) -> None:
        """Check for exactly these batches, every row once."""
        assert self.seen() == Counter(value for batch in batches
                                      for value in driver.values(batch))


@pytest.fixture
def bench(world, processes, tmp_path):
    made = Bench(world, processes, tmp_path)
    with made.client:
        yield made


@pytest.mark.parametrize("step", BEFORE + AFTER)
def test_a_batch_survives_a_kill_behind_each_step(bench, step):
    bench.ends()
    for aborted in (False, True):
        bench.next_batch()
        done = range(bench.job.batch)
        bench.killed(step)
        visible = (*done, bench.job.batch) if step in AFTER else done
        bench.expect(*visible)
        if aborted:
            assert bench.spawn(driver.abort, bench.job) == 0
            bench.expect(*visible)
        bench.ends()
        bench.expect(*done, bench.job.batch)


def test_kill_after_kill_leaves_nothing_of_any_transaction(bench):
    for step in ("part 1", "part 3", "before CommitTransaction"):
        bench.killed(step)
    bench.killed("taken CommitTransaction")
    bench.expect(0)
    bench.ends()
    bench.expect(0)
    dirty = bench.seen(isolation="read_uncommitted")
    assert sum(dirty.values()) > len(driver.values(0)), "something was staged in vain"
    [row] = [row for row in staging.sinks(bench.client) if row.name == bench.job.sink]
    assert (row.last_batch, row.last_transaction, row.newest_transaction, row.open_batch) == (
        0,
        4,
        4,
        -1,
    )


@pytest.mark.parametrize("step", ["taken BeginTransaction", "part 1", "part 2"])
def test_a_task_that_is_killed_is_run_again_by_another_attempt(bench, step):
    """The driver survives: the transaction is the same, and only the second attempt of the task
    counts."""
    writer = bench.job.writer()
    assert bench.spawn(driver.run_task, bench.job, 0, writer._nonce, step) == -signal.SIGKILL
    for task in range(driver.TASKS):
        assert bench.spawn(driver.run_task, bench.job, task, writer._nonce) == 0
    bench.expect()
    messages = pickle.loads(bench.job.messages.read_bytes())
    assert [message.attempt for message in messages] == [1, 0, 0]
    writer.commit(messages, 0)
    bench.expect(0)


def test_a_late_task_of_a_transaction_that_was_given_up_changes_nothing(bench):
    """The task opened its transaction, slept, and wakes when another one commits the batch."""
    sleeper = staging.begin_transaction(bench.client, bench.job.sink, 0, bytes(16), task=7)
    sleeper.stages_in(bench.client, bench.job.topic)
    bench.ends()
    with bench.client.producer(identity=sleeper.identity) as producer:
        with pytest.raises(staging.StaleTransaction, match="takes no more batches"):
            producer.send(Record(bench.job.topic, b"late", partition=0)).wait()
    with pytest.raises(staging.StaleTransaction):
        staging.commit_transaction(bench.client, sleeper.sink, sleeper.number, 0)
    bench.expect(0)
    assert bench.seen(isolation="read_uncommitted")[b"late"] == 0
    bench.next_batch()
    bench.ends()
    with pytest.raises(SourceError, match="put back to an older state"):
        transactions.begin_transaction(bench.client, bench.job.sink, 0, bytes(16), 0)


def test_whoever_has_seen_a_row_sees_the_whole_batch(bench):
    """A reader that was connected all the time."""
    tail = iter(bench.client.consume(bench.job.topic, wait_max_ms=50))
    got: Counter = Counter()
    for _ in range(3):
        bench.killed("part 3")
        bench.ends()
        wanted = driver.values(bench.job.batch)
        while not wanted <= got.keys():
            got.update(record.value for record in next(tail).records())
            bench.expect(*range(bench.job.batch + 1))
        bench.next_batch()
    assert set(got.values()) == {1}


def test_a_restart_of_the_node_forgets_nothing(world, bench):
    bench.killed("part 3")
    bench.next_batch()
    world.kill(1)
    world.dev.start(1)
    bench.expect()
    bench.ends()
    bench.expect(1)


def test_what_cannot_be_is_said():
    options = parse_write({"servers": "h:1", "topic": "t", "mode": "transactional"})
    with pytest.raises(OptionError, match="mode=transactional is for streams"):
        MultiRaftWriter(options, driver.StructType().add("value", "binary"), False)
    mixed = [
        transactions.Staged(
            staging.Transaction(
                BeginTransaction("s", 0, bytes(16)), BeginTransactionReply(1, number, OPEN)
            ),
            1,
        )
        for number in (1, 2)
    ]
    for messages in (mixed, [*mixed[:1], None]):
        with pytest.raises(SourceError, match="Nothing of it is visible"):
            transactions.commit(options, messages, 0)
    assert transactions.sink_name("", "q") == "q" and transactions.sink_name("s", "q") == "s/q"
    transactions.commit(options, [], 0)
    transactions.abort(options, [None])
