"""`multiraft group pool`, against a cluster that is a few numbers."""

from __future__ import annotations

import json

import pytest

from admin_cli.commands import pool
from multiraft.wire import errors as wire
from multiraft.wire.pool import GrowPoolReply, NewReplicas, PoolStatusReply
from tests.admin_cli.fakes import FakeClient, FakeCluster

NODES = (NewReplicas(1, "r1", "up", 5, 4, 2), NewReplicas(2, "", "draining", 5, 0, 0))


class Growing(FakeCluster):
    """``looks``: the answers to come; the last one stays."""

    def __init__(self):
        super().__init__()
        self.looks = [PoolStatusReply(4, 4, 0, (), 64)]
        self.grown: list[tuple[int, bool]] = []
        self.refusal: Exception | None = None

    def connect(self, addresses):
        super().connect(addresses)
        return Client(self)


class Client(FakeClient):
    """The part of the client that a growing pool needs."""

    def pool_status(self):
        looks = self._cluster.looks
        return looks.pop(0) if len(looks) > 1 else looks[0]

    def pool_grow(self, groups, dry_run=False):
        if self._cluster.refusal is not None:
            raise self._cluster.refusal
        self._cluster.grown.append((groups, dry_run))
        return GrowPoolReply(4, groups, 3, NODES)


@pytest.fixture
def cluster():
    return Growing()


def test_without_yes_it_is_only_shown(run, cluster):
    done = run("group", "pool", "grow", "8")
    assert done.exit_code == 0 and cluster.grown == [(8, True)]
    for text in ("4 -> 8 groups (4 new, 3 replicas each)", "draining", "nothing is copied",
                 "Dry run: nothing was changed. Use --yes to apply."):
        assert text in done.output, text
    told = json.loads(run("group", "pool", "grow", "8", "--json").stdout)
    assert (told["pool_size"], told["groups"], told["dry_run"], told["open"]) == (4, 8, True, False)
    assert told["nodes"][0]["new_replicas"] == 4


def test_with_yes_it_waits_until_new_topics_use_the_new_groups(run, cluster):
    cluster.looks += [PoolStatusReply(4, 8, 3, (6, 7, 8), 64), PoolStatusReply(4, 8, 0, (), 64),
                      PoolStatusReply(8, 8, 0, (), 64)]
    done = run("group", "pool", "grow", "8", "--yes")
    assert done.exit_code == 0 and cluster.grown == [(8, False)]
    assert "The pool has 8 groups" in done.output and len(cluster.looks) == 1


def test_no_wait_says_where_to_look(run, cluster):
    done = run("group", "pool", "grow", "8", "--yes", "--no-wait")
    assert done.exit_code == 0 and "multiraft group pool show" in done.output


def test_groups_that_get_no_leader_are_named_and_left_to_themselves(run, cluster, monkeypatch):
    monkeypatch.setattr(pool, "PROGRESS_TIMEOUT_S", 0.0)
    cluster.looks.append(PoolStatusReply(4, 80, 70, tuple(range(11, 75)), 128))
    done = run("group", "pool", "grow", "80", "--yes")
    assert done.exit_code == 1
    assert "6 of 76 new groups have a leader; without one: 11, 12" in done.output
    assert "74, ..." in done.output and "continues by itself" in done.output


def test_a_pool_of_that_size_has_nothing_to_do_unless_it_is_growing(run, cluster):
    done = run("group", "pool", "grow", "4")
    assert done.exit_code == 2 and "the pool has 4 groups" in done.output
    assert cluster.grown == []


@pytest.mark.parametrize("refusal, way_out", [
    (wire.LimitExceeded("groups_max is 64; 99 groups were asked for"), "limits.groups_max"),
    (wire.InvalidRequest("the pool has 4 groups and only grows: 3 is not more"),
     "Nothing was changed")])
def test_a_refusal_has_the_exit_code_of_what_cannot_be_done(run, cluster, refusal, way_out):
    cluster.refusal = refusal
    done = run("group", "pool", "grow", "99", "--yes")
    assert done.exit_code == 3 and str(refusal)[:20] in done.output and way_out in done.output


def test_groups_that_topics_do_not_use_yet_are_said_to_be_new(run, cluster):
    cluster.looks = [PoolStatusReply(2, 4, 1, (4,), 64)]
    listed = run("group", "list")
    assert "Groups 3 to 4 are new: topics do not use them yet" in listed.output
    assert json.loads(run("group", "list", "--json").stdout)["pool_size"] == 2
    cluster.looks = [PoolStatusReply(4, 4, 0, (), 64)]
    assert "are new" not in run("group", "list").output


def test_a_topic_of_a_smaller_pool_is_explained_as_such(run, cluster):
    cluster.topics = {"old": [[]]}
    assert "was created when" not in run("placement", "explain", "old").output
    cluster.looks = [PoolStatusReply(16, 16, 0, (), 64)]
    explained = run("placement", "explain", "old")
    assert "when the pool had 4 groups" in explained.output and "16 groups now" in explained.output
    assert json.loads(run("placement", "explain", "old", "--json").stdout)["pool_size"] == 4


def test_show_says_how_far_it_is(run, cluster):
    assert "4 groups in the pool; it may grow to 64" in run("group", "pool", "show").output
    cluster.looks = [PoolStatusReply(4, 8, 1, (7,), 64)]
    assert "3 of 4 new groups have a leader; without one: 7" in run("group", "pool",
                                                                     "show").output
    assert json.loads(run("group", "pool", "show", "--json").stdout) == {
        "groups": 4, "growing_to": 8, "new_groups_without_leader": 1, "groups_max": 64}
    cluster.looks = [PoolStatusReply(4, 8, 0, (), 64)]
    assert "all 4 new groups have a leader" in run("group", "pool", "show").output
