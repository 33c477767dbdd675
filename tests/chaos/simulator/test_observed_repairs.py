"""State checker and real store: the model of a damaged log follows the repair of its node."""

from __future__ import annotations

from itertools import count

import pytest

from chaos.simulator.oracle.model import GroupModel
from chaos.simulator.oracle.observer import StateChecker
from chaos.simulator.oracle.readback import ReadBack
from multiraft.raft.ready import GroupWrite, Writes
from multiraft.types import HardState
from tests.storage.damage import DIRECTORY, FIRST
from tests.storage.recovery import test_lost_truncations
from tests.storage.recovery.test_lost_truncations import Core, History, follow_on, lived
from tests.storage.world import VOTERS, open_store


class Told:
    """State checker of a damaged follower, n1, and of a peer with the true log."""

    def __init__(self, changes: list[tuple[int, int]], history: History):
        self.state_checker = StateChecker([GroupModel(1, VOTERS.voters)])
        self._sequences = count(1)
        log = []
        for term, (dropped, appended) in enumerate(changes, 1):
            first = max(1, len(log) - dropped + 1)
            del log[first - 1:]
            added = follow_on(log, term, appended)
            log += added
            self.write(1, first if dropped else 0, added, HardState(term, 2))
        self.write(1, 0, [], HardState(len(changes) + 1, 2))
        self.write(2, 0, history.true, HardState(len(changes), 2))
        group = self.state_checker.groups[1]
        group.committed.extend(group.replica(2).staged.chains)

    def write(self, node, drop_from, entries, hard_state=None):
        write = GroupWrite(1, 1, drop_from, tuple(entries), hard_state)
        writes = Writes(next(self._sequences), (write,))
        self.state_checker.staged(node, writes)
        self.state_checker.durable(node, writes)


class Telling(Core):
    """Consensus of the damaged replica, which reports to the state checker."""

    told: Told

    def _write(self, group, first_gone, entries):
        self.told.write(1, first_gone, entries)
        super()._write(group, first_gone, entries)


def repair(store, history: History, told: Told, commit: int) -> None:
    core = Telling(store, history.true, commit)
    core.told = told
    test_lost_truncations.repair(store, history.peer, commit, history.true, core)


@pytest.mark.parametrize(("changes", "applied", "lost"), [
    ([(0, 2), (2, 3)], 2, (1, 2)),  # no truncated entry is applied: all are given up
    ([(0, 3), (3, 2), (0, 1)], 3, (1, 2)),  # one is applied: each is fetched, the last one first
    ([(3, 2), (3, 3), (3, 3)], 3, (1, 3)),
    ([(0, 1), (4, 4), (4, 4), (2, 2)], 4, (2, 4)),
])
def test_what_was_dropped_in_a_hole_is_not_believed_below_what_is_committed(changes, applied,
                                                                            lost):
    """The model had the committed entry at the last index in question, and the truncated ones
    before it.

    When the node had fetched all of them, it was reported to hold another log than the others.
    """
    history = lived(changes, len(changes), applied)
    told = Told(changes, history)
    begin, end = history.places[lost[0]], history.places[lost[1]]
    history.disk.filesystem.overwrite(FIRST, begin, bytes(end - begin))
    read_back = ReadBack()
    for start in range(2):
        store = open_store(history.disk.filesystem, DIRECTORY)
        restored = store.create_group(1, 1, VOTERS)
        read_back.check(store, history.disk.filesystem.image, told.state_checker, 1, rotten=True)
        assert bool(restored.quarantined) == (not start)
        if restored.quarantined:
            repair(store, history, told, restored.commit)
        store.close()
    group = told.state_checker.groups[1]
    assert group.replica(1).durable.chains == group.committed
