"""The liveness thread: exchanges node leases on connections of their own, so that bulk data cannot
delay them.

Contract. The thread owns ``StoreLiveness`` and its sockets; the loop owns everything else. They
share three one-way channels. ``published`` carries the loop's leadership digests, one tuple that is
replaced atomically. ``events`` carries lease events, which the loop reads when ``wake_fd`` is
readable. The nudge wakes the loop every interval, and the thread checks whether the loop answered.

Theory. A node renews leases only while it is healthy: the round loop answers nudges within
``loop_stall_ms_max``, and the oldest write in flight is younger than ``disk_stall_ms_max``. A node
whose process runs but whose loop or disk hangs sends neither heartbeats nor responses, so its
groups elect leaders elsewhere (scenarios S1, S11; hashicorp/raft#503).

When a process ends, its connections break at once and its host refuses new ones. Then the leases of
that node end before their time. Both signs are required: connections break for many reasons, and a
refusal may come from a packet filter in one direction.

A node that stops in order announces it on its links, so that the others can tell the stop from a
failure.  The announcement changes no lease: the node serves until it ends.

Invariants. At most one dialled and one adopted link per peer. A silent link is closed and dialled
again: after a partition TCP would wait about as long as the partition lasted. If the thread ends
without ``stop``, ``failure`` holds the reason and ``wake_fd`` is readable: a node without leases
must stop.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from multiraft.liveness.clock_skew import ClockSkew
from multiraft.liveness.store_liveness import (
    NO_CLOCK,
    OUTSTANDING_MAX,
    Heartbeat,
    HeartbeatResponse,
    StoreLiveness,
)
from multiraft.wire import frames
from multiraft.wire.errors import Code, RemoteProtocolError
from multiraft.wire.tls import TlsSocket
from node.clock import monotonic_ms, monotonic_us, wall_ms
from node.histogram import Histogram
from node.loop.threads import name_this_thread
from node.peers.handshake import Introduction, NotAccepted, check_certificate

if TYPE_CHECKING:
    from node.loop.disk_space import Space
    from node.loop.write_gather import WriteGather

#: Limits of a liveness frame, which holds a few integers.
LIVENESS_LIMITS = frames.WireLimits(frame_bytes_max=4096, header_bytes_max=4092, in_flight_max=1)
#: Pause before an unreachable peer is dialled again, in milliseconds.
REDIAL_MS = 300
#: Faster pace for a peer whose link has just broken, and its duration, in milliseconds. When a
#: process ends, its ports close one after the other, and a dial may still enter an accept queue
#: that no process reads.
FAST_REDIAL_MS = 10
FAST_REDIAL_WINDOW_MS = 200
#: Pace for a peer that waits until this node names its previous boot id, in milliseconds.
UNLINKED_PACE_MS = 50
#: A dialled link without a response for this many leases is closed.
SILENT_LEASES_MAX = 2
#: Largest wall clock of a peer, in milliseconds since 1970: it has 63 bits, as timestamps of
#: records have.
_CLOCK_MS_MAX = (1 << 63) - 1


@dataclass(slots=True)
class Link:
    """One liveness connection: dialled (sends heartbeats) or adopted (sends answers)."""

    peer: int
    sock: socket.socket | TlsSocket
    reader: frames.FrameReader
    dialled: bool
    ready: bool  # accepted by the peer, if dialled
    heard_ms: int  # time of its begin or of its last frame
    introduction: Introduction | None = None  # of a dialled link
    connected: bool = True
    handshaking: bool = False  # TLS handshake in progress
    answered: bool = False  # a dialled link that has received a response
    announced: bool = False  # a dialled link on which this node announced its stop
    #: Heartbeats of a dialled link without a response: sequence -> time of sending, oldest first.
    sent_us: dict[int, int] = field(default_factory=dict)


class LivenessThread:
    """The thread that runs ``StoreLiveness`` against the other nodes. ``introduction(peer)``
    creates the handshake of a dialled link."""

    def __init__(self, liveness: StoreLiveness, introduction: Callable[[int], Introduction],
                 loop_stall_ms_max: int, disk_stall_ms_max: int, disk: WriteGather,
                 space: Space | None = None):
        self._liveness = liveness
        self._members: dict[int, tuple[str, int]] = {}  # peer -> (host, port) to dial
        self._moves: deque = deque()  # (peer, (host, port) or None), from the loop thread
        self._introduction = introduction
        self._loop_stall_ms_max = loop_stall_ms_max
        self._disk_stall_ms_max = disk_stall_ms_max
        self._disk = disk
        self._space = space  # its ``full`` is read here and written by the loop; None = never full
        self._selector = selectors.DefaultSelector()
        self._dialled: dict[int, Link] = {}
        self._adopted: dict[int, Link] = {}
        self._redial_at_ms: dict[int, int] = {}
        #: Peers whose address refused the last dial.
        self._refused: set[int] = set()
        #: Peers whose working link broke -> end of the time in which they are dialled faster.
        self._fast_redial_until_ms: dict[int, int] = {}
        self._adopting: deque = deque()
        #: Peer -> boot epoch that announced its stop; written here, read by the loop.
        self._stopping_peers: dict[int, int] = {}
        self._is_stop_announced = False
        #: Time of the last turn in which this node was found stalled, and what stalled; written
        #: here, read by the loop.
        self._last_stall: tuple[int, str] = (0, "")
        self._waker_receive, self._waker_send = socket.socketpair()
        self._waker_receive.setblocking(False)
        self._waker_send.setblocking(False)
        self._stopping = False
        self._thread = threading.Thread(target=self._main, name="liveness", daemon=True)
        self.failure: BaseException | None = None
        self.wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.events: deque = deque()
        self.published: tuple = ({}, {}, 0)
        self.loop_seen_ms = monotonic_ms()
        self.probed_us = 0  # time of the last nudge
        self.messages = 0  # heartbeats and answers sent
        #: Peer -> microseconds from a heartbeat until its response; read by the loop.
        self.round_trips: dict[int, Histogram] = {}

    def start(self) -> None:
        """Start the thread."""
        self._selector.register(self._waker_receive, selectors.EVENT_READ, None)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close its sockets. Blocks until the thread has ended. May be
        repeated."""
        if self._stopping:
            return
        self._stopping = True
        self._wake()
        if self._thread.is_alive():
            self._thread.join()
        for _peer, sock, _reader in self._adopting:
            sock.close()
        self._waker_receive.close()
        self._waker_send.close()
        os.close(self.wake_fd)

    def adopt(self, peer: int, sock: socket.socket | TlsSocket, reader: frames.FrameReader) -> None:
        """Take over an accepted liveness connection, with the bytes received behind its hello.
        Called from the loop thread."""
        self._adopting.append((peer, sock, reader))
        self._wake()

    def add(self, peer: int, host: str, port: int) -> None:
        """Exchange heartbeats with a new peer, or with a peer that has moved. Called from the loop
        thread."""
        self._moves.append((peer, (host, port)))
        self._wake()

    def remove(self, peer: int) -> None:
        """End the leases of a peer that is no longer a node of the cluster. Called from the loop
        thread."""
        self._moves.append((peer, None))
        self._wake()

    def announce_stop(self) -> None:
        """Tell the peers that this node is about to end in order.  Called from the loop thread."""
        self._is_stop_announced = True
        self._wake()

    def has_announced_stop(self, peer: int, boot_epoch: int) -> bool:
        """Return True if that boot of ``peer`` announced its stop; on any thread."""
        return self._stopping_peers.get(peer) == boot_epoch

    def is_refusing(self, peer: int) -> bool:
        """Return True if the port of ``peer`` refused the last dial: its process has ended; on any
        thread."""
        return peer in self._refused

    def own_stall_since(self, since_ms: int) -> str:
        """Return what stalled on this node at ``since_ms`` or later, so that it sent and answered
        no heartbeats: ``disk``, ``event loop`` or ``process``; empty = nothing did.  On any
        thread."""
        at_ms, what = self._last_stall
        return what if at_ms >= since_ms else ""

    @property
    def clock_skew(self) -> ClockSkew:
        """Skew of this node's wall clock; its last result may be read on any thread."""
        return self._liveness.clock_skew

    def _wake(self) -> None:
        try:
            self._waker_send.send(b"w")
        except BlockingIOError:
            pass  # a wake-up is pending already

    # ---- the thread ----------------------------------------------------------------------------

    def _main(self) -> None:
        name_this_thread(self._thread.name)
        try:
            self._run()
        except BaseException as error:
            self.failure = error  # the loop raises it
            os.eventfd_write(self.wake_fd, 1)
        finally:
            for key in list(self._selector.get_map().values()):
                if key.data is not None:
                    key.data.sock.close()
            self._selector.close()

    def _run(self) -> None:
        next_turn_ms = monotonic_ms()
        while not self._stopping:
            timeout_ms = max(0, min([next_turn_ms, *self._fast_redials()]) - monotonic_ms())
            for key, mask in self._selector.select(timeout_ms / 1000):
                if key.data is None:
                    self._woken()
                else:
                    self._ready(key.data, mask)
            now_ms = monotonic_ms()
            if now_ms >= min([next_turn_ms, *self._fast_redials()]):
                self._note_lateness(next_turn_ms, now_ms)
                self._tick(now_ms)
                next_turn_ms = self._liveness.next_deadline_ms(now_ms)
            self._deliver_events()

    def _note_lateness(self, due_ms: int, now_ms: int) -> None:
        """Record a stall of the whole process if a turn of this thread is that late."""
        if now_ms - due_ms > self._loop_stall_ms_max:
            self._last_stall = now_ms, "process"

    def _fast_redials(self) -> list[int]:
        """Return the times at which peers with a link that has just broken are dialled."""
        return [self._redial_at_ms[peer] for peer in self._fast_redial_until_ms
                if peer not in self._dialled]

    def _tick(self, now_ms: int) -> None:
        """Do what is due in the liveness thread: nudge the loop, expire leases, close silent links,
        dial peers, send heartbeats."""
        self.probed_us = monotonic_us()
        os.eventfd_write(self.wake_fd, 1)
        self._publish(now_ms)
        self._liveness.expire(now_ms)
        silent_ms = SILENT_LEASES_MAX * self._liveness.lease_ms
        for peer, (host, port) in self._members.items():
            link = self._dialled.get(peer)
            if link is not None and now_ms - link.heard_ms > silent_ms:
                self._close(link)
            elif link is None and self._redial_at_ms.get(peer, 0) <= now_ms:
                self._dial(peer, host, port)
        for peer, heartbeat in self._liveness.heartbeats(now_ms):
            link = self._dialled.get(peer)
            if link is not None and link.ready:
                if len(link.sent_us) >= OUTSTANDING_MAX:
                    del link.sent_us[next(iter(link.sent_us))]
                link.sent_us[heartbeat.sequence] = monotonic_us()
                self._send(link, {"heartbeat": list(heartbeat)})

    def _publish(self, now_ms: int) -> None:
        led, believed, leading_version = self.published
        full = self._space is not None and self._space.full
        busy_since_ms = self._disk.busy_since_ms
        stalled = ""
        if busy_since_ms is not None and now_ms - busy_since_ms > self._disk_stall_ms_max:
            stalled = "disk"
        elif now_ms - self.loop_seen_ms > self._loop_stall_ms_max:
            stalled = "event loop"
        if stalled:
            self._last_stall = now_ms, stalled
        self._liveness.publish(led, believed, leading_version, not stalled, full)
        self._liveness.set_clock(now_ms, wall_ms())

    def _deliver_events(self) -> None:
        events = self._liveness.events()
        if events:
            self.events.extend(events)
            os.eventfd_write(self.wake_fd, 1)

    def _move(self, peer: int, where: tuple[str, int] | None) -> None:
        """Close the dialled link of ``peer``. ``where``: the address to dial from now on; None =
        the peer was removed, so its leases end."""
        self._refused.discard(peer)  # the refusal concerned its old address
        if peer in self._dialled:
            self._close(self._dialled[peer])
        self._redial_at_ms.pop(peer, None)
        self._fast_redial_until_ms.pop(peer, None)
        if where is not None:
            self._members[peer] = where
            self._liveness.add_peer(peer)
        elif self._members.pop(peer, None) is not None:
            self._stopping_peers.pop(peer, None)
            self.round_trips.pop(peer, None)
            if peer in self._adopted:
                self._close(self._adopted[peer])
            self._liveness.remove_peer(peer)

    def _woken(self) -> None:
        self._waker_receive.recv(4096)
        while self._moves:
            self._move(*self._moves.popleft())
        for link in list(self._dialled.values()):
            self._announce_stop_on(link)
        while self._adopting:
            peer, sock, reader = self._adopting.popleft()
            sock.setblocking(False)
            reader.limits = LIVENESS_LIMITS
            link = Link(peer, sock, reader, dialled=False, ready=True, heard_ms=monotonic_ms())
            before = self._adopted.get(peer)
            self._adopted[peer] = link
            if before is not None:
                self._close(before)
            self._selector.register(sock, selectors.EVENT_READ, link)
            self._take(link)  # frames that arrived with the hello
            if isinstance(sock, TlsSocket) and sock.pending:
                self._receive(link)

    def _announce_stop_on(self, link: Link) -> None:
        """Announce the stop on a dialled link if it is due, and once."""
        if self._is_stop_announced and link.ready and not link.announced:
            link.announced = True
            self._send(link, {"stopping": self._liveness.boot_epoch})

    def _dial(self, peer: int, host: str, port: int) -> None:
        self._plan_redial(peer)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            return  # no free descriptor: the next turn dials again
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            error = sock.connect_ex((host, port))
        except OSError:  # the host name does not resolve
            error = errno.EHOSTUNREACH
        if error not in (0, errno.EINPROGRESS):
            sock.close()
            self._not_connected(peer, error)
            return
        link = Link(peer, sock, frames.FrameReader(LIVENESS_LIMITS), dialled=True, ready=False,
                    heard_ms=monotonic_ms(), introduction=self._introduction(peer),
                    connected=False)
        self._dialled[peer] = link
        self._selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE, link)

    def _ready(self, link: Link, mask: int) -> None:
        if link.sock.fileno() == -1:
            return  # closed by an earlier event of the same ``select``
        if not link.connected and mask & selectors.EVENT_WRITE:
            assert isinstance(link.sock, socket.socket)
            error = link.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                self._close(link)
                self._not_connected(link.peer, error)
                return
            link.connected = True
            self._refused.discard(link.peer)
            self._begin(link)
        elif link.handshaking:
            self._handshake(link)
        elif mask & selectors.EVENT_READ:
            self._receive(link)

    def _begin(self, link: Link) -> None:
        """Begin a connected link: start the TLS handshake if TLS is configured, otherwise send the
        hello."""
        introduction = link.introduction
        assert introduction is not None and isinstance(link.sock, socket.socket)
        context = introduction.security.peer_client
        if context is not None:
            link.sock = TlsSocket(link.sock, context, introduction.server_name)
            link.handshaking = True
            self._handshake(link)
            return
        self._selector.modify(link.sock, selectors.EVENT_READ, link)
        self._send_bytes(link, introduction.first())

    def _handshake(self, link: Link) -> None:
        """Continue the TLS handshake; at its end check the certificate and send the hello. A
        failure closes the link."""
        introduction = link.introduction
        assert introduction is not None and isinstance(link.sock, TlsSocket)
        try:
            link.handshaking = not link.sock.handshake()
            if not link.handshaking:
                check_certificate(link.sock, link.peer, introduction.security.cluster_id)
        except (OSError, NotAccepted):
            self._close(link)  # the append connection fails in the same way, and logs it
            return
        events = selectors.EVENT_READ
        self._selector.modify(
            link.sock, events | selectors.EVENT_WRITE if link.sock.wants_write else events, link)
        if not link.handshaking:
            self._send_bytes(link, introduction.first())
            self._receive(link)

    def _receive(self, link: Link) -> None:
        """Receive once, and inside TLS until nothing is decrypted and unread."""
        self._receive_once(link)
        while isinstance(link.sock, TlsSocket) and link.sock.pending and link.sock.fileno() != -1:
            self._receive_once(link)

    def _receive_once(self, link: Link) -> None:
        try:
            size = link.sock.recv_into(link.reader.buffer_for_receive())
            if not size:
                self._close(link)
                return
        except BlockingIOError:
            return
        except OSError:
            self._close(link)
            return
        link.reader.received(size)
        self._take(link)

    def _take(self, link: Link) -> None:
        """Handle the frames that are complete. A malformed frame or a refusal closes the link; a
        peer that wants an earlier boot id is dialled again soon."""
        try:
            while (frame := link.reader.next_frame()) is not None:
                self._frame(link, frame.header)
        except RemoteProtocolError:
            self._close(link)
        except NotAccepted as error:
            self._close(link)
            if error.code == Code.UNLINKED_BOOT_ID:  # the append connection resolves it
                now_ms = monotonic_ms()
                self._fast_redial_until_ms[link.peer] = now_ms + FAST_REDIAL_WINDOW_MS
                self._redial_at_ms[link.peer] = now_ms + UNLINKED_PACE_MS

    def _frame(self, link: Link, header: dict) -> None:
        now_ms = link.heard_ms = monotonic_ms()
        if link.dialled:
            if link.ready:
                link.answered = True
                self._publish(now_ms)
                response = decode_response(header)
                sent_us = link.sent_us.pop(response.sequence, None)
                if sent_us is not None:
                    self.round_trips.setdefault(link.peer, Histogram()).observe(
                        monotonic_us() - sent_us)
                self._liveness.on_response(now_ms, link.peer, response)
                return
            introduction = link.introduction
            assert introduction is not None
            said = introduction.answer(header)
            link.ready = introduction.accepted
            if said:
                self._send_bytes(link, said)
            if link.sock.fileno() != -1:
                self._announce_stop_on(link)
            return
        if "stopping" in header:
            self._stopping_peers[link.peer] = _boot_epoch(header["stopping"])
            return
        heartbeat = _values(Heartbeat, header.get("heartbeat"))
        self._publish(now_ms)
        answer = self._liveness.on_heartbeat(now_ms, link.peer, heartbeat)
        if answer is not None:
            self._send(link, encode_response(answer))

    def _send(self, link: Link, header: dict) -> None:
        self.messages += 1
        self._send_bytes(link, b"".join(frames.encode_frame(header)))

    def _send_bytes(self, link: Link, data: bytes) -> None:
        """Send a message. A message that does not fit into the socket at once would be late: the
        link is closed and dialled again."""
        try:
            if link.sock.send(data) != len(data):
                self._close(link)
        except OSError:
            self._close(link)

    def _close(self, link: Link) -> None:
        if link.sock.fileno() == -1:
            return
        self._selector.unregister(link.sock)
        link.sock.close()
        links = self._dialled if link.dialled else self._adopted
        if links.get(link.peer) is link:
            del links[link.peer]
        if link.dialled:
            if link.answered:
                self._fast_redial_until_ms[link.peer] = monotonic_ms() + FAST_REDIAL_WINDOW_MS
            self._plan_redial(link.peer)
        else:
            self._report_if_ended(link.peer)

    def _plan_redial(self, peer: int) -> None:
        now_ms = monotonic_ms()
        if now_ms < self._fast_redial_until_ms.get(peer, 0):
            self._redial_at_ms[peer] = now_ms + FAST_REDIAL_MS
        else:
            self._fast_redial_until_ms.pop(peer, None)
            self._redial_at_ms[peer] = now_ms + REDIAL_MS

    def _not_connected(self, peer: int, error: int) -> None:
        """Record a failed dial; a refused connection may show that the peer's process has ended."""
        if error == errno.ECONNREFUSED:
            self._fast_redial_until_ms.pop(peer, None)  # the faster pace has found the refusal
            self._refused.add(peer)
            self._report_if_ended(peer)

    def _report_if_ended(self, peer: int) -> None:
        """Report the end of ``peer``'s process if its port refuses connections and no link to or
        from it exists."""
        if peer in self._refused and peer not in self._adopted and peer not in self._dialled:
            self._liveness.ended(peer)


