"""Catalogue of all planted bugs, by name, in the order of their parts and then of the lists."""

from __future__ import annotations

from chaos.planted import (
    of_consensus,
    of_disks,
    of_moves,
    of_node,
    of_recovery,
    of_sinks,
    of_storage,
)
from chaos.planted.bug import Bug

_PARTS = (of_consensus, of_storage, of_disks, of_recovery, of_moves, of_node, of_sinks)

BUGS: dict[str, Bug] = {bug.name: bug for part in _PARTS for bug in part.BUGS}
