"""Clusters of processes: every fault bites and heals, and nothing outlives the harness."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chaos.backends import artifacts, choice, host, ledger, probes
from chaos.backends.backend import (
    CLOCK,
    FAILED_DISK,
    FULL_DISK,
    HUNG_DISK,
    KINDS,
    LOSS,
    PARTITION,
    SLOW_DISK,
    BackendError,
    ClusterSpec,
    NodeExit,
    all_links,
)
from chaos.backends.processes import ProcessBackend
from chaos.nemeses import proofs
from tests import needs
from tests.admin_cli.development.test_dev_cluster import REMOVED_REASONS

TAKES_THE_MACHINE = True

#: A node that restarts serves before that, or ends.
RETURN_S = 8.0
WAIT_S = 180.0
SPEC = ClusterSpec(nodes=3, groups=4)
#: Faults of "everything at once".
EVERYTHING = (PARTITION, LOSS, SLOW_DISK, FULL_DISK, FAILED_DISK, HUNG_DISK)

#: Starts a cluster, injects faults that do not end by themselves, reports them, and waits.
HARNESS = """
import sys, time
from pathlib import Path
from chaos.backends.backend import ClusterSpec
from chaos.backends.choice import open_backend
backend = open_backend(sys.argv[1], Path(sys.argv[2]), ClusterSpec(nodes=1, groups=1,
                                                                   replication_factor=1))
backend.up()
if "hung-disk" in backend.kinds:
    backend.freeze_disk(1)
