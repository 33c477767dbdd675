"""Leadership of one boot: transfers and resignations that faults or a full disk ask for."""

from __future__ import annotations

import random

from chaos.simulator.node.env import NodeEnv
from chaos.simulator.node.peers import PeerTable
from chaos.simulator.node.process import ProcessScheduler
from chaos.simulator.node.round_queue import RoundQueue
from multiraft.errors import ProposalError
from multiraft.raft.multi_raft import MultiRaft


class Leadership:
    """Groups that one boot leads."""

    def __init__(self, env: NodeEnv, process: ProcessScheduler, rounds: RoundQueue,
                 raft: MultiRaft, peers: PeerTable):
        self._env = env
        self._process = process
        self._rounds = rounds
        self._raft = raft
        self._peers = peers

    def led_groups(self) -> list[int]:
        """Return the groups that this node leads."""
        status = self._raft.status
        return [group for group in status.groups() if status.is_leader(group)]

    def transfer_some(self, rng: random.Random) -> None:
        """Schedule a transfer of the leadership of one group to another node, or its resignation.
        """
        self._process.later(0, self._transfer, rng)

    def _transfer(self, rng: random.Random) -> None:
        led = self.led_groups()
        if not led:
            return
        group = rng.choice(led)
        to = rng.choice([*self._peers.peers])
        self._env.trace_line("fault", f"transfer to n{to}", group)
        try:
            if rng.random() < 0.8:
                self._raft.transfer(group, to)
            else:
                self._raft.resign(group, "asked to")
        except ProposalError as error:
            self._env.trace_line("refused", str(error), group)
        self._rounds.request()

    def shed(self) -> None:
        """Transfer the groups led here to nodes that accept records, as the real node does, where
        there is such a node."""
        for group in self.led_groups():
            if self._raft.shed_leadership(group):
                self._env.event_counts["made way for records"] += 1
        self._rounds.request()
