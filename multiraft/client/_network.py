"""Connections of one client as a state machine: links to open, bytes to send, requests in flight.

Contract.  ``changed`` holds the links that need the driver: it opens a socket for a new link, sends
``link.take_outgoing()``, and closes the socket of a link that is ``closed``.  It reports
``connected`` or ``broken``, receives into ``link.buffer_for_receive()`` and calls ``tick``.  Times
are arguments (``now_ms``).  Each request given to ``request`` ends with exactly one call of its
``on_done``, perhaps before ``request`` returns: with a ``ResponseEvent``, or with ``Lost``, which
says whether the bytes may have reached the node.

Invariants.  At most one link per address.  A link that is ``closed`` has no requests.  No request
has a deadline before ``_due_ms``, so that ``tick`` checks no request until then.

Elsewhere.  Requests, their targets and retries: ``_client.py``, ``_producer.py``, ``_consumer.py``.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple, Sequence

from multiraft.client._metadata import ANSWERED, NOT_TRIED, UNANSWERED
from multiraft.client.texts import by_reason, duration
from multiraft.codec import layout
from multiraft.errors import ConfigError, MultiRaftError
from multiraft.wire import messages
from multiraft.wire.addresses import split_address
from multiraft.wire.connection import NEED_DATA, Connection, RequestEvent, ResponseEvent, Role
from multiraft.wire.errors import Code, LocalProtocolError, RemoteProtocolError
from multiraft.wire.frames import Buffer, WireLimits
from multiraft.wire.messages import (
    TOPIC_NAME_MAX,
    VERSIONS_SUPPORTED,
    Hello,
    Produce,
    Refused,
    Request,
    Welcome,
)


class NoNodeAnswered(MultiRaftError):
    """None of the known addresses answered; ``errors`` maps each to its last error."""

    def __init__(self, errors: dict[str, str]):
        super().__init__(f"no node answered: {by_reason(errors)}")
        self.errors = errors


@dataclass(frozen=True, slots=True)
class NetworkLimits:
    """Intervals and timeouts of a client's connections, in milliseconds."""

    #: Time to connect, TLS included: under 1 ms on one machine, 300 ms across the world.
    connect_timeout_ms: int = 3_000
    #: Time for an answer beyond the time that the request allows the node.
    answer_grace_ms: int = 3_000
    #: Time after which an operation raises ``NoNodeAnswered`` when no address answers at all.
    unreachable_ms: int = 3_000
    #: Shortest and longest pause before an address or a request is tried again.  Half of a pause is
    #: random, so that clients that lost the same node do not return together.
    retry_ms_min: int = 25
    retry_ms_max: int = 1_000
    #: First pause while a partition is switched to another group, which takes one or two commits.
    moving_ms_min: int = 4
    #: Longest time after which the metadata of topics in use are requested again, which may have
    #: more partitions then.  A request costs the node some 25 bytes and 2 us per partition.
    metadata_refresh_ms: int = 60_000


def backoff_ms(limits: NetworkLimits, failures: int, rng: random.Random,
               first_ms: int = 0) -> int:
    """Return the pause after the n-th consecutive failure, in milliseconds: doubled each time,
    bounded, half of it random.  ``first_ms`` above 0 replaces ``retry_ms_min``."""
    assert failures >= 1
    first_ms = first_ms or limits.retry_ms_min
    full = min(limits.retry_ms_max, first_ms << min(failures - 1, 16))
    return full // 2 + rng.randrange(full - full // 2 + 1)


def parse_address(text: str) -> tuple[str, int]:
    """Return (host, port) of ``host:port`` or ``[v6]:port``. Raises ``ConfigError`` for other
    text."""
    if not isinstance(text, str):
        raise ConfigError(f"server address {text!r:.80}: expected text, host:port")
    parsed = split_address(text.strip())
    if parsed is None:
        raise ConfigError(f"server address {text!r:.320}: expected host:port")
    return parsed


def _require_client_id(client_id: str) -> None:
    """Raise ``ConfigError`` if the Hello cannot carry ``client_id``."""
    try:
        good = len(client_id.encode()) <= TOPIC_NAME_MAX
    except (AttributeError, UnicodeEncodeError):
        good = False
    if not good:
        raise ConfigError(f"client_id={client_id!r:.80}: expected text of at most "
                          f"{TOPIC_NAME_MAX} bytes in UTF-8")


