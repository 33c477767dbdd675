"""Kafka's own broker: one node that is broker and controller, from the jars of Maven's repository.

Contract.  ``install`` downloads the broker of the version in ``pom.xml``, once, and raises
``NotInstalled`` with the command that does.  ``running`` starts it in a directory of its own on
free ports, and ends it by its process id.
"""

from __future__ import annotations

import base64
import contextlib
import shutil
import socket
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.world import wait_for
from tests.kafka_clients.catalog import installing, require
from tests.ports import free_port

POM = Path(__file__).parent / "pom.xml"
START_S, END_S = 120.0, 30.0
LOG_LINES = 20
NODE = 1
#: A short life: no second compiler, one collector thread.
JVM = ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m")


def install(directory: Path) -> Path:
    """Download the broker and its libraries.  Return the directory of the jars."""
    require("mvn", "maven default-jdk-headless")
    jars, stamp, wanted = directory / "broker-jars", directory / "broker-pom.xml", POM.read_text()
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(jars, ignore_errors=True)
        installing(["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies",
                    f"-DoutputDirectory={jars}"],
                   f"mvn -f {POM.name} dependency:copy-dependencies")
        stamp.write_text(wanted)
    return jars


def configuration(directory: Path, port: int, controller: int) -> str:
    """Return the text of the broker's configuration."""
    return "\n".join((
        "process.roles=broker,controller", f"node.id={NODE}",
        "broker.rack=r1",  # of the node
        f"controller.quorum.voters={NODE}@127.0.0.1:{controller}",
        f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names=CONTROLLER", f"log.dirs={directory / 'data'}",
        "offsets.topic.replication.factor=1", "transaction.state.log.replication.factor=1",
        "transaction.state.log.min.isr=1", "auto.create.topics.enable=false",
        "log.retention.ms=-1",  # the records of the comparison are old
        ""))


@contextlib.contextmanager
def running(jars: Path, directory: Path) -> Iterator[int]:
    """Run a broker that is new.  Yield its port."""
    port, controller = free_port(), free_port()
    directory.mkdir(parents=True)
    config, log = directory / "server.properties", directory / "broker.log"
    config.write_text(configuration(directory, port, controller))
    java = [*JVM, "-cp", f"{jars}/*"]
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    subprocess.run([*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(config)],
                   check=True, capture_output=True, timeout=START_S)
    with open(log, "wb") as output:
        process = subprocess.Popen([*java, "kafka.Kafka", str(config)], stdout=output,
                                   stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    try:
        wait_for(lambda: _listens(process, port, log), "the broker listens", START_S)
        yield port
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(END_S)


def _listens(process: subprocess.Popen, port: int, log: Path) -> bool:
    """Return True once the broker accepts connections."""
    lines = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
    assert process.poll() is None, f"the broker ended: {lines}"
    socket.create_connection(("127.0.0.1", port), 1.0).close()
    return True
