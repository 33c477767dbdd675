"""A broker of Kafka: the system that the port of Kafka's clients is compared to.

Contract.  One process that is broker and controller (KRaft), with its files below one directory and
its ports on loopback.  Its jars come from Maven Central, once, into ``build/kafka-broker``.  The
process is ended when the block of ``broker`` ends.

Theory.  Kafka acknowledges what is in the page cache, unless a topic has ``flush.messages=1``: then
the leader syncs a batch before it answers.  With one replica that is what ``acks=commit`` means
here.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from benchmarks.processes import BenchmarkError, ServerProcess, connect, free_ports

VERSION = "4.4.0"
INSTALLED = Path(__file__).resolve().parents[1] / "build" / "kafka-broker"
DOWNLOAD_S = 600.0
FORMAT_S = 60.0
READY_S = 90.0
ASK_S = 2.0
#: Memory of the broker: as much as it uses with some topics, and no more than a small machine has.
HEAP = "640m"
CLUSTER = "bXVsdGlyYWZ0YmVuY2gxMg"

POM = f"""\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>benchmarks</groupId>
  <artifactId>broker</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId>
      <artifactId>log4j-slf4j-impl</artifactId>
      <version>2.25.1</version>
    </dependency>
  </dependencies>
</project>
"""

#: What one node needs beside Kafka's defaults, which are kept otherwise.
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{client}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
auto.create.topics.enable=false
"""

LOG4J = """\
<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="WARN">
  <Appenders><Console name="C"><PatternLayout pattern="%d %p %m (%c)%n"/></Console></Appenders>
  <Loggers><Root level="WARN"><AppenderRef ref="C"/></Root></Loggers>
</Configuration>
"""


def install(directory: Path = INSTALLED) -> Path:
    """Download the broker's jars and return their directory.  Raises ``BenchmarkError`` that names
    the remedy."""
    for command, packages in (("java", "default-jdk-headless"), ("mvn", "maven")):
        if shutil.which(command) is None:
            raise BenchmarkError(f"{command} is missing; run: sudo apt-get install -y {packages}")
    jars, pom, stamp = directory / "jars", directory / "pom.xml", directory / "installed.xml"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == POM:
        return jars
    shutil.rmtree(jars, ignore_errors=True)  # of another version
    directory.mkdir(parents=True, exist_ok=True)
    pom.write_text(POM, encoding="utf-8")
    command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies",
               "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_S,
                              stdin=subprocess.DEVNULL, check=False)
    except subprocess.TimeoutExpired:
        raise BenchmarkError(f"Maven has not downloaded Kafka in {DOWNLOAD_S:.0f} s; run: "
                             f"{' '.join(command)}") from None
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()[-2:]
        raise BenchmarkError(f"Maven cannot download Kafka {VERSION} ({' | '.join(said)}); run: "
                             f"{' '.join(command)}")
    stamp.write_text(POM, encoding="utf-8")
    return jars


def _java(jars: Path, log4j: Path, heap: str, *arguments: str) -> list[str]:
    """Return the command of a JVM as Kafka's own scripts start it."""
    return ["java", f"-Xmx{heap}", f"-Xms{heap}", "-server", "-XX:+UseG1GC",
            "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
            "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={log4j}", "-cp", f"{jars}/*", *arguments]


@contextlib.contextmanager
def broker(directory: Path, jars: Path) -> Iterator[str]:
    """Yield the address of a broker that serves; it is ended at the end in any case."""
    directory.mkdir(parents=True)
    client, controller = free_ports(2)
    log4j, config = directory / "log4j2.xml", directory / "server.properties"
    log4j.write_text(LOG4J, encoding="utf-8")
    config.write_text(PROPERTIES.format(client=client, controller=controller,
                                        data=directory / "data"), encoding="utf-8")
    done = subprocess.run(
        _java(jars, log4j, "256m", "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c",
              str(config)), capture_output=True, text=True, timeout=FORMAT_S, check=False)
    if done.returncode:
        raise BenchmarkError(f"Kafka's storage cannot be formatted: {done.stdout[-1000:]}"
                             f"{done.stderr[-1000:]}")
    with ServerProcess(_java(jars, log4j, HEAP, "kafka.Kafka", str(config)),
                       directory / "broker.log") as server:
        connect(client, READY_S, server).close()
        address = f"127.0.0.1:{client}"
        _wait_until_registered(address, server)
        yield address


def _wait_until_registered(address: str, server: ServerProcess) -> None:
    """Wait until the broker is in its own metadata.  Raises ``BenchmarkError``."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0, "error_cb": _ignored})
    give_up = time.monotonic() + READY_S
    while time.monotonic() < give_up:
        server.require_alive()
        with contextlib.suppress(KafkaException):
            if admin.list_topics(timeout=ASK_S).brokers:
                return
    raise BenchmarkError(f"Kafka does not serve after {READY_S} s")


def _ignored(_error: object) -> None:
    """Take an error of a connection: the next attempt follows."""
