"""Who was removed and added again, and may vote and campaign once more (docs/decisions/0006)."""

from __future__ import annotations

import random

import pytest

from multiraft.config import RaftConfig
from multiraft.memory_store import MemoryStore
from multiraft.multiraft import MultiRaft
from multiraft.store import GroupRestored, LogBounds
from multiraft.tail import PartitionTail
from multiraft.types import Configuration, HardState

NODE, GROUP, BARRED = 1, 5, 200
PAIR, ALONE = Configuration((1, 4)), Configuration((4,))
JOINT = Configuration((4,), (), (1, 4))


def replica(applied: tuple[int, Configuration], *changes: tuple[int, Configuration]):
    """Node 1's, removed at index 200 in an earlier life, of a log that ends at 358."""
    core = MultiRaft(NODE, RaftConfig(), MemoryStore(), random.Random(1), 0)
    core.add_group(GROUP, 1, GroupRestored(
        LogBounds(1, 0, 358), ((1, 128),), HardState(128, 0), applied[0], applied[0], applied[1],
        configuration_index=applied[0], changes=changes, barred=BARRED), PartitionTail(GROUP))
    return core._group(GROUP)


@pytest.mark.parametrize("known", [
    [(150, ALONE)],  # nobody has added it again, as far as its log says
    [(150, PAIR)],  # what its log says is older than its removal
    [(150, PAIR), (201, ALONE)],
    [(357, ALONE)],  # removed once more, and that is applied
])
def test_who_was_removed_is_barred_until_its_log_says_that_it_was_added_again(known):
    assert replica(*known).is_barred()


@pytest.mark.parametrize("known", [
    [(268, PAIR)],
    [(268, PAIR), (357, JOINT)],
    # It may have the entry that removes it alone, and be needed to commit that: who is to stay
    # needs its vote, and has the shorter log.  Nobody led any more.  Seed 790000005690.
    [(268, PAIR), (357, JOINT), (358, ALONE)],
])
def test_who_was_added_again_counts_until_its_next_removal_is_applied(known):
    assert not replica(*known).is_barred()
