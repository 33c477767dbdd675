"""Acquisition of a producer's id and epoch: the request to send, and the meaning of each answer.

Contract.  ``question`` returns the request to send, the same one until an answer decides it;
``answered`` takes the outcome.  The driver sends and waits (``_client.py``).  The producer decides
when it needs another identity, and which id it has lost (``_producer.py``).

Theory.  An answer may be lost, or be AMBIGUOUS, although the command was committed.  Therefore the
request names an epoch that is above the producer's own by a random number, and names the same one
until it is answered.  The metadata group grants the epoch after the named one, and grants the same
epoch again to a request that names it again.  Another client with the same id draws another random
number, so the two clients are never granted the same epoch.  PRODUCER_FENCED then means that the
id belongs to another client, or that a node of an earlier release did not recognise the repetition.
The producer asks for a new id in both cases.
"""

from __future__ import annotations

import random

from multiraft.client._network import Lost, NetworkLimits, backoff_ms
from multiraft.client._producer import ProducerState
from multiraft.wire.connection import ResponseEvent
from multiraft.wire.errors import Code
from multiraft.wire.messages import EPOCHS_SKIPPED_MAX, InitProducer
from multiraft.wire.schema import I16_MAX

#: Codes after which the id of the request is lost and another one is requested.
_ID_LOST = frozenset((Code.PRODUCER_FENCED, Code.INVALID_REQUEST, Code.UNKNOWN_PRODUCER))


class Identifying:
    """Request for one producer's identity, repeated until it is answered."""

    __slots__ = ("asking", "retry_at_ms", "address", "_failures", "_question")

    def __init__(self) -> None:
        self.asking = False
        self.retry_at_ms = 0
        self.address = ""  # of the leader that the last answer named
        self._failures = 0
        self._question: InitProducer | None = None

    def question(self, producer: ProducerState, rng: random.Random) -> InitProducer:
        """Return the request to send, the same one until its answer decides it or its id is lost.
        O(1)."""
        if self._question is None or self._question.producer_id == producer.lost_id:
            self._question = _next_question(producer, rng)
        return self._question

    def answered(self, producer: ProducerState, outcome: ResponseEvent | Lost, now_ms: int,
                 limits: NetworkLimits, rng: random.Random) -> None:
        """Process the outcome of the last request: give the producer its identity, or schedule the
        next request.  A lost id is noted in the producer.  O(partitions) when it is an identity."""
        self.asking, self.address = False, ""
        if isinstance(outcome, ResponseEvent) and outcome.code == Code.OK:
            self._failures, self._question = 0, None
            producer.identify(outcome.reply.producer_id, outcome.reply.producer_epoch)
            return
        self._failures += 1
        self.retry_at_ms = now_ms + backoff_ms(limits, self._failures, rng)
        if isinstance(outcome, Lost):
            producer.identity_problem = f"no producer id yet: {outcome.why}"
            return
        assert outcome.error is not None and self._question is not None
        producer.identity_problem = f"no producer id yet: {outcome.error.text}"
        if outcome.code == Code.NOT_LEADER:
            self.address = outcome.error.leader_address
        elif outcome.code in _ID_LOST and self._question.producer_id >= 0:
            producer.lose_id(self._question.producer_id)


def _next_question(producer: ProducerState, rng: random.Random) -> InitProducer:
    if producer.identity is None or producer.identity[0] == producer.lost_id:
        return InitProducer()
    producer_id, epoch = producer.identity
    if epoch + EPOCHS_SKIPPED_MAX >= I16_MAX:
        return InitProducer()  # its epochs are used up
    return InitProducer(producer_id, epoch + 1 + rng.randrange(EPOCHS_SKIPPED_MAX))
