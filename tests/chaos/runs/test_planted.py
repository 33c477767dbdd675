"""Planted bugs: planting, and that the fast layers catch theirs."""

from __future__ import annotations

import importlib
import json

import pytest
from click.testing import CliRunner

from chaos.planted import bug, command, proofs
from chaos.planted.catalogue import BUGS
from multiraft.errors import MultiRaftError
from tests import datadriven
from tests.raft.interaction import Interaction
from tests.raft.test_interaction import TESTDATA

#: Mistakes that the suites must catch: well-known ones, and those of this project.
CATALOGUE = {
    "acknowledge before the sync": "ack-before-sync",
    "a heartbeat's answer with an index in memory": "empty-append-answered-from-memory",
    "commit a prior term by counting": "commit-old-term-by-counting",
    "the vote is not persisted": "vote-not-persisted",
    "the vote is cleared by a step-down in the same term": "vote-cleared-on-step-down",
    "a heartbeat's commit index is not capped": "commit-uncapped",
    "truncate at the first bad CRC": "cut-at-first-damage",
    "readers see what is not committed": "reader-sees-uncommitted",
    "the table of retries is not in the snapshot": "windows-not-in-snapshot",
    "a light heartbeat after a full one that was lost": "stale-digest-is-believed",
    "quiesce with a lagging follower": "sleep-with-lagging-member",
    "the election timer is not refreshed when busy": "busy-leader-is-deposed",
    "a group's id is used again": "incarnation-ignored",
    "an old snapshot over a newer log": "old-snapshot-over-newer-log",
    "a leader that was removed counts itself": "counts-itself-when-removed",
    "the node's liveness masks a stuck disk": "stuck-disk-keeps-leases",
    "one group's exception cancels all": "one-group-ends-the-node",
    "a coalesced frame is taken apart with an error of one": "frame-loses-its-last-item",
}


@pytest.mark.parametrize("name", sorted(BUGS))
def test_the_code_that_a_bug_replaces_is_there(name):
    with bug.planted(BUGS[name]):
        pass


def test_planting_ends_with_its_context():
    function = importlib.import_module("multiraft.raft.raft_log").RaftLog.truncate
    shipped = function.__code__
    with bug.planted(BUGS["aba"]):
        assert function.__code__ is not shipped
        assert function.__code__.co_varnames == shipped.co_varnames
    assert function.__code__ is shipped


@pytest.mark.parametrize("change", [
    {"old": "no such text"}, {"old": "e"}, {"function": "RaftLog.nothing"},
    {"function": "RaftLog"}, {"module": "multiraft.nowhere"}])
def test_a_bug_whose_code_is_gone_is_an_error(change):
    with pytest.raises(bug.StaleBug, match="aba"):
        with bug.planted(BUGS["aba"]._replace(**change)):
            pass


def tells(script: str) -> bool:
    """Return True if a golden script fails, in this process."""
    try:
        datadriven.run(TESTDATA / script, Interaction().execute)
    except (AssertionError, MultiRaftError, LookupError, datadriven.ScriptError):
        return True  # ScriptError: the script does not reach its end
    return False


@pytest.mark.parametrize("name", [each.name for each in BUGS.values()
                                  if each.layer == bug.SCRIPTS])
def test_a_planted_bug_is_caught_by_a_script(name):
    scripts = BUGS[name].proof.names
    assert not any(map(tells, scripts)), "a script that fails anyway catches nothing"
    with bug.planted(BUGS[name]):
        assert any(map(tells, scripts)), BUGS[name].why


@pytest.mark.parametrize("name", [each.name for each in BUGS.values()
                                  if each.layer in (bug.TESTS, bug.CHECKERS,
                                                   bug.SIMULATOR)])
def test_a_planted_bug_is_caught_by_its_layer(name):
    finding = proofs.prove(BUGS[name], BUGS[name].layer)
    assert finding.caught, f"{name} ({BUGS[name].why}) was not caught by {finding.by}"


def test_a_proof_that_cannot_run_catches_nothing():
    nowhere = BUGS["aba"]._replace(proof=bug.Tests(("tests/chaos/no_such_file.py",)))
    with pytest.raises(proofs.NoProof, match="no_such_file"):
        proofs.prove(nowhere, bug.TESTS)


def test_a_bug_that_no_test_sees_is_missed():
    harmless = "tests/chaos/runs/test_planted.py::test_planting_ends_with_its_context"
    missed = BUGS["commit-uncapped"]._replace(proof=bug.Tests((harmless,)))
    assert not proofs.prove(missed, bug.TESTS).caught


def ran(monkeypatch, **outcomes):
    """Have a run of each bug, or of none ("sound"), end so."""
    proofs.check_run.cache_clear()
    monkeypatch.setattr(proofs, "_run", lambda proof, name: outcomes["bug" if name else "sound"])


RUN_OF_PROCESSES = BUGS["kafka-end-without-a-majority"]


def test_a_run_catches_a_bug_by_an_anomaly_that_its_proof_names(monkeypatch):
    ran(monkeypatch, bug=("failed", ["gap", "stale-read"]), sound=("passed", []))
    finding = proofs.prove(RUN_OF_PROCESSES, bug.PROCESS)
    assert finding.caught and finding.by == "gap, stale-read"
    ran(monkeypatch, bug=("failed", ["gap"]), sound=("passed", []))
    assert not proofs.prove(RUN_OF_PROCESSES, bug.PROCESS).caught
    ran(monkeypatch, bug=("passed", []), sound=("passed", []))
    assert not proofs.prove(RUN_OF_PROCESSES, bug.PROCESS).caught


@pytest.mark.parametrize("outcomes", [
    {"bug": ("failed", ["stale-read"]), "sound": ("failed", ["gap"])},
    {"bug": ("failed", ["stale-read"]), "sound": ("invalid", [])},
    {"bug": ("invalid", []), "sound": ("passed", [])}])
def test_a_run_that_does_not_pass_without_the_bug_proves_nothing(monkeypatch, outcomes):
    ran(monkeypatch, **outcomes)
    with pytest.raises(proofs.NoProof):
        proofs.prove(RUN_OF_PROCESSES, bug.PROCESS)


def test_every_mistake_of_the_catalogue_is_there():
    """Every known mistake that the suites must catch has planted bugs."""
    assert set(CATALOGUE.values()) <= set(BUGS)


def test_the_command_lists_every_bug_with_its_layer_and_its_reason():
    said = CliRunner().invoke(command.planted, ["--list"])
    assert said.exit_code == 0, said.output
    assert [line.split(maxsplit=2) for line in said.stdout.splitlines()] \
        == [[each.layer, each.name, each.why] for each in BUGS.values()]


def test_the_command_says_what_it_found():
    said = CliRunner().invoke(command.planted, ["--only", "aba", "--json"])
    assert said.exit_code == 0, said.output
    findings = json.loads(said.stdout)
    assert [(each["bug"], each["caught"], each["layer"]) for each in findings] \
        == [("aba", True, "scripts")]
    assert findings[0]["seconds"] > 0
    assert CliRunner().invoke(command.planted, ["--only", "aba", "--layer", "docker"]) \
        .exit_code == 2
