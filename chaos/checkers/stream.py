"""The single pass over a history: pairs completions with invocations, and feeds ledger and
checkers.

Contract.  ``Stream.event`` takes events in their order; ``finish`` ends the history and walks the
known records in the order of offsets.  Raises ``BadHistory`` for a completion without its
invocation and for an event that lacks data of its name.  Operations that never complete are
``info``.

Invariants.  Memory grows with open operations and with the records (``chaos.checkers.ledger``), not
with the events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from chaos.checkers.checker import (
    HOOKS,
    Certain,
    Checker,
    CheckerLimits,
    Failure,
    Findings,
    ReadResult,
    TimeFound,
)
from chaos.checkers.ledger import ACKED, FAILED, UNKNOWN, Evidence, Ledger
from chaos.checkers.logs import GroupLogs
from chaos.checkers.topics import life_of
from chaos.checkers.transactions import Given
from chaos.history import FAIL, FAULT, INFO, INVOKE, LOG, OK, PHASE, BadHistory, Event
from chaos.replicas import Dump

_OUTCOMES = {OK: ACKED, FAIL: FAILED, INFO: UNKNOWN}
LINEARIZABLE = "linearizable"


class _Open(NamedTuple):
    """An operation without a completion yet."""

    asked: Event
    number: int  # of an append
    required: int  # of a read: end of what was known to be committed when it was invoked


class Stream:
    """The pass over one history; it feeds ledger, transactions and checkers."""

    def __init__(self, kinds: tuple[type[Checker], ...], limits: CheckerLimits):
        hooks: dict[str, tuple] = dict.fromkeys(HOOKS, ())
        self.ledger = Ledger(hooks)
        self.findings = Findings()
        self.checkers = [kind(self.ledger, self.findings, limits) for kind in kinds]
        for hook in HOOKS:
            hooks[hook] = tuple(getattr(one, hook) for one in self.checkers if hasattr(one, hook))
        self._ask = self.ledger.ask
        self._open: dict[int, _Open] = {}
        self._time_us = 0
        self.operations = 0
        self.records_read = 0
        self._invoked = {"append": self._append_invoked, "read": self._read_invoked,
                         "offsets": self._read_invoked,
                         "offset_for_time": self._read_invoked,
                         "begin_transaction": self._transaction_invoked,
                         "commit_transaction": self._transaction_invoked,
                         "abort_transaction": self._transaction_invoked}
        self._completed = {"append": self._append_completed, "read": self._read_completed,
                           "offsets": self._offsets_completed, "poll": self._poll_completed,
                           "assign": self._assign_completed,
                           "offset_for_time": self._time_found,
                           "poll_committed": self._given,
                           "delete_records": self._deleted,
                           "begin_transaction": self._transaction_completed,
                           "commit_transaction": self._transaction_completed,
                           "abort_transaction": self._transaction_completed}

    def event(self, event: Event) -> None:
        """Take the next event: pair it with its invocation, and pass it to ledger and checkers.
        Raises ``BadHistory``."""
        self._time_us = event.time_us
        try:
            if event.kind == INVOKE:
                self._invoke(event)
            elif event.kind == FAULT:
                self._ask("on_fault", event)
            elif event.kind == PHASE:
                self._ask("on_phase", event)
            elif event.kind == LOG:
                self.ledger.raise_log_start(event.data["key"], event.data["log_start"])
            else:
                self._complete(event)
        except (KeyError, TypeError) as error:
            raise BadHistory(f"operation {event.operation}, {event.kind} of {event.name}: "
                             f"{type(error).__name__} {error}") from error

    def _invoke(self, event: Event) -> None:
        self.operations += 1
        invoked = self._invoked.get(event.name)
        if invoked is not None:
            opened = invoked(event)
        else:
            opened = _Open(event, -1, 0)
            if event.name not in self._completed:
                self._topic(event, None)
        self._open[event.operation] = opened

    def _complete(self, event: Event) -> None:
        opened = self._open.pop(event.operation, None)
        if opened is None:
            raise BadHistory(f"operation {event.operation} of {event.name} ends and did not begin")
        completed = self._completed.get(event.name)
        if completed is not None:
            completed(event, opened)
        else:
            self._topic(event, opened.asked)

    # ---- appends ---------------------------------------------------------------------------

    def _append_invoked(self, event: Event) -> _Open:
        number = self.ledger.invoke_append(event.operation, event.data)
        key = self.ledger.key(event.data["key"])
        self._ask("on_append", key, INVOKE, number, event.time_us)
        if "times" in event.data:
            self._ask("on_times", key, event.data["values"], event.data["times"])
        return _Open(event, number, 0)

    def _append_completed(self, event: Event, opened: _Open) -> None:
        data = opened.asked.data
        self.ledger.complete_append(opened.number, _OUTCOMES[event.kind],
                                    event.data.get("offset", -1), data["values"], event.time_us)
        self._ask("on_append", self.ledger.key(data["key"]), event.kind, opened.number,
                  event.time_us)

    # ---- reads -----------------------------------------------------------------------------

    def _read_invoked(self, event: Event) -> _Open:
        key = self.ledger.key(event.data["key"])
        if event.data.get("final"):
            self._ask("on_final", key)
        return _Open(event, -1, key.seen_end)

    def _read_completed(self, event: Event, opened: _Open) -> None:
        asked, data = opened.asked.data, event.data
        key = self.ledger.key(asked["key"])
        if event.kind != OK:
            self._refused(event, opened, asked.get("offset", -1))
            return
        final = bool(asked.get("final"))
        result = ReadResult(event.operation, data["runs"], asked["offset"], data.get("start", -1),
                        data.get("high_watermark", -1), data.get("node", -1), opened.required,
                        final, opened.asked.time_us, event.time_us)
        self._show(key, result, asked.get("mode") == LINEARIZABLE)

    def _show(self, key, result: ReadResult, certain: bool) -> None:
        """Pass the records of a result, and the end that it tells, to the checkers and the ledger.
        ``certain``: the read was linearizable."""
        source = Evidence(result.operation, True, result.time_us)
        self._ask("on_result", key, result)
        self.ledger.told_start(key, result.start, result.operation, result.time_us)
        for base, values in result.runs:
            self.ledger.shown(key, base, values, source, result.final)
            self.records_read += len(values)
        self._told_end(key, result.high_watermark, result.required, result.operation,
                       result.final, certain)

    def _told_end(self, key, high_watermark: int, required: int, operation: int, final: bool,
                  certain: bool) -> None:
        if high_watermark < 0:
            return
        if high_watermark > key.sent:
            self._ask("on_beyond", key, key.sent, high_watermark,
                      Evidence(operation, True, self._time_us))
        self.ledger.told_end(key, high_watermark, final, certain)
        if certain:
            self._ask("on_certain", key,
                      Certain(operation, high_watermark, required, final, self._time_us))

    def _offsets_completed(self, event: Event, opened: _Open) -> None:
        asked = opened.asked.data
        if event.kind != OK:
            self._refused(event, opened, -1)
            return
        key = self.ledger.key(asked["key"])
        self.ledger.told_start(key, event.data.get("start", -1), event.operation, event.time_us)
        self._told_end(key, event.data["high_watermark"],
                       opened.required, event.operation, bool(asked.get("final")),
                       asked.get("mode") == LINEARIZABLE)

    def _time_found(self, event: Event, opened: _Open) -> None:
        asked = opened.asked.data
        if event.kind == OK:
            self._ask("on_time_found", self.ledger.key(asked["key"]),
                      TimeFound(event.operation, asked["time_ms"], event.data["offset"],
                                opened.required, event.time_us))

    def _refused(self, event: Event, opened: _Open, offset: int) -> None:
        if event.kind == FAIL:
            self._ask("on_read_failed", self.ledger.key(opened.asked.data["key"]),
                      Failure(event.operation, event.data.get("error", ""), offset,
                              opened.required, event.time_us))

    # ---- consumers -------------------------------------------------------------------------

    def _assign_completed(self, event: Event, opened: _Open) -> None:
        if event.kind == OK:
            self._ask("on_assigned", opened.asked.process, opened.asked.data["positions"])

    def _poll_completed(self, event: Event, opened: _Open) -> None:
        if event.kind != OK:
            return
        asked = opened.asked
        for name, runs in event.data["runs"].items():
            key = self.ledger.key(name)
            result = ReadResult(
                event.operation,
                runs,
                -1,
                -1,
                -1,
                -1,
                0,
                bool(asked.data.get("final")),
                asked.time_us,
                event.time_us,
            )
            self._show(key, result, False)
            self._ask("on_polled", asked.process, key, result)

    # ---- retention -------------------------------------------------------------------------

    def _deleted(self, event: Event, opened: _Open) -> None:
        if event.kind == OK:
            self.ledger.told_start(self.ledger.key(opened.asked.data["key"]),
                                   event.data["log_start"], event.operation, event.time_us)

    # ---- sinks -----------------------------------------------------------------------------

    def _transaction_invoked(self, event: Event) -> _Open:
        self.ledger.transactions.take(event, event)
        return _Open(event, -1, 0)

    def _transaction_completed(self, event: Event, opened: _Open) -> None:
        self.ledger.transactions.take(event, opened.asked)

    def _given(self, event: Event, opened: _Open) -> None:
        if event.kind != OK:
            return
        asked = opened.asked.data
        source = Evidence(event.operation, True, event.time_us)
        for name, reached in event.data["reached"].items():
            key, runs = self.ledger.key(name), event.data["runs"].get(name, ())
            for base, values in runs:
                self.ledger.shown(key, base, values, source, False)
                self.records_read += len(values)
            staged = self.ledger.transactions.give(self.ledger.appends_of(runs), event.operation)
            self._ask("on_given", key, Given(event.operation, runs, asked["positions"][name],
                                             reached, staged, bool(asked.get("final")),
                                             event.time_us))

    # ---- topics ----------------------------------------------------------------------------

    def _topic(self, event: Event, asked: Event | None) -> None:
        data = (asked or event).data
        if event.name == "delete_topic":
            change = (event.kind == INVOKE) - (event.kind == FAIL)
            self.ledger.deletion(life_of(data), change, event.time_us if event.kind == OK else -1)
        self._ask("on_topic", event, asked)

    # ---- logs ------------------------------------------------------------------------------

    def logs(self, dumps: Sequence[Dump]) -> None:
        """Take the logs that the replicas left, group by group, after the last event and before
        ``finish``."""
        for group in sorted({group for each in dumps for group in each.logs}):
            self._ask("on_logs", GroupLogs(group, dumps))

    # ---- the end ---------------------------------------------------------------------------

    def finish(self) -> None:
        """End the history: call ``on_batch`` for all known records, then ``on_end``. No event
        follows."""
        for key in self.ledger.by_number:
            following, dense = 0, True
            for offset, number, place, count in self.ledger.walk(key):
                dense = dense and offset == following
                self._ask("on_batch", key, offset, number, place, count, dense)
                following = offset + count
        self._ask("on_end", self._time_us)

    @property
    def acknowledged(self) -> int:
        """Return the number of appends that were acknowledged, with any ack level."""
        return self.ledger.appends.outcome.count(ACKED)
