"""Which producer ids and epochs a leader takes: those that the metadata have granted to somebody.

Contract.  ``check`` is asked when a partition's windows do not have the producer yet, or its epoch
rises; other batches cost nothing.  It raises ``StaleMetadata`` as long as this node's copy of the
metadata may lack the grant, and ``UnknownProducer`` after that.  Ids from ``STAGED_PRODUCER_MIN``
on are not the metadata's to grant: they are those of runs, and of whoever makes up its own.

Theory.  A batch under an id that nobody has yet would be taken for the first one of whoever gets it
later, and a batch under a higher epoch than was granted would fence its owner.  Batches under an id
and an epoch that somebody has are not told apart by their sender (``docs/security.md``).
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

#: Ids that are remembered for having been refused, the first one first: enough for all producers
#: that begin while the metadata are late; whoever is pushed out is told "not yet" once more.
DOUBTED_MAX = 1_024


class ProducerIds:
    """See the module docstring."""

    def __init__(self, directory: Router, now_ms: Callable[[], int] = monotonic_ms):
        self._directory = directory
        self._now_ms = now_ms
        self._doubted: dict[tuple[int, int], int] = {}  # (id, epoch) -> first refused, ms

    def check(self, info: BatchInfo, seen_index: int) -> None:
        """Raises ``StaleMetadata`` or ``UnknownProducer``.  ``seen_index``: the newest metadata
        that the client knows of.  O(1)."""
        producer, epoch = info.producer_id, info.producer_epoch
        if producer >= STAGED_PRODUCER_MIN:
            return
        highest = self._directory.highest_epoch(producer)
        if epoch <= highest:
            if self._doubted:
                self._doubted.pop((producer, epoch), None)
            return
        applied = self._directory.metadata_index
        known = f"its highest epoch is {highest}" if highest >= 0 else "nobody has that id"
        text = (f"producer {producer} epoch {epoch} was never granted: by the metadata at index "
                f"{applied} {known}")
        if seen_index > applied or self._may_be_late(producer, epoch):
            raise StaleMetadata(f"{text}; this node may be behind, send it again")
        raise UnknownProducer(f"{text}. Ask init_producer for an identity")

    def _may_be_late(self, producer: int, epoch: int) -> bool:
        """Whether the grant may be on its way to this node: for as long as a node that is behind
        is waited for, from the first refusal on."""
        now_ms = self._now_ms()
        since_ms = self._doubted.setdefault((producer, epoch), now_ms)
        if len(self._doubted) > DOUBTED_MAX:
            del self._doubted[next(iter(self._doubted))]
        return now_ms - since_ms < METADATA_WAIT_S * 1000
