"""``check``: judges one history, with the logs and traces beside it, and returns one verdict.

Theory.  One pass in clock order decides nearly everything.  Two properties are known only at the
end: records that no reader was shown, and the order of an idempotent producer's batches; a walk
over the packed state decides those.  Then the logs that the replicas left decide the appends whose
outcome is unknown.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from chaos.checkers import (
    consumers,
    contents,
    durability,
    leaders,
    liveness,
    logs,
    reads,
    sends,
    staged,
    times,
    topics,
)
from chaos.checkers.checker import LIMITS, Checker, CheckerLimits
from chaos.checkers.leaders import LeaderTrace
from chaos.checkers.stream import Stream
from chaos.checkers.validity import Validity
from chaos.checkers.verdict import Verdict
from chaos.history import Event
from chaos.replicas import Dump

CHECKERS: tuple[type[Checker], ...] = (
    *contents.CHECKERS, *reads.CHECKERS, *sends.CHECKERS, *consumers.CHECKERS,
    *durability.CHECKERS, *staged.CHECKERS, *topics.CHECKERS, *times.CHECKERS,
    *liveness.CHECKERS, *logs.CHECKERS, *leaders.CHECKERS, Validity)


def check(events: Iterable[Event], limits: CheckerLimits = LIMITS, *,
          replicas: Sequence[Dump] = (), trace: LeaderTrace | None = None) -> Verdict:
    """Run all checkers over a history and return their verdict.  ``replicas``: the logs dumped from
    the nodes' disks; ``trace``: the role changes that the nodes logged.  Raises ``BadHistory``."""
    begun_s = time.perf_counter()
    stream = Stream(CHECKERS, limits)
    found = {type(checker): checker for checker in stream.checkers}
    for kind in (logs.LostFromLogs, logs.TakenFromLogs, logs.ForgottenPartition):
        found[kind].contents = found[logs.LogContents]
    if trace is not None:
        found[durability.AcksContract].leaders = trace.nodes_that_led()
        found[leaders.RoleTrace].judge(trace)
    take = stream.event
    for event in events:
        take(event)
    stream.logs(replicas)
    found[logs.LogContents].settle()
    stream.finish()
    verdict = _verdict(stream)
    validity = found[Validity]
    verdict.invalid = validity.reasons(
        None if trace is None else trace.leader_changes(validity.first_fault_us))
    verdict.seconds = round(time.perf_counter() - begun_s, 3)
    return verdict


def _verdict(stream: Stream) -> Verdict:
    """Collect anomalies, notes and figures of all checkers."""
    verdict = Verdict(anomalies=stream.findings.listed, counts=stream.findings.counts)
    verdict.checked = {"operations": stream.operations, "appends": len(stream.ledger.appends),
                       "acknowledged": stream.acknowledged, "keys": len(stream.ledger.keys),
                       "records_read": stream.records_read}
    for checker in stream.checkers:
        verdict.checked.update(checker.figures())
        verdict.notes += checker.notes()
    return verdict
