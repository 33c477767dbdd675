"""All bugs that can be planted, by name, in the order of their parts and then of the lists."""

from __future__ import annotations

from chaos.planted import of_consensus, of_disks, of_moves, of_node, of_sinks, of_storage
from chaos.planted.bug import Bug

BUGS: dict[str, Bug] = {bug.name: bug
                        for bug in (*of_consensus.BUGS, *of_storage.BUGS, *of_disks.BUGS,
                                    *of_moves.BUGS, *of_node.BUGS, *of_sinks.BUGS)}
