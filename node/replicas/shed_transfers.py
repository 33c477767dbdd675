"""Transfers of leadership away from a node whose disk is full: to nodes that take records.

Contract. While the disk is full, every led group whose voters could commit records without this
node is transferred to one of them (the core chooses). Other groups stay, and their records are
refused with ``STORAGE_FULL``. The metadata group stays: its commands are small and use the disk
reserve. No group is transferred back when space is free again; that is left to the rebalancing of
the cluster.

Theory. A leader without disk space refuses every record of its groups. A follower without disk
space drops the records and costs its groups one copy. A full node keeps leading the groups that no
other node could lead (docs/decisions/0010).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from multiraft.errors import ProposalError
from multiraft.types import METADATA_GROUP
from node.event_log import EventLog

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft

#: Pause before a failed transfer is tried again, in milliseconds: a group under transfer takes no
#: change of members either.
RETRY_MS = 10_000


class ShedTransfers:
    """Transfers that a full disk causes."""

    def __init__(self, core: MultiRaft, under_way_max: int, request_round: Callable[[], None],
                 log: EventLog):
        self._core = core
        self._under_way_max = under_way_max
        self._request_round = request_round
        self._log = log
        self._not_before_ms: dict[int, int] = {}  # group -> earliest time of the next transfer

    def forget(self) -> None:
        """Forget earlier attempts: the disk is not full."""
        self._not_before_ms.clear()

    def begin(self, now_ms: int) -> None:
        """Begin transfers of led groups, until ``under_way_max`` are under way, those begun before
        included. The caller has checked that the disk is full. Left out are the metadata group,
        groups in which the other voters with disk space that could lead are no majority, and those
        whose transfer began within ``RETRY_MS``. O(groups)."""
        core, under_way, begun = self._core, 0, []
        for group in core.status.led_groups():
            if under_way == self._under_way_max:
                break
            if core.status.of(group).transferee:
                under_way += 1
            elif self._transfer_one(group, now_ms):
                under_way += 1
                begun.append(group)
        if begun:
            self._log.info("leadership_shed",
                           extra={"groups": len(begun), "first_group": begun[0]})
            self._request_round()

    def _transfer_one(self, group: int, now_ms: int) -> bool:
        """Begin the transfer of a group. Return False for the metadata group, a recent attempt, or
        a group that no other node could lead."""
        if group == METADATA_GROUP or self._not_before_ms.get(group, now_ms) > now_ms:
            return False
        try:
            begun = self._core.shed_leadership(group)
        except ProposalError:
            return False  # a damaged replica: it is about to lose its leadership
        if begun:
            self._not_before_ms[group] = now_ms + RETRY_MS
        return begun
