"""Which replicas this node has: created when a leader wants one, gone when the group lives without.

Contract.  Called by the round loop with the core's events and after metadata were applied.  A
replica is created empty, by an append of its group's leader only, and what a tombstone remembers of
an earlier one stays in force; nothing here makes anybody a voter.

Theory.  Consensus says who is a member; this says what a node does about it.  An append for a group
that is not here names the group's incarnation; which one counts is in the metadata, for all groups
but the metadata group itself: there a later incarnation is believed while no leader of the earlier
one is known (docs/decisions/0007).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from multiraft.types import METADATA_GROUP, Configuration
from node.metadata import FIRST_GROUP_INCARNATION

#: A replica that was just created and has been told nothing: no members.
NOBODY = Configuration(())


class Replicas:
    """Creates and removes."""

    def __init__(self, core, store, metadata_log, pool_size: int, request_round,
                 log: logging.Logger):
        self._core = core
        self._store = store
        self._metadata_log = metadata_log
        self._pool_size = pool_size
        self._request_round = request_round
        self._log = log
        self.forget: Callable[[int], None] = lambda group: None  # whoever else keeps something
        self.made: Callable[[int], None] = lambda group: None  # whoever repairs what is in doubt
        self.takes_part: Callable[[], bool] = lambda: True  # this node may vote and acknowledge
        self.created = 0  # since the start
        self.removed = 0
        self._recoveries_seen = -1
        self._leaving: list[int] = []
        #: ``settle`` has something to look at.
        self.due = True

    def wanted(self, group: int, incarnation: int, sender: int, term: int) -> None:
        """``sender`` leads a group in which this node is a member, and has nothing of it."""
        if not self.takes_part():
            return  # the others do not know its data directory yet: it may have been wiped
        if group > max(self._pool_size, self._metadata_log.state.pool_size):
            return  # no such group: whoever says so knows metadata that are not here yet
        if group in self._core.groups():
            if group != METADATA_GROUP or self._core.status(group).leader:
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
        self._create(group, incarnation, sender)

    def _create(self, group: int, incarnation: int, sender: int) -> None:
        restored = self._store.create_group(group, FIRST_GROUP_INCARNATION, NOBODY)
        self._core.add_group(group, FIRST_GROUP_INCARNATION, restored, self._store.tails[group])
        if incarnation > (restored.incarnation or FIRST_GROUP_INCARNATION):
            self._core.reincarnate(group, incarnation, NOBODY)
        self.made(group)
        self.created += 1
        self._log.info("replica created", extra={"group": group, "leader": sender})

    def gone(self, group: int) -> None:
        """The core let a replica go."""
        self.removed += 1
        self.forget(group)
        self._log.info("replica removed", extra={"group": group})

    def incarnation_of(self, group: int) -> int:
        """The incarnation of a group that counts, as far as the metadata here say."""
        return self._metadata_log.state.recovered(group)[0]

    def settle(self) -> None:
        """At the end of a round, when nothing is on its way to a replica: let go what belongs to an
        earlier incarnation of its group, and go on with what an operator named (forced recovery).
        O(recovered groups) when there is a new one."""
        self.due = False
        for group in self._leaving:
            if group in self._core.groups():
                self._let_go(group)
        self._leaving.clear()
        state = self._metadata_log.state
        if state.recoveries == self._recoveries_seen:
            return
        self._recoveries_seen = state.recoveries
        for group, (incarnation, survivor) in state.recovered_groups():
            if group not in self._core.groups():
                continue
            if self._core.status(group).incarnation >= incarnation:
                continue
            if survivor == self._core.node:
                self._core.reincarnate(group, incarnation, Configuration((survivor,)))
                self._log.warning("group recovered by force", extra={
                    "group": group, "incarnation": incarnation})
                self._request_round()
            else:
                self._let_go(group)

    def _let_go(self, group: int) -> None:
        self._core.remove_group(group)
        self.gone(group)
        self._request_round()
