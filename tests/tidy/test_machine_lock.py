"""A test run that waits for the lock of the machine says so, and for whom."""

from __future__ import annotations

import fcntl
import itertools
import subprocess
import sys
import threading

import pytest

from tests import machine_lock
from tests.tidy import tree

#: Only a failure waits this long.
WAIT_S = 60.0


class Waiter(threading.Thread):
    """Another test run, which wants the lock."""

    def __init__(self, path, reported_after_s: float):
        super().__init__(daemon=True)
        self.path, self.reported_after_s = path, reported_after_s
        self.told: list[str] = []
        self.reported, self.holds = threading.Event(), threading.Event()

    def run(self) -> None:
        with machine_lock.held("the waiter", self.report, self.path, self.reported_after_s):
            self.holds.set()

    def report(self, text: str) -> None:
        self.told.append(text)
        self.reported.set()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "lock"


def test_a_wait_is_reported_once_with_the_holder_and_ends_with_the_lock(path):
    with machine_lock.held("pid 7: tests/e2e/test_full_disk.py", pytest.fail, path):
        waiter = Waiter(path, 0.01)
        waiter.start()
        assert waiter.reported.wait(WAIT_S)
        assert not waiter.holds.is_set()
    assert waiter.holds.wait(WAIT_S)
    waiter.join(WAIT_S)
    assert waiter.told == [f"waiting for the lock of the machine, {path}, held by "
                           "pid 7: tests/e2e/test_full_disk.py"]
    assert path.read_text() == "", "nobody holds it"


def test_a_holder_that_does_not_name_itself_is_another_test_run(path):
    with open(path, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waiter = Waiter(path, 0.01)
        waiter.start()
        assert waiter.reported.wait(WAIT_S)
    assert waiter.holds.wait(WAIT_S)
    assert waiter.told[0].endswith("held by another test run")


def test_a_lock_that_is_free_is_taken_without_a_word(path):
    waiter = Waiter(path, WAIT_S)
    waiter.start()
    assert waiter.holds.wait(WAIT_S)
    waiter.join(WAIT_S)
    assert waiter.told == []


MODULE = """
TAKES_THE_MACHINE = True


def test_nothing():
    pass
"""


@pytest.mark.parametrize("processes", [(), ("-n", "1", "--dist", "loadfile")],
                         ids=["alone", "with xdist"])
def test_the_line_reaches_the_terminal_although_pytest_captures(tmp_path, path, processes):
    """In a tree with the conftest of this one."""
    (tmp_path / "test_taking.py").write_text(MODULE)
    (tmp_path / "conftest.py").write_text(
        "import pathlib\n"
        "from tests import machine_lock\n"
        f"machine_lock.held.__wrapped__.__defaults__ = (pathlib.Path({str(path)!r}), 0.01)\n"
        "from tests.conftest import *\n")
    command = [sys.executable, "-m", "pytest", "-q", "--import-mode=importlib",
               "-p", "no:cacheprovider", "--rootdir", str(tmp_path), *processes, str(tmp_path)]
    with machine_lock.held("the suite", pytest.fail, path):
        run = subprocess.Popen(command, cwd=tree.ROOT, text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
        before = list(itertools.takewhile(lambda line: "waiting for the lock" not in line,
                                          run.stderr))
        is_waiting = run.poll() is None
    said, errors = run.communicate()
    assert is_waiting, said + "".join(before) + errors
    assert run.returncode == 0, said + errors
