"""Nodes that end, stop, or stand still."""

from __future__ import annotations

from chaos.backends.backend import KILL, PAUSE, STOP
from chaos.nemeses.nemesis import ALL, LEADER, MINORITY, ONE, Loop, Nemesis, Strike

#: How long a lease lives (``multiraft.config``): what a pause is measured by.
LEASE_MS = 600


class Kill(Nemesis):
    """SIGKILL; sometimes the node is back at once, sometimes it stays away for the turn."""

    name, kind, order = "kill", KILL, 0

    def begin(self) -> Strike:
        nodes = self.field.aim(ONE, LEADER, MINORITY, ALL)
        for node in nodes:
            self.backend.kill(node)
        back = self.rng.random() < 0.5
        if back:
            for node in nodes:
                self.backend.start(node)
        return Strike(nodes, "killed and started again" if back else "killed")


class Stop(Nemesis):
    """SIGTERM: leadership is handed over first."""

    name, kind, order = "stop", STOP, 0

    def begin(self) -> Strike:
        nodes = self.field.aim(ONE, LEADER, MINORITY)
        for node in nodes:
            self.backend.stop(node)
        return Strike(nodes, "stopped")


class RollingRestart(Nemesis):
    """Every node once, without waiting until the one before has caught up."""

    name, kind, order = "rolling-restart", STOP, 0

    def begin(self) -> Strike:
        nodes = self.rng.sample(self.backend.nodes(), len(self.backend.nodes()))
        for node in nodes:
            self.backend.stop(node)
            self.backend.start(node)
        return Strike(sorted(nodes), f"stopped and started in the order {nodes}")


class Pause(Nemesis):
    """Nothing runs for the whole turn: long enough for everybody to have given the node up, and
    for it to wake believing what is not so any more."""

    name, kind = "pause", PAUSE

    def __init__(self, field):
        super().__init__(field)
        self._nodes: list[int] = []

    def begin(self) -> Strike:
        self._nodes = self.field.aim(ONE, LEADER, MINORITY)
        for node in self._nodes:
            self.backend.pause(node)
        return Strike(self._nodes, "paused")

    def heal(self) -> None:
        for node in self._nodes:
            self.backend.resume(node)


class ShortPauses(Loop):
    """Pauses of about a lease: just under, where nobody may notice, and just above, where the node
    wakes while its successor is being elected."""

    name, kind = "short-pauses", PAUSE

    def prepare(self) -> Strike:
        self._nodes = self.field.aim(ONE, LEADER, MINORITY)
        self._ms = self.rng.choice((LEASE_MS - 60, LEASE_MS + 100))
        return Strike(self._nodes, f"paused for {self._ms} ms again and again")

    def step(self) -> None:
        try:
            for node in self._nodes:
                self.backend.pause(node)
            self.wait(self._ms / 1000)
        finally:
            for node in self._nodes:
                self.backend.resume(node)
