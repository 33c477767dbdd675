"""HTTP server for metrics and health, on a thread of its own.

Contract.  ``start`` binds (``BadConfig`` when it cannot) and serves from then on, before and during
recovery; ``attach`` connects it to the node once the node exists.  GET and HEAD of ``/metrics``,
``/healthz``, ``/readyz`` and ``/``, without a body; other requests get the matching status.  The
thread shares nothing with the loop but ``Life``.  For everything else it asks the loop; when the
loop does not answer in time, the reply says so.

Bounds.  ``HttpConfig`` limits connections, the size and time of a request's head, the time between
requests and the time of a reply.  A slow or silent client loses its own connection only.

Theory.  A thread, because recovery blocks the main thread, and because ``/healthz`` must answer
while the loop hangs.  h11 implements the protocol; this module moves bytes.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple

import h11
import trio

from node.clients.listener import Listener, listen
from node.clock import monotonic_ms
from node.config import HttpConfig
from node.loop.receive import linger
from node.loop.threads import name_this_thread
from node.observability import health, metrics
from node.observability.phase import Life
from node.observability.statistics import Sample

if TYPE_CHECKING:
    from node.loop.write_gather import WriteGather
    from node.peers.liveness_thread import LivenessThread

#: Time for the loop's answer, in seconds; scrapers usually wait for ten.
ASK_S = 3.0
#: Requests after which a kept connection is closed: a client with an endless stream of requests
#: reconnects.
REQUESTS_MAX = 1_000
RECEIVE_BYTES = 16 << 10

#: Age up to which scrapes share a sample, in milliseconds: rendering holds the interpreter lock,
#: and many scrapers would stop the loop.
SCRAPE_FRESH_MS = 100
#: Formats kept of one sample: scrapers ask for two.
FORMATS_MAX = 4

_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"
_INDEX = b"/metrics  Prometheus\n/healthz  alive\n/readyz   caught up\n"


class Reply(NamedTuple):
    """The reply to one request."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class Attached(NamedTuple):
    """Entry points into a running node that the HTTP thread uses."""

    token: trio.lowlevel.TrioToken  # of the loop
    request_sample: Callable[[Callable[[Sample], None]], None]  # on the loop
    loop_silent_ms: Callable[[], int]  # on any thread
    disk_busy_ms: Callable[[], int]  # on any thread


