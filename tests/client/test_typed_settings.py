"""Types of the client: what a type checker refuses, and what it accepts."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
import typing

import pytest

from multiraft.client._accumulator import ProducerSettings
from multiraft.client._consumer_settings import ConsumerSettings
from multiraft.client._settings import ConsumerOptions, ProducerOptions
from tests.tidy import tree

#: Only a type checker that hangs takes so long.
CHECK_S = 900

#: Lines with ``# error`` have to be refused, all others accepted.
PROGRAM = '''
from multiraft.client import Client as TrioClient
from multiraft.client import ProducerOptions, RecordReceipt, Timestamp
from multiraft.client.blocking import Client, Record, TlsSettings

client = Client("a:1", client_id="x", tls=TlsSettings(ca="ca.pem"))
wide: ProducerOptions = {"linger_ms": 5, "acks": "leader"}
client.producer(**wide)
client.producer(linger_ms=5, compression="zstd", idempotent=False, identity=(1, 2))
client.producer(lingr_ms=5)  # error
client.producer(acks=7)  # error
client.producer(acks="all")  # error
client.producer(linger_ms="5")  # error
client.producer(idempotent="no")  # error
client.consume("t", start={0: 17, 1: "latest", 2: Timestamp(5)}, prefer="nearest", rack="a")
client.consume("t", start="earliest", until_end=True, wait_max_ms=5)
client.consume("t", strat=5)  # error
client.consume("t", prefer="far")  # error
client.consume("t", start={"0": 17})  # error
client.consume("t", fetch_bytes_max=1.5)  # error
client.create_topic("t", if_not_exists=True)
client.create_topic("t", if_exists=True)  # error
receipt: RecordReceipt = client.producer().send(Record("t", b"x")).wait()
number: int = receipt.offset + client.producer().send(Record("t", b"x")).offset
Record("t", "text")  # error
positions: dict[int, int] = client.consume("t").positions()
client.consume("t", start=positions)
Client("a:1", clientid="x")  # error


async def main() -> None:
    async with TrioClient("a:1") as trio:
        async with trio.producer(linger_ms=5) as producer:
            delivery = await producer.send(Record("t", b"x"))
            offset: int = (await delivery.wait()).offset
        trio.producer(lingr_ms=5)  # error
        trio.consume("t", strat=5)  # error
        with trio:  # error
            pass
'''


@pytest.mark.parametrize("options, settings", [(ProducerOptions, ProducerSettings),
                                               (ConsumerOptions, ConsumerSettings)])
def test_options_are_the_settings_with_their_types(options, settings):
    types = typing.get_type_hints(settings)
    assert [*options.__annotations__] == [field.name for field in dataclasses.fields(settings)]
    assert not options.__required_keys__
    for name, hint in typing.get_type_hints(options).items():
        if typing.get_origin(hint) is typing.Literal:
            hint = str
        assert hint == types[name], name


def test_every_choice_of_an_option_is_accepted():
    for options, settings in ((ProducerOptions, ProducerSettings),
                              (ConsumerOptions, ConsumerSettings)):
        for name, hint in typing.get_type_hints(options).items():
            if typing.get_origin(hint) is typing.Literal:
                for choice in typing.get_args(hint):
                    settings(**{name: choice}).validate()


def test_a_type_checker_finds_wrong_names_and_types_and_accepts_the_examples(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    examples = sorted(map(str, (tree.ROOT / "examples").glob("*.py")))
    checked = ["program.py", *examples]
    reports = []
    for file in checked:  # one by one: each is a program of its own
        done = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", "--cache-dir",
             str(tree.ROOT / "build" / "mypy-programs"), "--config-file", "", file],
            cwd=tmp_path, capture_output=True, text=True, timeout=CHECK_S,
            env={**os.environ, "MYPYPATH": str(tree.ROOT)})
        reports.append(done.stdout + done.stderr)
    expected = [number for number, line in enumerate(PROGRAM.splitlines(), 1)
                if line.endswith("# error")]
    found = {int(number) for number in re.findall(r"^program\.py:(\d+): error", reports[0],
                                                  re.MULTILINE)}
    assert sorted(found) == expected, reports[0]
    assert not [report for report in reports[1:] if "Success" not in report], reports[1:]
