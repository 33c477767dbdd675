"""Group 0 of a simulated node: a replicated state machine with a compacted log and snapshots.

Contract.  Part of ``node.SimulatedNode``, as in ``node/replicas/snapshots.py``.  The state goes
into each checkpoint.  Consensus compacts all but the newest commands that a checkpoint holds.  A
replica that lacks compacted commands is offered a snapshot, pulls it in chunks that may be lost,
and installs it as one checkpoint before the core learns of it.

Invariants.  The state of every replica, applied, recovered or installed, is that of the committed
commands up to the same index (``oracle.command_oracle``).
"""

from __future__ import annotations

import contextlib
import marshal
from typing import NamedTuple

from chaos.simulator.node.peers import PeerTable
from chaos.simulator.oracle import metadata_oracle
from chaos.simulator.oracle.command_oracle import CommandState
from multiraft import core
from multiraft.errors import ProposalError
from multiraft.partitions.state import PartitionStates
from multiraft.raft import snapshot
from multiraft.raft.log_reader import LogBounds
from multiraft.storage.disk_space import is_full
from multiraft.storage.errors import CorruptRange
from multiraft.types import METADATA_GROUP, Configuration, EntryKind

#: An image is served unchanged while its last request is at most so old.
SNAPSHOT_KEPT_MS = 2_000
#: Commands that stay in the log for a replica that catches up: few, so that it sometimes needs a
#: snapshot all the same.
COMMANDS_HELD_MAX = 50
#: Maximum number of chunks of an image; chunks grow beyond the drawn size for large metadata.
CHUNKS_MAX = 64
#: Retry interval of an installation while the disk is busy.
INSTALL_PAUSE_US = 1_000


class UnreadableCommand(Exception):
    """A committed command is damaged, so the round fails and the process ends."""


class MetadataSnapshot(NamedTuple):
    """Encoded state at one index; it never changes."""

    bounds: LogBounds
    data: bytes


class ChunkRequest(NamedTuple):
    """Request of a follower: the image of ``index`` from ``offset``; 0, 0 = any image from its
    start.
    """

    index: int
    offset: int


class Chunk(NamedTuple):
    """Reply of the leader; ``total`` 0 = it has no image to give."""

    index: int
    term: int
    total: int
    crc: int
    offset: int
    data: bytes


class Download(NamedTuple):
    """Part of an image that has arrived."""

    index: int
    term: int
    total: int
    crc: int
    data: bytes


