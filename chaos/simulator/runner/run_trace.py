"""All of a simulated run that a person may want to look at: a recording that keeps the trace, too,
each fault from its beginning to its end, and who led.

Contract.  An ``Evidence`` is given to one run in the place of a ``Recording``, and its ``line`` as
the sink of the run's trace.  Then ``lines`` are the trace, ``leadership`` rows of
``leadership.jsonl``, ``phases`` the run's, and ``events`` has a fault for whatever the nemesis
counted, of the kinds that it knows; ``DOWN`` is a node that goes down without one, of what was
prepared or done before; ``STAYS`` and the way are nodes that are ill while the rest converge.  A
fault is over when the nemesis has healed it and the nodes that went
down with it are up, or replaced; what does not last is a point.  Two of one kind at the same nodes
are one while they overlap.  It changes nothing: a run has the same digest with it and without.

Theory.  What happens in one moment of virtual time belongs together: the nemesis counts a fault,
says in the trace what it does to whom, and leaves a way to heal it, in this order or another.
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
from chaos.simulator.faults.nemesis import Nemesis
from multiraft.raft.status import Role

if TYPE_CHECKING:
    from chaos.simulator.simulation import World

#: See the module docstring.
DOWN = "down"
STAYS = "stays"
#: Lines of the trace that one fault is described with, at most.
TEXT_LINES_MAX = 3
#: Lines of the trace that say what a fault is, besides those of kind ``fault``: a disk that failed,
#: and a topic.
TELLING = ("fault", "disk", "topic")
#: Counted when a disk fails, a moment before its node's line of kind ``disk``, if it makes one.
DISK_KINDS = ("eio-write", "eio-sync", "eio-directory")
#: Within this, also of a slow disk.
NOTICED_US = 20_000_000
#: What the phases of the trace are for those who look at the run.
PHASES = {"heal": "heal", "converged": "sleep"}
#: What the trace says of nodes that are left ill, and of their end.
LEFT_ILL = re.compile(r"all are well but \[(.+)\] (\w+)$")
WELL_TOO = re.compile(r"\[.+\] are well, too$")
#: Nodes in what is said of the network: by name, or as numbers of links and sides.
NAMED, NUMBERED = re.compile(r"\bn(\d+)\b"), re.compile(r"\b(\d+)\b")


class Counted(Counter):
    """A counter that tells of each change."""

    tell: Callable[[str, int], None] | None = None

    def __setitem__(self, kind: str, count: int) -> None:
        change = count - self[kind]
        super().__setitem__(kind, count)
        if self.tell is not None and change:
            self.tell(kind, change)


class Watched(Nemesis):
    """A nemesis that says of each fault that lasts how it is healed."""

    def __init__(self, world: World, rng: random.Random,
                 lasting: Callable[[Callable[[], None]], Callable[[], None]]):
        super().__init__(world, rng)
        self._told = lasting

    def _lasting(self, heal: Callable[[], None]) -> None:
        super()._lasting(self._told(heal))


class Moment:
    """What happened at one microsecond; from then on the faults that began there."""

    def __init__(self, at_us: int):
        self.at_us = at_us
        self.counts: Counter[str] = Counter()
        self.nodes: set[int] = set()
        self.texts: list[str] = []
        self.heals = 0  # that have not come yet
        self.down: set[int] = set()  # nodes that have not come back
        self.faults: list[tuple[str, tuple[int, ...]]] = []  # kind and nodes, when it is over

    @property
    def lasts(self) -> bool:
        """Whether something is still broken."""
        return bool(self.heals or self.down)


class Evidence(Recording):
    """See the module docstring."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.leadership: list[tuple[int, int, int, int]] = []  # time_us, group, term, leader
        self.phases: dict[str, float] = {}  # name -> second
        self._moment = Moment(0)
        self._lasting: list[Moment] = []
        self._failed: list[tuple[int, str]] = []  # microsecond and kind, of disks, not noticed yet
        self._on: Counter[tuple[str, tuple[int, ...]]] = Counter()
        self._led: dict[int, tuple[int, int]] = {}  # group -> term, leader
        self._ill: tuple[str, tuple[int, ...]] | None = None  # kind and nodes that are left ill
        self._lost: set[int] = set()  # nodes that lost their directory and are not replaced yet
        super().__init__()
        self.faults = Counted()
        self.faults.tell = self._counted

    # ---- what the run tells ----------------------------------------------------------------

    def nemesis(self, world: World, rng: random.Random) -> Nemesis:
        """The nemesis of the run."""
        return Watched(world, rng, self._told_of)

    def line(self, line: str) -> None:
        """A line of the trace."""
        self.lines.append(line)
        _, where, which, kind, *text = line.split(None, 4)
        node = int(where[1:]) if where != "-" else 0
        group = int(which[1:]) if which != "-" else -1
        if kind == "role":
            self._role(node, group, text[0].split())
        elif kind in TELLING:
            self._said(node, group, text[0] if text else "")
            if kind == "disk":
                self._noticed()
        elif kind == "crash":
            self._now().down.add(node)
            self._lead_no_more(node)
        elif kind == "start" and node not in self._lost or kind == "replaced":
            self._back(node)
        elif kind == "phase":
            self._reached(text[0])

    def _reached(self, text: str) -> None:
        if text in PHASES:
            self.phases[PHASES[text]] = self._now_us / 1e6
        elif left := LEFT_ILL.match(text):
            self._ill = f"{STAYS}-{left[2]}", tuple(map(int, NUMBERED.findall(left[1])))
            self._fault(self._now_us, self._ill, True, text)
        elif WELL_TOO.match(text) and self._ill is not None:
            self._fault(self._now_us, self._ill, False, "")
            self._ill = None

    def _counted(self, kind: str, change: int) -> None:
        if kind in DISK_KINDS and change > 0:
            self._failed.append((self._now_us, kind))
        elif kind in DISK_KINDS:  # it is only prepared
            self._failed = [row for row in self._failed if row != (self._now_us, kind)]
        elif kind in FAULT_KINDS:
            self._now().counts[kind] += change

    def _told_of(self, heal: Callable[[], None]) -> Callable[[], None]:
        moment = self._now()
        moment.heals += 1

        def healed() -> None:
            heal()
            self._now()
            moment.heals -= 1
            self._end_what_is_over()

        return healed

    def _add(self, kind: str, operation: int, process: int, name: str, data: dict) -> None:
        self._now()
        super()._add(kind, operation, process, name, data)

    def finish(self) -> list[Event]:
        """The history."""
        self._settle()
        for at_us, kind in self._failed:  # nobody noticed
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
        """This moment; the one before it is settled."""
        if self._moment.at_us != self._now_us:
            self._settle()
        return self._moment

    def _settle(self) -> None:
        """What was counted in the last moment has begun there."""
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
            self._lasting.append(moment)
        else:
            self._end(moment, moment.at_us)

    def _end_what_is_over(self) -> None:
        over = [moment for moment in self._lasting if not moment.lasts]
        self._lasting = [moment for moment in self._lasting if moment.lasts]
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

    def _said(self, node: int, group: int, text: str) -> None:
        moment = self._now()
        moment.texts.append(text)
        if node:
            moment.nodes.add(node)
        elif group < 0:
            moment.nodes.update(map(int, NAMED.findall(text) or NUMBERED.findall(text)))
        if text.startswith(("wiped", "put back")):
            self._lost.add(node)
            moment.down.add(node)

    def _noticed(self) -> None:
        """A node ends because of its disk."""
        moment = self._now()
        for at_us, kind in self._failed:
            if moment.at_us - at_us <= NOTICED_US:
                moment.counts[kind] += 1
        self._failed = [row for row in self._failed if moment.at_us - row[0] > NOTICED_US]

    def _back(self, node: int) -> None:
        """A node runs again, or another one is in its place."""
        self._now()
        self._lost.discard(node)
        for moment in (*self._lasting, self._moment):
            moment.down.discard(node)
        self._end_what_is_over()

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
        """A leader of a term that is over already is none."""
        if term >= self._led.get(group, (0, 0))[0]:
            self._led[group] = term, leader
            self.leadership.append((self._now_us, group, term, leader))
