"""Errors that stop a node, as types with exit codes.

    NodeError
    +- BadConfig        exit code 2: node.toml is invalid
    +- BadDirectory     exit code 3: the data directory is another node's, in use, or unreadable
    |  +- NodeRefused   ... because the cluster knows the node under another identity
    +- DiskFailed       exit code 4: a read, write or fsync failed; never retried, the node stops

    Crash               exit code 1, with its traceback in the log
    +- RoundFailed      a round of the loop ended in the middle
    +- LivenessFailed   the thread that exchanges leases ended
"""

from __future__ import annotations

import errno

#: Pause before a read is repeated for which there was no descriptor or memory, in seconds.
EXHAUSTED_PAUSE_S = 0.5
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class NodeError(Exception):
    """The root of errors with an exit code."""

    exit_code = 1


class BadConfig(NodeError):
    """The configuration file is missing, unreadable or contradicts itself."""

    exit_code = 2


class BadDirectory(NodeError):
    """The data directory cannot belong to this node."""

    exit_code = 3


class NodeRefused(BadDirectory):
    """The cluster refuses this node permanently: its identity contradicts what the other nodes
    know."""


class DiskFailed(NodeError):
    """The disk cannot be read, or a write or fsync failed. The page cache may have dropped written
    data, so a retry could report a success that is none."""

    exit_code = 4


class Crash(Exception):
    """An impossible state: a defect. It is no ``NodeError``, because an operator can do nothing
    about it except report the traceback."""


class RoundFailed(Crash):
    """A round ended in the middle; ``__cause__`` is the reason."""


class LivenessFailed(Crash):
    """The liveness thread ended; ``__cause__`` is the reason."""


def journal_unreadable(error: Exception) -> DiskFailed:
    """Return the ``DiskFailed`` for an error that a read of the journal raised."""
    return DiskFailed(f"the journal cannot be read: {error}")


def is_exhausted(error: OSError) -> bool:
    """Return True if the process or the system lacks a descriptor or memory for a read. Such an
    error says nothing about the disk: what needed the read is tried again or refused."""
    return error.errno in _EXHAUSTED
