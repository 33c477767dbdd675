"""Runs of many seeds: which of them count, processes, shrinking of a failed one, recorded sums."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from collections import Counter

import pytest
from click.testing import CliRunner

from chaos.checkers import Anomaly, Verdict
from chaos.run.record import RUNS_FILE
from chaos.simulator.env.parameters import Parameters
from chaos.simulator.runner import batch_runner, command, soak_log
from chaos.simulator.runner.command import simulate
from chaos.simulator.runner.coverage import Totals, why_not
from chaos.simulator.runner.shrink import kind_of_failure, shrink
from chaos.simulator.runner.variant import Variant
from chaos.simulator.simulation import PROMISED_LOSS, Result

FIVE = Counter(("kill", "pause", "clog", "bridge", "transfer"))


def result(seed=1, **fields):
    usual = dict(simulated_ms=310_000, acked=2_500, leader_changes=9, faults=FIVE, cpu_seconds=3.1)
    return Result(seed, **{**usual, **fields})


@pytest.mark.parametrize(("fields", "reason"), [
    ({}, ""),
    ({"simulated_ms": 299_999}, "299 simulated seconds of 300"),
    ({"acked": 1_999}, "1,999 acknowledged appends of 2,000"),
    ({"leader_changes": 2}, "2 leader changes of 3"),
    ({"faults": Counter(("kill", "clog"))}, "2 kinds of fault of 5"),
    ({"faults": FIVE - Counter(("kill",))}, "4 kinds of fault of 5"),
    ({"faults": Counter(("kill", "loss", "duplicate", "item-loss", "reorder", "snapshot-offered",
                         "snapshot-installed", "wiped-refused"))}, "1 kinds of fault of 5"),
    ({"faults": Counter({**FIVE, "kill": 0})}, "4 kinds of fault of 5"),
    ({"failure": "Violation: LogMatching: ..."}, "it failed"),
])
def test_a_seed_counts_or_says_why_not(fields, reason):
    assert why_not(result(**fields)) == reason


def lost(_history):
    return Verdict([Anomaly("A1", "lost", "records 4 and 5 of t/1 are gone")])


def test_what_only_the_checkers_see_fails_a_seed(monkeypatch):
    brief = Variant(groups=1, seconds=1)
    assert batch_runner.run_one(3, brief).failure == ""
    monkeypatch.setattr(batch_runner, "check", lost)
    assert batch_runner.run_one(3, brief).failure == "A1 lost: records 4 and 5 of t/1 are gone"


def test_the_checkers_are_not_asked_where_a_loss_was_promised(monkeypatch):
    monkeypatch.setattr(batch_runner, "check", lost)
    monkeypatch.setattr(batch_runner.simulation, "run", lambda parameters, _sink, _history: result(
        parameters.seed, event_counts=Counter((PROMISED_LOSS,))))
    assert batch_runner.run_one(3, Variant()).failure == ""


def test_the_summary_counts_only_those_that_count():
    totals = Totals()
    for one in (result(1), result(2, acked=10), result(3, failure="Violation: Sleep: ...")):
        totals.add(one)
    lines = totals.lines()
    assert lines[0].startswith("FAILED: seed 3 broke a promise, of 3 simulated clusters.")
    assert lines[-1] == "  seed 2: 10 acknowledged appends of 2,000"
    assert "1 of 3 seeds held like the others" in "\n".join(lines)
    assert max(map(len, lines)) <= 79
    assert totals.speed == pytest.approx(100)


def test_the_summary_begins_with_the_result_in_a_sentence():
    totals = Totals()
    totals.add(result(1))
    assert totals.lines()[0].startswith("No fault found: 1 simulated cluster lost no acknowledged")
    assert not [line for line in totals.lines() if "held like the others" in line]


def test_the_summary_counts_losses_that_relaxed_durability_permits():
    totals = Totals()
    assert totals.result() == "No seed was run."
    totals.add(result(1))
    totals.add(result(2, event_counts=Counter((PROMISED_LOSS,))))
    assert totals.result() == (
        "No fault found: 1 simulated cluster lost no acknowledged record and broke no rule of the "
        "protocol. In 1 more, a loss of power took records whose relaxed durability permits that; "
        "the seed ended there.")


@pytest.mark.parametrize("seeds, minutes, jobs, said", [
    (20, None, 2, "20 clusters, seeds 7 to 26, 2 at a time: about 30 s to 2 min, longer"),
    (1, None, 1, "1 cluster, seed 7, one after the other: about 3 s to 15 s"),
    (None, 5.0, 2, "clusters from seed 7 on, 2 at a time, for 5 minutes.")])
def test_the_command_says_how_long_it_takes(seeds, minutes, jobs, said):
    assert said in command._announcement(7, seeds, minutes, jobs)


def test_a_variant_replaces_what_it_names_and_nothing_else():
    drawn = Parameters.draw(11)
    changed = Variant(groups=2, seconds=9, faults=("kill",), calm_network=True).parameters(11)
    assert (changed.groups, changed.safety_ms, changed.faults) == (2, 9_000, ("kill",))
    assert (changed.network.loss, changed.network.reorder) == (0.0, 0.0)
    assert (changed.disk, changed.raft, changed.workload) == (drawn.disk, drawn.raft,
                                                              drawn.workload)
    assert changed.network.delay_spread_us == drawn.network.delay_spread_us


def test_the_replay_command_is_the_variant(monkeypatch):
    seen = {}
    monkeypatch.setattr(batch_runner.simulation, "run",
                        lambda parameters, _sink, _history: seen.update(p=parameters) or result())
    variant = Variant(3, 8, 20, ("kill", "pause"), True)
    words = variant.replay(5).split()
    assert words[:3] == ["multiraft", "chaos", "sim"]
    assert CliRunner().invoke(simulate, words[3:]).exit_code == 0
    assert seen["p"] == variant.parameters(5)


def test_processes_change_nothing_about_a_seed():
    variant = Variant(seconds=2, groups=4)
    alone = {one.seed: one.digest
             for one in batch_runner.run_seeds(batch_runner.numbers(50, 4, None), variant, 1)}
    together = {one.seed: one.digest
                for one in batch_runner.run_seeds(batch_runner.numbers(50, 4, None), variant, 2)}
    assert sorted(alone) == [50, 51, 52, 53]
    assert together == alone


def test_a_seed_whose_process_ends_without_a_result_is_an_error_that_names_it():
    """The kernel may kill a process of a seed when it is out of memory."""
    script = """
