"""Random worlds of three members: whatever is damaged, repair ends, and all read what was written.

The worlds are the same in each run. ``MULTIRAFT_REPAIR_ENDS_SECONDS`` runs others for so long,
``MULTIRAFT_REPAIR_ENDS_FIRST`` sets the first seed of these. A failure names the seed, and the
smallest script that fails in the same way.
"""

from __future__ import annotations

import os
import random
import time
from itertools import count

import pytest

from tests.needs import SKIPPED
from tests.storage.repair.repair_world import RepairWorld, failure_of, script_of, shrunk

#: Worlds of each run: some seconds.
WORLDS = 80
SECONDS = float(os.environ.get("MULTIRAFT_REPAIR_ENDS_SECONDS", "0"))
FIRST = os.environ.get("MULTIRAFT_REPAIR_ENDS_FIRST", "")


def check(seed: int) -> None:
    script = script_of(seed)
    failure = failure_of(script)
    assert not failure, f"seed {seed}: {failure}\nsmallest script: {shrunk(script)}"


@pytest.mark.parametrize("first", range(0, WORLDS, 20))
def test_all_members_heal(first):
    for seed in range(first, first + 20):
        check(seed)


@pytest.mark.skipif(not SECONDS, reason=(
    f"{SKIPPED}minutes. Run: MULTIRAFT_REPAIR_ENDS_SECONDS=600 .venv/bin/python -m pytest "
    "--import-mode=importlib tests/storage/repair/test_repair_ends.py"))
def test_the_members_of_further_worlds_heal():
    end = time.monotonic() + SECONDS
    for seed in count(int(FIRST) if FIRST else random.randrange(1 << 40)):
        check(seed)
        if time.monotonic() > end:
            return


def test_damage_is_met_in_these_worlds():
    """And repaired, by copies of entries and records, behind snapshots as well."""
    met: set[str] = set()
    for seed in range(12):
        world = RepairWorld()
        world.run(script_of(seed))
        for member in world.members.values():
            met |= member.met
    assert met == {"CorruptRange", "CorruptJournalRange", "CorruptIndexedSegment", "CorruptFile",
                   "head recovery", "snapshot", "cold segment"}
