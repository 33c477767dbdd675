"""Damage of a simulated node: found by a scrub or a read, and repaired as in the real node.

Contract.  Part of ``node.SimulatedNode``, which supplies the store, the core, the disk and the
network.  A node that was never damaged must find no damage.  A damaged node is whole again when a
scrub has read its journal and no replica is under repair.
"""

from __future__ import annotations

from collections.abc import Iterator
from os.path import basename

from chaos.simulator.disk.corruption import Misdirected, Place, durable_places
from chaos.simulator.disk.disk_worker import Flight
from chaos.simulator.env.violations import Violation
from chaos.simulator.node.metadata_group import Chunk, ChunkRequest
from chaos.simulator.node.peers import DIRECTORY
from chaos.simulator.node.rebalance import MoveServices, PeerReply, PeerRequest
from multiraft.storage.checkpoint import checkpoint_names
from multiraft.storage.errors import CorruptFile, CorruptRange
from multiraft.storage.identity import NODE_FILE
from multiraft.storage.io_jobs import StagedWrite
from multiraft.storage.repair.coordinator import (
    RepairRequest,
    RepairResponse,
    ReplayEntries,
    SendRequest,
)
from multiraft.storage.repair.scrub import Scrubber
from multiraft.storage.strays import SEGMENT_SUFFIX
from multiraft.types import Entry

#: Delay of a scrub after bit rot, or after the start of a damaged node.
SCRUB_US = 200_000
#: Interval of the steps of repair.
REPAIR_US = 50_000


