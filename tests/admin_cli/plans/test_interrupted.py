"""Ctrl-C while a command waits: what the cluster continues, and the commands for it."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from admin_cli.commands import pool
from admin_cli.failures import ExitCode
from admin_cli.main import cli
from admin_cli.plans import rebalance
from admin_cli.session import Session
from multiraft.wire import plans as wire
from multiraft.wire.pool import PoolStatusReply
from tests.admin_cli.commands.test_pool import Growing
from tests.admin_cli.plans.test_rebalance import BUSY, IDLE, PlanCluster

WATCH = "Watch it: multiraft rebalance status --watch"


def interrupted(cluster, environ, *words: str, poll_s: float = rebalance.POLL_INTERVAL_S) -> Result:
    """Run a command that is interrupted at its first poll of the cluster's progress."""
    def pause(seconds: float) -> None:
        if seconds == poll_s:
            raise KeyboardInterrupt

    result = CliRunner().invoke(cli, words, prog_name="multiraft", obj=Session(
        environ, cluster.connect, "127.0.0.1:9101", pause=pause))
    assert result.exit_code == ExitCode.INTERRUPTED, result.output
    assert "\ninterrupted\n" in f"\n{result.stderr}"
    return result


@pytest.fixture
def cluster(monkeypatch):
    """A cluster that carries out what is submitted, and does not end it."""
    made = PlanCluster()

    class Statuses:
        def pop(self, _position: int) -> wire.PlanStatusReply:
            asked = [request for request in made.requests if isinstance(request, wire.ApplyPlan)]
            return BUSY._replace(plan_id=asked[-1].plan_id) if asked else IDLE

        def __len__(self) -> int:
            return 1

    made.statuses = Statuses()
    return made


def test_a_plan_goes_on_without_the_command(cluster, environ, tmp_path):
    policy = tmp_path / "policy.json"
    policy.write_text('{"bands": [{"resource": "leaders", "permille": 100, "floor": 0}]}')
    words = ("rebalance", "plan", "--scope", "leaders", "--policy", str(policy), "--window", "0.2")
    plan = tmp_path / "plan.json"
    said = interrupted(cluster, environ, *words, "--output", str(plan), "--yes", "--wait").stderr
    assert "The plan is still carried out by the cluster." in said
    assert WATCH in said and "multiraft rebalance cancel" in said
    assert WATCH in interrupted(cluster, environ, "rebalance", "apply", str(plan), "--yes",
                                "--wait").stderr


def test_a_drain_goes_on_without_the_command(cluster, environ):
    said = interrupted(cluster, environ, "node", "maintenance", "1", "--yes", "--wait").stderr
    assert "The leaders of node 1 are still being moved by the cluster." in said
    assert WATCH in said and "cancel, then multiraft node undrain 1" in said


def test_a_growth_goes_on_without_the_command(environ):
    growing = Growing()
    growing.looks = [PoolStatusReply(4, 4, 0, (), 64), PoolStatusReply(4, 8, 4, (5, 6), 64)]
    said = interrupted(growing, environ, "group", "pool", "grow", "8", "--yes",
                       poll_s=pool.POLL_INTERVAL_S).stderr
    assert "the cluster completes it by itself" in said and "multiraft group pool show" in said
