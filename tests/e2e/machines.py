"""Machines for docs/operations.md: containers that boot Debian with systemd as their first process.

Contract.  ``Machines`` is a context manager: a bridge network with the page's addresses, and
``start(number)`` for each machine on it; at the end everything is removed but the archive of the
base system, which takes minutes to make and is kept in ``build/``.  ``why_not`` names what this
computer lacks.

Theory.  The effect of a unit's sandbox is visible only under a real systemd, and that of an address
only between machines.  A container is enough of a machine for both: it has its own processes,
control groups, network and files, and ``systemctl`` in it is the real one.  It does not test a
kernel of its own, or a power failure.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ARCHIVE = ROOT / "build" / "machine.tar"
SUITE = "bookworm"
#: Packages on the page's machines before the page installs anything.
PACKAGES = ("systemd", "systemd-sysv", "dbus", "python3-venv", "iproute2", "openssh-server", "curl",
            "openssl", "ca-certificates")
NAME = "ops-machine"
IMAGE = f"{NAME}:{SUITE}"
NETWORK = NAME
SUBNET, GATEWAY = "10.0.0.0/24", "10.0.0.254"
BOOT_S = 90.0
POLL_S = 0.2
COMMAND_S = 240.0

#: Everything that systemd needs and a sandbox may deny.  Not ``--privileged``: that needs every
#: capability, which a computer that is itself a container may not have.
CAPABILITIES = (
    "CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE "
    "NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_CHROOT SYS_PTRACE "
    "SYS_ADMIN SYS_BOOT SYS_NICE SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP "
    "SYSLOG").split()
#: Beginnings of lines that a shell remembers.
_FUNCTIONS = ("certify()", "deliver()", "ready()", "nodes=")
#: The machine may change its own control groups; docker mounts them read-only.
BOOT = ("for each in /sys/fs/cgroup /sys/fs/cgroup/*/; do mount -o remount,bind,rw $each; done; "
        "exec /lib/systemd/systemd")


def why_not() -> str:
    """Return why machines cannot be made here; empty when they can."""
    if os.geteuid():
        return "root is needed"
    if shutil.which("docker") is None:
        return "docker is not installed"
    if subprocess.run(["docker", "info"], capture_output=True).returncode:
        return "no docker daemon answers"
    if not ARCHIVE.exists() and shutil.which("debootstrap") is None:
        return "debootstrap is not installed"
    return ""


def docker(*arguments: str, **options) -> subprocess.CompletedProcess:
    """Run one docker command; its output is in the error when it fails."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True,
                          timeout=COMMAND_S, **options)
    assert done.returncode == 0, f"docker {' '.join(arguments)}\n{done.stdout}{done.stderr}"
    return done


def make_archive() -> None:
    """Create the archive of the base system, from Debian's packages."""
    tree = ARCHIVE.parent / "machine"
    shutil.rmtree(tree, ignore_errors=True)
    tree.parent.mkdir(exist_ok=True)
    subprocess.run(["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE,
                    str(tree)], check=True, stdout=subprocess.DEVNULL)
    excluded = [f"--exclude=./{path}/*" for path in ("proc", "sys", "dev", "var/cache/apt",
                                                     "var/lib/apt/lists")]
    unfinished = ARCHIVE.with_suffix(".new")
    subprocess.run(["tar", "-c", "-C", str(tree), "--one-file-system", *excluded, "-f",
                    str(unfinished), "."], check=True)
    unfinished.rename(ARCHIVE)
    shutil.rmtree(tree)