backend.pause(1)
print(backend.book.run, backend.pid(1), flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with ProcessBackend(tmp_path_factory.mktemp("process"), SPEC) as backend:
        backend.up()
        yield backend


@pytest.fixture
def whole(cluster):
    """Yield the cluster with all replicas caught up; healed afterwards."""
    cluster.await_whole()
    yield cluster
    cluster.heal_all()


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_fault_bites_and_heals(whole, kind):
    needs.faults(whole, kind)
    assert proofs.PROOFS[kind](whole)


def test_root_can_do_everything_here_but_what_the_machine_lacks(cluster):
    assert cluster.kinds | cluster.left_out.keys() == set(KINDS)
    assert not cluster.kinds & cluster.left_out.keys()
    assert all(cluster.left_out.values())


def test_everything_at_once_is_healed_twice(whole):
    needs.faults(whole, *EVERYTHING)
    nodes = whole.nodes()
    whole.cut(all_links(nodes, nodes))
    whole.lose(all_links(nodes, [0]), 0.5)
    whole.slow_disk(1, 64 << 10, 5)
    whole.fill_disk(2)
    whole.fail_disk(3)
    whole.freeze_disk(1)
    whole.pause(2)
    whole.kill(1)
    whole.heal_all()
    whole.heal_all()
    whole.await_whole()
    assert all(whole.is_running(node) for node in nodes)


def test_a_node_that_is_killed_on_a_frozen_disk_ends_with_the_thaw(whole):
    needs.faults(whole, HUNG_DISK)
    whole.freeze_disk(1)
    try:
        whole.kill(1)
    finally:
        whole.thaw_disk(1)
    whole.start(1)
    assert whole.is_running(1)


def test_a_node_starts_while_it_is_cut_off(whole):
    needs.faults(whole, PARTITION)
    whole.kill(1)
    whole.cut(all_links([1], [0, 2, 3]))
    whole.start(1)
    assert whole.is_running(1)


def test_the_node_that_ends_by_itself_is_told_from_the_one_that_was_ended(whole):
    before = len(whole.exits())
    os.kill(whole.pid(2), signal.SIGKILL)
    assert host.holds(lambda: len(whole.exits()) > before, WAIT_S)
    assert whole.exits()[-1] == NodeExit(2, -signal.SIGKILL, False)
    whole.start(2)
    whole.kill(2)
    assert whole.exits()[-1] == NodeExit(2, -signal.SIGKILL, True)
    whole.start(2)


def test_an_end_tells_which_faults_of_its_disk_the_process_had_met(whole):
    needs.faults(whole, HUNG_DISK, FAILED_DISK)

    def end_by_itself(node: int) -> NodeExit:
        before = len(whole.exits())
        os.kill(whole.pid(node), signal.SIGKILL)
        assert host.holds(lambda: len(whole.exits()) > before, WAIT_S)
        return whole.exits()[-1]

    whole.freeze_disk(1)
    whole.thaw_disk(1)
    assert end_by_itself(2).disk_faults == frozenset()  # it was another node's disk
    # the fault is over, and may have had an effect
    assert end_by_itself(1).disk_faults == {HUNG_DISK}
    whole.start(1)
    assert end_by_itself(1).disk_faults == frozenset()  # another process of the node
    whole.fail_disk(1)
    with pytest.raises(BackendError):
        whole.start(1)
    # the fault was on before the process started
    assert FAILED_DISK in whole.exits()[-1].disk_faults


def test_a_removal_of_which_no_answer_came_is_a_removal_once_the_node_says_so(whole, monkeypatch):
    node, before = whole.add_node(), whole.exits()
    command = whole.command

    def unanswered(*arguments, **options):
        command(*arguments, **options)
        raise BackendError("no answer came")

    monkeypatch.setattr(whole, "command", unanswered)
    with pytest.raises(BackendError, match="no answer came"):
        whole.remove_node(node)
    whole.kill(node)  # whether it has learned of its removal or not
    whole.heal_all()
    whole.await_whole()

    def gone() -> bool:
        whole.exits()  # it notes the nodes that ended
        return node not in whole.nodes()

    assert host.holds(gone, WAIT_S) and not whole.is_running(node)
    assert [node_exit for node_exit in whole.exits()[len(before):] if not node_exit.requested] == []


@pytest.mark.parametrize("reason", REMOVED_REASONS)
def test_a_node_that_ends_because_it_was_removed_is_no_exit(whole, monkeypatch, reason):
    """The node may learn it from a peer, from the metadata or from its own record."""
    node = whole.add_node()
    whole.remove_node(node)
    life, before = whole._instance(node), whole.exits()
    life.removed, life.should_run = False, True  # as if the removal had not been answered
    monkeypatch.setattr(whole, "_complaint", lambda _node: reason)
    whole._discover(node)
    assert life.removed and whole.exits() == before


def test_a_removed_node_that_runs_again_is_told_and_killed(whole):
    """The node was not removed, so the cluster accepts it again."""
    node = whole.add_node()
    life = whole._instance(node)
    life.removed = life.leaving = True
    with pytest.raises(BackendError, match=f"node {node} was removed and runs again"):
        whole.try_removed(RETURN_S)
    assert not whole.is_running(node)
    life.removed = life.leaving = False
    whole.remove_node(node)
    assert node in whole.try_removed(), "now it is refused"


def test_what_is_collected_can_be_inspected(whole, tmp_path):
    assert whole.collect(tmp_path)[:3] == [1, 2, 3]
    said = host.run_python("admin_cli", "log", "inspect", "--verify", str(tmp_path / "1" / "data"))
    assert "no damaged ranges" in said
    assert (tmp_path / "1" / "log").read_text()
    assert "[cluster]" in (tmp_path / "1" / "node.toml").read_text()


def test_a_file_that_a_running_node_removes_meanwhile_is_not_collected(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "gone").touch()

    def copy(path: str, target: str) -> str:
        Path(path).unlink()
        return artifacts.copy_if_present(path, target)

    shutil.copytree(source, tmp_path / "copy", copy_function=copy)
    assert list((tmp_path / "copy").iterdir()) == []
    (source / "stays").touch()
    with pytest.raises(FileNotFoundError):
        artifacts.copy_if_present(str(source / "stays"), str(tmp_path / "nowhere" / "stays"))


def test_a_directory_of_another_run_is_refused(cluster):
    with pytest.raises(BackendError, match="another run"):
        ProcessBackend(cluster.directory, SPEC)


def test_without_root_processes_can_still_be_hurt(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "is_root", lambda: False)
    monkeypatch.setattr(host, "state_directory", lambda: tmp_path)
    with ProcessBackend(tmp_path / "run", SPEC) as backend:
        assert backend.left_out == {**probes.without_root(), **probes.without_launcher()}
        backend.up()
        backend.pause(1)
        backend.kill(1)
        backend.start(1)
        backend.stop(2)
        backend.heal_all()
        backend.await_whole()
        with pytest.raises(BackendError, match="takes root"):
            backend.power_loss([1])
        with pytest.raises(BackendError, match="takes root"):
            backend.cut(all_links([1], [2]))
        if CLOCK in backend.kinds:
            backend.set_clock(1, wall_ms=5)
        assert backend.collect(tmp_path / "collected") == [1, 2, 3]
    assert not any(backend.is_running(node) for node in (1, 2, 3))


def killed_harness(backend: str, directory: Path) -> tuple[ledger.ResourceLedger, int]:
    """Run a harness that is killed with a node paused and its disk frozen; return its ledger, and
    the pid that the node had."""
    harness = subprocess.Popen([sys.executable, "-P", "-c", HARNESS, backend, str(directory)],
                               stdout=subprocess.PIPE, text=True, env=host.environment())
    with harness:
        run, pid = harness.stdout.readline().split()
        harness.kill()
    return ledger.ResourceLedger(run, host.state_directory() / f"{run}.ledger"), int(pid)


def test_when_the_harness_is_killed_the_watchdog_clears_everything(tmp_path):
    book, pid = killed_harness("process", tmp_path)
    rows = book.rows()
    assert host.holds(lambda: not book.path.exists(), WAIT_S), ledger.ResourceLedger.rows(book)
    assert not host.alive(host.identify(pid))
    assert not any(host.is_mounted(Path(row[-1])) for row in rows
                   if row[0] in (ledger.DISK, ledger.SHARED))
    assert not any(Path("/run/netns", row[1]).exists() for row in rows
                   if row[0] == ledger.NAMESPACE)


def test_what_a_watchdog_left_is_cleared_by_the_next_run(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "state_directory", lambda: tmp_path)
    sleeper = subprocess.Popen(["sleep", "600"])
    lost = ledger.ResourceLedger("lost", tmp_path / "lost.ledger")
    lost.note("owner", "1", "1")  # the first process of the machine did not start at tick 1
    lost.note(ledger.PROCESS, *map(str, host.identify(sleeper.pid)))
    mine = ledger.ResourceLedger.open()
    assert ledger.release_orphans() == ["lost"]
    assert sleeper.wait(WAIT_S) == -signal.SIGKILL
    assert mine.path.exists() and not lost.path.exists()


def test_what_cannot_be_cleared_is_named_and_everything_else_is_cleared(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "state_directory", lambda: tmp_path)
    book = ledger.ResourceLedger.open()
    sleeper = subprocess.Popen(["sleep", "600"])
    book.note(ledger.LINK, "lo")  # the one link that cannot be removed
    book.note(ledger.PROCESS, *map(str, host.identify(sleeper.pid)))
    with pytest.raises(ledger.ReleaseFailed, match="leaves"):
        ledger.release(book)
    assert sleeper.wait(WAIT_S) == -signal.SIGKILL
    assert book.path.exists()


def test_what_an_earlier_run_cannot_release_does_not_stop_the_next(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(host, "state_directory", lambda: tmp_path)
    lost = ledger.ResourceLedger("lost", tmp_path / "lost.ledger")
    lost.note("owner", "1", "1")
    lost.note(ledger.LINK, "lo")
    assert ledger.release_orphans() == []
    assert lost.path.exists()
    assert "run lost leaves" in caplog.text and str(lost.path) in caplog.text


def test_a_ledger_with_containers_is_released_when_the_engine_has_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "state_directory", lambda: tmp_path)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine.sock")
    lost = ledger.ResourceLedger("lost", tmp_path / "lost.ledger")
    lost.note("owner", "1", "1")
    lost.note(ledger.CONTAINERS)
    assert ledger.release_orphans() == ["lost"]
    assert not lost.path.exists()


def test_an_unknown_backend_and_a_missing_extra_are_said_in_one_sentence(tmp_path, monkeypatch):
    def without(_name: str):
        raise ModuleNotFoundError("No module named 'docker'", name="docker")

    monkeypatch.setattr(choice.importlib, "import_module", without)
    with pytest.raises(BackendError, match="multiraft.chaos"):
        choice.open_backend("docker", tmp_path, SPEC)


def test_time_passes_in_a_bounded_wait():
    begin_s = time.monotonic()
    assert not host.holds(lambda: False, 0.05)
    assert time.monotonic() - begin_s >= 0.05
