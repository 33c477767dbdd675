"""Which replicas this node has: created when a leader wants one, gone when the group lives without.

Contract.  Called by the round loop with the core's events and after metadata were applied.  A
replica is created empty: by an append of its group's leader, or, of a group that the growth of the
pool created, because the metadata name this node among its first voters.  What a tombstone
remembers of an earlier one stays in force; nothing here makes anybody a voter who was none.

Theory.  Consensus says who is a member; this says what a node does about it.  An append for a group
that is not here names the group's incarnation; which one counts is in the metadata, for all groups
but the metadata group itself: there a later incarnation is believed while no leader of the earlier
one is known (docs/decisions/0007).

A first voter that has neither replica nor tombstone of its group never had one, so it has promised
nothing in it and may begin with an empty log, however late it hears of the group
(docs/decisions/0035).  Who the first members are is in the metadata only: what recovery found of
such a group without any configuration waits for them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from multiraft.types import METADATA_GROUP, Configuration
from node.metadata.state_machine import FIRST_GROUP_INCARNATION, MetadataState
from node.replicas.grown_groups import NewGroups

if TYPE_CHECKING:
    from multiraft.raft.log_reader import GroupRestored
    from multiraft.raft.multi_raft import MultiRaft
    from multiraft.storage.store import Store
    from node.metadata.log import MetadataLog

#: A replica that was just created and has been told nothing: no members.
NOBODY = Configuration(())

#: Groups of a pool that grew which are created in one round: some milliseconds.
CREATED_PER_ROUND_MAX = 256


def _ignore(_group: int) -> None:
    """Do nothing: no other part keeps anything of replicas."""


class Replicas:
    """Creates and removes."""

    def __init__(self, core: MultiRaft, store: Store, metadata_log: MetadataLog, pool_size: int,
                 request_round: Callable[[], None], log: logging.Logger,
                 takes_part: Callable[[], bool] = lambda: True,
                 created: Callable[[int], None] = _ignore,
                 removed: Callable[[int], None] = _ignore):
        """``takes_part()`` is True once this node may vote and acknowledge; ``created(group)`` and
        ``removed(group)`` are called for each replica that comes and goes."""
        self._core = core
        self._store = store
        self._metadata_log = metadata_log
        self._pool_size = pool_size  # when this node was new
        self._pool_checked = pool_size  # groups up to this one are here, if they should be
        self._request_round = request_round
        self._log = log
        self._takes_part = takes_part
        self._on_created = created
        self._on_removed = removed
        self._new = NewGroups(core, metadata_log)
        self.created = 0  # since the start
        self.removed = 0
        self._unplaced: set[int] = set()  # recovered, and without members
        self._recoveries_seen = -1
        self._leaving: list[int] = []
        #: ``settle`` has something to look at.
        self.due = True

    def take_up(self) -> None:
        """At the start, once this node takes part: all that recovery found, but for groups whose
        first members the metadata have to tell."""
        self._new.found(self._store.groups.get(METADATA_GROUP))
        for group, restored in sorted(self._store.groups.items()):
            if (group > self._pool_size and restored.configuration == NOBODY
                    and not restored.changes and not restored.vote_barrier_index):
                self._unplaced.add(group)
            else:
                self._add(group, restored)
                if (group == METADATA_GROUP and restored.incarnation > FIRST_GROUP_INCARNATION
                        and not self._store.tails[group].applied_index):
                    self._metadata_log.begin_anew()  # its state is an earlier replica's
        self.due = True

    def look_again(self) -> None:
        """The metadata are others than at the last look."""
        self.due = True

    def _add(self, group: int, restored: GroupRestored) -> None:
        self._recoveries_seen = -1  # it may be of an incarnation that is over
        self._core.add_group(group, FIRST_GROUP_INCARNATION, restored, self._store.tails[group])

    def wanted(self, group: int, incarnation: int, sender: int, term: int, index: int) -> None:
        """``sender`` leads a group in which this node is a member, and has nothing of it; it would
        begin at ``index``."""
        if not self._takes_part():
            return  # the others do not know its data directory yet: it may have been wiped
        if group > max(self._pool_size, self._metadata_log.state.last_group):
            return  # no such group: whoever says so knows metadata that are not here yet
        if group in self._core.status.groups():
            if group != METADATA_GROUP or self._core.status.of(group).leader:
                return  # metadata will say which incarnation counts; or this one is alive
            self._leaving.append(group)
            self.due = True
            return  # it asks again, when the tombstone is written
        if group != METADATA_GROUP and incarnation != self.incarnation_of(group):
            return
        if self._store.is_removed(group):
            left_term, left_incarnation = self._store.tombstone(group)
            left_incarnation = left_incarnation or FIRST_GROUP_INCARNATION
            if incarnation < left_incarnation or (incarnation == left_incarnation
                                                  and term < left_term):
                return  # from before the replica was removed
        elif group in self._store.groups:
            return  # removed a moment ago, its tombstone is on its way
        self._create(group, incarnation, sender, term, index)

    def _create(self, group: int, incarnation: int, sender: int, term: int, index: int) -> None:
        if group == METADATA_GROUP:
            self._new.replaced()
        restored = self._store.create_group(group, FIRST_GROUP_INCARNATION, NOBODY)
        self._add(group, restored)
        if incarnation > (restored.incarnation or FIRST_GROUP_INCARNATION):
            self._core.repair.reincarnate(group, incarnation, NOBODY, index, term)
            if group == METADATA_GROUP:
                self._metadata_log.begin_anew()
        self._on_created(group)
        self.created += 1
        self._log.info("replica created", extra={"group": group, "leader": sender})

    def gone(self, group: int) -> None:
        """The core let a replica go."""
        self.removed += 1
        self._on_removed(group)
        self._log.info("replica removed", extra={"group": group})

    def incarnation_of(self, group: int) -> int:
        """The incarnation of a group that counts, as far as the metadata here say."""
        return self._metadata_log.state.recovered(group)[0]

    def settle(self) -> None:
        """At the end of a round, when nothing is on its way to a replica: let go what belongs to an
        earlier incarnation of its group, and go on with what an operator named (forced recovery).
        O(recovered groups) when there is a new one; groups that are new are created a few at a
        time."""
        self.due = False
        self._new.look()
        self._create_new()
        for group in self._leaving:
            if group in self._core.status.groups():
                self._let_go(group)
        self._leaving.clear()
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
                self._go_on(group, incarnation)
                self._log.warning("group recovered by force", extra={
                    "group": group, "incarnation": incarnation})
                self._request_round()
            else:
                self._let_go(group)

    def _go_on(self, group: int, incarnation: int) -> None:
        """An operator named this replica.  One in doubt may have gone on already, and have lost the
        record of it; others may be voters since, and are in its log.  Only they can clear it."""
        alone = Configuration((self._core.node,))
        named = NOBODY if self._store.repair.is_doubtful(group) else alone
        self._core.repair.reincarnate(group, incarnation, named)

    def _create_new(self) -> None:
        """The replicas of groups by which the pool grew."""
        state = self._metadata_log.state
        if self._pool_checked >= state.last_group or not self._takes_part():
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
        """This node's replica of a new group, if it is one of its first voters and still wanted."""
        first = state.initial_configuration(group)
        is_first = self._core.node in first.voters
        if group in self._unplaced:
            self._unplaced.discard(group)
            self._add(group, self._store.create_group(group, FIRST_GROUP_INCARNATION,
                                                      first if is_first else NOBODY))
            return
        if (not is_first or group in self._store.groups or self._store.is_removed(group)
                or self._core.node not in state.configuration(group).members()
                or self.incarnation_of(group) != FIRST_GROUP_INCARNATION):
            return  # it was here, or is not wanted any more, or its leader asks for it
        self._add(group, self._store.create_group(group, FIRST_GROUP_INCARNATION, first,
                                                  self._new.has(group)))
        self._on_created(group)
        self.created += 1

    def _let_go(self, group: int) -> None:
        self._core.remove_group(group)
        self.gone(group)
        self._request_round()
