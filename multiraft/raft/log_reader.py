"""Interface through which consensus reads a stored log: terms and sizes, never bytes.

Contract.  Reads are answered from memory in O(log n), without blocking.  ``multiraft.storage``
implements the interface on its index, ``MemoryStore`` for tests.  Staged entries count at once: the
driver calls ``stage`` before it calls ``MultiRaft`` again.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from multiraft.types import Configuration, HardState


class LogBounds(NamedTuple):
    """Begin and end of a group's log.  ``first_index`` is the first index that can be read;
    ``prev_term`` is the term of ``first_index - 1`` (0 if that index is 0)."""

    first_index: int
    prev_term: int
    last_index: int


class GroupRestored(NamedTuple):
    """State of a group that recovery found on disk; input of ``MultiRaft.add_group``."""

    bounds: LogBounds
    term_runs: tuple[tuple[int, int], ...]  # (first index, term), ascending, of the log's entries
    hard_state: HardState
    commit: int  # known committed (from a checkpoint); 0 = unknown
    applied: int  # applied state restored up to here; <= commit
    configuration: Configuration  # in force at ``applied``
    quarantined: str = ""  # the reason; empty = intact
    needs_head_recovery: bool = False  # quarantined, and head recovery can begin at once
    configuration_index: int = 0  # of its entry; 0 = as created
    changes: tuple[tuple[int, Configuration], ...] = ()  # (index, configuration) above, ascending
    vote_barrier_index: int = (
        0  # no vote before the log has come to this index of ``vote_barrier_term``
    )
    incarnation: int = 0  # of the group if it differs from the log's; 0 = it does not
    # 0 = unknown: a configuration above the index must contain this node.
    vote_barrier_term: int = 0
    guessed_through: int = 0  # last index whose term is a guess: ``RaftLog.terms_from``; 0 = none


class LogReader(Protocol):
    """Sizes of entries in the log, staged ones included."""

    def last_within(self, group: int, first_index: int, bytes_max: int) -> int:
        """Return the highest index such that the entries from ``first_index`` to it take at most
        ``bytes_max`` bytes in a frame, but at least ``first_index``.  O(log n).  Raises
        ``Compacted`` if ``first_index`` is below the log's first index."""
        ...

    def bytes_between(self, group: int, first_index: int, last_index: int) -> int:
        """Return the bytes that the entries first..last take in a frame.  O(1) or O(log n)."""
        ...
