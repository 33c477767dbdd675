"""What a simulated node does for moves: asks others, waits for commits, switches partitions, plans.

Contract.  Part of ``node.SimulatedNode``.  The steps of a switch and of a plan are the product's
own code (``partition_switch.py``, ``planning.py``); this is what it stands on in a node: requests
to other nodes and their answers over the connection for bulk, commands of the metadata group, and
waiting until something is applied.  All of it ends with the node's life.

Sleeps.  A node of a run without topics has nothing of this to do.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from chaos.simulator.node.coroutines import Pending, start
from chaos.simulator.node.membership import Regrouping
from chaos.simulator.node.partition_switch import Switches
from chaos.simulator.node.plan_controller import Planning
from multiraft.errors import MultiRaftError, NotLeader
from multiraft.raft.joint_quorum import is_voter
from multiraft.storage.disk_space import DiskSpaceGuard
from multiraft.types import METADATA_GROUP, Configuration, EntryKind
from multiraft.wire.errors import AmbiguousOutcome, LeaderUnknown, TimedOut

#: A request that was not answered by then is given up.
ASK_US = 2_000_000
#: A command whose outcome is not known by then may be committed or not.
COMMAND_US = 10_000_000


class Question(NamedTuple):
    """Node to node."""

    number: int
    request: Any


class Told(NamedTuple):
    """The answer to a question: a value, or why there is none."""

    number: int
    value: Any
    error: MultiRaftError | None


class Moving(Regrouping):
    """Part of ``SimulatedNode``."""

    #: Goes on in the next life: an answer to this one may still be on its way.
    _ask_count = 0

    def _forget_moves(self) -> None:
        """A life begins."""
        self._asked: dict[int, Pending] = {}
        self._commands: dict[int, tuple[int, Pending]] = {}  # index -> (term, who waits)
        self._versions: list[tuple[int, Pending]] = []  # (metadata index, who waits)
        self._applying: list[tuple[int, int, Pending]] = []  # (group, index, who waits)
        self._switches = self._planning = None

    def _start_moves(self) -> None:
        """Recovery is over."""
        if self._world.workload.topics is not None:
            self._switches = Switches(self, self._raft, self._store)
            self._planning = Planning(self, self._raft, self._store)
            self._look_at_moves()

    def _look_at_moves(self) -> None:
        """Metadata were applied, or a role changed."""
        if self._switches is not None:
            self._switches.look()

    # ---- what the product's parts ask of their node ------------------------------------------

    def say(self, kind: str, text: str) -> None:
        """A line of the trace."""
        self._trace.line(self.node, -1, kind, text)

    @property
    def damaged_voters(self) -> int:
        """Replicas here that vote and are under repair."""
        return sum(is_voter(self._raft.status.of(group).configuration, self.node)
                   for group in self._repairer.groups)

    @property
    def room(self) -> DiskSpaceGuard:
        """Of its disk."""
        return self._room

    def permits(self, voters: tuple[int, ...]) -> bool:
        """Whether these could do without whoever is damaged or stays down.  When the faults are
        over and all is repaired, nobody is damaged again."""
        world = self._world
        repaired = not world.network.faulty and all(node.is_whole for node in world.nodes.values()
                                                    if node.is_up)
        return world.atlas.permits(voters, repaired)

    def configurations_at(self, group: int, index: int) -> list[Configuration]:
        """Members of a group by what anybody's log has there."""
        return self._world.witness.groups[group].configurations_at(index)

    def owes(self, group: int, node: int) -> bool:
        """Whether this node is about to hand a group that it leads to a preferred leader."""
        return self._planning is not None and self._planning.handing.owes(group, node)

    def count(self, mark: str) -> None:
        """Something worth a mark happened."""
        self._world.marks[mark] += 1

    def steps(self, what: str) -> None:
        """Something is about to be asked for, or written down, on the way of a move."""
        self._world.nemesis.mover_steps(self, what)

    # ---- requests --------------------------------------------------------------------------

    async def ask(self, peer: int, request: Any) -> Any:
        """The answer of any node, this one included.  Raises what it refuses with,
        ``LeaderUnknown`` without a connection, ``TimedOut``."""
        if peer == self.node:
            return await self._handler(request)(request)
        if peer not in self._connected:
            raise LeaderUnknown(f"node {peer} is not connected")
        self._ask_count += 1
        number, answer = self._ask_count, Pending()
        self._asked[number] = answer
        self._effect()
        self._send_bulk(peer, Question(number, request))
        self.later(ASK_US, self._told, Told(number, None, TimedOut(f"node {peer} is silent")))
        return await answer

    async def ask_leader(self, request: Any) -> Any:
        """The answer of the metadata group's leader."""
        leader = self._raft.status.leader_hint(METADATA_GROUP)[0]
        if not leader:
            raise LeaderUnknown("the metadata group has no leader that this node knows of")
        return await self.ask(leader, request)

    def _handler(self, request: Any) -> Callable[[Any], Awaitable[Any]]:
        handlers = {**self._switches.handlers, **self._planning.handlers}
        return handlers[type(request)]

    def _take_question(self, sender: int, question: Question) -> None:
        def over(value: Any, error: MultiRaftError | None) -> None:
            self._send_bulk(sender, Told(question.number, value, error))

        if self._switches is not None:
            start(self._handler(question.request)(question.request), self.later, over)

    def _told(self, told: Told) -> None:
        waiting = self._asked.pop(told.number, None)
        if waiting is not None:
            waiting.settle(told.value, told.error)

    # ---- the metadata group ----------------------------------------------------------------

    async def propose(self, payload: bytes) -> Any:
        """What a command did when it was applied here.  Raises ``NotLeader``, ``ProposalError``,
        ``AmbiguousOutcome``."""
        if not self._raft.status.is_leader(METADATA_GROUP):
            raise NotLeader(METADATA_GROUP, self._raft.status.leader_hint(METADATA_GROUP)[0])
        proposed = self._raft.propose(METADATA_GROUP, EntryKind.METADATA, payload)
        done = Pending()
        self._commands[proposed.index] = (self._raft.status.of(METADATA_GROUP).term, done)
        self.request_round()
        self.later(COMMAND_US, done.fail, AmbiguousOutcome("the command was not committed in time"))
        return await done

    def _command_applied(self, index: int, term: int, result: Any) -> None:
        """``result`` of the command at ``index``."""
        expected, waiting = self._commands.pop(index, (0, None))
        if waiting is not None and expected == term:
            waiting.settle(result)
        elif waiting is not None:
            waiting.fail(AmbiguousOutcome("another leader's command is committed in its place"))

    def _metadata_moved(self) -> None:
        """Commands were applied, or a snapshot installed."""
        version = self.metadata.version
        for waiting in [each for each in self._versions if each[0] <= version]:
            self._versions.remove(waiting)
            waiting[1].settle()
        self._look_at_moves()

    async def metadata_applied(self, index: int, timeout_s: float) -> bool:
        """Whether the metadata of ``index`` are applied here within the time."""
        if self.metadata.version < index:
            waiting = (index, Pending())
            self._versions.append(waiting)
            if math.isfinite(timeout_s):
                self.later(int(timeout_s * 1e6), waiting[1].settle)
            await waiting[1]
            if waiting in self._versions:
                self._versions.remove(waiting)
        return self.metadata.version >= index

    # ---- waiting for a group ---------------------------------------------------------------

    async def wait_applied(self, group: int, index: int, timeout_s: float) -> bool:
        """Whether an entry is applied here within the time."""
        if not self._has_applied(group, index):
            waiting = (group, index, Pending())
            self._applying.append(waiting)
            self.later(int(timeout_s * 1e6), waiting[2].settle)
            await waiting[2]
            if waiting in self._applying:
                self._applying.remove(waiting)
        return self._has_applied(group, index)

    def _has_applied(self, group: int, index: int) -> bool:
        tail = self._store.tails.get(group)
        return tail is not None and tail.applied_index >= index

    def _tell_applied(self, group: int, last: int) -> None:
        """Entries of a group up to ``last`` are being applied."""
        for waiting in [each for each in self._applying if each[0] == group and each[1] <= last]:
            self._applying.remove(waiting)
            waiting[2].settle()