class DamageRepair(MoveServices):
    """Part of ``SimulatedNode``: damage and its repair."""

    def durable_places(self) -> list[Place]:
        """Return the entries of this node's journal whose damage must be found: those that later
        ones prove durable."""
        return durable_places(self._filesystem.images(f"{DIRECTORY}/lane-0", ".segment"))

    def rot(self, path: str, at: int, bit: int) -> None:
        """Flip a bit of a file on this node's disk, and note it as damage that is still to be
        found."""
        self.rotten = self._unscrubbed = self._unread_damage = True
        self._note_rotted(path, at, 1)
        self._filesystem.flip(path, at, bit)

    def _note_rotted(self, path: str, at: int, length: int) -> None:
        if path.endswith(SEGMENT_SUFFIX):
            begin = int(basename(path).removesuffix(SEGMENT_SUFFIX)) + at
            self._rotted.append((begin, begin + length))

    def rot_beside(self, path: str, at: int, bit: int) -> None:
        """Flip a bit of a file that can be rebuilt.

        No damage may be found for it, but the next recovery may know less of older damage.
        """
        self._unread_damage |= self.rotten
        self._filesystem.flip(path, at, bit)

    def index_files(self) -> dict[str, bytes]:
        """Return path -> durable contents of the index files that are not empty."""
        images = self._filesystem.images(f"{DIRECTORY}/lane-0", ".index")
        return {path: image for path, image in images.items() if image}

    def checkpoint_files(self) -> dict[str, int]:
        """Return path -> durable size of the checkpoints that are not empty."""
        names = checkpoint_names(self._filesystem, DIRECTORY)
        paths = [f"{DIRECTORY}/{name}" for name in names]
        durable = self._filesystem.images(DIRECTORY, "")
        return {path: len(durable[path]) for path in paths if durable.get(path)}

    def identity_file(self) -> tuple[str, int]:
        """Return path and size of the identity file."""
        path = f"{DIRECTORY}/{NODE_FILE}"
        return path, len(self._filesystem.image(path))

    def rot_identity(self, at: int, bit: int) -> None:
        """Flip a bit of the identity file; the next start finds it."""
        self.identity_is_rotten = True
        self.rot(self.identity_file()[0], at, bit)

    def identity_lost(self) -> None:
        """End this node, which a new one replaces: without its identity file, the directory counts
        as empty."""
        self._world.event_counts["identity lost"] += 1
        self._world.replacements.wipe(self)

    def misdirect(self, write: Misdirected) -> None:
        """Turn a durable write of this node into one that went to another position: zeros are in
        its own place. Note both as damage that is still to be found."""
        self.rotten = self._unscrubbed = self._unread_damage = True
        place = write.place
        self._note_rotted(place.path, place.at, place.length)
        self._note_rotted(write.to_path, write.to, place.length)
        data = self._filesystem.overwrite(place.path, place.at, bytes(place.length))
        self._filesystem.overwrite(write.to_path, write.to, data)

    def scrub_soon(self) -> None:
        """Schedule a scrub of the whole journal for ``SCRUB_US`` from now."""
        self.later(SCRUB_US, self._scrub)

    def _scrub(self) -> None:
        scrubber = Scrubber(self._store)
        while (job := scrubber.next_job()) is not None:
            job.execute()
            for error in scrubber.done(job):
                self._take_damage(error)
        self._unscrubbed = False
        self._repair_soon()

    def _damaged(self, error: CorruptRange) -> None:
        """Hand damage that a read found to repair.  Raises ``Violation`` if no bits rotted there,
        and the error itself if none ever did on this node."""
        if not self._has_rotted(error):
            raise Violation("NothingIsDamaged", f"n{self.node} reads what never rotted: {error}")
        self._take_damage(error)

    def _has_rotted(self, error: CorruptRange) -> bool:
        """True if bits of the entry have changed, or the entry is known to be missing. For an entry
        that is no longer in the log: if any bit of this node has."""
        log = self._store.table.logs.get(error.group)
        if log is None or not log.index.first_index <= error.index <= log.index.last_index:
            return self.rotten  # the entry was truncated or compacted meanwhile
        position, size = log.index.position(error.index), log.index.size(error.index)
        return error.index in log.missing or any(
            begin < position + size and position < end for begin, end in self._rotted)

    def _take_damage(self, error: CorruptRange | CorruptFile) -> None:
        if not self.rotten:
            raise error
        self._repairer.on_damage(error)
        self._repair_soon()
        self.request_round()

    @property
    def is_whole(self) -> bool:
        """True if no damage is left on this node. A node that was damaged must be up, a scrub must
        have read its journal, and no replica may be under repair or quarantined."""
        return not self.rotten or (self.is_up and not self._unscrubbed
                                   and not self._repairer.groups
                                   and not any(self._quarantined()))

    def _is_known_damaged(self, group: int) -> bool:
        """True if the storage has found damage of the group, or has no log of it any longer.

        Otherwise the core quarantined the replica for another reason, because it cannot accept what
        a leader sends; bit rot on the node does not excuse that.
        """
        log = self._store.table.logs.get(group)
        return log is None or log.removed or bool(log.quarantined)

    def _quarantined(self) -> Iterator[str]:
        repair = self._store.repair
        return (f"g{group} {repair.quarantined(group).quarantined}"
                for group in repair.quarantined_groups())

    @property
    def has_recovered(self) -> bool:
        """True if the node is whole, and has started since its latest damage.

        From then on all of its copies and votes count.
        """
        return self.is_whole and not self._unread_damage

    def under_repair(self) -> list[str]:
        """Describe the quarantined replicas of this node, or that it is down; empty = none is."""
        if not self.is_up:
            return ["is down"]
        return sorted(self._quarantined())

    def _repair_soon(self) -> None:
        if not self._repairing and self._repairer.groups:
            self._repairing = True
            self.later(REPAIR_US, self._repair)

    def _repair(self) -> None:
        self._repairing = False
        for group in sorted(self._repairer.groups):
            action = self._repairer.step(group)
            if isinstance(action, SendRequest):
                self._send_bulk(action.peer, action.request)
            elif isinstance(action, ReplayEntries):
                try:
                    self._repairer.on_replay_read(group, action.job.execute())
                except CorruptRange as error:
                    self._damaged(error)
        self.request_round()
        self._repair_soon()

    def _write_record(self, staged: StagedWrite) -> None:
        self._disk.submit(Flight(None, staged))
        self._disk.start_next()

    def _send_bulk(
        self,
        to: int,
        item: RepairRequest | RepairResponse | ChunkRequest | Chunk | PeerRequest | PeerReply,
    ) -> None:
        if to in self._connected:
            self._network.send(self.node, to, "bulk", (item,),
                               self._world.everyone[to].receive_bulk)

    def receive_bulk(self, sender: int, frame: tuple) -> None:
        self._arrived(self._take_bulk, sender, frame)

    def _take_bulk(self, sender: int, frame: tuple) -> None:
        for item in frame:
            if isinstance(item, RepairResponse):
                self._repairer.on_response(item)
                continue
            if isinstance(item, ChunkRequest):
                self._serve_state(sender, item)
                continue
            if isinstance(item, Chunk):
                self._take_chunk(sender, item)
                continue
            if isinstance(item, PeerRequest):
                self._serve_peer_request(sender, item)
                continue
            if isinstance(item, PeerReply):
                self._take_peer_reply(item)
                continue
            found = self._repairer.copies_for(item)
            if found is None:
                continue  # this node has no replica of the group, or no longer
            jobs, answer = found
            entries: list[Entry] = []
            for job in jobs:
                try:
                    entries += job.execute()
                except CorruptRange as error:
                    self._damaged(error)
            self._send_bulk(sender, answer._replace(entries=tuple(entries)))
