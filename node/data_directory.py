"""The data directory of a node that starts, or is worked on while it does not run.

Contract.  ``open_store`` takes the lock, claims a boot epoch and recovers.  ``draw_life`` is the
number of one life, which its directory keeps.  ``mark_refused`` keeps a refusal in the directory;
``clear_refusal`` takes the mark away, on a directory that is not in use.  All of them block.
"""

from __future__ import annotations

import logging
import secrets
from pathlib import Path

from multiraft.liveness.peer_identity import DURABLE, Life
from multiraft.storage import identity, refusal
from multiraft.storage.errors import StorageError
from multiraft.storage.filesystem import RealFilesystem
from multiraft.storage.identity import Identity
from multiraft.storage.recovery.report import Progress
from multiraft.storage.refusal import Mark
from multiraft.storage.store import LOCK_FILE, Store
from node import setup
from node.clock import wall_ms
from node.config import NodeConfig, load
from node.errors import BadDirectory
from node.loop.disk_space import RESERVE_FILE, is_full

#: The numbers of one life grow by random steps up to this: so they say which came first, and leave
#: room for 2^28 of them, one each 10 s for 85 years.
_STEP_MAX = 1 << 34


def draw_life() -> int:
    """A random number that no other life has."""
    return DURABLE | secrets.randbits(62)


def renew_life(config: NodeConfig) -> tuple[Life, ...]:
    """Give the life that runs another number; all lives.  Raises ``StorageError``, ``OSError``."""
    return identity.renew(RealFilesystem(), str(config.data_dir),
                          1 + secrets.randbelow(_STEP_MAX))


def open_store(config: NodeConfig, life: int = 0, progress: Progress | None = None) -> Store:
    """Raises ``BadDirectory``.  ``life`` 0: it is not to meet other nodes.  On a disk without any
    room the reserve makes some."""
    who = Identity(config.cluster_id, config.node.id, life=life)

    def opened() -> Store:
        return Store.open(str(config.data_dir), RealFilesystem(), who, progress=progress)
    try:
        try:
            return opened()
        except OSError as error:
            reserve = config.data_dir / RESERVE_FILE
            if not is_full(error) or not reserve.exists():
                raise
            reserve.unlink()
            return opened()
    except (StorageError, OSError) as error:
        raise BadDirectory(f"cannot open the data directory {config.data_dir}: {error}") from error


def mark_refused(directory: str, log: logging.Logger, reason: str, life: Life) -> None:
    """The directory must not be started again.  A disk that does not take the mark changes nothing
    about that: the node ends, and its peers refuse the next life as they refused this one."""
    try:
        refusal.write(RealFilesystem(), directory, Mark(reason, life, wall_ms()))
    except OSError as error:
        log.error("the refusal could not be kept", extra={"reason": str(error)})


def refused_before(config_path: Path) -> tuple[NodeConfig, Mark | None]:
    """What the configuration's data directory was refused for, if it was.  Raises
    ``NodeError``."""
    config = load(config_path)
    return config, setup.mark_of(RealFilesystem(), config)


def clear_refusal(config: NodeConfig, mark: Mark) -> None:
    """Let the data directory start again.  Raises ``BadDirectory``."""
    filesystem, directory = RealFilesystem(), str(config.data_dir)
    try:
        lock = filesystem.lock(f"{directory}/{LOCK_FILE}")
        try:
            refusal.clear(filesystem, directory, mark)
        finally:
            lock.close()
    except (StorageError, OSError) as error:
        raise BadDirectory(f"cannot clear the refusal of {directory}: {error}") from error
