"""Nemeses of processes: nodes that are killed, stopped or paused."""

from __future__ import annotations

from chaos import faults
from chaos.backends.backend import KILL, PAUSE, STOP
from chaos.nemeses.nemesis import ALL, LEADER, MINORITY, ONE, Loop, Nemesis, Strike

#: Duration of a lease (``multiraft.raft.config``): the measure of pauses.
LEASE_MS = 600


class Kill(Nemesis):
    """SIGKILL; sometimes the node is back at once, sometimes it stays away for the turn."""

    name, kind, order = faults.KILL.nemesis, KILL, 0

    def plan(self) -> Strike:
        self.nodes = self.field.aim(ONE, LEADER, MINORITY, ALL)
        self._back = self.rng.random() < 0.5
        return Strike(self.nodes, "killed" + " and started again" * self._back)

    def begin(self) -> None:
        for node in self.nodes:
            self.backend.kill(node)
        if self._back:
            for node in self.nodes:
                self.backend.start(node)


class Stop(Nemesis):
    """SIGTERM: leadership is transferred first."""

    name, kind, order = faults.STOP.nemesis, STOP, 0

    def plan(self) -> Strike:
        self.nodes = self.field.aim(ONE, LEADER, MINORITY)
        return Strike(self.nodes, "stopped")

    def begin(self) -> None:
        for node in self.nodes:
            self.backend.stop(node)


class RollingRestart(Nemesis):
    """Every node is restarted once, without waiting until the previous one has caught up."""

    name, kind, order = "rolling-restart", STOP, 0

    def plan(self) -> Strike:
        nodes = self.backend.nodes()
        self.nodes = self.rng.sample(nodes, len(nodes))
        return Strike(sorted(nodes), f"stopped and started in the order {self.nodes}")

    def begin(self) -> None:
        for node in self.nodes:
            self.backend.stop(node)
            self.backend.start(node)


class Pause(Nemesis):
    """The node is paused for the whole turn: long enough for all others to have replaced it, so
    that it wakes with an outdated view."""

    name, kind = faults.PAUSE.nemesis, PAUSE

    def plan(self) -> Strike:
        self.nodes = self.field.aim(ONE, LEADER, MINORITY)
        return Strike(self.nodes, "paused")

    def begin(self) -> None:
        for node in self.nodes:
            self.backend.pause(node)

    def heal(self) -> None:
        for node in self.nodes:
            self.backend.resume(node)


class ShortPauses(Loop):
    """Pauses of about a lease: just below, where the other nodes may not notice, and just above,
    where the node wakes while its successor is being elected."""

    name, kind = "short-pauses", PAUSE

    def plan(self) -> Strike:
        self.nodes = self.field.aim(ONE, LEADER, MINORITY)
        self._ms = self.rng.choice((LEASE_MS - 60, LEASE_MS + 100))
        return Strike(self.nodes, f"paused for {self._ms} ms again and again")

    def step(self) -> None:
        try:
            for node in self.nodes:
                self.backend.pause(node)
            self.wait(self._ms / 1000)
        finally:
            for node in self.nodes:
                self.backend.resume(node)
