"""Releases of the cluster's nodes, and the entries that all of them know.

Contract.  Pure functions of the rows of the nodes.  A leader proposes kinds 8 to 11 of entries, and
version 2 of LOG_START, only while ``retention_entries_fault`` is empty.  A node compacts the Raft
log of a group with partitions only while ``data_snapshots_fault`` is, registers an address for
Kafka's clients only while ``kafka_addresses_fault`` is, and proposes to add partitions to a topic
only while ``added_partitions_fault`` is.  A leader proposes COMPACT only while
``key_compaction_fault`` is empty: to know the entry is less than to carry it out.

Theory.  A node records its release when it registers, before it takes part again: the metadata
know the release of each node that runs.  A node that goes back to an earlier release is not
foreseen: it refuses the checkpoints of the later one (docs/decisions/0016).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from node.metadata.commands import NodeRecord

if TYPE_CHECKING:
    from node.metadata.state_machine import MetadataState

#: First release that knows the entries of docs/decisions/0060.
RETENTION_ENTRIES_SINCE = (0, 2)

#: First release that takes a snapshot in place of the compacted log of a group with partitions.
DATA_SNAPSHOTS_SINCE = (0, 2)

#: First release that carries out COMPACT entries.
KEY_COMPACTION_SINCE = (0, 2)

#: First release that reads an address for Kafka's clients in the row of a node.
KAFKA_ADDRESSES_SINCE = (0, 2)

#: First release that knows the command that adds partitions to a topic, and reads their table in a
#: snapshot.
ADDED_PARTITIONS_SINCE = (0, 2)

#: Nodes that a refusal names; it always tells their number.
NODES_NAMED = 4

#: Release numbers, without what follows them: ``0.2.0.dev0`` is 0.2.0.
_RELEASE = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})(?=[.+abr]|$)")


class MetadataCopy(Protocol):
    """This node's copy of the metadata; a snapshot replaces the state object."""

    @property
    def state(self) -> MetadataState: ...


def retention_entries_fault(nodes: Iterable[NodeRecord]) -> str:
    """Return why leaders may not propose the entries that decide retention yet: nodes of earlier
    or unknown releases.  Empty if they may.  O(nodes)."""
    return _fault(nodes, RETENTION_ENTRIES_SINCE, "the entries that decide retention need")


def data_snapshots_fault(nodes: Iterable[NodeRecord]) -> str:
    """Return why Raft logs of groups with partitions may not be compacted yet: nodes of earlier or
    unknown releases.  Empty if they may be.  O(nodes)."""
    return _fault(nodes, DATA_SNAPSHOTS_SINCE, "snapshots of groups with partitions need")


def key_compaction_fault(nodes: Iterable[NodeRecord]) -> str:
    """Return why leaders may not propose COMPACT entries yet: nodes of earlier or unknown releases.
    Empty if they may.  O(nodes)."""
    return _fault(nodes, KEY_COMPACTION_SINCE, "compaction by key needs")


def kafka_addresses_fault(nodes: Iterable[NodeRecord]) -> str:
    """Return why nodes may not register addresses for Kafka's clients yet: nodes of earlier
    releases, which could not read them.  Empty if they may.  A node that was never started is none
    of them.  O(nodes)."""
    return _fault(_started(nodes), KAFKA_ADDRESSES_SINCE, "addresses for Kafka's clients need")


def added_partitions_fault(nodes: Iterable[NodeRecord]) -> str:
    """Return why partitions may not be added to topics yet: nodes of earlier releases, which would
    stop at the command.  Empty if they may be.  A node that was never started is none of them.
    O(nodes)."""
    return _fault(_started(nodes), ADDED_PARTITIONS_SINCE, "partitions that are added to a topic "
                  "need")


def _started(nodes: Iterable[NodeRecord]) -> list[NodeRecord]:
    return [node for node in nodes if node.incarnation or node.version]


def _fault(nodes: Iterable[NodeRecord], since: tuple[int, int], what: str) -> str:
    unable = [node for node in nodes if not _is_at_least(node.version, since)]
    if not unable:
        return ""
    named = ", ".join(f"node {node.id} ({node.version or 'unknown'})"
                      for node in unable[:NODES_NAMED])
    more = f" and {len(unable) - NODES_NAMED} more" if len(unable) > NODES_NAMED else ""
    return (f"{what} release {'.'.join(map(str, since))} or later on all nodes; upgrade "
            f"{named}{more}")


def _await_registration(nodes: Iterable[NodeRecord]) -> bool:
    """Return True if nodes have to register yet, each for the first time, and the release of each
    other one is known: the cluster is new.  O(nodes)."""
    unknown = [node for node in nodes if not node.version]
    return bool(unknown) and not any(node.incarnation for node in unknown)


class ReleaseGate:
    """The answer to whether all nodes know something, kept while the metadata do not change."""

    def __init__(self, metadata: MetadataCopy,
                 fault: Callable[[Iterable[NodeRecord]], str]):
        """``fault``: one of the functions of this module."""
        self._metadata = metadata
        self._fault_of = fault
        self._judged: tuple[object, int] | None = None  # the state, and its version
        self._fault = ""
        self._awaits_registration = False

    @property
    def fault(self) -> str:
        """The reason why not, by this node's copy of the metadata; empty if they do.  O(1),
        O(nodes) after a change of the metadata."""
        self._judge()
        return self._fault

    @property
    def awaits_registration(self) -> bool:
        """True while the reason is that the cluster is new, and nodes have to register yet.  O(1),
        O(nodes) after a change of the metadata."""
        self._judge()
        return self._awaits_registration

    def _judge(self) -> None:
        state = self._metadata.state
        if self._judged is None or self._judged != (state, state.version):
            self._judged = state, state.version
            self._fault = self._fault_of(state.nodes())
            self._awaits_registration = bool(self._fault) and _await_registration(state.nodes())


def _is_at_least(version: str, since: tuple[int, int]) -> bool:
    found = _RELEASE.match(version)
    return found is not None and tuple(map(int, found.groups())) >= since
