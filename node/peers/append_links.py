"""Append connections: one outgoing connection per peer, one frame per peer and round.

Contract.  ``send`` collects envelopes, ``flush`` turns what was collected for each peer into one
frame (more only above ``frame_bytes_max``) and gives it to the socket.  An ``Append`` gets its
entries here: hot ones as the very buffers the journal got, cold ones in order from the page cache,
or by a thread where a disk may have to be waited for.  Losing a message is always safe; the core
hears of a lost connection through ``disconnected``.  What a cold read finds damaged is told to
``damaged``; a disk that cannot be read stops the node (``DiskFailed``).

Theory.  A pair of nodes has two append connections, one dialled by each side, so that no frame has
to be matched with a request: answers are items like any others in the other direction's next frame.
"""

from __future__ import annotations

import logging
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import trio

from multiraft.core import frame_entries
from multiraft.errors import Compacted
from multiraft.liveness.peer_identity import Life
from multiraft.raft.messages import Append, Message
from multiraft.storage.errors import CorruptRange
from multiraft.storage.io_jobs import ReadJob
from multiraft.types import Entry
from multiraft.wire.errors import RemoteProtocolError
from multiraft.wire.frames import FrameReader
from multiraft.wire.tls import TlsSocket
from node.errors import DiskFailed
from node.loop.outbox import Outbox
from node.loop.poller import Poller
from node.loop.receive import receive_some
from node.peers import codec
from node.peers.dial import dial
from node.peers.handshake import Introduction, NotAccepted, introduce

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.storage.store import Store

#: Dialing a node that is away is repeated at this pace, in seconds.
REDIAL_S = 0.2
#: A peer says welcome, or why not, within this, in seconds.
WELCOME_TIMEOUT_S = 2.0
#: Cold appends that wait for the reader thread; more are dropped, and asked for again by the core.
COLD_APPENDS_MAX = 1024
#: Entries and bytes of a cold append that the loop takes from the page cache itself: below a
#: millisecond (0.4 ms for a piece of 64 entries).  A turn of a thread costs 20 to 60 ms when all
#: processors are busy, and appends are read one by one.
RESIDENT_ENTRIES_MAX = 128
RESIDENT_BYTES_MAX = 512 << 10


class Gate(Protocol):
    """Who hears how peers answer a hello."""

    def welcomed(self, peer: int) -> None:
        """The peer let this node in."""

    def refused(self, peer: int, code: int, text: str, remembered: Life | None) -> None:
        """It did not, with a wire code, or 0 when nobody says that it is the peer's, and the life
        of this node that it knows of; may raise a ``NodeError``, which ends the node."""

    def away(self, peer: int) -> None:
        """It cannot be reached, or does not answer."""

    async def linked(self, peer: int) -> bool:
        """Wait until there is something else to say to the peer; False = there is not."""


