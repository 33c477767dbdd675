"""What consensus asks of storage: a contract owned by its consumer.

Contract.  Reads of *metadata* only (terms, sizes), answered from memory in O(log n) and without
blocking; ``multiraft.storage`` implements it on the packed index, ``MemoryStore`` for tests.
Staged entries count at once: ``stage`` happens on the loop before ``MultiRaft`` is asked again.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from multiraft.types import Configuration, HardState


class LogBounds(NamedTuple):
    """Where a group's log begins and ends.  ``first_index`` is the first index that can be read;
    ``prev_term`` the term of ``first_index - 1`` (0 when that is 0)."""

    first_index: int
    prev_term: int
    last_index: int


class GroupRestored(NamedTuple):
    """What recovery found for a group; input of ``MultiRaft.add_group``."""

    bounds: LogBounds
    term_runs: tuple[tuple[int, int], ...]  # (first index, term), ascending, of the log's entries
    hard_state: HardState
    commit: int  # known committed (from a checkpoint); 0 = unknown
    applied: int  # applied state restored up to here; <= commit
    configuration: Configuration  # in force at ``applied``
    quarantined: str = ""  # why, or empty
    doubtful: bool = False  # quarantined, and may follow a leader until that one clears it
    configuration_index: int = 0  # of the entry that says so; 0 = as created
    changes: tuple[tuple[int, Configuration], ...] = ()  # (index, configuration) above, ascending
    vote_barrier_index: int = (
        0  # no vote before the log has come to this index of ``vote_barrier_term``
    )
    incarnation: int = 0  # of the group, where it differs from the log's; 0 = it does not
    vote_barrier_term: int = 0  # 0 = not known: a configuration above the index has this node in it


class LogReader(Protocol):
    """Sizes of entries that are in the log, staged ones included."""

    def last_within(self, group: int, first_index: int, bytes_max: int) -> int:
        """Highest index such that the entries ``first_index``..it take at most ``bytes_max`` bytes
        in a frame, at least ``first_index`` itself.  O(log n).  Raises ``Compacted`` when
        ``first_index`` is below the log's first."""
        ...

    def bytes_between(self, group: int, first_index: int, last_index: int) -> int:
        """Bytes that the entries first..last take in a frame.  O(1) or O(log n)."""
        ...
