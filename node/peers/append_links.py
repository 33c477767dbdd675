"""The append connections of a node: one outgoing connection per peer, one frame per peer and round.

Contract. ``send`` collects envelopes. ``flush`` encodes those of each peer into one frame (several
only above ``frame_bytes_max``) and writes it to the socket. The entries of an ``Append`` are added
here: from memory as the very buffers that the journal received, or read from the page cache, or by
a thread if the disk may block. Losing a message is always safe; the core receives ``disconnected``
when a connection is lost. Damage that a read finds is reported to ``damaged``. A disk that cannot
be read stops the node (``DiskFailed``).

Theory. A pair of nodes has two append connections, one dialled by each side. No frame has to be
matched with a request: replies are ordinary items of the next frame in the other direction.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import trio

from multiraft.liveness.peer_identity import BootId
from multiraft.raft.messages import Append
from multiraft.storage.errors import CorruptRange
from multiraft.storage.io_jobs import ReadJob
from multiraft.types import Entry
from multiraft.wire.errors import RemoteProtocolError
from multiraft.wire.frames import FrameReader
from multiraft.wire.tls import TlsSocket
from node.errors import EXHAUSTED_PAUSE_S
from node.loop.outbox import Outbox
from node.loop.poller import Poller
from node.loop.receive import receive_some
from node.peers import codec
from node.peers.append_filler import AppendFiller
from node.peers.dial import dial
from node.peers.handshake import Introduction, NotAccepted, introduce

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.storage.store import Store

#: Pause before an unreachable peer is dialled again, in seconds.
REDIAL_S = 0.2
#: Longest wait for a peer's welcome or refusal, in seconds.
WELCOME_TIMEOUT_S = 2.0
#: Entries and bytes of a cold append that the loop reads from the page cache itself: below a
#: millisecond (0.4 ms for 64 entries). A thread takes 20 to 60 ms when all processors are busy, and
#: appends are read one after the other.
RESIDENT_ENTRIES_MAX = 128
RESIDENT_BYTES_MAX = 512 << 10


class Gate(Protocol):
    """The receiver of the peers' answers to hellos: ``Admission``."""

    def welcomed(self, peer: int) -> None:
        """Record that the peer admitted this node."""

    def refused(self, peer: int, code: int, text: str, remembered: BootId | None) -> None:
        """Record a refusal. ``code``: the wire code, or 0 if the sender did not prove to be the
        peer. ``remembered``: the boot id of this node that the peer remembers. May raise a
        ``NodeError``, which stops the node."""

    def on_unreachable(self, peer: int) -> None:
        """Record that the peer cannot be reached or does not answer."""

    async def linked(self, peer: int) -> bool:
        """Wait until all peers were asked; from then on the hello to ``peer`` names the boot id
        that it asked for, and True is returned. Return False at once if the peer asked for nothing
        new."""


