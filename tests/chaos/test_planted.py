"""The simulator can fail: each planted bug is caught within a few seeds."""

from __future__ import annotations

import pytest

from chaos.simulator import planted, world
from chaos.simulator.parameters import Parameters

#: Seeds that are tried first, because they caught the bug when it was planted; a changed system
#: goes other ways, so others follow.
CAUGHT_BY: dict[str, tuple[int, ...]] = {
    "aba": (30, 36, 17),
    "append-without-match": (4, 6, 8),
    "commit-uncapped": (34,),
    "drop-not-written": (4, 5, 7),
    "lost-wake-up": (33, 37, 24),
    "recovery-trusts-page-cache": (11, 31, 3),
    "sleep-with-lagging-member": (5,),
    "tail-not-undone": (5, 4),
    "vote-for-shorter-log": (5, 4),
    "vote-not-persisted": (5, 4),
    "window-lost-on-restart": (4, 5, 3),
}
SEEDS_MAX = 60


@pytest.mark.parametrize("name", sorted(planted.BUGS))
def test_planted_bug_is_caught(name):
    first = CAUGHT_BY.get(name, ())
    seeds = [*first, *(seed for seed in range(1, SEEDS_MAX + 1) if seed not in first)]
    for seed in seeds:
        with planted.planted(name):
            result = world.run(Parameters.draw(seed))
        if result.failure:
            return
    pytest.fail(f"{name} ({planted.BUGS[name].why}) was not caught by {len(seeds)} seeds")


def test_planting_ends_with_its_context():
    before = planted._function(planted.BUGS["aba"]).__code__
    with planted.planted("aba"):
        assert planted._function(planted.BUGS["aba"]).__code__ is not before
    assert planted._function(planted.BUGS["aba"]).__code__ is before


def test_a_bug_whose_code_is_gone_is_an_error(monkeypatch):
    stale = planted.BUGS["aba"]._replace(old="no such text")
    monkeypatch.setitem(planted.BUGS, "stale", stale)
    with pytest.raises(planted.StaleBug):
        with planted.planted("stale"):
            pass
