"""Which staged batches count: what a client knows of the runs of sinks, and whom it asks.

Contract.  ``verdict`` says of a batch's header whether its records are committed (True), void
(False) or neither yet (None); who gets None says ``want`` and looks again after the next answer.
The driver asks ``wanted`` of any node and gives the answer to ``learn``.

Invariants.  What was decided of a run never changes, so it is remembered; that a run is open is
not, and is asked for again for as long as somebody wants to know.

Theory.  A run is committed by one entry of the metadata group, and each answer says how new the
metadata are that it is from; a node that has not applied them waits.  So whoever has seen one
record of a run sees all of them, whichever node it asks next.
"""

from __future__ import annotations

from multiraft import _layout as layout
from multiraft.core import BatchHeader
from multiraft.wire import sinks
from multiraft.wire.sinks import OPEN, RUNS_PER_REQUEST_MAX, VOID, RunRef, RunStatesReply

#: Decided runs that are remembered: a run has at least one batch, so this is a long way to read.
DECIDED_MAX = 1 << 14
#: An open run is asked for again after this, and after longer and longer pauses up to the second.
ASK_AGAIN_MS_MIN, ASK_AGAIN_MS_MAX = 20, 500

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


class Runs:
    """See the module docstring."""

    def __init__(self):
        #: Attempts that count, by task, where it is not the first one; None = void.
        self._decided: dict[RunRef, dict[int, int] | None] = {}
        self._wanted: dict[RunRef, None] = {}
        self._open_at: dict[RunRef, int] = {}  # run -> number of the answer that said OPEN last
        self.questions = 0  # asked so far
        self.asking = False
        self._failures = 0
        self.ask_at_ms = 0

    # ---- for readers ----

    def verdict(self, header: BatchHeader) -> bool | None:
        """Whether a staged batch counts; None = not decided, as far as this client knows."""
        run, task, attempt = run_of(header)
        if run not in self._decided:
            return None
        winners = self._decided[run]
        return winners is not None and winners.get(task, 0) == attempt

    def decided(self, run: RunRef) -> bool:
        """Whether the run is committed or void."""
        return run in self._decided

    def want(self, run: RunRef) -> None:
        """Somebody waits for this run's fate."""
        if run not in self._decided:
            self._wanted[run] = None

    def was_open(self, run: RunRef, after: int) -> bool:
        """Whether an answer to a question later than the ``after``-th said that it is open."""
        return self._open_at.get(run, 0) > after

    # ---- for the driver ----

    @property
    def wants(self) -> bool:
        """Whether there is something to ask."""
        return bool(self._wanted) and not self.asking

    def wanted(self, now_ms: int) -> tuple[RunRef, ...]:
        """What to ask now; ``learn`` or ``lost`` ends it.  Readers that still wait want it again
        then, so nobody is asked about what nobody waits for."""
        self.asking = True
        self.questions += 1
        self._failures += 1
        self.ask_at_ms = now_ms + min(ASK_AGAIN_MS_MAX, ASK_AGAIN_MS_MIN << min(
            self._failures, 10))
        asked = tuple(list(self._wanted)[:RUNS_PER_REQUEST_MAX])
        self._wanted.clear()
        return asked

    def learn(self, reply: RunStatesReply) -> None:
        """An answer."""
        self.asking = False
        self._open_at.clear()
        for row in reply.runs:
            run = RunRef(row.sink, row.run)
            if row.state == OPEN:
                self._open_at[run] = self.questions
                continue
            self._failures = 0
            if len(self._decided) >= DECIDED_MAX:
                del self._decided[next(iter(self._decided))]
            self._decided[run] = None if row.state == VOID else dict(row.winners)

    def lost(self) -> None:
        """No answer came."""
        self.asking = False