class PeerLink:
    """The outgoing connection to one peer.  ``introduction(peer)`` makes what a connection begins
    with; there is none before the peer has accepted it."""

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
        """Frames can be pushed."""
        return self._outbox is not None

    def send(self, frames: list) -> None:
        """Give the socket these frames, each a list of buffers, and what it left before; a link
        that does not take them is closed and dialled anew."""
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
        """Dial, serve until broken, dial again; until ``end``."""
        with self._scope:
            while True:
                opened = await self._open()
                if opened is not None:
                    sock, reader = opened
                    await self._talk(sock, reader, on_connected, on_disconnected)
                elif await self._gate.linked(self.peer):
                    continue
                await trio.sleep(REDIAL_S)  # who refuses this node is not asked without end

    def end(self) -> None:
        """The peer is dialled no more."""
        self._scope.cancel()

    async def _talk(self, sock: socket.socket | TlsSocket, reader: FrameReader,
                    on_connected: Callable[[PeerLink], None],
                    on_disconnected: Callable[[PeerLink], None]) -> None:
        """One connection that the peer has accepted, to its end."""
        self._gate.welcomed(self.peer)
        self._outbox = Outbox(sock, self._bytes_max)
        self._broken = trio.Event()
        on_connected(self)
        try:
            await self._serve(sock, reader, self._outbox)
        finally:
            self._outbox = None
            sock.close()
            on_disconnected(self)

    async def dial(self) -> socket.socket | None:
        """A new connection to the peer, on which nothing was said yet; None = it is away."""
        return await dial(self._context, self._port)

    async def _open(self) -> tuple[socket.socket | TlsSocket, FrameReader] | None:
        """A connection that the peer has accepted, and its reader; None = not now."""
        sock = await self.dial()
        if sock is None:
            self._gate.away(self.peer)
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
            self._gate.away(self.peer)
            self._log.info("append connection lost", extra={"peer": self.peer, "reason": reason})
        return opened

    def _refused(self, error: NotAccepted) -> None:
        """What a peer says that has not proven to be it is for people only."""
        if error.proven:
            self._gate.refused(self.peer, error.code, str(error), error.remembered)
        else:
            self._gate.refused(self.peer, 0, str(error), None)

    async def _serve(self, sock: socket.socket | TlsSocket, reader: FrameReader,
                     outbox: Outbox) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._drain, outbox)
            nursery.start_soon(self._watch, sock, reader)
            assert self._broken is not None
            await self._broken.wait()
            nursery.cancel_scope.cancel()

    async def _drain(self, outbox: Outbox) -> None:
        try:
            await outbox.drain()
        except OSError:
            self._break()

    async def _watch(self, sock: socket.socket | TlsSocket, reader: FrameReader) -> None:
        """The peer says nothing more here; the end of the stream is the news."""
        reason = ""
        try:
            while not reason and await receive_some(sock, reader):
                if reader.next_frame() is not None:
                    reason = "a frame on a connection that only this node writes to"
        except (OSError, RemoteProtocolError) as error:
            reason = str(error)
        if reason:
            self._log.info("append connection lost", extra={"peer": self.peer, "reason": reason})
        self._break()

    def _break(self) -> None:
        if self._broken is not None:
            self._broken.set()
        self._outbox = None


