"""Local clusters: processes, files and what is said when something is wrong."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from admin_cli import dev_cluster
from admin_cli.connection import leaderless_groups
from admin_cli.dev_cluster import DevCluster, PortTaken
from admin_cli.development import dev_process, dev_state, process_table
from admin_cli.development.dev_process import Identity
from admin_cli.failures import CommandFailed, ExitCode, NotFound
from multiraft.storage import refusal_record
from multiraft.storage.filesystem import RealFilesystem
from node.config import load
from tests.admin_cli.conftest import end, fake_node_command
from tests.admin_cli.fakes import FakeCluster
from tests.ports import free_base_port

#: For what happens at once on a machine that is not busy.
WAIT_S = 180.0


def states(dev: DevCluster) -> dict[int, str]:
    return {node.id: node.state for node in dev.status()}


def misbehave(dev: DevCluster, node: int, how: str) -> None:
    (dev_state.node_directory(dev.directory, node) / "behaviour").write_text(how)


def test_up_starts_every_node_and_waits_until_all_serve(dev):
    assert dev.up() == [1, 2, 3]
    assert states(dev) == {1: "running", 2: "running", 3: "running"}
    assert dev.up() == [], "a cluster that runs is left alone"


def test_down_stops_every_node_and_up_starts_the_same_cluster_again(dev):
    dev.up()
    before = dev.record.cluster_id
    assert dev.down() == [1, 2, 3]
    assert states(dev) == {1: "stopped", 2: "stopped", 3: "stopped"}
    assert all(node.pid is None for node in dev.status())
    assert dev.up() == [1, 2, 3]
    assert dev.record.cluster_id == before


def test_up_waits_until_every_group_has_a_leader(dev, cluster):
    dev.up()  # however long its nodes take to start
    cluster.leaders[2] = 0
    with pytest.raises(CommandFailed, match="leaders of 1 of 5 groups") as failed:
        dev.up(timeout_s=1)
    assert failed.value.exit_code == ExitCode.UNREACHABLE


def test_progress_names_what_is_waited_for_and_reaches_the_total(dev):
    seen = []
    dev._report = lambda *step: seen.append(step)
    dev.up()
    for what, total in (("nodes ready", 3), ("nodes answering", 3), ("groups with a leader", 5)):
        assert (what, total, total) in seen


def test_kill_stop_and_start_change_one_node(dev):
    dev.up()
    pids = {node.id: node.pid for node in dev.status()}
    dev.kill(2)
    assert states(dev) == {1: "running", 2: "killed", 3: "running"}
    dev.stop(3)
    assert states(dev) == {1: "running", 2: "killed", 3: "stopped"}
    assert dev.start(2) is True
    assert dev.start(2) is False, "starting what runs changes nothing"
    assert states(dev) == {1: "running", 2: "running", 3: "stopped"}
    now = {node.id: node.pid for node in dev.status()}
    assert now[1] == pids[1]
    assert now[2] != pids[2]


def pids(dev: DevCluster) -> dict[int, int | None]:
    return {node.id: node.pid for node in dev.status()}


def test_a_restart_takes_one_node_after_the_other(dev):
    dev.up()
    before, stopped = pids(dev), []
    stop = dev.stop

    def watched(node: int) -> None:
        assert states(dev) == dict.fromkeys((1, 2, 3), "running"), "two nodes away at once"
        stopped.append(node)
        stop(node)

    dev.stop = watched
    dev.restart([1, 2, 3])
    assert stopped == [1, 2, 3]
    assert states(dev) == dict.fromkeys((1, 2, 3), "running")
    assert not set(pids(dev).values()) & set(before.values())


def test_no_node_is_taken_while_another_has_not_caught_up(dev, cluster):
    dev.up()
    before = pids(dev)
    cluster.node_status[3] = {"ready": 0, "not_ready": "catching up: 2 groups (1, 4) behind"}
    with pytest.raises(CommandFailed, match=r"timed out .*caught up \(nodes 3\)") as failed:
        dev.restart([1, 2], timeout_s=1)
    assert failed.value.exit_code == ExitCode.UNREACHABLE
    assert pids(dev) == before


def test_the_next_node_is_taken_only_when_the_last_one_has_caught_up(dev, cluster):
    dev.up()
    before, start = pids(dev), dev.start

    def behind(node: int, _timeout_s: float) -> bool:
        cluster.node_status[node] = {"ready": 0}
        return start(node)  # a process may take longer to start than is waited for it here

    dev.start = behind
    with pytest.raises(CommandFailed, match=r"caught up \(nodes 1\)"):
        dev.restart([1, 2, 3], timeout_s=2)
    assert pids(dev)[1] != before[1]
    assert (pids(dev)[2], pids(dev)[3]) == (before[2], before[3])


def test_no_node_is_taken_while_another_does_not_run(dev):
    dev.up()
    dev.stop(3)
    before = pids(dev)
    with pytest.raises(CommandFailed, match=r"nodes \[3\] do not run") as failed:
        dev.restart([1])
    assert "dev up" in failed.value.do
    assert pids(dev) == before


def test_a_node_that_the_cluster_forgot_is_not_missed(dev, cluster):
    dev.up()
    dev.kill(3)
    cluster.forgotten = {3}
    before = pids(dev)
    assert [node.id for node in dev.members()] == [1, 2]
    dev.restart([1, 2])
    assert not {pids(dev)[1], pids(dev)[2]} & set(before.values())
    assert states(dev)[3] == "killed"


def test_an_unknown_node_is_refused_before_any_is_restarted(dev):
    dev.up()
    before = pids(dev)
    with pytest.raises(NotFound, match="no node 7"):
        dev.restart([1, 7])
    assert pids(dev) == before


def test_a_node_that_ends_by_itself_is_dead_until_down_makes_that_the_wish(dev):
    dev.up()
    process = Identity(*((node := dev.record.node(1)).pid, node.start_time, node.boot))
    os.kill(process.pid, signal.SIGKILL)
    assert dev_process.wait_gone(process, WAIT_S)
    assert states(dev)[1] == "dead"
    dev.down()
    assert states(dev)[1] == "stopped"


def test_an_unknown_node_is_named_together_with_those_there_are(dev):
    with pytest.raises(NotFound, match="no node 7") as failed:
        dev.kill(7)
    assert "1, 2, 3" in failed.value.do


@pytest.mark.parametrize("action", ["kill", "stop"])
def test_ending_a_node_that_does_not_run_fails_and_says_how_to_start_it(dev, action):
    with pytest.raises(CommandFailed, match="node 1 does not run") as failed:
        getattr(dev, action)(1)
    assert "dev start 1" in failed.value.do


def test_a_node_that_dies_while_starting_is_reported_with_its_last_words(dev):
    misbehave(dev, 2, "die")
    with pytest.raises(CommandFailed, match="node 2 ended before it was ready") as failed:
        dev.up()
    assert "belongs to another node" in failed.value.message
    assert "data directory belongs to node 9" in failed.value.do


def test_last_words_are_those_of_this_run(dev):
    log = dev_state.log_path(dev.directory, 2)
    log.write_text("an old complaint\n")
    misbehave(dev, 2, "die")
    with pytest.raises(CommandFailed) as failed:
        dev.up()
    assert "an old complaint" not in failed.value.do


def test_a_node_that_never_gets_ready_is_waited_for_only_so_long(dev):
    for node in (1, 2):
        dev.start(node)
    misbehave(dev, 3, "silent")
    with pytest.raises(CommandFailed, match=r"timed out waiting for nodes ready \(nodes 3\)"):
        dev.up(timeout_s=1.5)


def test_a_stubborn_node_is_not_killed_behind_the_operators_back(dev):
    misbehave(dev, 1, "stubborn")
    dev.up()
    with pytest.raises(CommandFailed, match="node 1 .* has not ended") as failed:
        dev.stop(1, timeout_s=0.3)
    assert "dev kill 1" in failed.value.do
    assert states(dev)[1] == "stopping"
    dev.kill(1)
    assert states(dev)[1] == "killed"


def test_a_taken_port_is_named_before_anything_is_started(dev):
    port = int(dev.record.nodes[1].peer_address.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(PortTaken, match=f"port {port}, which node 2 needs"):
            dev.up()
    assert set(states(dev).values()) == {"stopped"}


def test_a_process_with_a_reused_pid_is_neither_running_nor_signalled(dev):
    dev.up()
    record = dev.record
    impostor = Identity(os.getpid(), 1, dev_process.boot_id())  # this pid, another start time
    record.node(1).pid, record.node(1).start_time, record.node(1).boot = impostor
    real = Identity(*(dev.record.node(1).pid, dev.record.node(1).start_time,
                      dev.record.node(1).boot))
    dev_state.save(dev.directory, record)
    assert states(dev)[1] == "dead"
    assert not dev_process.send_signal(impostor, signal.SIGKILL)
    assert dev_process.send_signal(real, signal.SIGKILL)
    assert dev_process.wait_gone(real, WAIT_S)


def test_a_pid_of_an_earlier_boot_is_not_alive():
    me = process_table.start_time(os.getpid())
    assert dev_process.alive(Identity(os.getpid(), me, dev_process.boot_id()))
    assert not dev_process.alive(Identity(os.getpid(), me, "another-boot"))


def test_wipe_removes_our_files_and_keeps_those_of_others(dev, environ):
    dev_state.write_pointer(dev.directory, environ)
    (dev.directory / "notes.txt").write_text("mine")
    dev.up()
    with pytest.raises(CommandFailed, match="still run"):
        dev.wipe()
    dev.down()
    dev.wipe()
    assert [path.name for path in dev.directory.iterdir()] == ["notes.txt"]
    assert not dev_state.pointer_path(environ).exists()


def test_wipe_removes_what_the_demo_wrote_and_keeps_plans_of_the_user(dev):
    place = dev_state.demo_directory(dev.directory)
    place.mkdir()
    for name in dev_state.DEMO_FILES:
        (place / name).write_text("of the demo")
        (dev.directory / name).write_text("mine")
    dev.wipe()
    assert not place.exists()
    assert sorted(path.name for path in dev.directory.iterdir()) == sorted(dev_state.DEMO_FILES)


def test_wipe_keeps_what_lies_beside_the_files_of_the_demo(dev):
    place = dev_state.demo_directory(dev.directory)
    place.mkdir()
    (place / dev_state.DEMO_FILES[0]).write_text("of the demo")
    (place / "mine.json").write_text("mine")
    dev.wipe()
    assert [path.name for path in place.iterdir()] == ["mine.json"]


def test_a_directory_of_something_else_is_not_taken(tmp_path, cluster, environ):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.tex").write_text("years of work")
    with pytest.raises(CommandFailed, match="not empty and holds no cluster"):
        DevCluster(tmp_path / "taken", cluster.connect, environ).create(3, 4, 3, 9100)


def test_a_port_that_is_taken_leaves_the_directory_of_a_new_cluster_as_it_was(
        tmp_path, cluster, environ):
    made = DevCluster(tmp_path / "new", cluster.connect, environ, command=fake_node_command)
    base = free_base_port(3)
    with socket.create_server(("127.0.0.1", base + 102)):
        with pytest.raises(PortTaken, match=f"port {base + 102}, which node 2 needs"):
            made.create(3, 4, 3, base)
    assert not made.directory.exists()
    made.create(3, 4, 3, base)


def test_a_cluster_of_which_no_node_was_ever_started_is_made_again(dev):
    before = dev.record
    (dev.directory / "notes.txt").write_text("mine")
    base = free_base_port(2)
    dev.create_again(2, 4, 1, base, 1_000)
    made = dev.record
    assert (len(made.nodes), made.groups, made.replication_factor, made.base_port,
            made.loads_ms) == (2, 4, 1, base, 1_000)
    assert made.cluster_id != before.cluster_id
    assert sorted(path.name for path in dev.directory.iterdir()) == [
        "cluster.json", "lock", "node-1", "node-2", "notes.txt"]
    assert dev.up() == [1, 2]


def test_a_cluster_that_was_started_once_is_not_made_again(dev):
    """However that ended: it may have records."""
    misbehave(dev, 2, "die")
    with pytest.raises(CommandFailed, match="node 2 ended"):
        dev.up()
    dev.down()
    before = dev.record
    with pytest.raises(CommandFailed, match="nodes .* were started: nothing was changed"):
        dev.create_again(3, 4, 3, free_base_port(3))
    assert dev.record == before
    assert all(dev_state.log_path(dev.directory, node.id).exists() for node in before.nodes)


def test_ports_that_are_taken_leave_the_cluster_that_would_have_been_made_again(dev):
    before, base = dev.record, free_base_port(3)
    with socket.create_server(("127.0.0.1", base + 1)), pytest.raises(PortTaken):
        dev.create_again(3, 4, 3, base)
    assert dev.record == before
    assert dev.up() == [1, 2, 3]


def test_no_base_port_is_offered_of_which_a_port_does_not_exist():
    with pytest.raises(CommandFailed, match="no free ports from 65136"):
        dev_cluster.free_base_port(dev_cluster.BASE_PORT_MAX + 1, 1)


def test_the_program_that_has_a_port_is_named(dev):
    """By what the process table knows: here a Python program that is no node."""
    port = int(dev.record.nodes[0].client_address.rpartition(":")[2])
    program = [sys.executable, "-c", "import socket, sys\n"
               f"listener = socket.create_server(('127.0.0.1', {port}))\n"
               "print('listening', flush=True)\nsys.stdin.read()"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"listening\n"
        with pytest.raises(PortTaken) as failed:
            dev.up()
        other.stdin.close()
    assert f"port {port}, which node 1 needs" in failed.value.message
    assert f"pid {other.pid}" in failed.value.message
    assert f"({Path(sys.executable).name} -c import socket" in failed.value.message


def test_a_connection_that_has_a_port_is_named_too(dev):
    """The kernel may give an outgoing connection any port that it chooses."""
    port = int(dev.record.nodes[0].client_address.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        connection.bind(("127.0.0.1", port))
        connection.connect(server.getsockname())
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        with pytest.raises(PortTaken, match=f"pid {os.getpid()}"):
            dev.up()


def test_a_port_of_which_the_user_is_not_known_is_named_without(dev, monkeypatch):
    port = int(dev.record.nodes[0].client_address.rpartition(":")[2])
    monkeypatch.setattr(process_table, "SOCKET_TABLES", ())
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(PortTaken, match=r"Address already in use\.$") as failed:
            dev.up()
    assert "is not known" in failed.value.do


def test_a_node_of_another_cluster_that_has_a_port_is_named_with_its_directory(
        dev, cluster, environ):
    dev.up()
    other = sibling(dev, "other", cluster, environ)
    with pytest.raises(PortTaken) as failed:
        other.create(3, 4, 3, dev.record.base_port)
    assert f"node 1 of the cluster in {dev.directory}" in failed.value.message
    assert f"multiraft dev down --dir {dev.directory}" in failed.value.do
    assert not other.directory.exists()


@pytest.mark.parametrize("there_before", [True, False])
def test_an_interrupted_creation_leaves_the_directory_free_for_the_next(
        tmp_path, cluster, environ, monkeypatch, there_before):
    def interrupted(commands, timeout_s):
        raise KeyboardInterrupt

    made = DevCluster(tmp_path / "half", cluster.connect, environ)
    if there_before:
        made.directory.mkdir()
    with monkeypatch.context() as patched:
        patched.setattr("admin_cli.development.dev_process.run_all", interrupted)
        with pytest.raises(KeyboardInterrupt):
            made.create(3, 4, 3, 9100)
    assert not made.directory.exists()
    monkeypatch.setattr("admin_cli.development.dev_process.run_all", lambda commands, timeout_s: [])
    made.create(3, 4, 3, 9100)
    assert len(made.record.nodes) == 3


def test_each_node_gets_its_own_configuration_and_the_same_member_list(dev):
    configs = [tomllib.loads(dev_state.config_path(dev.directory, node.id).read_text())
               for node in dev.record.nodes]
    for node, config in zip(dev.record.nodes, configs, strict=True):
        assert config["node"] == {
            "id": node.id, "rack": f"r{node.id}", "weight": 1.0,
            "data_dir": "data",
            "client_address": node.client_address, "peer_address": node.peer_address}
        assert config["cluster"] == configs[0]["cluster"]
    assert configs[0]["cluster"]["id"] == dev.record.cluster_id
    assert configs[0]["cluster"]["groups"] == 4
    assert configs[0]["cluster"]["replication_factor"] == 3
    assert [member["id"] for member in configs[0]["cluster"]["nodes"]] == [1, 2, 3]


@pytest.mark.parametrize(("loads_ms", "table"), [
    (0, None), (2_000, {"publish": True, "interval_ms": 2_000}),
    (dev_state.LOADS_OFF, {"publish": False})])
def test_loads_are_published_as_often_as_asked_or_never(tmp_path, cluster, environ, loads_ms,
                                                        table):
    made = DevCluster(tmp_path / "made", cluster.connect, environ)
    made.create(1, 1, 1, 9100, loads_ms)
    path = dev_state.config_path(made.directory, 1)
    assert tomllib.loads(path.read_text()).get("metrics") == table
    assert load(path).metrics.publish is (loads_ms >= 0)
    assert dev_state.load(made.directory).loads_ms == loads_ms


def test_strange_directory_names_survive_toml(tmp_path, cluster, environ):
    made = DevCluster(tmp_path / 'a "b" \\ \x7f é 🛫', cluster.connect, environ)
    made.create(1, 1, 1, 9100)
    config = tomllib.loads(dev_state.config_path(made.directory, 1).read_text())
    assert config["node"]["id"] == 1


def data_of(dev: DevCluster, node: int):
    """Return the node's data directory, by its own reading of its configuration."""
    return load(dev_state.config_path(dev.directory, node)).data_dir.resolve()


