"""A node as a process: its exit codes and its output."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import trio

from node import main as main_module
from node.config import parse
from node.errors import DiskFailed
from node.loop.checkpoints import Checkpoints
from node.main import init, run
from tests.node.harness import make_node, one_node_table
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
LIMIT_S = 180

TOML = """
[node]
id = 1
data_dir = "data"
client_address = "{client_address}"
peer_address = "{peer_address}"

[cluster]
id = "{cluster}"
groups = 2
replication_factor = 1

[[cluster.nodes]]
id = 1
client_address = "{client_address}"
peer_address = "{peer_address}"
"""


def write_config(tmp_path: Path, name: str = "node.toml", cluster: str | None = None) -> Path:
    """Write the configuration of a cluster of one, on free ports."""
    table = one_node_table()
    path = tmp_path / name
    path.write_text(TOML.format(cluster=cluster or table["cluster"]["id"],
                                **table["cluster"]["nodes"][0]))
    return path


def initialised(tmp_path: Path) -> Path:
    """Write a configuration and create a data directory with its identity."""
    path = write_config(tmp_path)
    assert init(path) == 0
    return path


class Process:
    """A node in a process of its own, whose log is read line by line."""

    def __init__(self, config: Path, *options: str):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "node", "start", "--config", str(config), *options], cwd=ROOT,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._killer = threading.Timer(LIMIT_S, self.process.kill)
        self._killer.start()
        self.events: list[dict] = []

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        self._killer.cancel()
        self.process.kill()
        self.process.communicate()

    def until(self, event: str) -> dict:
        """Return the first log line with this event."""
        for line in self.process.stdout:
            self.events.append(json.loads(line))
            if self.events[-1]["event"] == event:
                return self.events[-1]
        raise AssertionError(f"{event} never came: {self.events} {self.process.stderr.read()}")

    def end(self) -> tuple[int, str]:
        """Return (exit code, standard error)."""
        said, complained = self.process.communicate(timeout=LIMIT_S)
        self.events += map(json.loads, said.splitlines())
        return self.process.returncode, complained


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_node_in_order(tmp_path, how):
    with Process(initialised(tmp_path)) as node:
        assert node.until("node_started")["groups"] == 3
        node.process.send_signal(how)
        assert node.end() == (0, "")
        assert node.events[-1]["event"] == "node_stopped"
    assert list((tmp_path / "data").glob("checkpoint*")), "a checkpoint was written"


def test_a_service_manager_hears_of_the_open_ports_and_of_the_stop(tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(LIMIT_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        config = initialised(tmp_path)
        with Process(config) as node:
            assert manager.recv(100) == b"READY=1"
            address = main_module.load(config).node.client_address
            socket.create_connection((address.host, address.port), LIMIT_S).close()
            node.process.send_signal(signal.SIGTERM)
            assert manager.recv(100) == b"STOPPING=1"
            assert node.end() == (0, "")


def test_a_second_process_on_the_directory_says_who_has_it(tmp_path):
    with Process(initialised(tmp_path)) as first:
        first.until("node_started")
        with Process(write_config(tmp_path, "second.toml")) as second:
            code, complained = second.end()
            assert code == 3
            assert str(first.process.pid) in complained


def test_a_directory_without_identity_is_no_new_node(tmp_path, capsys):
    config = write_config(tmp_path)
    assert run(config) == 3
    complained = capsys.readouterr().err
    assert "not mounted" in complained and "node init" in complained
    assert not (tmp_path / "data").exists(), "nothing is written where a disk should be mounted"
    assert init(config) == 0
    (tmp_path / "data" / "node.json").unlink()
    assert run(config) == 3, "it was initialised, and then lost its identity"


def test_a_cluster_that_cannot_be_joined_is_said_and_leaves_nothing(tmp_path, capsys, monkeypatch):
    path = tmp_path / "joining.toml"
    text = initialised(tmp_path).read_text()
    path.write_text(text[:text.index("[cluster]")].replace('"data"', '"other"'))
    nobody = f"127.0.0.1:{free_port()}"
    assert init(path, [nobody]) == 2
    assert nobody in capsys.readouterr().err
    monkeypatch.setenv("MULTIRAFT_TLS_CA", str(tmp_path / "absent.pem"))
    assert init(path, [nobody]) == 2
    assert "absent.pem" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_the_directory_of_another_cluster_is_refused(tmp_path, capsys):
    make_node(parse(one_node_table(), tmp_path)).close()
    assert run(write_config(tmp_path, cluster="f" * 32)) == 3
    assert "cluster" in capsys.readouterr().err


def test_a_directory_that_cannot_be_used_is_no_crash(tmp_path, capsys):
    (tmp_path / "data").write_text("a file")
    assert run(write_config(tmp_path)) == 3
    assert "data" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "[node", "[node]\nid = 1\n"])
def test_a_configuration_that_says_nothing_useful_is_named(tmp_path, capsys, text):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    assert run(path) == 2
    assert "bad.toml" in capsys.readouterr().err
    assert run(tmp_path / "absent.toml") == 2


def test_an_address_in_use_is_the_configurations_fault(tmp_path, capsys):
    config = initialised(tmp_path)
    with main_module.listen(main_module.load(config).node.client_address):
        assert run(config) == 2
    assert "cannot listen" in capsys.readouterr().err


def test_http_answers_while_recovery_blocks_the_main_thread(tmp_path, monkeypatch, capsys):
    port, answers = free_port(), []
    config = initialised(tmp_path)
    config.write_text(config.read_text() + f'[http]\naddress = "127.0.0.1:{port}"\n')

    def recover(directory, filesystem, identity, progress):
        progress.segments_total, progress.segments_done = 12, 3
        for path in ("healthz", "readyz"):
            try:
                url = f"http://127.0.0.1:{port}/{path}"
                with urllib.request.urlopen(url, timeout=LIMIT_S) as said:
                    answers.append((said.status, json.load(said)["reason"]))
            except urllib.error.HTTPError as error:
                with error:
                    answers.append((error.status, json.load(error)["reason"]))
        raise OSError("that is enough")

    monkeypatch.setattr(main_module.Store, "open", recover)
    assert run(config) == 3
    assert answers == [(200, "recovering: 3 of 12 segments"),
                       (503, "recovering: 3 of 12 segments")]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_a_second_process_hears_of_the_directory_and_not_of_the_port(tmp_path):
    config = initialised(tmp_path)
    config.write_text(config.read_text() + f'[http]\naddress = "127.0.0.1:{free_port()}"\n')
    with Process(config) as first:
        first.until("node_started")
        with Process(config) as second:
            code, complained = second.end()
            assert code == 3
            assert str(first.process.pid) in complained


def test_an_http_address_in_use_is_the_configurations_fault_too(tmp_path, capsys):
    config = initialised(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config.write_text(config.read_text() + f'[http]\naddress = "127.0.0.1:{port}"\n')
        assert run(config) == 2
    assert "cannot listen" in capsys.readouterr().err


def test_a_port_that_nobody_named_may_be_taken(tmp_path):
    """The node runs even if another process, or this test, has taken the default port."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            stack.enter_context(socket.create_server(("127.0.0.1", 9301)))
        with Process(initialised(tmp_path)) as node:
            node.until("node_started")
    [warned] = [event for event in node.events
                if event["event"] == "http_disabled"]
    assert warned["level"] == "warning" and "9301" in warned["reason"]


