"""The part of a disk that plans may fill when it holds other files too."""

from __future__ import annotations

import pytest

from admin_cli.plans import plan_input
from placement import policy as policies


@pytest.mark.parametrize("used, live, may_receive", [
    (500, 500, 400), (500, 100, 400), (899, 1, 1), (900, 500, 0), (990, 600, 0), (400, 500, 400),
    (1000, 0, 1)])
def test_plans_fill_a_disk_no_further_than_who_carries_them_out(used, live, may_receive):
    """Nine tenths of it, whatever has the bytes; and nothing is moved away to make room that would
    not become free."""
    capacity = plan_input.disk_for_replicas(1_000_000, used * 1000, live * 1000)
    cap = capacity * policies.Policy().disk_cap_permille // policies.PERMILLE
    assert cap and cap >= live * 1000
    assert round((cap - live * 1000) / 1000) == may_receive


def test_a_disk_whose_replicas_alone_are_too_much_is_relieved():
    assert plan_input.disk_for_replicas(1 << 30, 990 << 20, 950 << 20) == 1 << 30
