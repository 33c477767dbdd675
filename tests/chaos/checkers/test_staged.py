"""Records staged in transactions of sinks: A2, A4, A5, A6, A23 and A26 of readers of committed
records.
"""

from __future__ import annotations

import pytest

from chaos.history import FINAL
from tests.chaos.checkers.timeline import KEY, OTHER, Timeline

SINK = 1


class Sinks(Timeline):
    """Operations of one sink and its readers; transaction 1 is of batch 0 unless given."""

    def opens(self, txn: int = 1, batch: int = 0, task: int = 0, attempt: int = 0,
              attempt_id: int | None = None, nonce: str = "") -> None:
        """Open the transaction, or join it, by a task."""
        operation = self.invoke(
            "begin_transaction",
            sink="s",
            batch=batch,
            nonce=nonce or f"nonce-{txn}",
            task=task,
            topics=[],
            attempt_id=txn * 100 + task * 10 + attempt if attempt_id is None else attempt_id,
        )
        self.ok(operation, sink=SINK, transaction=txn, state="open", attempt=attempt)

    def hears_of(self, txn: int, batch: int = 0) -> None:
        """Open the batch again; the answer is that this transaction has committed it."""
        operation = self.invoke("begin_transaction", sink="s", batch=batch, nonce="another", task=0,
                                topics=[], attempt_id=999)
        self.ok(operation, sink=SINK, transaction=txn, state="committed", attempt=0)

    def stages(self, values, offset: int, txn: int = 1, task: int = 0, attempt: int = 0,
               key: str = KEY) -> None:
        """Append records in a transaction; they are acknowledged."""
        operation = self.invoke(
            "append",
            key=key,
            values=list(values),
            acks="commit",
            producer=-1,
            epoch=-1,
            sequence=-1,
            sink=SINK,
            transaction=txn,
            task=task,
            attempt=attempt,
        )
        self.ok(operation, offset=offset)

    def commit(self, txn: int = 1, batch: int = 0, winners=((0, 0),)) -> int:
        """Request the commit."""
        return self.invoke("commit_transaction", sink=SINK, transaction=txn, batch=batch,
                           winners=[list(winner) for winner in winners])

    def commits(self, txn: int = 1, batch: int = 0, winners=((0, 0),)) -> None:
        """Request the commit; it is acknowledged."""
        self.ok(self.commit(txn, batch, winners))

    def aborts(self, txn: int = 1, committed: bool = False) -> None:
        """Abort a transaction, unless it was committed."""
        self.ok(self.invoke("abort_transaction", sink=SINK, transaction=txn), committed=committed)

    def is_given(self, runs: list, reached: int | None = None, at: int = 0, key: str = KEY,
                 final: bool = False, process: int = 8) -> None:
        """Return records to a reader of committed records that continues from ``at``."""
        more = {"final": True} if final else {}
        operation = self.invoke("poll_committed", process, positions={key: at}, **more)
        end = max([at, *(base + len(values) for base, values in runs)])
        self.ok(operation, runs={key: runs}, reached={key: end if reached is None else reached})

    def stored(self, values, key: str = KEY) -> None:
        """Add final reads, which do not know of transactions, with these values."""
        self.finale(values, key=key)


@pytest.fixture
def line() -> Sinks:
    return Sinks()


def staged(line: Sinks) -> Sinks:
    """Return a history of a transaction with two tasks in two partitions, not decided yet."""
    line.opens(task=0)
    line.opens(task=1)
    line.stages([1, 2], 0, task=0)
    line.stages([3], 0, task=1, key=OTHER)
    return line


BOTH = ((0, 0), (1, 0))


def test_a_transaction_that_is_committed_and_given_is_fine(line):
    staged(line).commits(winners=BOTH)
    line.is_given([[0, [1, 2]]])
    line.is_given([[0, [3]]], key=OTHER)
    line.stored([1, 2])
    line.stored([3], key=OTHER)
    assert line.ids() == set()
    assert (
        line.check().checked["transactions_committed"]
        == line.check().checked["transactions_given"]
        == 1
    )


# ---- before it is committed ---------------------------------------------------------------------


def test_a_record_that_is_given_before_anybody_asked_for_the_commit(line):
    staged(line).is_given([[0, [1, 2]]])
    line.commits(winners=BOTH)
    line.stored([1, 2])
    line.stored([3], key=OTHER)
    assert line.ids() == {"A5"}


@pytest.mark.parametrize("answered", [False, True])
def test_a_commit_that_was_asked_for_may_have_been_taken(line, answered):
    commit = staged(line).commit(winners=BOTH)
    if answered:
        line.info(commit)
    line.is_given([[0, [1, 2]]])
    line.stored([1, 2])
    line.stored([3], key=OTHER)
    assert line.ids() == set()


# ---- what never counts --------------------------------------------------------------------------


