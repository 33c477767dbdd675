"""Clusters of containers; skipped, with a message, where no Docker engine is available."""

from __future__ import annotations

import os
import random
import shutil

import docker
import pytest
import requests

from chaos import engine
from chaos.backends import host, image, ledger
from chaos.backends.backend import (
    CLOCK,
    FAILED_DISK,
    HUNG_DISK,
    KILL,
    MEMBERSHIP,
    PARTITION,
    PAUSE,
    POWER_LOSS,
    SLOW_DISK,
    BackendError,
    ClusterSpec,
    all_links,
)
from chaos.backends.containers import DockerBackend, _Containers, remove_leftovers
from chaos.nemeses import proofs
from tests import needs
from tests.chaos.backends.test_backends import WAIT_S, killed_harness

TAKES_THE_MACHINE = True

#: Faults in which containers differ from processes; the rest is the same code on the same
#: namespaces.
KINDS = (KILL, PAUSE, PARTITION, POWER_LOSS, SLOW_DISK, MEMBERSHIP, CLOCK)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    try:
        backend = DockerBackend(tmp_path_factory.mktemp("docker"), ClusterSpec(groups=4))
    except (engine.EngineUnavailable, image.NoBase) as error:
        needs.no_engine(error)
    with backend:
        backend.up()
        yield backend


@pytest.fixture
def whole(cluster):
    cluster.await_whole()
    yield cluster
    cluster.heal_all()


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_fault_bites_and_heals(whole, kind):
    needs.faults(whole, kind)
    assert proofs.PROOFS[kind](whole)


def test_everything_at_once_is_healed(whole):
    needs.faults(whole, PARTITION, HUNG_DISK, FAILED_DISK)
    whole.cut(all_links([1], [2, 3]))
    whole.freeze_disk(1)
    whole.pause(2)
    whole.fail_disk(3)
    whole.kill(2)
    whole.heal_all()
    whole.await_whole()


def test_rules_outlive_the_process_of_a_node(whole):
    needs.faults(whole, PARTITION)
    whole.cut(all_links([1], [2, 3]))
    whole.kill(1)
    whole.start(1)
    rules = host.run(*whole.inside(1, "iptables", "-S", "INPUT"))
    assert rules.count("-j DROP") == 2


class Silent:
    """A container whose engine does not answer in time."""

    def get_wrapped_container(self):
        return self

    def _wait(self):
        raise requests.ReadTimeout("Read timed out. (read timeout=60)")

    start = pause = unpause = reload = _wait


@pytest.mark.parametrize("asked", ["spawn", "pause", "resume", "alive"])
def test_an_engine_that_does_not_answer_is_an_error_of_the_backend(asked):
    nodes = _Containers(None)
    nodes._containers[1] = Silent()
    # the process has ended, and the engine has to report its status
    nodes._known[1] = host.ProcessId(1, 1)
    with pytest.raises(BackendError, match="node 1: Read timed out"):
        getattr(nodes, asked)(1)


def test_the_image_is_built_once(cluster):
    assert image.exists(cluster.image)
    assert image.name() == cluster.image == image.ensure()


def test_what_a_dead_harness_left_is_removed_and_nothing_else(cluster):
    client = docker.from_env()
    made = []

    def leave(run: str, owner: str) -> str:
        labels = {ledger.LABEL: run, ledger.OWNER_LABEL: owner} if run else {}
        made.append(client.containers.create(cluster.image, entrypoint=["/bin/sleep", "9"],
                                             labels=labels))
        return made[-1].id

    try:
        run = f"left-{random.randrange(1 << 32):08x}"
        left = leave(run, "1:1")
        foreign = leave("", "")
        alive = leave(run + "-alive", ":".join(map(str, host.identify(os.getpid()))))
        assert run in remove_leftovers()
        there = {found.id for found in client.containers.list(all=True, ignore_removed=True)}
        assert left not in there
        assert {foreign, alive} <= there
        assert all(cluster.is_running(node) for node in cluster.nodes())
    finally:
        for container in made[1:]:
            container.remove(force=True)
        client.close()


def test_when_the_harness_is_killed_its_containers_go(cluster, tmp_path):
    book, _pid = killed_harness("docker", tmp_path)
    assert host.holds(lambda: not book.path.exists(), WAIT_S), book.rows()
    assert not host.run("docker", "ps", "-aq", "--filter", f"label={ledger.LABEL}={book.run}")
    assert not host.run("docker", "network", "ls", "-q", "--filter",
                        f"label={ledger.LABEL}={book.run}")


def test_the_digest_follows_the_sources_that_run_in_a_container(monkeypatch, tmp_path):
    shutil.copytree(image.root() / "node", tmp_path / "node")
    monkeypatch.setattr(image, "root", lambda: tmp_path)
    before = image.digest()
    (tmp_path / "node" / "notes").write_text("not a source")
    assert image.digest() == before
    with (tmp_path / "node" / "clock.py").open("a") as file:
        file.write("# changed\n")
    assert image.digest() != before


def test_an_image_that_cannot_be_built_says_why_in_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(image, "root", lambda: tmp_path)
    with pytest.raises(BackendError, match="source tree"):
        image.build("nothing")


@pytest.mark.parametrize(("said", "failed"), [
    ("debootstrap is sorry\n" + image.NO_BASE_SAID, image.NoBase),
    ("error: multiraft does not compile", image.ImageFailed)])
def test_only_a_base_that_cannot_be_had_is_an_excuse(said, failed, monkeypatch):
    def run(*_command, **_options):
        raise BackendError(f"`build.sh`: {said}")

    monkeypatch.setattr(image, "_base", lambda: [])
    monkeypatch.setattr(host, "run", run)
    with pytest.raises(image.ImageFailed) as caught:
        image.build("nothing")
    assert type(caught.value) is failed


def test_the_script_says_it_with_those_words():
    script = image.root() / "deploy" / "container" / "build.sh"
    assert image.NO_BASE_SAID in script.read_text(encoding="utf-8")
