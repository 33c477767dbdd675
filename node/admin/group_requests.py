"""Requests about a group's members, and its forced recovery.

Contract.  This node's replica answers.  The leader starts a change and does not wait for its end:
the client polls until the change is complete, so a repeated request has no further effect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from multiraft.errors import InvalidMembers, MembershipError, NotLeader, UnknownGroup
from multiraft.types import METADATA_GROUP
from multiraft.wire import members as wire
from multiraft.wire.errors import InvalidRequest, TimedOut, exception_for
from node.metadata import state_machine

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from node.metadata.log import MetadataLog


class GroupRequests:
    """Handlers of requests about one group; ``Admin`` calls them."""

    def __init__(self, core: MultiRaft, metadata_log: MetadataLog,
                 request_round: Callable[[], None]):
        self._core = core
        self._metadata_log = metadata_log
        self._request_round = request_round

    async def members(self, request: wire.GroupMembers) -> wire.GroupMembersReply:
        """Start a change to the requested voters and learners, if any, and return the present
        members. A ``local`` request only describes this node's replica. Raises ``NotLeader``,
        ``UnknownGroup``, and what ``_change`` raises."""
        core, group = self._core, request.group
        if not request.local and not core.status.is_leader(group):
            raise NotLeader(group)
        if not core.status.has_group(group):
            raise UnknownGroup(f"group {group} has no replica on node {core.node}")
        if request.voters and not request.local:
            self._change(request)
        return self._describe(group)

    def _change(self, request: wire.GroupMembers) -> None:
        """Start a change of members without waiting for it. Raises ``InvalidRequest`` for one that
        is never possible, ``TimedOut`` for one that is not possible now."""
        index = self._core.status.of(request.group).configuration_index
        if request.expected_index not in (-1, index):
            raise TimedOut(f"the members of group {request.group} were changed at index {index}, "
                           f"{request.expected_index} was expected: look again")
        try:
            self._core.change_members(request.group, request.voters, request.learners)
        except InvalidMembers as error:
            raise InvalidRequest(str(error)) from error
        except MembershipError as error:
            raise TimedOut(str(error)) from error
        self._request_round()

    def _describe(self, group: int) -> wire.GroupMembersReply:
        status = self._core.status.of(group)
        configuration = status.configuration
        is_open = bool(configuration.outgoing) or status.configuration_index > status.commit
        rows = tuple(wire.MemberRow(member.node, member.state, member.match)
                     for member in status.members)
        return wire.GroupMembersReply(
            group, status.incarnation, self._core.node, status.leader, status.term,
            status.last_term, status.last_index, status.commit, status.configuration_index,
            is_open, configuration.voters, configuration.learners, configuration.outgoing, rows,
            status.quarantined)

    async def recover(self, request: wire.RecoverGroup) -> wire.RecoverGroupReply:
        """Record by a command that the group continues from one replica (forced recovery), and
        return the new incarnation. Raises the error of a refusal.

        The metadata group cannot be recovered through itself; its node has an offline command for
        that."""
        if request.group == METADATA_GROUP:
            raise InvalidRequest("the metadata group is recovered on its node, which must not run: "
                                 "multiraft node recover-metadata")
        result = await self._metadata_log.propose(state_machine.RecoverGroup(
            request.group, request.survivor, request.incarnation))
        if result.error is not None:
            raise exception_for(result.code, result.error)
        return wire.RecoverGroupReply(result.value)
