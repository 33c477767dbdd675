"""The metadata group at this node: proposes commands, applies entries, returns results.

Contract.  ``propose`` returns the state machine's result once the command is applied at this node.
It raises ``ProposalError`` or ``LeaderUnknown`` (definite: not appended) or ``AmbiguousOutcome``
(leadership was lost or time ran out while the command was pending).  ``applied(index)`` waits until
this node has applied an index.

Theory.  The state machine (``state_machine.py``) decides, deterministically and on every node; this
module only transports.  The bootstrap of a new cluster is a command too: the group's first leader
proposes it, and the state machine refuses repetitions by later leaders.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol

import trio

from multiraft.errors import NotLeader, ProposalError
from multiraft.storage.errors import CorruptRange
from multiraft.types import METADATA_GROUP, Entry, EntryKind
from multiraft.wire.errors import AmbiguousOutcome, LeaderUnknown
from node.errors import journal_unreadable
from node.metadata import state_machine
from node.metadata.result import Result
from node.metadata.settings_table import CLUSTER
from node.metadata.state_machine import Bootstrap, MetadataState
from node.subscribers import Subscribers

if TYPE_CHECKING:
    from node.metadata.commands import Command
    from node.metadata.result import Result

#: A command is committed within a round trip; after this time its outcome is ambiguous.
COMMAND_TIMEOUT_S = 10.0


class GroupStates(Protocol):
    """The part of ``multiraft.raft.status_view.StatusView`` that is asked here."""

    def is_leader(self, group: int) -> bool: ...

    def has_applied_in_term(self, group: int) -> bool: ...

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

    def read_job(self, group: int, first: int, last: int) -> ReadEntries: ...


class _Waiting:
    """A proposed command and, once it is applied here, its result."""

    __slots__ = ("done", "result", "lost")

    def __init__(self) -> None:
        self.done = trio.Event()
        self.result: Any = None
        self.lost = False


class MetadataLog:
    """Owner of this node's ``MetadataState``: applies entries to it and proposes commands."""

    def __init__(self, core: Consensus, store: Entries, plan: Bootstrap | None,
                 request_round: Callable[[], None]):
        self._core = core
        self._store = store
        self._plan = plan  # None: this node has joined a cluster that is bootstrapped
        #: Notified with the state after entries were applied, or when ``follow`` is called.
        self.state_changed = Subscribers()
        #: Notified with the group that a partition was switched away from.
        self.partition_left = Subscribers()
        #: Notified with the incarnation of a topic whose settings were altered, or ``CLUSTER``.
        self.settings_altered = Subscribers()
        #: Notified with a partition and groups that its epoch history may no longer name.
        self.epochs_dropped = Subscribers()
        #: Notified with a deleted topic, and partition -> groups, where they were in others than
        #: the one of their hash.
        self.topic_deleted = Subscribers()
        self._request_round = request_round
        self._waiting: dict[int, _Waiting] = {}
        self._announced_version = 0
        self._moved = trio.Event()
        # the next entries belong to a history that ``state`` does not contain
        self._begins_anew = False
        self.state = MetadataState() if store.extra is None else MetadataState.restore(store.extra)

    # ---- the round loop's side -------------------------------------------------------------------

    def apply(self, first: int, last: int) -> None:
        """Apply committed entries of the metadata group, complete the proposals that wait for them,
        and notify subscribers. Entries applied before are skipped.

        Entries are read from the disk only when they are not in memory: those above the last
        checkpoint after recovery, and those that a follower received long before their commit.
        Raises ``DiskFailed`` if they cannot be read or are damaged; the next start repairs damaged
        entries from the other nodes before it applies them."""
        entries = self._store.entries(METADATA_GROUP, first, last)
        if entries is None:
            try:
                entries = self._store.read_job(METADATA_GROUP, first, last).execute()
            except (OSError, CorruptRange) as error:
                raise journal_unreadable(error) from error
        if self._begins_anew:
            self._begins_anew, self.state = False, MetadataState()
        for entry in entries:
            if entry.kind != EntryKind.METADATA or entry.index <= self.state.version:
                continue
            command = state_machine.decode_command(entry.payload)
            placed = (_exceptions(self.state, command.name)
                      if type(command) is state_machine.DeleteTopic else {})
            result = self.state.apply(entry.index, command)
            self._notify(command, result, placed)
            waiting = self._waiting.pop(entry.index, None)
            if waiting is not None:
                waiting.result = result
                waiting.done.set()
        self.state_changed.notify(self.state)
        moved, self._moved = self._moved, trio.Event()
        moved.set()

    def _notify(self, command: state_machine.Command, result: Result,
                placed: dict[int, list[int]]) -> None:
        """Notify the subscribers of one command.  ``placed``: groups of a topic's partitions before
        it was deleted."""
        if result.value is None:
            return
        if type(command) is state_machine.PublishSwitch:
            self.partition_left.notify(result.value.group)
            self.epochs_dropped.notify(command.partition, [result.value.group])
        elif type(command) is state_machine.TrimEpochHistory and result.value:
            self.epochs_dropped.notify(command.partition, [each.group for each in result.value])
        elif type(command) is state_machine.DeleteTopic:
            self.topic_deleted.notify(result.value, placed)
        elif type(command) is state_machine.AlterSettings and result.value is True:
            topic = self.state.topic(command.topic)
            self.settings_altered.notify(CLUSTER if topic is None else topic.incarnation)

    def follow(self) -> None:
        """Notify subscribers after ``install``, at a point where rounds may follow."""
        self.state_changed.notify(self.state)

    def install(self, state: MetadataState) -> None:
        """Replace the state by that of a snapshot, and wake the tasks that wait for an index.
        Subscribers are notified by ``follow``."""
        self._begins_anew = False
        self.state = state
        moved, self._moved = self._moved, trio.Event()
        moved.set()

    def begin_anew(self) -> None:
        """Discard the state when the next entry is applied: the group was recovered by force, and
        this node's new replica is empty.

        Some of the state may not have survived.  It is kept until the new replica applies its first
        entry, because until then a checkpoint may describe the old replica.
        """
        self._begins_anew = True

    def lead(self) -> None:
        """Announce new commits and bootstrap a new cluster, if this node leads the group.

        Called after entries were applied.  Every node answers clients from its copy of the
        metadata, so followers are notified of a commit at once.
        """
        if not self._core.status.is_leader(METADATA_GROUP):
            return
        if self.state.version != self._announced_version:
            self._announced_version = self.state.version
            self._core.announce_commit(METADATA_GROUP)
            self._request_round()
        self._bootstrap()

    def role_changed(self, leads: bool) -> None:
        """Fail pending proposals as ambiguous when this node has lost leadership of the metadata
        group."""
        if not leads:
            waiting, self._waiting = self._waiting, {}
            for one in waiting.values():
                one.lost = True
                one.done.set()

    def _bootstrap(self) -> None:
        """Propose the bootstrap of a new cluster, unless there is a state, no plan, or a pending
        proposal.

        It also does nothing until this leader has committed an entry in its term: only then does it
        know that no earlier leader has bootstrapped the cluster."""
        if (self.state.cluster_id or self._plan is None or self._waiting
                or not self._core.status.has_applied_in_term(METADATA_GROUP)):
            return
        try:
            proposed = self._core.propose(METADATA_GROUP, EntryKind.METADATA,
                                          state_machine.encode_command(self._plan))
        except ProposalError:
            return  # transfer under way: the next leader or request retries
        self._waiting[proposed.index] = _Waiting()
        self._request_round()

    # ---- the handlers' side ----------------------------------------------------------------------

    def check_leading(self) -> None:
        """Return if this node leads the metadata group and its state is current: a leader that has
        not committed in its term may lack entries.

        Raises ``NotLeader`` if it does not lead, and ``LeaderUnknown`` if its state is not current
        yet or the cluster is not bootstrapped. In the last case it proposes the bootstrap first, if
        it has the plan for it."""
        if not self._core.status.is_leader(METADATA_GROUP):
            raise NotLeader(METADATA_GROUP, self._core.status.leader_hint(METADATA_GROUP)[0])
        if not self._core.status.has_applied_in_term(METADATA_GROUP):
            raise LeaderUnknown("the metadata group's leader is new; try again")
        if not self.state.cluster_id:
            self._bootstrap()
            raise LeaderUnknown("the cluster is being set up; try again")

    async def propose(self, command: Command) -> Result:
        """Propose ``command`` and return its result, a refusal included, once it is applied here.

        Raises ``ProposalError`` or the errors of ``check_leading`` when the command was not
        appended, and ``AmbiguousOutcome`` when leadership was lost or ``COMMAND_TIMEOUT_S`` passed
        before it was applied."""
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
        """Return the lowest index of a command proposed here that is not applied yet; 0 = none."""
        return min(self._waiting, default=0)

    async def changed(self) -> None:
        """Wait until this node has applied further entries or installed a snapshot."""
        await self._moved.wait()

    async def applied(self, index: int, timeout_s: float) -> bool:
        """Wait until this node has applied ``index``, ``timeout_s`` at most. Return True if it has.
        """
        with trio.move_on_after(timeout_s):
            while self.state.version < index:
                await self._moved.wait()
        return self.state.version >= index


def _exceptions(state: MetadataState, name: str) -> dict[int, list[int]]:
    """Return partition -> groups, of the partitions of a topic that are not simply where their hash
    puts them.  O(partitions)."""
    topic, placed = state.topic(name), state.placed
    if topic is None or not (placed.epoch_histories or placed.switches):
        return {}
    found: dict[int, list[int]] = {}
    for partition in chain.from_iterable(
            range(run.incarnation, run.incarnation + run.count) for run in topic.runs()):
        if partition in placed.epoch_histories or partition in placed.switches:
            groups = [entry.group for entry in state.epoch_history(topic, partition)]
            if partition in placed.switches:
                groups.append(placed.switches[partition].to_group)
            found[partition] = groups
    return found
