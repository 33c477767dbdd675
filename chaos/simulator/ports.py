"""Base class of a simulated node: the attributes and methods that its parts share.

Contract.  ``node.SimulatedNode`` is one chain of classes; each class is a part, and ``Machine`` is
the root of the chain.  A part that is further up sets the attributes and implements the methods
that are declared here.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chaos.simulator.disk.disk_worker import DiskWorker
    from chaos.simulator.disk.filesystem import SimulatedFilesystem
    from chaos.simulator.env.event_queue import EventQueue
    from chaos.simulator.env.network import Network
    from chaos.simulator.env.trace import Trace
    from chaos.simulator.node.disk_and_clock import Clock
    from chaos.simulator.node.liveness import LivenessExchange
    from chaos.simulator.node.metadata_group import Download, Image, State
    from chaos.simulator.node.partition_switch import Switches
    from chaos.simulator.node.plan_controller import Planning
    from chaos.simulator.oracle.metadata_oracle import MetadataState
    from chaos.simulator.oracle.observer import StateChecker
    from chaos.simulator.simulation import Simulation
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.storage.disk_space import DiskSpaceGuard
    from multiraft.storage.errors import CorruptRange
    from multiraft.storage.repair.coordinator import RepairCoordinator
    from multiraft.storage.store import Store


class Machine:
    """Root of the classes of ``SimulatedNode``: declarations only."""

    node: int
    alive: bool
    paused: bool
    clock: Clock
    disk_hangs: bool
    rotten: bool  # bits of its disk have changed
    is_lost: bool  # its directory was wiped or put back: it is never admitted again
    identity_is_rotten: bool
    peer_frames: int
    incarnation: int  # of its directory, after the first open
    state: State
    metadata: MetadataState
    _world: Simulation
    _queue: EventQueue
    _trace: Trace
    _network: Network
    _witness: StateChecker
    _rng: random.Random
    _marks: Counter[str]
    _filesystem: SimulatedFilesystem
    _peers: tuple[int, ...]
    _life: int  # boots so far; an event of an older boot does not run
    _store: Store | None
    _raft: MultiRaft | None
    _liveness: LivenessExchange | None
    _disk: DiskWorker | None
    _repairer: RepairCoordinator | None
    _repairing: bool
    _disk_factor: int
    _room: DiskSpaceGuard
    _connected: dict[int, Any]  # peers
    _wake_ms: int | None
    _recovery_waits: bool  # until a hung disk is released
    _effects_left: int
    _rotted: list[tuple[int, int]]  # damaged journal offsets: (begin, end)
    _unscrubbed: bool
    _unmet: bool  # no recovery has read the latest damage
    _switches: Switches | None
    _planning: Planning | None
    _image: tuple[Image, int] | None  # snapshot image, and the time of its last request in ms
    _download: Download | None
    _installing: bool

    # ---- methods of the driver -------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        raise NotImplementedError

    @property
    def is_up(self) -> bool:
        raise NotImplementedError

    @property
    def faulty(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        raise NotImplementedError

    def crash(self, power: bool) -> None:
        raise NotImplementedError

    def later(self, delay_us: int, callback: Callable[..., None], *arguments: object) -> None:
        raise NotImplementedError

    def after_disk(self, delay_us: int, callback: Callable[..., None], *arguments: object) -> None:
        raise NotImplementedError

    def request_round(self) -> None:
        raise NotImplementedError

    def led_groups(self) -> list[int]:
        raise NotImplementedError

    def commits(self) -> dict[int, int]:
        raise NotImplementedError

    def peer_up(self, peer: int) -> None:
        raise NotImplementedError

    def _recover(self) -> None:
        raise NotImplementedError

    def _round(self) -> None:
        raise NotImplementedError

    def _connect(self, peer: int) -> None:
        raise NotImplementedError

    def _disconnect(self, peer: int) -> None:
        raise NotImplementedError

    def _arrived(self, handler: Callable[[int, tuple], None], sender: int, frame: tuple) -> None:
        raise NotImplementedError

    # ---- methods that parts call on each other ---------------------------------------------

    def identity_lost(self) -> None:
        raise NotImplementedError

    def _damaged(self, error: CorruptRange) -> None:
        raise NotImplementedError

    def _send_bulk(self, to: int, item: Any) -> None:
        raise NotImplementedError

    def _command_applied(self, index: int, term: int, result: Any) -> None:
        raise NotImplementedError

    def _metadata_moved(self) -> None:
        raise NotImplementedError
