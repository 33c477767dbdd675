"""The metadata group at this node: commands proposed here, entries applied, results handed back.

Contract.  ``propose`` returns the state machine's result once the command is applied at this node;
it raises ``ProposalError`` or ``LeaderUnknown`` (definite: not appended) or ``AmbiguousOutcome``
(leadership was lost or time ran out while it was pending).  ``applied(index)`` waits until this
node has seen an index.

Theory.  The state machine decides (``metadata.py``), deterministically and on every node; this
module only carries.  What a new cluster looks like is a command too: the group's first leader
proposes it, and later ones are refused by the state machine as repeats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import trio

from multiraft.errors import NotLeader, ProposalError
from multiraft.types import METADATA_GROUP, Entry, EntryKind
from multiraft.wire.errors import AmbiguousOutcome, LeaderUnknown
from node.metadata import state_machine
from node.metadata.state_machine import Bootstrap, MetadataState
from node.subscribers import Subscribers

if TYPE_CHECKING:
    from node.metadata.commands import Command
    from node.metadata.result import Result

#: A command is committed within a round trip; after this its outcome is called ambiguous.
COMMAND_TIMEOUT_S = 10.0


class GroupStates(Protocol):
    """The part of ``multiraft.raft.status_view.StatusView`` that is asked here."""

    def is_leader(self, group: int) -> bool: ...

    def is_settled(self, group: int) -> bool: ...

    def leader_hint(self, group: int) -> tuple[int, int]: ...


class ProposedEntry(Protocol):
    """The place of a proposal."""

    @property
    def index(self) -> int: ...


class Consensus(Protocol):
    """The part of ``multiraft.raft.multi_raft.MultiRaft`` that is used here."""

    @property
    def status(self) -> GroupStates: ...

    def propose(self, group: int, kind: EntryKind, payload: bytes) -> ProposedEntry: ...

    def announce_commit(self, group: int) -> None: ...


class ReadEntries(Protocol):
    """A read of entries that are no longer in memory."""

    def execute(self) -> tuple[Entry, ...]: ...


class Entries(Protocol):
    """The part of ``multiraft.storage.store.Store`` that is used here."""

    @property
    def extra(self) -> Any: ...

    def entries(self, group: int, first: int, last: int) -> tuple[Entry, ...] | None: ...

    def read_plan(self, group: int, first: int, last: int) -> ReadEntries: ...


class _Waiting:
    """One proposed command."""

    __slots__ = ("done", "result", "lost")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.result: Any = None
        self.lost = False


class MetadataLog:
    """Owner of this node's ``MetadataState``."""

    def __init__(self, core: Consensus, store: Entries, plan: Bootstrap | None,
                 request_round: Callable[[], None]):
        self._core = core
        self._store = store
        self._plan = plan  # None: this node has joined, others know what the cluster is
        #: Notified with the state after entries were applied, or ``follow`` was called.
        self.state_changed = Subscribers()
        #: Notified with the group that a partition has left.
        self.partition_left = Subscribers()
        self._request_round = request_round
        self._waiting: dict[int, _Waiting] = {}
        self._announced_version = 0
        self._moved = trio.Event()
        self._begins_anew = False  # the next entries are of a history that is not the state's
        self.state = MetadataState() if store.extra is None else MetadataState.restore(store.extra)

    # ---- the round loop's side -------------------------------------------------------------------

    def apply(self, first: int, last: int) -> None:
        """Apply committed entries of the metadata group.  They are read from memory, but for what
        recovery left behind the last checkpoint and what a follower slept through."""
        entries = self._store.entries(METADATA_GROUP, first, last)
        if entries is None:
            entries = self._store.read_plan(METADATA_GROUP, first, last).execute()
        if self._begins_anew:
            self._begins_anew, self.state = False, MetadataState()
        for entry in entries:
            if entry.kind != EntryKind.METADATA or entry.index <= self.state.version:
                continue
            command = state_machine.decode_command(entry.payload)
            result = self.state.apply(entry.index, command)
            if type(command) is state_machine.PublishSwitch and result.value is not None:
                self.partition_left.notify(result.value.group)
            waiting = self._waiting.pop(entry.index, None)
            if waiting is not None:
                waiting.result = result
                waiting.done.set()
        self.state_changed.notify(self.state)
        moved, self._moved = self._moved, trio.Event()
        moved.set()

    def follow(self) -> None:
        """Behind ``install``, when rounds may follow: others act upon what the state says."""
        self.state_changed.notify(self.state)

    def install(self, state: MetadataState) -> None:
        """A snapshot stands in the place of everything that was applied before."""
        self._begins_anew = False
        self.state = state
        moved, self._moved = self._moved, trio.Event()
        moved.set()

    def begin_anew(self) -> None:
        """The group was recovered by force, and this node's new replica has nothing yet.  Some of
        what the state has may be nobody's any more: what the replica applies first replaces it.
        Not before: a checkpoint may speak of the old replica until then."""
        self._begins_anew = True

    def lead(self) -> None:
        """After entries were applied, at their leader: every node answers clients from its copy, so
        the others hear of a commit at once; and a new cluster is bootstrapped."""
        if not self._core.status.is_leader(METADATA_GROUP):
            return
        if self.state.version != self._announced_version:
            self._announced_version = self.state.version
            self._core.announce_commit(METADATA_GROUP)
            self._request_round()
        self._bootstrap()

    def role_changed(self, leads: bool) -> None:
        """This node won or lost the metadata group."""
        if not leads:
            waiting, self._waiting = self._waiting, {}
            for one in waiting.values():
                one.lost = True
                one.done.set()

    def _bootstrap(self) -> None:
        """The first leader of a new cluster, once it has committed in its term and knows therefore
        that nobody has done it before, writes down what the cluster is."""
        if (self.state.cluster_id or self._plan is None or self._waiting
                or not self._core.status.is_settled(METADATA_GROUP)):
            return
        try:
            proposed = self._core.propose(METADATA_GROUP, EntryKind.METADATA,
                                          state_machine.encode_command(self._plan))
        except ProposalError:
            return  # the group is being handed over: the next leader's turn, or the next request's
        self._waiting[proposed.index] = _Waiting()
        self._request_round()

    # ---- the handlers' side ----------------------------------------------------------------------

    def check_leading(self) -> None:
        """Raises ``NotLeader`` or ``LeaderUnknown`` unless this node leads the metadata group and
        knows all that was committed before: a leader that has not committed in its term may not."""
        if not self._core.status.is_leader(METADATA_GROUP):
            raise NotLeader(METADATA_GROUP, self._core.status.leader_hint(METADATA_GROUP)[0])
        if not self._core.status.is_settled(METADATA_GROUP):
            raise LeaderUnknown("the metadata group's leader is new; try again")
        if not self.state.cluster_id:
            self._bootstrap()
            raise LeaderUnknown("the cluster is being set up; try again")

    async def propose(self, command: Command) -> Result:
        """The result of ``command``; see the module docstring for what it raises."""
        self.check_leading()
        proposed = self._core.propose(METADATA_GROUP, EntryKind.METADATA,
                                      state_machine.encode_command(command))
        waiting = self._waiting[proposed.index] = _Waiting()
        self._request_round()
        with trio.move_on_after(COMMAND_TIMEOUT_S):
            await waiting.done.wait()
        self._waiting.pop(proposed.index, None)
        if waiting.lost or not waiting.done.is_set():
            raise AmbiguousOutcome("the command was proposed, but whether it was committed is not "
                                   "known: look before you repeat it")
        return waiting.result

    @property
    def oldest_waiting(self) -> int:
        """Lowest index of a command proposed here that is not decided yet; 0 = none."""
        return min(self._waiting, default=0)

    async def changed(self) -> None:
        """Wait until this node has applied something more."""
        await self._moved.wait()

    async def applied(self, index: int, timeout_s: float) -> bool:
        """Wait until this node has applied ``index``; False when it has not in time."""
        with trio.move_on_after(timeout_s):
            while self.state.version < index:
                await self._moved.wait()
        return self.state.version >= index