def test_the_log_can_be_text_for_people(tmp_path):
    with Process(initialised(tmp_path), "--log-format", "text", "--log-level", "error") as node:
        node.process.send_signal(signal.SIGTERM)
        said, _ = node.process.communicate(timeout=LIMIT_S)
    assert said == "", "nothing here is an error"


def failing(monkeypatch, error: BaseException) -> None:
    """Make a task of every node fail once the node serves."""

    async def fail(self):
        while not self._writer._core.status.has_applied_in_term(0):
            await trio.sleep(0.002)
        raise error

    monkeypatch.setattr(Checkpoints, "run", fail)


def test_a_disk_that_fails_ends_with_its_own_code_and_no_traceback(tmp_path, monkeypatch, capsys):
    failing(monkeypatch, DiskFailed("fsync failed"))
    assert run(initialised(tmp_path)) == 4
    captured = capsys.readouterr()
    assert "fsync failed" in captured.err
    assert "traceback" not in captured.out


def test_a_defect_ends_the_node_with_its_traceback_in_the_log(tmp_path, monkeypatch, capsys):
    failing(monkeypatch, ZeroDivisionError("a defect"))
    with pytest.raises(ExceptionGroup):  # the interpreter's exit code is 1
        run(initialised(tmp_path))
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["event"] == "node_crashed"
    assert "a defect" in last["traceback"]


def test_what_was_acknowledged_is_there_after_a_restart(tmp_path):
    config = initialised(tmp_path)
    for expected in (1, 2):
        with Process(config) as node:
            assert node.until("node_started")["boot_epoch"] == expected
            node.process.send_signal(signal.SIGTERM)
            assert node.end()[0] == 0
