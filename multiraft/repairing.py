"""What a driver tells consensus about damaged replicas: ``MultiRaft`` for whoever repairs.

Contract.  As ``MultiRaft``.  A quarantined replica is *held* (it takes nothing) or *following*
(``doubt.py``); who decides what comes next is ``storage.repairer``.
"""

from __future__ import annotations

from collections.abc import Sequence

from multiraft import changes, doubt, membership
from multiraft.types import Configuration


class Repairing:
    """Base of ``MultiRaft``, which finds the group."""

    def quarantine(self, group: int, why: str) -> None:
        """The replica is damaged: it neither votes, leads nor acknowledges."""
        self._group(group).quarantine(why)

    def follow(self, group: int) -> None:
        """A quarantined replica has all entries that it knows of, but does not know its log's end:
        it follows, uncounted, until its leader clears it (event ``cleared``)."""
        doubt.begin(self._group(group))

    def may_forget(self, group: int, first_gone: int) -> bool:
        """Whether the log goes on at ``first_gone`` (the store's may do so until a drop is staged)
        and nothing from there on is known to be committed, or to be what the present leader has."""
        found = self._group(group)
        return (found.is_held()
                and max(found.log.commit, found.verified) < first_gone <= found.log.last_index)

    def forget(self, group: int, first_gone: int) -> None:
        """A quarantined replica gives up its log from ``first_gone`` on, because its leader has
        not got what is damaged there."""
        self._group(group).truncate(first_gone)

    def terms_known(self, group: int, term_runs: tuple[tuple[int, int], ...]) -> None:
        """The store knows better of which terms the entries of a replica are that takes none now:
        of some that are lost it could only guess."""
        found = self._group(group)
        if found.is_held():
            found.log.reload_terms(term_runs)

    def members_known(self, group: int,
                      configurations: Sequence[tuple[int, Configuration]]) -> None:
        """The store knows better which configurations (index, value) are in the log of a replica
        that takes no entries now: what was lost at its start may have been one."""
        found = self._group(group)
        known = membership.before(configurations, found.log.last_index + 1)
        if found.is_held() and found.mark is None and known != found.configurations:
            found.replace_configurations(known)

    def is_following(self, group: int) -> bool:
        """Whether the replica is quarantined and follows."""
        return self._group(group).episode != 0

    def is_cleared(self, group: int) -> bool:
        """Whether its leader has cleared it, so that it may be ``repaired``."""
        return self._group(group).cleared[2]

    def repaired(self, group: int) -> None:
        """The replica has all of its log again, and the store has said so durably."""
        self._group(group).repaired()

    def reincarnate(self, group: int, incarnation: int, configuration: Configuration,
                    barred: int = 0, barred_term: int = 0) -> None:
        """Forced recovery: the group goes on from this log in a new ``incarnation``, with the
        members that the operator named; or an empty replica joins that, with nobody named, and
        votes for nobody before its log has come to that place of the term (changes.py)."""
        changes.reincarnate(self._group(group), incarnation, configuration, barred, barred_term)
