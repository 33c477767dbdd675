"""Driver of Kafka's own command line tools, a JVM that is run for each verb."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tests.kafka_clients.driver import VERB_S, ClientFailed, run
from tests.kafka_clients.records import Record, Row

TOOLS = "org.apache.kafka.tools."
#: Separates the fields of a record in lines of text.
BETWEEN = "\t"


class ToolsDriver:
    """The verbs that the tools have; ``java`` is the command with its class path."""

    def __init__(self, java: Sequence[str], servers: str):
        self._java, self._servers = list(java), ["--bootstrap-server", servers]

    def _run(self, tool: str, *arguments: str, given: bytes = b"") -> str:
        return run([*self._java, TOOLS + tool, *self._servers, *arguments], given).decode()

    def produce(self, topic: str, partition: int, acks: str, compression: str, idempotent: bool,
                header: bytes, records: Sequence[Record]) -> list[int | None]:
        """Produce records. The tool tells no offsets; a failure is an error of its log."""
        lines = b"".join(b"from:%s\t%s\t%s\n" % (header, key, value) for key, value in records)
        settings = {"acks": acks, "enable.idempotence": str(idempotent).lower(),
                    "partitioner.class": "NamedPartition", "named.partition": partition,
                    "delivery.timeout.ms": int(VERB_S * 1000)}
        options = [part for name, value in settings.items()
                   for part in ("--command-property", f"{name}={value}")]
        reader = [part for name in ("parse.key=true", "parse.headers=true")
                  for part in ("--reader-property", name)]
        said = self._run("ConsoleProducer", "--topic", topic, "--compression-codec", compression,
                         *options, *reader, given=lines)
        if "Error when sending message" in said:  # its status is 0 all the same
            raise ClientFailed(said)
        return [-1] * len(records)

    def fetch(self, topic: str, partition: int, start: str | int | dict[str, int],
              count: int) -> list[Row]:
        """Return up to ``count`` records from ``start`` on."""
        place = "earliest" if start == "beginning" else str(start)
        shown = [part for name in ("timestamp", "offset", "headers", "key", "value")
                 for part in ("--formatter-property", f"print.{name}=true")]
        said = self._run("consumer.ConsoleConsumer", "--topic", topic, "--partition",
                         str(partition), "--offset", place, "--max-messages", str(count),
                         "--timeout-ms", str(int(VERB_S * 1000)), *shown)
        rows = []
        for line in said.splitlines():
            if not line.startswith(("CreateTime:", "LogAppendTime:")):
                continue
            at, offset, header, key, value = line.split(BETWEEN)
            rows.append(Row(int(offset.split(":")[1]), int(at.split(":")[1]), key.encode(),
                            value.encode(), header.split(":", 1)[1].encode()))
        return rows

    def offsets(self, topic: str, partition: int, at: str | dict[str, int]) -> int:
        """Return the offset of ``at``."""
        time = str(at["time"]) if isinstance(at, dict) else at
        said = self._run("GetOffsetShell", "--topic-partitions", f"{topic}:{partition}",
                         "--time", time)
        found = re.search(rf"^{re.escape(topic)}:{partition}:(-?\d*)$", said, re.MULTILINE)
        return int(found[1]) if found and found[1] else -1

    def metadata(self, topic: str) -> dict[str, Any]:
        """Return ids of ``brokers`` and the number of ``partitions``."""
        versions = self._run("BrokerApiVersionsCommand")
        topics = self._run("TopicCommand", "--describe", "--topic", topic)
        ids = {int(each) for each in re.findall(r"\(id: (\d+) ", versions)}
        return {"brokers": sorted(ids), "partitions": len(re.findall(r"\tPartition: ", topics))}

    def create(self, topic: str, partitions: int, replication: int) -> None:
        """Create a topic."""
        self._run("TopicCommand", "--create", "--topic", topic, "--partitions", str(partitions),
                  "--replication-factor", str(replication))

    def describe(self, topic: str, name: str) -> str:
        """Return the value of a setting of a topic."""
        said = self._run("ConfigCommand", "--describe", "--entity-type", "topics",
                         "--entity-name", topic)
        found = re.search(rf"\b{re.escape(name)}=(\S+)", said)
        if found is None:
            raise ClientFailed(f"no {name} in {said!r}")
        return found[1]

    def alter(self, topic: str, name: str, value: str) -> None:
        """Change a setting of a topic."""
        self._run("ConfigCommand", "--alter", "--entity-type", "topics", "--entity-name", topic,
                  "--add-config", f"{name}={value}")

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Delete the records before an offset."""
        file = ('{"version": 1, "partitions": [{"topic": "%s", "partition": %d, "offset": %d}]}'
                % (topic, partition, before))
        self._run("DeleteRecordsCommand", "--offset-json-file", "/dev/stdin", given=file.encode())

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        self._run("TopicCommand", "--delete", "--topic", topic)

    def close(self) -> None:
        """Return: each command has ended."""
