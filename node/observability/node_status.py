"""The request ``node_status``: the counters of the node that answers it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from multiraft.wire import messages as wire
from node.observability.group_health import GroupHealthScan
from node.observability.statistics import Statistics


class NodeStatusRequests:
    """Handler of ``NodeStatus``; ``Admin`` calls it.  ``node`` is this node's id."""

    def __init__(self, node: int, statistics: Statistics, group_health: GroupHealthScan):
        self._node = node
        self._statistics = statistics
        self._group_health = group_health

    @property
    def handlers(self) -> dict[type, Callable[[Any], Awaitable[Any]]]:
        """The request and its handler."""
        return {wire.NodeStatus: self._node_status}

    async def _node_status(self, _request: wire.NodeStatus) -> wire.NodeStatusReply:
        survey = await self._group_health.fresh()
        return wire.NodeStatusReply(self._node, self._statistics.snapshot(survey))