class HttpThread:
    """HTTP server for metrics and health, on a thread of its own."""

    def __init__(self, config: HttpConfig, life: Life):
        self._config = config
        self._life = life
        self._attached: Attached | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._scope: trio.CancelScope | None = None
        self._running = threading.Event()
        self._thread = threading.Thread(target=self._main, name="http", daemon=True)
        self._listener: Listener | None = None
        self._scraped: Sample | None = None  # the sample that scrapes share
        self._rendered: dict[str, tuple[str, bytes]] = {}  # accepted format -> type and body
        self._scraped_ms = monotonic_ms() - SCRAPE_FRESH_MS
        self._scraping = trio.Lock()

    def start(self) -> None:
        """Bind the port, and return once a thread of its own serves it; do nothing when HTTP is
        off. Raises ``BadConfig`` if it cannot listen there."""
        address = self._config.listen_address()
        if address is None:
            return
        self._listener = Listener(listen(address), self._handle, self._config.connections_max)
        self._life.http_port = address.port
        self._thread.start()
        self._running.wait()

    def attach(self, attached: Attached) -> None:
        """Answer ``/metrics``, ``/readyz`` and ``/healthz`` from a running node from now on."""
        self._attached = attached

    def stop(self) -> None:
        """End the thread and close its connections; returns when it has ended. May be repeated."""
        if not self._thread.is_alive():
            return
        assert self._token is not None and self._scope is not None
        try:
            self._token.run_sync_soon(self._scope.cancel)
        except trio.RunFinishedError:
            pass  # it is ending already
        self._thread.join()

    # ---- the thread ------------------------------------------------------------------------------

    def _main(self) -> None:
        name_this_thread(self._thread.name)
        try:
            trio.run(self._serve)
        finally:
            self._running.set()  # also after an error, else ``start`` would wait without end

    async def _serve(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as self._scope:
            self._running.set()
            assert self._listener is not None
            await self._listener.serve()

    async def _handle(self, sock: socket.socket) -> None:
        """Serve one connection, from its first request to its last, at most ``REQUESTS_MAX``."""
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(sock))
        connection = h11.Connection(h11.SERVER,
                                    max_incomplete_event_size=self._config.head_bytes_max)
        try:
            for number in range(1, REQUESTS_MAX + 1):
                last = number == REQUESTS_MAX
                if not await self._exchange(stream, connection, number == 1, last):
                    break
            await _end(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # closed by the client

    async def _exchange(self, stream: trio.SocketStream, connection: h11.Connection, first: bool,
                        last: bool) -> bool:
        """Receive one request and send its reply. Return True if another request may follow, False
        if the connection must end. ``first``: do not wait for an idle client; ``last``: announce
        the end."""
        if not first and not connection.trailing_data[0]:
            with trio.move_on_after(self._config.idle_timeout_ms / 1000) as idle:
                connection.receive_data(await stream.receive_some(RECEIVE_BYTES))
            if idle.cancelled_caught:
                return False
        heads: list[h11.Request] = []  # at most one; needed also when the request fails later
        whole = False
        try:
            with trio.move_on_after(self._config.request_timeout_ms / 1000):
                whole = await _receive(stream, connection, heads)
            if not whole:
                return False  # end of the stream, or timeout
            reply = await self._reply(heads[0])
        except h11.RemoteProtocolError as error:
            if connection.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
                return False
            reply = Reply(error.error_status_hint, _TEXT, f"{error}\n".encode())
            last = True
        with trio.move_on_after(self._config.write_timeout_ms / 1000) as patience:
            await _send(stream, connection, bool(heads) and heads[0].method == b"HEAD", reply, last)
        if patience.cancelled_caught or connection.our_state is not h11.DONE:
            return False
        connection.start_next_cycle()
        return True

    # ---- answers ---------------------------------------------------------------------------------

    async def _reply(self, request: h11.Request) -> Reply:
        if request.method not in (b"GET", b"HEAD"):
            return Reply(405, _TEXT, b"only GET and HEAD\n", (("Allow", "GET, HEAD"),))
        path = request.target.partition(b"?")[0]
        if path == b"/metrics":
            return await self._metrics(request)
        if path == b"/healthz":
            return self._healthz()
        if path == b"/readyz":
            return await self._readyz()
        if path == b"/":
            return Reply(200, _TEXT, _INDEX)
        return Reply(404, _TEXT, b"not found\n" + _INDEX)

    async def _metrics(self, request: h11.Request) -> Reply:
        accept = dict(request.headers).get(b"accept", b"").decode("ascii", "replace")
        async with self._scraping:
            if monotonic_ms() - self._scraped_ms >= SCRAPE_FRESH_MS:
                self._scraped = await self._sample()
                self._rendered, self._scraped_ms = {}, monotonic_ms()
            if accept not in self._rendered:
                if len(self._rendered) >= FORMATS_MAX:
                    self._rendered.clear()
                self._rendered[accept] = metrics.render(self._life, self._scraped, accept)
            return Reply(200, *self._rendered[accept])

    def _healthz(self) -> Reply:
        node = self._attached
        silent_ms, busy_ms = (node.loop_silent_ms(), node.disk_busy_ms()) if node else (0, 0)
        return _verdict("healthy", health.health(self._life, silent_ms, busy_ms,
                                                 self._config.stall_ms_max))

    async def _readyz(self) -> Reply:
        sample = await self._sample()
        return _verdict("ready", health.readiness(
            self._life, sample.survey if sample is not None else None))

    async def _sample(self) -> Sample | None:
        """Ask the loop for a sample, from the HTTP thread, and wait ``ASK_S`` for it. Return None
        if no node is attached or the loop does not answer."""
        node = self._attached
        if node is None:
            return None
        taken: list[Sample] = []
        done = trio.Event()
        token = trio.lowlevel.current_trio_token()

        def answer(sample: Sample) -> None:
            taken.append(sample)
            try:
                token.run_sync_soon(done.set)
            except trio.RunFinishedError:
                pass  # this thread has ended meanwhile

        try:
            node.token.run_sync_soon(node.request_sample, answer)
        except trio.RunFinishedError:
            return None  # the loop has ended
        with trio.move_on_after(ASK_S):
            await done.wait()
        return taken[0] if taken else None


async def _receive(stream: trio.SocketStream, connection: h11.Connection,
                   heads: list[h11.Request]) -> bool:
    """Read the next request; put its head into ``heads``. Return False at the end of the stream.
    Raises ``RemoteProtocolError`` for a malformed request or one with a body."""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some(RECEIVE_BYTES))
        elif isinstance(event, h11.Request):
            heads.append(event)
        elif isinstance(event, h11.EndOfMessage):
            return True
        elif isinstance(event, h11.Data):
            raise h11.RemoteProtocolError("no request here has a body", error_status_hint=413)
        else:
            return False  # closed


async def _send(stream: trio.SocketStream, connection: h11.Connection, head_only: bool,
                reply: Reply, last: bool) -> None:
    headers = [("Content-Type", reply.content_type), ("Content-Length", str(len(reply.body))),
               ("Cache-Control", "no-store"), *reply.headers]
    if last:
        headers.append(("Connection", "close"))
    data = connection.send(h11.Response(
        status_code=reply.status, headers=headers,
        reason=HTTPStatus(reply.status).phrase.encode()))
    if not head_only:
        data += connection.send(h11.Data(data=reply.body))
    await stream.send_all(data + (connection.send(h11.EndOfMessage()) or b""))


async def _end(stream: trio.SocketStream) -> None:
    """Shut down sending and read the rest of the client's data, so that the last reply arrives."""
    async def receive() -> int:
        return len(await stream.receive_some(RECEIVE_BYTES))

    await stream.send_eof()
    await linger(receive)


def _verdict(name: str, verdict: health.Verdict) -> Reply:
    body = json.dumps({name: verdict.good, "reason": verdict.reason, **verdict.details})
    return Reply(200 if verdict.good else 503, _JSON, body.encode() + b"\n")


def disk_busy_ms(disk: WriteGather) -> int:
    """Return the age of the disk's oldest unanswered job, in milliseconds; on any thread."""
    since_ms = disk.busy_since_ms
    return 0 if since_ms is None else max(0, monotonic_ms() - since_ms)


def loop_silent_ms(liveness: LivenessThread) -> int:
    """Return the milliseconds since the loop answered the liveness thread; on any thread."""
    return max(0, monotonic_ms() - liveness.loop_seen_ms)
