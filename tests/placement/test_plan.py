"""The plan's file: what is written is read, what was edited is refused, plans are compared."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement import canonical, plan
from placement.errors import EditedPlan, InvalidDocument, LimitExceeded
from placement.plan import (
    LeaderTransfer,
    Plan,
    ReplicaChange,
    ResourceOutcome,
    TopicSwitch,
    Why,
    diff,
    identify,
    load,
    save,
)
from placement.policy import MOVES_MAX, Options, Policy

WHY = Why(plan.OVERLOAD, "disk", 3, 1_300_000, 1_020_000)
TRANSFER = LeaderTransfer(1, 1, (), WHY, 7, 1, 40, 3, 2)
SWITCH = TopicSwitch(2, 1, (), WHY, 1042, "flights", 5, 7, 9, 1, 0)
CHANGE = ReplicaChange(3, 2, (1,), WHY, 8, 1, 12, (1, 2, 3), (1, 2, 4), 3, 4, 1 << 30)


def planned(*moves):
    """A plan with these moves and nothing else of interest."""
    return identify(Plan("", plan.PLAN_FORMAT, 1, "ab" * 16, "cd" * 32, 99, 1_000, 2_000,
                         Options(), Policy(), True, 2, 20_000, (), (), (), (), (), (), (), moves))


WHOLE = st.integers(0, canonical.WHOLE_MAX)
NODES = st.lists(st.integers(1, 9), max_size=4, unique=True).map(tuple)
MOVES = st.one_of(
    st.builds(LeaderTransfer, *[WHOLE] * 2, NODES, st.just(WHY), *[WHOLE] * 5),
    st.builds(TopicSwitch, *[WHOLE] * 2, NODES, st.just(WHY), WHOLE, st.text(max_size=20),
              *[WHOLE] * 5),
    st.builds(ReplicaChange, *[WHOLE] * 2, NODES, st.just(WHY), *[WHOLE] * 3, NODES, NODES,
              *[WHOLE] * 3))


@given(st.lists(MOVES, max_size=5))
@settings(max_examples=50, deadline=None)
def test_what_is_saved_is_loaded(moves):
    written = planned(*moves)
    assert load(save(written)) == written


def test_the_file_has_one_line_per_move():
    lines = save(planned(TRANSFER, SWITCH, CHANGE)).decode().splitlines()
    assert sum('"kind": "' in line for line in lines) == 3
    assert json.loads(save(planned(TRANSFER)))["moves"][0]["to_node"] == 2


def test_the_layout_of_the_file_does_not_matter_but_every_value_does():
    written = planned(TRANSFER, CHANGE)
    fields = json.loads(save(written))
    assert load(json.dumps(dict(reversed(fields.items()))).encode()) == written
    fields["moves"][0]["to_node"] = 1
    with pytest.raises(EditedPlan, match="edited"):
        load(json.dumps(fields).encode())


@pytest.mark.parametrize("change, complaint", [
    (lambda fields: fields.update(format=2), "format"),
    (lambda fields: fields.pop("moves"), "plan lacks moves"),
    (lambda fields: fields.update(colour="red"), "colour"),
    (lambda fields: fields["moves"][0].update(to_node=-1), "to_node"),
    (lambda fields: fields["moves"][0].update(to_node=True), "to_node"),
    (lambda fields: fields["moves"][0].update(to_node="2"), "to_node"),
    (lambda fields: fields["moves"][0].update(seq=1 << 64), "seq"),
    (lambda fields: fields["moves"][0].update(kind="teleport"), "teleport"),
    (lambda fields: fields["moves"].append(None), "kind"),
    (lambda fields: fields.update(moves={}), "no list"),
    (lambda fields: fields["options"].update(scope="x" * 2000), "scope"),
])
def test_what_is_no_plan_is_refused_with_the_place(change, complaint):
    fields = json.loads(save(planned(TRANSFER)))
    change(fields)
    with pytest.raises(InvalidDocument, match=complaint):
        load(json.dumps(fields).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"null", b"{", b"\xff", b'{"format": 1.0}',
                                  b'{"format": NaN}', b'{"format": 1, "format": 1}',
                                  b"[" * 100_000])
def test_what_is_no_document_is_refused(data):
    with pytest.raises(InvalidDocument):
        load(data)


def test_a_file_or_a_plan_beyond_its_limit_is_refused(monkeypatch):
    with pytest.raises(LimitExceeded, match="moves of a plan"):
        load(save(planned(*[TRANSFER] * (MOVES_MAX + 1))))
    monkeypatch.setattr(plan, "PLAN_BYTES_MAX", 10)
    with pytest.raises(InvalidDocument, match="limit is 10"):
        load(save(planned()))


def test_moves_are_named_by_their_subject():
    assert [move.move_id for move in (TRANSFER, SWITCH, CHANGE)] == [
        "leader:g7", "switch:p1042", "replicas:g8"]
    assert CHANGE.joining == (4,) and CHANGE.leaving == (3,)


def test_plans_are_compared_by_subject_and_destination():
    other = SWITCH._replace(to_group=11, seq=9)
    found = diff(planned(TRANSFER, SWITCH), planned(other, CHANGE))
    assert found == ((TRANSFER,), (CHANGE,), ((SWITCH, other),))
    assert diff(planned(SWITCH), planned(SWITCH._replace(seq=5, wave=4))).is_empty


def test_the_gap_is_what_is_above_the_bound():
    outcome = ResourceOutcome("disk", 20, 100, 1_500_000, 1_224_000, 1_200_000, "mean", 1_200_000,
                              0, 0)
    assert outcome.gap_ppm == 20_000


def test_equal_values_have_equal_bytes():
    assert canonical.to_json(Options(drain=(2, 3))) == (
        b'{"budget_bytes":0,"copy_rate":50000000,"drain":[2,3],"fewer_racks":false,"node":0,'
        b'"scope":"all"}')
    assert canonical.digest(Policy()) == canonical.digest(Policy())
