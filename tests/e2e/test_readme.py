"""The README's commands print what it shows, and its client example runs as printed."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path

import pytest

from admin_cli.packages import distribution_root
from tests import readme
from tests.ports import free_base_port

RUN_S = 600.0
COLUMNS = 80


def test_the_client_example_appends_and_reads_and_may_run_again(world, tmp_path):
    example = readme.client_example()
    addresses = iter(world.addresses)
    example, replaced = re.subn(r"127\.0\.0\.1:\d+", lambda _: next(addresses), example)
    assert replaced == len(world.addresses), "the example names the three nodes of dev up"
    program = tmp_path / "example.py"
    program.write_text(example, encoding="utf-8")
    for _time in range(2):
        done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True,
                              timeout=RUN_S, cwd=tmp_path, env=dict(os.environ), check=False)
        assert done.returncode == 0, done.stderr
        assert "first light" in done.stdout


class Terminal:
    """Shells on a terminal of 80 columns, in a directory of their own."""

    def __init__(self, directory: Path):
        self.base = free_base_port(4)
        self.directory = directory
        script = directory / "bin" / "multiraft"
        script.parent.mkdir()
        script.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m admin_cli "$@"\n')
        script.chmod(0o755)
        self.environ = {**os.environ, "XDG_STATE_HOME": str(directory / "state"), "TERM": "xterm",
                        "PATH": f"{script.parent}:{os.environ['PATH']}",
                        "PYTHONPATH": str(distribution_root())}
        self.environ.pop("MULTIRAFT_SERVERS", None)

    def run(self, command: str) -> tuple[int, list[str]]:
        """Run a line of shell. Return its exit code and the lines that a person sees."""
        line = command.replace("dev up", f"dev up --base-port {self.base}")
        ours, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
        with subprocess.Popen(["bash", "-o", "pipefail", "-c", line], cwd=self.directory,
                              env=self.environ, stdin=subprocess.DEVNULL, stdout=theirs,
                              stderr=theirs) as shell:
            os.close(theirs)
            text = b"".join(_all_of(ours)).decode()
            os.close(ours)
        return shell.returncode, _seen(text)


def _all_of(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(descriptor, 1 << 16)
        except OSError:  # EIO: every process has closed the terminal
            return
        if not data:
            return
        yield data


def _seen(text: str) -> list[str]:
    """Return lines without the control sequences of a terminal, and the last state of each."""
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    return [line.rstrip("\r").split("\r")[-1].rstrip() for line in plain.split("\n")]


def shape(line: str) -> str:
    """Return a line without what differs from one run to the next: numbers, units, bars,
    directories, and whether a number of a plan changes."""
    line = line.replace("./dev-cluster", "DIRECTORY")
    line = re.sub(r"/\S*/dev-cluster", "DIRECTORY", line)
    line = re.sub(r"\d[\d,.]*", "N", line)
    line = re.sub(r"N ([KMGT]i)?B", "N B", line)
    line = re.sub(r"N -> N", "N", line)
    return re.sub(r"\s+", " ", re.sub("[█▏▎▍▌▋▊▉─]+", "", line)).strip()


@pytest.fixture
def terminal(tmp_path) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    yield made
    made.run("multiraft dev down --wipe")


def session() -> list[tuple[str, list[str]]]:
    """Return the commands from `dev up` to `dev down`, with the output that the README shows."""
    found: list[tuple[str, list[str]]] = []
    for block in readme.console_blocks():
        for line in block:
            command = readme.command_of(line)
            if command:
                found.append((command, []))
            elif found and line.strip() not in ("", "..."):
                found[-1][1].append(line)
    names = [command for command, _output in found]
    return found[names.index("multiraft dev up"):names.index("multiraft dev down") + 1]


def test_the_first_commands_print_what_the_readme_shows(terminal):
    for command, expected in session():
        code, lines = terminal.run(command)
        assert code == 0, (command, lines)
        shapes = [shape(line) for line in lines]
        for line in expected:
            assert shape(line) in shapes, f"{command}: {line!r} is not in {lines}"
