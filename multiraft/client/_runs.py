"""Which staged batches count: what a client knows of the runs of sinks, and whom it asks.

Contract.  ``verdict`` says of a batch's header whether its records are committed (True), void
(False) or neither yet (None); who gets None says ``want`` and looks again after the next answer.
The driver asks ``wanted`` of any node and gives the answer to ``learn``.  What nodes call open it
asks of the metadata leader as well (``to_settle``), which tells a run that is open from one that
nobody has opened, makes the latter void, and says whose run it is.

Invariants.  What was decided of a run never changes, so it is remembered; that a run is open is
not, and is asked for again for as long as somebody wants to know.

Theory.  A run is committed by one entry of the metadata group, and each answer says how new the
metadata are that it is from; a node that has not applied them waits.  So whoever has seen one
record of a run sees all of them, whichever node it asks next.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from multiraft.client._waits import about_run
from multiraft.codec import layout
from multiraft.core import BatchHeader
from multiraft.wire import sinks
from multiraft.wire.sinks import (
    COMMITTED,
    OPEN,
    RUNS_PER_REQUEST_MAX,
    SETTLED_PER_REQUEST_MAX,
    VOID,
    RunFact,
    RunRef,
    RunStatesReply,
    SettleRunsReply,
)

#: Decided runs that are remembered: a run has at least one batch, so this is a long way to read.
DECIDED_MAX = 1 << 14
#: An open run is asked for again after this, and after longer and longer pauses up to the second.
ASK_AGAIN_MS_MIN, ASK_AGAIN_MS_MAX = 20, 500
#: The metadata leader is asked about a run that has been open for this long, and again and again:
#: most runs are decided sooner, and each question is confirmed by a majority.
SETTLE_AFTER_MS, SETTLE_AGAIN_MS = 500, 5_000
#: A question to the metadata leader that was not answered is asked again after this, so often; who
#: waits for its word, to end before an open run, goes by what any node says then.
SETTLE_RETRY_MS, SETTLE_TRIES = 500, 5

#: (sink, run, task, attempt) -> (producer id, epoch) of what is staged.
identity_of = sinks.producer_identity


def is_staged(identity: tuple[int, int] | None) -> bool:
    """Whether what is sent under this identity counts only once a ledger says so."""
    return identity is not None and (
        layout.STAGED_PRODUCER_MIN <= identity[0] <= layout.STAGED_PRODUCER_MAX)


def run_of(header: BatchHeader) -> tuple[RunRef, int, int]:
    """(run, task, attempt) of a staged batch."""
    return (sinks.run_ref(header.producer_id, header.producer_epoch),
            *sinks.task_attempt(header.producer_id))


class _Open(NamedTuple):
    """A run that is not decided, as far as nodes say."""

    due_ms: int  # when the metadata leader is asked
    fact: RunFact | None = None  # what it said last
    why: str = ""  # it did not
    settlement: int = 0  # the question that was answered last, or given up


class Runs:
    """See the module docstring."""

    def __init__(self) -> None:
        #: Attempts that count, by task, where it is not the first one; None = void.
        self._decided: dict[RunRef, dict[int, int] | None] = {}
        self._wanted: dict[RunRef, None] = {}
        self._open: dict[RunRef, _Open] = {}  # what nodes said last of runs that are wanted
        self.asking = False
        self._failures = 0
        self.ask_at_ms = 0
        self.settlements = 0  # questions to the metadata leader so far
        self.settling = False
        self._settle_failures = 0

    # ---- for readers ----

    def verdict(self, header: BatchHeader) -> bool | None:
        """Whether a staged batch counts; None = not decided, as far as this client knows."""
        run, task, attempt = run_of(header)
        if not run.sink or not run.run:
            return False  # numbers begin with 1: nobody can open it
        if run not in self._decided:
            return None
        winners = self._decided[run]
        return winners is not None and winners.get(task, 0) == attempt

    def decided(self, run: RunRef) -> bool:
        """Whether the run is committed or void."""
        return run in self._decided

    def want(self, run: RunRef, until_ms: int | None = None) -> None:
        """Somebody waits for this run's fate.  ``until_ms``: who ends before an open run asks the
        metadata leader then, at the latest."""
        if run in self._decided:
            return
        self._wanted[run] = None
        known = self._open.get(run)
        if until_ms is not None and known is not None and until_ms < known.due_ms and (
                not known.settlement and not known.why):
            self._open[run] = known._replace(due_ms=until_ms)

    def was_open(self, run: RunRef, after: int) -> bool:
        """Whether the metadata leader was asked later than the ``after``-th question and said that
        it is open; or could not be asked in time, and a node says that it is open."""
        known = self._open.get(run)
        return known is not None and known.settlement > after

    def reason(self, run: RunRef) -> str:
        """What is known of a run that is not decided."""
        known = self._open.get(run)
        return about_run(run, known.fact, known.why) if known is not None else (
            about_run(run, None, ""))

    # ---- for the driver ----

    @property
    def wants(self) -> bool:
        """Tell whether there is something to ask any node."""
        return bool(self._wanted) and not self.asking

    def wanted(self, now_ms: int) -> tuple[RunRef, ...]:
        """What to ask any node now; ``learn`` or ``lost`` ends it.  Readers that still wait want it
        again then, so nobody is asked about what nobody waits for."""
        self.asking = True
        self._failures += 1
        self.ask_at_ms = now_ms + min(ASK_AGAIN_MS_MAX, ASK_AGAIN_MS_MIN << min(
            self._failures, 10))
        asked = tuple(list(self._wanted)[:RUNS_PER_REQUEST_MAX])
        for run in asked:
            del self._wanted[run]
        return asked

    def learn(self, reply: RunStatesReply, now_ms: int) -> None:
        """An answer of any node."""
        self.asking = False
        for row in reply.runs:
            run = RunRef(row.sink, row.run)
            if row.state == OPEN:
                self._open.setdefault(run, _Open(now_ms + SETTLE_AFTER_MS))
            else:
                self._decide(run, row)

    def lost(self) -> None:
        """No answer came."""
        self.asking = False

    # ---- for the driver: the metadata leader ----

    def settle_due_ms(self) -> int | None:
        """When there is something to ask the metadata leader; None = nothing.  O(open runs that
        somebody waits for or did a while ago)."""
        if self.settling or not self._open:
            return None
        return min((known.due_ms for run, known in self._open.items() if run in self._wanted),
                   default=None)

    def to_settle(self, now_ms: int) -> tuple[RunRef, ...]:
        """What to ask the metadata leader now: runs that are open as nodes say, and that somebody
        waits for; others are forgotten.  ``settled`` or ``not_settled`` ends it."""
        self.settling = True
        self.settlements += 1
        self._open = {run: known for run, known in self._open.items()
                      if run in self._wanted or known.due_ms > now_ms}
        due = [run for run, known in self._open.items() if known.due_ms <= now_ms]
        asked = tuple(due[:SETTLED_PER_REQUEST_MAX])
        for run in asked:
            self._open[run] = self._open[run]._replace(due_ms=now_ms + SETTLE_AGAIN_MS)
        return asked

    def settled(self, reply: SettleRunsReply) -> None:
        """The metadata leader's answer."""
        self.settling, self._settle_failures = False, 0
        for row in reply.runs:
            run = RunRef(row.sink, row.run)
            if row.state in (COMMITTED, VOID):
                self._decide(run, row)
            elif run in self._open:
                self._open[run] = _Open(self._open[run].due_ms, row, "", self.settlements)

    def not_settled(self, asked: tuple[RunRef, ...], why: str, final: bool, now_ms: int) -> None:
        """The metadata leader gave no answer; ``final``: nor will it."""
        self.settling = False
        self._settle_failures += 1
        given_up = final or self._settle_failures >= SETTLE_TRIES
        for run in asked:
            known = self._open.get(run)
            if known is not None:
                self._open[run] = known._replace(
                    due_ms=now_ms + (SETTLE_AGAIN_MS if given_up else SETTLE_RETRY_MS), why=why,
                    settlement=self.settlements if given_up else known.settlement)

    def _decide(self, run: RunRef, row: Any) -> None:
        self._failures = 0
        self._open.pop(run, None)
        self._wanted.pop(run, None)
        if len(self._decided) >= DECIDED_MAX:
            del self._decided[next(iter(self._decided))]
        self._decided[run] = None if row.state == VOID else dict(row.winners)
