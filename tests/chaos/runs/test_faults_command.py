"""``multiraft chaos faults``: its output for faults that work, have no effect, or are
unavailable."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from chaos.backends.backend import BackendError, ClusterSpec
from chaos.nemeses import command
from chaos.nemeses.proofs import NoBite

TAKES_THE_MACHINE = True


class Cluster:
    """A backend of three kinds, one of which is left out."""

    left_out = {"pause": "there is no freezer"}
    healed = 0

    def __enter__(self):
        return self

    def __exit__(self, *_why):
        return None

    def up(self) -> None:
        """Do nothing: the cluster is up."""

    def await_whole(self) -> None:
        """Do nothing: all replicas have caught up."""

    def heal_all(self) -> None:
        self.healed += 1


@pytest.fixture
def cluster(monkeypatch) -> Cluster:
    found = Cluster()

    def open_backend(_name: str, _directory, _spec: ClusterSpec) -> Cluster:
        return found

    monkeypatch.setattr(command, "open_backend", open_backend)
    return found


def said(*arguments: str) -> tuple[int, list[dict], str]:
    done = CliRunner().invoke(command.faults, [*arguments, "--json"])
    return done.exit_code, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_what_bites_and_what_is_left_out_is_success(cluster, monkeypatch):
    monkeypatch.setitem(command.PROOFS, "kill", lambda _cluster: "seen")
    code, rows, _ = said("--kind", "kill", "--kind", "pause")
    assert code == 0
    assert [(row["kind"], row["state"]) for row in rows] == [("kill", "bites"),
                                                             ("pause", "left out")]
    assert rows[1]["text"] == "there is no freezer"


def test_a_fault_that_does_nothing_fails_and_is_healed(cluster, monkeypatch):
    def nothing(_cluster) -> str:
        raise NoBite("node 1 lives")

    monkeypatch.setitem(command.PROOFS, "kill", nothing)
    code, rows, _ = said("--kind", "kill")
    assert code == 1
    assert rows == [{"kind": "kill", "state": "does nothing", "text": "node 1 lives"}]
    assert cluster.healed == 1


def test_no_cluster_is_another_failure_and_one_sentence(monkeypatch):
    def refuse(*_arguments):
        raise BackendError("no engine answers")

    monkeypatch.setattr(command, "open_backend", refuse)
    code, rows, error = said("--backend", "docker")
    assert (code, rows) == (2, [])
    assert error == "multiraft chaos: no engine answers\n"
