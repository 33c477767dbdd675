"""Clients of Kafka under trial: versions, how each is installed, and what each lacks.

Contract.  ``install`` returns a function that opens a driver, or raises ``NotInstalled`` with the
command that installs the client.  Versions are exact.  Everything is installed below one directory,
except the commands of the system.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.kafka_clients.driver import Driver, ProgramDriver
from tests.kafka_clients.kcat import KcatDriver
from tests.kafka_clients.tools import ToolsDriver

PROGRAMS = Path(__file__).parent / "programs"
INSTALL_S = 900.0
ERROR_LINES = 4

#: Opens a driver, given the servers and a file for what the program complains about.
Open = Callable[[str, Path], Driver]
ALL = ("gzip", "snappy", "lz4", "zstd")


class NotInstalled(Exception):
    """A client is not there and cannot be installed. Text: the command that installs it."""


@dataclass(frozen=True)
class Client:
    """One client. ``lacks``: names of steps that it has no function for."""

    name: str
    version: str
    install: Callable[[Path], Open]
    lacks: frozenset[str] = frozenset()
    compressions: Sequence[str] = ALL
    #: True if keys and values are lines of text.
    is_text: bool = False
    #: True if it can produce a record without a value, and an empty one.
    sends_null: bool = True
    #: True if it returns the offset of each record produced.
    tells_offsets: bool = True
    #: True if the offset of a time after the last record is the end of the partition.
    none_is_end: bool = False
    header: bytes = field(default=b"client")


def installing(command: Sequence[str], hint: str = "", cwd: Path | None = None,
               environment: Mapping[str, str] | None = None) -> None:
    """Run a command that installs or builds. Raises ``NotInstalled`` that names it."""
    shown = hint or " ".join(command)
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=INSTALL_S,
                              stdin=subprocess.DEVNULL, env={**os.environ, **(environment or {})})
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalled(f"{shown} ({error})") from error
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()[-ERROR_LINES:]
        raise NotInstalled(f"{shown} ({' | '.join(said)})")


def require(command: str, packages: str) -> None:
    """Return if the system has a command. Raises ``NotInstalled``."""
    if shutil.which(command) is None:
        raise NotInstalled(f"apt-get install -y {packages}")


def program(command: Sequence[str], **environment: str) -> Open:
    """Return a function that starts a program with the servers as its last argument."""
    return lambda servers, log: ProgramDriver([*command, servers], {**os.environ, **environment},
                                              log)


def install_kcat(directory: Path) -> Open:
    """Find kcat, which the system's packages bring."""
    require("kcat", "kcat")
    return lambda servers, log: KcatDriver(servers)


def python(name: str, *requirements: str) -> Callable[[Path], Open]:
    """Return the installation of a program of ``programs/python`` in an environment of its own."""
    def install(directory: Path) -> Open:
        place = directory / requirements[0].replace("==", "-")
        wanted = "\n".join(requirements)
        stamp = place / "requirements.txt"
        if not stamp.exists() or stamp.read_text() != wanted:
            installing([sys.executable, "-m", "venv", "--clear", str(place)])
            installing([str(place / "bin" / "python"), "-m", "pip", "install", "-q",
                        "--disable-pip-version-check", *requirements],
                       f"pip install {' '.join(requirements)}")
            stamp.write_text(wanted)
        return python_program(place / "bin" / "python", name)
    return install


def python_program(interpreter: Path | str, name: str) -> Open:
    """Return a function that starts a program of ``programs/python`` with an interpreter."""
    # The tree's own packages are not the client's: the path of this process is not passed on.
    return program([str(interpreter), str(PROGRAMS / "python" / f"{name}.py")], PYTHONPATH="",
                   PYTHONDONTWRITEBYTECODE="1")


NO_ADMIN = frozenset({"create", "alter", "settings", "delete records", "delete"})
CODECS = ("python-snappy==0.7.3", "lz4==4.4.5", "zstandard==0.25.0")

KCAT = Client("kcat", "1.7.1", install_kcat, NO_ADMIN, tells_offsets=False,
              sends_null=False)
CONFLUENT = Client("confluent-kafka", "2.16.1", python("confluent", "confluent-kafka==2.16.1"))
KAFKA_PYTHON = Client("kafka-python", "3.0.12",
                      python("with_kafka_python", "kafka-python==3.0.12", *CODECS))
AIOKAFKA = Client("aiokafka", "0.14.0", python(
    "with_aiokafka", "aiokafka==0.14.0", "cramjam==2.14.0"))

CLIENTS = (
    CONFLUENT, KAFKA_PYTHON,
    Client("kafka-python", "2.3.3", python("with_kafka_python", "kafka-python==2.3.3", *CODECS)),
    Client("kafka-python", "2.0.6", python("with_kafka_python", "kafka-python==2.0.6", *CODECS),
           lacks=frozenset({"idempotent", "killed idempotent", "delete records"})),
    AIOKAFKA, KCAT,
)
