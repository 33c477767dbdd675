"""Prober that asks many groups at once for appends, and measures how long each refuses them.

Contract.  ``Prober`` speaks the wire protocol over one non-blocking connection per node and sends
batches of one small record, many partitions in one request.  A group counts when an append to it is
acknowledged with ``commit``.  An append that is refused or stays unanswered is tried again at the
node that the refusal names, or at the next one.  The prober knows nothing of leaders or of the
fault, as any client, and is cheap enough not to affect the measurement.
"""

from __future__ import annotations

import errno
import selectors
import socket
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from benchmarks.processes import BenchmarkError
from multiraft.core import BatchBuilder
from multiraft.wire import NEED_DATA, Connection, Hello, RequestEvent, ResponseEvent, Role, Welcome
from multiraft.wire import messages as wire

#: Partitions in one request: one refusal for all of them must not keep a quick one waiting.
PARTS_MAX = 32
#: Pause before a group that refused is asked again.
AGAIN_S = 0.02
#: A request without an answer in this time counts as lost with its node.
PATIENCE_S = 0.4
RECORD_BYTES = 100
CALL_S = 10.0
#: Interval from an acknowledgement to the next append to a watched group: a thousand groups are
#: then a load that does not itself keep the nodes busy, and with all phases among them some append
#: is under way whenever a pause begins.
WATCH_INTERVAL_S = 0.5


class Place(NamedTuple):
    """One group, the partition that stands for it, and its leader when the plan was made."""

    group: int
    incarnation: int
    leader: int


class Link:
    """One connection; it is dialled again whenever it is needed and closed."""

    def __init__(self, address: str):
        self.address = address
        self.sock: socket.socket | None = None
        self.connection = Connection(Role.CLIENT)
        self.welcome = False
        self.pending: list[bytes] = []
        self.redial_at = 0.0

    def open(self, now: float) -> bool:
        """Begin to dial if it is time; return True if there is a socket."""
        if self.sock is None and now >= self.redial_at:
            host, port = self.address.rsplit(":", 1)
            self.redial_at = now + AGAIN_S
            self.connection = Connection(Role.CLIENT)
            self.welcome = False
            sock = socket.socket()
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if sock.connect_ex((host, int(port))) not in (0, errno.EINPROGRESS):
                sock.close()
                return False
            self.sock = sock
            self.pending = [b"".join(self.connection.send(Hello(client_id="prober")))]
        return self.sock is not None

    def close(self) -> None:
        """Close the socket and drop the requests that waited for it."""
        if self.sock is not None:
            self.sock.close()
            self.sock = None
        self.welcome = False
        self.pending = []