class Machine:
    """One machine."""

    def __init__(self, name: str, address: str, directory: str):
        self.name = name
        self.address = address
        # with the variables that earlier blocks exported, as in one shell
        self._before = [f"cd {directory}"]

    def try_(self, script: str) -> subprocess.CompletedProcess:
        """Type ``script`` as root; a failure is allowed."""
        script = "\n".join([*self._before, script])
        return subprocess.run(["docker", "exec", self.name, "bash", "-o", "pipefail", "-ec",
                               script], capture_output=True, text=True, timeout=COMMAND_S)

    def run(self, script: str) -> str:
        """Type ``script`` and return its standard output; anything but success fails the test."""
        done = self.try_(script)
        assert done.returncode == 0, f"{self.name}:\n{script}\n{done.stdout}\n{done.stderr}"
        self._before += [line for line in script.splitlines()
                         if line.startswith(("export ", *_FUNCTIONS))]
        return done.stdout

    def put(self, path: str, text: str) -> None:
        """Write a file on the machine."""
        script = f"{self._before[0]}; cat > {path}"
        done = subprocess.run(["docker", "exec", "-i", self.name, "sh", "-c", script],
                              input=text, text=True, capture_output=True, timeout=COMMAND_S)
        assert done.returncode == 0, done.stderr

    def unit(self, *properties: str, unit: str = "multiraft") -> dict[str, str]:
        """Return properties of a unit, as ``systemctl show`` prints them."""
        text = self.run(f"systemctl show {unit} --property={','.join(properties)}")
        return dict(line.split("=", 1) for line in text.splitlines())

    def wait(self, condition: Callable[[], object], what: str, limit_s: float = BOOT_S):
        """Wait for ``condition``; return its first true value."""
        end_s = time.monotonic() + limit_s
        while not (value := condition()):
            assert time.monotonic() < end_s, f"{self.name}: not within {limit_s} s: {what}"
            time.sleep(POLL_S)
        return value


class Machines:
    """All machines of a test, on one network."""

    def __init__(self):
        self.all: dict[str, Machine] = {}

    def __enter__(self) -> Machines:
        self._remove()
        if not ARCHIVE.exists():
            make_archive()
        docker("import", "-c", "ENV container=docker", str(ARCHIVE), IMAGE)
        docker("network", "create", "--subnet", SUBNET, "--gateway", GATEWAY, NETWORK)
        return self

    def __exit__(self, *_) -> None:
        if os.environ.get("OPS_KEEP") != "1":
            self._remove()

    def start(self, name: str, host: int, *options: str, directory: str = "~") -> Machine:
        """Start machine ``name`` at the network's address ``host``; return it once it has booted.
        ``directory``: the working directory of typed commands."""
        address = f"{SUBNET.rsplit('.', 1)[0]}.{host}"
        capabilities = [word for name in CAPABILITIES for word in ("--cap-add", name)]
        docker("run", "--detach", "--name", f"{NAME}-{name}", "--hostname", name, "--network",
               NETWORK, "--ip", address, "--cap-drop", "ALL", *capabilities, "--security-opt",
               "seccomp=unconfined", "--security-opt", "systempaths=unconfined",
               "--cgroupns=private", "--stop-signal", "SIGRTMIN+3", "--tmpfs", "/run", "--tmpfs",
               "/run/lock", *options, IMAGE, "/bin/sh", "-c",
               BOOT)
        machine = self.all[name] = Machine(f"{NAME}-{name}", address, directory)
        machine.wait(lambda: machine.try_("systemctl is-system-running").stdout.strip()
                     in ("running", "degraded"), "systemd is up")
        return machine

    def logs(self) -> str:
        """Return the last lines of every node's log, for the report of a failure."""
        return "\n".join(f"---- {name} ----\n" + machine.try_(
            "journalctl --no-pager --lines 25 --unit multiraft").stdout
            for name, machine in self.all.items())

    def _remove(self) -> None:
        """Remove the containers and networks of this run, or of an interrupted one; no others."""
        left = docker("ps", "--all", "--quiet", "--filter", f"network={NETWORK}", "--filter",
                      f"ancestor={IMAGE}").stdout.split() if _has_image() else []
        if left:
            docker("rm", "--force", "--volumes", *left)
        with contextlib.suppress(AssertionError):
            docker("network", "rm", NETWORK)
        with contextlib.suppress(AssertionError):
            docker("image", "rm", IMAGE)


def _has_image() -> bool:
    return bool(docker("images", "--quiet", IMAGE).stdout.strip())
