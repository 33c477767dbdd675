"""The data directory of a node that starts, or of one that is offline.

Contract. ``open_store`` takes the lock, claims a boot epoch and recovers. ``draw_process_number``
draws the number of a boot id, which the directory keeps. ``record_refusal`` records a refusal in
the directory; ``clear_refusal`` removes the record from a directory that is not in use. All
functions block.
"""

from __future__ import annotations

import logging
import secrets
from pathlib import Path

from multiraft.liveness.peer_identity import DURABLE, BootId
from multiraft.storage import identity, refusal_record
from multiraft.storage.errors import StorageError
from multiraft.storage.filesystem import RealFilesystem
from multiraft.storage.identity import Identity
from multiraft.storage.recovery.report import RecoveryProgress
from multiraft.storage.refusal_record import RefusalRecord
from multiraft.storage.store import LOCK_FILE, Store
from node import setup
from node.clock import wall_ms
from node.config import NodeConfig, load
from node.errors import BadDirectory
from node.loop.disk_space import RESERVE_FILE, is_full

#: The numbers of one boot grow by random steps up to this. So they are ordered in time, and there
#: is room for 2^28 of them: one each 10 s for 85 years.
_STEP_MAX = 1 << 34


def draw_process_number() -> int:
    """Return the random number of a new boot id, which no other boot has."""
    return DURABLE | secrets.randbits(62)


def renew_boot_id(config: NodeConfig) -> tuple[BootId, ...]:
    """Give the running boot a new number, durably. Return all boot ids of the directory, the new
    one last. Raises ``StorageError`` or ``OSError`` if the identity file cannot be read or
    written."""
    return identity.renew(RealFilesystem(), str(config.data_dir),
                          1 + secrets.randbelow(_STEP_MAX))


def open_store(config: NodeConfig, process: int = 0,
               progress: RecoveryProgress | None = None) -> Store:
    """Lock and recover the data directory, as a new boot with the number ``process``. 0: the store
    is used offline and never meets other nodes. On a full disk the reserve is freed first. Raises
    ``BadDirectory`` if it cannot be opened, for any reason that ``Store.open`` names."""
    who = Identity(config.cluster_id, config.node.id, process=process)

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


def record_refusal(directory: str, log: logging.Logger, reason: str, boot_id: BootId) -> None:
    """Record in the directory that it must not be started again. If the disk does not take the
    record, the node stops nevertheless, and its peers refuse the next start as they refused this
    one."""
    try:
        refusal_record.write(RealFilesystem(), directory, RefusalRecord(reason, boot_id, wall_ms()))
    except OSError as error:
        log.error("refusal_record_failed", extra={"reason": str(error)})


def refused_before(config_path: Path) -> tuple[NodeConfig, RefusalRecord | None]:
    """Return the configuration, and the refusal that its data directory records; None = it was not
    refused. Raises ``NodeError`` if one of them cannot be read."""
    config = load(config_path)
    return config, setup.refusal_record_of(RealFilesystem(), config)


def clear_refusal(config: NodeConfig, record: RefusalRecord) -> None:
    """Allow the data directory to start again. Raises ``BadDirectory`` if it is in use, or cannot
    be read or written."""
    filesystem, directory = RealFilesystem(), str(config.data_dir)
    try:
        lock = filesystem.lock(f"{directory}/{LOCK_FILE}")
        try:
            refusal_record.clear(filesystem, directory, record)
        finally:
            lock.close()
    except (StorageError, OSError) as error:
        raise BadDirectory(f"cannot clear the refusal of {directory}: {error}") from error