def sibling(dev: DevCluster, name: str, cluster, environ) -> DevCluster:
    """The cluster of another directory beside this one."""
    return DevCluster(dev.directory.with_name(name), cluster.connect_over_tcp, environ,
                      command=fake_node_command)


@pytest.mark.parametrize("carry", [shutil.copytree, shutil.move], ids=["copied", "moved"])
def test_a_directory_that_was_copied_or_moved_has_its_own_data(dev, cluster, environ, carry):
    other = sibling(dev, "other", cluster, environ)
    carry(dev.directory, other.directory)
    for node in other.record.nodes:
        assert data_of(other, node.id) == other.directory / f"node-{node.id}" / "data"


def with_absolute_data(dev: DevCluster, place: str) -> None:
    """Makes the configuration of node 1 what earlier releases wrote."""
    path = dev_state.config_path(dev.directory, 1)
    path.write_text(path.read_text().replace('data_dir = "data"', f'data_dir = "{place}"'))
    (path.parent / "data").mkdir(exist_ok=True)


def test_a_copy_of_a_directory_with_absolute_paths_runs_on_its_own_data(dev, cluster, environ):
    """As releases before this one wrote them."""
    with_absolute_data(dev, str(dev.directory / "node-1" / "data"))
    other = sibling(dev, "other", cluster, environ)
    shutil.copytree(dev.directory, other.directory)
    try:
        other.up()
        assert data_of(other, 1) == other.directory / "node-1" / "data"
        assert data_of(dev, 1) == dev.directory / "node-1" / "data"
    finally:
        end(other)


