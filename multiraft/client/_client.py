"""Client core: network, metadata, producers and consumers of one client, without I/O.

Contract.  A driver passes received bytes to the links of ``network``, calls ``advance`` after every
input and at ``next_deadline_ms``, and sends what the links put out.  Operations (``_steps.py``)
work on this core; drivers differ only in how they wait.
"""

from __future__ import annotations

import random
from typing import Any, Sequence

from multiraft.client._accumulator import ProducerSettings
from multiraft.client._batches import Delivery
from multiraft.client._consumer import ConsumerSettings, ConsumerState, Query, Start
from multiraft.client._identity import Identifying
from multiraft.client._lifecycle import Closed, Forked, fresh, warn_unsent
from multiraft.client._metadata import MetadataCache
from multiraft.client._network import Lost, Network, NetworkLimits, backoff_ms
from multiraft.client._producer import Attempt, ProducerState
from multiraft.client._transactions import Transactions
from multiraft.errors import MultiRaftError
from multiraft.wire.connection import ResponseEvent
from multiraft.wire.errors import Code, InvalidRequest, exception_for
from multiraft.wire.messages import (
    TOPICS_PER_REQUEST_MAX,
    ClusterStatus,
    Metadata,
    MetadataReply,
    NodeStatus,
)
from multiraft.wire.sinks import ResolveTransactions, TransactionStates

#: Shortest interval of metadata requests; a leader election takes several times as long.
REFRESH_MS_MIN = 100
#: A node that does not answer a metadata request in this time is avoided by the next one.
REFRESH_TIMEOUT_MS = 2_000