class Prober:
    """Prober of many groups over one connection per node."""

    def __init__(self, addresses: dict[int, str]):
        self._links = {node: Link(address) for node, address in addresses.items()}
        self._selector = selectors.DefaultSelector()
        self._next_id = 0
        #: request id -> (node, sent, places)
        self._asked: dict[int, tuple[int, float, list[Place]]] = {}
        builder = BatchBuilder(4096)
        builder.append(int(time.time() * 1000), None, b"p" * RECORD_BYTES)
        self._batch = bytes(builder.build())

    def close(self) -> None:
        """Close all connections."""
        for link in self._links.values():
            self._drop(link)
        self._selector.close()

    def first_accepted(self, places: Iterable[Place], since: float, limit_s: float,
                       without: int = 0) -> dict[int, float]:
        """Return group -> seconds from ``since`` (``time.monotonic``) until it first acknowledged.
        Node ``without`` is not asked.  Raises ``BenchmarkError`` when some have not after
        ``limit_s``."""
        self._nodes = [node for node in self._links if node != without]
        due = {place: since for place in places}
        self._target = {place.group: place.leader if place.leader in self._nodes
                        else self._nodes[place.group % len(self._nodes)] for place in due}
        self._asked.clear()
        done: dict[int, float] = {}

        def accepted(place: Place, now: float) -> None:
            done.setdefault(place.group, now - since)

        while due or self._asked:
            now = time.monotonic()
            if now - since > limit_s:
                waiting = sorted({p.group for p in due}
                                 | {p.group for _, _, ps in self._asked.values() for p in ps})
                raise BenchmarkError(f"{len(waiting)} groups accept nothing after {limit_s} s: "
                                     f"{waiting[:10]}")
            self._give_up_late(now, due)
            self._ask(now, due)
            self._turn(due, accepted)
        return done

    def watch(self, places: Iterable[Place], ended: Callable[[], bool]) -> dict[int, float]:
        """Return group -> the longest time, in seconds, that an append to it took, all its attempts
        together.  Every group is asked again and again until ``ended``; appends that are open then
        count with their time so far."""
        self._nodes = list(self._links)
        self._target = {place.group: place.leader or self._nodes[0] for place in places}
        self._asked.clear()
        started = time.monotonic()
        asked_first = {place: started + WATCH_INTERVAL_S * number / len(self._target)
                       for number, place in enumerate(places)}
        due = dict(asked_first)
        longest = dict.fromkeys(self._target, 0.0)

        def accepted(place: Place, now: float) -> None:
            longest[place.group] = max(longest[place.group], now - asked_first[place])
            due[place] = asked_first[place] = now + WATCH_INTERVAL_S

        while not ended():
            now = time.monotonic()
            self._give_up_late(now, due)
            self._ask(now, due)
            self._turn(due, accepted)
        now = time.monotonic()
        for place, since in asked_first.items():
            longest[place.group] = max(longest[place.group], now - since)
        return longest

    def _give_up_late(self, now: float, due: dict[Place, float]) -> None:
        for request, (node, sent, places) in list(self._asked.items()):
            if now - sent > PATIENCE_S:
                del self._asked[request]
                for place in places:
                    self._elsewhere(place, node)
                    due[place] = now

    def _elsewhere(self, place: Place, node: int) -> None:
        at = self._nodes.index(node) if node in self._nodes else 0
        self._target[place.group] = self._nodes[(at + 1) % len(self._nodes)]

    def _ask(self, now: float, due: dict[Place, float]) -> None:
        ready: dict[int, list[Place]] = {}
        for place, at in due.items():
            if at <= now:
                ready.setdefault(self._target[place.group], []).append(place)
        for node, places in ready.items():
            link = self._links[node]
            if not self._dialled(link, node, now):
                for place in places:
                    self._elsewhere(place, node)
                    due[place] = now + AGAIN_S
                continue
            if not link.welcome:
                continue
            for first in range(0, len(places), PARTS_MAX):
                chunk = places[first:first + PARTS_MAX]
                parts = tuple(wire.BatchPart(place.incarnation, len(self._batch))
                              for place in chunk)
                self._next_id += 1
                request = RequestEvent(self._next_id, wire.Produce("commit", 60_000, parts))
                payload = [self._batch] * len(chunk)
                link.pending.append(b"".join(link.connection.send(request, payload)))
                self._asked[self._next_id] = (node, now, chunk)
                for place in chunk:
                    del due[place]
            self._flush(link)

    def _dialled(self, link: Link, node: int, now: float) -> bool:
        fresh = link.sock is None
        if not link.open(now):
            return False
        if fresh:
            self._selector.register(link.sock, selectors.EVENT_READ | selectors.EVENT_WRITE, node)
        return True

    def _flush(self, link: Link) -> None:
        while link.pending:
            try:
                sent = link.sock.send(link.pending[0])
            except BlockingIOError:
                return
            except OSError:
                self._drop(link)
                return
            if sent < len(link.pending[0]):
                link.pending[0] = link.pending[0][sent:]
            else:
                link.pending.pop(0)

    def _drop(self, link: Link) -> None:
        if link.sock is not None:
            self._selector.unregister(link.sock)
        link.close()

    def _turn(self, due: dict[Place, float], accepted: Callable[[Place, float], None]) -> None:
        for key, mask in self._selector.select(AGAIN_S / 2):
            node = key.data
            link = self._links[node]
            if link.sock is not key.fileobj:
                continue
            if mask & selectors.EVENT_WRITE:
                self._flush(link)
                if link.sock is not None and not link.pending:
                    self._selector.modify(link.sock, selectors.EVENT_READ, node)
            if mask & selectors.EVENT_READ and link.sock is not None:
                self._receive(node, link, due, accepted)

    def _receive(self, node: int, link: Link, due: dict[Place, float],
                 accepted: Callable[[Place, float], None]) -> None:
        try:
            count = link.sock.recv_into(link.connection.buffer_for_receive())
        except BlockingIOError:
            return
        except OSError:
            count = 0
        if not count:
            self._drop(link)
            self._lost(node, due)
            return
        link.connection.received(count)
        now = time.monotonic()
        while (event := link.connection.next_event()) is not NEED_DATA:
            if isinstance(event, Welcome):
                link.welcome = True
            elif isinstance(event, ResponseEvent) and event.id in self._asked:
                _node, _sent, places = self._asked.pop(event.id)
                results = (event.reply.results if event.reply is not None
                           else [event] * len(places))
                for place, result in zip(places, results, strict=True):
                    if result.code == 0:
                        accepted(place, now)
                    else:
                        self._refused(place, node, result.error)
                        due[place] = now + AGAIN_S

    def _lost(self, node: int, due: dict[Place, float]) -> None:
        now = time.monotonic()
        for request, (asked, _sent, places) in list(self._asked.items()):
            if asked == node:
                del self._asked[request]
                for place in places:
                    self._elsewhere(place, node)
                    due[place] = now

    def _refused(self, place: Place, node: int, error) -> None:
        if error is not None and error.leader in self._nodes:
            self._target[place.group] = error.leader
        else:
            self._elsewhere(place, node)


def call(address: str, request: wire.Request, limit_s: float = CALL_S):
    """Send one request over a connection of its own and return the reply.  Raises
    ``BenchmarkError`` for a refusal."""
    host, port = address.rsplit(":", 1)
    connection = Connection(Role.CLIENT)
    with socket.create_connection((host, int(port)), timeout=limit_s) as sock:
        for event, payload in ((Hello(client_id="benchmark"), ()), (RequestEvent(1, request), ())):
            sock.sendall(b"".join(connection.send(event, payload)))
            while (answer := connection.next_event()) is NEED_DATA:
                connection.received(sock.recv_into(connection.buffer_for_receive()))
    if not isinstance(answer, ResponseEvent) or answer.reply is None:
        raise BenchmarkError(f"{address} answers {request!r} with {answer!r}")
    return answer.reply
