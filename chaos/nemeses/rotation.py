"""The rotation: random sets of nemeses in turns, now and then none.

Contract.  ``Rotation.run`` continues until ``stop`` is set, and leaves a cluster without faults
whose nodes all run, whatever failed in between; it raises ``BackendError`` only when that cannot be
reached.  Every begin and every healing is passed to ``emit`` as a fault of a history: the begin
before the first effect, the healing when nothing of the fault is left.  A fault that could not be
planned, begun or healed at once is in ``refusals``.

No fault begins while a damaged node has replicas that do not count yet, for at most ``REPAIR_S``.
A restart may have put the head of such a replica into recovery: then the quorum of its group is all
other members, and a history that names one more node would wrongly say that a quorum is untouched.

Theory.  Random subsets find what single faults do not; a quarter of turns without faults lets the
cluster make progress that the next turn can break (Jepsen's rotations).  A seed decides the
choices; the targets depend on the leaders of that moment, and are in the history.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from chaos.backends.backend import KINDS, Backend, BackendError
from chaos.nemeses import clocks, disks, links, members, processes
from chaos.nemeses.atlas import FaultAtlas
from chaos.nemeses.nemesis import Field, Nemesis, Strike
from chaos.nemeses.rot import BitRot

#: Seconds from the beginning of one turn to the next.
TURN_S = (10.0, 20.0)
#: A turn without faults.
CALM = 0.25
#: Nemeses of one turn at most: more block everything at once and prove little.
TOGETHER_MAX = 4
#: A node that no fault affects starts within this time: at the end of a turn there are no faults.
START_S = 60.0
#: A recovering replica counts again within an entry's commit once it hears its leader.  A replica
#: that does not count after this time without faults never will, and turns continue.
REPAIR_S = 60.0
#: How often damaged nodes are asked: each answer costs a scan of all groups.
ASK_S = 0.2

CLASSES: tuple[type[Nemesis], ...] = (
    processes.Kill, processes.Stop, processes.RollingRestart, processes.Pause,
    processes.ShortPauses, links.Halves, links.Alone, links.Bridge, links.Ring, links.OneWay,
    links.NoClients, links.Loss, links.LatePackets, links.Resets, disks.PowerLoss, disks.SlowDisk,
    disks.HungDisk, disks.FullDisk, disks.FailedDisk, clocks.Clocks, members.MemberChurn,
    members.LeaderChurn, members.SwitchChurn, members.PlanChurn, BitRot)

#: Receiver of events for a history: (kind, on, nodes, text).
Emit = Callable[[str, bool, list[int], str], None]


class Turn(NamedTuple):
    """Nemeses that are active together, and their duration."""

    names: tuple[str, ...]  # of nemeses, in the order of their beginning; () = calm
    seconds: float


def names(kinds: Sequence[str] = KINDS) -> list[str]:
    """Return the names of the nemeses of these kinds of fault, in the order of ``CLASSES``."""
    return [each.name for each in CLASSES if each.kind in kinds]


def draw(rng: random.Random, enabled: Sequence[str], turn_s: tuple[float, float] = TURN_S,
         calm: float = CALM) -> Turn:
    """Draw one turn: no fault, with probability ``calm``, or up to ``TOGETHER_MAX`` of the enabled
    nemeses, each kind of fault at most once. ``turn_s``: bounds of its duration."""
    seconds = rng.uniform(*turn_s)
    if not enabled or rng.random() < calm:
        return Turn((), seconds)
    classes = {each.name: each for each in CLASSES}
    chosen: dict[str, type[Nemesis]] = {}
    for name in rng.sample(list(enabled), len(enabled))[:rng.randint(1, TOGETHER_MAX)]:
        chosen.setdefault(classes[name].kind, classes[name])
    in_order = sorted(chosen.values(), key=lambda each: (each.order, CLASSES.index(each)))
    return Turn(tuple(each.name for each in in_order), seconds)


class Rotation:
    """Turns of faults against one cluster."""

    def __init__(self, backend: Backend, seed: int, emit: Emit, enabled: Sequence[str] = (),
                 hot_groups: Callable[[], Sequence[int]] = tuple,
                 turn_s: tuple[float, float] = TURN_S, calm: float = CALM):
        possible = names(sorted(backend.kinds))
        self.enabled = [name for name in possible if not enabled or name in enabled]
        self.backend = backend
        self.refusals: list[str] = []
        self.turns: list[Turn] = []
        self.atlas = FaultAtlas(backend.spec.replication_factor)
        self._emit = emit
        self._turn_s, self._calm = turn_s, calm
        self._schedule = random.Random(f"schedule {seed}")
        self._field = Field(backend, random.Random(f"targets {seed}"), hot_groups)

    def run(self, stop: threading.Event) -> None:
        """Run turns until ``stop`` is set; blocks the calling thread. In the end everything is
        healed, also after an error; raises ``BackendError`` when that fails."""
        try:
            while not stop.is_set():
                self.turn(draw(self._schedule, self.enabled, self._turn_s, self._calm), stop)
        finally:
            self.backend.heal_all()

    def turn(self, turn: Turn, stop: threading.Event) -> None:
        """Run one turn and heal it at its end, which ``stop`` brings forward; blocks meanwhile. A
        turn with faults begins when the damage of earlier ones is repaired, or after
        ``REPAIR_S``."""
        self.turns.append(turn)
        if turn.names and self.atlas.count:
            self._await_repairs(stop)
        end_s = time.monotonic() + turn.seconds
        begun: list[tuple[Nemesis, Strike]] = []
        try:
            for name in turn.names:
                if not stop.is_set():
                    self._begin(self._make(name), begun)
            stop.wait(max(0.0, end_s - time.monotonic()))
        finally:
            self._heal(begun)

    def _await_repairs(self, stop: threading.Event) -> None:
        """Block until no node has damaged replicas, ``stop`` is set, or ``REPAIR_S`` have passed;
        the last is added to ``refusals``."""
        begin_s = time.monotonic()
        while damaged := [node for node in self.backend.nodes()
                          if self.backend.damaged_replicas(node)]:
            waited_s = time.monotonic() - begin_s
            if waited_s > REPAIR_S:
                self.refusals.append(f"waiting: node {damaged[0]} has damaged replicas, "
                                     f"{waited_s:.0f} s after its repair began")
                return
            if stop.wait(ASK_S):
                return

    def _make(self, name: str) -> Nemesis:
        if name == BitRot.name:
            return BitRot(self._field, self.atlas)
        return next(each for each in CLASSES if each.name == name)(self._field)

    def _begin(self, nemesis: Nemesis, begun: list[tuple[Nemesis, Strike]]) -> None:
        """Plan a fault, add it to ``begun`` and begin it. The history records it first: no effect
        comes before its cause.

        An error is added to ``refusals``: after an error of planning nothing has begun, after one
        of beginning the fault may have begun halfway."""
        try:
            strike = nemesis.plan()
        except BackendError as error:
            self.refusals.append(f"{nemesis.name}: {error}")
            return
        begun.append((nemesis, strike))
        self._emit(nemesis.kind, True, strike.nodes, f"{nemesis.name}: {strike.text}")
        try:
            nemesis.begin()
        except BackendError as error:
            self.refusals.append(f"{nemesis.name}: {error}")  # the fault may have begun halfway

    def _heal(self, begun: list[tuple[Nemesis, Strike]]) -> None:
        """Heal the faults of ``begun``, the last one first, start the nodes that are down, then
        record the ends in the history.

        An error is added to ``refusals``, and the whole cluster is healed. So is a fault that does
        not end, which gets no end in the history.
        """
        for nemesis, _strike in reversed(begun):
            try:
                nemesis.heal()
            except BackendError as error:
                self.refusals.append(f"healing {nemesis.name}: {error}")
                self.backend.heal_all()
        self._start_all()
        for nemesis, strike in reversed(begun):
            if not nemesis.is_over():
                self.refusals.append(f"{nemesis.name}: does not end, the history has no end of it")
                continue
            self._emit(nemesis.kind, False, strike.nodes, f"{nemesis.name}: {nemesis.healing}")

    def _start_all(self) -> None:
        try:
            for node in self.backend.nodes():
                self.backend.start(node, START_S)
        except BackendError as error:
            self.refusals.append(f"starting: {error}")
            self.backend.heal_all()
