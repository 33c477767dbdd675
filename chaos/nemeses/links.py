"""What happens to packets: cut, lost, late, answered with a reset."""

from __future__ import annotations

from chaos.backends.backend import CLIENTS, DELAY, LOSS, PARTITION, RESET, Delay, all_links
from chaos.nemeses import grudges
from chaos.nemeses.nemesis import LEADER, MINORITY, ONE, Nemesis, Strike


class _Partition(Nemesis):
    kind = PARTITION

    def heal(self) -> None:
        self.backend.cut(())


class Halves(_Partition):
    """A majority and a minority."""

    name = "halves"

    def begin(self) -> Strike:
        cut = grudges.halves(self.rng, self.backend.nodes())
        self.backend.cut(cut)
        return Strike(_nodes(cut), f"halves: {_text(cut)}")


class Alone(_Partition):
    """One node without the others; at times without the clients as well."""

    name = "alone"

    def begin(self) -> Strike:
        node, = self.field.aim(ONE, LEADER)
        cut = grudges.alone(node, self.backend.nodes())
        everywhere = self.rng.random() < 0.3
        if everywhere:
            cut |= grudges.from_clients([node])
        self.backend.cut(cut)
        return Strike([node], "hears no node" + " and no client" * everywhere)


class Bridge(_Partition):
    """Two halves and one that hears both."""

    name = "bridge"

    def begin(self) -> Strike:
        cut = grudges.bridge(self.rng, self.backend.nodes())
        self.backend.cut(cut)
        return Strike(_nodes(cut), f"bridge: {_text(cut)}")


class Ring(_Partition):
    """Every node hears another majority."""

    name = "ring"

    def begin(self) -> Strike:
        cut = grudges.majorities_ring(self.rng, self.backend.nodes())
        self.backend.cut(cut)
        return Strike(_nodes(cut), f"ring of majorities: {_text(cut)}")


class OneWay(_Partition):
    """A node that speaks and does not hear, or hears and is not heard."""

    name = "one-way"

    def begin(self) -> Strike:
        node, = self.field.aim(ONE, LEADER)
        shape = self.rng.choice((grudges.deaf, grudges.mute))
        self.backend.cut(shape(node, self.backend.nodes()))
        return Strike([node], f"is {shape.__name__}")


class NoClients(_Partition):
    """Nodes that no client reaches, while they hear each other."""

    name = "no-clients"

    def begin(self) -> Strike:
        nodes = self.field.aim(ONE, LEADER, MINORITY)
        self.backend.cut(grudges.from_clients(nodes))
        return Strike(nodes, "reached by no client")


class Loss(Nemesis):
    """Single packets are lost."""

    name, kind = "loss", LOSS

    def begin(self) -> Strike:
        nodes = self.backend.nodes()
        probability = self.rng.choice((0.01, 0.05, 0.2))
        self.backend.lose(all_links(nodes, [*nodes, CLIENTS]), probability)
        return Strike(nodes, f"each packet is lost with probability {probability}")

    def heal(self) -> None:
        self.backend.lose((), 0.0)


class LatePackets(Nemesis):
    """Packets come late, all by the same or each by its own, so that they overtake each other."""

    name, kind = "delay", DELAY

    def begin(self) -> Strike:
        nodes = self.backend.nodes()
        chosen = self.field.aim(ONE, LEADER, MINORITY)
        delay = self.rng.choice((Delay(30, 10), Delay(60, 50, reorder=True), Delay(150, 100),
                                 Delay(10, 10, reorder=True)))
        self.backend.delay(all_links(chosen, nodes), delay)
        return Strike(chosen, f"packets wait {delay.ms} ms, give or take {delay.jitter_ms} ms"
                      + ", and overtake each other" * delay.reorder)

    def heal(self) -> None:
        self.backend.delay((), None)


class Resets(Nemesis):
    """Connections end with a reset and are refused."""

    name, kind = "resets", RESET

    def begin(self) -> Strike:
        nodes = self.field.aim(ONE, LEADER)
        others = self.rng.choice(([CLIENTS], self.backend.nodes()))
        self.backend.reset(all_links(nodes, others))
        return Strike(nodes, "connections with " + ("clients" if others == [CLIENTS] else "nodes")
                      + " are reset")

    def heal(self) -> None:
        self.backend.reset(())


def _nodes(cut: grudges.Grudge) -> list[int]:
    return sorted({link.target for link in cut} | {link.source for link in cut})


def _text(cut: grudges.Grudge) -> str:
    """Who does not hear whom."""
    silent: dict[int, list[int]] = {}
    for link in sorted(cut):
        silent.setdefault(link.target, []).append(link.source)
    return ", ".join(f"{node} does not hear {' '.join(map(str, sorted(sources)))}"
                     for node, sources in sorted(silent.items()))
