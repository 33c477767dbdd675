"""Launcher in front of a real node: it runs the command, plants bugs, and shifts the node's
clock."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import pytest

from chaos import launcher
from chaos.planted import plugin
from chaos.run.parameters import SMALL_FILES
from chaos.shifted_clock import ClockShift, write_shift
from tests.ports import free_port

ROOT = Path(__file__).parents[3]
LIMIT_S = 180
POLL_S = 0.02

TOML = """
[node]
id = 1
data_dir = "data"
client_address = "127.0.0.1:{0}"
peer_address = "127.0.0.1:{1}"
[http]
address = "127.0.0.1:{2}"
[cluster]
id = "0123456789abcdef0123456789abcdef"
groups = 2
replication_factor = 1
[[cluster.nodes]]
id = 1
client_address = "127.0.0.1:{0}"
peer_address = "127.0.0.1:{1}"
"""


class Node:
    """A node under the launcher; its log is read line by line."""

    def __init__(self, directory: Path, planted: tuple[str, ...] = (), clock: Path | None = None):
        self.config = directory / "node.toml"
        if not self.config.exists():
            self.config.write_text(TOML.format(*(free_port() for _ in range(3))))
            self.run("init")
        self.http = self.config.read_text().split('[http]\naddress = "')[1].split('"')[0]
        self.process = subprocess.Popen(
            launcher.command_line(["node", "start", "--config", str(self.config)],
                                  (*planted, *plugin.active()), clock),
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._killer = threading.Timer(LIMIT_S, self.process.kill)
        self._killer.start()

    def run(self, action: str) -> None:
        """Run a command that ends by itself."""
        subprocess.run(launcher.command_line(["node", action, "--config", str(self.config)]),
                       cwd=ROOT, check=True, timeout=LIMIT_S, capture_output=True)

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        self._killer.cancel()
        self.process.kill()
        self.process.communicate()

    def until(self, event: str) -> dict:
        """Return the first line of the log with this event."""
        for line in self.process.stdout:
            found = json.loads(line)
            if found["event"] == event:
                return found
        raise AssertionError(f"{event} never came: {self.process.stderr.read()}")

    def uptime_s(self) -> float:
        """Return the seconds that the node has run, by its own clock."""
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=LIMIT_S) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith("multiraft_uptime_seconds "):
                    return float(line.split()[1])
        raise AssertionError("the node does not say how long it has run")


def test_it_runs_the_command_as_it_is():
    done = subprocess.run(launcher.command_line(["version", "--json"]), cwd=ROOT,
                          capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    assert "multiraft" in json.loads(done.stdout)
    done = subprocess.run(launcher.command_line(["no-such-command"]), cwd=ROOT,
                          capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 2 and "no-such-command" in done.stderr


@pytest.mark.parametrize("words,said", [
    (["--planted", "no-such-bug", "--", "version"], "no-such-bug"),
    (["--planted", "aba"], "follows --"),
    (["--clock", "/nowhere/at/all", "--", "version"], "/nowhere/at/all"),
])
def test_what_cannot_be_done_is_said(words, said):
    done = subprocess.run([sys.executable, "-P", "-m", "chaos.launcher", *words], cwd=ROOT,
                          env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
                          timeout=LIMIT_S)
    assert done.returncode != 0 and said in done.stderr


def test_a_node_is_one_process_that_ends_in_order(tmp_path):
    with Node(tmp_path) as node:
        node.until("node_started")
        node.process.send_signal(signal.SIGTERM)
        _said, complained = node.process.communicate(timeout=LIMIT_S)
        assert (node.process.returncode, complained) == (0, "")


def test_a_nodes_clock_jumps_while_it_runs(tmp_path):
    shift = tmp_path / "clock"
    write_shift(shift, ClockShift())
    began = time.monotonic()
    with Node(tmp_path, clock=shift) as node:
        node.until("node_started")
        assert node.uptime_s() <= time.monotonic() - began
        write_shift(shift, ClockShift(monotonic_ms=3_600_000))
        while (uptime_s := node.uptime_s()) < 3_600:
            # until the node has read the file; the timer of ``Node`` bounds the wait
            time.sleep(POLL_S)
        assert uptime_s <= 3_600 + time.monotonic() - began
        node.process.send_signal(signal.SIGTERM)
        assert node.process.wait(LIMIT_S) == 0, node.process.stderr.read()


def test_a_wall_clock_that_jumps_is_nothing_to_a_node(tmp_path):
    shift = tmp_path / "clock"
    write_shift(shift, ClockShift())
    with Node(tmp_path, clock=shift) as node:
        node.until("node_started")
        before_s = node.uptime_s()
        for wall_ms in (86_400_000, -86_400_000):
            write_shift(shift, ClockShift(wall_ms=wall_ms))
            seen_s = node.uptime_s()
            while node.uptime_s() < seen_s + 0.2:
                # some rounds under that clock; the timer of ``Node`` bounds the wait
                time.sleep(POLL_S)
        assert before_s <= node.uptime_s() < before_s + LIMIT_S
        node.process.send_signal(signal.SIGTERM)
        assert node.process.wait(LIMIT_S) == 0, node.process.stderr.read()


SHOW = """
import multiraft.raft.raft_log
print(multiraft.raft.raft_log.RaftLog.truncate.__code__.co_filename)
"""


def test_planted_bugs_are_in_the_process_of_the_command(tmp_path):
    (tmp_path / "shows_code.py").write_text(SHOW)
    program = ("from chaos import launcher; launcher.COMMAND_MODULE = 'shows_code'; "
               "launcher.main(['--planted', 'aba', '--', 'anything'])")
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True,
                          env={"PYTHONPATH": f"{ROOT}:{tmp_path}"}, timeout=LIMIT_S)
    assert done.stdout == "<planted in RaftLog.truncate>\n", done.stderr


SHOW_SIZES = """
import inspect
from multiraft.storage.store import Store
config = inspect.signature(Store.open).parameters["config"].default
print(config.first_segment_bytes, config.segment_bytes_max, config.checkpoints_kept)
"""
RUN_SIZES = ("from chaos import launcher; launcher.COMMAND_MODULE = 'shows_sizes'; "
             "launcher.main({0!r} + ['--', 'anything'])")


def sizes_with(tmp_path: Path, *words: str) -> subprocess.CompletedProcess:
    (tmp_path / "shows_sizes.py").write_text(SHOW_SIZES)
    return subprocess.run([sys.executable, "-c", RUN_SIZES.format([*words])], cwd=ROOT, text=True,
                          capture_output=True, env={"PYTHONPATH": f"{ROOT}:{tmp_path}"},
                          timeout=LIMIT_S)


def test_the_store_of_the_command_has_files_of_the_sizes_given(tmp_path):
    words = [f"--storage={name}={size}" for name, size in SMALL_FILES.items()]
    done = sizes_with(tmp_path, *words, "--storage", "segment_bytes_max=1048576",
                      "--planted", "short-cold-segment-is-whole")
    assert done.stdout == f"{SMALL_FILES['first_segment_bytes']} 1048576 2\n", done.stderr


@pytest.mark.parametrize("size,said", [
    ("no_such_size=1", "no_such_size is no size of files: entry_bytes_max, first_segment_bytes"),
    ("first_segment_bytes=4096", "first_segment_bytes=4096 cannot hold an entry"),
    ("first_segment_bytes=much", "invalid size value"),
])
def test_sizes_that_no_store_has_are_refused(tmp_path, size, said):
    done = sizes_with(tmp_path, "--storage", size)
    assert done.returncode != 0 and said in done.stderr