class ClientCore:
    """State of one client, shared by its producers, consumers and operations."""

    def __init__(self, servers: str | Sequence[str], rng: random.Random, now_ms: int,
                 client_id: str = "", limits: NetworkLimits = NetworkLimits()):
        self.now_ms = now_ms
        self.rng = rng
        self.limits = limits
        self.network = Network(servers, rng, client_id, limits)
        self.metadata = MetadataCache()
        self.metadata.answers = self.network.errors
        self.transactions = Transactions()
        self._producers: dict[ProducerState, Identifying] = {}
        self._consumers: dict[ConsumerState, None] = {}
        self._refreshing = False
        self._refresh_at_ms = now_ms
        self._aged_at_ms = 0  # when the metadata of topics in use are requested; 0 = not set yet
        self._refresh_failures = 0
        self._refresh_avoid = ""
        self._refresh_names_max = TOPICS_PER_REQUEST_MAX  # fewer while requests are refused
        self._catching_up = False
        self._leader_address = ""  # of the metadata leader, as the last answer said
        self.ended: MultiRaftError | None = None  # the reason, once the client has ended
        self._has_warned = False  # of records that are not sent

    # ---- what exists ----

    def producer(self, settings: ProducerSettings, kind: type[Delivery],
                 owner: Any) -> ProducerState:
        """Return a new producer, whose deliveries are of class ``kind`` and wait with the client
        ``owner``.  Call ``remove`` when it is closed."""
        self.require_open()
        producer = ProducerState(settings, self.metadata, self.rng, kind, owner, self.limits,
                                 lambda: self.network.batch_bytes_max)
        self._producers[producer] = Identifying()
        return producer

    def consumer(self, settings: ConsumerSettings, topic: str, partition: int | None,
                 start: Start, until_end: bool, end_offset: int | None = None,
                 incarnation: int = 0) -> ConsumerState:
        """Return a new consumer.  Call ``remove`` when it is closed."""
        self.require_open()
        consumer = ConsumerState(settings, self.metadata, self.rng, topic, partition, start,
                                 until_end, self.limits, end_offset, incarnation, self.transactions)
        self._consumers[consumer] = None
        return consumer

    def remove(self, part: ProducerState | ConsumerState | None) -> None:
        """Remove a producer or consumer that was closed."""
        if isinstance(part, ProducerState):
            self._producers.pop(part, None)
        elif part is not None:
            self._consumers.pop(part, None)

    # ---- the end ----

    def require_open(self) -> None:
        """Raise ``Closed`` or ``Forked`` when the client has ended."""
        if self.ended is not None:
            raise fresh(self.ended)

    def close(self, why: str) -> MultiRaftError | None:
        """End all requests, deliveries and consumers; do nothing if the client has ended.  Returns
        the failures that no caller has learned of, as ``Accumulator.take_failure`` does; None =
        there are none."""
        if self.ended is not None:
            return None
        self.ended = Closed(why)
        self.network.close()
        failures = []
        for producer in self._producers:
            producer.close(why)
            failures.append(producer.records.take_last_failure())
        # A list here and below: a consumer that is collected meanwhile removes itself.
        for consumer in list(self._consumers):
            consumer.end(self.ended)
        self._producers.clear()
        self._consumers.clear()
        return _joined([failure for failure in failures if failure is not None])

    def unsent(self) -> dict[str, int]:
        """Return topic -> number of records that no producer has sent; empty once the client has
        ended.  O(batches + records that wait for metadata)."""
        unsent: dict[str, int] = {}
        if self.ended is None:
            for producer in self._producers:
                for topic, count in producer.records.unsent().items():
                    unsent[topic] = unsent.get(topic, 0) + count
        return unsent

    def warn_unsent(self, why: str) -> None:
        """Warn of records that no producer has sent, unless the client has ended or has warned."""
        unsent = {} if self._has_warned else self.unsent()
        self._has_warned |= bool(unsent)
        warn_unsent(unsent, why)

    def describe(self, module: str) -> str:
        """Return the ``repr`` of a client of ``module``: bootstrap servers and state."""
        state = "open" if self.ended is None else type(self.ended).__name__.lower()
        return f"<{module}.Client {','.join(self.network.servers)} {state}>"

    def inherited(self, error: Forked) -> None:
        """End the client in a child process with ``error``; its parent still uses its own copy."""
        self.ended = error
        for producer in self._producers:
            producer.end(error)
        for consumer in list(self._consumers):
            consumer.end(error)

    # ---- time ----

    def advance(self, now_ms: int) -> None:
        """Set the time, give the network what producers, consumers and the metadata cache have to
        send, and end what is overdue.  It does not wait.  O(producers + consumers + due work)."""
        self.now_ms = now_ms
        self.network.tick(now_ms)
        for producer, identity in self._producers.items():
            for attempt in producer.poll(now_ms):
                self._produce(producer, attempt)
            if producer.wants_identity:
                self._identify(producer, identity)
        for consumer in list(self._consumers):
            for query in consumer.poll(now_ms):
                self._ask(consumer, query)
        if self.metadata.used and now_ms >= self._aged_at_ms:
            self._want_used()
        if self.metadata.wants and not self._refreshing and now_ms >= self._refresh_at_ms:
            self._refresh()
        if self.transactions.wants and now_ms >= self.transactions.ask_at_ms:
            self._ask_transactions()
        resolve_due_ms = self.transactions.resolve_due_ms()
        if resolve_due_ms is not None and now_ms >= resolve_due_ms:
            self._resolve_transactions()

    def next_deadline_ms(self) -> int | None:
        """Return the time by which ``advance`` must be called next; None = no deadline."""
        deadlines = [self.network.next_deadline_ms()]
        for producer, identity in self._producers.items():
            deadlines.append(producer.next_deadline_ms())
            if producer.wants_identity and not identity.asking:
                deadlines.append(identity.retry_at_ms)
        for consumer in list(self._consumers):
            deadlines.append(consumer.next_deadline_ms())
        if self.metadata.used:
            deadlines.append(self._aged_at_ms)
        if self.metadata.wants and not self._refreshing:
            deadlines.append(max(self._refresh_at_ms, self.network.next_retry_ms() or 0))
        if self.transactions.wants:
            deadlines.append(self.transactions.ask_at_ms)
        deadlines.append(self.transactions.resolve_due_ms())
        first = None
        for at in deadlines:
            if at is not None and (first is None or at < first):
                first = at
        return first

    # ---- requests ----

    def _produce(self, producer: ProducerState, attempt: Attempt) -> None:
        self.network.request(
            attempt.address, attempt.request, attempt.payload,
            attempt.timeout_ms + self.limits.answer_grace_ms,
            lambda outcome: producer.done(attempt, outcome, self.now_ms), self.now_ms)

    def _ask(self, consumer: ConsumerState, query: Query) -> None:
        self.network.request(
            query.address, query.request, (), query.timeout_ms,
            lambda outcome: consumer.done(query, outcome, self.now_ms), self.now_ms)

    def _identify(self, producer: ProducerState, identity: Identifying) -> None:
        """Ask for a producer id, or for the next epoch of the producer's id, unless a request or a
        pause is under way."""
        if identity.asking or self.now_ms < identity.retry_at_ms:
            return
        address = identity.address or self.network.any_address(self.now_ms)
        if address is None:
            identity.retry_at_ms = max(self.now_ms + 1, self.network.next_retry_ms() or 0)
            return
        identity.asking = True
        self.network.request(
            address, identity.question(producer, self.rng), (), REFRESH_TIMEOUT_MS,
            lambda outcome: identity.answered(producer, outcome, self.now_ms, self.limits,
                                              self.rng), self.now_ms)

    def _ask_transactions(self) -> None:
        """Ask any node for the states of the transactions that readers wait for; while no address
        may be tried, set the time of the next attempt."""
        address = self.network.any_address(self.now_ms)
        if address is None:
            self.transactions.ask_at_ms = max(self.now_ms + 1, self.network.next_retry_ms() or 0)
            return

        def done(outcome: ResponseEvent | Lost) -> None:
            if isinstance(outcome, ResponseEvent) and outcome.code == Code.OK:
                self.transactions.learn(outcome.reply, self.now_ms)
            else:
                self.transactions.lost()

        self.network.request(address, TransactionStates(self.transactions.wanted(self.now_ms)), (),
                             REFRESH_TIMEOUT_MS, done, self.now_ms)

    def _resolve_transactions(self) -> None:
        """Ask the metadata leader about transactions that a node has called open; any node, if the
        leader is not known."""
        asked = self.transactions.to_resolve(self.now_ms)
        address = self._leader_address or self.network.any_address(self.now_ms)
        self._leader_address = ""
        if address is None:
            self.transactions.not_resolved(asked, "no node can be reached", False, self.now_ms)
            return

        def done(outcome: ResponseEvent | Lost) -> None:
            if isinstance(outcome, Lost):
                self.transactions.not_resolved(asked, outcome.why, False, self.now_ms)
                return
            if outcome.code == Code.OK:
                self._leader_address = address
                self.transactions.resolved(outcome.reply)
                return
            error = exception_for(outcome.code, outcome.error)
            self._leader_address = error.detail.leader_address
            self.transactions.not_resolved(
                asked, str(error), error.definite and not error.retriable, self.now_ms
            )

        self.network.request(
            address, ResolveTransactions(asked), (), REFRESH_TIMEOUT_MS, done, self.now_ms
        )

    def _want_used(self) -> None:
        """Request the metadata of the topics in use, and set the time of the next such request: a
        part of the interval is random, so that clients that began together do not ask together."""
        if self._aged_at_ms:
            self.metadata.want_used()
        interval_ms = self.limits.metadata_refresh_ms
        self._aged_at_ms = self.now_ms + interval_ms - self.rng.randrange(interval_ms // 2 + 1)

    def _refresh(self) -> None:
        """Ask any node for the metadata that producers and consumers want.  A failure is repeated
        after a pause; a refused request is split by topics."""
        wanted = self.metadata.wanted()[:self._refresh_names_max]
        address = self.network.any_address(self.now_ms, self._refresh_avoid)
        if address is None:
            self._refresh_at_ms = max(self.now_ms + 1, self.network.next_retry_ms() or 0)
            return
        self._refreshing = True

        def done(outcome: ResponseEvent | Lost) -> None:
            self._refreshing = False
            if isinstance(outcome, ResponseEvent) and outcome.code == Code.OK:
                self._refresh_failures, self._refresh_avoid = 0, ""
                self.metadata.is_unanswered = False
                self._refresh_names_max = min(2 * self._refresh_names_max, TOPICS_PER_REQUEST_MAX)
                self._refresh_at_ms = self.now_ms + REFRESH_MS_MIN
                self.learn(wanted, outcome.reply)
                if outcome.reply.missing:
                    self._catch_up()
                return
            if self._is_refused(outcome):
                self._part_names(wanted, outcome)
                return
            self._refresh_failures += 1
            self._refresh_avoid = address
            self.metadata.is_unanswered = isinstance(outcome, Lost)
            self._refresh_at_ms = self.now_ms + backoff_ms(
                self.limits, self._refresh_failures, self.rng)

        self.network.request(address, Metadata(wanted), (), REFRESH_TIMEOUT_MS, done, self.now_ms)

    @staticmethod
    def _is_refused(outcome: ResponseEvent | Lost) -> bool:
        """Return True if the same request would be refused again, so that a repetition is
        useless."""
        if isinstance(outcome, Lost):
            return outcome.impossible
        error = exception_for(outcome.code, outcome.error)
        return error.definite and not error.retriable

    def _part_names(self, wanted: tuple[str, ...], outcome: ResponseEvent | Lost) -> None:
        """Halve the number of topics per request, after one was refused: this isolates the topic
        that causes the refusal, so that the others get their metadata.  A request of one topic ends
        its waiting callers with the error."""
        self._refresh_at_ms = self.now_ms + REFRESH_MS_MIN
        if len(wanted) > 1:
            self._refresh_names_max = len(wanted) // 2
            return
        error = (InvalidRequest(outcome.why) if isinstance(outcome, Lost)
                 else exception_for(outcome.code, outcome.error))
        self.metadata.refuse(wanted[0], error.about(wanted[0]))

    def _catch_up(self) -> None:
        """Learn the metadata index of the metadata leader, after a node called a topic missing; do
        nothing while that is under way.  A node that only lags behind parks the next request until
        it has applied that index."""
        address = self.network.any_address(self.now_ms)
        if self._catching_up or address is None:
            return
        self._catching_up = True

        def told(outcome: ResponseEvent | Lost) -> None:
            leader = ""
            if isinstance(outcome, ResponseEvent) and outcome.code == Code.OK:
                status = outcome.reply
                leader = next((node.client_address for node in status.nodes
                               if node.id == status.metadata_leader), "")
            if leader:
                self.network.request(leader, NodeStatus(), (), REFRESH_TIMEOUT_MS, over,
                                     self.now_ms)
            else:
                over(outcome)

        def over(_outcome: ResponseEvent | Lost) -> None:
            self._catching_up = False

        self.network.request(address, ClusterStatus(), (), REFRESH_TIMEOUT_MS, told, self.now_ms)

    def learn(self, asked: tuple[str, ...], reply: MetadataReply) -> None:
        """Apply a metadata reply to the cache and to the known addresses."""
        self.metadata.apply(asked, reply, self.now_ms)
        self.network.learn([node.client_address for node in reply.nodes])


def _joined(failures: Sequence[MultiRaftError]) -> MultiRaftError | None:
    """Return the first failure, with the others and their notes as notes of it; None = there are
    none."""
    for other in failures[1:]:
        for text in (f"{type(other).__name__}: {other}", *getattr(other, "__notes__", ())):
            failures[0].add_note(text)
    return failures[0] if failures else None
