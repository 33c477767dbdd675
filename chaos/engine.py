"""A Docker engine for containers of nodes: the running one, or one that is installed and started
here.

Contract.  ``require`` returns an engine that answers, or raises ``EngineUnavailable`` with one
sentence: a suite without an engine reports that sentence and counts as skipped, never as passed.
An engine that was running is never touched; one that was started here ends with ``Engine.close``,
or with the ledger of the run that it was started for.

Theory.  On Debian root needs only the package and the daemon.  Where cgroups or mounts are
forbidden the daemon ends by itself and gives the reason in its log, which becomes the sentence.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from admin_cli.development import process_table
from chaos.backends import host
from chaos.backends.backend import BackendError

#: Debian's package of the engine; a host of that name exists too, and hosts are not named here.
PACKAGE = "docker" ".io"
#: Releases of Debian after bookworm have the command in a package of its own.
COMMAND_PACKAGE = "docker-cli"
#: Command that installs an engine.
BRING = f"apt-get install -y {PACKAGE} iptables"
INSTALL_S = 300.0
#: A fresh daemon makes its directories and its bridge.
UP_S = 60.0
DOWN_S = 30.0
#: An engine that runs answers at once, one that has just been started soon.
_ANSWER_S = 10.0


class EngineUnavailable(BackendError):
    """Raised when there is no engine and none can be started; the sentence gives the reason."""


class Engine:
    """An engine that answers at ``url``."""

    def __init__(self, url: str, version: str, process: host.ProcessId | None = None,
                 child: subprocess.Popen | None = None):
        self.url = url
        self.version = version
        #: The daemon, when it was started here.
        self.process = process
        self._child = child

    def close(self) -> None:
        """End the daemon that was started here and wait for it, killing it after ``DOWN_S``; any
        other is left alone.  Idempotent."""
        if self.process is None or self._child is None:
            return
        host.send(self.process, signal.SIGTERM)
        try:
            self._child.wait(DOWN_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self.process = None


def running(url: str = "") -> Engine | None:
    """Return the engine that answers, at ``url`` or where the environment says; None when none
    does. Nothing is started."""
    where = ["--host", url] if url else []
    try:
        version = host.run("docker", *where, "version", "--format", "{{.Server.Version}}",
                           timeout_s=_ANSWER_S)
    except BackendError:
        return None
    return Engine(url, version.strip())


def require(started: Callable[[host.ProcessId], None] = lambda _daemon: None) -> Engine:
    """Return the engine that answers, or one that is started here, after installing it if
    necessary; both take root.

    ``started`` is called with a new daemon at once, so that the caller can have it ended if this
    process dies.  Raises ``EngineUnavailable``.
    """
    found = running()
    if found is not None:
        return found
    if not host.is_root():
        raise EngineUnavailable("no Docker engine answers, and starting one takes root. "
                                f"Run as root: {BRING}")
    if host.missing("dockerd", "docker"):
        install()
    return start(started=started)


def install() -> None:
    """Install Debian's packages of the engine and its command by ``apt-get``.  Raises
    ``EngineUnavailable``."""
    if shutil.which("apt-get") is None:
        raise EngineUnavailable("no Docker engine answers, and this machine has no apt-get to "
                                "install one with")
    try:
        host.run("apt-get", "update", timeout_s=INSTALL_S)
        _apt_get(PACKAGE, "iptables")
        if host.missing("docker"):
            _apt_get(COMMAND_PACKAGE)
    except BackendError as error:
        raise EngineUnavailable(f"no Docker engine answers, and none can be installed: "
                                f"{_last_line(str(error))}") from error


def _apt_get(*packages: str) -> None:
    host.run("apt-get", "install", "-y", "--no-install-recommends", *packages,
             timeout_s=INSTALL_S)


def start(command: Sequence[str] = ("dockerd",), url: str = "",
          started: Callable[[host.ProcessId], None] = lambda _daemon: None) -> Engine:
    """Start a daemon by ``command``, call ``started`` with it, and wait until it answers at ``url``
    (the usual place when empty); return its engine.

    Raises ``EngineUnavailable`` when it ends, or does not answer within ``UP_S``; it is killed
    then.
    """
    log = Path(tempfile.mkstemp(prefix="multiraft-dockerd-", suffix=".log")[1])
    try:
        with log.open("wb") as output:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                     stdout=output, stderr=output, start_new_session=True)
    except OSError as error:
        raise EngineUnavailable(f"dockerd cannot be started: {error.strerror}") from error
    process = host.identify(child.pid)
    started(process)
    found: Engine | None = None

    def settled() -> bool:
        nonlocal found
        found = running(url)
        return found is not None or child.poll() is not None

    host.holds(settled, UP_S, poll_s=0.2)
    if found is None:
        child.kill()
        child.wait()
        raise EngineUnavailable(f"dockerd does not start: "
                                f"{_last_line(process_table.log_tail(log)) or 'it says nothing'}")
    log.unlink()
    return Engine(found.url, found.version, process, child)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
