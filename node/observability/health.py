"""Liveness and readiness of a node, as probes report them.

Contract.  Pure functions from observations to a status and its reason.  *Healthy* is False when a
restart of the process could help: when its loop or its disk has been stuck for ``stall_ms_max``;
never during recovery, however long that takes.  *Ready* is True when another node may be taken
down: every replica here has the entries that its leader committed, so that this node counts in its
quorums.

Theory.  A rolling restart that waits for ``ready`` before it takes the next node never has two
members of a group away at once, whatever state the groups were in.  For that reason a quarantined
replica and a group without a leader make a node unready: taking down another node would stop that
group, or it has stopped already.
"""

from __future__ import annotations

from typing import NamedTuple

from node.observability.group_health import GroupSample, Survey
from node.observability.phase import RECOVERING, SERVING, Life

#: Groups that a reason names.
_NAMED_IN_REASON = 5


class Verdict(NamedTuple):
    """A status with its reason.  ``details`` are for the JSON reply; ``reason`` may be empty."""

    good: bool
    reason: str
    details: dict


def health(life: Life, loop_silent_ms: int, disk_busy_ms: int, stall_ms_max: int) -> Verdict:
    """Return a good verdict if the round loop and the disk have answered within ``stall_ms_max``,
    and always outside the phase ``serving``.

    ``loop_silent_ms``: time since the round loop answered; ``disk_busy_ms``: age of the disk's
    oldest unanswered job."""
    reason = ""
    if life.phase != SERVING:
        return Verdict(True, life.describe(), {"phase": life.phase})
    if loop_silent_ms > stall_ms_max:
        reason = f"the round loop has not answered for {loop_silent_ms} ms"
    elif disk_busy_ms > stall_ms_max:
        reason = f"the disk has not completed a write for {disk_busy_ms} ms"
    return Verdict(not reason, reason, {"phase": life.phase, "loop_silent_ms": loop_silent_ms,
                                        "disk_busy_ms": disk_busy_ms})


def readiness(life: Life, survey: Survey | None) -> Verdict:
    """Return a good verdict if another node may be taken down; never outside the phase ``serving``.
    ``survey`` None = the loop gave none in time."""
    details: dict = {"phase": life.phase}
    if life.phase == RECOVERING:
        progress = life.recovery
        details["segments"] = [progress.segments_done, progress.segments_total]
        details["groups"] = [progress.groups_done, progress.groups_total]
    if life.phase != SERVING:
        return Verdict(False, life.describe(), details)
    if survey is None:
        return Verdict(False, "the round loop does not answer", details)
    details.update(
        groups=survey.groups,
        behind=survey.behind.count,
        catching_up=survey.catching_up.count,
        leaderless=survey.leaderless.count,
        quarantined=survey.quarantined.count,
        lag_entries=survey.lag_entries,
    )
    reason = _why_not_ready(survey)
    return Verdict(not reason, reason, details)


def _why_not_ready(survey: Survey) -> str:
    if survey.quarantined.count:
        return f"quarantined and not repaired yet: {_named(survey.quarantined)}"
    if survey.leaderless.count:
        return f"no leader is known: {_named(survey.leaderless)}"
    if survey.behind.count:
        return (f"catching up: {_named(survey.behind)} behind, {survey.lag_entries} entries at "
                "most")
    return ""


def _named(groups: GroupSample) -> str:
    """Return a count with the first groups by name: ``2 groups (4, 7)``."""
    shown = ", ".join(map(str, groups.groups[:_NAMED_IN_REASON]))
    more = ", ..." if groups.count > _NAMED_IN_REASON else ""
    return f"{groups.count} group{'' if groups.count == 1 else 's'} ({shown}{more})"
