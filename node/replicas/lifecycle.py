"""The life cycle of replicas: created when a leader appends to a missing one, removed when its
group no longer contains this node.

Contract. The round loop calls it with the core's events and after metadata were applied. A replica
is created empty, for one of two reasons: its group's leader sends an append, or the group is new in
a grown pool and the metadata name this node among its first voters. The term, vote and vote barrier
in the tombstone of an earlier replica stay in force. Nothing here turns a node into a voter.

Theory. Consensus decides who is a member; this module creates and removes replicas accordingly. An
append for a missing group names the incarnation of the group. The metadata decide which incarnation
is current, for all groups except the metadata group itself; there, a later incarnation is accepted
while no leader of the earlier one is known (docs/decisions/0007).

A first voter with neither replica nor tombstone of its group never had a replica. It has given no
vote and no acknowledgement, and may begin with an empty log, however late it learns of the group
(docs/decisions/0035). Only the metadata know the first members. A group that recovery found without
any configuration therefore waits for the metadata.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from multiraft.types import METADATA_GROUP, Configuration
from node.event_log import EventLog
from node.metadata.state_machine import FIRST_GROUP_INCARNATION, MetadataState
from node.replicas.grown_groups import NewGroups

if TYPE_CHECKING:
    from multiraft.raft.log_reader import GroupRestored
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.storage.store import Store

#: The configuration of a new replica that has received no entry: no members.
NO_MEMBERS = Configuration(())

#: New groups that are created per round: some milliseconds of work.
CREATED_PER_ROUND_MAX = 256


class MetadataOwner(Protocol):
    """Owner of the metadata that are applied here."""

    @property
    def state(self) -> MetadataState: ...

    def begin_anew(self) -> None:
        """Discard the state when the next entry is applied."""


def _ignore(_group: int) -> None:
    """Do nothing: no other part keeps state of replicas."""


class Replicas:
    """Creation and removal of one node's replicas."""

    def __init__(self, core: MultiRaft, store: Store, metadata_log: MetadataOwner, pool_size: int,
                 request_round: Callable[[], None], log: EventLog,
                 is_admitted: Callable[[], bool] = lambda: True,
                 created: Callable[[int], None] = _ignore,
                 removed: Callable[[int], None] = _ignore):
        """Create the collection; ``load`` adds what recovery found. ``is_admitted()`` is True
        once this node may vote and acknowledge. ``created(group)`` and ``removed(group)`` are
        called for each replica that is created or removed."""
        self._core = core
        self._store = store
        self._metadata_log = metadata_log
        self._pool_size = pool_size  # at this node's first start
        self._pool_checked = pool_size  # groups up to this one have been created, if needed here
        self._request_round = request_round
        self._log = log
        self._is_admitted = is_admitted
        self._on_created = created
        self._on_removed = removed
        self._new = NewGroups(core, lambda: metadata_log.state.last_group)
        self.created = 0  # since the start
        self.removed = 0
        self._unplaced: set[int] = set()  # groups recovered without members
        self._recoveries_seen = -1
        self._removing: list[int] = []
        #: True if ``reconcile`` has something to do.
        self.due = True

    def load(self) -> None:
        """Add the recovered replicas to the core, once this node takes part, except for groups
        whose first members only the metadata know."""
        self._new.found(self._store.groups.get(METADATA_GROUP))
        for group, restored in sorted(self._store.groups.items()):
            if (group > self._pool_size and restored.configuration == NO_MEMBERS
                    and not restored.changes and not restored.vote_barrier_index):
                self._unplaced.add(group)
            else:
                self._add(group, restored)
                if (group == METADATA_GROUP and restored.incarnation > FIRST_GROUP_INCARNATION
                        and not self._store.partition_states[group].applied_index):
                    self._metadata_log.begin_anew()  # its state is an earlier replica's
        self.due = True

    def reload(self) -> None:
        """Schedule ``reconcile``: the metadata have changed."""
        self.due = True

    def _add(self, group: int, restored: GroupRestored) -> None:
        self._recoveries_seen = -1  # it may be of an incarnation that is over
        self._core.add_group(group, FIRST_GROUP_INCARNATION, restored,
                             self._store.partition_states[group])

    def on_create_requested(
        self, group: int, incarnation: int, sender: int, term: int, index: int
    ) -> None:
        """Create the replica for which the leader ``sender`` sent an append with ``term`` that
        would begin the log at ``index``. Does nothing if this node is not admitted or does not know
        the group or incarnation yet. Nor does it for an append from before this node's replica was
        removed. A metadata replica without a leader is scheduled for removal instead, and created
        at a later append."""
        if not self._is_admitted():
            return  # not admitted yet: the data directory may have been wiped
        if group > max(self._pool_size, self._metadata_log.state.last_group):
            return  # no such group yet: the sender has newer metadata, and will append again
        if group in self._core.status.groups():
            if group != METADATA_GROUP or self._core.status.of(group).leader:
                return  # the metadata decide which incarnation is current; or this one has a leader
            self._removing.append(group)
            self.due = True
            return  # the leader appends again, after the tombstone is written
        if group != METADATA_GROUP and incarnation != self.incarnation_of(group):
            return
        if self._store.is_removed(group):
            left_term, left_incarnation = self._store.tombstone(group)
            left_incarnation = left_incarnation or FIRST_GROUP_INCARNATION
            if incarnation < left_incarnation or (incarnation == left_incarnation
                                                  and term < left_term):
                return  # from before the replica was removed
        elif group in self._store.groups:
            return  # just removed: its tombstone is not durable yet
        self._create(group, incarnation, sender, term, index)

    def _create(self, group: int, incarnation: int, sender: int, term: int, index: int) -> None:
        if group == METADATA_GROUP:
            self._new.replaced()
        restored = self._store.create_group(group, FIRST_GROUP_INCARNATION, NO_MEMBERS)
        self._add(group, restored)
        if incarnation > (restored.incarnation or FIRST_GROUP_INCARNATION):
            self._core.repair.reincarnate(group, incarnation, NO_MEMBERS, index, term)
            if group == METADATA_GROUP:
                self._metadata_log.begin_anew()
        self._on_created(group)
        self.created += 1
        self._log.info("replica_created", extra={"group": group, "leader": sender})

    def on_removed(self, group: int) -> None:
        """Record that the core removed a replica."""
        self.removed += 1
        self._on_removed(group)
        self._log.info("replica_removed", extra={"group": group})

    def incarnation_of(self, group: int) -> int:
        """Return the current incarnation of a group according to this node's metadata; the first
        one for a group that was never recovered by force."""
        return self._metadata_log.state.recovered(group)[0]

    def reconcile(self) -> None:
        """Adjust replicas to the metadata at the end of a round, when no entry is on its way to a
        replica. Replicas of earlier incarnations are removed, a forced recovery continues with the
        replica that the operator named, and new groups are created, a few at a time. O(recovered
        groups) if there is a new recovery."""
        self.due = False
        self._new.check()
        self._create_new()
        for group in self._removing:
            if group in self._core.status.groups():
                self._remove_replica(group)
        self._removing.clear()
        state = self._metadata_log.state
        if state.recoveries == self._recoveries_seen:
            return
        self._recoveries_seen = state.recoveries
        for group, (incarnation, survivor) in state.recovered_groups():
            if group not in self._core.status.groups():
                continue
            if self._core.status.of(group).incarnation >= incarnation:
                continue
            if survivor == self._core.node:
                self._continue_from_here(group, incarnation)
                self._log.warning("group_recovery_forced", extra={
                    "group": group, "incarnation": incarnation})
                self._request_round()
            else:
                self._remove_replica(group)

    def _continue_from_here(self, group: int, incarnation: int) -> None:
        """Continue a group from this replica, which an operator named (forced recovery). A
        recovering head may have done so before and have lost the record of it. Its log may then
        contain voters that joined since, and only they can clear it, so it is not made the only
        voter again."""
        alone = Configuration((self._core.node,))
        named = NO_MEMBERS if self._store.repair.needs_head_recovery(group) else alone
        self._core.repair.reincarnate(group, incarnation, named)

    def _create_new(self) -> None:
        """Create replicas of the groups by which the pool grew, ``CREATED_PER_ROUND_MAX`` per call;
        nothing before this node is admitted."""
        state = self._metadata_log.state
        if self._pool_checked >= state.last_group or not self._is_admitted():
            return
        first = self._pool_checked + 1
        end = min(state.last_group + 1, first + CREATED_PER_ROUND_MAX)
        for group in range(first, end):
            self._create_first(group, state)
        self._pool_checked = end - 1
        if self._pool_checked < state.last_group:
            self.due = True
        self._request_round()

    def _create_first(self, group: int, state: MetadataState) -> None:
        """Create this node's replica of a new group, if it is one of the first voters and still a
        member. Add the one that recovery found without members, if there is one, in its place."""
        first = state.initial_configuration(group)
        is_first = self._core.node in first.voters
        if group in self._unplaced:
            self._unplaced.discard(group)
            self._add(group, self._store.create_group(group, FIRST_GROUP_INCARNATION,
                                                      first if is_first else NO_MEMBERS))
            return
        if (not is_first or group in self._store.groups or self._store.is_removed(group)
                or self._core.node not in state.configuration(group).members()
                or self.incarnation_of(group) != FIRST_GROUP_INCARNATION):
            return  # had a replica before, or is no member now, or gets it from its leader
        self._add(group, self._store.create_group(group, FIRST_GROUP_INCARNATION, first,
                                                  self._new.has(group)))
        self._on_created(group)
        self.created += 1

    def _remove_replica(self, group: int) -> None:
        self._core.remove_group(group)
        self.on_removed(group)
        self._request_round()
