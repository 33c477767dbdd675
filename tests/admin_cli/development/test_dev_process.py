"""Processes as the kernel shows them, in the states that are easily mistaken."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from admin_cli.development import dev_process, process_table
from admin_cli.development.dev_process import Identity

WAIT_S = 180.0
POLL_S = 0.02

#: Its first thread ends and another one continues: a zombie that still holds its resources.
HALF_ENDED = """
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def state(pid: int) -> str:
    """The letter that /proc shows."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def half_ended():
    child = subprocess.Popen([sys.executable, "-c", HALF_ENDED], stdin=subprocess.PIPE)
    deadline = time.monotonic() + WAIT_S
    while state(child.pid) != "Z":
        assert time.monotonic() < deadline
        time.sleep(POLL_S)
    yield child
    child.stdin.close()
    child.kill()
    child.wait()


def test_a_process_whose_last_thread_has_not_ended_is_not_gone(half_ended):
    start_time = process_table.start_time(half_ended.pid)
    assert start_time is not None
    assert dev_process.alive(Identity(half_ended.pid, start_time, dev_process.boot_id()))


def test_a_process_that_has_ended_is_gone_before_its_parent_looked(half_ended):
    process = Identity(half_ended.pid, process_table.start_time(half_ended.pid),
                       dev_process.boot_id())
    half_ended.kill()
    assert dev_process.wait_gone(process, WAIT_S)


def test_an_interrupted_wait_leaves_no_command_running(monkeypatch):
    started = []
    popen = subprocess.Popen

    def recorded(*arguments, **keywords):
        started.append(popen(*arguments, **keywords))
        return started[-1]

    def interrupted(child, timeout_s):
        raise KeyboardInterrupt

    monkeypatch.setattr(dev_process.subprocess, "Popen", recorded)
    monkeypatch.setattr(dev_process, "_complaint", interrupted)
    with pytest.raises(KeyboardInterrupt):
        dev_process.run_all([[sys.executable, "-c", "import time; time.sleep(600)"]] * 2, 600)
    assert [child.returncode for child in started] == [-9, -9]


def test_a_command_that_does_not_end_in_time_is_killed_and_that_is_said():
    [complaint] = dev_process.run_all([[sys.executable, "-c", "import time; time.sleep(600)"]], 0.1)
    assert complaint == "it had not ended after 0 s; is the machine overloaded?"
