"""Base class of checkers, its hooks, and the collection of findings.

Contract.  A checker is a class per anomaly with ``id`` and ``name`` of the catalogue, its exact
definition as docstring, and a method for each hook of ``HOOKS`` that it needs.  ``Findings`` counts
all and lists the first of each name.  Hooks are called in the order of events:

    on_key(key)                                      a key occurs for the first time
    on_base(key, append, base, source)               the offset of an append was established
    on_conflict(key, offset, before, value, source)  another value was known there
    on_moved(key, offset, value, append, source)     its append was known to be elsewhere
    on_unknown(key, offset, value, source)           the value was not appended (yet)
    on_unreadable(key, offset, value, source)        CORRUPT or FOREIGN
    on_foreign(key, offset, value, append, source)   it was appended to another key
    on_aborted(key, append, base, source)            the append had certainly failed
    on_beyond(key, base, end, source)                more offsets than values were ever sent
    on_repeated(key, append, first, offset, source)  a batch sent again is acknowledged elsewhere
    on_append(key, kind, append, time_us)            an append is invoked, or ends as ``kind``
    on_result(key, result)                           a read or a poll returned records, or none
    on_certain(key, answer)                          a linearizable answer says where the end is
    on_read_failed(key, failure)                     a read was refused
    on_assigned(process, positions)                  a consumer begins there
    on_polled(process, result)                       a consumer's poll, per key, after ``on_result``
    on_given(key, given)                             a reader of committed records got some, per key
    on_transaction_conflict(text, operation, time_us)    a ledger of sinks says what it must not
    on_final(key)                                    a final read or question of it is asked for
    on_times(key, values, times_ms)                  an append with the times of its records is
                                                     invoked
    on_time_found(key, answer)                       a question for the first record of a time is
                                                     answered
    on_topic(event, invocation)                      create, delete, describe; its invocation or
                                                     None when this is one
    on_fault(event), on_phase(event)                 a fault or a phase begins or ends
    on_logs(group)                                   one group's logs, after the last event
    on_batch(key, offset, append, place, count, dense)   at the end, per key in offset order: all
                                                     that is known; ``dense`` = nothing below is
                                                     unknown
    on_end(time_us)                                  the history ends
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from chaos.checkers.verdict import ANOMALIES_LISTED_MAX, Anomaly

if TYPE_CHECKING:
    from chaos.checkers.ledger import Key, Ledger

HOOKS = (
    "on_key", "on_base", "on_conflict", "on_moved", "on_unknown", "on_unreadable", "on_foreign",
    "on_aborted", "on_beyond", "on_repeated", "on_append", "on_result", "on_certain",
    "on_read_failed", "on_assigned", "on_polled", "on_given", "on_transaction_conflict",
    "on_final", "on_times", "on_time_found", "on_topic", "on_fault", "on_phase",
    "on_logs", "on_batch", "on_end")


class CheckerLimits(NamedTuple):
    """Time limits for the checkers that judge availability, and the sizes of cluster and groups."""

    nodes: int = 3
    #: Voters of a group, where there are as many nodes.
    copies: int = 3
    #: After healing every key takes appends again within this.
    recover_us: int = 30_000_000
    #: With a quorum that is left alone, no key is without an acknowledged append for longer.
    available_us: int = 20_000_000


LIMITS = CheckerLimits()


class ReadResult(NamedTuple):
    """Records that a read returned, or a poll for one key."""

    operation: int
    runs: Sequence[Sequence]
    asked: int  # offset; -1 = a poll, which continues at the consumer's position
    start: int  # log start offset; -1 = not given
    high_watermark: int  # -1 = not given
    node: int  # the node that answered; -1 = not given
    required: int  # end of what had been shown or acknowledged before the read was invoked
    final: bool
    invoked_us: int
    time_us: int


class Certain(NamedTuple):
    """A linearizable answer: end and log start of one key."""

    operation: int
    high_watermark: int
    required: int  # end of what had been shown or acknowledged before the question was invoked
    final: bool
    time_us: int


class TimeFound(NamedTuple):
    """An answer to the question for the first record at or after a time."""

    operation: int
    asked_ms: int
    offset: int  # -1 = there is no such record
    required: int  # end of what had been shown or acknowledged before the question was invoked
    time_us: int


class Failure(NamedTuple):
    """A read that was refused."""

    operation: int
    error: str
    offset: int
    required: int
    time_us: int


class Findings:
    """All anomalies of a run, counted per name."""

    def __init__(self) -> None:
        self.listed: list[Anomaly] = []
        self.counts: dict[str, int] = {}

    def add(self, anomaly: Anomaly) -> None:
        """Count an anomaly, and list it unless its name has been listed ``ANOMALIES_LISTED_MAX``
        times."""
        count = self.counts[anomaly.name] = self.counts.get(anomaly.name, 0) + 1
        if count <= ANOMALIES_LISTED_MAX:
            self.listed.append(anomaly)


class Checker:
    """Base of all checkers: the shared ledger and findings."""

    id = ""
    name = ""

    def __init__(self, ledger: Ledger, findings: Findings, limits: CheckerLimits):
        self.ledger = ledger
        self.limits = limits
        self._findings = findings

    def found(self, text: str, key: Key | None = None, operations: Sequence[int] = (),
              time_us: int = -1) -> None:
        """Report an anomaly of this checker; ``text``: one clause. Negative ``operations`` are left
        out; ``time_us`` -1 = unknown."""
        known = tuple(operation for operation in operations if operation >= 0)
        self._findings.add(Anomaly(self.id, self.name, text, key.name if key else "", known,
                                   time_us))

    def notes(self) -> list[str]:
        """Return observations that are reported and not judged; called after the last event."""
        return []

    def figures(self) -> dict[str, int]:
        """Return how much was checked, by name; called after the last event."""
        return {}

    def operation_of(self, value: int) -> int:
        """Return the operation that appended a value; -1 = none."""
        home = self.ledger.values.home(value)
        return self.ledger.appends.operation[home >> 20] if home >= 0 else -1
