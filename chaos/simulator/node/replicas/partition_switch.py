"""Partition switches of a simulated node: the product's driver, step by step in virtual time.

Contract.  ``PartitionSwitches`` has the place of
``node.replicas.partition_switch.PartitionSwitcher``: ``check`` starts to drive each decided switch
that has a leader on this node.  The steps, and the reactions of the next group's leader, are the
product's; only their pace and what they await are the simulator's.

Theory.  A switch has no state except the metadata and two logs.  A node may therefore die between
any two effects of a step, and the next leader needs nothing from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from chaos.simulator.node.machine.coroutines import Future, start
from chaos.simulator.oracle.metadata_oracle import FIRST, MetadataState
from multiraft.errors import MultiRaftError
from multiraft.raft.multi_raft import MultiRaft
from multiraft.wire import placements as wire
from multiraft.wire.errors import Code, exception_for
from node.metadata.commands import PublishSwitch, encode_command
from node.metadata.placement_table import Switch
from node.replicas.partition_switch import POLL_S, RETRY_S_MAX, RETRY_S_MIN, PartitionSwitcher

if TYPE_CHECKING:
    from chaos.simulator.node.rebalance.move_services import MoveServices
    from multiraft.storage.store import Store

SECOND_US = 1_000_000


class _Placed(NamedTuple):
    switches: Mapping[int, Switch]  # by partition number of the simulator's groups


class _Seen(NamedTuple):
    """Metadata with the partition numbers of the simulator's groups."""

    state: MetadataState

    @property
    def version(self) -> int:
        return self.state.version

    @property
    def placed(self) -> _Placed:
        return _Placed({FIRST + partition: switch
                        for partition, switch in self.state.placed.switches.items()})

    def locate(self, partition: int) -> Any:
        return self.state.locate(partition - FIRST)


class _Metadata:
    """``metadata_log`` and ``applied`` of the driver."""

    def __init__(self, node: MoveServices):
        self._node = node
        self.applied = node.metadata_applied
        self.wait = node.wait_applied

    @property
    def state(self) -> _Seen:
        return _Seen(self._node.metadata)


class _Leader:
    """Requests to the metadata leader, with the partition numbers of the metadata."""

    def __init__(self, node: MoveServices):
        self._node = node

    async def ask(self, request: wire.PublishSwitch) -> None:
        request = request._replace(incarnation=request.incarnation - FIRST)
        await self._node.ask_leader(request)


class _Driver(PartitionSwitcher):
    """The product's driver, which checks at the simulator's pace and reports each step to the
    nemesis.
    """

    def __init__(self, check: Callable[[], None], steps: Callable[[str], None], *parts: Any):
        super().__init__(*parts)
        self._look = check
        self._steps = steps

    def check(self) -> None:
        self._look()

    async def _ask_next(self, request: wire.OpenPartition) -> None:
        self._steps("asking for consent" if request.prepare else "handing over a seal")
        await super()._ask_next(request)

    async def open(self, request: wire.OpenPartition) -> wire.OpenPartitionReply:
        if not request.prepare:
            self._steps("opening")
        return await super().open(request)


class PartitionSwitches:
    """Driver of switches in one boot."""

    def __init__(self, node: MoveServices, raft: MultiRaft, store: Store):
        self._node = node
        metadata = _Metadata(node)
        self._driver = _Driver(self.check, node.report_step, raft, store.partition_states, metadata,
                               metadata, node, _Leader(node), node.request_round, None)
        self._at_work: dict[int, Future] = {}  # partition -> pause between two steps
        self._looking = False

    @property
    def handlers(self) -> dict:
        """Handlers of requests from other nodes, by type."""
        return {wire.OpenPartition: self._driver.open, wire.PublishSwitch: self._publish}

    async def _publish(self, request: wire.PublishSwitch) -> wire.PublishSwitchReply:
        self._node.report_step("publishing")
        result = await self._node.propose(encode_command(PublishSwitch(*request)))
        if result.code != Code.OK:
            raise exception_for(result.code, result.error)
        self._node.count("switched")
        return wire.PublishSwitchReply()

    def check(self) -> None:
        """Begin to drive all switches that this node has a part in, and resume those that pause.
        Called after a change that they may wait for, and again after ``POLL_S``.  O(switches)."""
        switches = self._node.metadata.placed.switches
        if not switches:
            return
        for incarnation, switch in [*switches.items()]:
            partition = FIRST + incarnation
            pause = self._at_work.get(partition)
            if pause is not None:
                pause.set_result()
            elif self._driver.has_part(partition, switch):
                self._at_work[partition] = Future()
                self._node.later(0, self._begin, partition, switch)
        if not self._looking:
            self._looking = True
            self._node.later(int(POLL_S * SECOND_US), self._look_again)

    def _look_again(self) -> None:
        self._looking = False
        self.check()

    def _begin(self, partition: int, switch: Switch) -> None:
        start(self._drive(partition, switch), self._node.later)

    async def _drive(self, partition: int, switch: Switch) -> None:
        """Drive a switch like ``PartitionSwitcher._drive``, in virtual time, until this node has no
        part in it. A failed step is tried again after a pause that doubles, or sooner by ``check``.
        """
        pause_s = RETRY_S_MIN
        while self._driver.has_part(partition, switch):
            self._at_work[partition] = pause = Future()
            try:
                if await self._driver.step(partition, switch):
                    pause_s = RETRY_S_MIN
                    continue
            except MultiRaftError:  # a group has no leader, a node is down, or a step is too early
                self._node.count("switch waits")
            self._node.later(int(pause_s * SECOND_US), pause.set_result)
            await pause
            pause_s = min(2 * pause_s, RETRY_S_MAX)
        del self._at_work[partition]
