"""Bugs to plant in the client port: sessions, appends that wait, reads that wait.

The simulator drives these parts of the node, so that its invariants see what they do.
"""

from __future__ import annotations

from chaos.planted.bug import Bug, Seeds, Tests

BUGS = (
    Bug("appends-outlive-the-leadership", "node.loop.applier", "Applier._role",
        "self._pending.lost(group)",
        "pass",
        "a deposed leader acknowledges an append when another leader's entry takes its index",
        Tests(("tests/node/loop/test_applier.py::"
               "test_a_deposed_leader_answers_for_nothing_even_when_it_leads_again",)),
        Seeds()),
    Bug("repetition-acknowledged-early", "node.clients.produce", "ProduceHandler._append",
        "elif proposed.duplicate and proposed.index <= self._covered(group, acks):",
        "elif proposed.duplicate:",
        "a retry is acknowledged though its first attempt is not committed",
        Seeds()),
    Bug("end-without-a-majority", "node.clients.list_offsets", "Offsets._begin",
        "waiting.missing = yield from self._groups_to_confirm(waiting)",
        "waiting.confirmed = yield from self._groups_to_confirm(waiting)",
        "a leader that no majority confirms names the end of a partition (S12)",
        Seeds(faults=("pause", "isolate-leader"))),
)