class Lost(NamedTuple):
    """A request without an answer.  ``sent`` False = it certainly did not reach the node."""

    sent: bool
    why: str
    impossible: bool = False  # it cannot be encoded, or has no address: do not retry


#: Other links are preferred to one that owes answers and has sent nothing for this long.  A long
#: poll of a consumer takes as long, so the link is not closed for it.
SILENT_MS = 600
#: A named tuple from all its fields, without the Python function in front of it.
_new = tuple.__new__
#: Later than any time.
NEVER_MS = 1 << 62

#: Deadlines that are examined so much too late say that this process did not run.  Answers that
#: arrived meanwhile are read first: nothing ends before ``READ_MS`` have passed.
LATE_MS = 250
READ_MS = 50
#: Buffers in one ``sendmsg``: half of what Linux takes (UIO_MAXIOV).
GATHER_MAX = 512


def drop_sent(buffers: list[Buffer], count: int) -> list[Buffer]:
    """Return the rest of ``buffers`` after ``count`` bytes of them were sent.  O(buffers)."""
    for at, buffer in enumerate(buffers):
        size = buffer.nbytes if type(buffer) is memoryview else len(buffer)
        if count < size:
            return [memoryview(buffer)[count:], *buffers[at + 1:]]
        count -= size
    assert count == 0, "more was sent than there was"
    return []


OnDone = Callable[["ResponseEvent | Lost"], None]


class _Pending:
    """A request that waits to be sent or is in flight."""

    __slots__ = ("request", "payload", "deadline_ms", "on_done", "metadata_index")

    def __init__(self, request: Request, payload: Sequence[Buffer], deadline_ms: int,
                 on_done: OnDone, metadata_index: int):
        self.request = request
        self.payload = payload
        self.deadline_ms = deadline_ms
        self.on_done = on_done
        self.metadata_index = metadata_index


