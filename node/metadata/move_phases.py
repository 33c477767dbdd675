"""The phases of a move and their order.

    leader transfer   PENDING -> TRANSFERRING -> DONE
    topic switch      PENDING -> SWITCHING -> DONE             cannot be undone once it is decided;
                                                               skipped if it never is
    replica change    PENDING -> LEARNING -> JOINT -> GRACE -> DONE
                                    |   before JOINT the learners are removed again (UNDOING),
                                    v   from JOINT on the change cannot be undone
                                 UNDOING -> CANCELLED | FAILED | PENDING (another attempt)

A move may also end SKIPPED (the state that it was planned for has changed) or FAILED, and is
CANCELLED while it is PENDING.  LEARNING covers "learner added" and "catching up"; JOINT covers
"joint entered", "joint left" and the transfer before it.  The group's own configuration tells which
of them it is, so no further phase is recorded.

Contract.  A phase is recorded *before* any action of the phase, so a new controller knows which
actions may have started.  ``after`` classifies a step as new, old or impossible.
"""

from __future__ import annotations

import enum

from multiraft.wire.plans import LEADER_TRANSFER, REPLICA_CHANGE, TOPIC_SWITCH


class Phase(enum.IntEnum):
    """The phase of a move."""

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

#: Phases in which a move has ended.
TERMINAL = (Phase.DONE, Phase.SKIPPED, Phase.FAILED, Phase.CANCELLED)

#: Attempts of one move before it has failed.
ATTEMPTS_MAX = 5

#: Kind of move -> its first phase.
FIRST = {LEADER_TRANSFER: Phase.TRANSFERRING, TOPIC_SWITCH: Phase.SWITCHING,
         REPLICA_CHANGE: Phase.LEARNING}

_P = Phase
_ENDS = (_P.DONE, _P.SKIPPED, _P.FAILED)
#: Kind of move -> phase -> phases that may follow within one attempt.
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

#: Phases from which the next attempt may start.
RETRIED = (_P.UNDOING, _P.TRANSFERRING)


class Step(enum.Enum):
    """The relation of a step to the present phase of a move."""

    NEWS = "news"
    OLD = "old"  # it was taken before, or a later step was
    IMPOSSIBLE = "impossible"


def after(kind: str, phase: Phase, attempt: int, new_phase: Phase, new_attempt: int) -> Step:
    """Classify the step to ``new_phase`` of ``new_attempt`` as new, old or impossible, for a move
    that is in ``phase`` of ``attempt``. O(1)."""
    if (new_attempt, new_phase) == (attempt, phase) or new_attempt < attempt or phase in TERMINAL:
        return Step.OLD
    if new_attempt == attempt + 1:
        retries = new_phase is Phase.PENDING and phase in RETRIED and new_attempt < ATTEMPTS_MAX
        return Step.NEWS if retries else Step.IMPOSSIBLE
    if new_attempt > attempt:
        return Step.IMPOSSIBLE
    if new_phase in FOLLOWING[kind].get(phase, ()):
        return Step.NEWS
    # Within an attempt a move passes each phase once: a phase that does not follow was passed
    # before, or belongs to the branch that was not taken.
    known = new_phase is Phase.PENDING or new_phase in FOLLOWING[kind] or new_phase in TERMINAL
    return Step.OLD if known else Step.IMPOSSIBLE
