"""Report of a run: its texts, its charts, and its bounded size."""

from __future__ import annotations

import http.client
import json
import random
import re
import threading
from pathlib import Path

import numpy
import pytest
from click.testing import CliRunner

from chaos.history import (
    END,
    FAIL,
    FAULT,
    FAULTS,
    FINAL,
    HEAL,
    INFO,
    INVOKE,
    OK,
    PHASE,
    WARM_UP,
    Event,
    write_history,
)
from chaos.report import charts, series
from chaos.report.build import ANOMALIES_OPEN, NoHistory, build
from chaos.report.command import report_command, server
from chaos.report.lanes import LANES_MAX, partition
from chaos.report.words import count, duration, explained, heading, paragraph, replay

PAGE_BYTES_MAX = 3 << 20


def events(operations: int, seconds: float = 60.0) -> list[Event]:
    """Yield a run: phases, two faults, operations that mostly succeed."""
    rng, step_us = random.Random(1), seconds * 1e6 / operations
    found = [Event(0, PHASE, -1, -1, WARM_UP, {})]
    for number in range(1, operations + 1):
        at = int(number * step_us)
        name = rng.choice(("append", "read", "poll"))
        asked = {"key": "t@1/0", "acks": rng.choice(("commit", "leader"))}
        found.append(Event(at, INVOKE, number, number % 9, name, asked))
        kind = rng.choices((OK, FAIL, INFO), (90, 7, 3))[0]
        data = {} if kind == OK else {"error": "NotLeader", "text": "<b>ask</b> node 2"}
        took = int(rng.expovariate(1 / 20_000))
        found.append(Event(at + took, kind, number, number % 9, name, data))
    for at, name in ((10, FAULTS), (40, HEAL), (50, FINAL), (60, END)):
        found.append(Event(int(at * seconds / 60 * 1e6), PHASE, -1, -1, name, {}))
    for begin, end, kind, nodes in ((12, 20, "kill", [1]), (15, 30, "partition", [2, 3])):
        for at, on in ((begin, True), (end, False)):
            found.append(Event(int(at * seconds / 60 * 1e6), FAULT, -1, -1, kind,
                               {"on": on, "nodes": nodes, "text": f"{kind} {nodes}"}))
    return sorted(found, key=lambda event: event.time_us)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a run that failed."""
    write_history(tmp_path / "history.jsonl", events(400))
    (tmp_path / "run.json").write_text(json.dumps({
        "parameters": {"backend": "process", "nodes": 3, "groups": 16, "seconds": 30.0, "seed": 9,
                       "control": "", "nemeses": ["kill"], "workloads": ["all"], "planted": []},
        "acknowledged_during_faults": 1234, "leader_changes": 5,
        "left_out": {"clock": "there is no <clock>"}}), encoding="utf-8")
    (tmp_path / "leadership.jsonl").write_text(
        "[0,1,1,1]\n[0,2,1,2]\n[12000000,1,2,0]\n[14000000,1,3,2]\n", encoding="utf-8")
    (tmp_path / "verdict.json").write_text(json.dumps({
        "outcome": "failed", "counts": {"lost-write": 3}, "invalid": [], "notes": ["a note"],
        "checked": {"operations": 400, "acknowledged_under_faults": 987}, "anomalies": [
            {"id": "A3", "name": "lost-write", "text": "value 7 <is> lost", "key": "t@1/0",
             "operations": [17], "time_us": 3_500_000}]}), encoding="utf-8")
    return tmp_path


def test_a_page_says_what_happened_and_needs_nothing_else(folder: Path):
    page = build(folder).read_text(encoding="utf-8")
    assert "<b>failed</b>" in page
    assert "Anomalies were found: lost-write (3)." in page
    assert "987 appends were acknowledged while a fault was on." in page
    assert "acknowledged in the phase of faults</th><td>1,234" in page, "calm turns included"
    assert "value 7 &lt;is&gt; lost" in page and "value 7 <is> lost" not in page
    assert "operation 17  " in page, "the lines of an anomaly's operations"
    assert '<span class="lines">value 7' in page, "a text may quote the lines of a log"
    assert page.count("<svg") == 10, "each chart for a wide and for a narrow screen"
    assert not re.findall(r"(?:src|href)=\"(?!#|data:|\n?data:)", page), "nothing is fetched"
    assert "multiraft chaos run --backend process" in page
    assert "--nemesis kill" in page


def test_the_first_anomalies_stand_above_the_charts_and_the_others_are_a_click_away(folder: Path):
    path = folder / "verdict.json"
    verdict = json.loads(path.read_text(encoding="utf-8"))
    verdict["anomalies"] = [{**verdict["anomalies"][0], "text": f"number {number} is lost"}
                            for number in range(ANOMALIES_OPEN + 3)]
    path.write_text(json.dumps(verdict), encoding="utf-8")
    page = build(folder).read_text(encoding="utf-8")
    shown, _, hidden = page.partition("3 more that are listed")
    assert f"number {ANOMALIES_OPEN - 1} is lost" in shown
    assert f"number {ANOMALIES_OPEN} is lost" not in shown
    assert f"number {ANOMALIES_OPEN + 2} is lost" in hidden


def test_a_run_that_broke_off_is_shown_as_far_as_it_came(tmp_path: Path):
    write_history(tmp_path / "history.jsonl", events(50)[:40])
    page = build(tmp_path).read_text(encoding="utf-8")
    assert "was not checked" in page


def test_a_history_without_operations_has_a_page(tmp_path: Path):
    write_history(tmp_path / "history.jsonl", [])
    assert "was not checked" in build(tmp_path).read_text(encoding="utf-8")


def test_a_run_that_ended_while_its_topics_were_created_has_a_page(tmp_path: Path):
    write_history(tmp_path / "history.jsonl", [
        Event(0, PHASE, -1, -1, WARM_UP, {}),
        Event(1, INVOKE, 1, 1, "create_topic", {"topic": "t", "partitions": 1}),
        Event(2_000, OK, 1, 1, "create_topic", {"incarnation": 5})])
    page = build(tmp_path).read_text(encoding="utf-8")
    assert "<h2>Rates</h2>" in page and "<h2>Latency</h2>" not in page


def test_a_long_history_makes_a_small_page(tmp_path: Path):
    write_history(tmp_path / "history.jsonl", events(20_000, 600.0))
    assert build(tmp_path).stat().st_size < PAGE_BYTES_MAX


def test_a_folder_without_a_run_is_refused(tmp_path: Path):
    with pytest.raises(NoHistory):
        build(tmp_path)
    result = CliRunner().invoke(report_command, [str(tmp_path)])
    assert result.exit_code == 1
    assert "holds no history" in result.output


def test_the_command_prints_where_the_page_is(folder: Path):
    result = CliRunner().invoke(report_command, [str(folder)])
    assert result.output.strip() == str(folder / "report.html")


def test_the_folder_is_served_to_this_machine(folder: Path):
    build(folder)
    with server(folder, 0) as listening:
        assert listening.server_address[0] == "127.0.0.1"
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        try:
            connection = http.client.HTTPConnection("127.0.0.1", listening.server_port, timeout=10)
            connection.request("GET", "/report.html")
            answer = connection.getresponse()
            assert answer.status == 200
            assert b"<svg" in answer.read()
            connection.close()
        finally:
            listening.shutdown()
            thread.join()


def test_faults_last_until_they_are_healed_or_the_history_ends(tmp_path: Path):
    path = tmp_path / "history.jsonl"
    write_history(path, [
        Event(1_000_000, FAULT, -1, -1, "kill", {"on": True, "nodes": [1], "text": "one"}),
        Event(2_000_000, FAULT, -1, -1, "kill", {"on": True, "nodes": [2], "text": "two"}),
        Event(3_000_000, FAULT, -1, -1, "kill", {"on": False, "nodes": [1], "text": ""}),
        Event(9_000_000, PHASE, -1, -1, END, {})])
    spans = [(fault.nodes, fault.begin_s, fault.end_s) for fault in series.read(path).faults]
    assert spans == [((1,), 1.0, 3.0), ((2,), 2.0, 9.0)]


def test_an_operation_without_an_answer_is_info_until_the_end(tmp_path: Path):
    path = tmp_path / "history.jsonl"
    write_history(path, [Event(0, INVOKE, 1, 1, "read", {}),
                         Event(5_000_000, PHASE, -1, -1, END, {})])
    columns = series.read(path).columns
    assert series.OUTCOMES[columns.outcome[0]] == INFO
    assert columns.end_s[0] == 5.0


def test_what_overlaps_has_a_journal_of_its_own():
    rng = numpy.random.default_rng(1)
    begins = numpy.sort(rng.uniform(0, 100, 500))
    ends = begins + rng.uniform(0, 1.5, 500)
    lanes, used = partition(begins, ends)
    assert used < LANES_MAX
    for journal in range(used):
        mine = numpy.flatnonzero(lanes == journal)
        assert (begins[mine][1:] >= ends[mine][:-1]).all()


def test_lanes_are_bounded():
    begins = numpy.zeros(100)
    lanes, used = partition(begins, begins + 1)
    assert used == LANES_MAX
    assert lanes.max() == LANES_MAX - 1


def test_leadership_is_counted_per_node_and_moment():
    times, by_node = charts.counts_of([[0, 1, 1, 1], [0, 2, 1, 2], [2_000_000, 1, 2, 2],
                                       [3_000_000, 2, 2, 0]])
    assert times == [0.0, 2.0, 3.0]
    assert by_node == {0: [0, 0, 1], 1: [1, 0, 0], 2: [1, 2, 1]}


def test_latencies_are_spread_over_pieces_of_time():
    median, p99, most = charts.spread(numpy.array([0.5, 0.6, 2.5]), numpy.array([1.0, 3.0, 9.0]),
                                      numpy.array([0.0, 1.0, 2.0, 3.0]))
    assert median[0] == 2.0 and most[0] == 3.0
    assert numpy.isnan(median[1])
    assert p99[2] == most[2] == 9.0


def test_the_names_of_phases_do_not_cover_each_other(folder: Path):
    found = series.read(folder / "history.jsonl")
    found.phases[:] = [("warm-up", 0.0), ("faults", 2.0), ("heal", 50.0), ("final", 50.5),
                       ("end", 59.0)]
    labels = charts.Canvas(found).phase_labels()
    assert labels == [("warm-up", 0.0, 0), ("faults", 2.0, 1), ("heal", 50.0, 0),
                      ("final", 50.5, 1), ("end", 59.0, 0)]


def test_the_name_of_a_late_phase_ends_where_the_phase_begins(folder: Path):
    found = series.read(folder / "history.jsonl")
    for screen in (charts.WIDE, charts.NARROW):
        canvas = charts.Canvas(found, screen)
        found.phases[:] = [("sleep", 0.97 * canvas.end_s), ("final", 0.98 * canvas.end_s),
                           ("heal", 0.99 * canvas.end_s)]
        assert [line for _, _, line in canvas.phase_labels()] == [0, 1, 2]
        assert canvas.phase_lines == 3


@pytest.mark.parametrize("screen", [charts.WIDE, charts.NARROW])
def test_all_charts_have_their_time_axis_at_the_same_place(folder: Path, screen):
    found = series.read(folder / "history.jsonl")
    drawn = charts.draw(found, [[0, 1, 1, 1], [2_000_000, 1, 2, 2]], screen)
    assert len(drawn) == 5
    edges = set()
    for svg in drawn.values():
        width, = re.findall(r'viewBox="0 0 ([\d.]+) ', svg)
        for left, right in re.findall(r'<g id="axes_\d+">\s*<g id="patch_\d+">\s*'
                                      r'<path d="M ([\d.]+) [\d.]+ \s*L ([\d.]+) ', svg):
            edges.add((width, round(float(left), 2), round(float(right), 2)))
    assert len(edges) == 1, edges


def test_an_append_that_asks_for_no_answer_is_neither_done_nor_unknown(tmp_path: Path):
    path = tmp_path / "history.jsonl"
    asked = {"key": "t@1/0", "acks": "none"}
    write_history(path, [
        Event(0, INVOKE, 1, 1, "append", asked), Event(9, INFO, 1, 1, "append", {"error": "?"}),
        Event(10, INVOKE, 2, 1, "append", asked), Event(19, FAIL, 2, 1, "append", {"error": "E"}),
        Event(20, INVOKE, 3, 1, "append", {**asked, "acks": "commit"}),
        Event(29, INFO, 3, 1, "append", {"error": "Timeout"})])
    found = series.read(path)
    assert [series.OUTCOMES[each] for each in found.columns.outcome] == [
        series.UNASKED, FAIL, INFO]
    assert sorted(found.errors) == [("append (commit)", INFO, "Timeout"),
                                    ("append (none)", FAIL, "E")]
    page = build(tmp_path).read_text(encoding="utf-8")
    assert "unasked (acks=none)" in page and charts.OUTCOME_COLOURS[series.UNASKED] in page


def test_a_legend_explains_only_what_there_is(folder: Path):
    page = build(folder).read_text(encoding="utf-8")
    assert "done (answered)" in page and "refused (did not happen)" in page
    assert "unknown (no answer)" in page and "unasked" not in page


def test_the_title_says_what_was_run_with_which_seed_and_when(folder: Path):
    run = {"parameters": {"seed": 9, "seconds": 30.0}, "began": "2026-11-26T05:44:00Z"}
    assert heading(run, "run") == "Chaos run, seed 9, 2026-11-26"
    assert heading({"parameters": {"seed": 1, "backend": "simulator"}}, "sim") == (
        "Simulated run, seed 1")
    assert heading({}, "chaos-1") == "Chaos run, chaos-1"
    found = series.read(folder / "history.jsonl")
    assert "in 60 s (30 s of them with faults)" in paragraph(run, {}, found)
    assert "<title>Chaos run, seed 9: failed</title>" in build(folder).read_text("utf-8")


def test_nodes_in_a_row_are_a_range():
    assert charts.ranges([5, 1, 2, 3]) == "1-3, 5"
    assert charts.ranges([4, 3]) == "3, 4"
    assert charts.ranges([]) == ""


def test_numbers_have_units():
    assert [duration(each) for each in (0, 0.0004, 0.0123, 0.25, 12.34)] == [
        "-", "400 µs", "12.3 ms", "250 ms", "12.3 s"]
    assert count(1234567) == "1,234,567"
    assert replay({"parameters": {"seed": 4, "seconds": 120.0, "nemeses": ["kill", "pause"]}}) == (
        "multiraft chaos run --seconds 120 --seed 4 --nemesis kill --nemesis pause")
    assert replay({"parameters": {"seed": 4, "pace": 0.5}}) == (
        "multiraft chaos run --seed 4 --pace 0.5")


def test_the_page_names_the_seconds_of_each_phase(folder):
    page = " ".join(build(folder).read_text(encoding="utf-8").split())
    assert ("the phases of the run: warm-up 10 s (load alone), faults 30 s (load and faults), heal "
            "10 s (all is mended, and groups recover), final 10 s (the check: everything is read "
            "once more).") in page


@pytest.mark.parametrize("note, meaning", [
    ("consume-counts: 5 polled 2 times", "how often consumers got each record"),
    ("realtime-lag: at most 2.000 s, t@1/0", "how far behind a consumer was"),
    ("metadata: 3 answers were behind what another process knew", "had not heard of a topic"),
    ("unseen: 3 acknowledged records were not read", "nothing read the ends")])
def test_a_note_explains_itself_and_says_that_it_is_not_judged(note, meaning):
    assert explained(note).startswith(f"{note} (")
    assert meaning in explained(note) and explained(note).endswith("Not judged.")


def test_a_note_of_another_kind_stays():
    assert explained("node 2 ended because its disk failed, as it must") == (
        "node 2 ended because its disk failed, as it must")


def test_the_legend_says_that_no_leader_is_known(folder):
    page = build(folder).read_text(encoding="utf-8")
    assert "no leader known" in page
