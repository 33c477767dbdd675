"""All parts of a node that plans concern, wired: for ``main``.

Contract.  ``handlers`` are asked by clients, ``peer_handlers`` by nodes; ``run`` is the task that
paces this node's streams and, at the metadata leader, carries the plan out.
"""

from __future__ import annotations

from node.plans.driver import Driver
from node.plans.latency import RecentLatency
from node.plans.looking import Looking
from node.plans.observer import Observer
from node.plans.pacing import Pacing
from node.plans.requests import PlanRequests


class Plans:
    """See the module's docstring."""

    def __init__(self, node):
        self._node = node
        core, metadata_log = node.core, node.metadata_log
        self._looking = Looking(core, node.store, metadata_log, node.surveying, node.space,
                                RecentLatency(node.producing.latencies["commit"]),
                                node.request_round)
        self.driver = Driver(core, metadata_log, self._ask, Pacing(core, node.request_round),
                             node.log)
        requests = PlanRequests(metadata_log, self.driver,
                                lambda: Observer(core, metadata_log, self._ask))
        self.handlers = {**self._looking.handlers, **requests.handlers}
        self.peer_handlers = self._looking.peer_handlers
        self.run = self.driver.run

    async def _ask(self, node: int, request):
        """The answer of any node, this one included."""
        if node == self._node.core.node:
            return await self.peer_handlers[type(request)](request)
        return await self._node.peer_requests.ask(node, request)