def test_a_data_directory_that_the_user_chose_stays(dev, tmp_path):
    elsewhere = tmp_path / "disk" / "data"
    with_absolute_data(dev, str(elsewhere))
    dev.up()
    assert data_of(dev, 1) == elsewhere


def test_a_copy_of_a_running_cluster_neither_sees_nor_ends_the_nodes_of_the_original(
        dev, cluster, environ):
    dev.up()
    before = pids(dev)
    copy = sibling(dev, "copy", cluster, environ)
    shutil.copytree(dev.directory, copy.directory)
    assert set(states(copy).values()) == {"dead"}
    assert copy.down() == []
    with pytest.raises(CommandFailed, match="does not run"):
        copy.kill(1)
    with pytest.raises(CommandFailed, match="cannot be used: Address already in use"):
        copy.up()
    assert pids(dev) == before
    assert set(states(dev).values()) == {"running"}


def test_a_cluster_that_is_moved_while_it_runs_is_still_recognised(dev, cluster, environ):
    dev.up()
    before = pids(dev)
    moved = sibling(dev, "moved", cluster, environ)
    shutil.move(dev.directory, moved.directory)
    try:
        assert pids(moved) == before
        assert moved.down() == [1, 2, 3]
    finally:
        shutil.move(moved.directory, dev.directory)


