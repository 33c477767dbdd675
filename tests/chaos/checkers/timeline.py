"""Hand-written histories: one call per event, one millisecond between them."""

from __future__ import annotations

from chaos.checkers import LIMITS, CheckerLimits, Verdict, check
from chaos.checkers.leaders import LeaderTrace, RoleChange
from chaos.history import FAIL, FAULT, INFO, INVOKE, OK, PHASE, Event, key_of

KEY = key_of("t", 7, 0)
OTHER = key_of("t", 7, 1)
LATER = key_of("t", 9, 0)  # another incarnation of the name
MILLISECOND_US = 1000


def led(groups: dict[int, set[int]]) -> LeaderTrace:
    """Return a trace in which these nodes led these groups, one term after the other."""
    return LeaderTrace(RoleChange(1 << 60, node, group, term, "leader", node)
                 for group, nodes in groups.items() for term, node in enumerate(sorted(nodes), 1))


#: A trace with a change of leaders, of a group of no key.
CHANGED = led({99: {1, 2}})


class Timeline:
    """Events in order; ``sleep`` lets time pass."""

    def __init__(self):
        self.events: list[Event] = []
        self.now_us = 0
        self._operations = 0
        self._asked: dict[int, Event] = {}

    def sleep(self, seconds: float) -> None:
        self.now_us += int(seconds * 1e6)

    def _add(self, kind: str, operation: int, process: int, name: str, data: dict) -> None:
        self.now_us += MILLISECOND_US
        self.events.append(Event(self.now_us, kind, operation, process, name, data))

    # ---- invocations and completions ---------------------------------------------------------

    def invoke(self, name: str, process: int = 1, **data) -> int:
        self._operations += 1
        self._add(INVOKE, self._operations, process, name, data)
        self._asked[self._operations] = self.events[-1]
        return self._operations

    def _end(self, kind: str, operation: int, data: dict) -> None:
        asked = self._asked[operation]
        self._add(kind, operation, asked.process, asked.name, data)

    def ok(self, operation: int, **data) -> None:
        self._end(OK, operation, data)

    def fail(self, operation: int, error: str = "NotLeader") -> None:
        self._end(FAIL, operation, {"error": error, "text": ""})

    def info(self, operation: int, error: str = "TimedOut") -> None:
        self._end(INFO, operation, {"error": error, "text": ""})

    # ---- appends -----------------------------------------------------------------------------

    def append(self, values, key: str = KEY, acks: str = "commit", process: int = 1,
               producer: int = -1, epoch: int = -1, sequence: int = -1) -> int:
        return self.invoke("append", process, key=key, values=list(values), acks=acks,
                           producer=producer, epoch=epoch, sequence=sequence)

    def appended(self, values, offset: int, **more) -> int:
        operation = self.append(values, **more)
        self.ok(operation, offset=offset)
        return operation

    # ---- reads -------------------------------------------------------------------------------

    def read(self, offset: int = 0, key: str = KEY, mode: str = "committed", process: int = 2,
             final: bool = False) -> int:
        more = {"final": True} if final else {}
        return self.invoke("read", process, key=key, offset=offset, mode=mode, **more)

    def answer(self, operation: int, values=(), at: int | None = None, end: int | None = None,
               node: int = 1, start: int = 0, runs: list | None = None) -> None:
        """Complete with ``values`` from the requested offset, or ``at``, up to the high
        watermark."""
        asked = self._asked[operation].data["offset"]
        if runs is None:
            runs = [[asked if at is None else at, list(values)]] if values else []
        if end is None:
            end = max([asked, *(base + len(found) for base, found in runs)])
        self.ok(operation, runs=runs, start=start, high_watermark=end, node=node)

    def was_read(self, values=(), offset: int = 0, at: int | None = None, end: int | None = None,
                 node: int = 1, start: int = 0, runs: list | None = None, **more) -> int:
        operation = self.read(offset, **more)
        self.answer(operation, values, at, end, node, start, runs)
        return operation

    def offsets(self, end: int, key: str = KEY, mode: str = "linearizable", final: bool = False,
                process: int = 3) -> int:
        more = {"final": True} if final else {}
        operation = self.invoke("offsets", process, key=key, mode=mode, **more)
        self.ok(operation, start=0, high_watermark=end)
        return operation

    def finale(self, values=(), key: str = KEY, end: int | None = None) -> None:
        """Read everything from the start to the certain end, by a fresh client."""
        self.was_read(values, key=key, process=99, final=True, end=end, node=3)
        self.offsets(len(values) if end is None else end, key=key, final=True, process=99)

    # ---- consumers, topics, the rest -----------------------------------------------------------

    def assign(self, positions: dict[str, int], process: int = 5) -> None:
        self.ok(self.invoke("assign", process, positions=positions))

    def poll(self, runs: dict[str, list], process: int = 5) -> None:
        self.ok(self.invoke("poll", process, keys=list(runs)), runs=runs)

    def fault(self, name: str, on: bool, *nodes: int) -> None:
        self._add(FAULT, -1, -1, name, {"on": on, "nodes": list(nodes), "text": ""})

    def phase(self, name: str) -> None:
        self._add(PHASE, -1, -1, name, {})

    # ---- the verdict -------------------------------------------------------------------------

    def check(self, limits: CheckerLimits = LIMITS, **more) -> Verdict:
        return check(self.events, limits, **more)

    def ids(self, limits: CheckerLimits = LIMITS, **more) -> set[str]:
        """Return ids of the anomalies that are found."""
        return {anomaly.id for anomaly in self.check(limits, **more).anomalies}