import os
from chaos.simulator.runner import batch_runner
batch_runner.simulation.run = lambda *_: os._exit(9)
batch_runner._run_apart(17, batch_runner.Variant())
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                           check=False)
    assert ended.returncode == 1
    assert "ChildProcessError: seed 17 ended its process with exit code 9" in ended.stderr


def test_when_the_time_is_up_no_seed_is_started():
    assert list(batch_runner.numbers(1, None, 0.0)) == []
    assert list(batch_runner.numbers(7, 2, 1000.0)) == [7, 8]


def fails_while(holds):
    """Return a runner whose seed fails as long as its variant keeps what the bug needs."""
    def run(seed, variant):
        parameters = variant.parameters(seed)
        failure = "Violation: LogMatching: n1 g3" if holds(parameters) else ""
        return result(seed, failure=failure, simulated_ms=min(12_000, parameters.safety_ms))
    return run


def test_shrinking_ends_at_what_is_needed():
    run = fails_while(lambda p: "kill" in p.faults and p.groups >= 2 and p.safety_ms >= 12_000)
    seed = next(seed for seed in range(1, 99) if "kill" in Parameters.draw(seed).faults
                and len(set(Parameters.draw(seed).faults)) > 5)
    start = Variant(calm_network=True)
    smallest, found = shrink(run(seed, start), start, 60.0, run)
    assert (smallest.groups, smallest.seconds, smallest.faults) == (2, 13, ("kill",))
    assert found.failure


def test_another_failure_is_not_what_was_looked_for():
    def run(seed, variant):
        way = "Sleep" if variant != Variant() else "LogMatching"
        return result(seed, failure=f"Violation: {way}: n1")
    assert shrink(run(1, Variant()), Variant(), 60.0, run)[0] == Variant()
    assert kind_of_failure("Violation: Sleep: 3 frames\n  at x") == "Violation: Sleep"
    assert kind_of_failure("KeyError: 17\n  at x") == "KeyError"


def test_a_planted_bug_fails_the_command_and_is_made_smaller():
    arguments = ["--seeds", "2", "--jobs", "1", "--seconds", "15", "--groups", "3",
                 "--planted", "ack-before-sync", "--shrink-seconds", "5"]
    done = CliRunner().invoke(simulate, arguments)
    assert done.exit_code == 1
    assert "replay: multiraft chaos sim --seed " in done.output
    assert "--planted ack-before-sync" in done.output
    assert "smallest: multiraft chaos sim" in done.output or "no smaller variant" in done.output


def test_soak_runs_are_summed_by_commit(tmp_path):
    path = tmp_path / "soak.jsonl"
    totals = Totals()
    totals.add(result(1))
    for commit in ("aaa", "aaa", "bbb"):
        soak_log.record(soak_log.entry_of(totals, 1, commit), path)
    lines = soak_log.table(soak_log.read(path))
    assert [line.split()[:3] for line in lines[1::2]] == [["aaa", "2", "2"], ["bbb", "1", "1"]]
    assert "kill 2" in lines[2]


def record_some(path, commit):
    totals = Totals()
    totals.add(result(1))
    for _ in range(50):
        soak_log.record(soak_log.entry_of(totals, 1, commit), path)


def test_processes_that_record_at_once_lose_nothing(tmp_path):
    path = tmp_path / "soak.jsonl"
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=record_some, args=(path, commit)) for commit in ("a", "b")]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    assert sorted(entry["commit"] for entry in soak_log.read(path)) == ["a"] * 50 + ["b"] * 50


def test_soak_runs_are_recorded_beside_the_runs_of_real_clusters():
    """A move of the module changed the path, and recorded runs were no longer found."""
    assert soak_log.SOAK_FILE == RUNS_FILE.with_name("soak.jsonl")
    assert soak_log.read()


def test_a_run_during_which_the_tree_changed_is_marked():
    assert soak_log.commit_of_run("abc", "abc") == "abc"
    assert soak_log.commit_of_run("abc", "abd") == "abc+"
    assert soak_log.commit_of_run("abc+", "abd+") == "abc+"


def test_an_unknown_kind_of_fault_is_refused():
    done = CliRunner().invoke(simulate, ["--seed", "1", "--only-faults", "kill,no-such"])
    assert done.exit_code == 2
    assert "no-such is no kind of fault" in done.output