class Peers:
    """All append connections of a node."""

    def __init__(self, store: Store, core: MultiRaft, frame_bytes_max: int,
                 request_round: Callable[[], None], damaged: Callable[[CorruptRange], None],
                 arrivals: Poller):
        self._links: dict[int, PeerLink] = {}
        self._store = store
        self._core = core
        self._frame_bytes_max = frame_bytes_max
        self._request_round = request_round
        self._damaged = damaged  # (CorruptRange): a read found what may not be
        self._arrivals = arrivals
        self._waiting: dict[int, list] = {}
        self._collected = False  # something is in ``_waiting``
        self._cold: deque = deque()
        self._cold_wanted = trio.Event()
        self._nursery: trio.Nursery | None = None
        self._frames_sent_before = 0  # over links that ended
        self._up: set[int] = set()  # peers whose connection the core has heard of

    def add(self, link: PeerLink) -> None:
        """Dial a peer from now on."""
        assert link.peer not in self._links, f"node {link.peer} is dialled already"
        self._links[link.peer] = link
        self._waiting[link.peer] = []
        if self._nursery is not None:
            self._nursery.start_soon(link.run, self._connected, self._disconnected)

    def remove(self, peer: int) -> None:
        """Dial it no more; nothing when it is not dialled."""
        link = self._links.pop(peer, None)
        if link is not None:
            del self._waiting[peer]
            self._frames_sent_before += link.frames_sent
            link.end()
            self._lost(peer)

    async def run(self) -> None:
        """The peer-send tasks and the cold reader."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for link in self._links.values():
                nursery.start_soon(link.run, self._connected, self._disconnected)
            nursery.start_soon(self._read_cold)

    async def dial(self, peer: int) -> socket.socket | None:
        """A connection to a peer for something else than appends; None = it is away."""
        link = self._links.get(peer)
        return await link.dial() if link is not None else None

    @property
    def frames_sent(self) -> int:
        """Append frames since the start."""
        return self._frames_sent_before + sum(link.frames_sent for link in self._links.values())

    def send(self, envelopes: list) -> None:
        """Collect; nothing leaves before ``flush``."""
        for to, message in envelopes:
            waiting = self._waiting.get(to)
            if waiting is not None:
                waiting.append(message)
                self._collected = True

    def flush(self) -> None:
        """One frame per peer with something to say; peers that hear the same get the same one."""
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
                        cold = len(self._cold)
                        frames = self._frames(peer, messages)
                        said = messages if len(self._cold) == cold else None
                    link.send(frames)

    def _frames(self, peer: int, messages: list) -> list:
        """The messages as frames, in order."""
        frames: list = []
        items: list = []
        payload: list = []
        size = 0
        for message in messages:
            item, buffers, item_bytes = self._filled(peer, message)
            if item is None:
                continue
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

    def _filled(self, peer: int, message: Message) -> tuple[list | None, Sequence, int]:
        """A message as item and entry buffers; a cold range is read elsewhere and sent later."""
        if type(message) is not Append or message.last_index <= message.prev_index:
            return codec.encode(message, 0), (), 0
        if not self._core.status.leads(message.group, message.term):
            return None, (), 0
        buffers = self._store.framed(message.group, message.prev_index + 1, message.last_index)
        if buffers is None:
            if len(self._cold) < COLD_APPENDS_MAX:
                self._cold.append((peer, message))
                self._cold_wanted.set()
                self._arrivals.yield_due = (
                    True  # else it waits a linger, longer than its read takes
                )
            return None, (), 0
        size = sum(map(len, buffers))
        return codec.encode(message, size), buffers, size

    async def _read_cold(self) -> None:
        """Entries that left memory, for peers that fell behind: read in order, by a thread where a
        disk may have to be waited for."""
        while True:
            await self._cold_wanted.wait()
            self._cold_wanted = trio.Event()
            while self._cold:
                peer, message = self._cold.popleft()
                await self._send_cold(peer, message)
                await trio.lowlevel.checkpoint()  # others get their turn

    async def _send_cold(self, peer: int, message: Append) -> None:
        link = self._links.get(peer)
        if (link is None or not link.connected
                or not self._core.status.leads(message.group, message.term)):
            return
        try:
            plan = self._store.read_plan(message.group, message.prev_index + 1, message.last_index)
            buffers = frame_entries(await self._entries_of(plan), 0, 0)[0]
        except Compacted:
            return  # the core finds out by itself, and asks for a snapshot
        except CorruptRange as error:
            self._damaged(error)
            return
        except OSError as error:
            raise DiskFailed(f"the lane cannot be read: {error}") from error
        if link.connected and self._core.status.leads(message.group, message.term):
            size = sum(map(len, buffers))
            link.send([codec.frame([codec.encode(message, size)], buffers)])

    @staticmethod
    async def _entries_of(plan: ReadJob) -> tuple[Entry, ...]:
        """Read and verified."""
        small = plan.count <= RESIDENT_ENTRIES_MAX and plan.bytes <= RESIDENT_BYTES_MAX
        resident = plan.run_from_page_cache() if small else None
        return resident if resident is not None else await trio.to_thread.run_sync(plan.execute)

    def _connected(self, link: PeerLink) -> None:
        if self._links.get(link.peer) is link:  # else it was removed while it was welcomed
            self._up.add(link.peer)
            self._core.connected(link.peer)
            self._request_round()

    def _disconnected(self, link: PeerLink) -> None:
        if self._links.get(link.peer) is link:  # else ``remove`` has said it
            self._waiting[link.peer].clear()
            self._lost(link.peer)

    def _lost(self, peer: int) -> None:
        if peer in self._up:
            self._up.discard(peer)
            self._core.disconnected(peer)
            self._request_round()