class Link:
    """One connection to an address, from the request that needs it until it is closed."""

    def __init__(self, network: "Network", address: str, place: "_Place", now_ms: int):
        self.address = address
        self.host, self.port = parse_address(address)
        self.closed = False
        self.why = ""  # why it was closed
        self.welcome: Welcome | None = None
        self.connection = Connection(Role.CLIENT, network.wire_limits)
        self.buffer_for_receive = self.connection.reader.memory.buffer_for_receive
        self._network = network
        self._place = place
        self._waiting: deque[_Pending] = deque()  # not encoded yet
        self._in_flight: dict[int, _Pending] = {}
        self._in_flight_max = 0  # 0 until the Welcome
        self._heard_ms = now_ms  # when it last answered, or began to owe an answer
        self._outgoing: list[Buffer] = []

    # ---- for the driver ----

    def connected(self) -> None:
        """Queue the Hello for sending, on a socket that the driver has opened."""
        hello = Hello(client_id=self._network.client_id, cluster=self._network.cluster)
        self._outgoing += self.connection.send(hello)
        self._network.changed[self] = None

    def received(self, count: int, now_ms: int) -> None:
        """Process ``count`` received bytes (0 = end of stream): finish requests with their answers,
        and encode waiting ones.  Bytes that break the protocol break the link.  O(answers)."""
        if self.closed:
            return
        connection = self.connection
        connection.received(count)
        self._heard_ms = now_ms
        try:
            while not self.closed and (event := connection.next_event()) is not NEED_DATA:
                if type(event) is ResponseEvent:
                    self._answered(event)
                else:
                    self._handle(event, now_ms)
        except RemoteProtocolError as error:
            self._network.broken(self, f"protocol error: {error}", now_ms)
        if self._waiting:
            self._release(now_ms)

    def take_outgoing(self) -> list[Buffer]:
        """Return the buffers to send now, in order, and forget them."""
        buffers, self._outgoing = self._outgoing, []
        return buffers

    def is_silent(self, now_ms: int) -> bool:
        """Return True if answers are owed and none came for ``SILENT_MS``: the node may hang."""
        return bool(self._in_flight) and now_ms - self._heard_ms >= SILENT_MS

    @property
    def load(self) -> int:
        """Number of requests that wait or are in flight."""
        return len(self._waiting) + len(self._in_flight)

    # ---- inside ----

    def submit(self, pending: _Pending, now_ms: int) -> None:
        """Encode a request at once, or queue it until the node accepts another request in
        flight."""
        if self._waiting or len(self._in_flight) >= self._in_flight_max:
            self._waiting.append(pending)
        else:
            self._encode(pending, now_ms)

    def _release(self, now_ms: int) -> None:
        """Encode waiting requests, as far as the node accepts more in flight, and end those whose
        deadlines have passed: sent now, they would break a link that has just answered."""
        while self._waiting and len(self._in_flight) < self._in_flight_max:
            pending = self._waiting.popleft()
            if pending.deadline_ms <= now_ms:
                pending.on_done(Lost(False, "not connected in time"))
            else:
                self._encode(pending, now_ms)

    def _encode(self, pending: _Pending, now_ms: int) -> None:
        network, request = self._network, pending.request
        number = network.request_id = network.request_id + 1
        event = _new(RequestEvent, (number, request, pending.metadata_index))
        try:
            self._outgoing += self.connection.send(event, pending.payload)
        except (LocalProtocolError, TypeError, ValueError, OverflowError) as error:
            op = messages.OPS[type(request)]
            pending.on_done(Lost(False, f"{op} cannot be asked: {error}", impossible=True))
            return
        network.changed[self] = None
        if type(request) is Produce and request.acks == "none":
            pending.on_done(ResponseEvent(number))
            return
        if not self._in_flight:
            self._heard_ms = now_ms  # it begins to owe an answer
        self._in_flight[number] = pending

    def _answered(self, event: ResponseEvent) -> None:
        """Finish a request with its response, and learn a newer metadata index."""
        pending = self._in_flight.pop(event.id)
        self._place.failures = 0
        self._place.error = ANSWERED
        self._place.is_silent = False
        if event.metadata_index > self._network.metadata_index:
            self._network.metadata_index = event.metadata_index
        pending.on_done(event)

    def _handle(self, event: Any, now_ms: int) -> None:
        if isinstance(event, Welcome):
            self._in_flight_max = event.in_flight_max or 1
            self._network.welcomed(self, event, now_ms)
        elif isinstance(event, Refused):
            self._network.broken(self, _refusal(event), now_ms)
        else:
            self._network.broken(self, "the node closed the connection", now_ms)

    def expire(self, now_ms: int) -> bool:
        """End waiting requests whose deadlines have passed.  Returns True if the link is dead, and
        the caller closes it: a request in flight is overdue, or the last one that waited for the
        Welcome.  O(requests)."""
        late = [pending for pending in self._waiting if pending.deadline_ms <= now_ms]
        for pending in late:
            self._waiting.remove(pending)
            pending.on_done(Lost(False, "not connected in time"))
        if late and self.welcome is None and not self._waiting:
            return True
        return any(pending.deadline_ms <= now_ms for pending in self._in_flight.values())

    def silence(self, now_ms: int) -> str:
        """Return as text for how long the node has not answered."""
        return f"silent for {duration(now_ms - self._heard_ms)}"

    def next_deadline_ms(self) -> int:
        """Return the earliest deadline of a request; NEVER_MS = there is none.  O(requests)."""
        deadlines = [pending.deadline_ms for pending in self._waiting]
        deadlines += [pending.deadline_ms for pending in self._in_flight.values()]
        return min(deadlines, default=NEVER_MS)

    def abandon(self, why: str) -> list[tuple[_Pending, Lost]]:
        """Mark the link as closed.  Returns its requests, each with the outcome that the caller
        reports."""
        self.closed, self.why = True, why
        told = [(pending, Lost(True, why)) for pending in self._in_flight.values()]
        told += [(pending, Lost(False, why)) for pending in self._waiting]
        self._waiting.clear()
        self._in_flight.clear()
        self._outgoing.clear()
        return told


def _refusal(refused: Refused) -> str:
    """Return the reason for which a node refused this client."""
    if refused.code != Code.UNSUPPORTED or not refused.versions:
        return f"refused: {refused.text}"
    return (f"it speaks {_versions(refused.versions)} of the protocol, this client speaks "
            f"{_versions(VERSIONS_SUPPORTED)}: upgrade the older of the two")