def test_a_record_of_a_transaction_that_was_aborted(line):
    commit = staged(line).commit(winners=BOTH)
    line.info(commit)
    line.aborts()
    line.is_given([[0, [1, 2]]])
    line.stored([1, 2])
    line.stored([3], key=OTHER)
    assert line.ids() == {"A4"}


def test_a_record_that_was_given_before_the_transaction_was_known_as_void(line):
    commit = staged(line).commit(winners=BOTH)
    line.is_given([[0, [1, 2]]])
    line.fail(commit, "StaleTransaction")
    line.stored([1, 2])
    line.stored([3], key=OTHER)
    assert line.ids() == {"A4"}


def test_a_transaction_that_was_aborted_is_left_out(line):
    staged(line).aborts()
    line.is_given([], reached=2)
    line.is_given([], reached=2, final=True)
    line.stored([1, 2])
    line.stored([3], key=OTHER)
    assert line.ids() == set()


def test_a_record_of_a_transaction_that_was_replaced(line):
    staged(line).opens(txn=2)
    line.is_given([[0, [1, 2]]])
    line.stored([1, 2])
    line.stored([3], key=OTHER)
    assert line.ids() == {"A4", "A5"}


@pytest.mark.parametrize("known_by", ["reader", "ledger"])
def test_a_commit_that_was_refused_for_certain_was_taken(line, known_by):
    commit = staged(line).commit(winners=BOTH)
    line.fail(commit, "NotLeader")
    if known_by == "reader":
        line.is_given([[0, [1, 2]]])
    else:
        line.hears_of(1)
    line.stored([1, 2])
    line.stored([3], key=OTHER)
    assert line.ids() == {"A4"}


@pytest.mark.parametrize("again", ["ok", "info", "never"])
def test_a_refusal_of_one_question_says_nothing_of_another(line, again):
    line.fail(staged(line).commit(winners=BOTH), "NotLeader")
    commit = line.commit(winners=BOTH)
    if again == "ok":
        line.ok(commit)
    elif again == "info":
        line.info(commit)
    line.is_given([[0, [1, 2]]])
    line.stored([1, 2])
    line.stored([3], key=OTHER)
    assert line.ids() == set()


def test_a_refusal_that_is_not_of_the_ledger_does_not_make_a_transaction_void(line):
    commit, _ = staged(line).commit(winners=BOTH), line.aborts(committed=True)
    line.fail(line.commit(winners=BOTH), "NotLeader")
    line.ok(commit)
    line.stored([1, 2])
    line.stored([3], key=OTHER)
    assert line.ids() == set()


def test_a_commit_that_is_repeated_behind_a_later_batch_is_refused_and_was_taken(line):
    commit = staged(line).commit(winners=BOTH)
    line.info(commit)
    line.opens(txn=2, batch=1)
    line.commits(txn=2, batch=1)
    line.fail(line.commit(winners=BOTH), "StaleTransaction")
    line.is_given([[0, [1, 2]]])
    line.stored([1, 2])
    line.stored([3], key=OTHER)
    assert line.ids() == set()


def test_a_record_of_an_attempt_that_does_not_count(line):
    line.opens()
    line.opens(attempt=1)
    line.stages([1], 0)
    line.stages([2], 1, attempt=1)
    line.commits(winners=((0, 1),))
    line.is_given([[0, [1]]])
    line.stored([1, 2])
    assert line.ids() == {"A4"}


def test_an_attempt_that_does_not_count_is_left_out(line):
    line.opens()
    line.opens(attempt=1)
    line.stages([1], 0)
    line.stages([2], 1, attempt=1)
    line.commits(winners=((0, 1),))
    line.is_given([[1, [2]]])
    line.stored([1, 2])
    assert line.ids() == set()


# ---- as a whole ----------------------------------------------------------------------------------


def test_a_reader_that_goes_past_a_record_of_a_committed_transaction(line):
    staged(line).commits(winners=BOTH)
    line.appended([4], 2)
    line.is_given([[2, [4]]])
    line.stored([1, 2, 4])
    line.stored([3], key=OTHER)
    assert line.ids() == {"A26"}


def test_a_reader_that_is_given_a_part_of_a_transaction_and_goes_past_the_rest(line):
    """The outcome of the commit is unknown, but a reader that was given a record proves it."""
    line.info(staged(line).commit(winners=BOTH))
    line.is_given([[0, [3]]], key=OTHER)
    line.is_given([], reached=2)
    line.stored([1, 2])
    line.stored([3], key=OTHER)
    assert line.ids() == {"A26"}


def test_a_reader_that_stops_before_the_rest_of_a_transaction_says_nothing_of_it(line):
    staged(line).commits(winners=BOTH)
    line.is_given([[0, [3]]], key=OTHER)
    line.is_given([])
    line.stored([1, 2])
    line.stored([3], key=OTHER)
    assert line.ids() == set()


