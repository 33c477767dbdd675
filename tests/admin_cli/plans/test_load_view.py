"""Loads before and after a plan: as bars, and as a picture."""

from __future__ import annotations

import importlib.util
import re

import pytest

from admin_cli.failures import CommandFailed
from admin_cli.plans import load_view, plan_picture
from placement import plan as plans
from placement.cluster import NodeRow
from placement.planner import make_plan
from placement.policy import REPLICAS, Policy
from tests.placement.clusters import MIB, STRICT, cluster, grown, nodes


@pytest.fixture(scope="module")
def made():
    """Four nodes, of which one is new, and 16 groups."""
    before = cluster(nodes(3, racks=3), 16, [MIB << (number % 6) for number in range(60)])
    found = make_plan(grown(before, NodeRow(4, "r9")), STRICT)
    assert found.moves
    return found


@pytest.mark.parametrize("value, most, mark, cells", [
    (0, 10, None, "." * 14), (10, 10, None, "#" * 14), (1, 1000, None, "#" + "." * 13),
    (5, 10, None, "#" * 7 + "." * 7), (5, 10, 5, "#" * 7 + "|" + "." * 7),
    (5, 10, 10, "#" * 7 + "." * 7 + "|"), (5, 10, 0, "|" + "#" * 7 + "." * 7),
    (0, 0, 0, "." * 14)])
def test_a_bar_is_as_long_as_its_part_of_the_longest_one(value, most, mark, cells):
    assert load_view.bar(value, most, mark) == cells


def test_every_resource_has_its_nodes_and_the_groups_follow(made, capsys):
    load_view.show(made)
    shown = capsys.readouterr().out
    parts = re.split(r"\n(?=\w+ per node|appended per group)", shown)
    assert [part.split(":")[0].split(",")[0] for part in parts[1:]] == [
        "disk per node", "ingress per node", "egress per node", "leaders per node",
        "appended per group"]
    new = parts[2].splitlines()[5].split()
    assert new[0] == "4" and new[1].replace("|", "") == "." * 14
    row = next(row for row in made.nodes if row.node == 4)
    assert f"0 -> {row.replicas_after}" in parts[0]
    busy = sorted((row for row in made.groups if row.before or row.after),
                  key=lambda row: -max(row.before, row.after))
    listed = [int(line.split()[0]) for line in parts[5].splitlines() if re.match(r" +\d", line)]
    assert listed == [row.group for row in busy], "the fullest first, and no empty one"


def test_more_than_fit_are_counted(made, capsys, monkeypatch):
    monkeypatch.setattr(load_view, "NODES_SHOWN_MAX", 3)
    monkeypatch.setattr(load_view, "GROUPS_SHOWN_MAX", 5)
    load_view.show(made)
    shown = capsys.readouterr().out
    assert shown.count("... and 1 node more") == 5 and "... and 11 groups more" in shown
    furthest = shown.split("disk per node")[1].split("ingress per node")[0]
    assert re.search(r"^ *4 ", furthest, re.M), "the node furthest from its share is among them"


def test_idle_resources_are_left_out(made, capsys):
    load_view.show(made._replace(groups=(), nodes=tuple(
        row._replace(before=(1, 0, 0, 1), after=(1, 0, 0, 1)) for row in made.nodes)))
    shown = capsys.readouterr().out
    assert "disk per node" in shown and "ingress" not in shown and "per group" not in shown


@pytest.mark.parametrize("kind, magic", [("svg", b"<?xml"), ("png", b"\x89PNG")])
@pytest.mark.parametrize("named_max", [64, 2])
def test_the_picture_of_a_plan(made, kind, magic, named_max, monkeypatch):
    monkeypatch.setattr(plan_picture, "NODES_NAMED_MAX", named_max)
    monkeypatch.setattr(plan_picture, "GROUPS_NAMED_MAX", named_max)
    drawn = plan_picture.drawn(made, kind)
    assert drawn.startswith(magic)
    if kind == "svg":
        assert drawn == plan_picture.drawn(made, kind), "the same plan is the same picture"
        text = drawn.decode()
        for colour in (plan_picture.BEFORE, plan_picture.AFTER, plan_picture.SHARE):
            assert colour in text


def test_the_load_that_improves_most_is_the_largest_chart(made, monkeypatch):
    panels: list[plan_picture.Panel] = []

    def chart(_axes, panel, _width_pt):
        panels.append(panel)

    monkeypatch.setattr(plan_picture, "_chart", chart)
    plan_picture.drawn(made, "svg")
    of_nodes = [row for row in made.resources if row.resource != "group_ingress"]
    best = max(of_nodes, key=lambda row: row.before_ppm - row.after_ppm)
    assert panels[0].resource == best.resource
    assert all(panel.changes for panel in panels), "what the plan leaves alone has no chart"


def test_groups_are_sorted_and_those_without_appends_are_counted_only(made):
    groups = tuple(row._replace(before=0, after=0) if row.group > 5 else row
                   for row in made.groups)
    row = next(row for row in made.resources if row.resource == "group_ingress")
    panel = plan_picture._of_groups(made._replace(groups=groups), row)
    most = [max(pair) for pair in zip(panel.before, panel.after, strict=True)]
    assert len(panel.names) == 5 and most == sorted(most, reverse=True)
    assert panel.rest == " (11 groups without appends left out)"


def test_a_plan_that_counts_draws_replicas_with_their_shares():
    idle = make_plan(grown(cluster(nodes(3), 64, []), NodeRow(4)), Policy())
    row = next(row for row in idle.resources if row.resource == REPLICAS)
    panel = plan_picture._of_nodes(idle, row)
    assert panel.before == (65, 65, 65, 0) and panel.shares == (48,) * 4
    assert panel.unit == "replicas" and panel.worst == (
        "worst node 33 % above its share before, 0.5 % after")
    assert plan_picture.drawn(idle, "svg").startswith(b"<?xml")


def test_a_plan_without_any_load_is_drawn_too(made):
    idle = made._replace(groups=(), resources=(), nodes=tuple(
        row._replace(before=(0,) * 4, after=(0,) * 4) for row in made.nodes))
    assert plan_picture.drawn(idle, "svg").startswith(b"<?xml")


def test_show_writes_the_picture_and_says_where(run, made, tmp_path):
    path = tmp_path / "plan.json"
    path.write_bytes(plans.save(made))
    picture = tmp_path / "plan.png"
    done = run("rebalance", "show", str(path), "--picture", str(picture))
    assert done.exit_code == 0 and f"Drawn: {picture}" in done.output
    assert "appended per group" in done.output
    assert picture.read_bytes().startswith(b"\x89PNG")
    planned = run("rebalance", "plan", "--drain", "3", "--picture", str(tmp_path / "no.gif"))
    assert planned.exit_code == 64
    gif = run("rebalance", "show", str(path), "--picture", str(tmp_path / "plan.gif"))
    assert gif.exit_code == 64 and ".svg or .png" in gif.output
    nowhere = run("rebalance", "show", str(path), "--picture", str(tmp_path / "no" / "plan.svg"))
    assert nowhere.exit_code == 1 and "cannot be written" in nowhere.output


def test_without_the_library_the_way_out_is_said(made, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(CommandFailed, match="matplotlib") as failed:
        load_view.draw(made, tmp_path / "plan.svg")
    assert "multiraft[pictures]" in failed.value.do
