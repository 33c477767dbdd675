"""Pages about Kafka's clients: commands and programs run against a real node, tables are true.

The pages name the ports of ``multiraft dev up``; here they are those of a cluster of one node.
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from admin_cli.packages import distribution_root
from multiraft.kafka.apis import ApiKey
from multiraft.kafka.error_codes import ErrorCode
from multiraft.kafka.hot_messages import RequestHeader
from multiraft.kafka.messages.api_versions import ApiVersionsRequest
from multiraft.kafka.requests import decode_response, encode_request
from multiraft.settings.registry import SETTINGS
from node.limits import Limits
from tests import needs
from tests.e2e import world as worlds
from tests.kafka_clients.trial import kafka_servers
from tests.tidy import tree
from tests.tidy.test_scenarios import refusal

PAGE = tree.text("docs/coming-from-kafka.md")
REFERENCE = tree.text("docs/kafka.md")
README = tree.text("README.md").split("## Kafka's clients\n")[1].split("\n## ")[0]
#: Only a command that hangs takes so long.
RUN_S = 300
#: The ports of the pages, one or all of them.
PORTS = re.compile(r"127\.0\.0\.1:940\d(,127\.0\.0\.1:940\d)*")
PAGES = pytest.mark.parametrize("text", [README, PAGE, REFERENCE], ids=["README", "coming-from",
                                                                        "reference"])


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def rows(text: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its first two lines."""
    part = text.split(f"## {heading}\n", 1)[1]
    lines = re.search(r"((?:^\|.*\n)+)", part, re.MULTILINE)[1].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


# ---- what runs ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[worlds.World]:
    """Yield a cluster of one node: programs cannot see replication."""
    with worlds.start(tmp_path_factory.mktemp("cluster") / "dev", 1, 4, 1) as started:
        yield started


