"""One connection to one node, spoken by hand: what the product's client would not do.

Contract.  ``connect`` makes a session, ``ask`` sends one request and waits for its answer.  A
client chooses a replica, retries and hides repetitions; who wants to read from *this* replica, or
to send the same batch twice on purpose, asks here.  ``NotSent``: the request certainly never left.
``NoAnswer``: it may have happened; the session is of no use any more.  A refusal is raised as the
exception of its code.  One request at a time.
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
    """There is no connection: nothing was asked, so nothing happened."""

    code = Code.LEADER_UNKNOWN
    retriable = True


class NoAnswer(MultiRaftError):
    """The request was sent and not answered: nobody knows."""


class Session:
    """See the module docstring."""

    def __init__(self, stream: trio.SocketStream, address: str):
        self.address = address
        self.usable = True
        self.metadata_index = 0  # the newest that was heard of here
        self._stream = stream
        self._connection = Connection(Role.CLIENT)
        self._number = 0

    async def greet(self) -> None:
        """The handshake.  Raises ``NotSent``."""
        try:
            await self._stream.send_all(b"".join(self._connection.send(Hello())))
            answer = await self._event()
        except (OSError, trio.BrokenResourceError, RemoteProtocolError, NoAnswer) as error:
            raise NotSent(f"{self.address}: no handshake: {error}") from error
        if not isinstance(answer, Welcome):
            raise NotSent(f"{self.address}: refused: {answer}")

    async def ask(self, request: Request, payload: Sequence[Buffer] = (),
                  timeout_s: float = 5.0, metadata_index: int = 0) -> Reply | None:
        """The reply; None for an append with acks "none".  Raises as the module docstring says."""
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
        """Hang up, without a checkpoint: whoever was cancelled has more than one to close."""
        self.usable = False
        self._stream.socket.close()


async def connect(address: str, timeout_s: float = CONNECT_TIMEOUT_S) -> Session:
    """A session that is ready to ask; ``close`` it.  Raises ``NotSent``."""
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
    """One session per node, made when it is needed and again after it broke; for one process.  Use
    it with ``async with``."""

    def __init__(self):
        self._sessions: dict[str, Session] = {}

    async def __aenter__(self) -> "Sessions":
        return self

    async def __aexit__(self, *_why: object) -> None:
        """Hang up everywhere."""
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()

    async def ask(self, address: str, request: Request, payload: Sequence[Buffer] = (),
                  timeout_s: float = 5.0, metadata_index: int = 0) -> Reply | None:
        """As ``Session.ask``, of the node at ``address``."""
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
