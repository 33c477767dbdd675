"""Variant of a seed: overrides of its drawn parameters, and the command that replays it.

Contract.  ``Variant().parameters(seed)`` are the seed's own parameters.  Each field that is set
overrides one of them and leaves all others as drawn.  ``replay(seed)`` is the command that runs it
again; ``smaller`` yields the variants that are worth a try when it fails.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

from chaos.simulator.env.parameters import Parameters

#: Minimum number of nodes: with fewer, no node may fail.
NODES_MIN = 3
GROUPS_TRIED = (1, 2, 4, 8, 16, 32)


class Variant(NamedTuple):
    """Overrides; None and empty = as the seed draws it."""

    nodes: int | None = None
    groups: int | None = None
    seconds: int | None = None  # of the phase of faults
    faults: tuple[str, ...] | None = None  # the nemesis causes only these
    calm_network: bool = False  # no loss, duplication, reordering of single frames
    bug: str | None = None  # name of a planted bug

    def parameters(self, seed: int) -> Parameters:
        """Return the seed's parameters with the overrides."""
        safety_ms = self.seconds * 1000 if self.seconds is not None else None
        drawn = Parameters.draw(seed, self.nodes, self.groups, safety_ms)
        if self.faults is not None:
            drawn = dataclasses.replace(drawn, faults=self.faults)
        if self.calm_network:
            calm = dataclasses.replace(drawn.network, loss=0.0, duplication=0.0, item_loss=0.0,
                                       reorder=0.0)
            drawn = dataclasses.replace(drawn, network=calm)
        return drawn

    def replay(self, seed: int) -> str:
        """Return the command line that replays the seed in this variant and prints its trace."""
        options = [("--nodes", self.nodes), ("--groups", self.groups), ("--seconds", self.seconds),
                   ("--only-faults", ",".join(self.faults) if self.faults is not None else None),
                   ("--planted", self.bug)]
        given = "".join(f" {name} {value}" for name, value in options if value is not None)
        calm = " --calm-network" * self.calm_network
        return f"multiraft chaos sim --seed {seed}{given}{calm} --trace"

    def smaller(self, seed: int, failed_after_ms: int) -> Iterator[Variant]:
        """Yield variants that are smaller in one respect, those that save most time first; none is
        run here.

        ``failed_after_ms`` is the simulated time at which this variant failed.
        """
        now = self.parameters(seed)
        seconds = now.safety_ms // 1000
        for shorter in sorted({failed_after_ms // 1000 + 1, seconds // 2, seconds * 3 // 4}):
            if 0 < shorter < seconds:
                yield self._replace(seconds=shorter)
        for groups in GROUPS_TRIED:
            if groups < now.groups:
                yield self._replace(groups=groups)
        if now.nodes > NODES_MIN:
            yield self._replace(nodes=NODES_MIN)
        yield from self._fewer_faults(tuple(dict.fromkeys(now.faults)))
        network = now.network
        if network.loss or network.duplication or network.item_loss or network.reorder:
            yield self._replace(calm_network=True)

    def _fewer_faults(self, kinds: tuple[str, ...]) -> Iterator[Variant]:
        """Yield variants with half of the kinds of fault, then with all but one; nothing for a
        single kind."""
        if len(kinds) < 2:
            return
        half = len(kinds) // 2
        halves = [kinds[:half], kinds[half:]] if len(kinds) > 3 else []
        for fewer in [*halves, *(kinds[:at] + kinds[at + 1:] for at in range(len(kinds)))]:
            yield self._replace(faults=fewer)
