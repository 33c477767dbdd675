"""Raw session: one connection to one node, for requests that the product's client would not send.

Contract.  ``connect`` makes a session, ``ask`` sends one request and waits for its answer.  A
client chooses a replica, retries and hides repetitions; a workload that reads from a chosen
replica, or sends the same batch twice on purpose, uses a session.  ``NotSent``: the request
certainly never left.  ``NoAnswer``: it may have happened; the session cannot be used again.  A
refusal is raised as the exception of its code.  One request at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

from multiraft.errors import MultiRaftError
from multiraft.wire import (
    NEED_DATA,
    Connection,
    Hello,
    RemoteProtocolError,
    RequestError,
    RequestEvent,
    ResponseEvent,
    Role,
    Welcome,
    exception_for,
)
from multiraft.wire.errors import Code
from multiraft.wire.frames import Buffer
from multiraft.wire.messages import Produce, Reply, Request

#: A node on this machine connects in a millisecond; one that is cut off does not in any time.
CONNECT_TIMEOUT_S = 2.0


class NotSent(RequestError):
    """Raised without a connection: no request was sent, so nothing happened."""

    code = Code.LEADER_UNKNOWN
    retriable = True


class NoAnswer(MultiRaftError):
    """Raised when the request was sent and not answered: its outcome is ambiguous."""


class Session:
    """One connection to one node."""

    def __init__(self, stream: trio.SocketStream, address: str):
        self.address = address
        self.usable = True
        self.metadata_index = 0  # the newest index that the session has received
        self._stream = stream
        self._connection = Connection(Role.CLIENT)
        self._number = 0

    async def greet(self) -> None:
        """Do the handshake.  Raises ``NotSent`` when the node refuses it or the connection
        breaks."""
        try:
            await self._stream.send_all(b"".join(self._connection.send(Hello())))
            answer = await self._event()
        except (OSError, trio.BrokenResourceError, RemoteProtocolError, NoAnswer) as error:
            raise NotSent(f"{self.address}: no handshake: {error}") from error
        if not isinstance(answer, Welcome):
            raise NotSent(f"{self.address}: refused: {answer}")

    async def ask(self, request: Request, payload: Sequence[Buffer] = (),
                  timeout_s: float = 5.0, metadata_index: int = 0) -> Reply | None:
        """Send a request and return the reply; None for an append with acks "none", which has no
        reply.  Raises ``NoAnswer`` when none came within ``timeout_s``, after which the session
        cannot be used, or the exception of a refusal's code."""
        self._number += 1
        event = RequestEvent(self._number, request, max(metadata_index, self.metadata_index))
        buffers = self._connection.send(event, payload)
        self.usable = False
        try:
            with trio.fail_after(timeout_s):
                await self._stream.send_all(b"".join(buffers))
                if type(request) is Produce and request.acks == "none":
                    self.usable = True
                    return None
                answer = await self._event()
        except (OSError, trio.BrokenResourceError, trio.TooSlowError, RemoteProtocolError) as error:
            raise NoAnswer(f"{self.address}: {error or type(error).__name__}") from error
        self.usable = True
        assert isinstance(answer, ResponseEvent)
        self.metadata_index = max(self.metadata_index, answer.metadata_index)
        if answer.code:
            raise exception_for(answer.code, answer.error)
        return answer.reply

    async def _event(self):
        while (event := self._connection.next_event()) is NEED_DATA:
            self._connection.receive_data(await self._stream.receive_some())
        if not isinstance(event, (Welcome, ResponseEvent)):
            raise NoAnswer(f"{self.address}: {event}")
        return event

    def close(self) -> None:
        """Close the connection, without a checkpoint: a cancelled caller has more than one to
        close."""
        self.usable = False
        self._stream.socket.close()


async def connect(address: str, timeout_s: float = CONNECT_TIMEOUT_S) -> Session:
    """Return a session that is ready for requests; the caller closes it.  Raises ``NotSent``, also
    when that takes longer than ``timeout_s``."""
    host, _, port = address.rpartition(":")
    stream = None
    try:
        with trio.fail_after(timeout_s):
            stream = await trio.open_tcp_stream(host, int(port))
            session = Session(stream, address)
            await session.greet()
            return session
    except (OSError, trio.TooSlowError, NotSent) as error:
        _hang_up(stream)
        raise NotSent(f"{address}: {error or 'no connection in time'}") from error
    except trio.Cancelled:
        _hang_up(stream)
        raise


def _hang_up(stream: trio.SocketStream | None) -> None:
    if stream is not None:
        stream.socket.close()


class Sessions:
    """One session per node for one process, opened on demand and again after it broke.  Use it with
    ``async with``."""

    def __init__(self):
        self._sessions: dict[str, Session] = {}

    async def __aenter__(self) -> "Sessions":
        return self

    async def __aexit__(self, *_why: object) -> None:
        """Close all sessions."""
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()

    async def ask(self, address: str, request: Request, payload: Sequence[Buffer] = (),
                  timeout_s: float = 5.0, metadata_index: int = 0) -> Reply | None:
        """Send a request to the node at ``address``, connecting first if there is no usable
        session.  Raises as ``Session.ask``, and ``NotSent`` without a connection."""
        session = self._sessions.pop(address, None)
        if session is None or not session.usable:
            session = await connect(address)
        try:
            return await session.ask(request, payload, timeout_s, metadata_index)
        finally:
            if session.usable:
                self._sessions[address] = session
            else:
                session.close()