def _versions(numbers: Sequence[int]) -> str:
    return f"version{'s' * (len(numbers) != 1)} {' and '.join(map(str, numbers))}"


class _Place:
    """State of an address that outlives its links: failures, pause and last error.  ``is_silent``:
    its last connection was accepted, and nothing came."""

    __slots__ = ("failures", "retry_at_ms", "error", "is_silent")

    def __init__(self) -> None:
        self.failures = 0
        self.retry_at_ms = 0
        self.error = NOT_TRIED
        self.is_silent = False


class Network:
    """Links and addresses of one client."""

    def __init__(self, servers: str | Sequence[str], rng: random.Random, client_id: str = "",
                 limits: NetworkLimits = NetworkLimits(), wire_limits: WireLimits = WireLimits()):
        if isinstance(servers, str):  # as Kafka's bootstrap.servers
            servers = [server for server in servers.split(",") if server.strip()]
        if not servers:
            raise ConfigError("no server address given")
        for server in servers:
            parse_address(server)
        _require_client_id(client_id)
        self.client_id = client_id
        self.limits = limits
        self.wire_limits = wire_limits
        self.cluster: bytes | None = None
        self.metadata_index = 0  # the newest that a node has sent
        self.batch_bytes_max = layout.BATCH_BYTES_MAX  # of one batch, from the last Welcome
        self.servers = list(dict.fromkeys(server.strip() for server in servers))
        self._known: list[str] = []  # addresses of the cluster's nodes
        self._rng = rng
        self._places: dict[str, _Place] = {}
        self._links: dict[str, Link] = {}
        self.changed: dict[Link, None] = {}  # links that need the driver
        self._due_ms = NEVER_MS
        self._is_postponed = False  # the driver was late, and reads what has arrived
        self.request_id = 0  # of the last one; unique in this client

    # ---- requests ----

    def request(self, address: str, request: messages.Request, payload: Sequence[Buffer],
                timeout_ms: int, on_done: OnDone, now_ms: int) -> None:
        """Send ``request`` to ``address``, over a new connection if there is none. Call ``on_done``
        with the outcome: inside this call if the address is invalid or in its pause after a
        failure. ``timeout_ms`` counts from now and includes connecting. O(1)."""
        link = self._links.get(address)
        if link is None:
            place = self._place(address)
            if now_ms < place.retry_at_ms:
                on_done(Lost(False, place.error))
                return
            try:
                link = self._links[address] = Link(self, address, place, now_ms)
            except ConfigError as error:  # an invalid address that a node has sent
                on_done(Lost(False, str(error), impossible=True))
                return
            self.changed[link] = None
            if place.error == NOT_TRIED:
                place.error = UNANSWERED
        deadline_ms = now_ms + timeout_ms
        if deadline_ms < self._due_ms:
            self._due_ms = deadline_ms
        link.submit(_Pending(request, payload, deadline_ms, on_done, self.metadata_index), now_ms)

    def any_address(self, now_ms: int, avoid: str = "") -> str | None:
        """Return an address for a request that every node can answer.  Preferred are open links
        that are not silent, the least loaded first, then addresses outside of their pauses: those
        never tried first, then those whose pause ended earliest.  ``avoid`` is returned only when
        there is no other address.  None = all are in their pauses.  O(addresses)."""
        choices = [address for address in self.addresses() if address != avoid] or [avoid]
        silent = [address for address in choices
                  if (link := self._links.get(address)) and link.is_silent(now_ms)]
        choices = [address for address in choices if address not in silent] or silent
        welcome = [address for address in choices
                   if (link := self._links.get(address)) and link.welcome]
        if welcome:
            least = min(self._links[address].load for address in welcome)
            return self._rng.choice([address for address in welcome
                                     if self._links[address].load == least])
        ready = [address for address in choices if self._place(address).retry_at_ms <= now_ms]
        if ready:
            # A random choice alone could miss the only node that is up until the caller's timeout.
            first = min(self._place(address).retry_at_ms for address in ready)
            ready = [address for address in ready if self._place(address).retry_at_ms == first]
        return self._rng.choice(ready or silent) if ready or silent else None

    def has_untried(self, besides: str = "") -> bool:
        """Return True if another address than ``besides`` was never asked."""
        return any(self._place(address).error == NOT_TRIED for address in self.addresses()
                   if address != besides)

    def has_undecided(self) -> bool:
        """Return True if an address may still answer: it was not asked, or has been silent."""
        return any(place.is_silent or place.error in (NOT_TRIED, UNANSWERED)
                   for place in map(self._place, self.addresses()))

    def is_open(self, address: str) -> bool:
        """Return True if a node has welcomed this client at ``address``."""
        link = self._links.get(address)
        return link is not None and link.welcome is not None

    def addresses(self) -> list[str]:
        """Return all known addresses: those of the cluster's nodes, then the bootstrap servers."""
        return list(dict.fromkeys([*self._known, *self.servers]))

    def learn(self, addresses: Sequence[str]) -> None:
        """Replace the addresses of the cluster's nodes; invalid ones are left out."""
        self._known = []
        for address in addresses:
            try:
                parse_address(address)
            except ConfigError:
                continue
            self._known.append(address)

    def errors(self) -> dict[str, str]:
        """Return the last error of each address."""
        return {address: self._place(address).error for address in self.addresses()}

    def next_retry_ms(self) -> int | None:
        """Return the time at which the first address leaves its pause; in the past if one is in
        none, None = no address is known. O(addresses)."""
        return min((self._place(address).retry_at_ms for address in self.addresses()), default=None)

    # ---- for the driver ----

    def take_changed(self) -> dict[Link, None]:
        """Return the links that need the driver (``changed``), and forget them."""
        changed, self.changed = self.changed, {}
        return changed

    def links(self) -> list[Link]:
        """Return the links that are open or being opened."""
        return list(self._links.values())

    def broken(self, link: Link, why: str, now_ms: int) -> None:
        """Close a link whose socket failed or whose node broke the protocol; ``why`` is the error.
        Its requests end as ``Lost``, and its address is paused.  Do nothing if it is closed."""
        if link.closed:
            return
        place = self._place(link.address)
        place.is_silent = False
        place.failures += 1
        place.error = why
        place.retry_at_ms = now_ms + backoff_ms(self.limits, place.failures, self._rng)
        assert self._links[link.address] is link
        del self._links[link.address]
        self.changed[link] = None
        for pending, lost in link.abandon(why):
            pending.on_done(lost)

    def tick(self, now_ms: int) -> None:
        """End requests whose deadlines have passed, and break links whose nodes did not answer in
        time.  A driver that calls it late has not read for as long: it gets ``READ_MS`` to do so
        first.  O(1), and O(requests) when one may be due."""
        if now_ms < self._due_ms:
            return
        if now_ms - self._due_ms >= LATE_MS and not self._is_postponed:
            self._is_postponed, self._due_ms = True, now_ms + READ_MS
            return
        self._is_postponed = False
        for link in self.links():
            if link.load and not link.closed and link.expire(now_ms):
                is_silent = link.welcome is None
                self.broken(link, link.silence(now_ms), now_ms)
                self._place(link.address).is_silent = is_silent
        self._due_ms = min((link.next_deadline_ms() for link in self._links.values()),
                           default=NEVER_MS)

    def next_deadline_ms(self) -> int | None:
        """Return the time at which ``tick`` is due; None = not at all.  It may be early, when the
        request with that deadline was answered meanwhile."""
        return self._due_ms if self._due_ms < NEVER_MS else None

    def close(self) -> None:
        """Close all links; each request ends as ``Lost``."""
        for link in self.links():
            self.broken(link, "the client was closed", 0)

    # ---- for links ----

    def welcomed(self, link: Link, welcome: Welcome, now_ms: int) -> None:
        """Take cluster id and limits from a link's Welcome, and mark the link as open; break it if
        the node belongs to another cluster."""
        if self.cluster not in (None, welcome.cluster):
            self.broken(link, f"node {welcome.node} belongs to cluster {welcome.cluster.hex()}, "
                        f"not {self.cluster.hex()}", now_ms)
            return
        self.cluster = welcome.cluster
        self.batch_bytes_max = welcome.batch_bytes_max or layout.BATCH_BYTES_MAX
        link.welcome = welcome

    def _place(self, address: str) -> _Place:
        place = self._places.get(address)
        if place is None:
            place = self._places[address] = _Place()
        return place
