"""Recorder of the evidence of a run: its trace, the begin and end of each fault, and the leaders.

Contract.  A ``RunTrace`` is given to one run instead of a ``Recording``, and its ``line`` as the
sink of the run's trace.  Then ``lines`` are the trace, ``leadership`` the rows of
``leadership.jsonl``, ``phases`` the phases of the run, and ``events`` also has the faults: those
that the nemesis counted, by kind; ``DOWN`` for a node that crashes without a fault at that moment,
because of an armed or earlier one; ``STAYS`` with its way for nodes that stay faulty in a partial
heal.  A fault ends when the nemesis has healed it and the nodes that it crashed are up or replaced.
A fault that does not last begins and ends at one time.  Overlapping faults of one kind at the same
nodes are merged.  The recorder changes nothing: a run has the same digest with it and without.

Theory.  Everything at one moment of virtual time belongs together: the nemesis counts a fault,
writes its target to the trace, and registers how to heal it, in this order or another.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from chaos.history import FAULT, Event
from chaos.simulator.clients.history import Recording
from chaos.simulator.env.parameters import FAULT_KINDS
from chaos.simulator.faults.injector import Injector
from chaos.simulator.faults.nemesis import Nemesis
from multiraft.raft.status import Role

if TYPE_CHECKING:
    from chaos.simulator.ports import SimulationPort

#: Kinds of fault that the nemesis does not count.
DOWN = "down"
STAYS = "stays"
#: Maximum number of trace lines in the description of a fault.
TEXT_LINES_MAX = 3
#: Kinds of trace lines that describe a fault: injected faults, failed disks, topics.
FAULT_LINES = ("fault", "disk", "topic")
#: Kinds that are counted when a disk operation fails.  The node's line of kind ``disk`` follows
#: when the node notices the failure, if it does.
DISK_KINDS = ("eio-write", "eio-sync", "eio-directory")
#: Maximum time between the two, also on a slow disk.
NOTICED_US = 20_000_000
#: Phase in the trace -> phase of the run.
PHASES = {"heal": "heal", "converged": "sleep"}
#: Texts of the trace at the begin and end of a partial heal.
PARTIAL_HEAL = re.compile(r"all are well but \[(.+)\] (\w+)$")
HEAL_OF_REST = re.compile(r"\[.+\] are well, too$")
#: Nodes in texts about the network: by name, or as numbers of links and sides.
NAMED, NUMBERED = re.compile(r"\bn(\d+)\b"), re.compile(r"\b(\d+)\b")


class ObservedCounter(Counter):
    """Counter that reports each change to ``on_change``."""

    on_change: Callable[[str, int], None] | None = None

    def __setitem__(self, kind: str, count: int) -> None:
        change = count - self[kind]
        super().__setitem__(kind, count)
        if self.on_change is not None and change:
            self.on_change(kind, change)


class Moment:
    """Events at one microsecond; later the faults that began then."""

    def __init__(self, at_us: int):
        self.at_us = at_us
        self.counts: Counter[str] = Counter()
        self.nodes: set[int] = set()
        self.texts: list[str] = []
        self.heals = 0  # heals that are still to come
        self.down: set[int] = set()  # crashed nodes that are not up again
        self.faults: list[tuple[str, tuple[int, ...]]] = []  # kind and nodes, set at the end

    @property
    def lasts(self) -> bool:
        """True if a heal is still to come or a node is still down."""
        return bool(self.heals or self.down)


class RunTrace(Recording):
    """Trace, faults and leaders of one run."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.leadership: list[tuple[int, int, int, int]] = []  # time_us, group, term, leader
        self.phases: dict[str, float] = {}  # name -> second
        self._moment = Moment(0)
        self._open_faults: list[Moment] = []
        self._failed: list[tuple[int, str]] = []  # (microsecond, kind) of unnoticed disk errors
        self._on: Counter[tuple[str, tuple[int, ...]]] = Counter()
        self._led: dict[int, tuple[int, int]] = {}  # group -> term, leader
        self._unhealed: tuple[str, tuple[int, ...]] | None = None  # (kind, nodes) of a partial heal
        self._lost: set[int] = set()  # nodes that lost their directory and are not replaced yet
        super().__init__()
        self.faults = ObservedCounter()
        self.faults.on_change = self._on_count

    # ---- reports of the run ----------------------------------------------------------------

    def nemesis(self, world: SimulationPort, rng: random.Random) -> Nemesis:
        """Return the nemesis of the run, whose heals are observed here."""
        return Nemesis(Injector(world, rng, self._observe_heal))

    def line(self, line: str) -> None:
        """Take the next line of the trace: keep it, and record the fault, leader or phase that it
        tells."""
        self.lines.append(line)
        _, where, which, kind, *text = line.split(None, 4)
        node = int(where[1:]) if where != "-" else 0
        group = int(which[1:]) if which != "-" else -1
        if kind == "role_changed":
            self._role(node, group, text[0].split())
        elif kind in FAULT_LINES:
            self._describe_fault(node, group, text[0] if text else "")
            if kind == "disk":
                self._assign_disk_errors()
        elif kind == "crash":
            self._now().down.add(node)
            self._lead_no_more(node)
        elif kind == "start" and node not in self._lost or kind == "replaced":
            self._node_returned(node)
        elif kind == "phase":
            self._reached(text[0])

    def _reached(self, text: str) -> None:
        if text in PHASES:
            self.phases[PHASES[text]] = self._now_us / 1e6
        elif left := PARTIAL_HEAL.match(text):
            self._unhealed = f"{STAYS}-{left[2]}", tuple(map(int, NUMBERED.findall(left[1])))
            self._fault(self._now_us, self._unhealed, True, text)
        elif HEAL_OF_REST.match(text) and self._unhealed is not None:
            self._fault(self._now_us, self._unhealed, False, "")
            self._unhealed = None

    def _on_count(self, kind: str, change: int) -> None:
        if kind in DISK_KINDS and change > 0:
            self._failed.append((self._now_us, kind))
        elif kind in DISK_KINDS:  # the strike only armed the error
            self._failed = [row for row in self._failed if row != (self._now_us, kind)]
        elif kind in FAULT_KINDS:
            self._now().counts[kind] += change

    def _observe_heal(self, heal: Callable[[], None]) -> Callable[[], None]:
        moment = self._now()
        moment.heals += 1

        def healed() -> None:
            heal()
            self._now()
            moment.heals -= 1
            self._end_healed_faults()

        return healed

    def _add(self, kind: str, operation: int, process: int, name: str, data: dict) -> None:
        self._now()
        super()._add(kind, operation, process, name, data)

    def finish(self) -> list[Event]:
        """End the history, and return its events with the faults, in the order of time."""
        self._begin_counted_faults()
        for at_us, kind in self._failed:  # errors that no node noticed
            self._fault(at_us, (kind, ()), True, "")
            self._fault(at_us, (kind, ()), False, "")
        self._failed.clear()
        self.events.sort(key=lambda event: event.time_us)
        return super().finish()

    # ---- faults ----------------------------------------------------------------------------

    @property
    def _now_us(self) -> int:
        return self.queue.now_us if self.queue is not None else 0

    def _now(self) -> Moment:
        """Return this moment of virtual time; if time has passed, begin the faults of the one
        before it."""
        if self._moment.at_us != self._now_us:
            self._begin_counted_faults()
        return self._moment

    def _begin_counted_faults(self) -> None:
        """Begin the faults that were counted in the last moment, end those of them that do not
        last, and begin a new moment."""
        moment, self._moment = self._moment, Moment(self._now_us)
        nodes, text = tuple(sorted(moment.nodes)), "; ".join(moment.texts[:TEXT_LINES_MAX])
        moment.faults = [(kind, nodes) for kind, count in moment.counts.items() if count > 0]
        if moment.down and not moment.faults:
            moment.faults.append((DOWN, tuple(sorted(moment.down))))
        for fault in moment.faults:
            self._on[fault] += 1
            if self._on[fault] == 1:
                self._fault(moment.at_us, fault, True, text)
        if moment.lasts:
            self._open_faults.append(moment)
        else:
            self._end(moment, moment.at_us)

    def _end_healed_faults(self) -> None:
        over = [moment for moment in self._open_faults if not moment.lasts]
        self._open_faults = [moment for moment in self._open_faults if moment.lasts]
        for moment in over:
            self._end(moment, self._now_us)

    def _end(self, moment: Moment, at_us: int) -> None:
        for fault in moment.faults:
            self._on[fault] -= 1
            if not self._on[fault]:
                self._fault(at_us, fault, False, "")

    def _fault(self, at_us: int, fault: tuple[str, tuple[int, ...]], on: bool, text: str) -> None:
        kind, nodes = fault
        self.events.append(Event(at_us, FAULT, -1, -1, kind,
                                 {"on": on, "nodes": list(nodes), "text": text}))

    def _describe_fault(self, node: int, group: int, text: str) -> None:
        moment = self._now()
        moment.texts.append(text)
        if node:
            moment.nodes.add(node)
        elif group < 0:
            moment.nodes.update(map(int, NAMED.findall(text) or NUMBERED.findall(text)))
        if text.startswith(("wiped", "put back")):
            self._lost.add(node)
            moment.down.add(node)

    def _assign_disk_errors(self) -> None:
        """Count the disk errors of the last ``NOTICED_US`` as faults of this moment, in which a
        node ends because of its disk."""
        moment = self._now()
        for at_us, kind in self._failed:
            if moment.at_us - at_us <= NOTICED_US:
                moment.counts[kind] += 1
        self._failed = [row for row in self._failed if moment.at_us - row[0] > NOTICED_US]

    def _node_returned(self, node: int) -> None:
        """Record that a node is up again, or was replaced; faults that only waited for it end."""
        self._now()
        self._lost.discard(node)
        for moment in (*self._open_faults, self._moment):
            moment.down.discard(node)
        self._end_healed_faults()

    # ---- leaders ---------------------------------------------------------------------------

    def _role(self, node: int, group: int, fields: list[str]) -> None:
        role, term = int(fields[0]), int(fields[1])
        if role == Role.LEADER:
            self._lead(group, term, node)
        elif self._led.get(group, (0, 0))[1] == node:
            self._lead(group, term, 0)

    def _lead_no_more(self, node: int) -> None:
        for group, (term, leader) in list(self._led.items()):
            if leader == node:
                self._lead(group, term, 0)

    def _lead(self, group: int, term: int, leader: int) -> None:
        """Record the leader of a group, 0 = none, unless a later term is known already."""
        if term >= self._led.get(group, (0, 0))[0]:
            self._led[group] = term, leader
            self.leadership.append((self._now_us, group, term, leader))
