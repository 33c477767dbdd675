"""All parts of a node that plans concern, wired: for ``main``.

Contract.  ``handlers`` are asked by clients, ``peer_handlers`` by nodes; ``run`` paces this node's
streams, carries the plan out at the metadata leader, and hands groups back to preferred leaders.
"""

from __future__ import annotations

import trio

from node.plans.driver import Driver
from node.plans.latency import RecentLatency
from node.plans.looking import Looking
from node.plans.observer import Observer
from node.plans.pacing import Pacing
from node.plans.preferring import Preferring
from node.plans.requests import PlanRequests


class Plans:
    """See the module's docstring."""

    def __init__(self, node):
        self._node = node
        core, metadata_log = node.core, node.metadata_log
        self._looking = Looking(core, node.store, metadata_log, node.surveying, node.space,
                                RecentLatency(node.producing.latencies["commit"]),
                                node.fetching.led_bytes,
                                node.request_round)
        self._looking.take = node.turns.take
        self.driver = Driver(core, metadata_log, self._ask, Pacing(core, node.request_round),
                             node.log)
        requests = PlanRequests(metadata_log, self.driver,
                                lambda: Observer(core, metadata_log, self._ask))
        requests.take = node.turns.take
        self.handlers = {**self._looking.handlers, **requests.handlers}
        self.peer_handlers = self._looking.peer_handlers
        self.preferring = Preferring(core, metadata_log, node.request_round, node.log)

    async def run(self) -> None:
        """Until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.driver.run)
            nursery.start_soon(self.preferring.run)

    async def _ask(self, node: int, request):
        """The answer of any node, this one included."""
        if node == self._node.core.node:
            return await self.peer_handlers[type(request)](request)
        return await self._node.peer_requests.ask(node, request)