@pytest.fixture
def full_disk(monkeypatch):
    """Return a function after which no file of this process takes a byte."""
    def write_text(path: Path, *_: object, **__: object) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return lambda: monkeypatch.setattr(Path, "write_text", write_text)


@pytest.mark.parametrize("end_it", [lambda dev: dev.down(), lambda dev: dev.stop(2),
                                    lambda dev: dev.kill(2)], ids=["down", "stop", "kill"])
def test_ending_nodes_needs_no_disk_space(dev, full_disk, end_it):
    dev.up()
    record = (dev.directory / "cluster.json").read_text()
    full_disk()
    end_it(dev)
    assert dev.record.node(2).pid is not None
    assert states(dev)[2] == "dead", "its end could not be recorded as wanted"
    assert isinstance(dev.unrecorded, OSError)
    assert dev.unrecorded.filename == str(dev.directory / "cluster.json")
    assert (dev.directory / "cluster.json").read_text() == record
    assert not list(dev.directory.glob("*.tmp"))


def test_starting_a_node_on_a_full_disk_names_the_file_and_leaves_no_process(
        dev, full_disk, monkeypatch):
    dev.up()
    dev.stop(2)
    assert dev.unrecorded is None
    full_disk()
    started, start = [], dev_process.start
    monkeypatch.setattr(dev_process, "start",
                        lambda *arguments: started.append(start(*arguments)) or started[-1])
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)) as failed:
        dev.start(2)
    assert failed.value.filename == str(dev.directory / "cluster.json")
    [process] = started
    try:
        assert not dev_process.alive(process), "no command would find it"
    finally:
        dev_process.send_signal(process, signal.SIGKILL)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1}', "not json",
                                  "[" * 20_000 + "]" * 20_000],
                         ids=["empty", "list", "object", "version", "text", "nested"])
