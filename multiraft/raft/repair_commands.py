"""Commands of a repair on the damaged replicas of one node.

Contract.  ``MultiRaft.repair`` is the only instance; its calls are inputs as those of ``MultiRaft``
are.  A quarantined replica is *frozen* (it accepts no entries) or *following* (head_recovery.py).
``storage.repair.coordinator`` decides which command comes next.  Every command raises
``UnknownGroup``.
"""

from __future__ import annotations

from collections.abc import Sequence

from multiraft.raft import conf_change, head_recovery, joint_quorum
from multiraft.raft.context import NodeContext
from multiraft.raft.group import Group, replica
from multiraft.types import Configuration


class RepairCommands:
    """Quarantine, truncation and readmission of replicas, and forced recovery of groups."""

    def __init__(self, context: NodeContext, groups: dict[int, Group]):
        self._context = context
        self._groups = groups

    def _group(self, group: int) -> Group:
        return replica(self._groups, group, self._context.node)

    def quarantine(self, group: int, why: str) -> None:
        """Mark the replica as damaged: it neither votes, leads nor acknowledges."""
        self._group(group).quarantine(why)

    def begin_head_recovery(self, group: int) -> None:
        """Let a quarantined replica follow, uncounted, until its leader clears it (event
        ``head_recovered``).  The replica has every entry that it knows of, but its log may have
        ended later."""
        head_recovery.begin(self._group(group))

    def may_truncate(self, group: int, first_gone: int) -> bool:
        """True if the log can be truncated at ``first_gone``: no entry from there on is known to be
        committed, or to match the log of this term's leader.

        The stored log may have entries beyond the end of this log until a truncation is staged."""
        found = self._group(group)
        return (found.health.is_frozen
                and max(found.log.commit, found.matched_index) < first_gone <= found.log.last_index)

    def truncate(self, group: int, first_gone: int) -> None:
        """Truncate the log of a quarantined replica at ``first_gone``: the leader does not have the
        damaged entries from there on."""
        self._group(group).truncate(first_gone)

    def set_term_runs(self, group: int, term_runs: tuple[tuple[int, int], ...]) -> None:
        """Replace the terms of a frozen replica's entries by those that the store has learned; at
        the start the store could only guess the terms of lost entries.  Ignored for other
        replicas."""
        found = self._group(group)
        if found.health.is_frozen:
            found.log.reload_terms(term_runs)

    def set_guessed_through(self, group: int, index: int) -> None:
        """Record that the terms of entries up to ``index`` may be guesses: they are compacted, and
        were lost before; 0 = none.  An append that follows one is accepted whatever term it names
        for it, and none is sent."""
        self._group(group).log.set_guessed_through(index)

    def set_configurations(self, group: int,
                           configurations: Sequence[tuple[int, Configuration]]) -> None:
        """Replace the configurations (index, value) in the log of a frozen replica by those that
        the store has learned; an entry lost at the start may have been one.  Ignored for other
        replicas, and if nothing differs."""
        found = self._group(group)
        known = joint_quorum.configurations_before(configurations, found.log.last_index + 1)
        if (found.health.is_frozen and found.lifecycle_record is None
                and known != found.configurations):
            found.replace_configurations(known)

    def is_following(self, group: int) -> bool:
        """True if the replica is quarantined and accepts its leader's entries, because head
        recovery is under way."""
        return self._group(group).health.nonce != 0

    def is_head_recovered(self, group: int) -> bool:
        """True if the leader has cleared the replica, so that it may be ``repaired``."""
        return self._group(group).health.is_recovered

    def repaired(self, group: int) -> None:
        """End the quarantine: the log is complete again, and the store has recorded that
        durably."""
        self._group(group).repaired()

    def reincarnate(self, group: int, incarnation: int, configuration: Configuration,
                    vote_barrier_index: int = 0, vote_barrier_term: int = 0) -> None:
        """Begin a new ``incarnation`` of the group from this log, with the members that the
        operator named (forced recovery).  Or, with an empty configuration, let an empty replica
        join that incarnation; it grants no vote until its log has reached index
        ``vote_barrier_index`` of term ``vote_barrier_term`` (conf_change.py)."""
        conf_change.reincarnate(
            self._group(group), incarnation, configuration, vote_barrier_index, vote_barrier_term
        )
