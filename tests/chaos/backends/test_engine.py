"""An engine that is found, started, or reported missing, in one sentence."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from chaos import engine
from chaos.backends import host
from chaos.backends.backend import BackendError
from tests import needs

TAKES_THE_MACHINE = True

#: The fixtures of this package disable it.
INSTALL = engine.install
can_start = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("dockerd") is None,
    reason=f"{needs.SKIPPED}starting dockerd takes root and Debian's package of it. "
           f"Run as root: {engine.BRING}")


def daemon(directory) -> list[str]:
    """Yield a daemon that shares nothing with a running one.  It needs a network namespace: a
    daemon without a bridge removes ``docker0``, also that of another engine."""
    return ["unshare", "--net", "dockerd", f"--data-root={directory}/data",
            f"--exec-root={directory}/run", f"--pidfile={directory}/pid",
            f"--host=unix://{directory}/socket", "--bridge=none", "--iptables=false"]


def links() -> set[str]:
    """Return the network links of this machine that an engine may have created."""
    return {path.name for path in Path("/sys/class/net").glob("docker*")}


@can_start
def test_an_engine_is_started_answers_and_ends_with_its_owner(tmp_path_factory):
    # A socket's path has at most 107 bytes.
    directory = tmp_path_factory.mktemp("d")
    heard: list[host.ProcessId] = []
    url = f"unix://{directory}/socket"
    before = links()
    try:
        started = engine.start(daemon(directory), url, heard.append)
    except engine.EngineUnavailable as error:
        pytest.skip(f"NO ENGINE CAN BE STARTED HERE, THIS IS NOT A PASS: {error}")
    try:
        assert heard == [started.process]
        assert host.alive(started.process)
        assert engine.running(url).version == started.version
        assert engine.running(url).process is None  # an engine that was found is not owned
    finally:
        started.close()
    assert not host.alive(heard[0])
    assert engine.running(url) is None
    assert links() == before


@can_start
def test_an_engine_that_does_not_start_says_why(tmp_path):
    with pytest.raises(engine.EngineUnavailable, match="dockerd does not start: .+"):
        engine.start(["dockerd", "--no-such-option"], f"unix://{tmp_path}/socket")


def test_without_an_engine_and_without_root_there_is_one_sentence(monkeypatch):
    monkeypatch.setattr(engine, "running", lambda: None)
    monkeypatch.setattr(host, "is_root", lambda: False)
    with pytest.raises(engine.EngineUnavailable, match="takes root. Run as root: apt-get install"):
        engine.require()


def test_no_engine_is_installed_by_tests(monkeypatch):
    monkeypatch.setattr(engine, "running", lambda: None)
    monkeypatch.setattr(host, "is_root", lambda: True)
    monkeypatch.setattr(host, "missing", lambda *commands: list(commands))
    monkeypatch.setattr(host, "run", lambda *command, **_: pytest.fail(f"{command} is run"))
    with pytest.raises(engine.EngineUnavailable, match="tests install none. Run as root: apt-get"):
        engine.require()


def test_an_engine_that_cannot_be_installed_is_one_sentence(monkeypatch):
    def refuse(*command: str, timeout_s: float = 0.0) -> str:
        raise BackendError(f"`{command[0]}`: first line\nE: nothing there")

    monkeypatch.setattr(engine.shutil, "which", lambda name: name == "apt-get" or None)
    monkeypatch.setattr(host, "run", refuse)
    with pytest.raises(engine.EngineUnavailable, match="E: nothing there"):
        INSTALL()


def test_an_engine_that_runs_is_taken_and_never_ended(monkeypatch):
    found = engine.Engine("unix:///somewhere", "1")
    monkeypatch.setattr(engine, "running", lambda: found)
    assert engine.require() is found
    found.close()