def test_a_damaged_record_is_an_error_and_not_a_traceback(dev, text):
    record = dev.directory / "cluster.json"
    whole = record.read_text()
    record.write_text(text)
    with pytest.raises(CommandFailed, match="is not a cluster record"):
        _ = dev.record
    record.write_text(whole)


def test_a_line_that_is_nested_too_deeply_does_not_end_the_wait_for_a_node():
    assert not dev_cluster._is_ready_line(b'{"event": ' + b"[" * 20_000 + b"]" * 20_000 + b"}")


def test_a_record_of_a_newer_release_is_refused(dev):
    record = dev.directory / "cluster.json"
    whole = record.read_text()
    record.write_text(json.dumps({**json.loads(whole), "version": 99}))
    with pytest.raises(CommandFailed, match="format 99"):
        _ = dev.record
    record.write_text(whole)


def test_the_lock_is_waited_for_only_so_long(dev, monkeypatch):
    monkeypatch.setattr(dev_state, "LOCK_TIMEOUT_S", 0.1)
    with dev_state.locked(dev.directory):
        with pytest.raises(CommandFailed, match="another command"):
            dev.kill(1)


def test_groups_by_which_the_pool_grew_are_waited_for_too():
    """Or a cluster of which all nodes were killed would never be up again."""
    cluster = FakeCluster()
    assert leaderless_groups(cluster.connect, ("127.0.0.1:9101",), 3) == (0, 5)
    cluster.leaders[4] = 0
    assert leaderless_groups(cluster.connect, ("127.0.0.1:9101",), 3) == (1, 5)
    cluster.failure = ConnectionRefusedError("nobody listens")
    assert leaderless_groups(cluster.connect, ("127.0.0.1:9101",), 3) == (3, 3)


