"""Folder of a seed: its files, its page, and the proof that recording changes nothing."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from chaos.checkers import check
from chaos.checkers.command import check_folder
from chaos.history import FAULT, FINAL, NEMESIS, read_history
from chaos.report import series
from chaos.report.command import report_command
from chaos.run.parameters import Folder
from chaos.simulator.clients.history import Recording
from chaos.simulator.env.event_queue import EventQueue
from chaos.simulator.env.parameters import FAULT_KINDS, Parameters
from chaos.simulator.env.trace import Trace
from chaos.simulator.faults.nemesis import Nemesis
from chaos.simulator.runner import batch_runner
from chaos.simulator.runner.command import simulate
from chaos.simulator.runner.run_folder import broken_off, findings_of
from chaos.simulator.runner.run_trace import DOWN, STAYS, RunTrace
from chaos.simulator.runner.variant import Variant
from chaos.simulator.simulation import Result, Simulation

BRIEF = ("--seconds", "12", "--groups", "3")
BRIEF_VARIANT = Variant(groups=3, seconds=12)
PLANTED = ("--planted", "ack-before-sync", "--shrink-seconds", "0")
FILES = {"run.json", "history.jsonl", "leadership.jsonl", "trace.txt", "findings.json",
         "verdict.json", "report.html"}


def sim(*arguments: str):
    return CliRunner().invoke(simulate, arguments)


@pytest.fixture(scope="module")
def held(tmp_path_factory) -> Path:
    """Return the folder of a seed that holds."""
    path = tmp_path_factory.mktemp("held") / "seed"
    done = sim("--seed", "5", *BRIEF, "--output", str(path))
    assert done.exit_code == 0, done.output
    assert f"seed 5: {path / 'report.html'}" in done.output
    return path


def json_of(path: Path):
    return json.loads(path.read_text(encoding="utf-8"))


# ---- the folder ------------------------------------------------------------------------------


def test_a_seed_leaves_what_a_run_leaves(held: Path):
    assert {each.name for each in held.iterdir()} == FILES
    run, result = json_of(held / "run.json"), batch_runner.run_one(5, BRIEF_VARIANT)
    assert run["digest"] == result.digest, "the same with and without a folder"
    assert run["faults"] == dict(sorted(result.faults.items()))
    assert run["parameters"]["backend"] == "simulator"
    assert (run["parameters"]["seed"], run["parameters"]["seconds"]) == (5, 12.0)
    assert run["replay"] == "multiraft chaos sim --seed 5 --groups 3 --seconds 12 --trace"
    assert json_of(held / "verdict.json")["outcome"] == "passed"
    last = (held / "trace.txt").read_text(encoding="utf-8").splitlines()[-len(result.trace_tail):]
    assert last == result.trace_tail


def test_the_faults_are_those_that_the_seed_counted(held: Path):
    found = series.read(held / "history.jsonl")
    counted = {kind for kind, count in json_of(held / "run.json")["faults"].items()
               if count > 0 and kind in FAULT_KINDS}
    others = {kind for kind in (fault.kind for fault in found.faults)
              if kind == DOWN or kind.startswith(STAYS)}
    assert counted and {fault.kind for fault in found.faults} - others == counted
    assert any(fault.end_s > fault.begin_s for fault in found.faults)
    assert max(fault.end_s for fault in found.faults if fault.kind != DOWN) < found.duration_s, \
        "all are healed"


def test_the_page_shows_it_and_can_be_built_again(held: Path):
    (held / "report.html").unlink()
    done = CliRunner().invoke(report_command, [str(held)])
    assert done.output.strip() == str(held / "report.html")
    page = (held / "report.html").read_text(encoding="utf-8")
    assert "<b>passed</b>" in page
    assert page.count("<svg") == 10
    assert "multiraft chaos sim --seed 5 --groups 3 --seconds 12 --trace" in page
    assert ">node 1<" in page and ">node 3<" in page, "who led"
    assert all(f">{phase}<" in page for phase in ("warm-up", "faults", "heal", "final", "sleep"))
    assert "real processes" not in page and "asked twice" not in page
    assert f">{NEMESIS}<" not in page, "what excuses is no fault"


def test_the_folder_is_judged_again_as_it_was(held: Path):
    before = json_of(held / "verdict.json")
    check_folder(held)
    after = json_of(held / "verdict.json")
    assert {**after, "seconds": 0} == {**before, "seconds": 0}


def test_a_broken_invariant_is_named_with_what_led_to_it(tmp_path: Path):
    done = sim("--seed", "3", *BRIEF, *PLANTED, "--output", str(tmp_path))
    assert done.exit_code == 1
    anomaly, = json_of(tmp_path / "verdict.json")["anomalies"]
    assert (anomaly["id"], anomaly["name"]) == ("invariant", "AcknowledgedIsDurable")
    assert "acknowledges index" in anomaly["text"]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<b>failed</b>" in page
    assert "Anomalies were found: AcknowledgedIsDurable (1)." in page
    assert anomaly["text"].splitlines()[0] in page
    assert "lines of the trace" in page
    assert (tmp_path / "trace.txt").read_text(encoding="utf-8").splitlines()[-1].split()[0] in page
    assert "--planted ack-before-sync --trace" in page
    assert check_folder(tmp_path).outcome == "failed"


def test_of_many_seeds_those_that_fail_have_folders(tmp_path: Path):
    done = sim("--first", "2", "--seeds", "2", "--jobs", "1", *BRIEF, *PLANTED, "--output",
               str(tmp_path))
    assert done.exit_code == 1
    assert {each.name for each in tmp_path.iterdir()} == {"2", "3"}
    assert {each.name for each in (tmp_path / "2").iterdir()} == FILES
    assert f"seed 2: {tmp_path / '2' / 'report.html'}" in done.output


def test_seeds_that_hold_leave_nothing(tmp_path: Path):
    done = sim("--seeds", "1", "--jobs", "1", "--seconds", "2", "--groups", "1", "--output",
               str(tmp_path / "new"))
    assert done.exit_code == 0
    assert list((tmp_path / "new").iterdir()) == []


# ---- folders that cannot be used -------------------------------------------------------------


@pytest.mark.parametrize("which", [("--seed", "3"), ("--seeds", "2", "--jobs", "1")])
@pytest.mark.parametrize(("place", "reason"), [
    ("run", "holds a run already"), ("", "holds folders of runs already"),
    ("file/below", "Not a directory"), ("file", "is a file")])
def test_a_folder_that_cannot_be_had_is_refused_before_anything_runs(tmp_path, monkeypatch, which,
                                                                     place, reason):
    (tmp_path / "file").write_text("")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "history.jsonl").write_text("")
    monkeypatch.setattr(batch_runner.simulation, "run", lambda *_: pytest.fail("it runs"))
    done = sim(*which, "--output", str(tmp_path / place))
    assert done.exit_code == 2
    assert reason in done.output and "--output" in done.output


# ---- recording costs and changes nothing -----------------------------------------------------


@pytest.mark.parametrize("seed", [8, 13, 20])
def test_looking_changes_nothing(seed: int):
    variant, evidence = Variant(groups=4, seconds=10), RunTrace()
    plain = batch_runner.run_one(seed, variant)
    looked = batch_runner.run_one(seed, variant, evidence.line, evidence)
    assert looked.digest == plain.digest
    assert (looked.failure, looked.faults, looked.event_counts) == (plain.failure, plain.faults,
                                                             plain.event_counts)
    events = evidence.finish()
    times = [event.time_us for event in events]
    assert times == sorted(times)
    ill = [event.data["on"] for event in events if event.name.startswith(STAYS)]
    left = sum("all are well but [" in line and "[]" not in line for line in evidence.lines)
    assert left and ill == [True, False] * left
    led = {(group, term) for _, group, term, leader in evidence.leadership if leader}
    changes = len(led) - len({group for group, _ in led})
    assert abs(changes - looked.leader_changes) <= 1  # a leader may end at its election


def test_without_a_folder_nothing_of_it_is_there():
    assert type(Recording().nemesis(Simulation(Parameters.draw(1)), random.Random(1))) is Nemesis
    assert type(Recording().faults) is Counter
    program = ("import sys, chaos.simulator.runner.command\n"
               "print([name for name in ('matplotlib', 'chaos.report.build',\n"
               "       'chaos.simulator.runner.run_trace') if name in sys.modules])")
    done = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[3],
                          capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- faults and leaders ----------------------------------------------------------------------


class Story:
    """Run trace with reports made by hand."""

    def __init__(self) -> None:
        self.evidence = RunTrace()
        self.evidence.queue = EventQueue()
        self.trace = Trace(self.evidence.queue, self.evidence.line)
        self.said = self.trace.line

    def at(self, second: float) -> RunTrace:
        """Advance the time."""
        self.evidence.queue.run_until(int(second * 1e6))
        return self.evidence

    def faults(self) -> list[tuple]:
        """Return (second, kind, on, nodes) of all faults."""
        return [(event.time_us / 1e6, event.name, event.data["on"], event.data["nodes"])
                for event in self.evidence.finish()
                if event.kind == FAULT and event.name != NEMESIS]


def test_a_fault_lasts_until_it_is_healed():
    story = Story()
    evidence = story.at(1)
    evidence.faults["partition-one"] += 1
    story.said(0, -1, "fault", "n3 is cut off")
    heal = evidence._observe_heal(lambda: None)
    story.at(2.5)
    heal()
    story.at(4)
    evidence.faults["disconnect"] += 1
    story.said(0, -1, "fault", "disconnect n1 n2")
    story.at(5)
    assert story.faults() == [
        (1, "partition-one", True, [3]), (2.5, "partition-one", False, [3]),
        (4, "disconnect", True, [1, 2]), (4, "disconnect", False, [1, 2])]


def test_a_node_that_went_down_is_broken_until_it_is_up_or_replaced():
    story = Story()
    story.at(1).faults["wipe"] += 1
    story.said(2, -1, "fault", "wiped, n4 comes in its place")
    story.said(2, -1, "crash", "power")
    story.at(2)
    story.said(2, -1, "start")  # the old id, which is refused
    story.at(3)
    story.said(2, -1, "replaced", "by n4")
    story.at(4)
    story.said(1, -1, "crash", "process")  # by a fault that was armed before
    story.at(5)
    story.said(1, -1, "start")
    assert story.faults() == [(1, "wipe", True, [2]), (3, "wipe", False, [2]),
                              (4, DOWN, True, [1]), (5, DOWN, False, [1])]


def test_who_is_healed_last_is_ill_until_then():
    story = Story()
    for second, text in ((1, "heal"), (1, "all are well but [2, 3] deaf"), (3, "converged"),
                         (4, "[2, 3] are well, too"), (5, "all are well but []")):
        story.at(second)
        story.said(0, -1, "phase", text)
    assert story.faults() == [(1, f"{STAYS}-deaf", True, [2, 3]),
                              (4, f"{STAYS}-deaf", False, [2, 3])]
    assert story.evidence.phases == {"heal": 1, "sleep": 3}


def test_what_is_taken_back_or_only_prepared_is_no_fault():
    story = Story()
    evidence = story.at(1)
    for kind in ("kill", "eio-sync"):
        evidence.faults[kind] += 1
        evidence.faults[kind] -= 1
    story.said(2, -1, "fault", "sync 3 fails")
    story.at(2)
    evidence.faults["eio-sync"] += 1
    story.at(2.125)
    story.said(2, -1, "disk", "input/output error")
    story.said(2, -1, "crash", "power")
    story.at(3)
    story.said(2, -1, "start")
    story.at(4)
    evidence.faults["eio-write"] += 1  # an error that its node does not notice
    story.at(30)
    assert story.faults() == [(2.125, "eio-sync", True, [2]), (3, "eio-sync", False, [2]),
                              (4, "eio-write", True, []), (4, "eio-write", False, [])]


def test_two_of_a_kind_at_once_are_one_fault():
    story, heals = Story(), []
    for second in (1, 2):
        story.at(second).faults["disk-slow"] += 1
        story.said(1, -1, "fault", "slow disk")
        heals.append(story.evidence._observe_heal(lambda: None))
    for second, heal in ((3, heals[0]), (4, heals[1])):
        story.at(second)
        heal()
    assert story.faults() == [(1, "disk-slow", True, [1]), (4, "disk-slow", False, [1])]


def test_who_leads_is_the_newest_leader_that_is_alive():
    story = Story()
    for second, node, fields in ((1, 1, "3 5 1 "), (2, 2, "3 6 2 "), (3, 1, "0 6 2 "),
                                 (4, 3, "3 4 3 ")):
        story.at(second)
        story.said(node, 7, "role_changed", fields)
    story.at(5)
    story.said(2, -1, "crash", "power")
    assert story.evidence.leadership == [(1_000_000, 7, 5, 1), (2_000_000, 7, 6, 2),
                                         (5_000_000, 7, 6, 0)]


# ---- the verdict -----------------------------------------------------------------------------


def test_a_loss_that_was_promised_is_not_judged(held: Path, tmp_path: Path):
    """A history that ends at a promised loss is no evidence for the checkers."""
    folder = Folder(tmp_path)
    folder.note(**{**json_of(held / "run.json"), "unjudged": True})
    (tmp_path / "history.jsonl").write_text((held / "history.jsonl").read_text(encoding="utf-8"))
    findings_of(Result(5, event_counts=Counter(("promised loss",)))).write(folder.findings)
    verdict = check_folder(tmp_path)
    assert verdict.outcome == "invalid"
    assert verdict.invalid[0].startswith("relaxed durability lost what it may lose")
    assert verdict.checked == {}


def test_a_run_that_broke_in_its_final_reads_is_not_blamed_for_those_that_are_missing(held: Path):
    events = list(read_history(held / "history.jsonl"))
    first = next(at for at, event in enumerate(events) if event.name == FINAL)
    few = [*events[:first + 20], events[-1]]
    assert check(few).counts, "or this proves nothing"
    assert check(broken_off(few)).counts == {}


def test_what_the_checkers_alone_saw_is_left_to_them():
    assert findings_of(Result(5, failure="A1 lost: records 4 and 5 are gone")).anomalies == []
    found, = findings_of(Result(5, failure="KeyError: 17\n    at do, node.py:3")).anomalies
    assert (found.name, found.text) == ("KeyError", "17\n    at do, node.py:3")


def test_a_history_of_a_folder_reads_as_any_other(held: Path):
    events = list(read_history(held / "history.jsonl"))
    assert events[0].name == "warm-up" and events[-1].name == "end"
