"""Nemeses of links: packets that are cut, lost, delayed, or answered with a reset."""

from __future__ import annotations

from chaos import faults
from chaos.backends.backend import CLIENTS, DELAY, LOSS, PARTITION, RESET, Delay, all_links
from chaos.nemeses import grudges
from chaos.nemeses.nemesis import LEADER, MINORITY, ONE, Field, Nemesis, Strike


class _Partition(Nemesis):
    kind = PARTITION

    def __init__(self, field: Field):
        super().__init__(field)
        self._cut: grudges.Grudge = frozenset()

    def begin(self) -> None:
        self.backend.cut(self._cut)

    def heal(self) -> None:
        self.backend.cut(())


class Halves(_Partition):
    """A majority and a minority."""

    name = faults.HALVES.nemesis

    def plan(self) -> Strike:
        self._cut = grudges.halves(self.rng, self.backend.nodes())
        return Strike(_nodes(self._cut), f"halves: {_text(self._cut)}")


class Alone(_Partition):
    """One node without the others; at times without the clients as well."""

    name = faults.ALONE.nemesis

    def plan(self) -> Strike:
        node, = self.field.aim(ONE, LEADER)
        self._cut = grudges.alone(node, self.backend.nodes())
        everywhere = self.rng.random() < 0.3
        if everywhere:
            self._cut |= grudges.from_clients([node])
        return Strike([node], "hears no node" + " and no client" * everywhere)


class Bridge(_Partition):
    """Two halves and one that hears both."""

    name = faults.BRIDGE.nemesis

    def plan(self) -> Strike:
        self._cut = grudges.bridge(self.rng, self.backend.nodes())
        return Strike(_nodes(self._cut), f"bridge: {_text(self._cut)}")


class Ring(_Partition):
    """Every node hears another majority."""

    name = faults.RING.nemesis

    def plan(self) -> Strike:
        self._cut = grudges.majorities_ring(self.rng, self.backend.nodes())
        return Strike(_nodes(self._cut), f"ring of majorities: {_text(self._cut)}")


class OneWay(_Partition):
    """A node that speaks and does not hear, or hears and is not heard."""

    name = faults.ONE_WAY.nemesis

    def plan(self) -> Strike:
        node, = self.field.aim(ONE, LEADER)
        shape = self.rng.choice((grudges.deaf, grudges.mute))
        self._cut = shape(node, self.backend.nodes())
        return Strike([node], f"is {shape.__name__}")


class NoClients(_Partition):
    """Nodes that no client reaches, while they hear each other."""

    name = faults.NO_CLIENTS.nemesis

    def plan(self) -> Strike:
        nodes = self.field.aim(ONE, LEADER, MINORITY)
        self._cut = grudges.from_clients(nodes)
        return Strike([CLIENTS, *nodes], "reached by no client")


class Loss(Nemesis):
    """Single packets are lost."""

    name, kind = "loss", LOSS

    def plan(self) -> Strike:
        self.nodes = self.backend.nodes()
        self._probability = self.rng.choice((0.01, 0.05, 0.2))
        return Strike(self.nodes, f"each packet is lost with probability {self._probability}")

    def begin(self) -> None:
        self.backend.lose(all_links(self.nodes, [*self.nodes, CLIENTS]), self._probability)

    def heal(self) -> None:
        self.backend.lose((), 0.0)


class LatePackets(Nemesis):
    """Packets come late, all by the same or each by its own, so that they overtake each other."""

    name, kind = faults.DELAY.nemesis, DELAY

    def plan(self) -> Strike:
        self.nodes = self.field.aim(ONE, LEADER, MINORITY)
        delay = self._delay = self.rng.choice(
            (Delay(30, 10), Delay(60, 50, reorder=True), Delay(150, 100),
             Delay(10, 10, reorder=True)))
        return Strike(self.nodes, f"packets wait {delay.ms} ms, give or take {delay.jitter_ms} ms"
                      + ", and overtake each other" * delay.reorder)

    def begin(self) -> None:
        self.backend.delay(all_links(self.nodes, self.backend.nodes()), self._delay)

    def heal(self) -> None:
        self.backend.delay((), None)


class Resets(Nemesis):
    """Connections end with a reset and are refused."""

    name, kind = faults.RESETS.nemesis, RESET

    def plan(self) -> Strike:
        self.nodes = self.field.aim(ONE, LEADER)
        whom, self._others = self.rng.choice(
            (("clients", [CLIENTS]), ("nodes", self.backend.nodes())))
        touched = [CLIENTS] if self._others == [CLIENTS] else []
        return Strike([*touched, *self.nodes], f"connections with {whom} are reset")

    def begin(self) -> None:
        self.backend.reset(all_links(self.nodes, self._others))

    def heal(self) -> None:
        self.backend.reset(())


def _nodes(cut: grudges.Grudge) -> list[int]:
    return sorted({link.target for link in cut} | {link.source for link in cut})


def _text(cut: grudges.Grudge) -> str:
    """Return the cut links as text: which node does not hear which others."""
    silent: dict[int, list[int]] = {}
    for link in sorted(cut):
        silent.setdefault(link.target, []).append(link.source)
    return ", ".join(f"{node} does not hear {' '.join(map(str, sorted(sources)))}"
                     for node, sources in sorted(silent.items()))