def encode_response(response: HeartbeatResponse) -> dict:
    """Return the header of a response.  Its clock has a key of its own, because a release that
    knows no clock refuses a response with another number of values."""
    *values, clock_ms = response
    header: dict[str, Any] = {"response": values}
    if clock_ms != NO_CLOCK:
        header["clock_ms"] = clock_ms
    return header


def decode_response(header: dict) -> HeartbeatResponse:
    """Decode the header of a response, with or without a clock.  Raises ``RemoteProtocolError``."""
    response: HeartbeatResponse = _values(HeartbeatResponse, header.get("response"))
    clock_ms = header.get("clock_ms", NO_CLOCK)
    if type(clock_ms) is not int or not 0 <= clock_ms <= _CLOCK_MS_MAX:
        raise RemoteProtocolError(f"not a wall clock: {clock_ms!r:.80}")
    return response._replace(clock_ms=clock_ms)


def _boot_epoch(value: object) -> int:
    """Decode the boot epoch of an announced stop.  Raises ``RemoteProtocolError``."""
    if type(value) is not int:
        raise RemoteProtocolError(f"not a boot epoch: {value!r}")
    return value


def _values(kind: type[Any], values: object) -> Any:
    """Decode a heartbeat or a response, which consist of integers and booleans, without the fields
    that have a default. Raises ``RemoteProtocolError`` for other values."""
    if type(values) is not list or len(values) != len(kind._fields) - len(kind._field_defaults):
        raise RemoteProtocolError(f"not a liveness {kind.__name__}: {values!r}")
    for value in values:
        if type(value) is not int and type(value) is not bool:
            raise RemoteProtocolError(f"not a liveness {kind.__name__}: {values!r}")
    return kind(*values)
