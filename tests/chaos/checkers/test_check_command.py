"""``multiraft chaos check``: a folder in, a paragraph, a file and an exit code out."""

from __future__ import annotations

import json

from click.testing import CliRunner

from chaos import replicas
from chaos.checkers.command import EXIT_FAILED, EXIT_INVALID, EXIT_NO_RUN, EXIT_PASSED
from chaos.checkers.verdict import Anomaly
from chaos.commands import chaos_group
from chaos.history import END, FAULTS, FINAL, write_history
from chaos.run.findings import OwnFindings
from tests.chaos.checkers.dumps import Log, cluster
from tests.chaos.checkers.timeline import Timeline


def run(*arguments: object):
    return CliRunner().invoke(chaos_group, ["check", *map(str, arguments)])


def folder_of(line: Timeline, folder, logs=(), roles: bool = True, **parameters):
    write_history(folder / "history.jsonl", line.events)
    (folder / "run.json").write_text(json.dumps(parameters))
    (folder / "replicas").mkdir()
    for each in logs:
        replicas.write(folder / "replicas" / f"{each.node}.jsonl", each)
    if roles:
        (folder / "nodes" / "1").mkdir(parents=True)
        (folder / "nodes" / "1" / "log").write_text("".join(
            json.dumps({"at": f"2026-01-01T00:00:0{term}+00:00", "node": 1,
                        "event": "replica_role_changed", "group": 5, "term": term,
                        "role": "leader", "leader": 1}) + "\n"
            for term in (1, 2)))
    return folder


def ran(*values: int, lost: bool = False) -> Timeline:
    line = Timeline()
    line.phase(FAULTS)
    line.fault("kill", True, 1)
    line.appended(list(values), 0)
    line.fault("kill", False, 1)
    line.phase(FINAL)
    line.finale([] if lost else list(values))
    line.phase(END)
    return line


def test_a_run_that_passed(tmp_path):
    logs = cluster(*(Log().noop(1).data(1, 1, 2) for _ in range(3)))
    result = run(folder_of(ran(1, 2), tmp_path, logs))
    assert result.exit_code == EXIT_PASSED, result.output
    assert result.output.startswith("PASSED: 3 operations on 1 keys, 1 appends acknowledged")
    assert "6 log entries compared" in result.output
    written = json.loads((tmp_path / "verdict.json").read_text())
    assert (written["outcome"], written["anomalies"]) == ("passed", [])


def test_a_run_that_failed(tmp_path):
    result = run(folder_of(ran(1, lost=True), tmp_path))
    assert result.exit_code == EXIT_FAILED
    assert "Anomalies: 1 acks-contract, 1 lost-write." in result.output
    assert "A3 lost-write t@7/0: value 1 was acknowledged at offset 0" in result.output
    (first, _) = json.loads((tmp_path / "verdict.json").read_text())["anomalies"]
    assert first["id"] == "A3"


def test_logs_that_diverge_fail_a_run(tmp_path):
    logs = cluster(Log().noop(1).data(1, 1), Log().noop(1).data(1, 1), Log().noop(1).data(1, 2))
    result = run(folder_of(ran(1), tmp_path, logs), "--json")
    assert result.exit_code == EXIT_FAILED
    assert json.loads(result.output)["counts"] == {"divergent-logs": 2}


def test_a_run_that_proves_nothing(tmp_path):
    result = run(folder_of(ran(1), tmp_path, roles=False))
    assert result.exit_code == EXIT_INVALID
    assert "It proves nothing, for nothing says whether a leader changed." in result.output


def test_limits_come_from_the_run(tmp_path):
    line = ran(1)
    line.events.pop()
    line.append([2])
    line.sleep(3)
    line.phase(END)
    folder = folder_of(line, tmp_path, limits={"available_us": 2_000_000, "nodes": 3})
    assert run(folder).exit_code == EXIT_FAILED
    (tmp_path / "run.json").unlink()
    assert run(folder).exit_code == EXIT_PASSED


def test_what_the_run_saw_by_itself_is_in_the_verdict_however_often_it_is_checked(tmp_path):
    folder = folder_of(ran(1), tmp_path)
    found = OwnFindings([Anomaly("A28", "stuck-group", "group 3", time_us=9)] * 60, ["a note"],
                        ["the logs of node 2 cannot be compared"])
    found.write(tmp_path / "findings.json")
    for _ in range(2):
        result = run(folder)
        assert result.exit_code == EXIT_FAILED, result.output
        assert "A28 stuck-group: group 3" in result.output
        written = json.loads((tmp_path / "verdict.json").read_text())
        assert written["counts"] == {"stuck-group": 60} and len(written["anomalies"]) == 50
        assert written["invalid"] == found.invalid and "a note" in written["notes"]


def test_a_control_arm_is_excused_as_it_was_by_the_run(tmp_path):
    folder = folder_of(ran(1, lost=True), tmp_path,
                       parameters={"control": "relaxed-power-loss", "nodes": 3})
    result = run(folder)
    assert result.exit_code == EXIT_PASSED, result.output
    written = json.loads((tmp_path / "verdict.json").read_text())
    assert "1 of 1 records" in written["control"]


def test_a_control_arm_that_lost_nothing_proves_nothing(tmp_path):
    folder = folder_of(ran(1), tmp_path, parameters={"control": "relaxed-power-loss", "nodes": 3})
    result = run(folder)
    assert result.exit_code == EXIT_INVALID
    assert "the control arm lost none of 1 records" in result.output


def test_findings_that_say_nothing_are_refused(tmp_path):
    folder = folder_of(ran(1), tmp_path)
    (tmp_path / "findings.json").write_text('{"anomalies": [{"id": "A0"}]}')
    result = run(folder)
    assert result.exit_code == EXIT_NO_RUN
    assert "findings.json: " in result.output


def test_a_folder_without_a_run(tmp_path):
    assert run(tmp_path).exit_code == EXIT_NO_RUN
    (tmp_path / "history.jsonl").write_text("nonsense\n")
    result = run(tmp_path)
    assert result.exit_code == EXIT_NO_RUN
    assert "line 1" in result.output
