"""The check of producer ids and epochs: a leader takes only those that the metadata have granted.

Contract. ``check`` is called when a partition's state does not contain the producer yet, or when
its epoch rises; other batches cost nothing. It raises ``StaleMetadata`` while this node's copy of
the metadata may lack the grant, and ``UnknownProducer`` after that. Ids from
``STAGED_PRODUCER_MIN`` on are not granted by the metadata: transactions use them, and so do
producers that invent their own.

Theory. A batch under an id that is not granted yet would be taken for the first batch of the
producer that is granted it later. A batch under a higher epoch than granted would fence the owner
of the id. Batches under a granted id and epoch are accepted from any sender (``docs/security.md``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from multiraft.codec.layout import STAGED_PRODUCER_MIN
from multiraft.types import BatchInfo
from node.clients.error_codes import StaleMetadata, UnknownProducer
from node.clients.metadata_wait import METADATA_WAIT_S
from node.clock import monotonic_ms

if TYPE_CHECKING:
    from node.clients.router import Router

#: Refused ids that are remembered, in order of their first refusal: enough for all producers that
#: begin while the metadata are late. A producer whose id was evicted is refused as "not yet" once
#: more.
REFUSED_MAX = 1_024


class ProducerIds:
    """Check that the metadata have granted a batch's producer id and epoch, with those that it
    refused recently."""

    def __init__(self, directory: Router, now_ms: Callable[[], int] = monotonic_ms):
        self._directory = directory
        self._now_ms = now_ms
        self._refused_since_ms: dict[tuple[int, int], int] = {}  # (id, epoch) -> first refused, ms

    def check(self, info: BatchInfo, seen_index: int) -> None:
        """Return if the metadata have granted id and epoch of the batch, or the id is one of a
        staged batch, which they never grant. O(1).

        Raises ``StaleMetadata`` while the grant may still arrive here, then ``UnknownProducer``.
        ``seen_index``: the newest metadata index that the client knows."""
        producer, epoch = info.producer_id, info.producer_epoch
        if producer >= STAGED_PRODUCER_MIN:
            return
        highest = self._directory.highest_epoch(producer)
        if epoch <= highest:
            if self._refused_since_ms:
                self._refused_since_ms.pop((producer, epoch), None)
            return
        applied = self._directory.metadata_index
        known = f"its highest epoch is {highest}" if highest >= 0 else "that id was never granted"
        text = (f"producer {producer} epoch {epoch} was never granted: by the metadata at index "
                f"{applied} {known}")
        if seen_index > applied or self._may_be_late(producer, epoch):
            raise StaleMetadata(f"{text}; this node may be behind, send it again")
        raise UnknownProducer(f"{text}. Ask init_producer for an identity")

    def _may_be_late(self, producer: int, epoch: int) -> bool:
        """Return True until ``METADATA_WAIT_S`` after the first refusal of this id and epoch, which
        is remembered here: the grant may still be on its way."""
        now_ms = self._now_ms()
        since_ms = self._refused_since_ms.setdefault((producer, epoch), now_ms)
        if len(self._refused_since_ms) > REFUSED_MAX:
            del self._refused_since_ms[next(iter(self._refused_since_ms))]
        return now_ms - since_ms < METADATA_WAIT_S * 1000
