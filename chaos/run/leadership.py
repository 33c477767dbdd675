"""Leaders of all groups over time, asked of every node twice a second.

Contract.  ``watch`` keeps ``WorkloadContext.leaders`` and ``members`` up to date and writes each
change of a leader to ``leadership.jsonl``: ``[time_us, group, term, leader]``, leader 0 = unknown.
Nodes that do not answer are left out.

Theory.  Nodes may name different leaders at one moment; the answer with the highest term counts,
and of equal terms that of the leader itself, then one that names a leader.  Only the leader's
answer about the members counts: a follower may be behind, and a removed node may not have learned
of its removal.  A leader that leads for less than the pause between two questions may be missed,
but its term is not: the leader of a skipped term is ``SOMEBODY``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

import trio

from chaos.checkers.leaders import LEADER, LeaderTrace, RoleChange
from chaos.history import WARM_UP
from chaos.workloads.recorder import Recorder
from chaos.workloads.session import Sessions
from multiraft.errors import MultiRaftError
from multiraft.wire.messages import GroupSummary, ListGroups

#: The unknown leader of a term in which no node was asked.
SOMEBODY = 0
PAUSE_S = 0.5
TIMEOUT_S = 1.0


class Belief(NamedTuple):
    """Answer of one node about one group."""

    node: int
    row: GroupSummary

    @property
    def weight(self) -> tuple[int, bool, bool]:
        """Return the weight of an answer, to compare with others about its group: term, whether the
        leader itself answers, whether a leader is named. The heaviest counts."""
        return self.row.term, self.row.leader == self.node, bool(self.row.leader)


class Leadership:
    """Leaders, terms and members of all groups, as the nodes answer."""

    def __init__(self, recorder: Recorder, file: TextIO, leaders: dict[int, int]):
        self.changes = 0  # of leaders, after the warm-up
        self.terms: dict[int, int] = {}
        #: Voters and learners of each group, by the last answer of a leader.
        self.members: dict[int, tuple[int, ...]] = {}
        self._member_terms: dict[int, int] = {}
        self._leaders = leaders
        self._recorder = recorder
        self._file = file
        self._said: dict[int, tuple[int, int]] = {}  # group -> (term, leader), as written last

    async def watch(self, nodes: Callable[[], dict[int, str]]) -> None:
        """Ask all nodes, every ``PAUSE_S`` and until cancelled. ``nodes`` returns the id and
        address of each."""
        async with Sessions() as sessions:
            while True:
                await self.look(sessions, nodes())
                await trio.sleep(PAUSE_S)

    async def look(self, sessions: Sessions, nodes: dict[int, str]) -> None:
        """Ask every node once, all at the same time, and take the answers; a node that does not
        answer within ``TIMEOUT_S`` is left out."""
        rows: list[Belief] = []
        async with trio.open_nursery() as nursery:
            for node, address in nodes.items():
                nursery.start_soon(_ask, sessions, node, address, rows)
        self.learn(rows)

    def learn(self, beliefs: Sequence[Belief]) -> None:
        """Take the answers of all nodes at one moment: of each group the heaviest, unless its term
        is below the known one. Changes of leaders are written to the file."""
        self._learn_members(beliefs)
        best: dict[int, Belief] = {}
        for belief in beliefs:
            known = best.get(belief.row.group)
            if known is None or belief.weight > known.weight:
                best[belief.row.group] = belief
        for group, belief in best.items():
            row = belief.row
            if row.term < self.terms.get(group, 0):
                continue  # only nodes that are behind have answered
            self.terms[group] = row.term
            self._note(group, row.term, row.leader)

    def _learn_members(self, beliefs: Sequence[Belief]) -> None:
        """Take the members of a group from the answer of its leader only: a later term without a
        leader does not change them."""
        for node, row in beliefs:
            if row.leader == node and row.term >= self._member_terms.get(row.group, 0):
                self._member_terms[row.group] = row.term
                self.members[row.group] = tuple(sorted({*row.voters, *row.learners}))

    def _note(self, group: int, term: int, leader: int) -> None:
        before = self._said.get(group)
        if before == (term, leader):
            return
        if leader:
            last = self._leaders.get(group)
            if last is not None and last != leader and self._recorder.phase_name != WARM_UP:
                self.changes += 1
            self._leaders[group] = leader
        self._said[group] = (term, leader)
        self._file.write(json.dumps([self._recorder.now_us(), group, term, leader]) + "\n")


async def _ask(sessions: Sessions, node: int, address: str, rows: list[Belief]) -> None:
    first = 0
    try:
        while True:
            reply = await sessions.ask(address, ListGroups(first), timeout_s=TIMEOUT_S)
            rows += [Belief(node, row) for row in reply.groups]
            if not reply.more or not reply.groups:
                return
            first = reply.groups[-1].group + 1
    except MultiRaftError:
        return  # the node is down, cut off or paused: the others answer


def trace_of(path: Path) -> LeaderTrace:
    """Return the trace of leaders in ``leadership.jsonl`` for the checkers. Terms that the
    observations skip are led by ``SOMEBODY``."""
    roles: list[RoleChange] = []
    terms: dict[int, int] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        time_us, group, term, leader = json.loads(line)
        if not leader:
            continue
        known = terms.get(group, term)
        roles += [RoleChange(time_us, SOMEBODY, group, skipped, LEADER, SOMEBODY)
                  for skipped in range(known + 1, term)]
        roles.append(RoleChange(time_us, leader, group, term, LEADER, leader))
        terms[group] = max(known, term)
    return LeaderTrace(roles)
