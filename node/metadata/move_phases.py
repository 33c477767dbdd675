"""The phases of a move, and which may follow which.

    leader transfer   PENDING -> TRANSFERRING -> DONE
    topic switch      PENDING -> SWITCHING -> DONE             no way back once it is decided;
                                                               left out if it never is
    replica change    PENDING -> LEARNING -> JOINT -> GRACE -> DONE
                                    |   before JOINT the learners are removed again (UNDOING),
                                    v   after it there is only the way forward
                                 UNDOING -> CANCELLED | FAILED | PENDING (another attempt)

A move may also end SKIPPED (what it was planned for is not so any more) or FAILED, and is CANCELLED
while it is PENDING.  LEARNING stands for "learner added" and "catching up", JOINT for "joint
entered", "joint left" and the transfer before it: which of them it is shows in the group's own
configuration, and nobody has to be told.

Contract.  A phase is written down *before* anything is done in it, so whoever takes over knows what
may have been begun.  ``after`` says whether a step is news, old, or impossible.
"""

from __future__ import annotations

import enum

from multiraft.wire.plans import LEADER_TRANSFER, REPLICA_CHANGE, TOPIC_SWITCH


class Phase(enum.IntEnum):
    """Where a move is."""

    PENDING = 0
    TRANSFERRING = 1
    SWITCHING = 2
    LEARNING = 3
    JOINT = 4
    GRACE = 5
    UNDOING = 6
    DONE = 7
    SKIPPED = 8
    FAILED = 9
    CANCELLED = 10


PHASE_MAX = int(max(Phase))

#: A move that has ended.
TERMINAL = (Phase.DONE, Phase.SKIPPED, Phase.FAILED, Phase.CANCELLED)

#: Attempts of one move before it has failed.
ATTEMPTS_MAX = 5

#: The first phase of each kind of move.
FIRST = {LEADER_TRANSFER: Phase.TRANSFERRING, TOPIC_SWITCH: Phase.SWITCHING,
         REPLICA_CHANGE: Phase.LEARNING}

_P = Phase
_ENDS = (_P.DONE, _P.SKIPPED, _P.FAILED)
#: kind -> phase -> those that may follow within one attempt.
FOLLOWING: dict[str, dict[Phase, tuple[Phase, ...]]] = {
    LEADER_TRANSFER: {_P.PENDING: (_P.TRANSFERRING, *_ENDS),
                      _P.TRANSFERRING: (*_ENDS, _P.CANCELLED)},
    TOPIC_SWITCH: {_P.PENDING: (_P.SWITCHING, *_ENDS), _P.SWITCHING: _ENDS},
    REPLICA_CHANGE: {_P.PENDING: (_P.LEARNING, *_ENDS),
                     _P.LEARNING: (_P.JOINT, _P.UNDOING, _P.GRACE, *_ENDS),
                     _P.UNDOING: (_P.CANCELLED, _P.FAILED, _P.SKIPPED, _P.DONE),
                     _P.JOINT: (_P.GRACE, _P.DONE, _P.FAILED),
                     _P.GRACE: (_P.DONE,)},
}

#: Phases from which the next attempt may begin.
RETRIED = (_P.UNDOING, _P.TRANSFERRING)


class Step(enum.Enum):
    """What a step is to a move."""

    NEWS = "news"
    OLD = "old"  # it has happened, or was overtaken
    IMPOSSIBLE = "impossible"


def after(kind: str, phase: Phase, attempt: int, new_phase: Phase, new_attempt: int) -> Step:
    """Judge a step from where the move is.  O(1)."""
    if (new_attempt, new_phase) == (attempt, phase) or new_attempt < attempt or phase in TERMINAL:
        return Step.OLD
    if new_attempt == attempt + 1:
        retries = new_phase is Phase.PENDING and phase in RETRIED and new_attempt < ATTEMPTS_MAX
        return Step.NEWS if retries else Step.IMPOSSIBLE
    if new_attempt > attempt:
        return Step.IMPOSSIBLE
    if new_phase in FOLLOWING[kind].get(phase, ()):
        return Step.NEWS
    # Within an attempt a move passes each phase once: what does not follow came before, or belongs
    # to the way that was not taken.
    known = new_phase is Phase.PENDING or new_phase in FOLLOWING[kind] or new_phase in TERMINAL
    return Step.OLD if known else Step.IMPOSSIBLE
