"""Installation of a snapshot of the metadata group that was downloaded.

Contract. ``install`` replaces state and log of this node's replica, unless the core needs the
snapshot no longer. The thread that decodes, the checkpoints and their lock are the driver's.

Invariants. The installation is one synchronous step of the loop, its durable checkpoint included:
nothing can happen to the group between the check that it may be installed and the end, and no other
part observes it before it is durable. This stalls the loop for one small file, once per snapshot.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Generic, Protocol

from multiraft.types import METADATA_GROUP
from node.replicas.snapshot_state import DecodedSnapshot, State, decode

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.storage.chunked_cbor import Encoded
    from multiraft.storage.snapshot_download import PartialSnapshot
    from multiraft.storage.store import Store


class SynchronousCheckpoints(Protocol):
    """Writer of the node's checkpoints."""

    @property
    def alone(self) -> AbstractAsyncContextManager[Any]:
        """Lock that is held while a checkpoint is written."""

    def write_now(self, metadata: Encoded) -> None:
        """Write a durable checkpoint before returning, with this encoded metadata; the caller
        holds ``alone``. Raises ``DiskFailed``."""


class SnapshotInstaller(Generic[State]):
    """Installation of snapshots on one node."""

    def __init__(self, core: MultiRaft, store: Store, checkpoints: SynchronousCheckpoints,
                 restore: Callable[[Any], State], adopt: Callable[[State], None],
                 on_thread: Callable[..., Awaitable[Any]], request_round: Callable[[], None],
                 installed: Callable[[PartialSnapshot], None]):
        """``restore`` creates metadata from the values of their ``snapshot``; ``adopt`` makes them
        this node's, without effect on other parts. ``installed`` is called after each snapshot that
        took effect."""
        self._core = core
        self._store = store
        self._checkpoints = checkpoints
        self._restore = restore
        self._adopt = adopt
        self._on_thread = on_thread
        self._request_round = request_round
        self._on_installed = installed

    async def install(self, download: PartialSnapshot) -> None:
        """Install a whole snapshot, unless it is no longer needed or the core cannot take it now.
        Raises ``Malformed`` or ``CodecError`` for bytes that are no snapshot, ``DiskFailed`` if the
        checkpoint cannot be written."""
        snapshot: DecodedSnapshot[State] = await self._on_thread(decode, download, self._restore)
        async with self._checkpoints.alone:
            # The core knows nothing of the writes of a replica that was removed before this one.
            if not (self._store.is_tombstone_durable(METADATA_GROUP) and self._core.may_install(
                    METADATA_GROUP, download.index, download.term)):
                self._request_round()
                return  # no longer needed, or possible at the next offer
            # No await in this block: the group must not change until the checkpoint is durable.
            replica = (snapshot.bounds, snapshot.configuration_index, snapshot.configuration,
                       snapshot.partition_states)
            self._store.install(METADATA_GROUP, *replica)
            self._adopt(snapshot.state)
            self._checkpoints.write_now(snapshot.encoded)
            self._core.install_snapshot(METADATA_GROUP, *replica)
        self._on_installed(download)
        self._request_round()
