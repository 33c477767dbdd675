"""Properties of every plan, on clusters and policies that Hypothesis draws."""

from __future__ import annotations

import random
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from placement import canonical
from placement.cluster import ALIVE, Snapshot, checked
from placement.outcome import planned, state_after
from placement.plan import MOVES_MAX, ReplicaChange, load, save
from placement.planner import make_plan
from placement.policy import NODE_RESOURCES, Options, Policy
from placement.state import State
from placement.verify import DONE, move_progress, verify
from tests.placement.clusters import asked, clusters, policies

TESTDATA = Path(__file__).parent / "testdata"
THOROUGH = settings(max_examples=100, deadline=None,
                    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@st.composite
def questions(draw):
    """A cluster, a policy, and what is asked for."""
    snapshot = draw(clusters())
    policy = draw(policies())
    known = {row.id for row in snapshot.groups}
    policy = policy._replace(excluded_groups=tuple(group for group in policy.excluded_groups
                                                   if group in known))
    return snapshot, policy, draw(asked(snapshot))


@given(questions())
@THOROUGH
def test_every_plan_keeps_every_invariant(question):
    snapshot, policy, options = question
    made = make_plan(snapshot, policy, options)
    assert verify(made, snapshot, snapshot.taken_ms) == ()


@given(questions())
@THOROUGH
def test_planning_on_the_planned_state_gives_an_empty_plan(question):
    snapshot, policy, options = question
    made = make_plan(snapshot, policy, options)
    if made.converged:
        again = make_plan(planned(snapshot, made), policy, options)
        assert again.moves == ()


@given(questions())
@THOROUGH
def test_it_stays_empty_when_everything_has_cooled_down(question):
    """After a cool-down an item may move again, but an item planned without a cool-down stays."""
    snapshot, policy, options = question
    policy = policy._replace(cool_down_ms=0)
    made = make_plan(snapshot, policy, options)
    if made.converged:
        assert make_plan(planned(snapshot, made), policy, options).moves == ()


@given(questions(), st.randoms(use_true_random=False))
@THOROUGH
def test_the_order_of_the_rows_does_not_matter(question, rng: random.Random):
    snapshot, policy, options = question
    rows = [list(rows) for rows in (snapshot.nodes, snapshot.groups, snapshot.partitions)]
    for each in rows:
        rng.shuffle(each)
    groups = [group._replace(voters=tuple(rng.sample(group.voters, len(group.voters))))
              for group in rows[1]]
    mixed = snapshot._replace(nodes=tuple(rows[0]), groups=tuple(groups),
                              partitions=tuple(rows[2]))
    made = make_plan(snapshot, policy, options)
    assert save(make_plan(mixed, policy, options)) == save(made)
    assert load(save(made)) == made


@given(questions())
@THOROUGH
def test_loads_are_conserved_and_sums_are_kept(question):
    snapshot, policy, options = question
    made = make_plan(snapshot, policy, options)
    before = State(snapshot, policy, options.drain)
    after = state_after(snapshot, policy, options, made.moves)
    after.check()
    assert sum(after.ingress.values()) == sum(before.ingress.values())
    assert sum(after.read.values()) == sum(before.read.values())
    added = sum((len(move.new_voters) - len(move.old_voters)) * before.groups[move.group].bytes
                for move in made.moves if isinstance(move, ReplicaChange))
    assert sum(load[0] for load in after.load) == sum(load[0] for load in before.load) + added


@given(questions())
@THOROUGH
def test_each_move_is_pending_before_and_done_after(question):
    snapshot, policy, options = question
    made = make_plan(snapshot, policy, options)
    for rows, expected in ((snapshot, "pending"), (checked(planned(snapshot, made)), DONE)):
        by_group = {row.id: row for row in rows.groups}
        by_partition = {row.incarnation: row for row in rows.partitions}
        for move in made.moves:
            row = (by_partition[move.incarnation] if move.kind == "topic_switch"
                   else by_group[move.group])
            assert move_progress(move, row) == expected


@given(clusters(states=(ALIVE,)), policies())
@THOROUGH
def test_balancing_never_makes_the_fullest_node_fuller(snapshot, policy):
    """Forced moves (a full disk, a rack) and switches come first, and may do so."""
    check_fullest(snapshot, policy)


def test_a_forced_move_that_was_cut_off_excuses_the_moves_that_follow_from_it():
    """Hypothesis found this cluster.  A replica leaves its rack for a node, small replicas leave
    that node for the fullest disk, and ``moves_max`` cuts off the first of these moves."""
    found = canonical.parse((TESTDATA / "fuller_node.json").read_bytes(), 1 << 20)
    check_fullest(canonical.from_plain(Snapshot, found["snapshot"], "snapshot"),
                  canonical.from_plain(Policy, found["policy"], "policy"))


def check_fullest(snapshot, policy):
    """Check the plan for a cluster: no resource's highest level rises beyond its band."""
    policy = policy._replace(bands=tuple(band._replace(floor=0) for band in policy.bands))
    made = make_plan(snapshot, policy, Options())
    whole = make_plan(snapshot, policy._replace(moves_max=MOVES_MAX), Options())
    reasons = {move.why.reason for move in (*made.moves, *whole.moves)}
    if reasons <= {"OVERLOAD", "NEW_NODE", "LEADER_SKEW"}:
        kinds = {move.kind for move in made.moves}
        for outcome in made.resources:
            first = {"group_ingress": set(), "disk": set(), "ingress": {"topic_switch"},
                     "egress": {"topic_switch", "replica_change"},
                     "leaders": {"topic_switch", "replica_change"}}[outcome.resource]
            level = max(outcome.level_ppm, 1_000_000)  # giants came and went
            limit = level * (1000 + outcome.band_permille) // 1000 + 1
            if outcome.resource == "leaders":  # whole ones
                limit = 10_000_000
            assert kinds & first or outcome.after_ppm <= max(outcome.before_ppm, limit)


@given(questions())
@THOROUGH
def test_the_tables_tell_what_the_moves_do(question):
    snapshot, policy, options = question
    made = make_plan(snapshot, policy, options)
    after = state_after(snapshot, policy, options, made.moves)
    for row in made.nodes:
        place = after.index[row.node]
        assert [*row.after, row.replicas_after] == after.load[place]
        assert len(row.after) == len(NODE_RESOURCES)
    for row in made.groups:
        assert row.after == after.ingress[row.group]
    assert made.bytes == sum(move.bytes for move in made.moves)
