"""The observer: gathers a view of the cluster from leaders of groups and from all nodes.

Contract.  ``observe(groups, partitions)`` returns a ``ClusterView`` within about
``ANSWER_TIMEOUT_S``; nodes that did not answer are missing from it.  Durations in it are how long
*this* observer has seen a state.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from multiraft.errors import MultiRaftError
from multiraft.wire.plans import (
    ALIVE,
    GROUPS_MAX,
    REPLICA_CHANGE,
    ProbedGroup,
    ProbeGroups,
    ProbeGroupsReply,
)
from node.metadata.move_phases import Phase
from node.metadata.plan_table import ActivePlan
from node.rebalance.cluster_view import UP, ClusterView, SeenNode, SeenPartition, member_of
from node.rebalance.runtime import RUNTIME, Runtime

if TYPE_CHECKING:
    from multiraft.raft.multi_raft import MultiRaft
    from node.metadata.log import MetadataLog
    from node.metadata.state_machine import MetadataState

#: Time for a node's answer, in seconds; then it is asked again in the next view.
ANSWER_TIMEOUT_S = 2.0
#: Nodes without groups to report are asked at most this often, in milliseconds.
FACTS_MS = 1_000
#: Groups and partitions handled before other tasks run.
SLICE = 512


class Observer:
    """Builds views.  ``ask(peer, request)`` reaches any node, this one included."""

    def __init__(self, core: MultiRaft, metadata_log: MetadataLog,
                 ask: Callable[[int, object], Awaitable], runtime: Runtime = RUNTIME):
        self._runtime = runtime
        self._core = core
        self._metadata_log = metadata_log
        self._ask = ask
        self._reports: dict[int, tuple[int, ProbeGroupsReply]] = {}  # node -> (when, its report)
        self._phases: dict[int, tuple[tuple[int, int], int]] = {}  # move -> (phase, since)
        self._plan_id = ""
        self._matches: dict[int, tuple[int, int]] = {}  # group -> (sum of matches, since)

    async def observe(self, groups: Iterable[int], partitions: Iterable[int] = ()) -> ClusterView:
        """Return a view of these groups and partitions, and of all nodes. Asks the groups' leaders
        now, and nodes whose report is older than ``FACTS_MS``; waits at most about
        ``ANSWER_TIMEOUT_S``."""
        by_leader, unreachable = self._by_leader(groups)
        now_ms = self._runtime.monotonic_ms()
        for node in self._state.table.nodes:
            told_ms = self._reports.get(node, (0, None))[0]
            if self._core.status.is_up(node) and now_ms - told_ms >= FACTS_MS:
                by_leader.setdefault(node, [])
        seen: dict[int, ProbedGroup] = {}
        leaders: dict[int, int] = {}
        await self._runtime.run_all(
            [
                partial(self._query_node, node, wanted, seen, leaders, unreachable)
                for node, wanted in by_leader.items()
            ]
        )
        return ClusterView(
            self._nodes(),
            seen,
            leaders,
            unreachable,
            await self._partitions(partitions),
            await self._without_quorum(),
            {},
            {},
            self._state.replication_factor,
        )

    async def observe_plan(self, plan: ActivePlan, groups: Iterable[int],
                       partitions: Iterable[int]) -> ClusterView:
        """Return a view of these groups and partitions. It tells how long each move of ``plan`` has
        been in its phase, and each catch-up without progress."""
        view = await self.observe(groups, partitions)
        return view._replace(waited_ms=self._waited(plan), stalled_ms=self._stalled(plan, view))

    # ---- groups and nodes -----------------------------------------------------------------------

    def _by_leader(self, groups: Iterable[int]) -> tuple[dict[int, list[int]], dict[int, str]]:
        found: dict[int, list[int]] = {}
        unreachable: dict[int, str] = {}
        for group in groups:
            leader = self._core.status.leader_hint(group)[0]
            if leader and self._core.status.is_up(leader):
                found.setdefault(leader, []).append(group)
            else:
                unreachable[group] = (f"node {leader}, which led group {group}, is not up"
                                      if leader else f"group {group} has no leader")
        return found, unreachable

    async def _query_node(self, node: int, wanted: list[int], seen: dict[int, ProbedGroup],
                       leaders: dict[int, int], unreachable: dict[int, str]) -> None:
        found = partial(self._collect, node, wanted, seen, leaders)
        why = (
            await self._runtime.run_with_timeout(ANSWER_TIMEOUT_S, found)
            or f"node {node} did not answer"
        )
        for group in wanted:
            if group not in seen:
                unreachable[group] = why

    async def _collect(self, node: int, wanted: list[int], seen: dict[int, ProbedGroup],
                       leaders: dict[int, int]) -> str:
        """Ask a node for its groups ``wanted`` and store the answers in ``seen`` and ``leaders``.
        Return the reason for which the remaining ones have none."""
        for at in range(0, max(1, len(wanted)), GROUPS_MAX):
            reply = await self._request(node, ProbeGroups(tuple(wanted[at:at + GROUPS_MAX])))
            if isinstance(reply, str):
                return reply
            self._reports[node] = (self._runtime.monotonic_ms(), reply)
            for group in reply.groups:
                seen[group.group] = group
                leaders[group.group] = node
        return f"node {node} no longer leads it"

    async def _request(self, node: int, request: ProbeGroups) -> ProbeGroupsReply | str:
        """Return the answer, or the reason why there is none.

        After an error the request is sent again: a connection that was idle may lead to a process
        that has ended, which shows only at the next write.
        """
        with contextlib.suppress(MultiRaftError):
            return await self._ask(node, request)
        try:
            return await self._ask(node, request)
        except MultiRaftError as error:
            return f"node {node}: {error}"

    def _nodes(self) -> dict[int, SeenNode]:
        table = self._state.table
        nodes = {}
        for node in table.nodes:
            state = self._core.status.node_state(node)
            desired_state = table.states.get(node, ALIVE)
            told = self._reports.get(node)
            if told is None or state != UP:
                nodes[node] = SeenNode(node, state, desired_state)
                continue
            reply = told[1]
            nodes[node] = SeenNode(node, state, desired_state, reply.disk_used, reply.disk_total,
                                   reply.disk_full, reply.damaged, reply.commit_ms)
        return nodes

    async def _partitions(self, partitions: Iterable[int]) -> dict[int, SeenPartition | None]:
        found: dict[int, SeenPartition | None] = {}
        for at, partition in enumerate(partitions, start=1):
            if not at % SLICE:
                await self._runtime.checkpoint()
            found[partition] = self._seen(partition)
        return found

    def _seen(self, partition: int) -> SeenPartition | None:
        place = self._state.locate(partition)
        if place is None:
            return None
        switch = place.switch
        return SeenPartition(place.group, place.epoch, switch.epoch if switch else 0,
                             switch.to_group if switch else 0,
                             self._state.settings.is_compacted(place.topic.incarnation,
                                                               place.topic.name))

    async def _without_quorum(self) -> tuple[int, ...]:
        """Return the groups without a majority of voters that are up.  O(groups) while a node is
        down."""
        state = self._state
        up = {node: self._core.status.is_up(node) for node in state.table.nodes}
        if all(up.values()):
            return ()
        without_quorum = []
        for group in range(len(state.table.replicas)):
            if group % SLICE == SLICE - 1:
                await self._runtime.checkpoint()
            voters = state.configuration(group).voters
            if 2 * sum(up.get(node, False) for node in voters) <= len(voters):
                without_quorum.append(group)
        return tuple(without_quorum)

    # ---- how long -------------------------------------------------------------------------------

    def _waited(self, plan: ActivePlan) -> dict[int, int]:
        now_ms = self._runtime.monotonic_ms()
        if plan.plan_id != self._plan_id:
            self._plan_id, self._phases, self._matches = plan.plan_id, {}, {}
        phases = {}
        for seq in plan.under_way:
            record = plan.records[seq]
            at = (record.attempt, int(record.phase))
            known = self._phases.get(seq)
            phases[seq] = known if known is not None and known[0] == at else (at, now_ms)
        self._phases = phases
        return {seq: now_ms - since_ms for seq, (_, since_ms) in phases.items()}

    def _stalled(self, plan: ActivePlan, view: ClusterView) -> dict[int, int]:
        """Return group -> milliseconds since its joining replicas last advanced. The time restarts
        while the plan is not running, and when nothing is lacking."""
        now_ms = self._runtime.monotonic_ms()
        matches = {}
        for seq in plan.under_way:
            move = plan.moves[seq]
            seen = view.groups.get(move.subject)
            if (move.kind != REPLICA_CHANGE or plan.records[seq].phase is not Phase.LEARNING
                    or seen is None):
                continue
            members = [member_of(seen, node) for node in move.joining]
            total = sum(member.match for member in members if member is not None)
            lacking = any(member is None or member.match < seen.last_index for member in members)
            known = self._matches.get(move.subject)
            if known is None or known[0] != total or not lacking or plan.state != "running":
                matches[move.subject] = (total, now_ms)
            else:
                matches[move.subject] = known
        self._matches = matches
        return {group: now_ms - since_ms for group, (_, since_ms) in matches.items()}

    @property
    def _state(self) -> MetadataState:
        return self._metadata_log.state
