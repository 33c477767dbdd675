"""Limits of open files: the system's limit decides how many clients fit."""

import resource

import pytest

from node.errors import BadConfig
from node.limits import Limits
from node.loop import fd_limits
from node.loop.fd_limits import CONNECTIONS_MIN, DESCRIPTORS_OWN, connections_that_fit

LIMITS = Limits(connections_max=1000, connections_per_address_max=10, peer_connections_max=100)
NEEDED = DESCRIPTORS_OWN + 100 + 1000


@pytest.fixture
def system(monkeypatch):
    """Replace the system's limits by a list [soft, hard], and return it."""
    now = [0, 0]

    def change(_what, limits):
        now[:] = limits

    monkeypatch.setattr(fd_limits.resource, "getrlimit", lambda _what: tuple(now))
    monkeypatch.setattr(fd_limits.resource, "setrlimit", change)
    return now


@pytest.mark.parametrize(("soft", "hard", "after", "fitting"), [
    (NEEDED, NEEDED, NEEDED, 1000),
    (100_000, 100_000, 100_000, 1000),
    (256, 100_000, NEEDED, 1000),
    (256, NEEDED - 400, NEEDED - 400, 600),
    (256, resource.RLIM_INFINITY, NEEDED, 1000),
    (resource.RLIM_INFINITY, resource.RLIM_INFINITY, resource.RLIM_INFINITY, 1000),
])
def test_the_soft_limit_is_raised_and_connections_are_what_fits(system, soft, hard, after,
                                                                fitting):
    system[:] = soft, hard
    assert connections_that_fit(LIMITS) == fitting
    assert system == [after, hard]


def test_a_node_that_could_serve_nobody_does_not_start(system):
    system[:] = 256, DESCRIPTORS_OWN + 100 + CONNECTIONS_MIN - 1
    with pytest.raises(BadConfig, match="ulimit -Hn"):
        connections_that_fit(LIMITS)