class PeerLink:
    """The outgoing connection to one peer. ``introduction(peer)`` creates the handshake; the link
    exists only after the peer has accepted it."""

    def __init__(self, peer: int, host: str, port: int, introduction: Callable[[int], Introduction],
                 bytes_max: int, gate: Gate, log: logging.Logger):
        self.peer = peer
        self._context = host
        self._port = port
        self._introduction = introduction
        self._bytes_max = bytes_max
        self._gate = gate
        self._log = log
        self._scope = trio.CancelScope()
        self._outbox: Outbox | None = None
        self._broken: trio.Event | None = None
        self.frames_sent = 0

    @property
    def connected(self) -> bool:
        """True if frames can be sent."""
        return self._outbox is not None

    def send(self, frames: list) -> None:
        """Write these frames, each a list of buffers, behind the bytes that the socket has not
        taken yet. Drop them while the link is down. A link whose outbox overflows or whose socket
        fails is closed and dialled again."""
        outbox = self._outbox
        if outbox is None:
            return
        try:
            for buffers in frames:
                outbox.push(buffers)
                self.frames_sent += 1
            outbox.flush()
        except OSError:
            self._break()

    async def run(self, on_connected: Callable[[PeerLink], None],
                  on_disconnected: Callable[[PeerLink], None]) -> None:
        """Dial, serve until the connection breaks, and dial again after ``REDIAL_S``, until
        ``end``. Each accepted connection calls ``on_connected``, and at its end
        ``on_disconnected``."""
        with self._scope:
            while True:
                opened = await self._open()
                if opened is not None:
                    sock, reader = opened
                    await self._talk(sock, reader, on_connected, on_disconnected)
                elif await self._gate.linked(self.peer):
                    continue
                await trio.sleep(REDIAL_S)  # bounds the rate also towards a peer that refuses

    def end(self) -> None:
        """Close the connection and stop dialling."""
        self._scope.cancel()

    async def _talk(self, sock: socket.socket | TlsSocket, reader: FrameReader,
                    on_connected: Callable[[PeerLink], None],
                    on_disconnected: Callable[[PeerLink], None]) -> None:
        """Serve one connection that the peer has accepted, to its end."""
        self._gate.welcomed(self.peer)
        outbox = self._outbox = Outbox(sock, self._bytes_max)
        broken = self._broken = trio.Event()
        on_connected(self)  # may send, which breaks the link at once if the peer is gone again
        try:
            await self._serve(sock, reader, outbox, broken)
        finally:
            self._outbox = None
            sock.close()
            on_disconnected(self)

    async def dial(self) -> socket.socket | None:
        """Return a new connection to the peer, before any handshake; None = it cannot be
        reached."""
        return await dial(self._context, self._port)

    async def _open(self) -> tuple[socket.socket | TlsSocket, FrameReader] | None:
        """Dial the peer and run the handshake. Return the accepted connection and its reader; None
        = unreachable, refused or too slow, which was reported to the gate."""
        sock = await self.dial()
        if sock is None:
            self._gate.on_unreachable(self.peer)
            return None
        opened, reason = None, ""
        try:
            with trio.move_on_after(WELCOME_TIMEOUT_S) as scope:
                opened = await introduce(sock, self._introduction(self.peer))
            if scope.cancelled_caught:
                reason = f"no welcome within {WELCOME_TIMEOUT_S} s"
        except NotAccepted as error:
            self._refused(error)
        except (OSError, RemoteProtocolError) as error:
            reason = str(error)
        finally:
            if opened is None:
                sock.close()
        if reason:
            self._gate.on_unreachable(self.peer)
            self._log.info("append_connection_lost", extra={"peer": self.peer, "reason": reason})
        return opened

    def _refused(self, error: NotAccepted) -> None:
        """Report a refusal to the gate; one that does not prove to be the peer's is passed on with
        code 0, which is only logged."""
        if error.proven:
            self._gate.refused(self.peer, error.code, str(error), error.remembered)
        else:
            self._gate.refused(self.peer, 0, str(error), None)

    async def _serve(self, sock: socket.socket | TlsSocket, reader: FrameReader,
                     outbox: Outbox, broken: trio.Event) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._drain, outbox)
            nursery.start_soon(self._watch, sock, reader)
            await broken.wait()
            nursery.cancel_scope.cancel()

    async def _drain(self, outbox: Outbox) -> None:
        try:
            await outbox.drain()
        except OSError:
            self._break()

    async def _watch(self, sock: socket.socket | TlsSocket, reader: FrameReader) -> None:
        """Wait for the end of the stream, then end the use of the connection. A frame of the peer,
        which should send none here, ends it too."""
        reason = ""
        try:
            while not reason and await receive_some(sock, reader):
                if reader.next_frame() is not None:
                    reason = "a frame on a connection that only this node writes to"
        except (OSError, RemoteProtocolError) as error:
            reason = str(error)
        if reason:
            self._log.info("append_connection_lost", extra={"peer": self.peer, "reason": reason})
        self._break()

    def _break(self) -> None:
        if self._broken is not None:
            self._broken.set()
        self._outbox = None


