"""Parts of a run: leaders, ends of nodes, verdicts and parameters."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from chaos.backends.backend import FAILED_DISK, FULL_DISK, KILL, PARTITION, NodeExit
from chaos.checkers.verdict import Anomaly, Verdict
from chaos.history import FAULTS, WARM_UP, HistoryWriter
from chaos.run.controls import CONTROLS, GONE
from chaos.run.evaluation import as_json, excuse
from chaos.run.fault_schedule import Impossible, choices, nemeses_of
from chaos.run.leadership import SOMEBODY, Belief, Leadership, trace_of
from chaos.run.node_exits import check_exits
from chaos.run.parameters import Folder, RunParameters, run_number
from chaos.workloads.recorder import Recorder
from multiraft.wire.rows import GroupSummary

# ---- who leads --------------------------------------------------------------------------------


def row(group: int, term: int, leader: int, voters=(1, 2, 3), node: int = 3) -> Belief:
    return Belief(node, GroupSummary(group, 1, term, leader, voters, ()))


def watcher(phase: str = FAULTS) -> tuple[Leadership, dict[int, int], io.StringIO]:
    recorder, file, leaders = Recorder(HistoryWriter(io.StringIO())), io.StringIO(), {}
    recorder.phase(phase)
    return Leadership(recorder, file, leaders), leaders, file


def test_the_highest_term_that_names_a_leader_counts():
    leadership, leaders, file = watcher()
    leadership.learn([row(4, 7, 1), row(4, 9, 0), row(4, 9, 2), row(4, 8, 3)])
    assert leaders == {4: 2}
    assert [json.loads(line)[1:] for line in file.getvalue().splitlines()] == [[4, 9, 2]]


def test_who_the_members_are_only_the_leader_knows():
    leadership, _, _ = watcher()
    left = row(4, 9, 2, (1, 2, 3), node=3)
    leadership.learn([left, row(4, 9, 2, (1, 2, 5), node=2), row(4, 9, 2, (1, 2, 3), node=1)])
    assert leadership.members == {4: (1, 2, 5)}
    leadership.learn([left])
    assert leadership.members == {4: (1, 2, 5)}, "it was not told that it left"
    leadership.learn([row(4, 10, 0, (1, 2, 3), node=3)])
    leadership.learn([row(4, 9, 2, (1, 2, 6), node=2)])
    assert leadership.members == {4: (1, 2, 6)}, "a term that nobody leads"


def test_a_node_that_is_behind_changes_nothing():
    leadership, leaders, _ = watcher()
    leadership.learn([row(4, 9, 2)])
    leadership.learn([row(4, 7, 1)])
    assert leaders == {4: 2}
    assert leadership.changes == 0


def test_a_change_is_counted_once_and_a_pause_without_a_leader_is_none():
    leadership, leaders, file = watcher()
    for rows in ([row(4, 1, 1)], [row(4, 2, 0)], [row(4, 2, 3)], [row(4, 2, 3)], [row(4, 5, 3)]):
        leadership.learn(rows)
    assert leadership.changes == 1
    assert leaders == {4: 3}
    assert [json.loads(line)[2:] for line in file.getvalue().splitlines()] == [
        [1, 1], [2, 0], [2, 3], [5, 3]]


def test_changes_of_the_warm_up_do_not_make_a_run_valid():
    leadership, _, _ = watcher(WARM_UP)
    leadership.learn([row(4, 1, 1)])
    leadership.learn([row(4, 2, 2)])
    assert leadership.changes == 0


def test_who_led_in_a_term_that_was_skipped_is_unknown(tmp_path: Path):
    path = tmp_path / "leadership.jsonl"
    path.write_text("[10,4,1,1]\n[20,4,3,1]\n[30,4,4,0]\n[40,5,1,2]\n", encoding="utf-8")
    trace = trace_of(path)
    assert trace.nodes_that_led() == {4: {1, SOMEBODY}, 5: {2}}
    assert trace.leader_changes(15) == 1, "of what nobody saw nothing is counted"


# ---- nodes that ended -------------------------------------------------------------------------


def log_of(tmp_path: Path):
    (tmp_path / "log").write_text("one\nAssertionError: two leaders\n", encoding="utf-8")
    return lambda node: tmp_path / "log"


def test_a_node_that_ended_by_itself_is_an_anomaly_that_quotes_its_log(tmp_path: Path):
    anomalies, notes = check_exits([NodeExit(2, 1, False)], log_of(tmp_path))
    assert [anomaly.name for anomaly in anomalies] == ["node-ended"]
    assert "AssertionError: two leaders" in anomalies[0].text
    assert notes == []


def test_a_node_whose_disk_failed_has_to_end(tmp_path: Path):
    anomalies, notes = check_exits(
        [NodeExit(2, 4, False, frozenset((FAILED_DISK,)))], log_of(tmp_path)
    )
    assert anomalies == []
    assert len(notes) == 1


def test_a_node_that_says_that_its_disk_failed_when_no_disk_did_is_an_anomaly(tmp_path: Path):
    anomalies, _ = check_exits([NodeExit(2, 4, False)], log_of(tmp_path))
    assert len(anomalies) == 1
    assert "nothing had been done to its disk" in anomalies[0].text


def test_the_disk_of_one_node_excuses_no_other_node(tmp_path: Path):
    failed = NodeExit(1, 4, False, frozenset((FAILED_DISK,)))
    anomalies, notes = check_exits([failed, NodeExit(2, 4, False)], log_of(tmp_path))
    assert [anomaly.text.partition(" ended")[0] for anomaly in anomalies] == ["node 2"]
    assert len(notes) == 1


def test_a_full_disk_excuses_no_end(tmp_path: Path):
    anomalies, _ = check_exits([NodeExit(2, 4, False, frozenset((FULL_DISK,)))], log_of(tmp_path))
    assert len(anomalies) == 1


def test_nodes_that_were_killed_are_no_news(tmp_path: Path):
    assert check_exits([NodeExit(1, -9, True), NodeExit(1, -15, True)], log_of(tmp_path)) == (
        [],
        [],
    )


# ---- verdicts ---------------------------------------------------------------------------------


def test_a_control_arm_excuses_what_it_causes_and_nothing_else():
    control = CONTROLS["relaxed-power-loss"]
    verdict = Verdict([Anomaly("A3", "lost-write", ""), Anomaly("A29", "cross-group-leak", "")],
                      {"lost-write": 9, "cross-group-leak": 1}, checked={"lost_commit": 9})
    excuse(verdict, control)
    assert verdict.outcome == "failed"
    assert [anomaly.name for anomaly in verdict.anomalies] == ["cross-group-leak"]
    assert "lost-write 9" in verdict.notes[-1]
    assert "control" not in as_json(verdict, control)


def test_an_isolated_leader_excuses_nothing_that_anybody_could_have_read():
    assert CONTROLS["isolated-leader"].expected == frozenset()
    assert "read-then-lost" in GONE


def test_a_control_arm_that_passed_says_what_it_lost():
    control = CONTROLS["isolated-leader"]
    verdict = Verdict(checked={"lost_leader": 12, "acknowledged_leader": 90})
    assert "12 of 90 records" in as_json(verdict, control)["control"]


# ---- parameters -------------------------------------------------------------------------------


def test_two_runs_of_one_seed_do_not_share_records():
    assert run_number(7, 1_000) != run_number(7, 1_001)
    assert run_number(7, 1_000) >> 32 == 7


def test_a_folder_holds_one_run(tmp_path: Path):
    folder = Folder(tmp_path / "run")
    folder.create()
    folder.note(parameters=RunParameters(folder.path, seed=5).to_json())
    folder.note(began="now")
    facts = json.loads((folder.path / "run.json").read_text(encoding="utf-8"))
    assert facts["parameters"]["seed"] == 5
    assert facts["began"] == "now"
    folder.history.touch()
    with pytest.raises(FileExistsError, match="a run already"):
        folder.create()


class Limited:
    """A backend whose only fault is to kill."""

    kinds = frozenset({KILL})
    left_out = {PARTITION: "there is no iptables here"}


def test_nemeses_are_asked_for_by_name_or_by_kind():
    assert nemeses_of((), Limited()) == ["kill"]
    assert nemeses_of((KILL,), Limited()) == ["kill"]
    assert {PARTITION, "halves", "rolling-restart"} <= set(choices())


def test_what_cannot_be_done_here_is_not_played_silently():
    with pytest.raises(Impossible, match="there is no iptables here"):
        nemeses_of((PARTITION,), Limited())
    with pytest.raises(Impossible, match="halves"):
        nemeses_of(("halves",), Limited())
