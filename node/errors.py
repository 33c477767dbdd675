"""What can stop a node, as types with exit codes.

    NodeError
    +- BadConfig        exit code 2: node.toml does not say what it must
    +- BadDirectory     exit code 3: the data directory is another node's, in use, or unreadable
    |  +- NodeRefused   ... because the cluster knows the node as another one
    +- DiskFailed       exit code 4: a write or fsync failed; never retried, the node stops

    Crash               exit code 1, with its traceback in the log
    +- RoundFailed      a round of the loop ended in the middle
    +- LivenessFailed   the thread that keeps the leases ended
"""

from __future__ import annotations


class NodeError(Exception):
    """Root; ``exit_code`` is what the process ends with."""

    exit_code = 1


class BadConfig(NodeError):
    """The configuration file is missing, unreadable or contradicts itself."""

    exit_code = 2


class BadDirectory(NodeError):
    """The data directory cannot be this node's."""

    exit_code = 3


class NodeRefused(BadDirectory):
    """The others do not let this node in, and never will: its identity contradicts what they
    know."""


class DiskFailed(NodeError):
    """A write or fsync failed.  The page cache may have dropped the data: a retry would lie."""

    exit_code = 4


class Crash(Exception):
    """Something that cannot happen did; no ``NodeError``, because there is nothing an operator
    could do about it but to read the traceback."""


class RoundFailed(Crash):
    """A round ended in the middle; its cause says why."""


class LivenessFailed(Crash):
    """The liveness thread ended; its cause says why."""