class MetadataReplica(PeerTable):
    """Part of ``SimulatedNode``: the replica of group 0."""

    # ---- commands --------------------------------------------------------------------------

    def command(self, command: bytes) -> None:
        """Schedule the proposal of a command, which only the leader of group 0 makes; no-op while
        the node is down or paused."""
        if self.is_up and not self.paused:
            self.later(0, self._command, command)

    def _command(self, command: bytes) -> None:
        with contextlib.suppress(ProposalError):
            self._raft.propose(METADATA_GROUP, EntryKind.METADATA, command)
        self.request_round()

    def _restore_state(self) -> None:
        """Restore the state from the newest checkpoint, if there is one, and compare it with the
        committed commands. Raises ``Violation``."""
        if self._store.extra:
            self._take_state(self._store.extra)
        if METADATA_GROUP in self._store.groups:
            applied = self._store.groups[METADATA_GROUP].applied
            self._world.oracle.check(self.node, self.state, max(applied, self.state.version))
            self._world.oracle.metadata.check(self.node, self.metadata)

    def extra(self) -> list:
        """Return the state of group 0 as a checkpoint and a snapshot hold it: [version, chain,
        encoded metadata]."""
        return [*self.state, metadata_oracle.encoded(self.metadata)]

    def _take_state(self, extra: list) -> None:
        version, chain, encoded = extra
        self.state, self.metadata = (
            CommandState(version, bytes(chain)), metadata_oracle.decoded(encoded))

    def _place_for(self, partition: int, seen_index: int) -> metadata_oracle.Location:
        """Return the location of a topic's partition by this node's metadata.  Raises
        ``NoSuchPartition``, and ``StaleMetadata`` when they are older than ``seen_index``."""
        return metadata_oracle.place_for(self.metadata, partition, seen_index)

    def _accepts(self, partition: int, group: int) -> None:
        """Report to the oracle that a batch is about to be appended to a topic's partition in a
        group. Raises ``Violation`` if the metadata do not allow it."""
        self._world.oracle.metadata.accepted(self.node, self.metadata, partition, group)

    def _apply_commands(self, first: int, last: int) -> None:
        entries = self._store.entries(METADATA_GROUP, first, last)
        if entries is None:
            try:
                entries = self._store.read_job(METADATA_GROUP, first, last).execute()
            except CorruptRange as error:
                raise UnreadableCommand(str(error)) from error
        for entry in entries:
            if entry.kind == EntryKind.METADATA and entry.index > self.state.version:
                command = bytes(entry.payload)
                self.state = self.state.after(entry.index, command)
                if metadata_oracle.is_command(command):
                    result = metadata_oracle.apply(self.metadata, entry.index, command)
                    self._command_applied(entry.index, entry.term, result)
        self._metadata_applied()
        # A replica that was removed and added again applies commands that this node's state has.
        self._world.oracle.check(self.node, self.state, max(last, self.state.version))

    def command_unreadable(self, error: UnreadableCommand) -> None:
        """End the process because a committed command is damaged, and schedule its start; the next
        recovery finds the damage."""
        self._trace.line(self.node, METADATA_GROUP, "unreadable", str(error))
        self.crash(False)
        self._restart_soon()

    # ---- checkpoints and compaction --------------------------------------------------------

    def compact(self, applied: int) -> None:
        """Compact the commands up to ``applied``, which a checkpoint holds; no-op when this replica
        has not applied so many, or is gone.

        The newest commands stay, and those that a replica needs which catches up.
        """
        if (METADATA_GROUP not in self._raft.status.groups()
                or applied > self._raft.status.applied_index(METADATA_GROUP)):
            return  # the checkpoint may be of a replica that was removed meanwhile
        first_index = snapshot.log_start(applied, self._world.parameters.commands_kept,
                                         COMMANDS_HELD_MAX, self._needed_from())
        if first_index > 1:
            self._raft.compacted(METADATA_GROUP, first_index)

    def _needed_from(self) -> int:
        needed = self._raft.needed_from(METADATA_GROUP)
        if self._snapshot is not None and self.now_ms - self._snapshot[1] <= SNAPSHOT_KEPT_MS:
            needed = min(needed, self._snapshot[0].bounds.last_index + 1)
        return needed

    # ---- serving ---------------------------------------------------------------------------

    def _serve_state(self, sender: int, request: ChunkRequest) -> None:
        if (METADATA_GROUP not in self._raft.status.groups()
                or self._raft.status.of(METADATA_GROUP).quarantined):
            self._send_bulk(sender, Chunk(0, 0, 0, 0, 0, b""))
            return
        image = self._snapshot
        first_index = self._raft.status.of(METADATA_GROUP).first_index
        if image is None or (image[0].bounds.last_index != request.index
                             and (self.now_ms - image[1] > SNAPSHOT_KEPT_MS
                                  or image[0].bounds.last_index < first_index - 1)):
            image = (self._take_snapshot(), 0)
        self._snapshot = (image[0], self.now_ms)
        bounds, data = image[0]
        offset = request.offset
        if bounds.last_index != request.index or offset > len(data):
            offset = 0
        size = max(self._world.parameters.snapshot_chunk_bytes, len(data) // CHUNKS_MAX)
        self._send_bulk(sender, Chunk(bounds.last_index, bounds.prev_term, len(data),
                                      core.crc32c(data), offset, data[offset:offset + size]))

    def _take_snapshot(self) -> MetadataSnapshot:
        bounds, index, configuration = self._raft.snapshot_point(METADATA_GROUP)
        tail = self._store.partition_states[METADATA_GROUP]
        return MetadataSnapshot(
            bounds,
            marshal.dumps([index, [*map(list, configuration)], tail.snapshot(), self.extra()]),
        )

    # ---- fetching --------------------------------------------------------------------------

    def snapshot_offered(self, leader: int) -> None:
        """Request the next chunk of an image from ``leader``, which has compacted the entries that
        this replica needs."""
        self._world.faults["snapshot-offered"] += 1
        known = self._download
        self._send_bulk(leader, ChunkRequest(known.index, len(known.data)) if known
                        else ChunkRequest(0, 0))

    def _take_chunk(self, sender: int, chunk: Chunk) -> None:
        if not chunk.total or self._installing:
            return
        known = self._download
        if known is None or known[:4] != chunk[:4]:
            # The chunk is of another image, perhaps of the same index but from another leader, so
            # the download starts again.
            known = self._download = Download(*chunk[:4], b"")
        if chunk.offset != len(known.data):
            return  # a duplicate or late chunk; the next offer leads to a new request
        known = self._download = known._replace(data=known.data + chunk.data)
        if len(known.data) < known.total:
            self._send_bulk(sender, ChunkRequest(known.index, len(known.data)))
        else:
            self._installing = True
            self._install(known)

    def _install(self, whole: Download) -> None:
        """Install an image in one step of the loop, as soon as the disk is idle; drop it when the
        core needs it no longer."""
        if not self._disk.is_idle:
            self.later(INSTALL_PAUSE_US, self._install, whole)
            return
        self._installing, self._download = False, None
        if not self._raft.may_install(METADATA_GROUP, whole.index, whole.term):
            self.request_round()  # no longer needed, or possible only after the next offer
            return
        index, configuration, tail, state = marshal.loads(whole.data)
        members = Configuration(*map(tuple, configuration))
        restored = PartitionStates.restore(tail)
        bounds = LogBounds(whole.index + 1, whole.term, whole.index)
        self._effect()
        self._state_checker.installing(self.node, METADATA_GROUP, whole.index, whole.term)
        self._store.install(METADATA_GROUP, bounds, index, members, restored)
        self._take_state(state)
        self._world.oracle.check(self.node, self.state, whole.index)
        self._world.oracle.metadata.check(self.node, self.metadata)
        if not self._checkpoint_now():
            return
        self._metadata_applied()
        self._state_checker.installed(self.node, METADATA_GROUP)
        self._raft.install_snapshot(METADATA_GROUP, bounds, index, members, restored)
        self._world.faults["snapshot-installed"] += 1
        self._trace.line(self.node, METADATA_GROUP, "snapshot_installed", str(whole.index))
        self.request_round()

    def _checkpoint_now(self) -> bool:
        """Write a checkpoint at once, like ``Checkpoints.write_now``, and return True. False = the
        disk failed and the node has ended.

        On a full disk the reserve is released and the write is tried once more. An armed crash may
        strike between any two of its file operations.
        """
        job = self._store.checkpoint_job(self.commits(), self.extra())
        if self._effects_left:
            self._filesystem.operations_to_crash, self._effects_left = self._effects_left, 0
        try:
            try:
                job.execute()
            except OSError as error:
                if not is_full(error) or not self._space_guard.release_reserve():
                    raise
                job.execute()
        except OSError as error:
            self._disk.end(error)
            return False
        self._filesystem.operations_to_crash = -1
        self._store.checkpointed(job)
        return True
