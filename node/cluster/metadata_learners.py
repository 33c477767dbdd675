"""The learners of the metadata group: every node that is no voter has a copy of the metadata.

Contract. Level-triggered: the leader of the metadata group compares the registered nodes with the
members of the group, and changes its learners until they agree. A node that joined becomes a
learner and catches up; a removed node stops being a learner. Voters are not changed: that is an
operator's decision.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from multiraft.errors import ProposalError
from multiraft.types import METADATA_GROUP

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from node.metadata.log import MetadataLog

#: Interval between checks, in seconds: about the time that a joining node waits for its first
#: metadata.
POLL_S = 0.25


class MetadataLearners:
    """Task of the metadata leader that makes every node without a vote a learner of the metadata
    group."""

    def __init__(self, core: MultiRaft, metadata_log: MetadataLog,
                 request_round: Callable[[], None], log: logging.Logger):
        self._core = core
        self._metadata_log = metadata_log
        self._request_round = request_round
        self._log = log

    async def run(self) -> None:
        """Call ``check`` every ``POLL_S`` while this node leads the metadata group, until
        cancelled."""
        while True:
            await trio.sleep(POLL_S)
            if self._core.status.has_applied_in_term(METADATA_GROUP):
                self.check()

    def check(self) -> None:
        """Begin the change that makes every registered node without a vote a learner of the
        metadata group. Does nothing if they agree or another change is open. O(nodes)."""
        configuration = self._core.status.of(METADATA_GROUP).configuration
        nodes = self._metadata_log.state.table.nodes
        learners = tuple(node for node in sorted(nodes) if node not in configuration.voters)
        if not nodes or configuration.outgoing or learners == configuration.learners:
            return
        try:
            self._core.change_members(METADATA_GROUP, configuration.voters, learners)
        except ProposalError as error:
            self._log.info("metadata_learners_deferred", extra={"reason": str(error)})
            return  # another change is open: the next check tries again
        self._log.info("metadata_learners_changed", extra={"learners": list(learners)})
        self._request_round()
