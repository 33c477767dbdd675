"""Requirements of the machine: root installs the missing ones, other users get one line that names
them, before anything is built; on a machine that has only what a test installs.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from chaos.backends import host
from chaos.backends.probes import DISK_COMMANDS, NETWORK_COMMANDS

SCRIPT = Path(__file__).resolve().parents[2] / "deploy" / "machine.sh"
#: Commands of any Debian.
ESSENTIAL = ("sh", "sed", "tr", "paste", "tail", "mktemp", "rm", "cp")
BUILD = ["python3", "python3-venv", "python3-dev", "gcc", "libc6-dev"]
JAVA = "default-jre-headless"
MAVEN = "maven"
TESTS = ["git", "iproute2", "iptables", "e2fsprogs", "mount"]
#: Package -> its command, and the effect of that command.
ARCHIVE = {"python3": ("python3", ""), "gcc": ("cc", ""), "git": ("git", ""),
           JAVA: ("java", "echo 'openjdk version \"17.0.1\"' >&2"), MAVEN: ("mvn", ""),
           "iproute2": ("ip", ""),
           "iptables": ("iptables-restore", ""), "e2fsprogs": ("mkfs.ext4", ""),
           "mount": ("losetup", "")}
APT_GET = """
case "$*" in *--assume-no*) echo 'Need to get 63.2 MB/64.0 MB of archives.'; exit 1;; esac
echo "$*" >>{log}
for word in "$@"; do
  [ ! -d {archive}/$word ] || cp {archive}/$word/* {path}
done
"""


class Machine:
    """A search path of its own, and an archive from which apt-get installs commands into it."""

    def __init__(self, place: Path, user: int):
        self.path, self.log, archive = place / "path", place / "log", place / "archive"
        self.path.mkdir()
        for name in ESSENTIAL:
            (self.path / name).symlink_to(shutil.which(name))
        self.has("id", f"echo {user}")
        self.has("getent")
        self.has("apt-get", APT_GET.format(log=self.log, archive=archive, path=self.path))
        for package, (command, script) in ARCHIVE.items():
            write(archive / package / command, script)

    def has(self, name: str, script: str = "") -> None:
        """Install a command."""
        write(self.path / name, script)

    def asked(self, *parts: str, **environment: str) -> subprocess.CompletedProcess:
        """Run the script, with this path and nothing else."""
        return subprocess.run([shutil.which("sh"), str(SCRIPT), *parts], capture_output=True,
                              text=True, env={"PATH": str(self.path), **environment})

    def installed(self) -> list[list[str]]:
        """Return the packages of each call that installed some."""
        calls = self.log.read_text().splitlines() if self.log.exists() else []
        return [call.partition("--no-install-recommends ")[2].split()
                for call in calls if " install " in call]


def write(command: Path, script: str) -> None:
    command.parent.mkdir(parents=True, exist_ok=True)
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)


@pytest.fixture
def roots(tmp_path) -> Machine:
    """Return a machine on which root runs the script."""
    return Machine(tmp_path, 0)


@pytest.fixture
def users(tmp_path) -> Machine:
    """Return a machine on which a user without root runs the script."""
    return Machine(tmp_path, 1000)


def test_root_gets_all_that_is_missing_and_hears_what_it_was(roots):
    done = roots.asked("build", "java", "maven", "tests")
    assert done.returncode == 0, done.stderr
    assert roots.installed() == [BUILD, [JAVA, MAVEN, *TESTS]]
    assert done.stderr.splitlines() == [
        f"Installing with apt-get: {' '.join(BUILD)} (63.2 MB to download)",
        f"Installing with apt-get: {JAVA} {MAVEN} {' '.join(TESTS)} (63.2 MB to download)"]
    again = roots.asked("build", "java", "maven", "tests")
    assert (again.returncode, again.stderr) == (0, ""), "all is there, and nothing is said"
    assert len(roots.installed()) == 2


@pytest.mark.parametrize(("sudo", "line"), [
    (True, "sudo apt-get update && sudo apt-get install -y {}"),
    (False, "su -c 'apt-get update && apt-get install -y {}'")])
def test_anybody_else_hears_one_line_with_everything_before_anything_is_done(users, sudo, line):
    if sudo:
        users.has("sudo")
    done = users.asked("build", "java", "tests")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "Missing: Python 3.11 or newer, Python's module venv, Python's headers, a C compiler, the "
        "headers of C. Nothing was built. Run: " + line.format(" ".join([*BUILD, JAVA, "git"]))]
    assert not users.log.exists()


def test_what_is_optional_is_left_out_and_named(users):
    users.has("python3")
    users.has("cc")
    done = users.asked("build", "java", "tests")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ("Missing, what needs it is left out: Java 17 or newer (Spark and "
                           "Kafka), git (tests). Run: su -c 'apt-get update && apt-get install -y "
                           f"{JAVA} git'\n")


def test_what_cannot_be_installed_is_told_with_the_reason_and_the_line(roots):
    roots.has("apt-get", "echo 'E: nothing there' >&2; exit 100")
    done = roots.asked("build", "java")
    assert done.returncode == 1
    assert "E: nothing there" in done.stderr
    assert f"Run: apt-get update && apt-get install -y {' '.join(BUILD)} {JAVA}" in done.stderr
    roots.has("python3")
    roots.has("cc")
    done = roots.asked("build", "java")
    assert done.returncode == 0 and "E: nothing there" in done.stderr
    assert "left out: Java 17" in done.stderr


@pytest.mark.parametrize(("version", "is_there"), [
    ("17.0.15", True), ("25-ea", True), ("11.0.2", False), ("1.8.0_402", False)])
def test_an_old_java_is_none(users, version, is_there):
    users.has("java", f"echo 'openjdk version \"{version}\"' >&2")
    assert (users.asked("java").stderr == "") == is_there


def test_a_python_that_is_too_old_is_named_with_the_way_to_take_another_one(users):
    users.has("cc")
    users.has("python3", 'case "$*" in *version_info*) exit 1;; -V) echo Python 3.9.2;; esac')
    done = users.asked("build")
    assert done.returncode == 1 and "Missing: Python 3.11 or newer." in done.stderr
    assert f"(python3 is {users.path}/python3, Python 3.9.2; make PYTHON=... takes another one.)" \
        in done.stderr


def test_a_machine_that_does_not_know_its_own_name_hears_it_for_spark(users):
    users.has("getent", "exit 2")
    users.has("java", "echo 'openjdk version \"17\"' >&2")
    assert ("the name localhost (Spark). Run: su -c 'echo 127.0.0.1 localhost >>/etc/hosts'"
            in users.asked("java").stderr)


def test_another_compiler_and_another_interpreter_are_looked_at_when_they_are_named(users):
    users.has("python3.13")
    users.has("clang")
    done = users.asked("build", PYTHON="python3.13", CC="clang -m64")
    assert (done.returncode, done.stderr) == (0, "")


def test_root_gets_what_the_tests_of_networks_and_disks_are_skipped_without():
    essential = {"util-linux"}
    needed = {host.PACKAGES[command] for command in (*NETWORK_COMMANDS, *DISK_COMMANDS)}
    assert needed - essential <= set(TESTS)


def test_a_part_that_there_is_not_is_refused(users):
    assert users.asked("bild").returncode == 2
