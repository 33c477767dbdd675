"""The environment of all parts of one node."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from multiraft.raft.multi_raft import MultiRaft
from multiraft.storage.settings import RELAXED
from multiraft.storage.store import Store
from node.clock import monotonic_ms
from node.config import NodeConfig
from node.loop.disk_space import Space
from node.loop.loop_handle import LoopHandle
from node.loop.poller import Poller
from node.loop.turns import Turns
from node.observability.phase import Life
from node.peers.security import Security

if TYPE_CHECKING:
    import random


@dataclass(frozen=True, slots=True)
class NodeEnv:
    """Objects that parts of every subject use."""

    config: NodeConfig
    log: logging.Logger
    life: Life
    security: Security
    store: Store
    space: Space
    core: MultiRaft
    loop: LoopHandle
    poller: Poller
    turns: Turns


def build_env(config: NodeConfig, store: Store, security: Security, log: logging.Logger,
              life: Life, rng: random.Random) -> NodeEnv:
    """Reserve disk space if there is enough, and build the consensus core on a recovered store.
    Without enough the node is built all the same, and refuses records. Raises ``OSError`` for any
    other error of the disk."""
    space = Space(config.data_dir, config.storage.reserved_bytes, log, store)
    space.open()
    store.relaxed = config.storage.durability == RELAXED
    core = MultiRaft(config.node.id, config.raft, store, rng, monotonic_ms(), store.boot_epoch)
    return NodeEnv(config, log, life, security, store, space, core, LoopHandle(), Poller(),
                   Turns(config.limits.turn_rows_max))
