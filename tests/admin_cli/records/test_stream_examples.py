"""produce and consume against real nodes: the examples of docs/cli.md, the copy of a topic, and a
lost majority."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from admin_cli.connection import open_client
from admin_cli.dev_cluster import DevCluster
from admin_cli.failures import ExitCode
from admin_cli.main import cli
from admin_cli.packages import distribution_root
from admin_cli.session import Session
from multiraft.client.blocking import Client, Record
from tests.admin_cli.conftest import end
from tests.ports import free_base_port

#: Pause between two checks of a condition.
POLL_S = 0.1
CLI_PAGE = Path(__file__).resolve().parents[3] / "docs" / "cli.md"
HEADERS = (("source", b"radar"), ("raw", b"\xff\0"), ("none", None), ("source", b"twice"))


class Nodes:
    """A cluster of three nodes, and shells that find it."""

    def __init__(self, directory: Path):
        self.directory = directory
        environ = {"XDG_STATE_HOME": str(directory / "state")}
        self.made = DevCluster(directory / "cluster", open_client, environ)
        base = free_base_port(3)
        done = CliRunner().invoke(
            cli, ["dev", "up", "--dir", str(self.made.directory), "--groups", "4", "--base-port",
                  str(base)], obj=Session(environ), prog_name="multiraft")
        assert done.exit_code == 0, done.output
        self.addresses = [f"127.0.0.1:{base + node}" for node in (1, 2, 3)]
        script = directory / "multiraft"
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -m admin_cli "$@"\n')
        script.chmod(0o755)

    def _environ(self) -> dict[str, str]:
        return {**os.environ, "MULTIRAFT_SERVERS": ",".join(self.addresses),
                "PATH": f"{self.directory}:{os.environ['PATH']}",
                "PYTHONPATH": str(distribution_root())}

    def shell(self, line: str) -> subprocess.CompletedProcess:
        """Run a line as a shell does; standard error is part of the output."""
        return subprocess.run(["bash", "-o", "pipefail", "-c", line], env=self._environ(),
                              check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=120)

    @contextlib.contextmanager
    def following(self, *arguments: str) -> Iterator[subprocess.Popen]:
        """A reader in the background; ended with the block."""
        reading = subprocess.Popen(
            # A suite that runs in the background ignores SIGINT, and its children would as well.
            ["env", "--default-signal=INT", sys.executable, "-m", "admin_cli", "consume",
             *arguments], env=self._environ(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            yield reading
        finally:
            reading.kill()
            reading.wait()

    def client(self) -> Client:
        return Client(self.addresses)


@pytest.fixture(scope="module")
def nodes(tmp_path_factory) -> Iterator[Nodes]:
    """The cluster of this module; ended with it."""
    made = Nodes(tmp_path_factory.mktemp("nodes"))
    yield made
    end(made.made)


def examples() -> list[tuple[str, str]]:
    """Return the commands of Produce and Consume with their outputs, in order."""
    text = CLI_PAGE.read_text(encoding="utf-8")
    part = text[text.index("\n## Produce\n"):text.index("\n## Members of a group\n")]
    found: list[tuple[str, str]] = []
    for line in re.findall(r"^    (.*)$", part, flags=re.MULTILINE):
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif found and not line.startswith(("multiraft ", " ", "{")):
            found[-1] = (found[-1][0], f"{found[-1][1]}{line}\n")
    return found


def test_the_examples_of_the_page_print_what_the_page_says(nodes):
    with nodes.client() as client:
        for name in ("greetings", "flights", "copy"):
            client.create_topic(name)
    assert len(examples()) >= 9
    for line, expected in examples():
        done = nodes.shell(line)
        assert (done.returncode, done.stdout.decode()) == (0, expected), line


def records(client: Client, topic: str) -> list[tuple]:
    """Return all that a record of a topic is, in order of partition and offset."""
    found = []
    for batch in client.consume(topic, until_end=True):
        found += [(batch.partition, record.offset, record.timestamp_ms, record.key, record.value,
                   tuple(record.headers)) for record in batch]
    return sorted(found, key=lambda row: row[:2])


def test_json_copies_a_topic_exactly(nodes):
    fields = [None, b"", b"text", "é\u2028\n\"".encode(), b"\xff\0\n", b"\x1b[31m"]
    with nodes.client() as client:
        client.create_topic("original", partitions=3)
        client.create_topic("duplicate", partitions=3)
        with client.producer() as producer:
            for number, (key, value) in enumerate((key, value) for key in fields
                                                  for value in fields):
                producer.send(Record("original", value, key, number % 3 if number % 2 else None,
                                     1_700_000_000_000 + number, HEADERS[:number % 5]))
        done = nodes.shell("multiraft consume original --json | "
                           "multiraft produce duplicate --from-json")
        assert done.returncode == 0, done.stdout
        copied = records(client, "duplicate")
        assert copied == records(client, "original")
        assert len(copied) == len(fields) ** 2
        done = nodes.shell("multiraft consume original --json | "
                           "multiraft produce greetings --from-json --json")
        assert done.returncode == ExitCode.NOT_FOUND, "it has one partition"
        assert b"--repartition" in done.stdout
        done = nodes.shell("multiraft consume original --json | "
                           "multiraft produce greetings --from-json --repartition")
        assert done.returncode == 0, done.stdout


def test_records_of_lengths_are_copied_exactly(nodes):
    with nodes.client() as client:
        for name in ("sized", "sized2"):
            client.create_topic(name)
        with client.producer() as producer:
            for value in (b"a\nb", b"", b"\0" * 300_000):
                producer.send(Record("sized", value, b"k"))
        form = "--format '%K{big32}%V{big32}%k%v'"
        done = nodes.shell(f"multiraft consume sized {form} | multiraft produce sized2 {form}")
        assert done.returncode == 0, done.stdout
        assert [row[3:5] for row in records(client, "sized2")] == \
            [row[3:5] for row in records(client, "sized")]


def test_spans_and_times_are_exact(nodes):
    with nodes.client() as client:
        client.create_topic("timed", partitions=2)
        with client.producer() as producer:
            for number in range(20):
                producer.send(Record("timed", b"%d" % number, None, number % 2,
                                     1_700_000_000_000 + 1_000 * number))

    def read(flags: str) -> list[int]:
        done = nodes.shell(f"multiraft consume timed {flags}")
        assert done.returncode == 0, done.stdout
        return sorted(map(int, done.stdout.split()))

    assert read("-o -2") == [16, 17, 18, 19]
    assert read("-o 2:4") == [4, 5, 6, 7]
    assert read("-o @1700000005000:1700000008000") == [5, 6, 7]
    assert read("-o @2023-11-14T22:13:25Z:2s") == [5, 6]
    assert read("-o @:1700000002000") == [0, 1]
    assert read("-o @1800000000:end") == []
    assert read("--from 0=9") == sorted([18, *range(1, 20, 2)])
    assert read("-r '^tim' -o +8") == [16, 17, 18, 19]
    with nodes.following("timed", "-o", "-1", "-f") as reading:
        assert sorted(reading.stdout.readline() for _ in range(2)) == [b"18\n", b"19\n"]
        reading.send_signal(signal.SIGINT)
        _, err = reading.communicate(timeout=60)
    # A record may be written again: the signal may come between the writing and the counting.
    assert re.search(rb"Continue: multiraft consume timed --from 0=(9|10),1=(9|10) --follow", err)
    assert reading.returncode == ExitCode.INTERRUPTED


def test_a_range_that_is_not_there_yet_is_awaited_by_a_follower(nodes):
    with nodes.client() as client:
        client.create_topic("later")
    assert nodes.shell("seq 2 | multiraft produce later").returncode == 0
    with nodes.following("later", "-o", "1:3", "--follow") as reading:
        assert reading.stdout.readline() == b"2\n"
        assert nodes.shell("seq 3 9 | multiraft produce later").returncode == 0
        out, err = reading.communicate(timeout=60)
    assert (reading.returncode, out, err) == (0, b"3\n", b"")


def test_a_lost_majority_is_named_within_seconds_and_the_timeout_ends_it(nodes):
    """The last test of the module: the cluster is of no use afterwards."""
    with nodes.client() as client:
        client.create_topic("lost")
        assert nodes.shell("seq 3 | multiraft produce lost").returncode == 0
    for node in (2, 3):
        nodes.made.kill(node)
    _await_down(nodes)
    one, two, three = nodes.addresses
    facts = [f"1 of its 3 members is up (node 1 at {one})",
             f"down: node 2 at {two}, node 3 at {three}", "which holds lost/0, has no leader"]
    for line, failed in (("multiraft consume lost --timeout 6s", "lost/0 was not read for 6 s"),
                         ("multiraft consume lost --timeout 6s -o -1", "offsets of lost/0"),
                         ("seq 3 | multiraft produce lost --timeout 6s", "3 records ")):
        begun_s = time.monotonic()
        done = nodes.shell(line)
        assert time.monotonic() - begun_s < 30, "the default takes that long"
        text = done.stdout.decode()
        assert done.returncode in (ExitCode.FAILED, ExitCode.UNREACHABLE,
                                   ExitCode.AMBIGUOUS), text
        waited, _, error = text.partition("Error: ")
        assert failed in error
        for fact in facts:
            assert fact in waited, text
            assert fact in error, text


def _await_down(nodes: Nodes) -> None:
    """Wait until node 1 reports the other two as down."""
    deadline_s = time.monotonic() + 60
    while True:
        with Client(nodes.addresses[:1]) as client:
            states = [node.state for node in client.cluster_status().nodes]
        if states.count("down") == 2:
            return
        assert time.monotonic() < deadline_s, states
        time.sleep(POLL_S)


def test_examples_are_found():
    """A page without examples would pass."""
    assert json.dumps(examples()).count("multiraft produce") >= 5