def test_a_record_that_nobody_staged_is_not_left_out_either(line):
    line.appended([1], 0)
    line.appended([2], 1)
    line.is_given([[1, [2]]])
    line.stored([1, 2])
    assert line.ids() == {"A26"}


def test_what_only_the_final_reads_show_was_left_out_as_well(line):
    """A record whose append has no answer, of a transaction that is committed."""
    line.opens()
    line.info(line.invoke("append", key=KEY, values=[1], acks="commit", producer=-1, epoch=-1,
                          sequence=-1, sink=SINK, transaction=1, task=0, attempt=0))
    line.commits()
    line.is_given([], reached=1)
    line.stored([1])
    assert line.ids() == {"A26"}


def test_a_committed_transaction_that_the_final_reads_do_not_give(line):
    staged(line).commits(winners=BOTH)
    line.phase(FINAL)
    line.stored([1, 2])
    line.stored([3], key=OTHER)
    line.is_given([[0, [1, 2]]], final=True)
    line.is_given([], reached=1, final=True, key=OTHER)
    assert line.ids() == {"A6"}


def test_final_reads_that_give_all_of_it_are_fine(line):
    staged(line).commits(winners=BOTH)
    line.phase(FINAL)
    line.stored([1, 2])
    line.stored([3], key=OTHER)
    line.is_given([[0, [1, 2]]], final=True)
    line.is_given([[0, [3]]], final=True, key=OTHER)
    assert line.ids() == set()


# ---- once ----------------------------------------------------------------------------------------


def test_two_transactions_of_one_batch_are_given(line):
    line.opens()
    line.stages([1], 0)
    line.info(line.commit())
    line.opens(txn=2)
    line.stages([2], 1, txn=2)
    line.info(line.commit(txn=2))
    line.is_given([[0, [1, 2]]])
    line.stored([1, 2])
    assert line.ids() == {"A2"}


def test_one_transaction_of_each_batch_is_given(line):
    line.opens()
    line.stages([1], 0)
    line.commits()
    line.opens(txn=2, batch=1)
    line.stages([2], 1, txn=2)
    line.commits(txn=2, batch=1)
    line.is_given([[0, [1, 2]]])
    line.stored([1, 2])
    assert line.ids() == set()


def test_two_attempts_of_one_task_are_given(line):
    """One of the two does not count, whichever it is."""
    line.opens()
    line.opens(attempt=1)
    line.stages([1], 0)
    line.stages([2], 1, attempt=1)
    line.commits()
    line.is_given([[0, [1, 2]]])
    line.stored([1, 2])
    assert line.ids() == {"A2", "A4"}


@pytest.mark.parametrize("runs", [[[0, [1, 2]]], [[2, [4]], [1, [2]]]])
def test_a_reader_is_given_what_is_below_its_position(line, runs):
    staged(line).commits(winners=BOTH)
    line.appended([4], 2)
    line.is_given(runs, at=1 if len(runs) == 1 else 2)
    line.stored([1, 2, 4])
    line.stored([3], key=OTHER)
    assert line.ids() == {"A2"}


# ---- what a ledger may not say -------------------------------------------------------------------


def test_a_commit_of_a_transaction_that_was_replaced_is_taken(line):
    staged(line).opens(txn=2)
    line.commits(winners=BOTH)
    line.stored([1, 2])
    line.stored([3], key=OTHER)
    assert line.ids() == {"A23"}


def test_a_commit_that_was_asked_for_before_the_transaction_was_replaced_may_be_taken(line):
    line.info(staged(line).commit(winners=BOTH))
    line.opens(txn=2, batch=1)
    line.hears_of(1)
    line.stored([1, 2])
    line.stored([3], key=OTHER)
    assert line.ids() == set()


def test_two_transactions_of_one_batch_are_committed(line):
    line.opens()
    line.info(line.commit())
    line.opens(txn=2)
    line.commits(txn=2)
    line.hears_of(1)
    assert line.ids() == {"A23"}


def test_a_transaction_is_said_to_be_committed_before_anybody_asked_for_it(line):
    staged(line).aborts(committed=True)
    line.stored([1, 2])
    line.stored([3], key=OTHER)
    assert line.ids() == {"A23"}


def test_an_abort_of_what_is_committed_says_so(line):
    staged(line).commits(winners=BOTH)
    line.aborts(committed=True)
    line.stored([1, 2])
    line.stored([3], key=OTHER)
    assert line.ids() == set()


def test_two_attempts_with_one_number(line):
    line.opens(attempt_id=5)
    line.opens(attempt_id=6)
    assert line.ids() == {"A23"}


def test_an_attempt_that_asks_again_has_its_number_still(line):
    line.opens(attempt_id=5)
    line.opens(attempt_id=5)
    assert line.ids() == set()


def test_two_transactions_with_one_number(line):
    line.opens(nonce="a")
    line.opens(nonce="b", task=1)
    assert line.ids() == {"A23"}
