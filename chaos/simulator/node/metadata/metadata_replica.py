"""Group 0 of a simulated node: a replicated state machine, in one boot.

Contract.  ``propose`` proposes a command and waits for its result; ``apply`` applies committed
commands.  Coroutines that wait for the metadata, and watchers, learn of each change, also of one by
a snapshot (``changed``).

Invariants.  The state of every replica, applied, recovered or installed, is that of the committed
commands up to the same index (``oracle.command_oracle``).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from chaos.simulator.node.machine.coroutines import Future
from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.machine.process import ProcessScheduler
from chaos.simulator.node.machine.round_queue import RoundQueue
from chaos.simulator.oracle import metadata_oracle
from chaos.simulator.oracle.command_oracle import CommandOracle, CommandState
from chaos.simulator.oracle.metadata_oracle import MetadataState
from multiraft.errors import NotLeader, ProposalError
from multiraft.raft.multi_raft import MultiRaft
from multiraft.storage.errors import CorruptRange
from multiraft.storage.store import Store
from multiraft.types import METADATA_GROUP, EntryKind
from multiraft.wire.errors import AmbiguousOutcome

#: Timeout of a metadata command; its outcome is ambiguous then.
COMMAND_US = 10_000_000


class UnreadableCommand(Exception):
    """A committed command is damaged, so the round fails and the process ends."""


class GroupState(NamedTuple):
    """State of group 0: the chain of all commands, and the metadata that they lead to."""

    commands: CommandState
    metadata: MetadataState

    def snapshot(self) -> list:
        """Return the state as a checkpoint and a snapshot hold it: [version, chain, encoded
        metadata]."""
        return [*self.commands, metadata_oracle.encoded(self.metadata)]

    @classmethod
    def restore(cls, values: list) -> GroupState:
        """Return a new state of values that ``snapshot`` returned."""
        version, chain, encoded = values
        return cls(CommandState(version, bytes(chain)), metadata_oracle.decoded(encoded))


class MetadataReplica:
    """State of group 0 on one node, and the coroutines that wait for it."""

    def __init__(self, env: NodeEnv, oracle: CommandOracle, process: ProcessScheduler,
                 rounds: RoundQueue, raft: MultiRaft, store: Store):
        self.commands, self.state = CommandState(), MetadataState()
        self._node = env.node
        self._oracle = oracle
        self._process = process
        self._rounds = rounds
        self._raft = raft
        self._store = store
        self._proposed: dict[int, tuple[int, Future]] = {}  # index -> (term, outcome)
        self._versions: list[tuple[int, Future]] = []  # (metadata index, waiting coroutine)
        self._announced_version = 0
        self._watchers: list[Callable[[], None]] = []
        #: Called with the state before each command; takes the result of the command.
        self.before_command: Callable[[MetadataState, bytes], Callable[[Any], None]] = (
            lambda _state, _command: _take_nothing)

    # ---- commands --------------------------------------------------------------------------

    def command(self, command: bytes) -> None:
        """Schedule the proposal of a command, which only the leader of group 0 makes; no-op while
        the process is paused."""
        if not self._process.is_paused:
            self._process.later(0, self._command, command)

    def _command(self, command: bytes) -> None:
        with contextlib.suppress(ProposalError):
            self._raft.propose(METADATA_GROUP, EntryKind.METADATA, command)
        self._rounds.request()

    async def propose(self, payload: bytes) -> Any:
        """Propose a command to the metadata group, and return its result when it is applied on this
        node.

        Raises ``NotLeader`` and ``ProposalError`` when it is not proposed, ``AmbiguousOutcome``
        when another command takes its place or ``COMMAND_US`` have passed.
        """
        if not self._raft.status.is_leader(METADATA_GROUP):
            raise NotLeader(METADATA_GROUP, self._raft.status.leader_hint(METADATA_GROUP)[0])
        proposed = self._raft.propose(METADATA_GROUP, EntryKind.METADATA, payload)
        done = Future()
        self._proposed[proposed.index] = (self._raft.status.of(METADATA_GROUP).term, done)
        self._rounds.request()
        self._process.later(
            COMMAND_US, done.set_error, AmbiguousOutcome("the command was not committed in time")
        )
        return await done

    def apply(self, first: int, last: int) -> None:
        """Apply the committed commands ``first`` to ``last``, and check the state. Raises
        ``UnreadableCommand`` and ``Violation``."""
        entries = self._store.entries(METADATA_GROUP, first, last)
        if entries is None:
            try:
                entries = self._store.read_job(METADATA_GROUP, first, last).execute()
            except CorruptRange as error:
                raise UnreadableCommand(str(error)) from error
        for entry in entries:
            if entry.kind == EntryKind.METADATA and entry.index > self.commands.version:
                command = bytes(entry.payload)
                self.commands = self.commands.after(entry.index, command)
                if metadata_oracle.is_command(command):
                    take_result = self.before_command(self.state, command)
                    result = metadata_oracle.apply(self.state, entry.index, command)
                    take_result(result)
                    self._applied(entry.index, entry.term, result)
        self.changed()
        # A replica that was removed and added again applies commands that this node's state has.
        self._oracle.check(self._node, self.commands, max(last, self.commands.version))

    def lead(self) -> None:
        """Announce new commits, if this node leads the group: every node answers clients from its
        copy of the metadata."""
        if (self._raft.status.is_leader(METADATA_GROUP)
                and self.commands.version != self._announced_version):
            self._announced_version = self.commands.version
            self._raft.announce_commit(METADATA_GROUP)
            self._rounds.request()

    def role_changed(self, leads: bool) -> None:
        """End pending commands as ambiguous when this node has lost the leadership."""
        if not leads:
            proposed, self._proposed = self._proposed, {}
            for _, waiting in proposed.values():
                waiting.set_error(AmbiguousOutcome("the leader stepped down"))

    def _applied(self, index: int, term: int, result: Any) -> None:
        """Complete the command that waits at ``index``, if any, with its result, or as ambiguous
        when the term is another one."""
        expected, waiting = self._proposed.pop(index, (0, None))
        if waiting is not None and expected == term:
            waiting.set_result(result)
        elif waiting is not None:
            waiting.set_error(
                AmbiguousOutcome("another leader's command is committed in its place")
            )

    # ---- state -----------------------------------------------------------------------------

    def restore(self) -> None:
        """Restore the state from the newest checkpoint, if there is one, and compare it with the
        committed commands. Raises ``Violation``."""
        if self._store.extra:
            self.adopt(GroupState.restore(self._store.extra))
        if METADATA_GROUP in self._store.groups:
            applied = self._store.groups[METADATA_GROUP].applied
            self.check(max(applied, self.commands.version))

    def extra(self) -> list:
        """Return the state as a checkpoint holds it."""
        return GroupState(self.commands, self.state).snapshot()

    def adopt(self, state: GroupState) -> None:
        """Replace the state."""
        self.commands, self.state = state

    def check(self, index: int) -> None:
        """Compare the state with the committed commands up to ``index``. Raises ``Violation``."""
        self._oracle.check(self._node, self.commands, index)
        self._oracle.metadata.check(self._node, self.state)

    # ---- waiting coroutines ----------------------------------------------------------------

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call ``watcher`` after each change of the metadata in this boot."""
        self._watchers.append(watcher)

    def changed(self) -> None:
        """Resume the waiting coroutines and call the watchers, after commands were applied or a
        snapshot was installed."""
        version = self.state.version
        for waiting in [each for each in self._versions if each[0] <= version]:
            self._versions.remove(waiting)
            waiting[1].set_result()
        for watcher in self._watchers:
            watcher()

    async def wait(self, index: int, timeout_s: float) -> bool:
        """Wait until the metadata up to ``index`` are applied on this node, at most ``timeout_s``;
        return True if they are."""
        if self.state.version < index:
            waiting = (index, Future())
            self._versions.append(waiting)
            if math.isfinite(timeout_s):
                self._process.later(int(timeout_s * 1e6), waiting[1].set_result)
            await waiting[1]
            if waiting in self._versions:
                self._versions.remove(waiting)
        return self.state.version >= index

    # ---- topics ----------------------------------------------------------------------------

    def accepts(self, partition: int, group: int) -> None:
        """Report to the oracle that a batch is about to be appended to a topic's partition in a
        group. Raises ``Violation`` if the metadata do not allow it."""
        self._oracle.metadata.accepted(self._node, self.state, partition, group)

    def appended(self, partition: int, batch: bytes, sent_ms: int, clock_ms: int) -> None:
        """Report to the oracle that ``batch``, as stored, was appended to a topic's partition.
        ``sent_ms``: its largest timestamp before; ``clock_ms``: the node's wall clock. Raises
        ``Violation`` if the settings do not allow it."""
        oracle = self._oracle.metadata
        oracle.within_limit(self._node, self.state, partition, len(batch))
        oracle.has_timestamps(self._node, self.state, partition, batch, sent_ms, clock_ms)


def _take_nothing(_result: Any) -> None:
    pass


class AppliedMetadata:
    """Metadata that are applied on this node, as snapshots and checkpoints take them."""

    def __init__(self, metadata: MetadataReplica):
        self._metadata = metadata

    @property
    def state(self) -> GroupState:
        """The present state."""
        return GroupState(self._metadata.commands, self._metadata.state)
