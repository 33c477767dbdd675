"""Epochs that Kafka's producers raised by themselves.

Contract. ``note`` takes a batch that the produce handler refused because its epoch is not granted.
If its id was granted here, and the batch is the first one of its epoch, the metadata leader is
asked to grant the epoch. The producer repeats the batch meanwhile.

Theory. Idempotent producers without transactions raise the epoch without a request (KIP-360): when
a batch may be lost, they number the following ones from 0 in the next epoch. Here the metadata
grant each epoch, so that no batch fences a producer by mistake (``node.clients.producer_ids``). A
grant to a request that names the epoch before is the raised one; if a later one was granted
meanwhile, the request is refused, and the producer is fenced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multiraft import core
from multiraft.wire.messages import InitProducer
from node.request_errors import REFUSED

if TYPE_CHECKING:
    import logging

    from multiraft.wire.frames import Buffer
    from node.clients.router import Router
    from node.cluster.passed_on import PassedOnRequests
    from node.loop.background import Background

#: Epochs that are requested at a time.  Further producers repeat their batch, and wait their turn.
REQUESTED_MAX = 64


class RaisedEpochs:
    """Requests for the epochs of producers that raised them."""

    def __init__(self, directory: Router, passed_on_requests: PassedOnRequests,
                 background: Background, log: logging.Logger):
        self._directory = directory
        self._passed_on_requests = passed_on_requests
        self._background = background
        self._log = log
        self._requested: set[tuple[int, int]] = set()  # (id, epoch)

    def note(self, batch: Buffer) -> bool:
        """Request the epoch of a refused batch, unless that is requested already or too many are.
        Return True if the batch may be accepted once the epoch is granted."""
        header = core.batch_header(batch)
        producer, epoch = header.producer_id, header.producer_epoch
        granted = self._directory.highest_epoch(producer)
        if not 0 <= granted < epoch or header.base_sequence:
            return False
        if (producer, epoch) not in self._requested and len(self._requested) < REQUESTED_MAX:
            if self._background.start(self._request, producer, epoch):
                self._requested.add((producer, epoch))
        return True

    async def _request(self, producer: int, epoch: int) -> None:
        try:
            await self._passed_on_requests.ask(InitProducer(producer, epoch - 1))
        except REFUSED as error:  # the producer repeats the batch, which asks again
            self._log.info("producer_epoch_deferred", extra={
                "producer": producer, "epoch": epoch, "reason": str(error)})
        finally:
            self._requested.discard((producer, epoch))
