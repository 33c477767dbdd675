"""Clients of the simulator follow replies as the product's client does."""

from __future__ import annotations

import pytest

from chaos.simulator.clients.workload import ClientReply
from chaos.simulator.env.parameters import Parameters
from chaos.simulator.simulation import Simulation


@pytest.mark.parametrize("moved_to", [2, 1])
def test_a_moved_reply_names_the_node_to_ask_next(moved_to):
    """Also in the group that the client knows: its voters may be others than at the bootstrap."""
    workload = Simulation(Parameters.draw(3, nodes=5, groups=4)).workload
    partition = workload.partitions[1][0]
    append = workload._next_batch(1, partition)
    workload._send([append])
    attempt, = workload._attempts
    stranger = 9  # joined since, and is no voter that the client knows
    workload.receive(1, (ClientReply(attempt, "MOVED", leader=stranger, moved_to=moved_to),))
    assert workload._group_of[partition] == moved_to
    assert workload._node_for(append, moved_to) == stranger
