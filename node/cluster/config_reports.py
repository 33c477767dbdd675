"""Reports of group configurations: leaders report the members of their groups to the metadata, so
that every node can name them.

Contract. ``note`` is called when a configuration takes effect here, and when this node becomes
leader of a group. ``run`` compares each noted group, once its configuration is committed, with the
metadata, and repeats a report until the metadata leader has recorded it. O(1) for a group whose
record is up to date; groups that are not noted cost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from multiraft.errors import MultiRaftError
from multiraft.wire.nodes import ReportMembers
from node.cluster.metadata_client import MetadataRequests

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from node.metadata.log import MetadataLog

#: Pause after a failed report, or while a configuration is not committed yet, in seconds.
RETRY_S = 0.2
#: Groups that are checked before other tasks run.
SLICE = 256


class MemberReports:
    """Task that reports the members of groups led here to the metadata leader."""

    def __init__(self, core: MultiRaft, metadata_log: MetadataLog, requests: MetadataRequests):
        self._core = core
        self._metadata_log = metadata_log
        self._requests = requests
        self._noted: dict[int, None] = {}
        self._wanted = trio.Event()
        self.reported = 0

    def note(self, group: int) -> None:
        """Schedule a check of the group: its members may have changed."""
        self._noted[group] = None
        self._wanted.set()

    async def run(self) -> None:
        """Report the configurations of groups given to ``note`` to the metadata leader, until
        cancelled. Those that could not be reported are checked again after ``RETRY_S``."""
        while True:
            await self._wanted.wait()
            self._wanted = trio.Event()
            noted, self._noted = list(self._noted), {}
            waiting = []
            for at, group in enumerate(noted):
                if at % SLICE == 0:
                    await trio.lowlevel.checkpoint()
                if not await self._report(group):
                    waiting.append(group)
            if waiting:
                await trio.sleep(RETRY_S)
                for group in waiting:
                    self.note(group)

    async def _report(self, group: int) -> bool:
        """Report a group to the metadata leader if the metadata lack its configuration. Return True
        if nothing is left to report, False if the group must be checked again."""
        record = self._difference(group)
        if record is None:
            return True
        if not record.version:
            return False
        try:
            await self._requests.ask(record)
        except MultiRaftError:
            return False  # no reachable metadata leader: the group is checked again
        self.reported += 1
        return True

    def _difference(self, group: int) -> ReportMembers | None:
        """Return the record of the group that the metadata lack; version 0 = it cannot be reported
        yet. None = the metadata are up to date, or another node leads the group."""
        if not self._core.status.is_leader(group):
            return None  # the present leader reports it
        status = self._core.status.of(group)
        index = status.configuration_index
        state = self._metadata_log.state
        if not state.cluster_id:
            return ReportMembers(group, 0, 0, ())
        known = state.table.members.get(group)
        if known is not None and known[:2] >= (status.incarnation, index):
            return None
        if known is None and status.configuration == state.initial_configuration(group):
            return None
        if index > status.commit:
            return ReportMembers(group, 0, 0, ())
        return ReportMembers(group, status.incarnation, max(index, 1), *status.configuration)
