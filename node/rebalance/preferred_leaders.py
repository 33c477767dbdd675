"""Preferred leaders: transfers groups back to the leaders that a plan chose, after those return.

Contract.  Every node runs the task.  When a preferred leader comes up (that node was restarted, or
this one was; not when a plan begins to prefer it), the leaders of its groups transfer them back, a
few at a time, as soon as it has caught up.  This happens once per return: a group that is
transferred to another node afterwards stays there until the preferred leader returns the next time.
No group is transferred to a node in maintenance, draining or with a full disk, nor while a plan is
under way, which decides about leaders itself.

Theory.  Leaders drift with every restart, and a planned balance would last until the first one.
The preference is in the metadata (``PlanTable.preferred``).  The task costs nothing per group
unless a preferred leader has just returned.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from multiraft.errors import ProposalError
from node.clock import monotonic_ms

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from node.metadata.log import MetadataLog

#: Interval of the task, in seconds.  It scans preferences only after a node came up.
POLL_S = 1.0
#: A returned node has so long to catch up before the first transfer, and then so long for all of
#: them, in milliseconds.
CALM_MS = 5_000
WINDOW_MS = 120_000
#: Transfers started in one iteration: the elections of so many groups per second are not
#: noticeable.
TRANSFERS_PER_CHECK = 8
#: Entries that the preferred leader may lack at a transfer.
LAG_ENTRIES_MAX = 1_000


class PreferredLeaders:
    """Task that transfers groups back to their preferred leaders."""

    def __init__(self, core: MultiRaft, metadata_log: MetadataLog,
                 request_round: Callable[[], None], log: logging.Logger):
        self._core = core
        self._metadata_log = metadata_log
        self._request_round = request_round
        self._log = log
        self._up: dict[int, tuple[int, int]] = {}  # node -> (boot epoch, up in it since)
        #: Node that came up lately -> groups that prefer it and that it has led since.
        self._led: dict[int, set[int]] = {}
        self.restored = 0

    async def run(self) -> None:
        """Run ``check`` every ``POLL_S``, until cancelled."""
        while True:
            await trio.sleep(POLL_S)
            self.check(monotonic_ms())

    def check(self, now_ms: int) -> None:
        """Start transfers of groups led here to preferred leaders that came up within
        ``WINDOW_MS``, have been up for ``CALM_MS`` and have not led the group since.

        At most ``TRANSFERS_PER_CHECK`` are started, and none while a plan is under way. O(nodes);
        O(preferences) while a node has just come up."""
        state = self._metadata_log.state
        before, self._up = self._up, {}
        for node in state.table.nodes:
            if self._core.status.is_up(node):
                # A restart may be over within one iteration: only the boot epoch shows it.
                life = self._core.status.heard_epoch(node)
                known = before.get(node, (0, 0))
                self._up[node] = known if known[0] == life else (life, now_ms)
        recent = {node: since_ms for node, (_, since_ms) in self._up.items()
                  if now_ms - since_ms < WINDOW_MS and node != self._core.node}
        self._led = {node: self._led.get(node, set()) if self._up[node] == before.get(node)
                     else set() for node in recent}
        if not recent:
            return
        back = {node for node, since_ms in recent.items()
                if now_ms - since_ms >= CALM_MS and self._may_lead(node)}
        if state.plans.active is not None:
            back.clear()
        begun = 0
        for group, node in state.plans.preferred.items():
            if node not in recent:
                continue
            if self._core.status.leader_hint(group)[0] == node:
                self._led[node].add(group)
            elif (node in back and begun < TRANSFERS_PER_CHECK and group not in self._led[node]
                    and self._core.status.is_leader(group) and self._restore(group, node)):
                begun += 1
        if begun:
            self.restored += begun
            self._log.info("preferred_leaders_restored",
                           extra={"groups": begun, "peers": sorted(back)})
            self._request_round()

    def _may_lead(self, node: int) -> bool:
        return (node not in self._metadata_log.state.table.states
                and not self._core.is_known_full(node))

    def _restore(self, group: int, node: int) -> bool:
        status = self._core.status.of(group)
        member = next((member for member in status.members if member.node == node), None)
        if (member is None or node not in status.configuration.voters or status.transferee
                or member.state != "replicate"
                or status.last_index - member.match > LAG_ENTRIES_MAX):
            return False
        try:
            self._core.transfer(group, node)
        except ProposalError:
            return False  # peer not connected: the next iteration retries
        return True
