"""Leadership of one boot: transfers and resignations that faults or a full disk ask for."""

from __future__ import annotations

import random

from chaos.simulator.node.machine.env import NodeEnv
from chaos.simulator.node.machine.event_log import TraceLog
from chaos.simulator.node.machine.process import ProcessScheduler
from chaos.simulator.node.machine.round_queue import RoundQueue
from chaos.simulator.node.peers.peers import PeerTable
from multiraft.errors import ProposalError
from multiraft.raft.multi_raft import MultiRaft
from node.replicas.drain_leadership import UNDER_WAY_MAX
from node.replicas.shed_transfers import ShedTransfers


class Leadership:
    """Groups that one boot leads."""

    def __init__(self, env: NodeEnv, process: ProcessScheduler, rounds: RoundQueue,
                 raft: MultiRaft, peers: PeerTable):
        self._env = env
        self._process = process
        self._rounds = rounds
        self._raft = raft
        self._peers = peers
        self._shed_transfers = ShedTransfers(CountedTransfers(env, raft), UNDER_WAY_MAX,
                                             rounds.request, TraceLog(env))

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
        """Transfer groups led here to nodes that accept records, by the product's steps."""
        self._shed_transfers.begin(self._env.now_ms)

    def end_shedding(self) -> None:
        """Forget the transfers that a full disk caused: it has space again."""
        self._shed_transfers.forget()


class CountedTransfers:
    """Core as the transfers of a full disk see it: each that begins is counted."""

    def __init__(self, env: NodeEnv, raft: MultiRaft):
        self.status = raft.status
        self._event_counts = env.event_counts
        self._raft = raft

    def shed_leadership(self, group: int) -> bool:
        """Begin a transfer, and return True if another node can take the group. Raises
        ``ProposalError``."""
        begun = self._raft.shed_leadership(group)
        self._event_counts["made way for records"] += begun
        return begun
