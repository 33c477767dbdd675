"""The parts of a node that carry out and serve rebalance plans.

Contract.  ``handlers`` serve clients, ``peer_handlers`` serve nodes.  ``run`` paces this node's
streams, carries the plan out at the metadata leader, and transfers groups back to preferred
leaders.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from multiraft.raft.multi_raft import MultiRaft
from node.cluster.peer_requests import PeerRequests
from node.metadata.log import MetadataLog
from node.rebalance.controller import Controller
from node.rebalance.observer import Observer
from node.rebalance.participant import PlanParticipant
from node.rebalance.preferred_leaders import PreferredLeaders
from node.rebalance.requests import PlanRequests
from node.rebalance.throttle import PlanThrottle


class Plans:
    """All parts of one node that serve plans: controller, participant, throttle and preferred
    leaders."""

    def __init__(self, core: MultiRaft, metadata_log: MetadataLog, participant: PlanParticipant,
                 peers: PeerRequests, request_round: Callable[[], None],
                 take: Callable[[int], Awaitable[None]], log: logging.Logger):
        """Build the parts.  ``participant``: the participant of this node; ``take(rows)`` waits
        until the loop has capacity for so many rows."""
        self._core = core
        self._peers = peers
        self.controller = Controller(
            core, metadata_log, self._ask, PlanThrottle(core, request_round), log
        )
        requests = PlanRequests(metadata_log, self.controller,
                                lambda: Observer(core, metadata_log, self._ask), take)
        self.handlers = {**participant.handlers, **requests.handlers}
        self.peer_handlers = participant.peer_handlers
        self.preferred_leaders = PreferredLeaders(core, metadata_log, request_round, log)

    async def run(self) -> None:
        """Run the controller and the transfers to preferred leaders, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.controller.run)
            nursery.start_soon(self.preferred_leaders.run)

    async def _ask(self, node: int, request: Any) -> Any:
        """Return the answer of a node; this node's own handler is called directly. Raises the
        errors of the handler, and those of ``PeerRequests.ask``."""
        if node == self._core.node:
            return await self.peer_handlers[type(request)](request)
        return await self._peers.ask(node, request)
