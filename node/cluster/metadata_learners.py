"""Every node has a copy of the metadata: the metadata leader keeps the learners of group 0 so.

Contract.  Level-triggered: whoever leads the metadata group compares the nodes that are registered
with the members of the group, and changes its learners until they agree.  A node that joined
becomes a learner and catches up; one that was removed stops being one.  Voters are not touched:
they change on an operator's word.
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

#: How often is looked, in seconds: a node that joins waits about as long for its first metadata.
LOOK_S = 0.25


class MetadataLearners:
    """Task on the loop."""

    def __init__(self, core: MultiRaft, metadata_log: MetadataLog,
                 request_round: Callable[[], None], log: logging.Logger):
        self._core = core
        self._metadata_log = metadata_log
        self._request_round = request_round
        self._log = log

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await trio.sleep(LOOK_S)
            if self._core.status.is_settled(METADATA_GROUP):
                self.look()

    def look(self) -> None:
        """Begin the change that is missing, if any.  O(nodes)."""
        configuration = self._core.status.of(METADATA_GROUP).configuration
        nodes = self._metadata_log.state.table.nodes
        learners = tuple(node for node in sorted(nodes) if node not in configuration.voters)
        if not nodes or configuration.outgoing or learners == configuration.learners:
            return
        try:
            self._core.change_members(METADATA_GROUP, configuration.voters, learners)
        except ProposalError as error:
            self._log.info("learners of the metadata group wait", extra={"reason": str(error)})
            return  # another change is under way: at the next look
        self._log.info("learners of the metadata group change", extra={"learners": list(learners)})
        self._request_round()