@pytest.fixture
def shell(world, tmp_path):
    """Return a function that runs a line of shell and returns what it printed."""
    script = tmp_path / "bin" / "multiraft"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m admin_cli "$@"\n')
    script.chmod(0o755)
    environ = {**os.environ, "PATH": f"{script.parent}:{os.environ['PATH']}",
               "PYTHONPATH": str(distribution_root()), "XDG_STATE_HOME": str(tmp_path),
               "MULTIRAFT_SERVERS": ",".join(world.addresses)}

    def run(line: str) -> str:
        done = subprocess.run(["bash", "-o", "pipefail", "-c", PORTS.sub(
            kafka_servers(world), line)], cwd=tmp_path, env=environ, capture_output=True,
            text=True, timeout=RUN_S, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout

    return run


def commands(block: str) -> list[tuple[str, str]]:
    """Return the commands of a block with the output that is shown, without `dev up`."""
    found: list[tuple[str, str]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            command = re.sub(r"^multiraft dev up( && |$)", "", line[2:].split("  #")[0].strip())
            found.append((command, ""))
        else:
            found[-1] = (found[-1][0], found[-1][1] + line + "\n")
    return [(command, shown) for command, shown in found if command]


@PAGES
def test_commands_of_the_pages_do_what_is_shown(shell, text):
    needs.commands("kcat")
    block = blocks(text, "console")[0]
    assert "kcat -P" in block and "kcat -C" in block
    for command, shown in commands(block):
        printed = shell(command)
        assert not shown or printed == shown, command


@PAGES
def test_programs_of_the_pages_run(world, shell, tmp_path, text):
    pytest.importorskip("confluent_kafka", reason=f"{needs.SKIPPED}confluent-kafka")
    (program,) = blocks(text, "python")
    topic = re.search(r'produce\("([\w-]+)"', program)[1]
    own = program.replace(f'"{topic}"', f'"{topic}-own"')
    assert own.count(f'"{topic}-own"') == program.count(topic)
    shell(f"multiraft topic create {topic}-own")
    file = tmp_path / "program.py"
    file.write_text(PORTS.sub(kafka_servers(world), own), encoding="utf-8")
    printed = shell(f"{shlex.quote(sys.executable)} {file}")
    records = shell(f"multiraft consume {topic}-own").splitlines()
    assert (printed, records) == {
        README: ("offset 0 \nb'demo' b'first light'\n", ["first light"]),
        PAGE: ("1000 records, continue at 1000\n", [str(number) for number in range(1000)]),
        REFERENCE: ("", ["hello"])}[text]


# ---- what is named ------------------------------------------------------------------------------


def named_commands() -> list[str]:
    found = [command for text in (PAGE, REFERENCE, README)
             for command in re.findall(r"`(multiraft [^`]+)`", text)]
    return sorted(set(found))


def test_every_command_that_is_named_is_understood(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("plan.json", "node.toml", "PATH"):
        Path(name).touch()
    assert len(named_commands()) > 30
    tree.complain("commands that are refused:", [
        f"{command}: {why}" for command in named_commands()
        if (why := refusal(shlex.split(command)[1:])) and "dev up" not in command])


def test_each_tool_of_kafka_has_its_command():
    for tool, command in rows(PAGE, "Commands"):
        assert re.fullmatch(r"`.+`", tool.split(", ")[0].split(" away")[0]), tool
        assert "`multiraft " in command or command.startswith(("none", "SIGTERM")), command


def test_keys_of_node_toml_exist():
    keys = " ".join(cells[1] for cells in rows(PAGE, "Configuration of a broker"))
    tables = re.findall(r"`\[(\w+)\]` ((?:`\w+`(?:, | and )?)+)", keys)
    assert {table for table, _ in tables} == {"node", "kafka", "cluster", "storage", "limits",
                                              "security"}
    page = tree.text("docs/configuration.md") + tree.text("docs/limits.md")
    for _, names in tables:
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"^\| .*`{name}`", page, re.MULTILINE), name


def test_settings_of_clients_are_those_of_librdkafka():
    kafka = pytest.importorskip("confluent_kafka", reason=f"{needs.SKIPPED}confluent-kafka")
    named = dict(name.partition("=")[::2] for names, _ in rows(PAGE, "Settings of clients")
                 for name in re.findall(r"`([^`]+)`", names))
    for name, value in (("delivery.timeout.ms", "60000"), ("compression.type", "zstd"),
                        ("group.id", "none"), ("transactional.id", "t"),
                        ("group.instance.id", "i"), ("client.rack", "r")):
        assert named[name] == ""
        named[name] = value
    assert named.pop("bootstrap.servers") == named.pop("ssl.ca.location") == ""
    consumers = {name: named.pop(name) for name in (
        "group.id", "enable.auto.commit", "auto.offset.reset", "client.rack",
        "fetch.message.max.bytes", "group.instance.id")}
    assert len(named) > 8
    kafka.Producer(named)
    kafka.Consumer(consumers).close()


def test_defaults_that_are_named_are_the_defaults():
    assert SETTINGS["retention.ms"].default == "-1"
    assert "Nothing is removed by default" in PAGE
    limits = Limits()
    assert limits.metadata_rows_max == 50_000 and "more than 50,000 partitions" in REFERENCE
    assert limits.partitions_per_topic_max == 10_000 and "| 1 to 10,000, can grow; " in REFERENCE


def advertised(address: str) -> dict[int, tuple[int, int]]:
    """Return the versions of each API that a port names."""
    header = RequestHeader(request_api_key=ApiKey.API_VERSIONS, request_api_version=3,
                           correlation_id=1, client_id="test")
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), RUN_S) as connection:
        connection.sendall(b"".join(map(bytes, encode_request(header, request))))
        with connection.makefile("rb") as answers:
            answer = answers.read(int.from_bytes(answers.read(4), "big"))
    return {api.api_key: (api.min_version, api.max_version)
            for api in decode_response(answer, header).api_keys}


def test_versions_of_the_reference_are_those_that_the_port_names(world):
    shown = {}
    for names, versions, _ in rows(REFERENCE, "What works"):
        ranges = [tuple(map(int, each.split(" to "))) for each in versions.split(", ")]
        shown |= dict(zip(names.lower().split(", "), ranges, strict=True))
    assert shown["produce"] == (3, 13)
    shown["produce"] = (0, 13)  # as the row of ApiVersions says
    assert shown == {ApiKey(key).name.replace("_", "").lower(): versions
                     for key, versions in advertised(kafka_servers(world)).items()}


def test_numbers_of_errors_are_those_of_kafka():
    found = re.findall(r"\b([A-Z_]{8,}) \((\d+)\)", REFERENCE)
    assert len(found) > 25
    assert [each for each in found if ErrorCode[each[0]] != int(each[1])] == []


def test_the_pages_lead_to_each_other():
    for page in ("README.md", "docs/README.md", "docs/kafka.md", "docs/coming-from.md"):
        assert "coming-from-kafka.md)" in tree.text(page), page
