"""The send queue of one non-blocking socket: writes at once, and keeps what the kernel does not
take.

Contract. ``push`` never blocks and never copies. ``flush`` makes at most one system call per
``IOV_BUFFERS_MAX`` buffers and stops at the first EAGAIN. ``drain`` is the task that resumes
writing when the socket is writable again. No call awaits per message.

Invariants. Bytes leave in the order of ``push``. ``size`` counts the bytes that were pushed and not
yet taken by the kernel; it never exceeds ``bytes_max``.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable

import trio

from multiraft.wire.tls import TlsSocket
from node.loop.system_limits import IOV_BUFFERS_MAX


class OutboxFull(OSError):
    """The remote side does not read: the queue has reached its limit in bytes, and the connection
    must be closed."""

    def __init__(self, bytes_max: int, size: int):
        super().__init__(f"{size} bytes wait for a peer that does not read, the limit is "
                         f"{bytes_max}")


class Outbox:
    """Send queue of one non-blocking socket, limited in bytes."""

    __slots__ = ("_sock", "_buffers", "_space_freed", "_emptied", "size", "bytes_max", "sent_bytes")

    def __init__(self, sock: socket.socket | TlsSocket, bytes_max: int):
        self._sock = sock
        self._buffers: deque = deque()
        self._space_freed = trio.Event()
        self._emptied: trio.Event | None = None  # set when the kernel has taken the last byte
        self.size = 0
        self.bytes_max = bytes_max
        self.sent_bytes = 0

    def push(self, buffers: list) -> None:
        """Queue ``buffers``. Raises ``OutboxFull`` if they exceed the limit of the outbox, and
        queues nothing then."""
        size = self.size + sum(map(len, buffers))
        if size > self.bytes_max:
            raise OutboxFull(self.bytes_max, size)
        self.size = size
        self._buffers.extend(buffers)

    def flush(self) -> None:
        """Write as much as the kernel takes now; ``drain`` writes the rest. Raises ``OSError`` when
        the connection is gone."""
        buffers = self._buffers
        while buffers:
            batch = (list(buffers) if len(buffers) <= IOV_BUFFERS_MAX
                     else [buffers[i] for i in range(IOV_BUFFERS_MAX)])
            try:
                sent = self._sock.sendmsg(batch)
            except BlockingIOError:
                self._space_freed.set()
                return
            if sent == self.size:  # as nearly always
                buffers.clear()
                self.size = 0
                self.sent_bytes += sent
            else:
                self._taken(sent)
        if self._emptied is not None:
            self._emptied.set()

    def _taken(self, sent: int) -> None:
        self.size -= sent
        self.sent_bytes += sent
        buffers = self._buffers
        while sent:
            length = len(buffers[0])
            if length > sent:
                buffers[0] = memoryview(buffers[0])[sent:]
                return
            sent -= length
            buffers.popleft()
        while buffers and not len(buffers[0]):
            buffers.popleft()

    async def empty(self) -> None:
        """Wait until the kernel has taken everything; ``drain`` must be running."""
        while self._buffers:
            self._emptied = trio.Event()
            await self._emptied.wait()

    async def drain(self, written: Callable[[], None] = lambda: None) -> None:
        """Write the rest of a partial ``flush`` whenever the socket is writable, until cancelled,
        and call ``written`` each time. Raises ``OSError`` when the connection is gone."""
        while True:
            await self._space_freed.wait()
            self._space_freed = trio.Event()
            while self._buffers:
                await trio.lowlevel.wait_writable(self._sock)
                self.flush()
                written()