def refuse(dev: DevCluster, node: int, reason: str) -> None:
    """Leave in the node's data directory what a node does that its cluster has refused."""
    data = data_of(dev, node)
    data.mkdir(exist_ok=True)
    refusal_record.write(RealFilesystem(), str(data), refusal_record.RefusalRecord(reason))


#: As a peer, the registration and the metadata group word it.
REMOVED_REASONS = [
    "node 3: it refuses this node: node 2 was removed from the cluster permanently: a node that "
    "was removed can rejoin only as a new one",
    "node 2 was removed from the cluster: a node that was removed can rejoin only as a new one",
    "node 2 was removed from the cluster, and ids are never used again",
]


def test_a_node_that_was_removed_is_left_out(dev):
    dev.up()
    dev.kill(2)
    refuse(dev, 2, REMOVED_REASONS[0])
    assert states(dev) == {1: "running", 2: "removed", 3: "running"}
    assert [node.id for node in dev.members()] == [1, 3]
    assert len(dev.addresses) == 2
    assert dev.up() == []
    dev.restart([1, 3])
    assert dev.down() == [1, 3]
    assert states(dev) == {1: "stopped", 2: "removed", 3: "stopped"}
    assert dev.up() == [1, 3]


@pytest.mark.parametrize("reason", REMOVED_REASONS)
def test_a_removed_node_is_not_started_and_the_next_step_is_said(dev, reason):
    dev.up()
    dev.kill(2)
    refuse(dev, 2, reason)
    for command in (dev.start, dev.stop, dev.kill, lambda node: dev.restart([node])):
        with pytest.raises(CommandFailed, match="node 2 was removed from the cluster") as failed:
            command(2)
        assert "multiraft dev add-node --dir" in failed.value.do


def test_a_node_that_learns_at_its_start_that_it_was_removed_is_not_waited_for(dev):
    dev.up()
    dev.kill(2)
    data_of(dev, 2).mkdir(exist_ok=True)
    misbehave(dev, 2, "removed")
    assert dev.up() == []
    assert states(dev) == {1: "running", 2: "removed", 3: "running"}


def test_a_node_that_was_refused_for_another_reason_is_not_left_out(dev):
    refuse(dev, 2, "node 3: a copy of a data directory must never be started")
    misbehave(dev, 2, "die")
    with pytest.raises(CommandFailed, match="node 2 ended before it was ready"):
        dev.up()


def test_up_waits_until_every_node_knows_the_leaders_and_says_which_does_not(dev, cluster):
    dev.up()
    cluster.node_status[3] = {"ready": 0, "not_ready": "no leader is known: 5 groups (0, 1, ...)"}
    with pytest.raises(CommandFailed, match=r"caught up \(nodes 3\): node 3: no leader is known: 5 "
                                            r"groups \(0, 1, \.\.\.\)\.") as failed:
        dev.up(timeout_s=1)
    assert failed.value.exit_code == ExitCode.UNREACHABLE
