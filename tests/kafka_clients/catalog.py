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
from dataclasses import dataclass
from pathlib import Path

from tests.kafka_clients.connector import ConnectorDriver
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
    #: False if its consumers are members of groups, which this cluster refuses: the native client
    #: reads instead.
    can_fetch: bool = True
    #: True if it has the steps of a stream processor's connector.
    is_connector: bool = False
    header: bytes = b"client"


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
    return lambda directory: python_program(interpreter_with(directory, *requirements), name)


def interpreter_with(directory: Path, *requirements: str) -> Path:
    """Install packages in an environment of their own, named after the first one. Return its
    interpreter."""
    place = directory / requirements[0].replace("==", "-")
    interpreter = place / "bin" / "python"
    wanted = "\n".join(requirements)
    stamp = place / "requirements.txt"
    if not stamp.exists() or stamp.read_text() != wanted:
        installing([sys.executable, "-m", "venv", "--clear", str(place)])
        installing([str(interpreter), "-m", "pip", "install", "-q",
                    "--disable-pip-version-check", *requirements],
                   f"pip install {' '.join(requirements)}")
        stamp.write_text(wanted)
    return interpreter


def python_program(interpreter: Path | str, name: str) -> Open:
    """Return a function that starts a program of ``programs/python`` with an interpreter."""
    return program([str(interpreter), str(PROGRAMS / "python" / f"{name}.py")],
                   PYTHONDONTWRITEBYTECODE="1")


def install_go(name: str) -> Callable[[Path], Open]:
    """Return the installation of a program of ``programs/go``."""
    def install(directory: Path) -> Open:
        require("go", "golang")
        made = directory / "go" / name
        installing(["go", "build", "-o", str(made), f"./{name}"],
                   f"cd {shown(PROGRAMS / 'go')} && go build ./{name}", PROGRAMS / "go")
        return program([str(made)])
    return install


def shown(place: Path) -> str:
    """Return a path of the tree as a command names it."""
    return str(place.relative_to(PROGRAMS.parents[2]))


def install_kafkajs(directory: Path) -> Open:
    """Install kafkajs beside a copy of its program."""
    require("npm", "nodejs npm")
    place = directory / "kafkajs"
    shutil.copytree(PROGRAMS / "kafkajs", place, dirs_exist_ok=True)
    if not (place / "node_modules" / "kafkajs").exists():
        installing(["npm", "install", "--no-package-lock", "--no-fund", "--no-audit"],
                   f"cd {shown(PROGRAMS / 'kafkajs')} && npm install", place)
    return program(["node", str(place / "trial.js")])


def copied_jars(directory: Path, name: str) -> Path:
    """Download the jars that ``pom.xml`` of a directory of ``programs`` names, with those that
    they need. Return their directory."""
    require("mvn", "maven default-jdk-headless")
    place, pom = directory / name, PROGRAMS / name / "pom.xml"
    jars = place / "jars"
    stamp, wanted = place / "pom.xml", pom.read_text()
    if not stamp.exists() or stamp.read_text() != wanted:
        installing(["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies",
                    f"-DoutputDirectory={jars}"],
                   f"mvn -f {shown(pom)} dependency:copy-dependencies")
        stamp.write_text(wanted)
    return jars


def install_jars(directory: Path) -> list[str]:
    """Download the Java client and the tools, compile the program, and return the command of a JVM
    with all of them."""
    require("javac", "default-jdk-headless")
    jars, classes = copied_jars(directory, "java"), directory / "java" / "classes"
    sources = sorted(str(each) for each in (PROGRAMS / "java").glob("*.java"))
    installing(["javac", "-cp", f"{jars}/*", "-d", str(classes), *sources])
    # A short life: no second compiler, one collector thread.
    return ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{jars}/*:{classes}"]


def install_java(directory: Path) -> Open:
    """Install the Java client."""
    return program([*install_jars(directory), "Trial"])


def install_tools(directory: Path) -> Open:
    """Install Kafka's command line tools."""
    java = install_jars(directory)
    return lambda servers, log: ToolsDriver(java, servers)


def install_spark(directory: Path) -> Open:
    """Install Spark in an environment of its own, for the product needs another version, and its
    connector."""
    jars = ",".join(map(str, sorted(copied_jars(directory, "spark").glob("*.jar"))))
    command = [str(interpreter_with(directory, f"pyspark=={SPARK}")),
               str(PROGRAMS / "python" / "with_spark.py"), jars]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return lambda servers, log: ConnectorDriver(command, servers, environment, log)


NO_ADMIN = frozenset({"create", "alter", "settings", "delete records", "delete"})
#: Spark itself; its connector is in programs/spark/pom.xml.
SPARK = "4.2.0"
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
    # Without acknowledgements versions 2 report records as sent that they have not written to the
    # socket: a connection is left out of those to write if nothing is awaited there, and the bytes
    # leave only with a later request.
    Client("kafka-python", "2.3.3", python("with_kafka_python", "kafka-python==2.3.3", *CODECS),
           lacks=frozenset({"acks 0"})),
    Client("kafka-python", "2.0.6", python("with_kafka_python", "kafka-python==2.0.6", *CODECS),
           lacks=frozenset({"acks 0", "idempotent", "killed idempotent", "delete records"})),
    AIOKAFKA, KCAT,
    Client("kafka-clients", "4.4.0", install_java),
    Client("kafka-tools", "4.4.0", install_tools, lacks=frozenset({"time"}), is_text=True,
           sends_null=False, tells_offsets=False),
    Client("franz-go", "1.22.3", install_go("franz_go"), none_is_end=True),
    Client("sarama", "1.61.1", install_go("sarama")),
    Client("kafka-go", "0.4.51", install_go("kafka_go"),
           lacks=frozenset({"idempotent", "killed idempotent", "delete records"}),
           sends_null=False,  # its reader makes null of an empty value
           tells_offsets=False),
    Client("kafkajs", "2.2.4", install_kafkajs, lacks=frozenset({"beginning", "offset", "time"}),
           compressions=("gzip", "snappy"), none_is_end=True, can_fetch=False),
    # Its sink tells no offsets, and nothing of it names brokers.
    Client("spark", SPARK, install_spark, lacks=NO_ADMIN | {"metadata"}, tells_offsets=False,
           is_connector=True),
)
