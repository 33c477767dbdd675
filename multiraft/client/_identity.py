"""A producer's way to its id and epoch: what is asked, and what each answer means.

Contract.  ``question`` is the request to send, the same one until an answer decides it;
``answered`` takes the outcome.  The driver sends and waits (``_client.py``); the producer says when
it wants another identity, and which id is of no use to it any more (``_producer.py``).

Theory.  An answer may be lost, or be AMBIGUOUS, and the command be committed all the same.  The
epoch that the request names is therefore more than the one that the producer has, by a random
number, and stays the same until it is answered: the metadata grant the epoch after the one that is
named, and whoever names it again is given that epoch again.  Somebody else with the same id draws
another number, so the two are never given one epoch.  PRODUCER_FENCED means then that the id was
given to somebody else, or that an older node did not recognise the repetition: a new id is as good.
"""

from __future__ import annotations

import random

from multiraft.client._network import Lost, NetworkLimits, backoff_ms
from multiraft.client._producer import ProducerState
from multiraft.wire.connection import ResponseEvent
from multiraft.wire.errors import Code
from multiraft.wire.messages import EPOCHS_SKIPPED_MAX, InitProducer
from multiraft.wire.schema import I16_MAX

#: Codes that mean that the id in the request is of no use: another one has to be asked for.
_ID_LOST = frozenset((Code.PRODUCER_FENCED, Code.INVALID_REQUEST, Code.UNKNOWN_PRODUCER))


class Identifying:
    """See the module docstring."""

    __slots__ = ("asking", "retry_at_ms", "address", "_failures", "_question")

    def __init__(self) -> None:
        self.asking = False
        self.retry_at_ms = 0
        self.address = ""  # where the last answer said to ask
        self._failures = 0
        self._question: InitProducer | None = None

    def question(self, producer: ProducerState, rng: random.Random) -> InitProducer:
        """The request that has to be sent.  O(1)."""
        if self._question is None or self._question.producer_id == producer.lost_id:
            self._question = _next_question(producer, rng)
        return self._question

    def answered(self, producer: ProducerState, outcome: ResponseEvent | Lost, now_ms: int,
                 limits: NetworkLimits, rng: random.Random) -> None:
        """Take the outcome of the last question.  O(partitions) when it is an identity."""
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
