"""``check``: one history, the logs and traces beside it, one verdict.

Theory.  One pass in the order of the clock decides nearly everything; what is known only at the end
(what nobody ever read, the order of what idempotent producers sent) is decided by a walk over the
packed state.  Then the logs that the replicas left say what became of the appends whose outcome
nobody knows.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from chaos.checkers import consumers, contents, durability, liveness, reads, sends, topics
from chaos.checkers.checker import LIMITS, Checker, Limits
from chaos.checkers.stream import Stream
from chaos.checkers.validity import Validity
from chaos.checkers.verdict import Verdict
from chaos.history import Event

CHECKERS: tuple[type[Checker], ...] = (
    *contents.CHECKERS, *reads.CHECKERS, *sends.CHECKERS, *consumers.CHECKERS,
    *durability.CHECKERS, *topics.CHECKERS, *liveness.CHECKERS, Validity)


def check(events: Iterable[Event], limits: Limits = LIMITS, *,
          leaders: dict[int, set[int]] | None = None,
          leader_changes: int | None = None) -> Verdict:
    """All checkers over a history.  ``leaders``: the nodes that led each group, as far as traces
    tell; ``leader_changes``: how many there were after the first fault, None = unknown.  Raises
    ``BadHistory``."""
    begun_s = time.perf_counter()
    stream = Stream(CHECKERS, limits)
    for checker in stream.checkers:
        if isinstance(checker, durability.AcksContract):
            checker.leaders = leaders
    take = stream.event
    for event in events:
        take(event)
    stream.finish()
    verdict = Verdict(anomalies=stream.findings.listed, counts=stream.findings.counts)
    appends = stream.ledger.appends
    verdict.checked = {"operations": stream.operations, "appends": len(appends),
                       "acknowledged": stream.acknowledged, "keys": len(stream.ledger.keys),
                       "records_read": stream.records_read}
    for checker in stream.checkers:
        verdict.checked.update(checker.figures())
        verdict.notes += checker.notes()
        if isinstance(checker, Validity):
            verdict.invalid = checker.reasons(leader_changes)
    verdict.seconds = round(time.perf_counter() - begun_s, 3)
    return verdict
