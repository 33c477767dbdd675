"""A world as most are: what the speed of the simulator is measured with.

Contract.  ``ordinary(parameters)`` keeps the seed's sizes, clients and odds of its own and takes
every kind of fault, one in ``FAULT_INTERVAL_MS``, the product's limits of consensus, and a network
and disks as they mostly are, on which single frames get lost, doubled, cut and overtaken all the
same.

Theory.  Drawn limits are absurd on purpose, down to one entry per append: an edge is met more often
there, and a simulated second costs several times as much.
"""

from __future__ import annotations

import dataclasses

from chaos.simulator.parameters import (
    FAULT_KINDS,
    DiskParameters,
    NetworkParameters,
    Parameters,
    RaftParameters,
)
from multiraft.config import RaftConfig

FAULT_INTERVAL_MS, FAULT_DURATION_MS = 5000, 800
#: Every kind but ``plan``: the metadata are not told of nodes that are replaced.
KINDS = tuple(kind for kind in FAULT_KINDS if kind != "plan")

NETWORK = NetworkParameters(
    delay_min_us=200, delay_spread_us=1000, loss=0.005, duplication=0.01, item_loss=0.02,
    reorder=0.02, reorder_us=30_000)

DISK = DiskParameters(
    write_min_us=300, write_spread_us=2000, stall=0.002, stall_us=50_000,
    first_segment_bytes=32 << 10, segment_bytes_max=512 << 10, zero_ahead_bytes=16 << 10,
    tail_cache_bytes_max=1 << 20, checkpoint_bytes=64 << 10, checkpoint_growth_factor=2,
    checkpoints_kept=2, reserved_bytes=256 << 10, flush_interval_ms=0, gathers=True)

_DEFAULTS = RaftConfig()
RAFT = RaftParameters(**{field.name: getattr(_DEFAULTS, field.name)
                         for field in dataclasses.fields(RaftParameters)})


def ordinary(drawn: Parameters) -> Parameters:
    """The same seed in an ordinary world."""
    return dataclasses.replace(
        drawn, faults=KINDS, fault_interval_ms=FAULT_INTERVAL_MS,
        fault_duration_ms=FAULT_DURATION_MS, network=NETWORK, disk=DISK, raft=RAFT)
