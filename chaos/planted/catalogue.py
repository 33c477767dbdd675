"""Catalogue of all planted bugs, by name, in the order of their parts and then of the lists."""

from __future__ import annotations

from chaos.planted import (
    clients,
    cold_segments,
    compaction,
    consensus,
    disks,
    kafka,
    key_compaction,
    moves,
    node,
    recovery,
    replicas,
    retention,
    sinks,
    storage,
    surviving_records,
    topics,
)
from chaos.planted.bug import Bug

_PARTS = (consensus, storage, cold_segments, compaction, disks, recovery, moves, node, replicas,
          retention, key_compaction, surviving_records, clients, sinks, kafka, topics)

BUGS: dict[str, Bug] = {bug.name: bug for part in _PARTS for bug in part.BUGS}
