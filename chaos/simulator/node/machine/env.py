"""Environment of one simulated node: what all of its parts may use, over all of its boots.

Contract.  A ``NodeEnv`` never changes; what it refers to does.  It contains no other part of the
node: those that a part needs are arguments of its constructor.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from chaos.simulator.env.clock import SkewedClock
from chaos.simulator.env.event_queue import EventQueue
from chaos.simulator.env.network import SimulatedNetwork
from chaos.simulator.env.parameters import Parameters
from chaos.simulator.env.trace import Trace
from chaos.simulator.oracle.observer import StateChecker


@dataclass(slots=True)
class NodeCounters:
    """Counters of one node over all its boots."""

    crashes: int = 0
    peer_frames: int = 0  # sent with messages of consensus, not to nodes whose disk hangs
    #: Requests to other nodes. A late reply must not match a request of the next boot.
    requests: int = 0


@dataclass(frozen=True, slots=True)
class NodeEnv:
    """Number, random stream, time, network, judges and counters of one node."""

    node: int
    rng: random.Random
    queue: EventQueue
    clock: SkewedClock
    trace: Trace
    network: SimulatedNetwork
    state_checker: StateChecker
    parameters: Parameters
    faults: Counter[str]
    event_counts: Counter[str]  # events of consensus and recovery, by kind
    counters: NodeCounters = field(default_factory=NodeCounters)

    @property
    def now_ms(self) -> int:
        """Milliseconds of the node's clock."""
        return self.clock.now_ms

    @property
    def faulty(self) -> bool:
        """True during the phase of faults."""
        return self.network.faulty

    def trace_line(self, kind: str, text: str = "", group: int = -1) -> None:
        """Write a line about the node, or a replica of it, to the trace."""
        self.trace.line(self.node, group, kind, text)