class Peers:
    """The append connections of one node."""

    def __init__(self, store: Store, core: MultiRaft, frame_bytes_max: int,
                 request_round: Callable[[], None], damaged: Callable[[CorruptRange], None],
                 poller: Poller):
        self._links: dict[int, PeerLink] = {}
        self._core = core
        self._frame_bytes_max = frame_bytes_max
        self._request_round = request_round
        self._poller = poller
        self._waiting: dict[int, list] = {}
        self._collected = False  # ``_waiting`` has messages
        #: Appends get their entries here; ``damaged(CorruptRange)``: a read found damage.
        self._filler = AppendFiller(core, store, self, self._entries_of, damaged,
                                    self._wake_reader)
        self._cold_wanted = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._frames_sent_before = 0  # over links that ended
        self._up: set[int] = set()  # peers that the core considers connected

    def add(self, link: PeerLink) -> None:
        """Dial a peer from now on."""
        assert link.peer not in self._links, f"node {link.peer} is dialled already"
        self._links[link.peer] = link
        self._waiting[link.peer] = []
        if self._nursery is not None:
            self._nursery.start_soon(link.run, self._connected, self._disconnected)

    def remove(self, peer: int) -> None:
        """Close the link to a peer and stop dialling it. Does nothing for an unknown peer."""
        link = self._links.pop(peer, None)
        if link is not None:
            del self._waiting[peer]
            self._frames_sent_before += link.frames_sent
            link.end()
            self._lost(peer)

    async def run(self) -> None:
        """Run the tasks of the links and the reader of cold entries, until cancelled. Raises
        ``DiskFailed``, and what the gate raises."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for link in self._links.values():
                nursery.start_soon(link.run, self._connected, self._disconnected)
            nursery.start_soon(self._read_cold)

    async def dial(self, peer: int) -> socket.socket | None:
        """Return a connection to a peer for another purpose than appends; None = it cannot be
        reached, or is no peer."""
        link = self._links.get(peer)
        return await link.dial() if link is not None else None

    @property
    def frames_sent(self) -> int:
        """Append frames sent since the start."""
        return self._frames_sent_before + sum(link.frames_sent for link in self._links.values())

    def send(self, envelopes: list) -> None:
        """Collect envelopes for ``flush``; those to unknown peers are dropped."""
        for to, message in envelopes:
            waiting = self._waiting.get(to)
            if waiting is not None:
                waiting.append(message)
                self._collected = True

    def flush(self) -> None:
        """Send the collected messages of each connected peer as one frame, several only above the
        limits; drop those of other peers. Peers with equal messages get the same buffers."""
        if not self._collected:
            return
        self._collected = False
        said, frames = None, []
        for peer, messages in self._waiting.items():
            if messages:
                self._waiting[peer] = []
                link = self._links[peer]
                if link.connected:
                    if messages != said:
                        cold = len(self._filler.cold)
                        frames = self._frames(peer, messages)
                        # Frames without their cold appends are not shared with the next peer, which
                        # needs cold appends of its own.
                        said = messages if len(self._filler.cold) == cold else None
                    link.send(frames)

    def _frames(self, peer: int, messages: list) -> list:
        """Encode the messages as frames, in order. Appends that must be read from disk, or that
        this node may no longer send, are left out."""
        frames: list = []
        items: list = []
        payload: list = []
        size = 0
        for message in messages:
            buffers: Sequence = ()
            item_bytes = 0
            if type(message) is Append and message.last_index > message.prev_index:
                filled = self._filler.fill(peer, message)
                if filled is None:
                    continue
                buffers, item_bytes = filled, sum(map(len, filled))
            item = codec.encode(message, item_bytes)
            if items and (size + item_bytes > self._frame_bytes_max - codec.HEADER_ROOM_BYTES
                          or len(items) >= codec.ITEMS_PER_FRAME_MAX):
                frames.append(codec.frame(items, payload))
                items, payload, size = [], [], 0
            items.append(item)
            payload.extend(buffers)
            size += item_bytes
        if items:
            frames.append(codec.frame(items, payload))
        return frames

    def _wake_reader(self) -> None:
        self._cold_wanted.set()
        # Else the read waits for a linger, which is longer than the read.
        self._poller.yield_due = True

    async def _read_cold(self) -> None:
        """Run the task that reads queued appends whose entries are no longer in memory, in order,
        and sends each to its peer. Raises ``DiskFailed`` if the disk cannot be read."""
        while True:
            await self._cold_wanted.wait()
            self._cold_wanted = trio.Event()
            while self._filler.cold:
                if not await self._filler.send_next():
                    await trio.sleep(EXHAUSTED_PAUSE_S)
                await trio.lowlevel.checkpoint()  # let other tasks run

    def is_connected(self, peer: int) -> bool:
        """Return True if frames can be sent to ``peer``."""
        link = self._links.get(peer)
        return link is not None and link.connected

    def send_cold(self, peer: int, message: Append, buffers: Sequence) -> None:
        """Send an append whose entries were read from the disk, in a frame of its own."""
        size = sum(map(len, buffers))
        self._links[peer].send([codec.frame([codec.encode(message, size)], buffers)])

    @staticmethod
    async def _entries_of(job: ReadJob) -> tuple[Entry, ...]:
        """Read and verify the entries of a job: small ones on the loop if they are in the page
        cache, others on a thread."""
        small = job.count <= RESIDENT_ENTRIES_MAX and job.bytes <= RESIDENT_BYTES_MAX
        resident = job.run_from_page_cache() if small else None
        return resident if resident is not None else await trio.to_thread.run_sync(job.execute)

    def _connected(self, link: PeerLink) -> None:
        if self._links.get(link.peer) is link:  # else it was removed during its handshake
            self._up.add(link.peer)
            self._core.connected(link.peer)
            self._request_round()

    def _disconnected(self, link: PeerLink) -> None:
        if self._links.get(link.peer) is link:  # else ``remove`` has reported the loss
            self._waiting[link.peer].clear()
            self._lost(link.peer)

    def _lost(self, peer: int) -> None:
        if peer in self._up:
            self._up.discard(peer)
            self._core.disconnected(peer)
            self._request_round()
